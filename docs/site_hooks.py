"""What `mkdocs` does in addition to its plugins: pages of the repository's other files, links to them, and two lists.

Pages link to files as they are in the repository, so that links work there too. On the site, a file outside of docs/
becomes a page below project/: a Markdown file as it is, a program as a block of code.
"""

import ast
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
DECISIONS, NAMES = "<!-- the decisions -->", "<!-- the public names -->"
GROUPS = {"core.entries": "Entries", "core.events": "Events", "errors": "Errors"}
"""Module of a public name → the heading under which the reference has it; all others are under Library."""
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s]+)\)")


def outside() -> dict[Path, str]:
    """File of the repository → its place on the site."""
    pages = [*ROOT.glob("*.md"), ROOT / "benchmarks" / "results.md", *(ROOT / "examples").glob("*.py")]
    places = {path: f"project/{path.stem.lower()}.md" for path in pages if path.name != "README.md"}
    return {**places, ROOT / "LICENSE": "project/licence.md", ROOT / "benchmarks" / "cost.svg": "project/cost.svg"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, place in outside().items():
        if path.suffix == ".svg":
            files.append(File.generated(config, place, abs_src_path=str(path)))
            continue
        text = path.read_text(encoding="utf-8")
        if path.suffix != ".md":
            language = path.suffix[1:] or "text"
            text = f"# {path.name}\n\n```{language}\n{text}\n```\n"
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    places = outside()
    sources = {place: path for path, place in places.items()}
    here = sources.get(page.file.src_uri, DOCS / page.file.src_uri)
    folder = os.path.dirname(page.file.src_uri)

    def on_site(found: re.Match[str]) -> str:
        target, _, anchor = found[2].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return found[0]
        path = (here.parent / target).resolve()
        place = places.get(path) or (str(path.relative_to(DOCS)) if path.is_relative_to(DOCS) else "index.md")
        return f"{found[1]}({os.path.relpath(place, folder)}{'#' + anchor if anchor else ''})"

    if DECISIONS in markdown:
        markdown = markdown.replace(DECISIONS, decisions())
    if NAMES in markdown:
        markdown = markdown.replace(NAMES, public_names())
    return outside_of_code(LINK, on_site, markdown)


def outside_of_code(pattern: re.Pattern[str], replacement: Any, text: str) -> str:
    parts, last = [], 0
    for block in FENCE.finditer(text):
        parts += [pattern.sub(replacement, text[last : block.start()]), block[0]]
        last = block.end()
    return "".join([*parts, pattern.sub(replacement, text[last:])])


def decisions() -> str:
    lines = []
    for path in sorted((DOCS / "decisions").glob("*.md")):
        title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        lines.append(f"- [{title}](../decisions/{path.name})")
    return "\n".join(lines)


def public_names() -> str:
    """A directive of mkdocstrings for every name in `turnlog.__all__`, in groups."""
    tree = ast.parse((ROOT / "src" / "turnlog" / "__init__.py").read_text(encoding="utf-8"))
    origins: dict[str, str] = {}
    listed: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            origins |= {alias.asname or alias.name: node.module or "" for alias in node.names}
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            listed = ast.literal_eval(node.value)
    groups: dict[str, list[str]] = {"Library": []} | {heading: [] for heading in GROUPS.values()}
    for name in sorted(listed, key=str.lower):
        if not name.startswith("_"):
            groups[GROUPS.get(origins.get(name, ""), "Library")].append(f"::: turnlog.{name}")
    return "\n\n".join("\n\n".join([f"## {heading}", *names]) for heading, names in groups.items() if names)

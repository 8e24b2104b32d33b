"""What the documentation says is true: its code runs, its lines decode, its tables are those of the code."""

import ast
import asyncio
import configparser
import contextlib
import io
import os
import re
import tomllib
from inspect import iscoroutine
from pathlib import Path

import msgspec
import pytest
from benchmarks import in_short, report
from benchmarks.claims import claims
from benchmarks.plan import FULL, QUICK

import turnlog
from turnlog import settings
from turnlog.codecs import native
from turnlog.core.entries import Entry, Stored
from turnlog.core.events import Event
from turnlog.errors import TurnlogError
from turnlog.stores import word_index

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "turnlog"
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NEEDED_BY_ADAPTERS = {
    "openai_agents": ("agents",),
    "langgraph": ("langgraph.graph", "langgraph.checkpoint.sqlite", "langchain.agents"),
    "claude_agent_sdk": ("claude_agent_sdk",),
    "google_adk": ("google.adk",),
    "pydantic_ai": ("pydantic_ai.conversation_store",),
}
ENTRY_TYPES = {str(kind.__struct_config__.tag): kind for kind in Entry.__args__}


def name_of(page):
    return str(page.relative_to(ROOT))


def every_page(test):
    return pytest.mark.parametrize("page", PAGES, ids=name_of)(test)


def blocks_of(page, *languages):
    """(line of its first line, text) of each fenced block in these languages."""
    text = page.read_text(encoding="utf-8")
    return [(text.count("\n", 0, m.start(2)) + 1, m[2]) for m in FENCE.finditer(text) if m[1] in languages]


def section(page, title):
    """What stands under a heading, up to the next of the same or a higher level."""
    text = page.read_text(encoding="utf-8")
    found = re.search(rf"^(#+) {re.escape(title)}$", text, re.MULTILINE)
    assert found, f"{name_of(page)} has no section {title!r}"
    end = re.compile(rf"^#{{1,{len(found[1])}}} ", re.MULTILINE).search(text, found.end())
    return text[found.end() : end.start() if end else len(text)]


def rows_of(table):
    """The cells of each row of the first table in a text, without its heading."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def run_block(runner, code, where, line, names):
    """What it printed. `await` at the top level is allowed, as in `python -m asyncio`."""
    tree = compile("\n" * (line - 1) + code, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        result = eval(tree, names)
        if iscoroutine(result):
            runner.run(result)
    return printed.getvalue()


def runnable(page):
    """(line, code, expected output or None): a text block right after a python block is what it prints."""
    text = page.read_text(encoding="utf-8")
    fences = list(FENCE.finditer(text))
    for fence, following in zip(fences, [*fences[1:], None], strict=True):
        if fence[1] != "python":
            continue
        is_output = following and following[1] == "text" and not text[fence.end() : following.start()].strip()
        yield text.count("\n", 0, fence.start(2)) + 1, fence[2], following[2] if is_output else None


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page, "python")], ids=name_of)
def test_every_python_block_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch):
    if page.parent.name == "adapters":
        for module in NEEDED_BY_ADAPTERS[page.stem]:
            pytest.importorskip(module, reason=f"needs {module}; `make adapters` runs it")
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.startswith("TURNLOG_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("TURNLOG_HOME", str(tmp_path / "home"))
    recipes = [path.read_text(encoding="utf-8") for path in (ROOT / "examples" / "recipes").glob("*.py")]
    names = {"__name__": "docs"}
    with asyncio.Runner() as runner:  # one loop for the page, which rests while a block calls asyncio.run itself
        for line, code, expected in runnable(page):
            if code in recipes:
                continue  # tests/test_recipes.py runs them, with a server in place of the model's
            printed = run_block(runner, code, name_of(page), line, names)
            assert expected is None or printed == expected, f"{name_of(page)}, line {line}"


def test_no_two_steps_of_the_tutorial_share_a_store():
    """Who follows the steps in one directory must see what the pages say, as here, where each page has its own."""
    steps = sorted((ROOT / "docs" / "tutorial").glob("*.md"))
    used = [set(re.findall(r"sqlite:[\w.-]+", page.read_text(encoding="utf-8"))) for page in steps]
    assert sum(map(len, used)) == len(set.union(*used)) == len(steps) - 1  # the list of steps has none


def make_targets():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][\w-]*):(?!=)", text, re.MULTILINE))


@every_page
def test_every_command_on_a_page_is_a_target_of_the_makefile(page):
    for line, text in blocks_of(page, "sh"):
        for command in text.splitlines():
            words = command.partition("#")[0].split()
            if words:
                assert words[0] == "make", f"{name_of(page)}, line {line}: {command}"
                targets = {word for word in words[1:] if "=" not in word}
                assert targets <= make_targets(), f"{name_of(page)}, line {line}: {command}"


@every_page
def test_only_known_kinds_of_blocks_are_used_so_that_none_goes_unchecked(page):
    kinds = {m[1] for m in FENCE.finditer(page.read_text(encoding="utf-8"))}
    assert kinds <= {"", "python", "sh", "text", "jsonl", "toml", "sql", "bash", "ini"}  # bash: tests/cli/test_docs.py


@every_page
def test_every_link_inside_the_project_resolves(page):
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        path, _, anchor = target.partition("#")
        if path.startswith(("http:", "https:", "mailto:")):
            continue
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{name_of(page)} links to {target}"
        assert there.is_relative_to(ROOT), f"{name_of(page)} links out of the project: {target}"
        if anchor:
            assert anchor in anchors(there), f"{name_of(page)} links to {target}"


def anchors(page):
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


FORMAT = ROOT / "docs" / "reference" / "entries.md"


def fields_of(kind):
    own = set(kind.__struct_fields__) - (set(Stored.__struct_fields__) - set(kind.__annotations__))
    return {kind.__struct_encode_fields__[kind.__struct_fields__.index(name)] for name in own}


def required_of(kind):
    return {field.encode_name for field in msgspec.structs.fields(kind) if field.required}


@pytest.mark.parametrize("kind", ENTRY_TYPES)
def test_every_entry_type_is_documented_with_its_fields_and_a_line_of_it(kind):
    text = section(FORMAT, kind)
    documented = {row[0].strip("`?"): row[0].endswith("?") for row in rows_of(text)}
    assert set(documented) == fields_of(ENTRY_TYPES[kind])
    assert {name for name, optional in documented.items() if not optional} == required_of(ENTRY_TYPES[kind])
    lines = [line for block in FENCE.finditer(text) if block[1] == "jsonl" for line in block[2].splitlines()]
    assert lines, "there is an example"
    assert any(native.decode(line.encode()).__struct_config__.tag == kind for line in lines)


def test_no_entry_type_is_documented_that_does_not_exist():
    documented = re.findall(r"^### (.+)$", section(FORMAT, "Entry types"), re.MULTILINE)
    assert documented == list(ENTRY_TYPES)


def test_every_example_line_is_what_the_codec_writes():
    for number, text in blocks_of(FORMAT, "jsonl"):
        lines = text.encode().splitlines()
        entries = [native.decode(line) for line in lines]
        if any(native.until_of(line) for line in lines):
            assert native.encode_append(entries) == text.encode(), f"line {number}"
        else:
            assert [native.encode(entry) for entry in entries] == lines, f"line {number}"


def test_the_tables_of_the_database_are_the_documented_ones():
    schema = "".join(
        path.read_text(encoding="utf-8") for path in sorted((PACKAGE / "stores" / "sqlite" / "sql").glob("*.sql"))
    )
    tables = set(re.findall(r"CREATE (?:VIRTUAL )?TABLE (\w+)", schema)) | set(word_index.TABLES)
    tables -= set(re.findall(r"DROP TABLE (?:IF EXISTS )?(\w+)", schema))
    documented = {
        name.strip("` ") for row in rows_of(section(FORMAT, "The SQLite store")) for name in row[0].split(",")
    }
    assert documented == tables


SETTINGS = ROOT / "docs" / "reference" / "settings.md"
ERRORS = ROOT / "docs" / "reference" / "errors.md"
EVENTS = ROOT / "docs" / "reference" / "events.md"
FAQ = ROOT / "docs" / "faq.md"


def all_settings():
    for name, kind in settings.SECTIONS.items():
        for field in kind.__struct_fields__:
            yield f"{name}.{field}", getattr(kind(), field)


def as_written(value):
    if isinstance(value, tuple | list):
        return ", ".join(map(as_written, value))
    if isinstance(value, dict):
        return ", ".join(value)
    return {None: "unset", True: "true", False: "false"}.get(value, str(value))


def test_the_table_of_settings_has_every_key_with_its_default():
    documented = {row[0].strip("`"): row[1].strip("`") for row in rows_of(section(SETTINGS, "All settings"))}
    assert documented == {name: as_written(value) for name, value in all_settings()}


def test_the_table_of_settings_names_every_allowed_word():
    text = {row[0].strip("`"): row[2] for row in rows_of(section(SETTINGS, "All settings"))}
    for name, kind in settings.SECTIONS.items():
        for field in msgspec.structs.fields(kind):
            for word in getattr(field.type, "__args__", ()):
                if isinstance(word, str):
                    assert f"`{word}`" in text[f"{name}.{field.encode_name}"], f"{word} of {field.encode_name}"


def test_the_table_of_presets_is_what_the_presets_set():
    documented = {row[0].strip("`"): row[1] for row in rows_of(section(SETTINGS, "Presets"))}
    expected = {
        name: "; ".join(f"`{key} = {as_written(value)}`" for key, value in values.items()) or "nothing"
        for name, values in settings.PRESETS.items()
    }
    assert documented == expected


def test_the_settings_file_on_the_page_is_one_that_loads(tmp_path):
    (block,) = blocks_of(SETTINGS, "toml")
    (tmp_path / "config.toml").write_text(block[1], encoding="utf-8")
    loaded = settings.load(home=tmp_path, env={})
    assert set(loaded.origins.values()) >= {"config.toml"}


def test_the_architecture_lists_every_module_under_its_folder_and_no_others():
    listed, folders, named = {}, [], set()
    for line in blocks_of_text(section(ROOT / "ARCHITECTURE.md", "Folders")).splitlines():
        head = re.match(r"^( *)(\w+)/ ", line)
        if head:
            depth = len(head[1]) // 2
            folders[depth:] = [head[2]]
        elif folders:
            named |= {"/".join([*folders[1:], name]) for name in line.split()}
        listed.setdefault("/".join(folders[1:]), set()).update(re.findall(r"\w+", line))
    assert {name for name in named if not (PACKAGE / f"{name}.py").exists()} == set()
    for path in PACKAGE.rglob("*.py"):
        folder = str(path.parent.relative_to(PACKAGE)).replace(".", "")
        assert folder in listed, f"{folder} is not listed"
        assert path.stem == "__init__" or path.stem in listed[folder], f"{folder}/{path.stem} is not listed"


def blocks_of_text(text):
    return "".join(m[2] for m in FENCE.finditer(text))


def exists(name):
    """Whether there is a file of this name, or a module with this member: `core/session.describe`."""
    if any((folder / name).exists() for folder in (ROOT, PACKAGE, PACKAGE.parent)):
        return True
    path, _, member = name.partition(".")
    found = [file for file in (PACKAGE / f"{path}.py", PACKAGE / path / "__init__.py") if file.exists()]
    declared = rf"^\s*((async )?def|class) {member}\b|^{member}\b"
    return any(not member or re.search(declared, file.read_text(), re.MULTILINE) for file in found)


def test_every_module_and_file_that_the_pages_for_contributors_name_exists():
    parts = {path.stem for path in PACKAGE.iterdir()}
    for page in PAGES:
        if page.name == "CHANGELOG.md" or (page.parent != ROOT and page.parent.name != "decisions"):
            continue
        for name in re.findall(r"`([\w./-]+)`", FENCE.sub("", page.read_text(encoding="utf-8"))):
            if "NAME" not in name and (name.endswith(".py") or ("/" in name and name.split("/")[0] in parts)):
                assert exists(name), f"{name_of(page)} names {name}"


def docstrings_of(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def test_every_module_class_and_constant_that_a_docstring_names_exists():
    parts = {path.stem for path in PACKAGE.iterdir()}
    modules = [path for path in PACKAGE.rglob("*.py") if "sync" not in path.parts]
    by_name = {}
    for path in modules:
        by_name.setdefault(path.parent.name if path.stem == "__init__" else path.stem, []).append(path.read_text())
    for path in modules:
        for name in (name for text in docstrings_of(path) for name in re.findall(r"`([\w/]+(?:\.\w+)?)`", text)):
            module, _, member = name.partition(".")
            if "/" in name and module.split("/")[0] in parts:
                assert exists(name), f"{path} names {name}"
            elif module in by_name and member[:1].isupper():
                assert any(re.search(rf"\b{member}\b", text) for text in by_name[module]), f"{path} names {name}"


def test_the_architecture_fits_on_a_few_screens():
    assert len((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()) <= 230


def test_every_error_is_named_in_the_reference():
    text = ERRORS.read_text(encoding="utf-8")
    todo = [TurnlogError]
    while todo:
        kind = todo.pop()
        todo += [sub for sub in kind.__subclasses__() if sub.__module__ == "turnlog.errors"]
        assert f"`{kind.__name__}`" in text


def event_classes():
    return {str(kind.__struct_config__.tag): kind for kind in Event.__args__}


def test_the_table_of_events_is_that_of_the_code():
    kinds = event_classes()
    table = EVENTS.read_text(encoding="utf-8").partition("\n## ")[0]
    rows = {row[0].strip("`"): row for row in rows_of(table)}
    assert set(rows) == set(kinds)
    for name, row in rows.items():
        fields = set(re.findall(r"`(\w+)`", row[2].partition(":")[0]))
        assert (row[1].strip("`"), fields) == (kinds[name].__name__, set(kinds[name].__struct_fields__)), name


def test_every_error_message_of_the_faq_is_one_of_the_code():
    """`…` stands for what differs; every other piece of a heading is in the source."""
    source = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    source = re.sub(r'"\s+f?"', "", source)  # a text that is written in two pieces
    headings = re.findall(r"^### `(.+)`$", section(FAQ, "By error message"), re.MULTILINE)
    assert len(headings) > 15
    for heading in headings:
        for piece in heading.replace("unknown setting", "setting").split("…"):
            assert piece.strip() in source, heading


def test_the_measured_comparison_is_that_of_the_results():
    """If not: python -m benchmarks.in_short"""
    results = in_short.RESULTS.read_text(encoding="utf-8")
    for page in in_short.PAGES:
        text = page.read_text(encoding="utf-8")
        assert in_short.BEGIN in text
        assert in_short.with_table(text, results) == text, name_of(page)


@pytest.mark.parametrize("scale", [FULL, QUICK], ids=["full", "quick"])
def test_every_target_of_the_benchmark_can_be_told(scale):
    for claim in claims(scale):
        assert report.against_of(claim, {}) is not None


def test_the_unit_of_systemd_is_well_formed_and_runs_a_command_that_exists():
    (block,) = blocks_of(ROOT / "docs" / "operating" / "systemd.md", "ini")
    unit = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    unit.optionxform = str
    unit.read_string(block[1])
    assert unit.sections() == ["Unit", "Service", "Install"]
    assert unit["Service"]["ExecStart"].endswith("/bin/turnlog serve")
    assert int(unit["Service"]["TimeoutStopSec"]) > settings.load(home="nowhere", env={}).server.drain_s


@every_page
def test_every_extra_that_a_page_names_exists(page):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known = set(project["optional-dependencies"])
    for named in re.findall(r"turnlog(?:-[\w.-]+\.whl)?\[([\w,]+)\]", page.read_text(encoding="utf-8")):
        assert set(named.split(",")) <= known, named


def test_the_site_has_every_page_in_its_navigation():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"[\w/-]+\.md", text)
    apart = {"decisions"}
    pages = {str(path.relative_to(ROOT / "docs")) for path in PAGES if path.is_relative_to(ROOT / "docs")}
    assert sorted(listed) == sorted(page for page in pages if page.split("/")[0] not in apart)


def test_decision_records_are_numbered_without_a_gap_and_have_one_form():
    records = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [int(path.name[:4]) for path in records] == list(range(1, len(records) + 1))
    for path in records:
        headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert headings[0].startswith(f"{int(path.name[:4])}. ")
        assert headings[1:] == ["Context", "Decision", "Consequences"], path.name


@every_page
def test_no_page_names_a_package_registry_or_a_place_on_somebodys_machine(page):
    text = page.read_text(encoding="utf-8").lower()
    hosts = (("py", "pi"), ("python", "hosted"), ("npm", "js"), ("ana", "conda"))
    places = ("work", "root", "home", "users", "tmp")
    for word in (*("".join(host) + "." for host in hosts), *(f"/{place}/" for place in places)):
        assert word not in text, f"{name_of(page)} says {word}"


@every_page
def test_lines_of_prose_are_short_enough_to_read(page):
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    long = [line for line in prose.splitlines() if len(line) > 120 and not line.startswith("|")]
    assert not long, long


def test_version_and_changelog_agree():
    newest = re.search(
        r"^## (\S+) \((unreleased|\d{4}-\d{2}-\d{2})\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert newest, "the newest section of the changelog has no version and date"
    assert newest[1] == turnlog.__version__
    assert f"{turnlog.__version__}, {newest[2]}" in section(ROOT / "README.md", "Status")

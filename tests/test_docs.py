"""What the documentation says is true: its code runs, its lines decode, its tables are those of the code."""

import ast
import asyncio
import contextlib
import io
import os
import re
from inspect import iscoroutine
from pathlib import Path

import msgspec
import pytest

from turnlog import settings
from turnlog.codecs import native
from turnlog.core.entries import Entry, Stored
from turnlog.errors import TurnlogError

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "turnlog"
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
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
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.startswith("TURNLOG_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("TURNLOG_HOME", str(tmp_path / "home"))
    names = {"__name__": "docs"}
    with asyncio.Runner() as runner:  # one loop for the page, which rests while a block calls asyncio.run itself
        for line, code, expected in runnable(page):
            printed = run_block(runner, code, name_of(page), line, names)
            assert expected is None or printed == expected, f"{name_of(page)}, line {line}"


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
    ran_elsewhere = {"bash"} if page.name == "cli.md" else set()  # by tests/cli/test_docs.py
    assert kinds <= {"", "python", "sh", "text", "jsonl", "toml", "sql"} | ran_elsewhere


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


FORMAT = ROOT / "docs" / "transcript-format.md"


def fields_of(kind):
    own = set(kind.__struct_fields__) - set(Stored.__struct_fields__)
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
    schema = "".join(path.read_text(encoding="utf-8") for path in sorted((PACKAGE / "stores" / "sql").glob("*.sql")))
    tables = set(re.findall(r"CREATE (?:VIRTUAL )?TABLE (\w+)", schema))
    documented = {row[0].strip("`") for row in rows_of(section(FORMAT, "The SQLite store"))}
    assert documented == tables


CONCEPTS = ROOT / "docs" / "concepts.md"


def all_settings():
    for name, kind in settings._SECTIONS.items():
        for field in kind.__struct_fields__:
            yield f"{name}.{field}", getattr(kind(), field)


def as_written(value):
    if isinstance(value, tuple | list):
        return ", ".join(map(as_written, value))
    return {None: "unset", True: "true", False: "false"}.get(value, str(value))


def test_the_table_of_settings_has_every_key_with_its_default():
    documented = {row[0].strip("`"): row[1].strip("`") for row in rows_of(section(CONCEPTS, "All settings"))}
    assert documented == {name: as_written(value) for name, value in all_settings()}


def test_the_table_of_settings_names_every_allowed_word():
    text = {row[0].strip("`"): row[2] for row in rows_of(section(CONCEPTS, "All settings"))}
    for name, kind in settings._SECTIONS.items():
        for field in msgspec.structs.fields(kind):
            for word in getattr(field.type, "__args__", ()):
                if isinstance(word, str):
                    assert f"`{word}`" in text[f"{name}.{field.encode_name}"], f"{word} of {field.encode_name}"


def test_the_table_of_presets_is_what_the_presets_set():
    documented = {row[0].strip("`"): row[1] for row in rows_of(section(CONCEPTS, "Presets"))}
    expected = {
        name: "; ".join(f"`{key} = {as_written(value)}`" for key, value in values.items()) or "nothing"
        for name, values in settings.PRESETS.items()
    }
    assert documented == expected


def test_the_settings_file_on_the_page_is_one_that_loads(tmp_path):
    (block,) = blocks_of(CONCEPTS, "toml")
    (tmp_path / "config.toml").write_text(block[1], encoding="utf-8")
    loaded = settings.load(home=tmp_path, env={})
    assert set(loaded.origins.values()) >= {"config.toml"}


def test_the_architecture_names_every_module_and_no_other():
    text = section(ROOT / "ARCHITECTURE.md", "Modules")
    named = set(re.findall(r"^([\w/]+\.py)\s", text, re.MULTILINE))
    parts = set(re.findall(r"^(\w+/)\s", text, re.MULTILINE))
    modules = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py")}
    in_parts = {module for module in modules if module.partition("/")[0] + "/" in parts}
    assert named == modules - in_parts, "a part is named as a whole, or each of its modules is"
    assert {module.partition("/")[0] + "/" for module in in_parts} == parts


def test_the_architecture_fits_on_a_few_screens():
    assert len((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_every_error_is_named_in_the_concepts():
    text = section(CONCEPTS, "Errors")
    todo = [TurnlogError]
    while todo:
        kind = todo.pop()
        todo += [sub for sub in kind.__subclasses__() if sub.__module__ == "turnlog.errors"]
        assert f"`{kind.__name__}`" in text


def test_decision_records_are_numbered_without_gaps_and_have_one_form():
    records = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [path.name[:5] for path in records] == [f"{n:04d}-" for n in range(1, len(records) + 1)]
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

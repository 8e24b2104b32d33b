"""The import rule, the size of things, and what `import turnlog` costs, checked from the source itself."""

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import turnlog

SRC = Path(turnlog.__file__).parent
MODULES = sorted(SRC.rglob("*.py"))

FLOORS = (
    {"errors", "texts", "web"},
    {"runtime"},
    {"core"},
    {"codecs"},
    {"stores", "providers", "tools", "channels.platforms"},
    {"sessions", "convlog", "memory", "interchange.exporting", "shapes"},
    {"turns"},
    {"settings"},
    {"access"},
    {"library"},
    {"sync"},
    {"channels", "interchange"},
    {"wiring"},
    {"server", "adapters"},
    {"cli"},
)
"""From the ground up. A part imports itself and what stands on lower floors, never its neighbours."""
CONTRACT_OF_CHANNELS = {"channels", "channels.http", "channels.requests"}
"""What every platform is written against, so it is on their floor; the rest of `channels` joins them to sessions."""
ANYWHERE = {"", "__main__", "testing.bench", "testing.torture"}
"""The package itself hands out names, lazily; `python -m turnlog` starts the command line; bench and torture try the
whole program, so they stand in `testing` and use all of it."""

IMPURE = {"asyncio", "os", "time", "random", "secrets", "logging", "threading", "pathlib", "socket", "subprocess", "io"}


def module_of(path):
    """Its name within the package; a package is named without `__init__`, the whole one by nothing."""
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {module_of(path) for path in MODULES}


def part_of(module):
    if module in CONTRACT_OF_CHANNELS:
        return "channels.platforms"
    parts = {part for floor in FLOORS for part in floor} | {"testing"}
    return max((part for part in parts if f"{module}.".startswith(f"{part}.")), key=len)


def floor_of(part):
    return next(number for number, floor in enumerate(FLOORS) if part in floor)


def imported(path):
    """("inner", a module of ours) or ("outer", a top-level module of others) for each import statement."""
    package = ["turnlog", *path.relative_to(SRC).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (("outer", alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield "outer", (node.module or "").partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] + (node.module or "").split(".") * bool(node.module)
            for alias in node.names:
                whole = ".".join([*base[1:], alias.name])
                yield "inner", whole if whole in NAMES else ".".join(base[1:])


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_every_module_imports_only_from_floors_below_its_own(path):
    module = module_of(path)
    if module in ANYWHERE:
        return
    part = part_of(module)
    floor = floor_of("channels") if part == "testing" else floor_of(part)
    for kind, name in imported(path):
        if kind == "inner" and name:
            other = part_of(name)
            assert (
                other == part
                or (other != "testing" and floor_of(other) < floor)
                or (other == "testing" and part == "cli")
            ), f"{module} imports {name}"


@pytest.mark.parametrize("path", sorted((SRC / "core").glob("*.py")), ids=lambda path: path.name)
def test_the_core_is_pure(path):
    outer = {name for kind, name in imported(path) if kind == "outer"}
    assert not outer & IMPURE
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Await | ast.AsyncFunctionDef)]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_no_module_and_no_function_is_too_long_to_hold_in_the_head(path):
    source = path.read_text(encoding="utf-8")
    assert source.count("\n") <= 400, f"{path.name} should be cut"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno < 60, f"{path.name}: {node.name} should be cut"


def test_every_lint_exception_has_its_reason_on_the_same_line():
    root = SRC.parents[1]
    folders = [root / name for name in ("src", "tests", "benchmarks", "examples", "requirements")]
    for path in (path for folder in folders for path in folder.rglob("*.py") if "site-packages" not in path.parts):
        bare = re.findall(r"^.*# noqa(?:: [A-Z\d, ]+)?$", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert not bare, f"{path}: {bare}"


@pytest.mark.parametrize("folder", ["benchmarks", "examples"])
def test_names_that_benchmarks_and_examples_import_exist(folder):
    """Most of them are not run here: their packages need not be there."""
    wanted = {
        (node.module, name.name): path
        for path in (SRC.parents[1] / folder).rglob("*.py")
        if "site-packages" not in path.parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "turnlog"
        for name in node.names
    }
    for (module, name), path in wanted.items():
        assert importlib.util.find_spec(module), f"{path}: there is no {module}"
        try:
            there = importlib.import_module(module)
        except ImportError:
            continue
        assert hasattr(there, name) or importlib.util.find_spec(f"{module}.{name}"), f"{path}: {module} has no {name}"


def test_import_turnlog_is_light():
    code = "import sys, turnlog; print(' '.join(sys.modules))"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not loaded & {"asyncio", "apsw", "rich", "logging", "subprocess", "turnlog.stores", "turnlog.sessions"}


def test_every_public_name_can_be_had():
    for name in turnlog.__all__:
        assert getattr(turnlog, name) is not None
    with pytest.raises(AttributeError):
        _ = turnlog.nonsense


def test_every_error_has_a_message_and_a_hint_of_its_own():
    def tree(kind):
        return [kind, *(leaf for child in kind.__subclasses__() for leaf in tree(child))]

    for kind in tree(turnlog.TurnlogError)[1:]:
        error = kind()
        assert str(error) == kind.__doc__.splitlines()[0]
        if kind not in (turnlog.StoreError,):
            assert error.hint
        assert kind("other", hint="do this").hint == "do this"


def test_no_two_public_classes_or_types_have_one_name():
    """One word, one meaning: a reader who searches for a name finds one thing."""
    found = {}
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(module_of(path))
            elif isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation):
                found.setdefault(ast.unparse(node.target), []).append(module_of(path))
    assert {name: where for name, where in found.items() if len(where) > 1 and not name.startswith("_")} == {}


def made_of_dicts(tree):
    """Names that a module assigns an object literal to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and isinstance(node.value, ast.Dict):
            yield from (n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


def test_every_fact_that_is_written_to_the_ledger_has_a_struct():
    """So that one place says which fields a fact has; `facts.read` gives it back."""
    for path in MODULES:
        if module_of(path).startswith(("stores", "testing")):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        raw = set(made_of_dicts(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("put_if_absent", "cas"):
                wrong = [a for a in node.args if isinstance(a, ast.Dict) or (isinstance(a, ast.Name) and a.id in raw)]
                assert not wrong, f"{module_of(path)}, line {node.lineno}"


EDGES = [path for path in MODULES if path.relative_to(SRC).parts[0] in ("server", "cli")]
ROUTES = [
    path
    for path in EDGES
    if path.relative_to(SRC).parts[:2] in {("server", part) for part in ("api", "compatible", "mcp", "pages")}
    and path.name != "stdio.py"  # it is no route: it starts a process of its own
]
RAW = {"store", "queue", "_store", "_queue"}
RAW_NAMES = {"Store", "Queue", "Runner", "open_store"}


@pytest.mark.parametrize("path", EDGES, ids=lambda path: str(path.relative_to(SRC)))
def test_no_edge_holds_a_store_or_a_queue(path):
    """Edges act through `Turnlog.acting_for(principal)` and named verbs of `Turnlog` (decision 25)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    attributes = [(node.lineno, node.attr) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    assert [found for found in attributes if found[1] in RAW] == []
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not {alias.name for node in imports for alias in node.names} & RAW_NAMES


@pytest.mark.parametrize("path", ROUTES, ids=lambda path: str(path.relative_to(SRC)))
def test_no_route_holds_the_opened_library(path):
    """Routes get the `Access` of the caller; only the code that starts them holds `Turnlog`, which may do all."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not attributes & {"turnlog", "_turnlog"}
    assert not {name.partition(".")[0] for kind, name in imported(path) if kind == "inner"} & {"library", "wiring"}

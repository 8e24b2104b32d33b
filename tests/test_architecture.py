"""The import rule, the size of things, and what `import turnlog` costs, checked from the source itself."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import turnlog

SRC = Path(turnlog.__file__).parent
MODULES = sorted(SRC.rglob("*.py"))

ALLOWED = {
    "core": {"core", "errors"},
    "codecs": {"core", "codecs", "errors"},
    "stores": {"core", "codecs", "stores", "errors"},
    "providers": {"core", "providers", "errors"},
    "sessions": {"core", "stores", "errors"},
    "copying": {"core", "codecs", "stores", "sessions", "errors"},
    "importing": {"core", "codecs", "stores", "importing", "errors"},
    "exporting": {"core", "codecs", "exporting", "errors"},
    "doctor": {"core", "stores", "importing", "doctor", "errors"},
    "settings": {"core", "errors"},
    "progress": {"stores"},
    "testing": {"core", "codecs", "stores", "providers", "testing", "errors"},
    "tools": {"core", "tools", "errors"},
    "request_log": {"core", "errors"},
    "retrying": {"errors"},
    "memory": {"core", "stores", "errors", "memory_tables", "memory_postgres"},
    "memory_tables": {"core", "stores", "errors", "memory"},
    "memory_postgres": {"core", "stores", "errors", "memory"},
    "expiry": {"core", "stores", "sessions", "settings", "errors"},
    "live": {"core"},
    "tickets": {"core", "live", "stores"},
    "calibration": {"core", "stores"},
    "journal": {"core", "stores", "sessions", "errors"},
    "compactor": {"core", "journal", "retrying", "errors"},
    "ladder": {"core", "compactor", "journal", "errors"},
    "agents": {"core", "compactor", "providers", "tools"},
    "runner": {
        *("core", "stores", "providers", "tools", "sessions", "errors"),
        *("agents", "calibration", "compactor", "journal", "ladder", "retrying"),
    },
    "queue": {"core", "stores", "errors", "journal", "live", "runner", "tickets"},
    "stopping": {"stores", "errors", "queue"},
    "library": {
        *("core", "stores", "sessions", "settings", "errors"),
        *("agents", "compactor", "expiry", "journal", "ladder", "memory", "queue", "runner", "stopping"),
    },
    "wiring": {
        *("core", "stores", "providers", "tools", "sessions", "settings", "errors"),
        *("agents", "compactor", "journal", "library", "memory", "queue", "request_log", "runner"),
    },
    "convlog": {"core", "stores", "errors", "convlog_files", "convlog_tables", "convlog_postgres"},
    "convlog_files": {"core", "stores", "errors", "convlog"},
    "convlog_tables": {"stores", "convlog"},
    "convlog_postgres": {"stores", "convlog", "convlog_blocks", "errors"},
    "convlog_blocks": {"stores"},
    "channels": {"core", "channels", "errors"},
    "outbox": {"core", "stores", "channels", "errors"},
    "chat_commands": {"core", "library", "errors"},
    "visits": {"core", "channels", "chat_commands", "outbox"},
    "settling": {"core", "errors", "chat_commands", "library", "live", "outbox", "queue", "visits"},
    "switchboard": {
        *("core", "stores", "errors", "channels", "chat_commands", "convlog"),
        *("library", "live", "outbox", "queue", "settling", "visits"),
    },
    "server": {
        *("core", "stores", "sessions", "settings", "errors", "__version__", "switchboard"),
        *("channels", "convlog", "expiry", "library", "live", "outbox", "queue", "stopping", "wiring", "web", "server"),
    },
    "cli": {
        *("core", "stores", "providers", "sessions", "settings", "copying", "progress", "errors", "__version__"),
        *("agents", "library", "queue", "wiring", "server", "cli"),
        *("doctor", "exporting", "importing", "testing"),
        *("channels", "convlog", "expiry", "memory", "outbox", "switchboard"),
    },
    "__main__": {"cli"},
    "errors": set(),
    "__init__": {"core", "errors", "stores", "sessions", "copying", "wiring", "library", "tools"},
}
"""part → parts it may import. Only lazily loaded names make `turnlog` itself know the rest."""

IMPURE = {"asyncio", "os", "time", "random", "secrets", "logging", "threading", "pathlib", "socket", "subprocess", "io"}


def part(path):
    return path.relative_to(SRC).with_suffix("").parts[0]


def imported(path):
    """(module as written from the package's root, or the outer module's name) for each import statement."""
    package = ["turnlog", *path.relative_to(SRC).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (("outer", alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield "outer", (node.module or "").partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] + (node.module or "").split(".") * bool(node.module)
            inner = base[1:] if len(base) > 1 else None
            yield from (("inner", inner[0]),) if inner else (("inner", alias.name) for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_every_module_imports_only_what_its_part_may(path):
    for kind, name in imported(path):
        if kind == "inner":
            assert name in ALLOWED[part(path)], f"{path.name} imports {name}"


@pytest.mark.parametrize("path", sorted((SRC / "core").glob("*.py")), ids=lambda path: path.name)
def test_the_core_is_pure(path):
    outer = {name for kind, name in imported(path) if kind == "outer"}
    assert not outer & IMPURE
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Await | ast.AsyncFunctionDef)]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_no_module_and_no_function_is_too_long_to_hold_in_the_head(path):
    source = path.read_text(encoding="utf-8")
    assert source.count("\n") <= 500, f"{path.name} should be cut"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno < 60, f"{path.name}: {node.name} should be cut"


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

"""The wheel in an empty environment: what each extra brings, ten commands, and what is said where an extra is missing.

The environments have the built wheel and links to those packages of the test environment that the wheel's metadata asks
for, with all that these need: what an installer would put there, without its downloads. `slow`: the installer itself.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import turnlog

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
APART = {"all", "testing", "otel", "openai-agents", "langgraph", "claude", "adk", "pydantic-ai"}
"""`all` is the sum of others; `testing` is for those who test a store of their own, and nothing of ours asks for it;
nothing asks for `otel` either: without it there are no traces;
the others are agent frameworks, whose adapters name their extras themselves (`tests/adapters/test_resident.py`)."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (path,) = folder.glob("*.whl")
    return path


class Environment:
    """A virtual environment with the wheel and what these extras bring."""

    def __init__(self, folder, wheel, *extras):
        self.folder = folder
        venv.create(folder, symlinks=True, with_pip=False)
        (self.packages,) = folder.glob("lib/python*/site-packages")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self.packages)
        (info,) = self.packages.glob("turnlog-*.dist-info")
        for found in needed(PathDistribution(info), set(extras)).values():
            link(found, self.packages)
        (entry,) = PathDistribution(info).entry_points.select(group="console_scripts", name="turnlog")
        self.command = folder / "bin" / "turnlog"
        self.command.write_text(f"#!{folder}/bin/python\nfrom {entry.module} import {entry.attr}\n{entry.attr}()\n")
        self.command.chmod(0o755)

    def run(self, *args, code=None, program=None, stdin="", **variables):
        command = [str(self.folder / "bin" / "python"), "-c", program] if program else [str(self.command), *args]
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "PYTHONWARNINGS": "error", **variables}
        done = subprocess.run(command, cwd=home, env=env, input=stdin, capture_output=True, text=True, timeout=120)
        assert code is None or done.returncode == code, f"{args}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done


def needed(found: Distribution, extras, known=None):
    """Name → distribution of everything that a distribution needs with these extras."""
    known = {} if known is None else known
    for text in found.requires or ():
        asked = Requirement(text)
        if asked.marker and not any(asked.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
            continue
        if asked.name == "turnlog":
            needed(found, asked.extras, known)
        elif asked.name not in known or asked.extras:
            known[asked.name] = distribution(asked.name)
            needed(known[asked.name], asked.extras, known)
    return known


def link(found: Distribution, packages):
    for name in {Path(str(file)).parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
        target = packages / name
        if not target.exists():
            target.symlink_to(Path(str(found.locate_file(name))))
        elif target.is_symlink() and target.is_dir() and Path(str(found.locate_file(name))) != target.resolve():
            raise AssertionError(f"{name} comes from two places")


@pytest.fixture(scope="module")
def base(wheel, tmp_path_factory):
    return Environment(tmp_path_factory.mktemp("base"), wheel)


@pytest.fixture(scope="module")
def cli(wheel, tmp_path_factory):
    return Environment(tmp_path_factory.mktemp("cli"), wheel, "cli")


LIBRARY = """
import asyncio, sys, turnlog

async def main():
    async with turnlog.open(model_name="offline") as t:
        async for event in t.send("agent:main:cli:direct:ann", "My name is Ann."):
            pass
        print((await t.history("agent:main:cli:direct:ann")).messages[0])

asyncio.run(main())
print(sorted(name for name in ("click", "rich", "litestar", "httpx", "openai", "anthropic") if name in sys.modules))
"""


def test_the_base_package_is_the_library_with_sqlite_and_nothing_more(base):
    done = base.run(program=LIBRARY, code=0)
    assert done.stdout.splitlines() == ["{'role': 'user', 'content': 'My name is Ann.'}", "[]"]
    assert (base.folder / "home" / ".turnlog" / "memory" / "sessions.db").exists()


def test_the_program_of_the_readme_runs_verbatim_from_the_wheel(base):
    program = (ROOT / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    done = base.run(program=program, code=0)
    assert "You said: “My name is Ann.”" in done.stdout
    assert done.stdout.endswith("In your message I see: “My name is Ann.”")
    assert "missing" in base.run(program=NO_EXTRA, code=0).stdout


NO_EXTRA = """
import turnlog

try:
    turnlog.connect("memory:", model_name="openai:gpt-5.5").session("ann").ask("hi")
except turnlog.TurnlogError as error:
    print("missing" if 'pip install "turnlog[openai]"' in error.hint else error)
"""


def test_the_wheel_has_the_marker_of_types_every_data_file_and_no_tests(wheel):
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if name.startswith("turnlog/")}
    files = [
        path for path in (ROOT / "src" / "turnlog").rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    assert inside == {str(path.relative_to(ROOT / "src")) for path in files}
    assert "turnlog/py.typed" in inside


COMMANDS = [
    ("--version", f"turnlog {turnlog.__version__}"),
    ("--help", "Chat with LLM agents"),
    ("chat -p hello --label first --new", ""),
    ("chat -p again --session first", ""),
    ("sessions list", "first"),
    ("sessions show first", "again"),
    ("sessions search again", "again"),
    ("explain first", "tail"),
    ("prompt first --json", '"messages"'),
    ("sessions export first --format native", '"type":"user"'),
    ("copy sqlite:.turnlog/memory/sessions.db sqlite:copy.db", ""),
    ("doctor .turnlog", ""),
    ("config", "store.url"),
    ("completion bash", "turnlog"),
]


def test_ten_commands_run_from_the_wheel(cli):
    assert len(COMMANDS) >= 10
    for line, expected in COMMANDS:
        done = cli.run(*line.split(), code=0)
        assert expected in done.stdout, line
        assert done.stderr == "", line


def in_library(body):
    """A program that prints the class and the hint of what `body`, which may await, raises."""
    lines = "".join(f"\n        {line}" for line in body.splitlines())
    return f"""
import asyncio, turnlog
async def main():
    try:{lines}
    except turnlog.TurnlogError as error:
        print(type(error).__name__, error.extra, error.hint, sep="|")
asyncio.run(main())
"""


def opening(*arguments):
    return in_library(f"async with turnlog.open({', '.join(arguments)}): pass")


MISSING = {
    "postgres": opening("'postgresql://nobody@127.0.0.1/nothing'"),
    "mcp": in_library(
        "from turnlog.tools.mcp import mcp_tools\nasync with mcp_tools('files', {'command': 'cat'}): pass"
    ),
    "html": in_library(
        "from turnlog.interchange.exporting import export\n"
        "async with turnlog.open('memory:', model_name='offline') as t:\n"
        "    row = await t.sessions.open('main:cli:ann')\n"
        "    loaded = await t.sessions.transcript(row.id)\n"
        "    ''.join(export(loaded.entries, loaded.session, 'html'))"
    ),
    "channels": in_library(
        "from turnlog.channels.accounts import open_channels\n"
        "open_channels({'telegram': {'token': '1:a', 'mode': 'poll'}}, agents=('main',))"
    ),
    "discord": in_library(
        "from turnlog.channels.accounts import open_channels\n"
        "keys = {'token': 't', 'public_key': 'ab' * 32, 'application_id': '1'}\n"
        "open_channels({'discord': keys}, agents=('main',))"
    ),
}
"""Extra → a program of the library that needs it."""
MISSING_COMMANDS = {
    "cli": ("base", "sessions list"),
    "server": ("cli", "serve --port 0"),
    "openai": ("cli", "chat -p hello --model openai:gpt-x"),
    "anthropic": ("cli", "chat -p hello --model anthropic:claude-x"),
    "local": ("cli", "chat -p hello --model local:x.gguf"),
}
"""Extra → the environment without it, and a command that needs it."""


def install(extra):
    return f'pip install "turnlog[{extra}]"'


@pytest.mark.parametrize("extra", MISSING)
def test_the_library_names_the_extra_that_is_missing(base, extra):
    printed = base.run(program=MISSING[extra], code=0).stdout.strip()
    assert printed == f"MissingExtra|{extra}|Install it: {install(extra)}"


@pytest.mark.parametrize("extra", MISSING_COMMANDS)
def test_the_command_names_the_extra_that_is_missing(request, extra):
    environment, line = MISSING_COMMANDS[extra]
    done = request.getfixturevalue(environment).run(*line.split(), code=2)
    assert install(extra) in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    told = json.loads(request.getfixturevalue(environment).run(*line.split(), "--json", code=2).stderr)
    assert told["code"] == "usage"
    assert install(extra) in told["hint"]


def test_a_command_line_without_all_of_its_packages_names_its_extra(wheel, tmp_path):
    """As with a web framework that brings click and nothing else."""
    environment = Environment(tmp_path / "partly", wheel)
    link(distribution("click"), environment.packages)
    environment.run("config", code=0)
    done = environment.run("chat", stdin="/help\n", code=None)
    assert done.returncode == 0 or install("cli") in done.stderr, "it answers, or says what to install"
    assert "Traceback" not in done.stderr


def test_every_extra_has_its_case_and_all_has_those_that_fit_together():
    extras = PROJECT["optional-dependencies"]
    assert {*MISSING, *MISSING_COMMANDS} == set(extras) - APART, "add a case to MISSING for a new extra"
    (together,) = extras["all"]
    assert set(Requirement(together).extras) == set(extras) - APART - {"local"} | {"otel"}


def test_the_source_names_only_extras_that_exist():
    named = set()
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        named |= set(re.findall(r"""(?:extra=["']|turnlog\[)([\w-]+)""", text))
    assert named <= set(PROJECT["optional-dependencies"])


def test_the_server_answers_from_the_wheel(wheel, tmp_path):
    """With the extra `server` alone, and not that of the command line."""
    environment = Environment(tmp_path / "server", wheel, "server")
    made = environment.run("token", "create", "ann", "--scope", "chat", code=0)
    assert made.stdout.strip()
    done = environment.run(program="import turnlog.server.main, turnlog.server.app; print('imported')", code=0)
    assert done.stdout == "imported\n"


def test_the_image_is_built_from_files_that_exist():
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    sources = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    assert sources
    sent = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for name in " ".join(sources).split():
        assert (ROOT / name).exists(), name
        assert any(name == each or name.startswith(f"{each}/") for each in sent), f".dockerignore keeps {name} out"


def test_the_pins_of_the_image_are_those_of_everything_that_fits_together():
    """All of it is pinned with its hashes, in versions that the project asks for."""
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements" / "all.txt").read_text(), re.MULTILINE))
    wanted = [*PROJECT["dependencies"]]
    for extra in Requirement(PROJECT["optional-dependencies"]["all"][0]).extras:
        wanted += PROJECT["optional-dependencies"][extra]
    for asked in map(Requirement, wanted):
        name = re.sub(r"[-_.]+", "-", asked.name).lower()
        assert name in pins, f"compile requirements/all.txt again: {name} is missing"
        assert asked.specifier.contains(pins[name]), f"compile requirements/all.txt again: {name}"


@pytest.mark.slow
def test_an_installer_gives_everything_from_the_wheel(wheel, tmp_path):
    """With downloads: the pins of the image, then the wheel and all its extras, which need nothing else."""
    venv.create(tmp_path / "env", with_pip=True, symlinks=True)
    pip = [str(tmp_path / "env" / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run(
        [*pip, "--require-hashes", "--no-deps", "-r", str(ROOT / "requirements" / "all.txt")], check=True, timeout=900
    )
    subprocess.run([*pip, "--no-index", f"{wheel}[all]"], check=True, timeout=900)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    for line, expected in COMMANDS:
        command = [str(tmp_path / "env" / "bin" / "turnlog"), *line.split()]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, ""), line
        assert expected in done.stdout, line

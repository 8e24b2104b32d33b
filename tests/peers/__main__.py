"""python -m tests.peers FOLDER [--store postgresql] [--lowest] [--keep DIR] [SUITE …]

FOLDER holds the scripts that run the suites (langgraph.sh, openai_agents.sh, claude_agent_sdk.sh). Each runs in an
environment of its own, with the newest or the lowest version of the framework that the extra allows, and with the tests
of that version. Ends with 1 if a test failed.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMON = ("pytest", "pytest-asyncio", "pytest-timeout", "pytest-mock")
CONNECTIONS = "600"
"""Each store that a test forgot keeps some until it is collected."""


class Suite:
    def __init__(self, extra, adapter, *packages):
        self.extra = extra
        self.adapter = adapter
        """The name in `peer_postgres`."""
        self.packages = packages


SUITES = {
    "openai_agents": Suite(
        *("openai-agents", "TurnlogSession"),
        *("inline-snapshot", "aiosqlite", "cryptography", "fakeredis", "sqlalchemy", "greenlet"),
    ),
    "langgraph": Suite(
        *("langgraph", "TurnlogSaver"),
        *("langgraph", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-conformance"),
        *("langgraph-checkpoint-postgres", "psycopg[binary,pool]", "pytest-repeat", "syrupy", "pycryptodome", "redis"),
        *("httpx", "langchain", "uvloop", "numpy", "pandas", "pytest-retry"),
    ),
    "claude_agent_sdk": Suite("claude", "TurnlogSessionStore", "trio", "anyio[trio]"),
}


LEFT_OUT = {
    "claude_agent_sdk": [
        "tests/test_session_resume.py::TestTimeoutsAndErrors::test_cancelled_after_mkdtemp_cleans_temp_dir",
    ]
}
"""On a server: this test gives `load` 50 steps of the event loop, whatever time they take."""


def lowest_of(extra):
    """The package of an extra, and its lowest version that the extra allows."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        [wanted] = tomllib.load(file)["project"]["optional-dependencies"][extra]
    return re.match(r"([a-z-]+)>=([\d.]+)", wanted).groups()


def python_of(name, suite, keep, *, lowest):
    """The interpreter of the suite's environment, made if it is not there."""
    place = keep / f"{name}-{'lowest' if lowest else 'newest'}"
    python = place / "bin" / "python"
    if not (place / "made").exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        wanted = [
            f"{ROOT}[postgres,{suite.extra}]",
            *COMMON,
            *suite.packages,
            *(["==".join(lowest_of(suite.extra))] if lowest else []),
        ]
        subprocess.run([python, "-m", "pip", "install", "-q", "-e", *wanted], check=True)
        (place / "made").touch()
    return python


def prepare_sources(name, suite, folder, keep, python):
    """Unpacks the tests of the installed version. The scripts name files; those that came later are made empty."""
    package = "langgraph" if name == "langgraph" else lowest_of(suite.extra)[0]
    version = subprocess.run(
        [python, "-c", f"import importlib.metadata as m; print(m.version({package!r}))"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    command = [python, folder / "_sdist.py", package, version, keep / "sdists"]
    place = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])
    for test in re.findall(r"\btests/[\w/]+\.py\b(?!::)", (folder / f"{name}.sh").read_text()):
        if (place / test).parent.is_dir():
            (place / test).touch()


def run(name, folder, keep, postgres, *, lowest):
    suite = SUITES[name]
    python = python_of(name, suite, keep, lowest=lowest)
    prepare_sources(name, suite, folder, keep, python)
    env = {**os.environ, "PEER_DIR": str(keep), "PEER_PYTHON": str(python)}
    adapter = []
    if postgres:
        env |= {"PEER_POSTGRES": postgres, "PEER_PATH": str(Path(__file__).parent)}
        env["PYTEST_ADDOPTS"] = " ".join(f"--deselect={test}" for test in LEFT_OUT.get(name, ()))
        adapter = [f"peer_postgres.{suite.adapter}"]
    done = subprocess.run([folder / f"{name}.sh", *adapter], env=env, capture_output=True, text=True, check=False)
    what = "lowest" if lowest else "newest"
    print(
        f"{name}, {what} version, {'PostgreSQL' if postgres else 'as it is'}:\n{done.stdout}{done.stderr}", flush=True
    )
    return done.returncode


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.peers")
    parser.add_argument("folder", type=Path, help="the folder of the scripts")
    parser.add_argument("suites", nargs="*", choices=[*SUITES, []], help="only these")
    parser.add_argument("--store", choices=["postgresql"], help="on this store instead of memory and files")
    parser.add_argument("--lowest", action="store_true", help="the lowest versions that the extras allow")
    parser.add_argument("--keep", type=Path, help="where environments and sources are kept between runs")
    asked = parser.parse_intermixed_args()
    keep = (asked.keep or Path(tempfile.gettempdir()) / "peer-suites").resolve()
    keep.mkdir(parents=True, exist_ok=True)
    postgres = None
    if asked.store:
        from ..stores.postgres import Server

        postgres = Server(max_connections=CONNECTIONS).url("postgres")
    folder = asked.folder.resolve()
    failed = [name for name in asked.suites or SUITES if run(name, folder, keep, postgres, lowest=asked.lowest)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

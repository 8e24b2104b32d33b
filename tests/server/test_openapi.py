"""The description of the interface: current, complete, and kept by a real server against whatever is thrown at it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from turnlog.core import events
from turnlog.server import openapi

from .running import running, talk

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "openapi.json"
GUIDE = ROOT / "docs" / "http-api.md"
EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "3"))


@pytest.fixture(scope="module")
def described():
    command = [sys.executable, "-m", "turnlog.server.openapi"]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def test_the_checked_in_description_is_current(described):
    """If not: python -m turnlog.server.openapi > docs/openapi.json"""
    assert json.loads(FILE.read_text()) == described


def test_every_operation_is_explained_in_the_guide(described):
    guide = GUIDE.read_text()
    named = set(re.findall(r"`(GET|POST|PATCH|DELETE) (/[^`? ]*)", guide))
    there = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
    assert named >= {(m, p) for m, p in there if not p.startswith("/api/sessions/")}
    assert named <= there | {("GET", "/openapi.json")}


def test_every_event_and_every_problem_is_explained_in_the_guide():
    guide = GUIDE.read_text()
    for kind in events.Event.__args__:
        assert f"`{kind.__struct_config__.tag}`" in guide, kind
    for status in openapi.PROBLEMS:
        assert status in guide


def test_every_operation_has_a_name_of_its_own_and_needs_a_token(described):
    operations = [(path, it) for path, methods in described["paths"].items() for it in methods.values()]
    names = [it["operationId"] for _, it in operations]
    assert len(set(names)) == len(names)
    for path, it in operations:
        assert it["security"] or path in ("/healthz", "/readyz", "/api/signin"), path
        assert it["summary"]


SETTINGS = """
[parameters]
"path.agent" = "main"
"query.sessionId" = "known"
[[operations]]
include-path-regex = "\\\\{sid\\\\}(/(compact|undo-compact|fork|rewind|prompt|coverage))?$"
parameters = { "path.sid" = "known", "path.agent" = "main" }
"""


@pytest.mark.slow
def test_schemathesis_finds_nothing(tmp_path):
    with running(tmp_path / "home", script=[]) as server:
        with server.client() as client:
            for _ in range(3):
                talk(client, "hello", sessionId="known")
        (tmp_path / "schemathesis.toml").write_text(SETTINGS)
        command = [
            *(str(Path(sys.executable).parent / "st"), "run", f"{server.base}/openapi.json"),
            *("-H", f"Authorization: Bearer {server.token}", "--checks", "all", "--no-color"),
            *("--max-examples", str(EXAMPLES), "--request-timeout", "15", "--suppress-health-check", "all"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
        assert '"failed"' not in server.log.read_text()

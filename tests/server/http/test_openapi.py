"""The description of the interface: current, complete, and kept by a real server against whatever is thrown at it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from turnlog.core import events
from turnlog.server.http import openapi

from ..running import running, talk

ROOT = Path(__file__).parents[3]
FILE = ROOT / "docs" / "openapi.json"
GUIDE = ROOT / "docs" / "reference" / "http.md"
EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "2"))


@pytest.fixture(scope="module")
def described():
    command = [sys.executable, "-m", "turnlog.server.http.openapi"]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def test_the_checked_in_description_is_current(described):
    """If not: python -m turnlog.server.http.openapi > docs/openapi.json"""
    assert json.loads(FILE.read_text()) == described


def test_everything_that_it_refers_to_is_there(described):
    for section, name in set(re.findall(r"#/components/(\w+)/(\w+)", json.dumps(described))):
        assert name in described["components"][section]


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
include-path-regex = "\\\\{sid\\\\}(/(compact|erase|undo-compact|fork|rewind|prompt|coverage))?$"
parameters = { "path.sid" = "known", "path.agent" = "main" }
[[operations]]
# The vendors' bodies are open: much is accepted that the description does not name.
include-path-regex = "^/v1/"
checks.negative_data_rejection.enabled = false
"""


@pytest.mark.parametrize(
    "phases",
    ["fuzzing,stateful", pytest.param("examples,coverage,fuzzing,stateful", marks=pytest.mark.slow)],
    ids=["examples at random", "every boundary too"],
)
def test_schemathesis_finds_nothing(tmp_path, phases):
    with running(tmp_path / "home", script=[]) as server:
        with server.client() as client:
            for _ in range(3):
                talk(client, "hello", sessionId="known")
        (tmp_path / "schemathesis.toml").write_text(SETTINGS)
        command = [
            *(str(Path(sys.executable).parent / "st"), "run", f"{server.base}/openapi.json"),
            *("-H", f"Authorization: Bearer {server.token}", "--checks", "all", "--no-color"),
            *("--max-examples", str(EXAMPLES), "--request-timeout", "60", "--suppress-health-check", "all"),
            *("--phases", phases),
        ]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        shown = "\n".join(line[:400] for line in done.stdout.splitlines())  # a request may be a single long line
        assert done.returncode == 0, shown[-8000:] + done.stderr[-2000:]
        assert '"failed"' not in server.log.read_text()


VALID = {"message": "x", "text": "xyz", "sessionId": "known", "title": "x", "to": 1, "word": "approved"}
VALID["model"] = ""
WRONG = {"boolean": [0, 1, "true", None], "integer": ["1", 1.5, True], "string": [5, True, ["x"]], "array": ["x", {}]}
WRONG["object"] = ["x", 5, ["x"]]


def wrong_bodies(described):
    """(method, path, body): each has one value of another type than the description says."""
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            for schema in body_schemas(described, operation):
                required = {name: VALID[name] for name in schema.get("required", ())}
                for name, about in schema["properties"].items():
                    kinds = {option.get("type") for option in about.get("oneOf", about.get("anyOf", [about]))}
                    for value in [wrong for kind in kinds - {"null", None} for wrong in WRONG[kind]]:
                        yield method, path, {**required, name: value}


def body_schemas(described, operation):
    if "requestBody" not in operation:
        return []
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    named = [option["$ref"].rpartition("/")[2] for option in schema.get("oneOf", [schema]) if "$ref" in option]
    return [described["components"]["schemas"][name] for name in named]


def test_bodies_are_as_strict_as_the_description_says(described, tmp_path):
    bodies = list(wrong_bodies(described))
    assert len(bodies) > 30
    with running(tmp_path, script=[]) as server, server.client() as client:
        talk(client, "hello", sessionId="known")
        passed = [
            (method, path, body)
            for method, path, body in bodies
            if client.request(method, path.format(agent="main", sid="known", call="c1"), json=body).status_code != 400
        ]
        assert passed == []
        assert client.get("/api/agents/main/sessions/known").json()["session"]["messageCount"] == 2

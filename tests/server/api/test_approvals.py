"""Approvals over HTTP: the audit list, undoing files, and what only administrators may allow."""

import tomllib

import pytest
from httpx_sse import connect_sse

from ..running import CHAT, SESSIONS, running


def write(path, content, call="c1"):
    return {"tool_calls": [{"id": call, "name": "write_file", "input": {"path": path, "content": content}}]}


@pytest.fixture
def server(tmp_path):
    with running(tmp_path / "home", script=[]) as server:
        yield server


def answered(server, body, *, token=None, key=None):
    """One turn in which every question gets this answer: (session, statuses of the answers, events)."""
    statuses, told = [], []
    sent = {"message": "go", **(key or {})}
    with server.client(token) as client, connect_sse(client, "POST", CHAT, json=sent) as source:
        sid = source.response.headers["turnlog-session"]
        for event in source.iter_sse():
            told.append(event.json())
            if told[-1]["type"] == "approval_request":
                with server.client(token) as other:
                    given = body(told[-1]) if callable(body) else body
                    where = f"{SESSIONS}/{sid}/approvals/{told[-1]['call_id']}"
                    statuses.append(other.post(where, json=given).status_code)
                    if statuses[-1] != 200:
                        other.post(where, json={"word": "denied"})
    return sid, statuses, told


def test_a_written_file_is_undone_over_http(server):
    place = server.home / "workspace"
    server.write(write("a.txt", "one"), {"text": "x"}, write("a.txt", "two"), {"text": "y"})
    sid, _, _ = answered(server, {"word": "approved"})
    answered(server, {"word": "approved"}, key={"sessionId": sid})
    with server.client() as client:
        files = client.get(f"{SESSIONS}/{sid}/files").json()["files"]
        assert [(one["path"], one["was"]) for one in files] == [("a.txt", "replaced"), ("a.txt", "created")]
        undo = f"{SESSIONS}/{sid}/files/undo"
        assert client.post(undo, json={"path": "a.txt"}).json()["was"] == "replaced"
        assert (place / "a.txt").read_text() == "one"
        (place / "a.txt").write_text("by a person")
        refused = client.post(undo, json={"path": "a.txt"})
        assert refused.status_code == 409
        assert (place / "a.txt").read_text() == "by a person"
        assert client.post(undo, json={"path": "a.txt", "force": True}).status_code == 200
        assert not (place / "a.txt").exists()
        assert client.post(undo).status_code == 404
        assert client.post(undo, json={"path": ""}).status_code == 400
        assert client.post(undo, json={"path": "../../etc/passwd"}).status_code == 404
        assert client.get(f"{SESSIONS}/none/files").status_code == 404


def test_the_audit_list_says_who_approved_what_and_what_ran(server):
    server.write(write("a.txt", "one"), {"text": "x"}, write("b.txt", "two", "c2"), {"text": "y"})
    sid, _, _ = answered(server, {"word": "approved"})
    other, _, _ = answered(server, {"word": "denied", "words": "not b"})
    with server.client() as client:
        found = client.get("/api/approvals").json()
        assert found["next"] is None
        lines = {one["sessionId"]: one["approval"] for one in found["items"]}
        assert (lines[sid]["state"], lines[sid]["ran"]) == ("approved", True)
        assert (lines[other]["state"], lines[other]["words"], lines[other]["ran"]) == ("denied", "not b", False)
        assert lines[sid]["by"]
        assert lines[sid]["answeredAt"]

        def named(**wanted):
            return [one["sessionId"] for one in client.get("/api/approvals", params=wanted).json()["items"]]

        assert named(outcome="ran") == [sid]
        assert named(outcome="denied") == [other]
        assert named(outcome="waiting") == []
        assert named(tool="edit_file") == []
        assert len(named(tool="write_file")) == 2
        assert named(by="nobody-of-this-name") == []
        assert len(named(agentId="main", by=lines[sid]["by"].upper())) == 2
        assert client.get("/api/approvals", params={"agentId": "none"}).status_code == 404
        assert client.get("/api/approvals", params={"outcome": "x"}).status_code == 400
        assert client.get("/api/approvals", params={"cursor": "x"}).status_code == 400
        assert b'turnlog_approvals_total{word="denied"} 1.0' in client.get("/metrics").content
    with server.client(server.make_token("ann", "--scope", "chat")) as ann:
        assert ann.get("/api/approvals").status_code == 403
        assert ann.get("/approvals", headers={"Accept": "text/html"}).status_code == 403


def test_only_an_administrator_allows_calls_everywhere_and_the_settings_keep_it(server):
    config = server.home / "config.toml"
    config.write_text('# mine\n[tools]\ndeny = ["nothing"]  # why\n')
    server.write(write("docs/a.txt", "one"), {"text": "x"})
    ann = server.make_token("ann", "--scope", "chat")
    _, statuses, _ = answered(server, {"word": "approved", "always": "everywhere"}, token=ann)
    assert statuses == [403]
    assert not (server.home / "workspace" / "docs").exists()
    server.write(write("docs/a.txt", "two"), {"text": "x"}, write("docs/b.txt", "three"), {"text": "y"})
    _, statuses, _ = answered(server, lambda asked: {"word": "approved", "always": "everywhere", "seq": asked["seq"]})
    assert statuses == [200]
    _, statuses, told = answered(server, {"word": "denied"})
    assert statuses == []
    assert told[-1]["type"] == "done"
    assert (server.home / "workspace" / "docs" / "b.txt").read_text() == "three"
    assert tomllib.loads(config.read_text())["tools"]["allow"] == ['write_file(path="docs/*")']
    assert config.read_text().startswith('# mine\n[tools]\ndeny = ["nothing"]  # why\n')
    assert config.stat().st_mode & 0o777 == 0o600


def test_an_answer_that_names_an_earlier_question_is_refused(server):
    server.write(write("a.txt", "one"), write("b.txt", "two"), {"text": "x"})
    seqs = []

    def body(asked):
        seqs.append(asked["seq"])
        return {"word": "approved", "seq": seqs[0]}

    _, statuses, _ = answered(server, body)
    assert statuses == [200, 404]
    assert (server.home / "workspace" / "a.txt").exists()
    assert not (server.home / "workspace" / "b.txt").exists()

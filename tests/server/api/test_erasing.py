"""Erasing over HTTP: for administrators, a list first, the same words in the same places as the command finds."""

import json

import pytest
from httpx_sse import connect_sse

from turnlog import Assistant, User

from ...web.browsing import seed
from ..running import CHAT, SESSIONS, running, talk, turnlog

WORDS = "my card is 4111 Zebra"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("erasing")) as server:
        yield server


@pytest.fixture
def client(server):
    with server.client() as client:
        yield client


@pytest.fixture
def sid(client):
    return talk(client, WORDS)[-1][1]["sessionId"]


def entries(client, sid):
    return client.get(f"{SESSIONS}/{sid}").json()["entries"]


def places(found):
    return {(one["made"], one.get("type")) for one in found}


def test_words_are_listed_first_and_erased_when_that_is_asked_for(server, client, sid):
    fork = client.post(f"{SESSIONS}/{sid}/fork").json()["id"]
    before = entries(client, sid)
    listed = client.post(f"{SESSIONS}/{sid}/erase", json={"text": "4111 ZEBRA", "redact": True, "derived": True})
    assert listed.status_code == 200
    report = listed.json()
    assert report["applied"] is False
    assert ("entry", "user") in places(report["entries"])
    assert {made for made, _ in places(report["derived"])} == {"fork", "convlog"}
    assert "zebra" not in listed.text.lower()
    assert entries(client, sid) == before

    told = turnlog(["sessions", "erase", sid, "--text", "4111 Zebra", "--json", "--home", str(server.home)], server.env)
    assert json.loads(told.stdout) == {**report, "applied": False}

    done = client.post(
        f"/api/sessions/main/{sid}/erase",
        json={"text": "4111 Zebra", "redact": True, "derived": True, "apply": True},
    ).json()
    assert done == {**report, "applied": True}
    for one in (sid, fork):
        assert "zebra" not in client.get(f"{SESSIONS}/{one}").text.lower()
    assert client.get("/api/conversations", params={"q": "4111 zebra"}).json()["total"] == 0
    last = entries(client, sid)[-1]
    assert (last["type"], last["by"]) == ("erasure", "admin")


def test_what_still_counts_needs_redaction_and_a_refused_request_changes_nothing(client, sid):
    before = entries(client, sid)
    seqs = [entry["seq"] for entry in before if entry["type"] == "user"]
    for body in ({"seqs": seqs, "apply": True}, {"seqs": [999], "redact": True}, {"seqs": [1], "redact": True}):
        refused = client.post(f"{SESSIONS}/{sid}/erase", json=body)
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict"), body
    for body in ({}, {"seqs": [], "redact": True}, {"seqs": [3], "text": "zebra"}, {"text": " ab "}, {"seq": 3}):
        assert client.post(f"{SESSIONS}/{sid}/erase", json=body).status_code == 400, body
    assert entries(client, sid) == before


def test_only_an_administrator_erases(server, sid):
    for scope in ("chat", "read"):
        with server.client(server.make_token(f"ann-{scope}", "--scope", scope)) as other:
            for path in (f"{SESSIONS}/{sid}/erase", "/api/erase"):
                assert other.post(path, json={"text": "zebra"}).status_code == 403


def test_an_administrator_of_one_agent_reaches_that_agent_only(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text("[agents.other]\nsystem = 'x'\n")

    async def plant(library, convlog):
        ids = []
        for agent in ("main", "other"):
            row = await library.sessions.open(f"agent:{agent}:web:direct:ann")
            await library.append(row, User(content=WORDS), Assistant(content="ok"))
            ids.append(row.id)
        return ids

    mine, theirs = seed(tmp_path / "home", plant)
    with running(tmp_path / "home") as server:
        with server.client() as client:
            talk(client, WORDS)
            client.post("/api/agents/other/chat", json={"message": WORDS})
            whole = client.post("/api/erase", json={"text": "zebra"}).json()
            assert {one.get("where") for one in whole["derived"] if one["made"] == "convlog"} == {"main", "other"}
        with server.client(server.make_token("bob", "--scope", "admin", "--agent", "main")) as bob:
            body = {"text": "zebra", "redact": True, "derived": True, "apply": True}
            found = bob.post("/api/erase", json=body).json()
            assert mine in {one.get("sessionId") for one in found["entries"]}
            assert theirs not in json.dumps(found)
            assert "other" not in json.dumps(found)
            assert bob.post(f"/api/agents/other/sessions/{theirs}/erase", json={"text": "zebra"}).status_code == 404
        with server.client() as client:
            assert "Zebra" not in client.get(f"{SESSIONS}/{mine}").text
            assert "Zebra" in client.get(f"/api/agents/other/sessions/{theirs}").text


def test_a_turn_whose_words_were_erased_is_told_from_its_log(client):
    events = talk(client, "say zebra")
    sid = events[-1][1]["sessionId"]
    headers = {"Last-Event-ID": events[0][0]}

    def rejoined():
        with connect_sse(client, "GET", f"{CHAT}/stream", params={"sessionId": sid}, headers=headers) as source:
            return "".join(event.data for event in source.iter_sse())

    assert "zebra" in rejoined()
    body = {"text": "zebra", "redact": True, "derived": True, "apply": True}
    assert client.post(f"{SESSIONS}/{sid}/erase", json=body).json()["entries"]
    assert "zebra" not in rejoined()


def test_the_same_request_again_gets_the_first_report(client, sid, server):
    body = {"text": "4111 Zebra", "redact": True, "apply": True}
    headers = {"Idempotency-Key": "k1"}
    first = client.post(f"{SESSIONS}/{sid}/erase", json=body, headers=headers).json()
    assert first["entries"]
    assert client.post(f"{SESSIONS}/{sid}/erase", json=body, headers=headers).json() == first
    assert client.post(f"{SESSIONS}/{sid}/erase", json=body).json()["entries"] == []
    assert client.post(f"{SESSIONS}/{sid}/erase", json={**body, "text": "other"}, headers=headers).status_code == 409

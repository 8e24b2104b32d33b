"""The model of a session over HTTP: which may be chosen, choosing one, and a message that names one."""

import pytest

from ..running import CHAT, SESSIONS, kinds, running, talk, text_of

OTHER = "scripted:other.jsonl"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home = tmp_path_factory.mktemp("models")
    (home / "other.jsonl").write_text('{"text": "the other one"}\n' * 20)
    (home / "config.toml").write_text(
        f'[model]\nchoices = ["scripted:{home / "other.jsonl"}", "offline"]\n[agents.plain]\nmodels = []\n'
    )
    with running(home, script=[{"text": "its own"}] * 20) as server:
        yield server


@pytest.fixture
def client(server):
    with server.client() as client:
        yield client


def answer_of(client, text, **fields):
    told = talk(client, text, **fields)
    assert kinds(told)[-1] == "done", told
    return told[-1][1]["sessionId"], text_of(told)


def test_the_agents_own_model_is_listed_first_and_no_path_of_the_server_is_told(client):
    assert client.get("/api/agents/main/models").json() == {"models": ["scripted:script.jsonl", OTHER, "offline"]}
    assert client.get("/api/agents/plain/models").json() == {"models": ["scripted:script.jsonl"]}


def test_a_choice_counts_from_the_next_message_on_and_is_in_the_row(client):
    sid, said = answer_of(client, "who is it?")
    assert said == "its own"
    row = client.post(f"{SESSIONS}/{sid}/model", json={"model": OTHER}).json()
    assert row["model"] == OTHER
    assert answer_of(client, "and now?", sessionId=sid) == (sid, "the other one")
    assert client.get(f"{SESSIONS}/{sid}").json()["session"]["model"] == OTHER
    back = client.post(f"{SESSIONS}/{sid}/model", json={"model": ""}).json()
    assert "model" not in back
    assert answer_of(client, "and back?", sessionId=sid) == (sid, "its own")


def test_a_first_message_may_name_the_model_of_its_session(client):
    sid, said = answer_of(client, "who is it?", model=OTHER)
    assert said == "the other one"
    entries = client.get(f"{SESSIONS}/{sid}").json()["entries"]
    kinds = [entry["type"] for entry in entries]
    assert kinds.index("model") < kinds.index("user")
    assert answer_of(client, "still?", sessionId=sid)[1] == "the other one"


def test_a_model_that_is_not_offered_is_refused_before_anything_is_stored(client):
    before = client.get(SESSIONS).json()["total"]
    refused = client.post(CHAT, json={"message": "hi", "model": "scripted:/etc/passwd"})
    assert refused.status_code == 409
    assert OTHER in refused.json()["hint"]
    assert client.get(SESSIONS).json()["total"] == before
    sid, _ = answer_of(client, "hello")
    assert client.post(f"{SESSIONS}/{sid}/model", json={"model": "gpt-5"}).status_code == 409
    assert "model" not in client.get(f"{SESSIONS}/{sid}").json()["session"]


def test_a_token_chooses_only_where_it_may_write(server, client):
    sid, _ = answer_of(client, "mine")
    limited = ["--scope", "chat", "--agent", "plain"]
    for name, args, status in (("reads", ["--scope", "read"], 403), ("else", limited, 404)):
        with server.client(server.make_token(name, *args)) as other:
            assert other.post(f"{SESSIONS}/{sid}/model", json={"model": OTHER}).status_code == status
    with server.client(server.make_token("ann", "--scope", "chat")) as ann:
        assert ann.post(f"{SESSIONS}/{sid}/model", json={"model": OTHER}).status_code == 404
        own, _ = answer_of(ann, "hello", model=OTHER)
        assert ann.get(f"{SESSIONS}/{own}").json()["session"]["model"] == OTHER

"""Content that the model refused, over HTTP and on the page: shown as left out, retried, discarded."""

import re

import httpx
import pytest
from httpx_sse import connect_sse

from .running import PATIENT, SESSIONS, kinds, running, talk, text_of

REFUSED = {"error": {"status": 400, "code": "content_filter", "message": "The response was filtered"}}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("refused"), script=[]) as server:
        yield server


@pytest.fixture
def refused(server):
    """(client, id of a session whose second turn was refused)"""
    with server.client() as client:
        server.write({"text": "hello"}, REFUSED)
        sid = talk(client, "hi")[-1][1]["sessionId"]
        frames = talk(client, "ODD words", sessionId=sid)
        assert frames[-1][1]["code"] == "refused_content"
        yield client, sid


def retry(client, sid, **headers):
    with connect_sse(client, "POST", f"{SESSIONS}/{sid}/retry", headers=headers) as source:
        assert source.response.status_code == 200, source.response.read()
        return [(event.id, event.json()) for event in source.iter_sse()]


def test_a_retry_gives_the_frames_of_a_chat_and_once_for_one_idempotency_key(server, refused):
    client, sid = refused
    states = client.get(f"{SESSIONS}/{sid}/coverage").json()["entries"]
    assert [row["state"] for row in states if row["by"]] == ["left_out"]
    server.write({"text": "now I can", "deltas": ["now ", "I can"]})
    frames = retry(client, sid, **{"Idempotency-Key": "again"})
    assert kinds(frames) == ["text_delta", "text_delta", "done"]
    assert text_of(frames) == "now I can"
    assert kinds(retry(client, sid, **{"Idempotency-Key": "again"}))[-1] == "done"
    entries = client.get(f"{SESSIONS}/{sid}").json()["entries"]
    assert [e["type"] for e in entries][-4:] == ["user", "failed", "rewind", "assistant"]
    assert client.post(f"{SESSIONS}/{sid}/retry").status_code == 409
    assert client.post(f"{SESSIONS}/{sid}/discard").status_code == 409


def test_a_discarded_turn_is_hidden_and_the_next_message_goes_on_from_before_it(server, refused):
    client, sid = refused
    assert client.post(f"{SESSIONS}/{sid}/discard").status_code == 200
    states = {row["seq"]: row["state"] for row in client.get(f"{SESSIONS}/{sid}/coverage").json()["entries"]}
    entries = client.get(f"{SESSIONS}/{sid}").json()["entries"]
    [odd] = [e["seq"] for e in entries if e.get("content") == "ODD words"]
    assert states[odd] == "rewound"


@pytest.mark.parametrize(("language", "told"), [("en", "left out: the model refused it"), ("zh", "模型拒绝了它")])
def test_the_page_shows_what_is_left_out_and_offers_to_retry_edit_and_discard_it(server, refused, language, told):
    _, sid = refused
    with httpx.Client(base_url=server.base, headers={"Accept-Language": language}, **PATIENT) as page:
        origin = {"Origin": server.base}
        page.post("/signin", data={"token": server.token}, headers=origin)
        shown = page.get(f"/chat/main/{sid}").text
        assert told in shown
        assert re.search(r'data-edit="\d+"', shown)
        assert f"/session/main/{sid}/retry" in shown
        assert f"/session/main/{sid}/discard" in shown
        assert told in page.get(f"/session/main/{sid}").text
        server.write({"text": "now I can"})
        assert page.post(f"/session/main/{sid}/retry", headers=origin).status_code == 303
        with connect_sse(page, "GET", "/api/agents/main/chat/stream", params={"sessionId": sid}) as source:
            assert [event.json()["type"] for event in source.iter_sse()][-1] in ("done", "idle")
        after = page.get(f"/chat/main/{sid}").text
        assert told not in after
        assert f"/session/main/{sid}/discard" not in after
        assert "now I can" in after

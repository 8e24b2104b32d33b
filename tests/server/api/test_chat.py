"""Talking over HTTP, against a real server: section F of the worked examples."""

import asyncio
import base64
import re
import threading
import time

import httpx
import pytest
from httpx_sse import connect_sse

import turnlog as library
from turnlog.testing import FixedClock

from ..running import CHAT, PATIENT, SESSIONS, kinds, rejoin, running, said_in, talk, text_of, turnlog, wait_until

PNG = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"x" * 20).decode()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("chat"), script=[]) as server:
        yield server


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", CHAT),
        ("GET", f"{CHAT}/stream?sessionId=x"),
        ("GET", f"{CHAT}/status?sessionId=x"),
        ("POST", f"{CHAT}/stop"),
        ("GET", SESSIONS),
        ("GET", f"{SESSIONS}/x"),
        ("DELETE", f"{SESSIONS}/x"),
        ("GET", "/api/sessions/main/x"),
        ("GET", "/api/conversations"),
        ("GET", "/api/agents/main/conversations/web-x"),
        ("GET", "/api/nothing"),
        ("GET", "/metrics"),
    ],
)
@pytest.mark.parametrize("token", [None, "wrong", "tl_000000000000_wrong", ""])
def test_nothing_is_told_without_a_token(server, method, path, token):
    headers = {} if token is None else {"Authorization": f"Bearer {token}".strip()}
    answer = httpx.request(method, server.base + path, headers=headers, **PATIENT)
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["error"] == problem["detail"]
    assert problem["code"] == "unauthorized"
    assert problem["hint"]


def test_a_message_begins_a_session_and_its_turn_ends_with_done(server):
    with server.client() as client:
        frames = talk(client, "hi")
        assert kinds(frames).count("text_delta") >= 1
        assert [kind for kind in kinds(frames) if kind in ("done", "error", "stopped")] == ["done"]
        done = frames[-1][1]
        assert re.match(r"ses-\d{13}-", done["sessionId"])
        assert isinstance(done["tokenEstimate"], int)
        [row] = [row for row in client.get(SESSIONS).json()["sessions"] if row["id"] == done["sessionId"]]
        assert (row["title"], row["messageCount"], row["turnCount"], row["status"]) == ("hi", 2, 1, "active")
        assert row["key"] == "agent:main:web:direct:admin"


@pytest.mark.parametrize(
    ("agent", "body", "status"),
    [
        ("main", b"", 400),
        ("main", b"{", 400),
        ("main", b"[]", 400),
        ("main", b'{"message": 1}', 400),
        ("main", b'{"message": "hi", "unknown": 1}', 400),
        ("main", b'{"message": ""}', 400),
        ("main", b'{"message": "hi", "sessionId": "a b"}', 400),
        ("main", b'{"message": "hi", "model": "none"}', 409),
        ("main", b'{"message": "hi", "key": "agent:other:web:direct:x"}', 404),
        ("other", b'{"message": "hi"}', 404),
        ("Main", b'{"message": "hi"}', 400),
        ("main", b'{"message": "%b"}' % (b"x" * 1_100_000), 413),
        ("main", b'{"message": "%b"}' % (b"x" * 40_000_000), 413),
    ],
    ids=range(13),
)
def test_a_refusal_is_the_same_with_and_without_the_framework(server, agent, body, status):
    """A path with a slash at its end leads to the framework."""
    with server.client() as client:
        told = [client.post(f"/api/agents/{agent}/chat{end}", content=body) for end in ("", "/")]
        assert [answer.status_code for answer in told] == [status] * 2
        assert told[0].json() == told[1].json()
        ours, theirs = ({**answer.headers, "x-request-id": "", "date": ""} for answer in told)
        assert ours == theirs


def test_an_empty_message_is_refused_in_words_not_as_a_pattern(server):
    with server.client() as client:
        for body in ({"message": ""}, {"message": " \n"}):
            assert client.post(CHAT, json=body).json()["detail"] == "message: it is blank"


@pytest.mark.parametrize("end", ["", "/"])
def test_the_framework_gets_the_body_of_a_message_in_pieces(server, end):
    """A body in several pieces, and other methods, are left to the framework."""
    with server.client() as client:
        pieces = iter([b'{"mess', b'age": "in ', b'pieces"}'])
        answer = client.post(CHAT + end, content=pieces, headers={"Content-Type": "application/json"})
        assert answer.status_code == 200
        assert '"type":"done"' in answer.text
        assert client.get(CHAT + end).status_code == 405


def test_frames_are_numbered_by_turn_and_event(server):
    with server.client() as client:
        first = talk(client, "one")
        sid = first[-1][1]["sessionId"]
        second = talk(client, "two", sessionId=sid)
        for frames in (first, second):
            turn = {place.partition("-")[0] for place, _ in frames}
            assert len(turn) == 1
            assert [int(place.partition("-")[2]) for place, _ in frames] == list(range(1, len(frames) + 1))
        entries = client.get(f"{SESSIONS}/{sid}").json()["entries"]
        users = [str(entry["seq"]) for entry in entries if entry["type"] == "user"]
        assert users == [first[0][0].partition("-")[0], second[0][0].partition("-")[0]]


def test_the_answer_streams_unbuffered_and_uncached(server):
    with server.client() as client, connect_sse(client, "POST", CHAT, json={"message": "hi"}) as source:
        head = source.response.headers
        assert head["content-type"].startswith("text/event-stream")
        assert head["cache-control"] == "no-store"
        assert head["x-accel-buffering"] == "no"
        done = [event.json() for event in source.iter_sse()][-1]
        assert head["turnlog-session"] == done["sessionId"]


def test_a_session_goes_on_and_an_unknown_id_is_taken_as_it_is(server):
    with server.client() as client:
        sid = talk(client, "my name is Ann")[-1][1]["sessionId"]
        talk(client, "and now?", sessionId=sid)
        assert [message["role"] for message in server.logged()[-1]["messages"]] == ["user", "assistant", "user"]
        assert "my name is Ann" in said_in(server.logged()[-1])
        assert talk(client, "hello", sessionId="my-own_id-1")[-1][1]["sessionId"] == "my-own_id-1"
        assert client.get(f"{SESSIONS}/my-own_id-1").json()["session"]["messageCount"] == 2


def test_a_key_leads_to_its_selected_session(server):
    with server.client() as client:
        key = "agent:main:web:direct:room7"
        first = talk(client, "one", key=key)[-1][1]["sessionId"]
        assert talk(client, "two", key="main:web:room7")[-1][1]["sessionId"] == first
        other = client.post(CHAT, json={"message": "x", "key": "agent:other:web:direct:a"})
        assert (other.status_code, other.json()["code"]) == (404, "not_found")


def test_a_tool_is_told_in_order(server):
    call = {"id": "c1", "name": "list_dir", "input": {}}
    server.write({"tool_calls": [call]}, {"text": "seen"})
    with server.client() as client:
        frames = [told for _, told in talk(client, "list it") if told["type"] != "usage"]
    assert [told["type"] for told in frames] == ["tool_call", "tool_result", "text_delta", "done"]
    assert frames[0]["tool_call"] == call
    assert frames[1]["tool_call_id"] == "c1"
    assert frames[1]["text"]


def test_a_call_that_writes_waits_for_the_route_and_the_stream_goes_on_after_it(server):
    call = {"id": "c1", "name": "write_file", "input": {"path": "a.txt", "content": "abc"}}
    server.write({"tool_calls": [call]}, {"text": "written"})
    with server.client() as client, connect_sse(client, "POST", CHAT, json={"message": "write it"}) as source:
        sid = source.response.headers["turnlog-session"]
        told = []
        for event in source.iter_sse():
            told.append(event.json())
            if told[-1]["type"] == "approval_request":
                assert "+abc" in told[-1]["preview"]
                with server.client() as other:
                    status = other.get(f"{CHAT}/status", params={"sessionId": sid}).json()
                    assert status == {"status": "waiting"}
                    assert other.get(f"{SESSIONS}/{sid}").json()["session"]["waiting"] is True
                    waiting = other.get(f"{SESSIONS}/{sid}/approvals").json()["approvals"]
                    assert [(one["callId"], one["state"]) for one in waiting] == [("c1", "waiting")]
                    where = f"{SESSIONS}/{sid}/approvals/c1"
                    assert other.post(where, json={"word": "approved"}).json()["state"] == "approved"
                    assert other.post(where, json={"word": "denied"}).status_code in (404, 409)
        kinds = [one["type"] for one in told if one["type"] != "usage"]
        assert kinds == ["approval_request", "approval_answer", "tool_call", "tool_result", "text_delta", "done"]
        assert (server.home / "workspace" / "a.txt").read_text() == "abc"
        assert b'turnlog_approvals_total{word="approved"} 1.0' in client.get("/metrics").content


def test_a_provider_that_fails_in_mid_stream_is_one_error_and_the_session_stays_readable(server):
    server.write({"deltas": ["half an ans"], "error": {"status": 500, "message": "boom"}})
    with server.client() as client:
        with connect_sse(client, "POST", CHAT, json={"message": "tell me"}) as source:
            sid = source.response.headers["turnlog-session"]
            told = [event.json() for event in source.iter_sse()]
        assert [event["type"] for event in told][-1] == "error"
        assert sum(event["type"] in ("done", "error", "stopped") for event in told) == 1
        assert told[-1]["error"]
        assert told[-1]["code"] == "provider"
        entries = client.get(f"{SESSIONS}/{sid}").json()["entries"]
        assert [e["type"] for e in entries][-1] == "failed"
        assert all(e.get("stop") == "error" for e in entries if e["type"] == "assistant")
        assert rejoin(client, sid)[0][1] == {"type": "idle"}


def test_a_message_to_a_running_turn_is_queued_and_joins_it(server, tmp_path):
    gate = tmp_path / "gate"
    call = {"tool_calls": [{"id": "s1", "name": "list_dir", "input": {"path": "."}}], "until": str(gate)}
    server.write({"text": "begun"}, call, {"text": "to both"})
    with server.client() as client, server.client() as other:
        sid = talk(client, "begin")[-1][1]["sessionId"]
        first, second = [], []
        thread = threading.Thread(target=lambda: first.extend(talk(client, "first", sessionId=sid)))
        thread.start()
        wait_until(lambda: other.get(f"{CHAT}/status", params={"sessionId": sid}).json()["status"] == "running")
        with connect_sse(other, "POST", CHAT, json={"message": "second", "sessionId": sid}) as source:
            for event in source.iter_sse():
                second.append((event.id, event.json()))
                gate.touch()
        thread.join()
    assert kinds(second)[0] == "queued"
    assert kinds(second)[-1] == kinds(first)[-1] == "done"
    assert second[-1] == first[-1]
    last = said_in(server.logged()[-1])
    assert last.index("first") < last.index("second")


def test_a_full_queue_is_a_clear_refusal(tmp_path):
    gate = tmp_path / "gate"
    slow = {"text": "slow", "until": str(gate)}
    with running(tmp_path, script=[slow], env={"TURNLOG_QUEUE_CAP": "2"}) as server, server.client() as client:
        with connect_sse(client, "POST", CHAT, json={"message": "go"}) as source:
            sid = source.response.headers["turnlog-session"]
            streams = [threading.Thread(target=lambda: talk(client, "wait", sessionId=sid)) for _ in range(2)]
            for thread in streams:
                thread.start()
            wait_until(lambda: client.get(f"{SESSIONS}/{sid}").text.count('"received"') >= 2)
            refused = client.post(CHAT, json={"message": "one too many", "sessionId": sid})
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) > 0
            assert refused.json()["code"] == "queue_full"
            gate.touch()
            assert kinds([(e.id, e.json()) for e in source.iter_sse()])[-1] == "done"
        for thread in streams:
            thread.join()
        assert "one too many" not in client.get(f"{SESSIONS}/{sid}").text


def test_a_turn_can_be_stopped_and_keeps_what_was_said(server, tmp_path):
    server.write({"deltas": ["one ", "two ", "three "], "until": str(tmp_path / "never")})
    with server.client() as client, connect_sse(client, "POST", CHAT, json={"message": "count"}) as source:
        sid = source.response.headers["turnlog-session"]
        told = source.iter_sse()
        next(told)
        assert client.post(f"{CHAT}/stop", json={"sessionId": sid}).json() == {"stopped": True}
        rest = [event.json()["type"] for event in told]
        assert rest[-1] == "stopped"
        entries = client.get(f"{SESSIONS}/{sid}").json()["entries"]
        assert (entries[-1]["type"], entries[-1]["stop"]) == ("assistant", "interrupted")
        assert client.post(f"{CHAT}/stop", json={"sessionId": sid}).json() == {"stopped": False}


def test_a_client_that_goes_away_does_not_end_its_turn(server, tmp_path):
    gate = tmp_path / "gate"
    server.write({"deltas": ["a", "b", "c", "d"], "until": str(gate)})
    with server.client() as client:
        with connect_sse(client, "POST", CHAT, json={"message": "go on without me"}) as source:
            sid = source.response.headers["turnlog-session"]
            next(source.iter_sse())
        gate.touch()
        wait_until(lambda: client.get(f"{CHAT}/status", params={"sessionId": sid}).json()["status"] == "idle")
        entries = client.get(f"{SESSIONS}/{sid}").json()["entries"]
        assert entries[-1]["content"] == [{"type": "text", "text": "abcd"}]


def test_pictures_come_before_the_words_and_bad_ones_are_refused(server):
    with server.client() as client:
        talk(client, "what is this?", images=[PNG])
        content = server.logged()[-1]["messages"][-1]["content"]
        assert [block["type"] for block in content] == ["image", "text"]
        assert content[0]["source"]["media_type"] == "image/png"
        before = len(server.logged())
        for bad in (
            "data:image/png;base64,AAAA",
            "data:image/png;base64,%%%",
            "https://example.org/a.png",
            "data:text/html;base64,PGI+",
            PNG + "A",
            "data:image/svg+xml;base64,PHN2Zz4=",
        ):
            answer = client.post(CHAT, json={"message": "x", "images": [bad]})
            assert answer.status_code == 400, bad
        assert len(server.logged()) == before


def test_context_joins_the_system_prompt_of_one_turn_and_is_stored_nowhere(server):
    with server.client() as client:
        sid = talk(client, "where am I?", context="PAGE=7")[-1][1]["sessionId"]
        assert "PAGE=7" in server.logged()[-1]["system"]
        talk(client, "and now?", sessionId=sid)
        assert "PAGE=7" not in server.logged()[-1]["system"] + said_in(server.logged()[-1])
        assert "PAGE=7" not in client.get(f"{SESSIONS}/{sid}").text


def test_the_same_key_and_body_get_the_first_answer_and_another_body_conflicts(server):
    server.write({"text": "the first answer"})
    with server.client() as client:
        key = {"Idempotency-Key": "k-1"}
        first = talk(client, "once", headers=key)
        before = len(server.logged())
        again = talk(client, "once", headers=key)
        assert again == first
        assert len(server.logged()) == before
        assert client.post(CHAT, json={"message": "twice"}, headers=key).status_code == 409
        assert client.get(f"{SESSIONS}/{first[-1][1]['sessionId']}").json()["session"]["messageCount"] == 2
        assert talk(client, "once", headers={"Idempotency-Key": "k-2"})[-1][1]["sessionId"] != first[-1][1]["sessionId"]
        server.restart()
    with server.client() as client:
        later = talk(client, "once", headers=key)
        assert kinds(later) == ["snapshot", "done"]
        assert later[0][1]["text"] == "the first answer"
        assert later[-1][1]["sessionId"] == first[-1][1]["sessionId"]
        sid = first[-1][1]["sessionId"]
        forked = [
            client.post(f"{SESSIONS}/{sid}/fork", json={"label": "f"}, headers={"Idempotency-Key": "f"}) for _ in "ab"
        ]
        assert forked[0].json() == forked[1].json()
        other = client.post(f"{SESSIONS}/{sid}/fork", json={"label": "g"}, headers={"Idempotency-Key": "f"})
        assert other.status_code == 409


def test_asking_again_by_key_tells_the_first_turn_wherever_the_key_leads_by_now(server):
    server.write({"deltas": ["first"]}, {"deltas": ["second"]})
    body = {"message": "by its key", "key": "agent:main:web:direct:admin"}
    headers = {"Idempotency-Key": "moved-on"}
    with server.client() as client:
        first = client.post(CHAT, json=body, headers=headers)
        other = talk(client, "a new session, selected from now on")[-1][1]["sessionId"]
        again = client.post(CHAT, json=body, headers=headers)
        assert first.headers["turnlog-session"] == again.headers["turnlog-session"] != other
        assert again.text == first.text


@pytest.mark.parametrize(
    "fields", [{}, {"sessionId": "named-by-its-client"}, {"key": "agent:main:web:group:only:thread:1"}]
)
def test_asking_again_does_not_bring_a_deleted_session_back(server, fields):
    server.write({"deltas": ["once"]})
    with server.client() as client:
        headers = {"Idempotency-Key": f"deleted {fields}"}
        body = {"message": "keep me once", **fields}
        first = client.post(CHAT, json=body, headers=headers)
        sid = first.headers["turnlog-session"]
        assert client.delete(f"{SESSIONS}/{sid}").status_code == 204
        again = client.post(CHAT, json=body, headers=headers)
        assert again.status_code == 404
        assert client.get(f"{SESSIONS}/{sid}").status_code == 404


def test_requests_with_one_key_at_once_are_one_message(server):
    server.write({"text": "just once", "delay_ms": 500})
    answers = []

    def ask():
        with server.client() as client:
            answers.append(talk(client, "race", headers={"Idempotency-Key": "race"}))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {frames[-1][1]["sessionId"] for frames in answers} == {answers[0][-1][1]["sessionId"]}
    assert {text_of(frames) for frames in answers} == {"just once"}
    with server.client() as client:
        assert client.get(f"{SESSIONS}/{answers[0][-1][1]['sessionId']}").json()["session"]["messageCount"] == 2


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"message": 1}',
        b'{"message": ""}',
        b'{"message": "  \\n"}',
        b'{"message": "x", "sessionid": "a"}',
        b'{"message": "x", "sessionId": "../x"}',
        b'{"message": "x", "sessionId": "a/b"}',
        b'{"message": "x", "key": "nonsense"}',
        b'{"message": "x", "images": ["no"]}',
        b'{"message": "\xff"}',
        b'{"message": "\\ud800", "context": NaN}',
        b'{"message": "x", "recall": 0}',
        b'{"message": "x", "recall": "true"}',
        '{"message": "x\\ud800"}'.encode("utf-16"),
        b"[" * 100_000,
        b'{"message": "x", "context": 5}',
    ],
)
def test_a_bad_body_is_400_and_says_what_to_do(server, body):
    with server.client() as client:
        answer = client.post(CHAT, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["hint"]


def test_a_missing_body_is_400_and_says_that_it_is_missing(server):
    with server.client() as client:
        answer = client.post(CHAT, content=b"", headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["detail"]) == (400, "the body is missing")


def test_half_a_character_in_a_message_is_stored_as_it_came(server):
    body = b'{"message": "half \\ud800 and \\u0000 end", "context": "\\udfff"}'
    server.write({"text": "whole"})
    with server.client() as client:
        answer = client.post(CHAT, content=body, headers={"content-type": "application/json"})
        assert '"done"' in answer.text
        found = client.get(f"{SESSIONS}/{answer.headers['turnlog-session']}").json()
        assert [entry["content"] for entry in found["entries"] if entry["type"] == "user"] == [
            "half \ud800 and \x00 end"
        ]
        assert client.get(SESSIONS).status_code == 200


def test_what_is_too_large_is_413(server):
    with server.client() as client:
        assert client.post(CHAT, json={"message": "x" * (1024 * 1024 + 1)}).status_code == 413
        assert client.post(CHAT, json={"message": "é" * (600 * 1024)}).status_code == 413
        assert client.post(CHAT, json={"message": "x", "context": "y" * (1024 * 1024 + 1)}).status_code == 413
        assert client.post(CHAT, content=b"x" * (24 * 1024 * 1024 + 1)).status_code == 413

        def pieces():
            for _ in range(25):
                yield b"x" * 1024 * 1024

        assert client.post(CHAT, content=pieces()).status_code == 413
        assert kinds(talk(client, "x" * (1024 * 1024)))[-1] in ("done", "error")


def test_tokens_are_made_listed_and_worthless_once_revoked(server):
    text = server.make_token("eve", "--scope", "read", "--expires", "1d")
    assert text.startswith("tl_")
    with server.client(text) as client:
        assert client.get(SESSIONS).status_code == 200
        listed = turnlog(["token", "list", "--home", str(server.home)]).stdout
        assert "eve" in listed
        assert text.rpartition("_")[2] not in listed
        done = turnlog(["token", "revoke", text.split("_")[1], "--home", str(server.home)])
        assert done.returncode == 0
        assert client.get(SESSIONS).status_code == 401


def test_a_message_that_comes_again_while_its_turn_runs_is_not_told_to_wait(tmp_path):
    gate = tmp_path / "gate"
    script = [{"deltas": ["slow "] * 40, "until": str(gate)}]
    with running(tmp_path, script=script, args=("--preset", "zeroclaw")) as server, server.client() as client:
        key = {"Idempotency-Key": "again"}
        told = []
        first = threading.Thread(target=lambda: told.extend(talk(client, "once", headers=key)))
        first.start()
        wait_until(lambda: client.get(SESSIONS).json()["sessions"] and server.requests.exists())
        with connect_sse(client, "POST", CHAT, json={"message": "once"}, headers=key) as source:
            again = []
            for event in source.iter_sse():
                again.append((event.id, event.json()))
                gate.touch()
        first.join()
        assert "queued" not in [*kinds(told), *kinds(again)]
        assert kinds(again)[-1] == "done"
        assert text_of(again) == text_of(told)


def test_a_message_for_a_key_begins_a_new_session_where_the_old_ones_time_is_over(tmp_path):
    key = "agent:main:web:direct:admin"

    async def two_hours_ago():
        clock = FixedClock(time.time_ns() // 1_000_000 - 2 * 3_600_000)
        async with library.open(home=tmp_path, model_name="offline", clock=clock) as t:
            async for _ in t.send(key, "two hours ago"):
                pass
            return (await t.session(key)).id

    old = asyncio.run(two_hours_ago())
    with running(tmp_path, env={"TURNLOG_SESSION_RESET": "idle:60"}) as server, server.client() as client:
        new = talk(client, "by key", key=key)[-1][1]["sessionId"]
        assert new != old
        assert client.get(f"{SESSIONS}/{old}").json()["session"]["status"] == "archived"
        assert talk(client, "again", key=key)[-1][1]["sessionId"] == new
        assert talk(client, "by its id", sessionId=old)[-1][1]["sessionId"] == old

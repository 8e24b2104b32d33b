"""Calls of a relay: they always fit, are made once, survive their client, and are stored before they are told."""

import json
import os
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import httpx
import pytest

from tests.providers.wire import Refused, Said, Stalled
from tests.server.running import PATIENT, Running, running, turnlog
from tests.stores import postgres
from tests.waiting import GIVES_UP_S, wait_until
from turnlog.core import tokens

from .serving import CHAT_TOOL, HI, frames, serving

WINDOW = 4_000
REQUESTS = int(os.environ.get("RESENT_REQUESTS", "40"))
TOO_LONG = Refused(400, {"error": {"message": "prompt is too long: 9000 tokens > 4000 maximum"}})


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A relay to a model with a small window, which summarises without the network."""
    env = {"TURNLOG_MODEL_WINDOW": str(WINDOW), "TURNLOG_MODEL_SUMMARY_MODEL": "offline", "TURNLOG_API_LINGER_S": "0.3"}
    with serving(tmp_path_factory.mktemp("small"), env=env) as found:
        yield found


def user(text):
    return {"role": "user", "content": text}


def answered(text):
    return {"role": "assistant", "content": text}


def entries(relay, session):
    with relay.server.client() as client:
        return client.get(f"/api/agents/main/sessions/{session}").json()["entries"]


def converse(relay, history, words, **more):
    """One request of a client that resends everything."""
    history.append(user(words))
    answer = relay.chat(messages=history, **more)
    assert answer.status_code == 200, answer.text
    history.append(answered(answer.json()["choices"][0]["message"]["content"]))
    return answer


def size(body):
    return tokens.of_text(json.dumps(body["messages"]))


def test_a_client_that_resends_many_windows_never_notices(small):
    """`make torture` sends 200 requests: more than ten windows."""
    small.say(*[Said(text=f"Answer {n}. " + "So it is. " * 60) for n in range(REQUESTS)])
    history, sessions = [], set()
    for n in range(REQUESTS):
        answer = converse(small, history, f"Question {n}: " + "word " * 250)
        sessions.add(answer.headers["turnlog-session"])
        assert size(small.sent()) < WINDOW
    assert size({"messages": history}) > REQUESTS // 10 * WINDOW
    assert len(sessions) == 1
    kinds = [entry["type"] for entry in entries(small, sessions.pop())]
    assert kinds.count("compaction") > 1
    assert kinds.count("user") == kinds.count("assistant") == REQUESTS


def test_a_request_begins_with_the_bytes_of_the_one_before(small):
    small.say()
    history, sent = [], []
    for n in range(6):
        converse(small, history, f"Part {n}")
        sent.append(small.sent()["messages"])
    for before, after in pairwise(sent):
        assert after[: len(before)] == before


def test_what_compaction_did_is_told_and_the_originals_come_back_by_undo(small):
    small.say(*[Said(text="Noted. " * 100)] * 30)
    history = []
    notes = [converse(small, history, f"Fact {n}: " + "blue " * 300) for n in range(12)]
    told = [note for note in notes if note.json()["turnlog"]["compaction"]]
    assert told
    assert told[0].headers["turnlog-guard"] == "compacted"
    made = told[0].json()["turnlog"]["compaction"]
    assert made["tokens_after"] < made["tokens_before"]
    assert made["seq"] in [entry["seq"] for entry in entries(small, told[0].headers["turnlog-session"])]


def test_a_refusal_for_size_is_met_by_the_next_step_and_the_client_is_not_told(small):
    small.say(Said(text="First."), TOO_LONG, Said(text="Second."))
    history = []
    converse(small, history, "lemon " * 900)
    answer = converse(small, history, "And now?")
    assert history[-1] == answered("Second.")
    assert answer.headers["turnlog-guard"] in ("compacted", "rescued", "shortened")


def test_nothing_that_fits_is_a_400_in_the_vendors_words(small):
    small.say(*[TOO_LONG] * 20)
    answer = small.chat(messages=[user("tiny but refused")])
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert "maximum context length" in answer.json()["error"]["message"]


def test_text_that_was_sent_stays_and_the_next_call_compacts_first(small):
    usage = {"input_tokens": 9 * WINDOW, "output_tokens": 3}
    small.say(*[Said(text="One.")] * 2, Said(text="Too much.", usage=usage), Said(text="Fine."))
    history = []
    for fruit in ("plum ", "pear "):
        converse(small, history, fruit * 900)
    answer = small.chat(messages=[*history, user("More")], stream=True)
    assert frames(answer.text)[-1][1] == "[DONE]"
    history += [user("More"), answered("Too much.")]
    assert len(small.wire.requests) == 3
    last = converse(small, history, "And?")
    assert last.json()["turnlog"]["guard"] == "compacted"


def test_a_rescue_needs_no_model(tmp_path):
    script = tmp_path / "summaries.jsonl"
    script.write_text('{"for": "summary", "error": {"status": 400, "message": "no summaries today"}}\n' * 20)
    env = {"TURNLOG_MODEL_WINDOW": str(WINDOW), "TURNLOG_MODEL_SUMMARY_MODEL": f"scripted:{script}"}
    with serving(tmp_path / "home", env=env) as relay:
        history = []
        relay.say(*[Said(text="Yes. " * 80)] * 3, TOO_LONG, Said(text="Done."))
        for n in range(3):
            converse(relay, history, f"Topic {n}: " + "stone " * 350)
        answer = converse(relay, history, "rock " * 700)
        assert answer.json()["turnlog"]["guard"] == "rescued"
        assert size(relay.sent()) < WINDOW


def test_pins_survive_under_a_client_that_knows_nothing_of_them(small):
    small.say(*[Said(text="Good. " * 80)] * 30)
    history = []
    first = converse(small, history, "The password of the vault is swordfish-77.")
    session = first.headers["turnlog-session"]
    seq = next(entry["seq"] for entry in entries(small, session) if entry["type"] == "user")
    server = small.server
    done = turnlog(["sessions", "pin", session, str(seq), "--home", str(server.home)], server.env, server.args)
    assert done.returncode == 0, done.stderr
    for n in range(14):
        converse(small, history, f"Then {n}: " + "grey " * 300)
    assert "swordfish-77" in json.dumps(small.sent()["messages"])
    assert size(small.sent()) < WINDOW


def test_eight_requests_at_once_with_one_past_are_all_answered(small):
    small.say(*[Said(text=f"Answer {n}") for n in range(9)])
    history = []
    begin = converse(small, history, "A past to share")
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(small.chat, messages=[*history, user(f"Branch {n}")]) for n in range(8)]
        answers = [one.result() for one in asked]
    assert [answer.status_code for answer in answers] == [200] * 8
    matches = sorted(answer.headers["turnlog-match"] for answer in answers)
    assert set(matches) <= {"continued", "forked", "rewound"}
    assert len({answer.json()["choices"][0]["message"]["content"] for answer in answers}) == 8
    assert begin.headers["turnlog-session"] in {answer.headers["turnlog-session"] for answer in answers}


def test_a_repeat_joins_the_running_call(small):
    """Claude Code sends the same once more without `stream` when its stream was cut."""
    small.say(Said(text="Slowly, but once."))
    release = threading.Event()
    original = small.wire.next_reply

    def later():
        release.wait(20)
        return original()

    small.wire.next_reply = later
    try:
        body = {"model": "m", "messages": [user("Only once, please")]}
        headers = {"x-api-key": small.server.token, "x-session-id": "joined"}
        with (
            httpx.Client(base_url=small.server.base, **{**PATIENT, "timeout": 0.5}) as client,
            pytest.raises(httpx.ReadTimeout),
        ):
            client.post("/v1/chat/completions", json={**body, "stream": True}, headers=headers)
        with ThreadPoolExecutor(1) as pool:
            repeat = pool.submit(small.post, "/v1/chat/completions", body, x_session_id="joined")
            wait_until(lambda: len(small.wire.requests) == 1)
            release.set()
            answer = repeat.result()
    finally:
        small.wire.next_reply = original
        release.set()
    assert answer.json()["choices"][0]["message"]["content"] == "Slowly, but once."
    assert answer.headers["turnlog-match"] == "replayed"
    assert len(small.wire.requests) == 1


LONG = tuple(f"piece {n} " + "of one answer " * 40 for n in range(8_000))
"""More than the sockets between here and there hold."""


def test_an_answer_that_is_cut_more_than_once_is_told_again_each_time(tmp_path):
    """Told from the log it is written at once; that it was not taken shows only when the connection is lost."""
    with serving(tmp_path) as relay:
        for is_stream in (True, False):
            relay.say(Said(texts=LONG))
            body = json.dumps({"model": "m", "messages": [user(f"Cut {is_stream}")], "stream": is_stream}).encode()
            assert [cut_short(relay, body) for _ in range(3)] == ["new", "replayed", "replayed"]
            whole = relay.post("/v1/chat/completions", body, x_session_id="cut")
            assert whole.headers["turnlog-match"] == "replayed"
            assert "piece 7999 " in whole.text
            assert len(relay.wire.requests) == 1


def cut_short(relay, body):
    """Reads the beginning of an answer and breaks the connection; what the answer says of its match."""
    before = relay.server.log.read_text().count('"event":"request"')
    host, port = relay.server.base.removeprefix("http://").split(":")
    headers = f"Authorization: Bearer {relay.server.token}\r\nx-session-id: cut\r\nContent-Length: {len(body)}\r\n"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(GIVES_UP_S)
        client.connect((host, int(port)))
        client.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n".encode() + body)
        answer = b""
        while b"piece 3 " not in answer:
            more = client.recv(1024)
            assert more, answer
            answer += more
    wait_until(lambda: relay.server.log.read_text().count('"event":"request"') > before)
    return re.search(r"turnlog-match: (\w+)", answer.decode())[1]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_an_idempotency_key_gives_the_first_answer_again(small, path):
    small.say(Said(text="Once."), Said(text="Twice."), Refused(400, {"error": {"message": "no"}}), Said(text="Again."))
    body = {"model": "m", "max_tokens": 100, "messages": [user(f"Say it once at {path}")]}

    def ask(key="first", **fields):
        headers = {"turnlog_store": fields.pop("store", "")}
        return small.post(path, {**body, **fields}, idempotency_key=f"{key} of {path}", **headers)

    first, second = ask(), ask()
    assert [one.headers["turnlog-match"] for one in (first, second)] == ["new", "replayed"]
    assert first.json()["id"] == second.json()["id"]
    streamed = ask(stream=True)
    assert streamed.status_code == 409, "the same key with another request"
    assert streamed.headers["x-should-retry"] == "false"
    assert len(small.wire.requests) == 1
    assert "Twice." in ask("second").text
    assert ask("third").status_code >= 400
    assert "Again." in ask("third").text, "a request that failed may be tried again"
    small.say(Said(text="Gone."))
    assert ask("unstored", store="none").headers["turnlog-ignored"] == "idempotency-key"
    assert ask("x" * 200).status_code == 400


def test_an_idempotency_key_is_kept_across_a_restart(tmp_path):
    with serving(tmp_path) as relay:
        relay.say(Said(text="Before."), Said(text="After."))
        body = {"model": "m", "messages": [user("Before or after?")]}
        first = relay.post("/v1/chat/completions", body, idempotency_key="k")
        relay.server.kill()
        relay.server.start()
        second = relay.post("/v1/chat/completions", body, idempotency_key="k")
        assert first.json()["id"] == second.json()["id"]
        assert len(relay.wire.requests) == 1


def test_a_call_whose_client_went_away_is_given_up_and_its_text_kept(small):
    small.say(Said(texts=("Half an", " answer"), breaks="stall"))
    small.wire.left.clear()
    body = {"model": "m", "messages": [user("Go on for ever")], "stream": True}
    with (
        httpx.Client(base_url=small.server.base, **PATIENT) as client,
        client.stream("POST", "/v1/chat/completions", json=body, headers={"x-api-key": small.server.token}) as answer,
    ):
        session = answer.headers["turnlog-session"]
        next(answer.iter_lines())
    assert small.wire.left.wait(20), "the upstream's connection is closed"

    def kept():
        return [entry for entry in entries(small, session) if entry["type"] == "assistant"]

    [partial] = wait_until(kept)
    assert (partial["stop"], partial["content"][0]["text"]) == ("interrupted", "Half an")


def test_the_prompt_of_a_call_is_shown_as_the_model_got_it(small):
    small.say(Said(text="First."), Said(text="Second."))
    said = [{"role": "system", "content": "Speak\tlike a  pirate. \n"}, user("Shown as it is")]
    first = small.chat(messages=said, tools=[CHAT_TOOL], temperature=0.5, stop=["x"])
    sent = [small.sent()]
    said += [answered("First."), user("And again?")]
    small.chat(messages=[{"role": "system", "content": "Now plainly."}, *said[1:]])
    sent.append(small.sent())
    session = first.headers["turnlog-session"]
    asked = [entry["seq"] for entry in entries(small, session) if entry["type"] == "user"]
    for seq, request in zip(asked, sent, strict=True):
        shown = prompt_at(small, session, seq)
        assert request["messages"][0]["content"] == shown["system"]
        assert [one["content"] for one in request["messages"][1:]] == [words(one) for one in shown["messages"]]
        tools = [one["function"] for one in request.get("tools", ())]
        assert [(one["name"], one["parameters"]) for one in tools] == [
            (one["name"], one["input_schema"]) for one in shown["tools"]
        ]
    assert prompt_at(small, session, asked[0])["parameters"] == {"temperature": 0.5, "stop": ["x"]}


def prompt_at(relay, session, seq):
    with relay.server.client() as client:
        return client.get(f"/api/agents/main/sessions/{session}/prompt", params={"at": seq}).json()


def words(message):
    content = message["content"]
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


def test_a_call_is_stopped_like_a_turn(small):
    small.say(Said(texts=("Half an", " answer"), breaks="stall"))
    body = {"model": "m", "messages": [user("Stop me")], "stream": True}
    with (
        httpx.Client(base_url=small.server.base, **PATIENT) as client,
        client.stream("POST", "/v1/chat/completions", json=body, headers={"x-api-key": small.server.token}) as answer,
        small.server.client() as person,
    ):
        session = answer.headers["turnlog-session"]
        path = "/api/agents/main/chat"
        assert person.get(f"{path}/status", params={"sessionId": session}).json() == {"status": "running"}
        assert person.post(f"{path}/stop", json={"sessionId": session}).json() == {"stopped": True}
        text = answer.read().decode()
    assert "stopped" in frames(text)[-1][1]["error"]["message"]


@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "postgresql"])
def test_words_are_there_once_when_the_server_is_killed_in_mid_call(tmp_path, kind):
    places = {"sqlite": f"sqlite:{tmp_path}/s.db", "jsonl": f"jsonl:{tmp_path}/files"}
    store = places[kind] if kind in places else postgres.url_of(tmp_path)
    with serving(tmp_path / "home", env={"TURNLOG_STORE_DURABILITY": "full"}, store=store) as relay:
        relay.say(Stalled())
        body = {"model": "m", "messages": [user("Say it once")]}
        headers = {"x-api-key": relay.server.token, "x-session-id": "killed"}
        with (
            httpx.Client(base_url=relay.server.base, **{**PATIENT, "timeout": 1}) as client,
            pytest.raises(httpx.HTTPError),
        ):
            client.post("/v1/chat/completions", json=body, headers=headers)
        wait_until(lambda: len(relay.wire.requests) == 1)
        if kind == "postgresql":
            relay.server.kill()
            postgres.expire_leases(store, relay.server.process.pid)
            relay.server.start()
        else:
            relay.server.restart()
        relay.say(Said(text="Once."))
        answer = relay.post("/v1/chat/completions", body, x_session_id="killed")
        assert answer.json()["choices"][0]["message"]["content"] == "Once."
        log = entries(relay, answer.headers["turnlog-session"])
        assert sum(entry["type"] == "user" for entry in log) == 1
        assert len(relay.wire.requests) == 1
        assert relay.sent()["messages"] == [user("Say it once")]


def test_a_repeat_that_reaches_another_server_gets_the_same_answer(tmp_path):
    store = postgres.url_of(tmp_path)
    with serving(tmp_path / "one", store=store) as relay:
        (tmp_path / "two").mkdir()
        (tmp_path / "two" / "admin.token").write_text(relay.server.token)
        second = Running(tmp_path / "two", store=store, env=relay.server.env, args=("--model", "openai:gpt"))
        try:
            relay.say(Said(text="From the first."))
            body = {"model": "m", "messages": [user("Asked of both")]}
            first = relay.post("/v1/chat/completions", body, x_session_id="both")
            key = {"x-api-key": relay.server.token, "x-session-id": "both"}
            with httpx.Client(base_url=second.base, **PATIENT) as client:
                again = client.post("/v1/chat/completions", json=body, headers=key)
            assert again.headers["turnlog-match"] == "replayed", again.text
            assert again.json()["choices"] == first.json()["choices"]
            assert len(relay.wire.requests) == 1
        finally:
            second.stop()


def test_calls_of_a_session_wait_for_the_client_across_a_restart(tmp_path):
    """An open call is the client's to answer: a start of the server must not close it."""
    with serving(tmp_path / "home") as relay:
        call = {"id": "c1", "name": "look", "input": {}}
        relay.say(Said(calls=(call,)), Said(text="Seen."))
        first = relay.chat(messages=[user("Look!")], tools=[CHAT_TOOL])
        message = first.json()["choices"][0]["message"]
        relay.server.restart()
        result = {"role": "tool", "tool_call_id": "c1", "content": "a tree"}
        answer = relay.chat(messages=[user("Look!"), message, result], tools=[CHAT_TOOL])
        assert answer.headers["turnlog-session"] == first.headers["turnlog-session"]
        assert answer.headers["turnlog-match"] == "continued"
        assert [one["role"] for one in relay.sent()["messages"]] == ["user", "assistant", "tool"]
        assert relay.sent()["messages"][2]["content"] == "a tree"


def test_without_any_configuration_the_offline_model_answers(tmp_path):
    with running(tmp_path) as server, server.client() as client:
        assert f"export OPENAI_BASE_URL={server.base}/v1" in wait_until(
            lambda: (t := (tmp_path / "server.out").read_text()) and "ANTHROPIC_AUTH_TOKEN" in t and t
        )
        answer = client.post("/v1/chat/completions", json={"model": "gpt-5", "messages": HI})
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["message"]["content"]
        head = {"role": "system", "content": "You are a coding agent. " * 8_000}
        answer = client.post("/v1/chat/completions", json={"model": "gpt-5", "messages": [head, *HI]})
        assert answer.status_code == 200, answer.text

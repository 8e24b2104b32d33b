"""Requests to /v1 that are refused or unusual: keys, families of errors, sizes, encodings, hostile bodies."""

import gzip
import json
import zlib
from contextlib import ExitStack
from http.client import HTTPConnection

import httpx
import pytest
import zstandard

from tests.providers.wire import Refused, Said, Stalled
from tests.server.running import PATIENT
from tests.waiting import GIVES_UP_S
from turnlog.errors import (
    Busy,
    Conflict,
    ContentRefused,
    ContextOverflow,
    Denied,
    NotFound,
    ProviderBusy,
    ProviderRefused,
    StoreUnavailable,
    UnsupportedParameter,
    UsageError,
)
from turnlog.server.compatible import errors
from turnlog.server.compatible.reading import BODY_MAX_BYTES
from turnlog.server.http.limits import too_large, too_many
from turnlog.server.http.problems import Refusal

from .serving import CHAT_TOOL, HI, TOOL, serving

CHAT = json.dumps({"model": "m", "messages": HI}).encode()
MESSAGES = json.dumps({"model": "m", "max_tokens": 9, "messages": HI}).encode()
WIRES = {"/v1/chat/completions": CHAT, "/v1/messages": MESSAGES}


def with_status(error, status):
    error.status = status
    return error


PASSING = (409, 429, 500, 503)
"""The same request may be answered later."""
INVALID = "invalid_request_error"
ROWS = [
    (UsageError("x"), (400, INVALID, None), (400, INVALID)),
    (UnsupportedParameter("x", name="n"), (400, INVALID, "unsupported_parameter"), (400, INVALID)),
    (Refusal("x", status=401), (401, "authentication_error", "invalid_api_key"), (401, "authentication_error")),
    (Denied(), (403, "permission_error", None), (403, "permission_error")),
    (Refusal("x", status=403), (403, "permission_error", None), (403, "permission_error")),
    (NotFound(), (404, INVALID, "not_found"), (404, "not_found_error")),
    (errors.Unknown("x", code="model_not_found"), (404, INVALID, "model_not_found"), (404, "not_found_error")),
    (Busy(), (409, "conflict", "conversation_locked"), (429, "rate_limit_error")),
    (Conflict(), (409, "conflict", "conflict"), (429, "rate_limit_error")),
    (Refusal("x", status=409, code="idempotency"), (409, INVALID, "idempotency_key_reused"), (409, INVALID)),
    (too_large("the body", 5), (413, INVALID, "request_too_large"), (413, "request_too_large")),
    (ContextOverflow(tokens=9, window=8), (400, INVALID, "context_length_exceeded"), (400, INVALID)),
    (too_many(), (429, "rate_limit_error", "rate_limit_exceeded"), (429, "rate_limit_error")),
    (with_status(ProviderBusy(), 429), (429, "rate_limit_error", "rate_limit_exceeded"), (429, "rate_limit_error")),
    (ProviderBusy(), (503, "server_error", "upstream_unavailable"), (529, "overloaded_error")),
    (ProviderRefused(), (502, "server_error", "upstream_error"), (502, "api_error")),
    (with_status(ProviderRefused(), 401), (502, "server_error", "upstream_auth"), (502, "api_error")),
    (ContentRefused(), (400, INVALID, "content_policy_violation"), (400, INVALID)),
    (StoreUnavailable(), (503, "server_error", "store_unavailable"), (503, "overloaded_error")),
    (RuntimeError("secret"), (500, "server_error", "internal"), (500, "api_error")),
]  # fmt: skip


@pytest.mark.parametrize(("error", "as_openai", "as_anthropic"), ROWS, ids=[repr(row[0])[:60] for row in ROWS])
def test_each_error_is_told_in_the_words_of_both_families(error, as_openai, as_anthropic):
    body = errors.body_of(error, "openai", "r1")["error"]
    assert (errors.status_of(error, "openai"), body["type"], body["code"]) == as_openai
    body = errors.body_of(error, "anthropic", "r1")
    assert (errors.status_of(error, "anthropic"), body["error"]["type"]) == as_anthropic
    assert body["request_id"] == "r1"
    assert "secret" not in str(body)
    headers = errors.headers_of(error)
    passes = as_openai[0] in PASSING and as_openai[2] != "idempotency_key_reused"
    assert ("retry-after" in headers) == (passes and as_openai[0] != 500)
    assert (headers.get("x-should-retry") == "false") == (not passes)


def test_a_prompt_that_is_too_long_is_told_in_the_vendors_own_words():
    error = ContextOverflow(tokens=9, window=8)
    assert "prompt is too long: 9 tokens > 8 maximum" in errors.message_of(error, "anthropic")
    assert "maximum context length is 8 tokens" in errors.message_of(error, "openai")


def ask(relay, path, headers=None, data=None, **options):
    with httpx.Client(base_url=relay.server.base, **PATIENT) as client:
        return client.post(path, content=WIRES[path] if data is None else data, headers=headers or {}, **options)


@pytest.mark.parametrize("path", WIRES)
def test_a_key_counts_in_both_headers_and_not_as_a_cookie(relay, path):
    relay.say()
    token = relay.server.token
    for headers in ({"Authorization": f"Bearer {token}"}, {"x-api-key": token}):
        assert ask(relay, path, headers).status_code == 200
    both = {"Authorization": f"Bearer {token}", "x-api-key": token}
    assert ask(relay, path, both).status_code == 200
    for headers, message in (
        ({}, "a token is needed"),
        ({"x-api-key": "wrong"}, "the token is not valid"),
        ({"Authorization": f"Basic {token}"}, "the token is not valid"),
        ({**both, "x-api-key": "other"}, "Authorization and x-api-key hold different keys"),
    ):
        answer = ask(relay, path, headers)
        told = answer.json()["error"]
        assert (answer.status_code, told["type"]) == (401, "authentication_error")
        assert told["message"].startswith(message)
        assert answer.headers["x-should-retry"] == "false"
    with httpx.Client(base_url=relay.server.base, **PATIENT) as client:
        client.post("/api/signin", json={"token": token})
        assert client.cookies
        assert client.post(path, content=WIRES[path], headers={"Origin": relay.server.base}).status_code == 401


@pytest.mark.parametrize(
    "path", ["/chat/completions", "/v1/v1/chat/completions", "/messages", "/v1/v1/messages", "/messages/count_tokens"]
)
def test_an_address_without_the_prefix_or_with_two_is_understood(relay, path):
    """AI SDK takes Anthropic's variable for the whole address; people add the prefix where the SDK does, too."""
    relay.say()
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    answer = relay.post(path, body, x_api_key=relay.server.token)
    assert answer.status_code == 200, answer.text
    assert ask(relay, path, data=b"{}").status_code == 401
    with httpx.Client(base_url=relay.server.base, **PATIENT) as client:
        assert client.get("/models", headers={"x-api-key": relay.server.token}).status_code == 200
        assert client.get("/modelsx", headers={"x-api-key": relay.server.token}).status_code == 401


def test_an_api_key_counts_under_v1_only(relay):
    with httpx.Client(base_url=relay.server.base, **PATIENT) as client:
        answer = client.get("/api/agents/main/sessions", headers={"x-api-key": relay.server.token})
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"


def test_refusals_of_the_gate_have_the_shape_of_the_family(relay):
    bearer = {"Authorization": f"Bearer {relay.server.token}"}
    evil = ask(relay, "/v1/chat/completions", {**bearer, "Origin": "http://evil.example"})
    assert (evil.status_code, evil.json()["error"]["type"]) == (403, "permission_error")
    evil = ask(relay, "/v1/messages", {**bearer, "Host": "evil.example"})
    assert (evil.status_code, evil.json()["error"]["type"]) == (403, "permission_error")
    assert evil.json()["request_id"] == evil.headers["request-id"]
    with httpx.Client(base_url=relay.server.base, headers=bearer, **PATIENT) as client:
        wrong = client.get("/v1/chat/completions")
        assert (wrong.status_code, wrong.json()["error"]["type"]) == (405, "invalid_request_error")
        lost = client.get("/v1/nothing/here")
        assert (lost.status_code, lost.json()["error"]["type"]) == (404, "invalid_request_error")


def test_a_token_needs_the_scope_and_the_agent(relay):
    reader = relay.server.make_token("reader", "--scope", "read")
    assert relay.post("/v1/messages", MESSAGES, token=reader).status_code == 403
    only = relay.server.make_token("only", "--scope", "chat", "--agent", "other")
    for body in ({"model": "m"}, {"model": "agent:main"}):
        answer = relay.post("/v1/chat/completions", {**body, "messages": HI}, token=only)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("path", WIRES)
def test_hostile_bodies_are_refused_and_leave_no_session(relay, path):
    before = len(relay.sessions())
    deep = b"[" * 5_000 + b"]" * 5_000
    one = json.loads(WIRES[path])
    nested = {"type": "text", "text": "x", "more": json.loads("[" * 250 + "]" * 250)}
    bodies = [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe",
        b'{"model": "m", "messages": ' + deep + b"}",
        json.dumps({**one, "messages": [{"role": "user", "content": [nested]}]}).encode(),
        json.dumps({**one, "messages": HI * 100_001}).encode(),
        json.dumps({**one, "tools": [{"name": f"t{n}"} for n in range(513)]}).encode(),
        json.dumps({**one, "model": "agent:../../etc"}).encode(),
        json.dumps({**one, "model": "scripted:/etc/passwd", "stream": 5}).encode(),
    ]
    for body in bodies:
        answer = relay.post(path, body)
        assert 400 <= answer.status_code < 500, (body[:60], answer.text)
        assert answer.json()["error"]["message"]
    assert len(relay.sessions()) == before


def test_half_characters_and_nulls_are_stored_safely(relay):
    relay.say()
    body = b'{"model": "m", "messages": [{"role": "user", "content": "a\\ud800b\\u0000c"}]}'
    assert relay.post("/v1/chat/completions", body).status_code == 200
    assert "\ud800" not in relay.sent()["messages"][0]["content"]


def test_a_packed_body_is_unpacked_up_to_the_limit(relay):
    relay.say()
    packed = relay.post("/v1/chat/completions", gzip.compress(CHAT), Content_Encoding="gzip")
    assert packed.status_code == 200, packed.text
    bomb = gzip.compress(b" " * (BODY_MAX_BYTES + 1))
    answer = relay.post("/v1/chat/completions", bomb, Content_Encoding="gzip")
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
    assert relay.post("/v1/messages", zlib.compress(MESSAGES), Content_Encoding="deflate").status_code == 415
    assert relay.post("/v1/messages", MESSAGES, Content_Encoding="gzip").status_code == 400
    assert relay.post("/v1/messages", gzip.compress(MESSAGES)[:-3], Content_Encoding="gzip").status_code == 400


def test_a_body_in_zstd_is_unpacked_up_to_the_limit(relay):
    relay.say()
    pack = zstandard.ZstdCompressor().compress
    assert relay.post("/v1/messages", pack(MESSAGES), Content_Encoding="zstd").status_code == 200
    bomb = pack(b" " * (BODY_MAX_BYTES + 1))
    assert relay.post("/v1/messages", bomb, Content_Encoding="zstd").status_code == 413
    halves = pack(MESSAGES[:20]) + pack(MESSAGES[20:])
    assert relay.post("/v1/messages", halves, Content_Encoding="zstd").status_code == 200
    for broken in (b"nothing of the kind", pack(MESSAGES)[:-3], pack(MESSAGES) + b"more"):
        assert relay.post("/v1/messages", broken, Content_Encoding="zstd").status_code == 400


def test_a_body_may_be_larger_here_than_elsewhere_but_not_endless(relay):
    relay.say()
    bearer = {"Authorization": f"Bearer {relay.server.token}"}
    large = json.dumps({"model": "m", "messages": HI, "x": "y" * (25 * 1024 * 1024)}).encode()
    assert ask(relay, "/v1/chat/completions", bearer, data=large).status_code == 200
    connection = HTTPConnection(relay.server.base.partition("://")[2], timeout=GIVES_UP_S)
    connection.request("POST", "/v1/messages", headers={**bearer, "Content-Length": str(BODY_MAX_BYTES + 1)})
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["error"]["type"]) == (413, "request_too_large")
    connection.close()


@pytest.mark.parametrize(
    ("reply", "status", "code"),
    [
        (Refused(401, {"error": {"message": "no key", "code": "invalid_api_key"}}), 502, "upstream_auth"),
        (Refused(400, {"error": {"message": "bad schema"}}), 502, "upstream_error"),
        (Refused(404, {"error": {"message": "no such model"}}), 404, "model_not_found"),
        (Refused(429, {"error": {"message": "slow down"}}, {"Retry-After": "90"}), 429, "rate_limit_exceeded"),
        (Refused(400, {"error": {"message": "blocked by our content filter"}}), 400, "content_policy_violation"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_an_upstreams_refusal_keeps_a_status_of_its_own(relay, reply, status, code, stream):
    relay.say(reply)
    answer = relay.chat(stream=stream)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    assert answer.headers["turnlog-session"]


@pytest.mark.parametrize("name", ["x" * 257, "a\tb"])
def test_a_name_that_is_none_is_refused(relay, name):
    assert relay.post("/v1/chat/completions", CHAT, turnlog_session=name).status_code == 400
    assert relay.post("/v1/chat/completions", CHAT, x_session_id=name).status_code == 400


def test_nothing_is_stored_where_the_client_says_so(relay):
    relay.say(Said(text="forgotten"))
    before = len(relay.sessions())
    logged = len(relay.server.logged())
    body = {"model": "m", "messages": [{"role": "user", "content": "unwritten words"}]}
    answer = relay.post("/v1/chat/completions", body, Turnlog_Store="none")
    assert answer.json()["choices"][0]["message"]["content"] == "forgotten"
    assert "turnlog-session" not in answer.headers
    assert answer.json()["turnlog"]["session"] is None
    assert len(relay.sessions()) == before
    assert len(relay.server.logged()) == logged
    found = [
        path for path in relay.server.home.rglob("*") if path.is_file() and b"unwritten words" in path.read_bytes()
    ]
    assert found == []


def test_nothing_is_told_of_what_is_not_stored_but_numbers(relay):
    """No trace in the log of requests, in the index of answers or in the labels of metrics."""
    relay.say(Said(text="unspoken"), Said(text="spoken"))
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "unheard of"}]}
    headers = {"x_session_id": "hidden-name", "user_agent": "hidden-client/1", "idempotency_key": "hidden-key"}
    assert relay.post("/v1/messages", body, turnlog_store="None", **headers).status_code == 200
    with relay.server.client() as client:
        metrics = client.get("/metrics").text
    written = [path.read_bytes() for path in relay.server.home.rglob("*") if path.is_file()]
    for word in ("unheard of", "unspoken", "hidden-name", "hidden-client", "hidden-key"):
        assert word not in metrics
        assert not any(word.encode() in data for data in written), word
    again = relay.post("/v1/messages", body, **headers)
    assert again.headers["turnlog-match"] == "new", "it was not kept in memory either"


def test_a_token_may_have_so_many_streams(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text("[server]\nconnections_per_token = 4\n")
    with serving(tmp_path / "home") as relay, ExitStack() as stack:
        relay.say(*[Said(texts=("be", "gun"), breaks="stall")] * 4)
        bearer = {"Authorization": f"Bearer {relay.server.token}"}
        answers = []
        for n in range(4):
            client = stack.enter_context(httpx.Client(base_url=relay.server.base, **PATIENT))
            body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": f"Stream {n}"}]}
            stream = client.stream("POST", "/v1/chat/completions", json=body, headers=bearer)
            answers.append(stack.enter_context(stream))
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert answers[-1].headers["retry-after"]
        assert json.loads(answers[-1].read())["error"]["type"] == "rate_limit_error"
        assert len(relay.wire.requests) == 3, "nothing was asked for the one that was refused"


def test_who_has_an_answer_may_ask_again_at_once(tmp_path):
    """A stream counts until its last byte, and not until everything after it is put away."""
    with serving(tmp_path, env={"TURNLOG_SERVER_CONNECTIONS_PER_TOKEN": "2"}) as relay:  # one stream
        headers = {"Authorization": f"Bearer {relay.server.token}"}
        with httpx.Client(base_url=relay.server.base, **PATIENT) as client:
            for n in range(20):
                body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": f"Turn {n}"}]}
                assert client.post("/v1/chat/completions", json=body, headers=headers).status_code == 200


def test_a_probe_of_the_root_is_answered(relay):
    with httpx.Client(base_url=relay.server.base, **PATIENT) as client:
        assert client.head("/").status_code in (200, 303, 401)
        assert client.post("/v1/messages?beta=true", content=MESSAGES).status_code == 401


def test_a_client_that_goes_away_does_not_end_its_call(relay):
    relay.say(Stalled())
    relay.wire.asked.clear()
    client = HTTPConnection(relay.server.base.removeprefix("http://"))
    headers = {"x-api-key": relay.server.token, "Content-Type": "application/json"}
    client.request("POST", "/v1/chat/completions", CHAT.replace(b"Hi", b"Wait"), headers)
    assert relay.wire.asked.wait(GIVES_UP_S)
    client.close()
    assert not relay.wire.left.is_set()
    assert len(relay.wire.requests) == 1
    relay.say(Said(text="not asked"))


WRITE = {"type": "function", "function": {"name": "write"}}
FORCED = [
    ("/v1/chat/completions", {"tool_choice": "required"}),
    (
        "/v1/chat/completions",
        {"tool_choice": {"type": "function", "function": {"name": "write"}}, "tools": [CHAT_TOOL]},
    ),
    ("/v1/messages", {"tool_choice": {"type": "any"}}),
    ("/v1/messages", {"tool_choice": {"type": "tool", "name": "write"}, "tools": [TOOL]}),
    (
        "/v1/messages",
        {
            "tool_choice": {"type": "tool", "name": "web_search"},
            "tools": [{"type": "web_search_20250305", "name": "web_search"}, TOOL],
        },
    ),
    ("/v1/responses", {"tool_choice": "required"}),
]


@pytest.mark.parametrize(("path", "fields"), FORCED)
def test_a_call_that_cannot_be_made_is_not_asked_for_in_vain(relay, path, fields):
    """Without the call the answer would be another one than the client asked for."""
    before = len(relay.sessions())
    body = {"model": "m", "max_tokens": 9, "messages": HI, "input": "Hi", **fields}
    answer = relay.post(path, body)
    assert answer.status_code == 400, answer.text
    assert "tool" in answer.json()["error"]["message"]
    assert len(relay.sessions()) == before


def test_an_edit_of_a_kind_to_come_is_ignored_and_named(relay):
    """A new version of a client must not stop working because it asks for more."""
    relay.say()
    edits = [{"type": "clear_thinking_20251015"}, {"type": "clear_more_20990101", "keep": 3}]
    answer = relay.messages(context_management={"edits": edits})
    assert answer.status_code == 200, answer.text
    assert answer.headers["turnlog-ignored"] == "context_management"
    applied = answer.json()["context_management"]["applied_edits"]
    assert [edit["type"] for edit in applied] == ["clear_thinking_20251015"]


def test_every_answer_names_its_request_whatever_it_is(relay):
    """`x-request-id`, and `request-id` where Anthropic's SDK looks for it; of refusals too."""
    relay.say()
    bearer = {"Authorization": f"Bearer {relay.server.token}"}
    with httpx.Client(base_url=relay.server.base, **PATIENT) as client:
        answers = [
            client.get("/v1/models", headers=bearer),
            client.get("/v1/models", headers={**bearer, "anthropic-version": "2023-06-01"}),
            client.get("/v1/models/agent:none", headers={**bearer, "anthropic-version": "2023-06-01"}),
            client.post("/v1/messages?beta=true&beta=again", content=b"{", headers=bearer),
            client.post("/v1/messages", content=MESSAGES),
            client.post("/v1/chat/completions?any=thing", content=CHAT, headers=bearer),
            client.get("/v1/nothing", headers=bearer),
            client.get("/v1/models", headers={**bearer, "Host": "elsewhere.example"}),
        ]
    assert [answer.status_code for answer in answers] == [200, 200, 404, 400, 401, 200, 404, 403]
    assert all(answer.headers["x-request-id"] for answer in answers)
    assert ["request-id" in answer.headers for answer in answers] == [
        False,
        True,
        True,
        True,
        True,
        False,
        False,
        False,
    ]
    assert answers[2].json()["error"]["type"] == "not_found_error"
    assert answers[3].json()["request_id"] == answers[3].headers["request-id"]

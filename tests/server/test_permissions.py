"""Who is let in and who is not: scopes, other people's sessions, guesses, path tricks, other sites, other hosts."""

import http.client
import json
import socket
from pathlib import Path

import httpx
import pytest

from turnlog.server.http.limits import Buckets

from .running import CHAT, PATIENT, SESSIONS, Running, running, talk, turnlog, wait_until

CONFIG = '[agents.ops]\nsystem = "You run things."\n[server]\nhosts = ["chat.example.org"]\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home = tmp_path_factory.mktemp("permissions")
    (home / "config.toml").write_text(CONFIG)
    with running(home, script=[]) as server:
        server.ann = server.make_token("ann", "--scope", "chat")
        server.bob = server.make_token("bob", "--scope", "chat")
        server.eve = server.make_token("eve", "--scope", "read", "--agent", "main")
        server.cleo = server.make_token("cleo", "--scope", "read", "--scope", "chat")
        with server.client(server.ann) as client:
            server.hers = talk(client, "ann's pomegranate")[-1][1]["sessionId"]
        yield server


def call(server, token, method, path, **options):
    with server.client(token) as client:
        return client.request(method, path, **options)


def test_one_sees_only_what_is_ones_own(server):
    for base in (SESSIONS, "/api/sessions/main"):
        for method, path, options in (
            ("GET", f"{base}/{server.hers}", {}),
            ("PATCH", f"{base}/{server.hers}", {"json": {"title": "x"}}),
            ("DELETE", f"{base}/{server.hers}", {}),
            ("POST", f"{base}/{server.hers}/compact", {"json": {}}),
            ("POST", f"{base}/{server.hers}/undo-compact", {}),
            ("POST", f"{base}/{server.hers}/fork", {"json": {}}),
            ("POST", f"{base}/{server.hers}/rewind", {"json": {"to": 4}}),
            ("POST", f"{base}/{server.hers}/retry", {}),
            ("POST", f"{base}/{server.hers}/discard", {}),
            ("GET", f"{base}/{server.hers}/prompt", {}),
            ("GET", f"{base}/{server.hers}/coverage", {}),
            ("GET", f"{base}/{server.hers}/events", {}),
        ):
            answer = call(server, server.bob, method, path, **options)
            assert answer.status_code == 404, (method, path)
            assert "pomegranate" not in answer.text
    for path in ("stream", "status"):
        assert call(server, server.bob, "GET", f"{CHAT}/{path}", params={"sessionId": server.hers}).status_code == 404
    assert call(server, server.bob, "POST", f"{CHAT}/stop", json={"sessionId": server.hers}).status_code == 404
    assert call(server, server.bob, "POST", CHAT, json={"message": "x", "sessionId": server.hers}).status_code == 404
    assert call(server, server.bob, "GET", SESSIONS).json() == {"sessions": [], "next": None, "total": 0}
    assert call(server, server.ann, "GET", SESSIONS).json()["total"] == 1
    assert call(server, server.ann, "GET", f"{SESSIONS}/{server.hers}").status_code == 200


def test_a_key_of_somebody_else_does_not_exist_and_is_refused_to_those_who_see_it(server):
    for key in ("agent:main:web:direct:ann", "main:cli:user", "agent:main:telegram:direct:5"):
        body = {"message": "x", "key": key}
        assert call(server, server.bob, "POST", CHAT, json=body).status_code == 404
        answer = call(server, server.cleo, "POST", CHAT, json=body)
        assert (answer.status_code, answer.json()["code"]) == (403, "denied")


def operations(server):
    """(method, path, body, the scope it needs, whether it writes) for each operation of openapi.json."""
    described = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())
    named = {"chat": {"message": "x"}, "stop": {}, "rewind": {"to": 4}, "signin": {"token": server.token}}
    named |= {"erase": {"text": "words of nobody"}, "model": {"model": ""}}
    ours = [(path, methods) for path, methods in described["paths"].items() if not path.startswith("/v1/")]
    for path, methods in ours:  # the others are tested in `compatible`
        for method in methods:
            writes = method != "get"
            body = dict(named.get(path.rpartition("/")[2], {"title": "x"} if method == "patch" else {}))
            where = path.format(agent="main", sid=server.hers, channel="web-ann", call="c1")
            if path.endswith("{call}"):
                body = {"word": "denied"}
            if "/chat" in path and writes:
                body["sessionId"] = server.hers
            if "/chat/" in path and not writes:
                where += f"?sessionId={server.hers}"
            if path.startswith(("/healthz", "/readyz", "/api/signin")):
                needed = ()
            elif "conversations" in path or path.endswith("/erase") or path == "/api/approvals":
                needed = ("admin",)
            elif path == "/metrics":
                needed = ("read", "admin")
            else:
                needed = ("chat", "admin") if writes else ("chat", "read", "admin")
            yield method.upper(), where, body if writes else None, needed, writes


def test_403_and_404_are_given_as_documented_by_every_operation(server):
    """The scope first; then what a token cannot see does not exist; then what it sees is not its own to change."""
    people = {
        (server.bob, ("chat",), "main", "bob"),
        (server.eve, ("read",), "main", "eve"),
        (server.cleo, ("chat", "read"), "main", "cleo"),
        (server.make_token("otto", "--scope", "read", "--agent", "ops"), ("read",), "ops", "otto"),
        (server.make_token("olga", "--scope", "chat", "--agent", "ops"), ("chat",), "ops", "olga"),
        (server.make_token("root", "--scope", "admin", "--agent", "ops"), ("admin",), "ops", "root"),
    }
    for method, path, body, needed, writes in operations(server):
        for token, scopes, agent, name in people:
            concerns_her = server.hers in path or server.hers in json.dumps(body)
            seen = agent == "main" and (not concerns_her or not {"read", "admin"}.isdisjoint(scopes))
            if needed and set(needed).isdisjoint(scopes):
                expected = (403, "scope")
            elif "main" in path and not seen:
                expected = (404, "not_found")
            elif writes and concerns_her:
                expected = (403, "denied")
            else:
                expected = (200, "")
            with server.client(token) as client, client.stream(method, path, json=body) as answer:
                code = json.loads(answer.read())["code"] if answer.status_code >= 400 else ""
                got = (200 if answer.status_code < 300 else answer.status_code, code)
            assert got == expected, (method, path, name)


def test_what_there_is_not_is_404_for_an_administrator_too(server):
    for path in (
        f"{SESSIONS}/nobody",
        "/api/agents/nobody/sessions",
        "/api/agents/main/conversations/nowhere",
        "/api/agents/main/conversations/nowhere?q=x",
        "/api/nothing",
        "/nothing",
        "/static/nothing.js",
        "/chats/log/main?channel=nowhere",
        "/chats/session/main/nobody",
    ):
        assert call(server, None, "GET", path).status_code == 404, path
    assert call(server, None, "POST", "/channels/nothing", json={}).status_code == 404
    known = call(server, None, "GET", "/api/agents/main/conversations/web-ann?q=nothing-of-the-kind")
    assert (known.status_code, known.json()["messages"]) == (200, [])


def test_a_scope_allows_what_it_says_and_no_more(server):
    assert call(server, server.eve, "GET", f"{SESSIONS}/{server.hers}").status_code == 200
    for method, path, body in (
        ("POST", CHAT, {"message": "x"}),
        ("POST", f"{CHAT}/stop", {"sessionId": server.hers}),
        ("PATCH", f"{SESSIONS}/{server.hers}", {"title": "x"}),
        ("DELETE", f"{SESSIONS}/{server.hers}", None),
        ("POST", f"{SESSIONS}/{server.hers}/fork", {}),
        ("GET", "/api/conversations", None),
        ("GET", "/api/agents/main/conversations", None),
        ("GET", "/api/agents/main/conversations/web-ann", None),
    ):
        answer = call(server, server.eve, method, path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (403, "scope"), path
    assert call(server, server.ann, "GET", "/metrics").status_code == 403
    assert call(server, server.eve, "GET", "/metrics").status_code == 200


def test_reading_others_does_not_mean_writing_to_them(server):
    assert call(server, server.cleo, "GET", f"{SESSIONS}/{server.hers}").status_code == 200
    assert call(server, server.cleo, "PATCH", f"{SESSIONS}/{server.hers}", json={"title": "x"}).status_code == 403
    assert call(server, server.cleo, "DELETE", f"{SESSIONS}/{server.hers}").status_code == 403
    assert call(server, server.cleo, "POST", CHAT, json={"message": "x", "sessionId": server.hers}).status_code == 403


def test_another_agents_session_does_not_exist(server):
    with server.client() as client:
        sid = talk(client, "for ops", path="/api/agents/ops/chat")[-1][1]["sessionId"]
        assert client.get(f"/api/agents/ops/sessions/{sid}").status_code == 200
        assert client.get(f"{SESSIONS}/{sid}").status_code == 404
        assert client.post(CHAT, json={"message": "x", "sessionId": sid}).status_code == 404
        assert client.get("/api/agents/none/sessions").status_code == 404
    assert call(server, server.eve, "GET", "/api/agents/ops/sessions").status_code == 404
    assert call(server, server.eve, "GET", f"/api/agents/ops/sessions/{sid}").status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "//api/agents/main/sessions",
        "/api/agents/main/sessions/",
        "/api/agents/main/../main/sessions",
        "/static/../api/agents/main/sessions",
        "/static/%2e%2e/api/agents/main/sessions",
        "/healthz/../api/agents/main/sessions",
        "/signin/../api/agents/main/sessions",
        "/channels/../api/conversations",
        "/api/agents/main/sessions/..%2f..%2f..%2fetc%2fpasswd",
        "/api/agents/main/sessions/%2e%2e",
        "/api/agents/..%2f..%2f/sessions",
        "/API/agents/main/sessions",
        "/api/agents/main/sessions;x=1",
        "/api/agents/main/sessions%00",
        "/healthz%2f..%2fapi/conversations",
        "/openapi.json/../api/conversations",
    ],
)
@pytest.mark.parametrize("token", [False, True])
def test_no_path_leads_around_the_door(server, path, token):
    """Sent as it stands; a client library would tidy it up."""
    host, _, port = server.base.removeprefix("http://").partition(":")
    headers = {"Authorization": f"Bearer {server.bob}"} if token else {}
    connection = http.client.HTTPConnection(host, int(port), timeout=120)
    connection.putrequest("GET", path, skip_host=True)
    for name, value in {"Host": f"{host}:{port}", **headers}.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert answer.status in ((400, 404, 200) if token else (401, 404)), text
    assert "pomegranate" not in text
    assert "root:" not in text
    assert answer.status != 200 or json.loads(text)["sessions"] == []


def test_a_token_in_the_query_is_no_token(server):
    for name in ("token", "access_token", "authorization", "code"):
        assert httpx.get(f"{server.base}{SESSIONS}?{name}={server.ann}", **PATIENT).status_code == 401
    assert server.ann not in server.log.read_text()


@pytest.mark.parametrize(
    "host", ["evil.example", "127.evil.com", "localhost.evil.com", "", "0x7f000001.x", "[::1].evil"]
)
def test_a_host_that_is_not_ours_is_refused(server, host):
    for path in (SESSIONS, "/healthz", "/signin"):
        answer = call(server, None, "GET", path, headers={"Host": host})
        assert answer.status_code in (400, 403)
    assert call(server, None, "GET", SESSIONS, headers={"Host": "chat.example.org"}).status_code == 200
    assert call(server, None, "GET", SESSIONS, headers={"Host": "localhost:1"}).status_code == 200
    assert call(server, None, "GET", SESSIONS, headers={"Host": "[::1]:8600"}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://127.0.0.1.evil.example"]
)
def test_a_request_from_another_site_is_refused(server, origin):
    body = {"message": "x"}
    answer = call(server, None, "POST", CHAT, json=body, headers={"Origin": origin})
    assert (answer.status_code, answer.json()["code"]) == (403, "origin")
    assert call(server, None, "GET", SESSIONS, headers={"Origin": origin}).status_code == 403
    crossed = call(server, None, "POST", CHAT, json=body, headers={"Sec-Fetch-Site": "cross-site"})
    assert crossed.status_code == 403
    assert "access-control-allow-origin" not in answer.headers


def test_a_later_start_says_where_the_token_is_instead_of_a_link(tmp_path):
    with running(tmp_path, script=[]) as server:
        assert "Sign in once at " in server.said
        server.restart()
        assert f"To sign in, use the administrator's token in {tmp_path / 'admin.token'}" in server.said
        assert "Sign in once" not in server.said


def test_the_link_signs_in_once_and_the_cookie_is_the_pages_alone(tmp_path):
    with running(tmp_path, script=[]) as server:
        link = server.said.split("Sign in once at ")[1].split()[0]
        code = link.partition("code=")[2]
        origin = {"Origin": server.base}
        with httpx.Client(base_url=server.base, **PATIENT) as browser:
            assert (
                browser.post("/api/signin", json={"code": code}, headers={"Origin": "http://evil"}).status_code == 403
            )
            signed = browser.post("/api/signin", json={"code": code}, headers=origin)
            assert signed.status_code == 204
            cookie = signed.headers["set-cookie"].lower()
            assert "httponly" in cookie
            assert "samesite=strict" in cookie
            assert browser.get(SESSIONS).status_code == 200
            assert browser.post(CHAT, json={"message": "x"}).status_code == 403  # says not where it comes from
            assert browser.post(CHAT, json={"message": "x"}, headers={"Origin": "http://evil"}).status_code == 403
            assert browser.post(CHAT, json={"message": "x"}, headers=origin).status_code == 200
            assert browser.delete("/api/signin", headers=origin).status_code == 204
            browser.cookies.set("turnlog", signed.cookies["turnlog"])
            assert browser.get(SESSIONS).status_code == 401
        for body in ({"code": code}, {"code": ""}, {"code": "guess"}, {"token": "guess"}, {}, {"token": ""}):
            assert httpx.post(f"{server.base}/api/signin", json=body, **PATIENT).status_code == 401
        with httpx.Client(base_url=server.base, **PATIENT) as browser:
            assert browser.post("/api/signin", json={"token": server.token}).status_code == 204
            assert browser.get(SESSIONS).status_code == 200
            turnlog(["token", "revoke", server.token.split("_")[1], "--home", str(tmp_path)])
            assert browser.get(SESSIONS).status_code == 401
        log = server.log.read_text()
        assert code not in log
        assert server.token not in log
        server.restart()
        assert "Sign in" not in server.said


def test_tokens_made_before_the_first_start_do_not_take_the_place_of_the_administrators(tmp_path):
    for name, scope in (("ann", "chat"), ("boss", "admin")):
        assert turnlog(["token", "create", name, "--scope", scope, "--home", str(tmp_path)]).returncode == 0
    with running(tmp_path, script=[]) as server:
        link = server.said.split("Sign in once at ")[1].split()[0]
        assert httpx.get(link, follow_redirects=True, **PATIENT).status_code == 200
        assert (tmp_path / "admin.token").stat().st_mode & 0o777 == 0o600
        assert call(server, None, "GET", "/api/conversations").status_code == 200
        server.restart()
        assert "Sign in" not in server.said, "only at the first start"


def test_a_person_without_a_cookie_is_led_to_the_sign_in_page(server):
    answer = httpx.get(f"{server.base}/chats", headers={"Accept": "text/html"}, **PATIENT)
    assert (answer.status_code, answer.headers["location"]) == (303, "/signin")
    assert httpx.get(f"{server.base}{SESSIONS}", headers={"Accept": "text/html"}, **PATIENT).status_code == 401


def test_every_answer_says_that_it_is_not_to_be_framed_sniffed_or_kept(server):
    for answer in (call(server, None, "GET", SESSIONS), httpx.get(f"{server.base}/nothing", **PATIENT)):
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


def test_the_log_has_a_line_for_each_request_and_no_secret_in_any(server):
    with server.client() as client:
        answer = client.get(f"{SESSIONS}/sk-abcdefghijklmnopqrstuvwxyz0123456789?q=hidden")
        known = answer.headers["x-request-id"]
    lines = wait_until(lambda: [line for line in server.log.read_text().splitlines() if known in line])
    line = json.loads(lines[0])
    assert (line["event"], line["status"], line["principal"]) == ("request", 404, "admin")
    text = server.log.read_text()
    for secret in (
        server.token,
        server.ann,
        server.bob,
        "hidden",
        "pomegranate",
        "abcdefghijklmnopqrstuvwxyz0123456789",
    ):
        assert secret not in text


def test_files_are_private_from_the_beginning(server):
    for path in server.home.rglob("*"):
        if path.name in ("server.out", "server.log", "script.jsonl", "config.toml", "requests.jsonl"):
            continue
        assert path.stat().st_mode & 0o077 == 0, path


def test_those_who_ask_too_often_are_told_to_wait(tmp_path):
    with running(tmp_path, script=[], env={"TURNLOG_SERVER_RATE": "1"}) as server, server.client() as client:
        answers = [client.get(SESSIONS) for _ in range(40)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert refused
        assert answers[0].status_code == 200
        assert refused[0].headers["retry-after"] == "1"
        assert refused[0].json()["code"] == "rate"
        tries = [client.get(SESSIONS, headers={"Authorization": f"Bearer {n}"}).status_code for n in range(200)]
        assert set(tries) == {401, 429}


def test_a_bucket_fills_again_and_forgets_nobody_too_soon():
    now = [0.0]
    buckets = Buckets(2, 4, lambda: now[0])
    assert [buckets.take("a") for _ in range(6)] == [True] * 4 + [False] * 2
    assert buckets.take("b")
    now[0] = 1.0
    assert [buckets.take("a") for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize(
    "twice",
    [
        "Host: localhost",
        "Host: chat.example.org",
        "Origin: http://localhost",
        "Authorization: Bearer x",
        "Content-Type: a/b",
    ],
)
@pytest.mark.parametrize("path", ["/healthz", SESSIONS, "/signin"])
def test_a_header_that_may_come_once_and_comes_twice_is_refused(server, path, twice):
    """What stands before this server may believe the other one."""
    host, _, port = server.base.removeprefix("http://").partition(":")
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nContent-Type: text/plain\r\n"
    head += f"Authorization: Bearer {server.token}\r\n{twice}\r\nConnection: close\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=120) as wire:
        wire.sendall(head.encode())
        assert wire.recv(100).startswith(b"HTTP/1.1 400 ")


def test_garbage_on_the_wire_harms_nobody(server):
    host, _, port = server.base.removeprefix("http://").partition(":")
    for junk in (
        b"\x00" * 100,
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"A" * 100_000,
    ):
        with socket.create_connection((host, int(port)), timeout=120) as wire:
            wire.sendall(junk + b"\r\n\r\n")
            try:
                wire.recv(1000)
            except ConnectionResetError:
                pass
    assert httpx.get(f"{server.base}/healthz", **PATIENT).json() == {"status": "ok"}


@pytest.mark.parametrize("head", [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", b"GET /", b"POST "])
def test_a_head_without_end_is_refused_before_it_fills_the_memory(server, head):
    host, _, port = server.base.removeprefix("http://").partition(":")
    sent = 0
    with socket.create_connection((host, int(port)), timeout=120) as wire:
        try:
            wire.sendall(head)
            while sent < 50_000_000:
                wire.sendall(b"X-More: " + b"a" * 8_000 + b"\r\n" if b"Host" in head else b"a" * 8_000)
                sent += 8_000
        except (ConnectionResetError, BrokenPipeError):
            pass
    assert sent < 5_000_000
    assert httpx.get(f"{server.base}/healthz", **PATIENT).json() == {"status": "ok"}


def test_one_header_without_end_is_refused_too(server):
    host, _, port = server.base.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=120) as wire:
        wire.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            wire.sendall(b"a" * 8_000_000)


@pytest.mark.parametrize("end", [b"0\r\n" + b"X-More: %b\r\n" % (b"a" * 8_000), b"0\r\nX-More: ", b"1;"])
def test_what_follows_a_body_is_limited_too(server, end):
    host, _, port = server.base.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=120) as wire:
        wire.sendall(b"POST /api/signin HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + end)
        more = b"X-More: %b\r\n" % (b"a" * 8_000) if b"aaa" in end else b"a" * 8_000
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            wire.sendall(more * 1_000)


def test_many_requests_on_one_connection_each_have_a_head_of_their_own(server):
    with server.client() as client:
        for _ in range(30):
            assert client.get("/healthz", headers={"X-Padding": "a" * 8_000}).status_code == 200
        body = {"message": "a" * 200_000, "sessionId": "long-one"}
        assert client.post(CHAT, json=body).status_code == 200, "a body is no head"
        assert client.get("/healthz").status_code == 200


def test_a_look_at_the_head_alone_is_answered_without_a_body(server):
    with server.client() as client:
        sid = talk(client)[-1][1]["sessionId"]
        for path in ("/healthz", SESSIONS, f"{SESSIONS}/{sid}", f"{SESSIONS}/{sid}/events", "/metrics", "/chats"):
            answer = client.head(path)
            assert answer.status_code == 200, path
            assert answer.content == b""
            assert answer.headers["x-request-id"]
        assert client.head(f"{SESSIONS}/nobody").status_code == 404
        assert client.head(CHAT).status_code == 405
        assert client.get("/healthz").json() == {"status": "ok"}, "the connection goes on"
    assert httpx.head(f"{server.base}{SESSIONS}", **PATIENT).status_code == 401


def test_there_is_no_server_without_a_token(tmp_path):
    server = Running(tmp_path, script=[])
    try:
        assert (tmp_path / "admin.token").stat().st_mode & 0o777 == 0o600
        assert httpx.get(f"{server.base}{SESSIONS}", **PATIENT).status_code == 401
    finally:
        assert server.stop() == 0

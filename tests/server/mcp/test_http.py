"""`/mcp` of a real server, with the official SDK's client of both protocol generations."""

import asyncio
import json

import pytest

from tests.server.running import CHAT, Running, running, talk

from .connecting import found, over_http

RUNNING = "turnlog.server.mcp.serving"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("mcp"), script=[{"text": "noted"}] * 4) as server:
        server.ann = server.make_token("ann", "--scope", "chat")
        server.bob = server.make_token("bob", "--scope", "chat")
        with server.client(server.ann) as client:
            server.hers = talk(client, "ann's pomegranate")[-1][1]["sessionId"]
        yield server


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_token_sees_its_own_sessions_in_either_generation_of_the_protocol(server, mode):
    async def run():
        async with over_http(server.base, server.ann, mode=mode) as client:
            assert len((await client.list_tools()).tools) == 7
            assert "ann's pomegranate" in await found(client, "pomegranate")
            [text] = (await client.read_resource(f"turnlog://session/{server.hers}")).contents
            assert "ann's pomegranate" in text.text
        async with over_http(server.base, server.bob, mode=mode) as client:
            assert await found(client, "pomegranate") == []
            assert (await client.list_resources()).resources == []
            for tool, more in (("read", {}), ("context", {}), ("pin", {"seq": 3}), ("unpin", {"seq": 3})):
                answer = await client.call_tool(tool, {"session": server.hers, **more})
                assert answer.is_error
                assert "pomegranate" not in answer.content[0].text
            with pytest.raises(Exception, match="no session"):
                await client.read_resource(f"turnlog://session/{server.hers}")

    asyncio.run(run())


def call(server, *, headers=None, token=None, body=None, method="POST"):
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"} if body is None else body
    own = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json", **(headers or {})}
    with server.client(token or server.ann) as client:
        return client.request(
            method, "/mcp", content=asked if isinstance(asked, bytes) else json.dumps(asked), headers=own
        )


def test_the_gate_stands_before_it_and_a_cookie_does_not_count(server):
    assert call(server).status_code == 200
    assert call(server, token="tl_x_y").status_code == 401
    assert call(server, headers={"Origin": "https://evil.example"}).status_code == 403
    assert call(server, headers={"Host": "evil.example"}).status_code == 403
    with server.client() as client:
        signed = client.post("/api/signin", json={"token": server.ann})
        cookies, base = dict(signed.cookies), server.base
        del client.headers["Authorization"]
        client.cookies.update(cookies)
        answer = client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers={"Origin": base})
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_it_keeps_nothing_between_requests_so_there_is_no_stream_and_nothing_to_end(server):
    for method in ("GET", "DELETE", "PUT"):
        answer = call(server, method=method)
        assert answer.status_code == 405
        assert answer.headers["allow"] == "POST"
    assert "mcp-session-id" not in call(server).headers


HOSTILE = (
    b"",
    b"not json",
    b"[" * 100_000,
    b'{"jsonrpc": "2.0"}',
    b"[]",
    b'{"jsonrpc": "2.0", "id": {}, "method": 5}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "read", "arguments": "x"}}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "no/such"}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 5}}',
    b"\xff\xfe",
    b'"' + b"x" * 2_000_000 + b'"',
)


@pytest.mark.parametrize("version", [None, "2025-06-18", "2026-07-28", "1999-01-01"])
def test_hostile_bodies_are_refused_and_the_server_goes_on(server, version):
    for body in HOSTILE:
        answer = call(server, body=body, headers={"MCP-Protocol-Version": version} if version else {})
        assert answer.status_code < 500, body[:80]
        assert answer.status_code >= 400 or "error" in answer.json()
        assert "Traceback" not in answer.text
    assert call(server).status_code == 200


def test_too_many_calls_of_one_principal_are_answered_with_a_hint(tmp_path):
    with running(
        tmp_path, script=[], constants={f"{RUNNING}.CALLS_BURST": 3.0, f"{RUNNING}.CALLS_PER_S": 0.0}
    ) as server:

        async def run():
            async with over_http(server.base, server.token) as client:
                answers = [await client.call_tool("list_sessions", {}) for _ in range(4)]
                assert [answer.is_error for answer in answers] == [False, False, False, True]
                assert "slowly" in answers[-1].content[0].text

        asyncio.run(run())


def test_a_client_goes_on_after_the_server_was_killed_and_started_again(tmp_path):
    server = Running(tmp_path, script=[{"text": "noted"}])

    async def run():
        with server.client() as client:
            session = talk(client, "before the crash: pomegranate", path=CHAT)[-1][1]["sessionId"]
        async with over_http(server.base, server.token) as client:
            assert (await client.call_tool("pin", {"session": session, "seq": 3})).structured_content["pinned"] == [3]
            server.args[server.args.index("--port") + 1] = server.base.rpartition(":")[2]
            server.restart()
            assert "before the crash: pomegranate" in await found(client, "pomegranate")
            assert (await client.call_tool("unpin", {"session": session, "seq": 3})).structured_content["pinned"] == []

    try:
        asyncio.run(run())
    finally:
        server.kill()

"""`turnlog mcp` as a real process, with the official SDK's client."""

import asyncio
import json
import signal
import subprocess
import sys

import pytest
from mcp import MCPError

import turnlog
from tests.waiting import GIVES_UP_S
from turnlog.core.searchable import ANSWER_MARK, SERVED_TOOLS
from turnlog.server.http.auth import TOKEN_SPACES, Tokens

from .connecting import clean_environment, found, over_stdio


async def fill(home):
    async with turnlog.open(home=home, model_name="offline", store_durability="os") as t:
        for channel, user in (("app", "ann"), ("web", "ann"), ("telegram", "5")):
            said = {"role": "user", "content": f"the {channel}'s pomegranate"}
            await t.session(user=user, channel=channel).append(said)
        return await Tokens(t.ledger(*TOKEN_SPACES)).create("ann", ["chat"])


def test_a_program_without_a_token_sees_the_local_users_sessions_and_pins_in_them(tmp_path):
    async def run():
        await fill(tmp_path)
        async with over_stdio(tmp_path) as client:
            tools = (await client.list_tools()).tools
            assert tuple(tool.name for tool in tools) == SERVED_TOOLS
            hints = {tool.name: tool.annotations.read_only_hint for tool in tools}
            assert [name for name, reads in hints.items() if not reads] == ["pin", "unpin"]
            assert all(tool.output_schema and tool.input_schema for tool in tools)
            assert await found(client, "pomegranate") == ["the app's pomegranate"]
            [row] = (await client.call_tool("list_sessions", {})).structured_content["sessions"]
            pinned = await client.call_tool("pin", {"session": row["id"], "seq": 3})
            assert pinned.structured_content["pinned"] == [3]
            assert pinned.content[0].text.startswith(ANSWER_MARK)
            [resource] = (await client.list_resources()).resources
            assert resource.uri == f"turnlog://session/{row['id']}"
            [text] = (await client.read_resource(resource.uri)).contents
            assert "the app's pomegranate" in text.text
            [template] = (await client.list_resource_templates()).resource_templates
            assert template.uri_template == "turnlog://session/{id}"
        async with turnlog.open(home=tmp_path, model_name="offline") as t:
            assert [target for _, target in (await t.sessions.get(row["id"])).pins] == [3]

    asyncio.run(run())


def test_a_token_decides_what_is_seen_and_a_revoked_one_sees_nothing_at_once(tmp_path):
    async def run():
        token, text = await fill(tmp_path)
        async with over_stdio(tmp_path, TURNLOG_TOKEN=text) as client:
            assert await found(client, "pomegranate") == ["the web's pomegranate"]
            async with turnlog.open(home=tmp_path, model_name="offline") as t:
                await Tokens(t.ledger(*TOKEN_SPACES)).revoke(token.id)
            refused = await client.call_tool("search", {"words": "pomegranate"})
            assert refused.is_error
            assert "revoked" in refused.content[0].text
            assert "pomegranate" not in refused.content[0].text
            with pytest.raises(MCPError, match="revoked"):
                await client.list_resources()

    asyncio.run(run())


def test_a_wrong_token_or_store_ends_the_command_with_a_clear_error(tmp_path):
    def run(*args):
        command = [sys.executable, "-m", "turnlog", "mcp", "--home", str(tmp_path), "--json", *args]
        done = subprocess.run(
            command, env=clean_environment(), input="", capture_output=True, text=True, timeout=GIVES_UP_S
        )
        assert done.stdout == ""
        return done.returncode, json.loads(done.stderr)

    code, told = run("--token", "tl_0123_nonsense")
    assert code != 0
    assert "token" in told["error"]
    code, told = run("--store", f"sqlite:{tmp_path}/none.db")
    assert code != 0
    assert not (tmp_path / "none.db").exists()


def test_garbage_and_hostile_lines_leave_it_answering_and_it_ends_with_its_input(tmp_path):
    command = [sys.executable, "-m", "turnlog", "mcp", "--home", str(tmp_path)]
    initialize = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    }
    lines = [
        json.dumps(initialize),
        '{"jsonrpc": "2.0", "method": "notifications/initialized"}',
        "not json",
        "[" * 5_000,
        '{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "read", "arguments": [1]}}',
        '{"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "__class__", "arguments": {}}}',
        '{"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {"name": "pin", "arguments": {"x": "\\ud800"}}}',
        '{"jsonrpc": "2.0", "id": 5, "method": "resources/read", "params": {"uri": "file:///etc/passwd"}}',
        '{"jsonrpc": "2.0", "id": 6, "method": "tools/call", "params": {"name": "list_sessions"}}',
    ]
    process = subprocess.Popen(command, env=clean_environment(), stdin=-1, stdout=-1, stderr=-1)
    try:
        process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        process.stdin.flush()
        answers = {}
        while 6 not in answers:
            told = json.loads(process.stdout.readline())
            answers[told.get("id")] = told
        assert answers[6]["result"]["structuredContent"]["sessions"] == []
        assert "error" in answers[2]
        assert "error" in answers[3]
        assert "error" in answers[5]
        process.stdin.close()
        assert process.wait(GIVES_UP_S) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_is_killed_leaves_what_it_pinned_and_another_goes_on(tmp_path, sign):
    async def run():
        await fill(tmp_path)
        command = [sys.executable, "-m", "turnlog", "mcp", "--home", str(tmp_path)]
        process = await asyncio.create_subprocess_exec(
            *command, env=clean_environment(), stdin=-1, stdout=-1, stderr=-1
        )

        async def ask(number, method, **params):
            line = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            process.stdin.write(json.dumps(line).encode() + b"\n")
            return json.loads(await process.stdout.readline())

        client = {"name": "x", "version": "1"}
        await ask(1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
        process.stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        key = "agent:main:app:direct:ann"
        told = await ask(2, "tools/call", name="pin", arguments={"session": key, "seq": 3})
        assert told["result"]["structuredContent"]["pinned"] == [3]
        process.send_signal(sign)
        await asyncio.wait_for(process.wait(), GIVES_UP_S)
        async with over_stdio(tmp_path) as again:
            answer = await again.call_tool("unpin", {"session": key, "seq": 3})
            assert answer.structured_content["pinned"] == []

    asyncio.run(run())

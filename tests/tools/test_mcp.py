"""Tools of real MCP servers, in processes of their own, that die, hang and babble."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from mcp.types import CallToolResult

from turnlog.errors import TurnlogError, UsageError
from turnlog.tools import Toolbox, mcp
from turnlog.tools.base import NAME
from turnlog.tools.mcp import McpSettings, mcp_tools, parse_mcp, tool_name

from ..waiting import GIVES_UP_S, is_alive, until, wait_until
from .contexts import call, context

SERVER = str(Path(__file__).with_name("mcp_server.py"))
ROOT = Path(__file__).parents[2]
STDIO = {"command": sys.executable, "args": [SERVER], "timeout_s": GIVES_UP_S}


@asynccontextmanager
async def connected(settings=None, name="probe"):
    """Its tools, a short way to use them, and a way to say how long the next call may take."""
    async with mcp_tools(name, settings or STDIO) as tools:
        box = Toolbox(tools)
        server = tools[0].run.func.__self__

        async def use(tool, **given):
            return await box.run(call(f"{name}_{tool}", given), context())

        def limit(seconds):
            server.settings = msgspec.structs.replace(server.settings, timeout_s=seconds)

        yield box, use, limit


async def begin(use, folder, **given):
    """A call of `hang` that has reached the server."""
    begun = folder / "begun"
    running = asyncio.create_task(use("hang", begun=str(begun), **given))
    await until(begun.exists)
    return running


@pytest.fixture(scope="module")
def healthy():
    """(its loop, its tools, a short way to use them) of one server for all tests that leave it as it is."""
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        patch.setenv("ANTHROPIC_API_KEY", "not yours")
        server = connected({**STDIO, "env": {"PROBE_KEY": "x"}})
        box, use, _ = runner.run(server.__aenter__())
        yield runner, box, use
        runner.run(server.__aexit__(None, None, None))


def test_the_tools_of_a_server_are_offered_under_its_name_and_give_results(healthy):
    runner, box, use = healthy

    async def main():
        specs = {spec.name: spec for spec in box.specs}
        assert specs["probe_add"].description == "Add two numbers."
        assert specs["probe_add"].input_schema["required"] == ["a", "b"]
        assert specs["probe_add"].input_schema["type"] == "object"
        assert all(NAME.fullmatch(name) for name in specs)
        assert not box.is_parallel("probe_add")
        added = await use("add", a=2, b=3)
        assert (added.content, added.is_error) == ("5", False)
        awkward = next(name for name in specs if name.startswith("probe_do_it_now_"))
        assert (await box.run(call(awkward), context())).content == "did it"
        picture = (await use("picture")).content
        assert picture[0]["source"]["media_type"] == "image/png"
        parts = (await use("parts")).content
        assert parts == "words\n\n[sound, audio/wav, 3 bytes]\n\n[manual: https://example.org/manual]\n\ninside"
        assert "灯" in (await use("table")).content

    runner.run(main())


def test_a_failing_tool_and_a_bad_input_are_error_results_and_the_server_stays(healthy):
    runner, _, use = healthy

    async def main():
        before = (await use("pid")).content
        failed = await use("fail")
        assert failed.is_error
        assert "out of paper" in failed.content
        refused = await use("refuse")
        assert (refused.content, refused.is_error) == ("not on a Sunday", True)
        bad = await use("add", a="x")
        assert bad.is_error
        assert (await use("pid")).content == before

    runner.run(main())


def test_cancelling_a_call_leaves_the_server_to_the_others(healthy, tmp_path):
    runner, _, use = healthy

    async def main():
        before = (await use("pid")).content
        running = await begin(use, tmp_path)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await use("pid")).content == before

    runner.run(main())


def test_a_server_gets_few_of_our_variables_and_those_it_was_given(healthy):
    runner, _, use = healthy
    names = runner.run(use("environment")).content.split()
    assert "PROBE_KEY" in names
    assert "ANTHROPIC_API_KEY" not in names


def test_a_server_killed_between_calls_costs_one_error_and_is_started_again():
    async def main():
        async with connected() as (_, use, _):
            first = int((await use("pid")).content)
            os.kill(first, signal.SIGKILL)
            await until(lambda: not is_alive(first))
            lost = await use("add", a=1, b=1)
            assert lost.is_error
            assert "connects again" in lost.content
            second = int((await use("pid")).content)
            assert second != first
        assert not is_alive(second)

    asyncio.run(main())


def test_a_server_that_dies_in_a_call_is_an_error_result_and_is_started_again():
    async def main():
        async with connected() as (_, use, _):
            died = await use("die")
            assert died.is_error
            assert "timed out" not in died.content
            assert (await use("add", a=1, b=1)).content == "2"

    asyncio.run(main())


@pytest.mark.parametrize("how", ["hang", "stuck"])
def test_a_server_that_hangs_is_an_error_result_and_is_replaced(how):
    async def main():
        async with connected() as (_, use, limit):
            first = int((await use("pid")).content)
            limit(0.5)
            hung = await use(how)
            limit(GIVES_UP_S)
            assert hung.is_error
            assert "timed out" in hung.content
            assert (await use("add", a=1, b=1)).content == "2"
            assert int((await use("pid")).content) != first
        assert not is_alive(first)

    asyncio.run(main())


def test_a_call_under_way_outlives_the_replacement_of_its_connection(tmp_path):
    gate = tmp_path / "gate"

    async def main():
        async with connected() as (_, use, limit):
            beside = await begin(use, tmp_path, until=str(gate))
            limit(0.5)
            assert (await use("hang")).is_error
            limit(GIVES_UP_S)
            assert (await use("add", a=1, b=1)).content == "2"
            gate.touch()
            assert (await beside).content == "awake"

    asyncio.run(main())


def test_calls_may_come_from_any_task_and_run_beside_each_other():
    async def main():
        async with connected({**STDIO, "parallel": True}) as (box, use, _):
            assert box.is_parallel("probe_add")
            results = await asyncio.gather(*(use("add", a=n, b=n) for n in range(20)))
            assert [result.content for result in results] == [str(2 * n) for n in range(20)]

    asyncio.run(main())


BABBLE = """
import asyncio, sys
from tests.tools.contexts import call, context
from turnlog.tools import Toolbox
from turnlog.tools.mcp import mcp_tools

async def main():
    async with mcp_tools("probe", {"command": sys.executable, "args": sys.argv[1:]}) as tools:
        print((await Toolbox(tools).run(call("probe_noise"), context())).content)

asyncio.run(main())
"""


def test_what_a_server_prints_reaches_no_terminal():
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    before = f"import runpy; print('noise', flush=True); runpy.run_path({SERVER!r}, run_name='__main__')"
    command = [sys.executable, "-c", BABBLE, "-c", before]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=GIVES_UP_S, check=True)
    assert (done.stdout, done.stderr) == ("done\n", "")


@pytest.mark.parametrize(
    "settings",
    [
        {"command": "turnlog-no-such-program"},
        {"command": sys.executable, "args": ["-c", "pass"]},
        {"command": sys.executable, "args": [SERVER], "cwd": "/no/such/place"},
        {"url": "http://127.0.0.1:9/mcp"},
    ],
)
def test_a_server_that_cannot_be_reached_is_an_error_that_names_it(settings):
    async def main():
        async with mcp_tools("probe", settings):
            pass

    with pytest.raises(TurnlogError, match="'probe' cannot be used") as failed:
        asyncio.run(main())
    assert "[mcp.probe]" in failed.value.hint


def test_a_server_that_never_greets_is_given_up(monkeypatch):
    monkeypatch.setattr(mcp, "CONNECT_TIMEOUT_S", 1.0)

    async def main():
        async with mcp_tools("probe", {"command": "sleep", "args": ["600"]}):
            pass

    with pytest.raises(TurnlogError, match="no answer in time"):
        asyncio.run(main())


@pytest.fixture
def http_server():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    running = []

    def start():
        running.append(
            subprocess.Popen(
                [sys.executable, SERVER, "http", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )
        wait_until(listens)
        return running[-1]

    def listens():
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", port)) == 0

    start.url = f"http://127.0.0.1:{port}/mcp"
    yield start
    for program in running:
        program.kill()
        program.wait()


def test_a_server_at_a_url_is_used_with_its_headers_and_found_again_after_a_restart(http_server):
    program = http_server()

    async def main():
        settings = {"url": http_server.url, "headers": {"X-Probe": "hello"}, "timeout_s": GIVES_UP_S}
        async with connected(settings) as (_, use, _):
            assert (await use("add", a=2, b=3)).content == "5"
            assert (await use("header")).content == "hello"
            program.kill()
            program.wait()
            lost = await use("add", a=1, b=1)
            assert lost.is_error
            assert "timed out" not in lost.content
            http_server()
            again = await use("add", a=1, b=1)
            if again.is_error:  # the old session was not known any more
                again = await use("add", a=1, b=1)
            assert again.content == "2"

    asyncio.run(main())


def test_a_result_that_is_only_structured_is_shown_as_json():
    assert mcp._content(CallToolResult(content=[], structured_content={"灯": [1]})) == '{"灯": [1]}'
    assert mcp._content(CallToolResult(content=[])) == ""


def test_a_call_under_way_when_all_is_closed_is_an_error_result(tmp_path):
    async def main():
        async with connected() as (_, use, _):
            running = await begin(use, tmp_path)
        return await running

    assert asyncio.run(main()).is_error


def test_settings_are_checked_and_name_what_is_wrong():
    assert parse_mcp("files", {"command": "x", "args": ["-a"]}) == McpSettings(command="x", args=("-a",))
    wrong = [
        ("files", {}, "a command or a url"),
        ("files", {"command": "x", "url": "http://x"}, "a command or a url"),
        ("files", {"command": 3}, "wrong form"),
        ("files", {"command": "x", "timeout_s": 0}, "above 0"),
        ("bad name", {"command": "x"}, "cannot be the name"),
    ]
    for name, values, words in wrong:
        with pytest.raises(UsageError, match=words):
            parse_mcp(name, values)
    with pytest.raises(UsageError) as refused:
        parse_mcp("files", {"comand": "x"})
    assert refused.value.hint == "Did you mean 'mcp.files.command'?"


def test_names_that_providers_refuse_are_changed_the_same_way_every_time_and_stay_apart():
    assert tool_name("git", "log") == "git_log"
    changed = [tool_name("git", name) for name in ("a.b", "a/b", "a b", "ü", "x" * 80, "x" * 81)]
    assert len(set(changed)) == len(changed)
    assert all(NAME.fullmatch(name) for name in changed)
    assert changed == [tool_name("git", name) for name in ("a.b", "a/b", "a b", "ü", "x" * 80, "x" * 81)]
    assert tool_name("git", "a_b") not in changed

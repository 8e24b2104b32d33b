"""Moments that are easily got wrong: a close, a stop or a sender who leaves just then, and presets that hold rows back.

Where a test needs a store that is slow, the store's own call is made, and takes longer.
"""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from turnlog import Busy, ContextOverflow, Query
from turnlog.core.entries import Assistant, Failed, ToolResult, User, text_of
from turnlog.core.events import CompactionEnd, Done, ErrorEvent, Snapshot, Stopped
from turnlog.core.keys import SessionById
from turnlog.sessions.expiry import expire
from turnlog.settings.presets import PRESETS
from turnlog.testing import FixedClock, ScriptedProvider, said
from turnlog.turns.stream import replay

from .. import warm
from ..waiting import GIVES_UP_S
from .gates import Gated, Held, Slow, heard, slow_calls
from .scenes import of_type, place_of
from .talk import KEY, ask, kinds, log, opened, run, say, shown, words

ROOT = Path(__file__).parents[2]
OTHER = "agent:main:cli:direct:other"
HOLDING = ("zeroclaw", "claw0-keyed")
"""Presets that write a message's row with its reply."""
LATENCY_S = 0.1
LONG_TALK = {"deltas": ["word "] * 2_000, "delay_ms": 50}
DAY_H = 24


@pytest.mark.parametrize("preset", PRESETS)
def test_the_answer_of_somebody_elses_loop_is_stored_under_every_preset(preset):
    async def main():
        async def own(history):
            return "my answer"

        async with opened("memory:", session_preset=preset) as t:
            await t.append(KEY, said("hello"))
            assert text_of((await t.guard(KEY, own)).content) == "my answer"
            assert words(await log(t)) == [("user", "hello"), ("assistant", "my answer")]

    run(main())


def test_a_stop_during_a_tool_leaves_no_result_without_its_call_where_only_text_is_stored():
    async def main():
        slow = Slow()
        provider = ScriptedProvider([slow_calls(1)])
        async with opened("memory:", provider, session_preset="zeroclaw", tools=[slow.tool]) as t:
            turn = asyncio.create_task(say(t, "go"))
            await slow.started.wait()
            assert t.stop((await t.session(KEY)).id)
            assert isinstance((await turn)[-1], Stopped)
            assert not of_type(await log(t), ToolResult)
            await ask(t, "again")
        assert shown(provider.prompts[-1]) == [("user", "go\n\nagain")]

    run(main())


def test_a_message_that_is_looked_up_while_turnlog_closes_is_refused_and_not_left_hanging(url):
    async def main():
        async with opened(url) as t:
            await ask(t, "hi")
            await t.queue.idle()
            look = Held(t.store, "describe", after=True)
            late = asyncio.create_task(t.accept(KEY, "late"))
            await look.reached.wait()
            await t.queue.close()
            look.go.set()
            done, _ = await asyncio.wait([late], timeout=GIVES_UP_S)
            late.cancel()
            assert done
            assert isinstance(late.exception(), Busy)
            assert words(await log(t)) == [("user", "hi"), ("assistant", "ok")]

    run(main())


def test_a_close_while_a_turn_begins_does_not_wait_for_its_answer_and_keeps_its_words(url):
    async def main():
        provider = Gated()
        async with opened(url, provider) as t:
            await t.session(KEY)
            append = Held(t.store, "append")
            sent = asyncio.create_task(t.accept(KEY, "hi"))
            await append.reached.wait()
            closing = asyncio.create_task(t.queue.close())
            await asyncio.sleep(0)
            append.go.set()
            done, _ = await asyncio.wait([closing], timeout=GIVES_UP_S)
            provider.go[0].set()
            await asyncio.gather(closing, sent)
            assert done
        provider = ScriptedProvider()
        async with opened(url, provider) as t:
            await ask(t, "and now?")
        assert shown(provider.prompts[-1]) == [("user", "hi\n\nand now?")]

    run(main())


def test_a_close_does_not_wait_for_a_turn_of_another_process_and_the_message_is_answered_there(url):
    async def main():
        provider = Gated()
        async with opened(url, provider) as t:
            turn = asyncio.create_task(say(t, "first"))
            await provider.reached[0].wait()
            async with opened(url) as other:
                await other.accept(KEY, "second", mode="followup")
                closing = asyncio.create_task(other.queue.close())
                done, _ = await asyncio.wait([closing], timeout=GIVES_UP_S)
                provider.go[0].set()
                await closing
                assert done
            await turn
            await t.queue.idle()
            assert (await t.session(KEY)).received == ()
        assert [shown(prompt)[-1] for prompt in provider.prompts] == [("user", "first"), ("user", "second")]

    run(main())


@pytest.mark.parametrize("call", ["read", "append"])
def test_a_second_stop_does_not_lose_the_partial_text_that_the_first_one_stores(call, url):
    async def main():
        async with opened(url, ScriptedProvider([LONG_TALK])) as t:
            ticket = await t.accept(KEY, "hi")
            await t.queue.running(ticket.session_id).reach(1)
            held = Held(t.store, call)
            assert t.stop(ticket.session_id)
            await held.reached.wait()
            t.stop(ticket.session_id)
            held.go.set()
            assert isinstance((await heard(t, ticket))[-1], Stopped)
            await t.queue.idle()
            kind, text = words(await log(t))[-1]
            assert (kind, text[:5]) == ("assistant", "word ")

    run(main())


def test_a_new_session_under_the_name_of_a_deleted_one_sees_nothing_of_it():
    async def main():
        provider = ScriptedProvider()
        async with opened("memory:", provider) as t:
            await t.sessions.new(KEY, session_id="mine")
            await ask(t, "a secret", SessionById("mine"))
            await t.queue.idle()
            end = (await t.store.describe("mine")).last_seq
            await t.sessions.delete("mine")
            await t.sessions.new(KEY, session_id="mine")
            while (await t.store.describe("mine")).last_seq < end:
                await t.sessions.rename("mine", "as long as the other")
            await ask(t, "hello", SessionById("mine"))
        assert shown(provider.prompts[-1]) == [("user", "hello")]

    run(main())


@pytest.mark.parametrize("preset", HOLDING)
def test_a_message_that_is_stored_while_its_worker_leaves_is_answered(preset, url):
    async def main():
        async with opened(url, session_preset=preset) as t:
            await t.session(KEY)
            read = t.store.read

            async def slow(*args, **options):
                entries = await read(*args, **options)
                await asyncio.sleep(LATENCY_S)
                return entries

            t.store.read = slow
            await ask(t, "one")
            await asyncio.sleep(LATENCY_S / 5)  # the worker looks once more whether anything waits
            await ask(t, "two")
            await t.queue.idle()
            assert (await t.session(KEY)).received == ()

    run(main())


def test_what_comes_with_a_context_during_a_turn_is_answered_with_that_context():
    async def main():
        slow = Slow()
        provider = ScriptedProvider([slow_calls(1)])
        async with opened("memory:", provider, tools=[slow.tool]) as t:
            first = await t.accept(KEY, "go")
            await slow.started.wait()
            second = await t.accept(KEY, "where am I?", context="PAGE=7")
            slow.go.set()
            for ticket in (first, second):
                assert isinstance((await heard(t, ticket))[-1], Done)
        where = [prompt for prompt in provider.prompts if "where am I?" in str(prompt.messages)]
        assert where
        assert all("PAGE=7" in prompt.system for prompt in where)

    run(main())


def test_in_memory_mode_an_exchange_is_saved_once_before_done_and_nothing_else_is_left(tmp_path):
    async def main():
        async with opened(f"sqlite:{tmp_path}/s.db", home=tmp_path, session_enabled=False) as t:
            memory = await t.memory()
            async for event in t.send(KEY, "my favourite colour is blue"):
                if isinstance(event, Done):
                    assert len(await memory.list()) == 1
            for _ in range(2):
                await say(t, "twice", dedupe_id="d1")
            await t.queue.idle()
            assert [memo.text for memo in await memory.list()] == [
                "User: twice\nAssistant: ok",
                "User: my favourite colour is blue\nAssistant: ok",
            ]
            assert (await t.store.find(Query())).items == []
            assert t.store._turns == {}, "a lock for each session that ever was would never be freed"

    run(main())


HALF = Assistant(seq=7, content="half", stop="interrupted")
BROKEN = Assistant(seq=7, content="half", stop="error")


@pytest.mark.parametrize(
    ("rest", "told"),
    [
        ([Assistant(seq=7, content="all", stop="end_turn")], [Snapshot(text="all"), "done"]),
        ([HALF], [Snapshot(text="half"), Stopped()]),
        ([Failed(seq=7, code="stopped", reason="s")], [Stopped()]),
        ([BROKEN, Failed(seq=8, code="provider", reason="503")], [ErrorEvent(error="503", code="provider")]),
    ],
)
def test_a_turn_that_ran_elsewhere_is_told_with_the_end_it_had(rest, told):
    done = Done(session_id="s", token_estimate=1)
    live = replay(done, 5, [User(seq=6, from_=(5,)), *rest])
    assert live.events == [done if event == "done" else event for event in told]


def test_a_session_somebody_comes_back_to_while_it_is_looked_at_is_not_deleted():
    async def main():
        clock = FixedClock()
        async with opened("memory:", clock=clock) as t:
            await ask(t, "hi")
            row = await t.session(KEY)
            await t.sessions.set_status(row.id, "archived")
            clock.advance(hours=100 * DAY_H)
            look = Held(t.store, "read", after=True)
            numbers = {"ttl_days": 30, "trash_days": 30, "clock": clock, "apply": True}
            expiring = asyncio.create_task(expire(t.sessions, t.store, **numbers))
            await look.reached.wait()
            await t.sessions.select(row.id)
            await ask(t, "I am back", row.id)
            await t.queue.idle()
            look.go.set()
            assert await expiring == []
            assert (await t.sessions.get(row.id)).status == "active"

    run(main())


@pytest.mark.parametrize("reset", ["off", "idle:60", "daily:04:00"])
def test_a_damaged_session_takes_messages_and_does_not_keep_others_from_ending(reset, tmp_path):
    async def main():
        url = f"jsonl:{tmp_path}/files"
        async with opened(url) as t:
            await ask(t, "hi", OTHER)
            for n in range(3):
                await ask(t, f"message {n}")
            row, other = await t.session(KEY), await t.session(OTHER)
        damage(url, row.id, line=4)
        clock = FixedClock(row.last_at)
        async with opened(url, session_reset=reset, clock=clock) as t:
            clock.advance(hours=115 * DAY_H)
            due = await expire(t.sessions, t.store, ttl_days=1, trash_days=1, clock=clock)
            assert other.id in [step.session_id for step in due]
            assert await ask(t, "next") == "ok"

    run(main())


def damage(url, session_id, line):
    [path] = place_of(url).rglob(f"{session_id}.jsonl")
    lines = path.read_bytes().split(b"\n")
    lines[line] = b'{"seq": broken'
    path.write_bytes(b"\n".join(lines))


def test_an_agent_that_several_sessions_ask_for_at_once_is_made_once(tmp_path):
    """Counted by the processes of its MCP server."""
    server = ROOT / "tests" / "tools" / "mcp_server.py"
    counted = f'echo started >> "{tmp_path}/starts"; exec "{sys.executable}" "{server}"'
    (tmp_path / "config.toml").write_text(f'[mcp.probe]\ncommand = "sh"\nargs = ["-c", {json.dumps(counted)}]\n')

    async def main():
        provider = ScriptedProvider()
        async with opened("memory:", provider, home=tmp_path) as t:
            await asyncio.gather(*(ask(t, "hi", f"agent:main:cli:direct:p{n}") for n in range(4)))
        assert all("probe_add" in [tool.name for tool in prompt.tools] for prompt in provider.prompts)

    run(main())
    assert (tmp_path / "starts").read_text() == "started\n"


def test_a_call_of_somebody_elses_loop_is_made_to_fit_although_its_summary_fails():
    async def main():
        sent = []

        async def own(history):
            sent.append(history.messages)
            if len(sent) == 1:
                raise ContextOverflow
            return "fits"

        async def summarise(prompt):
            raise ConnectionError("no route to the model")

        async with opened("memory:") as t:
            long = [User(content="word " * 200), Assistant(content="reply " * 200)]
            await t.append(KEY, *long * 10, said("and now?"))
            assert text_of((await t.guard(KEY, own, summarise=summarise, window=8_000)).content) == "fits"
            assert text_of((await log(t))[-1].content) == "fits"
        assert len(str(sent[1])) < len(str(sent[0]))

    run(main())


def test_a_compaction_that_failed_after_a_turn_is_told_with_the_next_one():
    async def main():
        refused = {"error": {"status": 400, "message": "no summaries today"}}
        flags = {"compaction_when": "after_turn", "compaction_triggers": ["messages:4"], "compaction_keep": "turns:1"}
        provider = ScriptedProvider(summaries=[refused] * 9)
        async with opened("memory:", provider, **flags) as t:
            while not provider.summary_prompts:
                assert not of_type(await say(t, "hello there " * 30), CompactionEnd)
                await t.queue.idle()
            [told] = of_type(await say(t, "go on"), CompactionEnd)
            assert "no summaries today" in told.error
            assert kinds(await log(t))[-1] == "assistant"

    run(main())


@pytest.mark.parametrize("preset", PRESETS)
def test_a_message_whose_sender_leaves_while_it_is_stored_is_answered(preset, tmp_path):
    async def main():
        async with opened(f"sqlite:{tmp_path}/s.db", session_preset=preset) as t:
            await t.session(KEY)
            append = Held(t.store, "append", after=True)
            sender = asyncio.create_task(t.accept(KEY, "hello"))
            await append.reached.wait()
            sender.cancel()
            await asyncio.wait([sender])
            append.go.set()
            await t.queue.idle()
            assert (await t.session(KEY)).received == ()
            assert words(await log(t))[-1] == ("assistant", "ok")

    run(main())


DYING = """
import asyncio, os, sys
from tests.turns.talk import KEY, opened
from turnlog.testing import ScriptedProvider
class Dying(ScriptedProvider):
    async def stream(self, prompt):
        print("asked", flush=True)
        os._exit(9)
        yield
async def main(url, preset, text):
    async with opened(url, Dying(), session_preset=preset) as t:
        await t.resume(rerun=True)
        if text:
            await t.accept(KEY, text)
        await t.queue.idle()
asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("preset", HOLDING)
def test_a_message_that_kills_its_process_is_tried_at_two_starts_and_no_more(preset, url):
    def start(text=""):
        return warm.run_code(DYING, url, preset, text).stdout

    assert [start("kills us"), start(), start()] == ["asked\n", "asked\n", ""]

    async def main():
        provider = ScriptedProvider()
        async with opened(url, provider, session_preset=preset) as t:
            assert await t.resume(rerun=True) == 0
            await ask(t, "harmless")
        assert [shown(prompt)[-1] for prompt in provider.prompts] == [("user", "kills us\n\nharmless")]

    run(main())

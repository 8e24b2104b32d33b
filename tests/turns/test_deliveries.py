"""Each message once: redeliveries, and two processes with one session. Spec, section 5, points 2 and 3."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from turnlog import Inbound
from turnlog.core.entries import Assistant, Received, ToolResult, User, text_of, tool_uses
from turnlog.core.events import Done, Queued, Snapshot
from turnlog.testing import FixedClock, ScriptedProvider, check_messages
from turnlog.turns.deliveries import DELIVERED

from .. import warm
from .gates import Gated, heard, listening
from .talk import KEY, ask, log, opened, run, say, words

ROOT = Path(__file__).parents[2]
DAY_MS = 24 * 3600 * 1000


def said(entries):
    return [text_of(e.content) for e in entries if isinstance(e, User | Received) and e.content]


def test_a_delivery_is_run_once_however_often_it_comes(url):
    async def main():
        provider = ScriptedProvider([{"text": "once"}])
        async with opened(url, provider) as t:
            assert await ask(t, "hello", dedupe_id="d1") == "once"
            for _ in range(4):
                [only] = await say(t, "hello", dedupe_id="d1")
                assert (type(only), only.title) == (Done, "hello")
            assert words(await log(t)) == [("user", "hello"), ("assistant", "once")]
        async with opened(url, provider) as t:
            [only] = await say(t, "hello", dedupe_id="d1")
            assert len(said(await log(t))) == 1
        assert len(provider.prompts) == 1

    run(main())


def test_a_delivery_that_comes_five_times_at_once_from_two_openings_is_run_once(url):
    async def main():
        provider = ScriptedProvider()
        async with opened(url, provider) as a, opened(url, provider) as b:
            await a.session(KEY)
            events = await asyncio.gather(*(say(t, "hello", dedupe_id="d1") for t in (a, b, a, b, a)))
            await asyncio.gather(a.queue.idle(), b.queue.idle())
            assert all(isinstance(each[-1], Done) for each in events)
            assert said(await log(a)) == ["hello"]
        assert len(provider.prompts) == 1

    run(main())


def test_a_delivery_that_comes_again_while_it_waits_is_run_once(url):
    async def main():
        provider = Gated()
        async with opened(url, provider) as t:
            first = asyncio.create_task(say(t, "first"))
            await provider.reached[0].wait()
            tickets = [await t.accept(KEY, "second", dedupe_id="d1") for _ in range(3)]
            assert [ticket.stored.result() for ticket in tickets] == [True, False, False]
            provider.go[0].set()
            await first
            assert [type((await heard(t, ticket))[-1]) for ticket in tickets] == [Done] * 3
            assert said(await log(t)) == ["first", "second"]

    run(main())


def test_the_same_id_on_another_channel_or_account_is_another_message(url):
    async def main():
        provider = ScriptedProvider()
        async with opened(url, provider) as t:
            for channel, account in (("telegram", "a"), ("telegram", "b"), ("slack", "a")):
                for _ in range(2):
                    message = Inbound(channel, account, "private", "7", None, "7", dedupe_id="d1", text=channel)
                    await say(t, None, message)
            assert (await t.sessions.list()).total == 3
        assert len(provider.prompts) == 3

    run(main())


def test_the_same_id_in_another_chat_of_the_account_is_the_same_delivery(url):
    async def main():
        provider = ScriptedProvider()
        async with opened(url, provider) as t:
            for chat in ("7", "8"):
                await say(t, None, Inbound("telegram", "a", "private", chat, None, chat, dedupe_id="d1", text="hi"))
        assert len(provider.prompts) == 1

    run(main())


@pytest.mark.parametrize("busy", [False, True])
def test_a_delivery_whose_first_taker_died_before_storing_it_is_run(busy, url):
    async def main():
        provider = Gated(at=(1,) if busy else ())
        async with opened(url, provider) as t:
            await ask(t, "before")
            row = await t.session(KEY)
            claim = {"session": row.id, "since": row.last_seq}
            await t.store.ledger.put_if_absent(DELIVERED, "cli||d1", claim)
            if busy:
                running = asyncio.create_task(say(t, "first"))
                await provider.reached[1].wait()
            tickets = [await t.accept(KEY, "hello", dedupe_id="d1") for _ in range(5)]
            if busy:
                provider.go[1].set()
                await running
            await t.queue.idle()
            assert sum(ticket.stored.result() for ticket in tickets) == 1
            assert said(await log(t)).count("hello") == 1

    run(main())


def test_five_takers_of_a_delivery_whose_first_taker_died_store_it_once(url):
    async def main():
        provider = ScriptedProvider()
        async with opened(url, provider) as a, opened(url, provider) as b:
            row = await a.session(KEY)
            await a.store.ledger.put_if_absent(DELIVERED, "cli||d1", {"session": row.id, "since": row.last_seq})
            tickets = await asyncio.gather(*(t.accept(KEY, "hello", dedupe_id="d1") for t in (a, b, a, b, a)))
            await asyncio.gather(a.queue.idle(), b.queue.idle())
            assert sum(ticket.stored.result() for ticket in tickets) == 1
            assert said(await log(a)) == ["hello"]
        assert len(provider.prompts) == 1

    run(main())


def test_a_delivery_is_remembered_for_seven_days(url, monkeypatch):
    clock = FixedClock()
    for module in ("jsonl", "sqlite"):
        monkeypatch.setattr(f"turnlog.stores.{module}.store.now_ms", clock)

    async def main():
        for days, times in ((0, 1), (6.9, 1), (7.1, 2)):
            clock.now_ms = 1_700_000_000_000 + int(days * DAY_MS)
            async with opened(url) as t:
                await say(t, "hello", dedupe_id="d1")
                assert len(said(await log(t))) == times

    run(main())


def test_a_delivery_to_a_session_that_was_deleted_since_does_not_come_back(url):
    async def main():
        provider = ScriptedProvider()
        async with opened(url, provider) as t:
            await ask(t, "hello", dedupe_id="d1")
            await t.sessions.delete((await t.session(KEY)).id)
            ticket = await t.accept(KEY, "hello", dedupe_id="d1")
            assert ticket.stored.result() is False
        assert len(provider.prompts) == 1

    run(main())


def test_the_sender_of_a_redelivery_to_a_deleted_session_is_told_that_it_is_done(url):
    async def main():
        async with opened(url) as t:
            await ask(t, "hello", dedupe_id="d1")
            await t.sessions.delete((await t.session(KEY)).id)
            [only] = await say(t, "hello", dedupe_id="d1")
            assert isinstance(only, Done)

    run(main())


def test_a_message_answered_by_another_opening_is_told_by_snapshot_and_done(url):
    async def main():
        provider = Gated([{"text": "one"}, {"text": "two"}])
        async with opened(url, provider) as t, opened(url) as other:
            first = asyncio.create_task(say(t, "first"))
            await provider.reached[0].wait()
            ticket = await other.accept(KEY, "second")
            async with listening(other, [ticket]) as [listener]:
                await asyncio.sleep(0)
                provider.go[0].set()
                await first
                events = await listener
        # Whichever of the two takes the lease next answers it.
        assert isinstance(events[0], Queued)
        assert isinstance(events[-1], Done)
        assert len(events) == 3
        if isinstance(events[1], Snapshot):
            assert events[1].text == "two"

    run(main())


def no_turns_are_interleaved(entries):
    """Within a turn nobody else's question begins, unless it steers; each turn has its own answer."""
    open_calls, turns = set(), []
    for entry in entries:
        match entry:
            case User():
                assert not open_calls, "a question between a call and its result"
                turns.append([entry])
            case Assistant() | ToolResult():
                turns[-1].append(entry)
                open_calls |= {call["id"] for call in tool_uses(entry)} if isinstance(entry, Assistant) else set()
                open_calls -= {entry.tool_use_id} if isinstance(entry, ToolResult) else set()
    return turns


ECHO = "import asyncio, sys; from tests.turns import echo; asyncio.run(echo.main(*sys.argv[1:]))"


@pytest.mark.parametrize("mode", ["followup", "collect", "steer"])
def test_two_processes_with_one_session_never_run_two_turns_at_once_and_answer_everything_once(mode, url):
    count = 8
    names = ("ann", "bob")
    senders = [
        warm.start_code(ECHO, url, KEY, mode, name, count, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in names
    ]
    try:
        assert [sender.stdout.readline() for sender in senders] == ["ready\n"] * 2
        for sender in senders:
            sender.stdin.write("go\n")
            sender.stdin.flush()
        told = [json.loads(line) for sender in senders for line in sender.communicate(timeout=600)[0].splitlines()]
        assert [sender.returncode for sender in senders] == [0, 0]
    finally:
        for sender in senders:
            sender.kill()
            sender.wait()
    wanted = sorted(f"{name} {n}" for name in names for n in range(count))
    assert sorted(text for text, _, _ in told) == wanted
    for text, kinds, texts in told:
        assert kinds[-1] == "Done", (text, kinds)
        assert kinds.count("Done") == 1
        assert text in texts[-1], (text, texts)

    async def look():
        async with opened(url) as t:
            return await log(t), await t.session(KEY), await t.history(KEY)

    entries, row, history = asyncio.run(look())
    check_messages(history.messages)
    turns = no_turns_are_interleaved(entries)
    assert sorted(said(entries)) == wanted
    taken = [seq for e in entries if isinstance(e, User) for seq in e.from_]
    assert sorted(taken) == sorted(e.seq for e in entries if isinstance(e, Received))
    assert row.received == ()
    if mode != "steer":
        assert {len(turn) for turn in turns} == {4}
    answers = " ".join(text_of(e.content) for e in entries if isinstance(e, Assistant))
    assert all(answers.count(text) == 1 for text in wanted)

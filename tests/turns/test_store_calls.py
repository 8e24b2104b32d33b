"""What a turn costs in calls to the store and its ledger. Rows are passed on, so that nothing is asked for twice."""

import asyncio

import pytest

from turnlog import User
from turnlog.core.events import Queued
from turnlog.testing import ScriptedProvider

from ..counting import count_calls
from .gates import Gated, Held
from .scenes import of_type
from .talk import KEY, ask, kinds, log, opened, run, say, shown, words

WARM_TURN_MAX = 5
FIRST_TURN_MAX = 10


@pytest.fixture
def calls(monkeypatch):
    return count_calls(monkeypatch)


def test_a_warm_turn_makes_at_most_five_calls(url, calls):
    async def main():
        async with opened(url) as t:
            await ask(t, "hi")
            await t.queue.idle()
            calls.clear()
            await ask(t, "and again")
            await t.queue.idle()
            assert len(calls) <= WARM_TURN_MAX, calls

    run(main())


def test_a_turn_that_opens_a_session_makes_at_most_ten_calls(url, calls):
    async def main():
        async with opened(url) as t:
            await ask(t, "hi")  # the process has read what it learnt about the model
            await t.queue.idle()
            calls.clear()
            await ask(t, "hi", "agent:main:cli:direct:other")
            await t.queue.idle()
            assert len(calls) <= FIRST_TURN_MAX, calls

    run(main())


def test_each_round_of_tools_costs_two_appends_and_nothing_else(url, calls):
    async def main():
        def tool() -> str:
            """Does nothing."""
            return "done"

        script = [{"text": "hi"}, {"tool_calls": [{"id": "c1", "name": "tool", "input": {}}]}, {"text": "ok"}]
        async with opened(url, ScriptedProvider(script), tools=[tool]) as t:
            await ask(t, "hi")
            await t.queue.idle()
            calls.clear()
            await ask(t, "use it")
            await t.queue.idle()
            assert len(calls) <= WARM_TURN_MAX + 2, calls

    run(main())


def test_a_delivery_costs_one_call_more(url, calls):
    async def main():
        async with opened(url) as t:
            await ask(t, "hi")
            await t.queue.idle()
            calls.clear()
            await ask(t, "and again", dedupe_id="d1")
            await t.queue.idle()
            assert len(calls) <= WARM_TURN_MAX + 1, calls

    run(main())


@pytest.mark.parametrize("dedupe_id", [None, "d1"])
def test_a_row_that_is_no_longer_true_when_the_turn_begins_costs_a_look_and_loses_nothing(url, dedupe_id):
    async def main():
        provider = ScriptedProvider()
        async with opened(url, provider) as t, opened(url) as other:
            await ask(t, "one")
            await t.queue.idle()
            look = Held(t.store, "describe", after=True)
            sent = asyncio.create_task(ask(t, "three", dedupe_id=dedupe_id))
            await look.reached.wait()
            await ask(other, "two")
            await other.queue.idle()
            look.go.set()
            await sent
            assert [text for kind, text in words(await log(t)) if kind == "user"] == ["one", "two", "three"]
            assert [text for role, text in shown(provider.prompts[-1]) if role == "user"] == ["one", "two", "three"]
            assert "received" not in kinds(await log(t))

    run(main())


def test_a_turn_that_was_cut_short_since_the_row_was_read_is_marked_before_the_next_one(url):
    async def main():
        async with opened(url) as t, opened(url) as other:
            await ask(t, "one")
            await t.queue.idle()
            look = Held(t.store, "describe", after=True)
            sent = asyncio.create_task(ask(t, "three"))
            await look.reached.wait()
            await other.append(KEY, User(content="two"))  # and its process died
            look.go.set()
            await sent
            assert kinds(await log(t))[-4:] == ["user", "failed", "user", "assistant"]

    run(main())


def test_what_is_heard_while_a_turn_begins_is_part_of_it(url):
    async def main():
        provider = ScriptedProvider()
        async with opened(url, provider) as t, opened(url) as other:
            await ask(t, "one")
            await t.queue.idle()
            append = Held(t.store, "append")
            sent = asyncio.create_task(ask(t, "two"))
            await append.reached.wait()
            await other.hear(KEY, "psst")
            append.go.set()
            await sent
            assert kinds(await log(t))[-4:] == ["received", "received", "user", "assistant"]
            assert "psst" in shown(provider.prompts[-1])[-1][1]

    run(main())


def test_a_row_from_when_messages_waited_makes_a_later_message_wait_for_nothing(url):
    async def main():
        provider = Gated()
        async with opened(url, provider) as t:
            first = asyncio.create_task(ask(t, "one"))
            await provider.reached[0].wait()
            await t.accept(KEY, "two", mode="followup")
            row = await t.session(KEY)
            assert row.received
            provider.go[0].set()
            await first
            await t.queue.idle()
            assert not of_type(await say(t, "three", row), Queued)
            assert kinds(await log(t)).count("received") == 1

    run(main())

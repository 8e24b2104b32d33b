"""Usage by day: everything is counted once, whichever server counts it and whichever program wrote it."""

import asyncio
from datetime import date

import pytest

from turnlog.core.entries import Assistant, Failed, Opened, User
from turnlog.core.usage import ModelUse
from turnlog.server.daily_usage import DAY_MS, SETTLE_MS, DailyUsage, UsageCell
from turnlog.sessions import Sessions
from turnlog.stores import open_store

NOON = 20_000 * DAY_MS + DAY_MS // 2
LATER_MS = SETTLE_MS + 100
"""The store gives each append a time of its own, so a few milliseconds go by."""
TODAY, TOMORROW = date(2024, 10, 4), date(2024, 10, 5)


class Clock:
    def __init__(self):
        self.ms = NOON

    def __call__(self):
        return self.ms


async def say(store, sid, *bodies, new=True):
    if new:
        key = f"agent:main:web:direct:{sid}"
        await store.append(sid, [Opened(id=sid, key=key, agent="main", channel="web")])
    await store.append(sid, bodies, lease="own")


def spent(n):
    return Assistant(content="a", model="m", usage={"input_tokens": n, "output_tokens": 0})


ASKED = User(content="q")


def counting(work):
    async def run():
        clock = Clock()
        async with open_store("memory:", clock=clock) as store:
            await work(store, clock, [DailyUsage(Sessions(store), store.ledger, clock=clock) for _ in range(2)])

    asyncio.run(run())


def cell(tokens, turns=1):
    return UsageCell("main", ModelUse("m", tokens), turns)


def test_rounds_of_two_servers_count_everything_once():
    async def work(store, clock, servers):
        for n in range(1, 7):
            await say(store, f"s{n % 2}", ASKED, spent(10), new=n < 3)
            clock.ms += LATER_MS
            await asyncio.gather(*(one.count() for one in servers))
        clock.ms += LATER_MS
        await servers[0].count()
        days = await servers[1].days(TODAY)
        assert days[TODAY].cells == (cell(60, 6),)

    counting(work)


def test_what_is_younger_than_an_append_takes_is_left_for_the_next_round():
    async def work(store, clock, servers):
        await servers[0].count()
        await say(store, "s", ASKED, spent(10))
        clock.ms += SETTLE_MS - 1
        await servers[0].count()
        assert (await servers[0].days(TODAY))[TODAY].cells == ()
        clock.ms += 2
        await servers[0].count()
        assert (await servers[0].days(TODAY))[TODAY].cells == (cell(10),)

    counting(work)


def test_days_failures_and_calls_of_tools():
    async def work(store, clock, servers):
        call = [{"type": "tool_use", "id": "c", "name": "x", "input": {}}]
        await say(store, "s", ASKED, Assistant(content=call, model="m", usage={"input_tokens": 5}))
        clock.ms += LATER_MS
        await servers[0].count()
        clock.ms += DAY_MS
        await say(store, "t", ASKED, Failed(code="provider"))
        clock.ms += LATER_MS
        await servers[0].count()
        days = await servers[0].days(TODAY)
        assert days[TODAY].cells == (cell(5, 0),)
        assert days[TOMORROW].cells == (UsageCell("main", ModelUse(), 1, 1),)
        assert days[TODAY].to == 20_001 * DAY_MS - 1
        await servers[0].recount()
        assert await servers[0].days(TODAY) == days

    counting(work)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_fork_is_not_counted_again_and_counting_anew_gives_the_same(is_first):
    async def work(store, clock, servers):
        await say(store, "s", ASKED, spent(10))
        if not is_first:
            clock.ms += LATER_MS
            await servers[0].count()
        forked = await Sessions(store).fork("s")
        await say(store, forked.id, ASKED, spent(7), new=False)
        clock.ms += LATER_MS
        await servers[0].count()
        assert (await servers[0].days(TODAY))[TODAY].cells == (cell(17, 2),)
        await servers[1].recount()
        assert (await servers[0].days(TODAY))[TODAY].cells == (cell(17, 2),)
        await store.delete("s")
        await servers[1].recount()
        assert (await servers[0].days(TODAY))[TODAY].cells == (cell(7),)

    counting(work)


def test_a_store_that_was_never_counted_is_counted_back_some_days_and_says_if_that_was_too_much(monkeypatch):
    async def work(store, clock, servers):
        for n in range(3):
            await say(store, f"s{n}", ASKED, spent(10))
            clock.ms += DAY_MS
        await servers[0].count()
        days = await servers[0].days(date.min)
        assert len(days) == 31
        assert [day.cells for day in days.values() if day.cells] == [(cell(10),)] * 3
        assert not any(day.cut for day in days.values())
        monkeypatch.setattr("turnlog.server.daily_usage.SESSIONS_MAX", 2)
        await servers[0].recount()
        days = await servers[0].days(date.min)
        assert sum(bool(day.cells) for day in days.values()) == 2
        assert all(day.cut for day in days.values())

    counting(work)

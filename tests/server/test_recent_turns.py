"""Turns that clients may rejoin: how many are kept, how many bytes, and for how long."""

import asyncio
import gc
import weakref

import pytest

from turnlog.core.events import Done, TextDelta
from turnlog.core.session import Session
from turnlog.server import recent_turns
from turnlog.server.recent_turns import RecentTurns
from turnlog.turns.stream import TurnStream

ROW = Session(id="s", key="agent:main:cli:direct:s", agent="main", channel="cli")


def begun(turns, seq, text="word"):
    stream = TurnStream("s", seq, incarnation=ROW.incarnation)
    turns.keep(stream)
    stream.add(TextDelta(text=text))
    return stream


def ended(turns, seq, text="word"):
    stream = begun(turns, seq, text)
    stream.add(Done(session_id="s", token_estimate=1))
    turns.end(stream)
    return stream


def kept(turns, seqs):
    return [seq for seq in seqs if turns.get(ROW, seq)]


def test_ended_turns_are_bounded_by_their_number(monkeypatch):
    monkeypatch.setattr(recent_turns, "KEPT_MAX", 3)

    async def go():
        turns = RecentTurns()
        running = begun(turns, 1)
        for seq in range(2, 8):
            ended(turns, seq)
        assert kept(turns, range(1, 8)) == [1, 5, 6, 7]
        assert turns.running == 1
        running.add(Done(session_id="s", token_estimate=1))
        turns.end(running)
        assert kept(turns, range(1, 8)) == [1, 6, 7]  # it ended last

    asyncio.run(go())


def test_ended_turns_are_bounded_by_their_bytes(monkeypatch):
    monkeypatch.setattr(recent_turns, "KEPT_BYTES", 10_000)

    async def go():
        turns = RecentTurns()
        begun(turns, 1, "x" * 50_000)  # it runs, and its listeners need it
        for seq in range(2, 8):
            ended(turns, seq, "x" * 3_000)
        assert kept(turns, range(1, 8)) == [1, 5, 6, 7]
        ended(turns, 8, "x" * 20_000)  # its log has it
        assert kept(turns, range(1, 9)) == [1]
        ended(turns, 9)
        assert kept(turns, range(1, 10)) == [1, 9]

    asyncio.run(go())


def test_a_turn_that_runs_again_weighs_nothing_until_it_ends_again(monkeypatch):
    monkeypatch.setattr(recent_turns, "KEPT_BYTES", 10_000)

    async def go():
        turns = RecentTurns()
        ended(turns, 1, "x" * 6_000)
        again = begun(turns, 1)
        ended(turns, 2, "x" * 6_000)
        assert kept(turns, (1, 2)) == [1, 2]
        turns.end(again)
        turns.end(again)
        turns.drop(again)
        assert kept(turns, (1, 2)) == [2]
        assert turns._weight == sum(one.weight for one in turns._ended.values())

    asyncio.run(go())


@pytest.mark.parametrize("limit", ["KEPT_MAX", "KEPT_S"])
def test_nothing_holds_a_turn_that_is_not_kept(limit, monkeypatch):
    monkeypatch.setattr(recent_turns, limit, 0)

    async def go():
        turns = RecentTurns()
        gone = weakref.ref(ended(turns, 1))
        await asyncio.sleep(0)
        gc.collect()
        assert gone() is None

    asyncio.run(go())


def test_one_timer_drops_all_turns_in_time(monkeypatch):
    monkeypatch.setattr(recent_turns, "KEPT_S", 0.01)

    async def go():
        turns = RecentTurns()
        ended(turns, 1)
        ended(turns, 2)
        timer = turns._timer
        while turns._ended:  # noqa: ASYNC110 - the clock of the loop decides, and there is no event for it
            await asyncio.sleep(0.01)
        assert kept(turns, (1, 2)) == []
        assert timer is not None

    asyncio.run(go())

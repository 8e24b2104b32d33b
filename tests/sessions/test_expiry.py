"""When a key gets a new session, and what becomes of those nobody comes back to."""

import asyncio
import time
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

import turnlog
from turnlog import NotFound, Query
from turnlog.core.entries import Title
from turnlog.sessions.expiry import expire, is_over
from turnlog.stores import finding
from turnlog.testing import FixedClock, ScriptedProvider, answered, said

from ..turns.talk import KEY, ask, log, run, words

DAY = 24


def at(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def opened(url, clock, **flags):
    return turnlog.open(
        url, home="/nonexistent", provider=ScriptedProvider(), clock=clock, store_durability="os", **flags
    )


@pytest.mark.parametrize(
    ("reset", "spoken", "now", "over"),
    [
        ("off", "2026-01-01T00:00", "2030-01-01T00:00", False),
        ("idle:60", "2026-01-01T10:00", "2026-01-01T11:00", False),
        ("idle:60", "2026-01-01T10:00", "2026-01-01T11:01", True),
        ("daily:04:00", "2026-01-01T03:59", "2026-01-01T04:00", True),
        ("daily:04:00", "2026-01-01T04:00", "2026-01-01T23:59", False),
        ("daily:04:00", "2026-01-01T23:00", "2026-01-02T03:59", False),
        ("daily:04:00", "2026-01-01T23:00", "2026-01-02T04:01", True),
    ],
)
def test_when_a_session_is_over(reset, spoken, now, over):
    assert is_over(reset, at(spoken), at(now), zone=UTC) is over


BERLIN = ZoneInfo("Europe/Berlin")
"""Where 2026-10-25 has 02:00 to 03:00 twice (00:00 and 01:00 UTC), and 2026-03-29 has it not at all."""


@pytest.mark.parametrize(
    ("reset", "spoken", "now", "over"),
    [
        ("daily:02:30", "2026-10-25T00:29", "2026-10-25T00:30", True),  # 02:29 to 02:30
        ("daily:02:30", "2026-10-25T00:20", "2026-10-25T01:10", True),  # 02:20 to 02:10, an hour later
        ("daily:02:30", "2026-10-25T00:35", "2026-10-25T01:40", False),  # 02:35 to 02:40: not twice a day
        ("daily:02:30", "2026-10-25T01:40", "2026-10-26T01:29", False),
        ("daily:02:30", "2026-10-25T01:40", "2026-10-26T01:30", True),
        ("daily:02:30", "2026-03-29T00:59", "2026-03-29T02:00", True),  # 01:59 to 04:00, over a 02:30 that was not
        ("daily:02:30", "2026-03-29T02:00", "2026-03-29T20:00", False),
        ("daily:04:00", "2026-03-29T01:59", "2026-03-29T02:00", True),  # 04:00 of summer is 02:00 UTC
        ("daily:04:00", "2026-03-28T03:00", "2026-03-29T01:59", False),
        ("daily:00:00", "2026-10-24T21:59", "2026-10-24T22:00", True),
        ("idle:60", "2026-10-25T00:30", "2026-10-25T01:30", False),  # an hour, whatever clocks show
    ],
)
def test_a_day_ends_once_where_clocks_are_changed(reset, spoken, now, over):
    assert is_over(reset, at(spoken), at(now), zone=BERLIN) is over


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="needs a system whose time zone a process can choose")
def test_a_day_is_that_of_the_machines_own_clock(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert is_over("daily:02:30", at("2026-10-25T00:20"), at("2026-10-25T01:10"))
        assert not is_over("daily:02:30", at("2026-10-25T00:35"), at("2026-10-25T01:40"))
        assert is_over("daily:04:00", at("2026-07-01T01:59"), at("2026-07-01T02:00"))
    finally:
        monkeypatch.undo()
        time.tzset()


def test_after_an_hour_of_silence_a_message_begins_a_new_session_and_the_old_one_is_kept(url):
    async def main():
        clock = FixedClock()
        async with opened(url, clock, session_reset="idle:60") as t:
            await ask(t, "before")
            old = await t.session(KEY)
            clock.advance(minutes=30)
            await t.sessions.rename(old.id, "a rename is not a message")
            clock.advance(minutes=31)
            await ask(t, "after")
            new = await t.session(KEY)
            assert new.id != old.id
            assert words(await log(t)) == [("user", "after"), ("assistant", "ok")]
            archived = await t.sessions.get(old.id)
            assert (archived.status, archived.message_count) == ("archived", 2)
            clock.advance(minutes=59)
            await ask(t, "still here")
            assert (await t.session(KEY)).id == new.id
            clock.advance(minutes=61)
            await ask(t, "by its id", old.id)
            assert (await t.sessions.get(old.id)).message_count == 4, "who names a session gets it"

    run(main())


def test_a_session_with_waiting_messages_is_not_reset(url):
    async def main():
        clock = FixedClock()
        async with opened(url, clock, session_reset="idle:60") as t:
            await ask(t, "before")
            old = await t.session(KEY)
            await t.store.append(old.id, [turnlog.Received(content="later")])
            clock.advance(hours=5)
            await ask(t, "after")
            assert (await t.session(KEY)).id == old.id
            assert [text for kind, text in words(await log(t)) if kind == "assistant"] == ["ok"] * 3

    run(main())


def test_time_to_live_archives_first_deletes_later_and_says_so(url):
    async def main():
        clock = FixedClock()
        async with opened(url, clock) as t:
            for name in ("old", "young", "trashed", "running"):
                await ask(t, "hi", f"agent:main:cli:direct:{name}")
                clock.advance(s=1)
            rows = {row.key.rpartition(":")[2]: row.id for row in (await t.sessions.list()).items}
            await t.sessions.set_status(rows["trashed"], "trashed")
            async with t.store.lease(rows["running"]) as lease:
                await t.store.append(rows["running"], [said("a turn is under way")], lease=lease)

            async def due(apply=False):
                await t.queue.idle()
                steps = await expire(t.sessions, t.store, ttl_days=10, trash_days=30, clock=clock, apply=apply)
                return sorted((name, step.action) for step in steps for name, i in rows.items() if i == step.session_id)

            clock.advance(hours=9 * DAY)
            assert await due() == []
            await ask(t, "still here", rows["young"])
            clock.advance(hours=2 * DAY)
            assert await due() == [("old", "archive")]
            assert (await t.sessions.get(rows["old"])).status == "active", "a dry run changes nothing"
            assert await due(apply=True) == [("old", "archive")]
            assert (await t.sessions.get(rows["old"])).status == "archived"
            assert await due() == []
            clock.advance(hours=21 * DAY)
            assert await due(apply=True) == [("trashed", "delete"), ("young", "archive")]
            with pytest.raises(NotFound):
                await t.sessions.get(rows["trashed"])
            clock.advance(hours=31 * DAY)
            assert await due(apply=True) == [("old", "delete"), ("young", "delete")]
            assert {row.id for row in (await t.sessions.list(Query())).items} == {rows["running"]}

    run(main())


def test_what_somebody_archived_by_hand_lives_as_long_as_the_rest_and_a_session_in_use_is_left_alone(url):
    async def main():
        clock = FixedClock()
        async with opened(url, clock) as t:
            await ask(t, "hi")
            row = await t.session(KEY)
            await t.sessions.set_status(row.id, "archived")
            clock.advance(hours=35 * DAY)
            assert await expire(t.sessions, t.store, ttl_days=10, trash_days=30, clock=clock) == []
            clock.advance(hours=6 * DAY)
            async with t.store.lease(row.id):
                assert await expire(t.sessions, t.store, ttl_days=10, trash_days=30, clock=clock, apply=True) == []
            await t.store.append(row.id, [Title(title="touched")])
            assert await expire(t.sessions, t.store, ttl_days=10, trash_days=30, clock=clock) == []
            clock.advance(hours=31 * DAY)
            steps = await expire(t.sessions, t.store, ttl_days=None, trash_days=30, clock=clock)
            assert steps == [], "without a time to live only the trash is emptied"

    run(main())


def test_what_is_in_the_trash_takes_no_message_until_it_is_restored(url):
    async def story():
        async with opened(url, FixedClock(at("2026-01-01T00:00"))) as t:
            row = await t.session(KEY)
            await ask(t, "one", where=row.id)
            await t.sessions.set_status(row.id, "trashed")
            with pytest.raises(turnlog.Conflict, match="in the trash"):
                await t.accept(row.id, "two")
            assert (await t.session(KEY)).id != row.id, "its place has a new one"
            assert "two" not in str(await log(t, row.id))
            await t.sessions.set_status(row.id, "inactive")
            await ask(t, "three", where=row.id)

    run(story())


def test_a_handle_of_a_session_in_the_trash_takes_messages_once_it_is_restored(url):
    async def story():
        async with opened(url, FixedClock(at("2026-01-01T00:00"))) as t:
            row = await t.sessions.new(KEY)
            await t.sessions.set_status(row.id, "trashed")
            chat = await t.session(id=row.id)
            with pytest.raises(turnlog.Conflict, match="in the trash"):
                await ask(t, "one", where=chat)
            await t.sessions.set_status(row.id, "inactive")
            await ask(t, "two", where=chat)

    run(story())


def test_expiring_many_sessions_leaves_room_for_others_at_each_of_them(url):
    """Counted, not timed: somebody who is ready to run at any time gets to run between any two sessions."""

    async def story():
        clock = FixedClock()
        async with opened(url, clock) as t:
            for n in range(60):
                row = await t.sessions.new(KEY, select=False)
                await t.append(row, said(f"hello {n}"), answered("ok"))
            clock.advance(hours=40 * DAY)
            passes = 0

            async def somebody():
                nonlocal passes
                while True:
                    passes += 1
                    await asyncio.sleep(0)

            for apply in (False, True):
                ready = asyncio.create_task(somebody())
                passes = 0
                due = await expire(t.sessions, t.store, ttl_days=30, trash_days=30, clock=clock, apply=apply)
                ready.cancel()
                assert len(due) == 60
                assert passes >= 60

    run(story())


def test_expiring_looks_at_each_session_once_however_many_pages_they_fill(url, monkeypatch):
    async def story():
        monkeypatch.setattr(finding, "PAGE_MAX", 7)
        clock = FixedClock()
        async with opened(url, clock) as t:
            made = []
            for n in range(30):
                clock.advance(minutes=1)
                row = await t.sessions.new(KEY, select=False)
                await t.append(row, said(f"hello {n}"), answered("ok"))
                made.append(row.id)
            clock.advance(hours=40 * DAY)
            due = await expire(t.sessions, t.store, ttl_days=30, trash_days=30, clock=clock, apply=True)
            assert [step.session_id for step in due] == made, "oldest first"
            assert await expire(t.sessions, t.store, ttl_days=30, trash_days=30, clock=clock, apply=True) == []
            clock.advance(hours=40 * DAY)
            due = await expire(t.sessions, t.store, ttl_days=30, trash_days=30, clock=clock, apply=True)
            assert [(step.action, len(due)) for step in due] == [("delete", 30)] * 30
            assert (await t.store.find(Query())).total == 0

    run(story())

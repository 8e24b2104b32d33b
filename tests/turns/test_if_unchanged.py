"""A message that follows the last turn of this process, without asking the store what became of the session since."""

import asyncio

import pytest

import turnlog
from turnlog.core.entries import Received, Status, User
from turnlog.errors import Busy, Conflict, NotFound
from turnlog.testing import ScriptedProvider, raises

from ..stores import postgres
from ..waiting import GIVES_UP_S, until

KEY = "agent:main:web:direct:ann"


@pytest.fixture(params=["sqlite", "postgresql"])
def two(request, tmp_path):
    """Runs `steps(one, two)`: two processes' libraries on one store."""
    url = f"sqlite:{tmp_path}/s.db" if request.param == "sqlite" else postgres.url_of(tmp_path)

    def work(steps, **options):
        async def main():
            async with (
                turnlog.open(url, home=tmp_path, model_name="offline", **options) as one,
                turnlog.open(url, home=tmp_path, model_name="offline") as other,
            ):
                await steps(one, other)

        asyncio.run(main())

    return work


async def follow(ticket):
    return [type(event).__name__ async for event in ticket.follow()]


async def users(t, row):
    return [entry.content for entry in await t.sessions.read(row.id) if isinstance(entry, User | Received)]


async def left(t):
    row = await t.sessions.new(KEY)
    with pytest.raises(NotFound):
        t.left_here(row.id)
    await t.ask(row, "one")
    await t.queue.idle()
    known = t.left_here(row.id)
    assert known == await t.store.describe(row.id)
    return known


def test_it_is_stored_and_answered_if_nothing_was_written_since(two):
    async def steps(one, other):
        known = await left(one)
        assert (await follow(await one.accept_if_unchanged(known, "two")))[-1] == "Done"
        assert await users(one, known) == ["one", "two"]
        await one.queue.idle()
        async with other.store.lease(known.id, wait_s=0):  # the turn has given its lease back
            pass

    two(steps)


def test_it_is_refused_and_not_stored_if_another_process_has_written(two):
    async def steps(one, other):
        known = await left(one)
        await other.store.append(known.id, [Status(value="trashed", reason="test")])
        await raises(Conflict, one.accept_if_unchanged(known, "two"))
        assert await users(one, known) == ["one"]
        async with other.store.lease(known.id, wait_s=GIVES_UP_S):
            pass

    two(steps)


def test_it_is_refused_if_the_session_was_deleted_and_another_has_its_id(two):
    async def steps(one, other):
        known = await left(one)
        await other.sessions.delete(known.id)
        await raises(NotFound, one.accept_if_unchanged(known, "two"))
        await other.sessions.new(KEY, session_id=known.id)
        with pytest.raises((NotFound, Conflict)):
            await one.accept_if_unchanged(known, "two")
        assert await users(other, known) == []

    two(steps)


def test_it_is_refused_while_a_turn_runs_here_or_in_another_process(two):
    async def steps(one, other):
        known = await left(one)
        async with other.store.lease(known.id, wait_s=0):
            await raises(Busy, one.accept_if_unchanged(known, "two"))
        assert await users(one, known) == ["one"]

    two(steps)


def test_a_message_that_may_wait_is_answered_after_the_turn_of_another_process(two):
    async def steps(one, other):
        known = await left(one)
        async with other.store.lease(known.id, wait_s=0):
            ticket = await one.accept(known, "two")
            assert ticket.stored.result()
        assert (await follow(ticket))[-1] == "Done"
        assert (await users(one, known))[:2] == ["one", "two"]

    two(steps)


def test_a_message_is_answered_after_a_turn_that_began_in_another_process_since(two):
    async def steps(one, other):
        known = await left(one)
        await other.ask(known, "of the other")
        await other.queue.idle()
        assert (await follow(await one.accept(known, "two")))[-1] == "Done"
        assert await users(one, known) == ["one", "of the other", "two"]

    two(steps)


def test_nobody_follows_a_turn_that_waits_or_runs(tmp_path):
    async def main():
        provider = ScriptedProvider([{"text": "first"}, {"text": "second", "until": str(tmp_path / "go")}])
        async with turnlog.open(f"sqlite:{tmp_path}/s.db", home=tmp_path, provider=provider) as t:
            known = await left(t)
            ticket = await t.accept(known, "two")
            await until(lambda: t.running(known))
            await raises(Busy, t.accept_if_unchanged(known, "three"))
            t.queue.stop(known.id)
            await follow(ticket)
            assert await users(t, known) == ["one", "two"]

    asyncio.run(main())

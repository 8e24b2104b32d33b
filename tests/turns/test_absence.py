"""A database that is away in the middle of a turn: the reply is kept, and stored once when it is back."""

import asyncio

import psycopg
import pytest

from turnlog import open_store
from turnlog.core.entries import Assistant, Failed
from turnlog.core.events import TERMINAL, Done, ErrorEvent, Stopped
from turnlog.errors import StoreUnavailable
from turnlog.testing import ScriptedProvider

from ..stores import postgres
from .gates import Gated, heard
from .talk import KEY, log, opened as opened_quickly, run, words

SHORT = {"lease_s": 3, "patience_s": 2, "connect_timeout": 10}
"""Shorter than by default, and long enough for a database on a busy machine."""


@pytest.fixture(scope="module")
def own_server():
    here = postgres.Server()
    yield here
    here.remove()


def opened(url, provider, **flags):
    """Durably: what was acknowledged must be there after the database has crashed."""
    return opened_quickly(url, provider, store_durability="full", **flags)


async def until(check):
    while not check():  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.01)


def lease_of(t):
    [lease] = t.store._leases._heartbeat.held()
    return lease


def test_a_reply_that_comes_while_the_database_is_away_is_stored_when_it_is_back_and_then_told_as_done(
    tmp_path, own_server
):
    url = own_server.url(own_server.database(tmp_path), **SHORT)

    async def main():
        provider = Gated([{"text": "kept in mind"}])
        async with opened(url, provider) as t:
            listening = asyncio.create_task(heard(t, await t.accept(KEY, "hi")))
            await provider.reached[0].wait()
            lease = lease_of(t)
            await asyncio.to_thread(own_server.stop)
            provider.go[0].set()
            await until(lambda: not lease.live)
            for _ in range(50):  # more than one attempt at storing the reply
                await asyncio.sleep(0.02)
            assert not listening.done(), "neither done nor failed"
            await asyncio.to_thread(own_server.start)
            events = await listening
            assert [event for event in events if isinstance(event, TERMINAL)] == [events[-1]]
            assert isinstance(events[-1], Done)
            entries = await log(t)
            assert words(entries) == [("user", "hi"), ("assistant", "kept in mind")]
            assert not [entry for entry in entries if isinstance(entry, Failed)]

    run(main())


def test_a_reply_that_was_stored_unheard_is_not_stored_again(tmp_path, own_server):
    """The database commits after the connection is gone: nobody here knows until it is back."""
    name = own_server.database(tmp_path)

    async def main():
        async with postgres.Proxy(own_server.port) as proxy:
            url = own_server.url(name, tcp=True, port=proxy.port, listen="off", **SHORT)
            provider = Gated([{"text": "once"}])
            async with opened(url, provider) as t, open_store(own_server.url(name)) as direct:
                listening = asyncio.create_task(heard(t, await t.accept(KEY, "hi")))
                await provider.reached[0].wait()
                lease = lease_of(t)
                with psycopg.connect(own_server.url(name)) as locking:
                    locking.execute("SELECT FROM turnlog.sessions FOR UPDATE")
                    provider.go[0].set()
                    waiting = "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%append_%' AND wait_event_type = 'Lock'"
                    while not own_server.sql(waiting):  # noqa: ASYNC110 - it has no event
                        await asyncio.sleep(0.01)
                    proxy.silent = True
                    proxy.cut()
                session_id = (await asyncio.to_thread(sessions_in, own_server, name))[0]
                while not any(isinstance(e, Assistant) for e in await direct.read(session_id)):  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(0.02)
                await until(lambda: not lease.live)
                assert not listening.done()
                proxy.silent = False
                proxy.cut()
                events = await listening
                assert isinstance(events[-1], Done)
                assert words(await direct.read(session_id)) == [("user", "hi"), ("assistant", "once")]

    run(main())


def sessions_in(server, name):
    return [row[0] for row in server.sql("SELECT session_id FROM turnlog.sessions", name)]


def test_a_reply_whose_turn_another_process_took_over_is_not_stored(tmp_path, own_server):
    name = own_server.database(tmp_path)

    async def main():
        async with postgres.Proxy(own_server.port) as proxy:
            url = own_server.url(name, tcp=True, port=proxy.port, listen="off", **SHORT)
            provider = Gated([{"text": "too late"}])
            async with opened(url, provider) as t:
                listening = asyncio.create_task(heard(t, await t.accept(KEY, "hi")))
                await provider.reached[0].wait()
                proxy.silent = True
                proxy.cut()
                provider.go[0].set()
                async with opened(own_server.url(name, **SHORT), ScriptedProvider([{"text": "theirs"}])) as other:
                    await other.resume(rerun=True)
                    await other.queue.idle()
                    proxy.silent = False
                    proxy.cut()
                    events = await listening
                    assert isinstance(events[-1], ErrorEvent), "to who asked the first one; its streams follow the log"
                    assert [w for w in words(await log(other)) if w[0] == "assistant"] == [("assistant", "theirs")]

    run(main())


def test_a_message_that_waits_for_its_turn_is_answered_when_the_database_is_back(tmp_path, own_server):
    url = own_server.url(own_server.database(tmp_path), **SHORT)

    async def main():
        provider = Gated([{"text": "one"}, {"text": "two"}])
        async with opened(url, provider, queue_mode="followup") as t:
            first = asyncio.create_task(heard(t, await t.accept(KEY, "hi")))
            await provider.reached[0].wait()
            second = asyncio.create_task(heard(t, await t.accept(KEY, "and")))
            lease = lease_of(t)
            await asyncio.to_thread(own_server.stop)
            provider.go[0].set()
            await until(lambda: not lease.live)
            with pytest.raises(StoreUnavailable):
                await t.accept(KEY, "not stored, and said so")
            await asyncio.to_thread(own_server.start)
            assert isinstance((await first)[-1], Done)
            assert isinstance((await second)[-1], Done)
            assert [text for _, text in words(await log(t)) if text] == ["hi", "one", "two"]

    run(main())


def test_a_turn_that_is_stopped_while_the_database_is_away_is_told_so_when_that_is_stored(tmp_path, own_server):
    url = own_server.url(own_server.database(tmp_path), **SHORT)

    async def main():
        provider = Gated([{"text": "never"}])
        async with opened(url, provider) as t:
            ticket = await t.accept(KEY, "hi")
            listening = asyncio.create_task(heard(t, ticket))
            await provider.reached[0].wait()
            lease = lease_of(t)
            await asyncio.to_thread(own_server.stop)
            await until(lambda: not lease.live)
            assert t.stop(ticket.session_id)
            for _ in range(25):
                await asyncio.sleep(0.02)
            assert not listening.done()
            await asyncio.to_thread(own_server.start)
            assert isinstance((await listening)[-1], Stopped)
            assert isinstance((await log(t))[-1], Failed)

    run(main())


def test_closing_waits_for_no_database(tmp_path, own_server):
    url = own_server.url(own_server.database(tmp_path), **SHORT)

    async def main():
        provider = Gated([{"text": "lost"}])
        async with opened(url, provider) as t:
            await t.accept(KEY, "hi")
            await provider.reached[0].wait()
            lease = lease_of(t)
            await asyncio.to_thread(own_server.stop)
            provider.go[0].set()
            await until(lambda: not lease.live)
        await asyncio.to_thread(own_server.start)
        async with opened(url, ScriptedProvider([{"text": "after the start"}])) as t:
            while not await t.resume(rerun=True):  # noqa: ASYNC110 - until the lease has run out
                await asyncio.sleep(0.1)
            await t.queue.idle()
            assert words(await log(t))[-1] == ("assistant", "after the start")

    run(main())

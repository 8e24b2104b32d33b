"""Holders that are stopped, connections that break, servers that vanish: everything acknowledged is there once."""

import asyncio
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import psycopg
import pytest

import turnlog
from turnlog import open_store
from turnlog.core import history
from turnlog.stores import watching
from turnlog.stores.postgres import heartbeat, store, writer
from turnlog.stores.postgres.leases import PostgresLeases
from turnlog.testing import answered, check_messages, entry, opened, raises, said

from ...waiting import GIVES_UP_S, until
from .. import postgres

ROOT = Path(__file__).parents[3]
BEATS = 200
"""In the time of a long lease, where a test waits for one."""
CUTS = 24

HOLDER = """
import asyncio, sys, turnlog
from turnlog.testing import entry, said
async def main(url):
    async with turnlog.open_store(url) as store, store.lease("s1") as lease:
        await store.append("s1", [said("first")], lease=lease)
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for late in (said("late"), entry(type="failed", code="interrupted")):
            try:
                await store.append("s1", [late], lease=lease)
                print("written", flush=True)
            except turnlog.TurnlogError as error:
                print(type(error).__name__, lease.live, flush=True)
asyncio.run(main(sys.argv[1]))
"""


def holder_of(url):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, url], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    return process


async def create(url, *names):
    async with open_store(url) as store:
        for name in names or ("s1",):
            await store.append(name, [opened(name, peer=name)])


async def take_over(url, word):
    async with open_store(url) as store, store.lease("s1") as lease:
        await store.append("s1", [said(word)], lease=lease)


async def words(url, name="s1"):
    async with open_store(url) as store:
        entries = await store.read(name)
        assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
        assert (await store.describe(name)).last_seq == len(entries)
        check_messages(history.build(entries).messages)
        return [e.content for e in entries if hasattr(e, "content")]


@pytest.mark.parametrize("over", [False, True], ids=["during the other turn", "after it"])
def test_a_stopped_holder_is_overtaken_and_cannot_write_when_it_goes_on(tmp_path, over):
    url = postgres.url_of(tmp_path, lease_s=postgres.LONG_S)
    asyncio.run(create(url))
    holder = holder_of(url)
    holder.send_signal(signal.SIGSTOP)
    postgres.expire_leases(url)

    def resume():
        holder.send_signal(signal.SIGCONT)
        told, _ = holder.communicate("go\n", timeout=GIVES_UP_S)
        assert told == "Conflict False\n" * 2

    async def other_turn():
        async with open_store(url) as store, store.lease("s1") as lease:
            await store.append("s1", [said("second")], lease=lease)
            if not over:
                await asyncio.to_thread(resume)
            await store.append("s1", [said("third")], lease=lease)

    asyncio.run(other_turn())
    if over:
        resume()
    assert asyncio.run(words(url)) == ["first", "second", "third"]


def test_the_database_fences_a_holder_that_does_not_know_yet(tmp_path):
    here, name = postgres.server(), postgres.server().database(tmp_path)

    async def run(url):
        async with open_store(url) as one, open_store(url) as two, one.lease("s1") as old:
            here.sql("UPDATE turnlog.leases SET expires_at = now()", name)
            async with two.lease("s1") as new:
                assert old.live
                assert new.epoch > old.epoch
                together = await asyncio.gather(
                    one.append("s1", [said("late")], lease=old),
                    one.append("s1", [entry(type="title", title="needs no lease")]),
                    two.append("s1", [said("mine")], lease=new),
                    return_exceptions=True,
                )
                assert isinstance(together[0], turnlog.Conflict)
                assert all(isinstance(answer, list) for answer in together[1:])
                assert not old.live
            assert [getattr(e, "content", "") for e in await one.read("s1")].count("mine") == 1

    url = here.url(name, lease_s=postgres.LONG_S)
    asyncio.run(create(url))
    asyncio.run(run(url))


def test_whoever_takes_over_waits_for_an_append_under_way_but_a_heartbeat_does_not(tmp_path, monkeypatch):
    monkeypatch.setattr(heartbeat, "BEATS", BEATS)
    here, name = postgres.server(), postgres.server().database(tmp_path)
    url = here.url(name, lease_s=postgres.LONG_S)
    expire = "UPDATE turnlog.leases SET expires_at = clock_timestamp()"
    blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%lease_1%'"

    async def run():
        async with open_store(url) as one, open_store(url) as two, one.lease("s1"):
            with psycopg.connect(here.url(name)) as append:
                append.execute("SELECT FROM turnlog.leases FOR KEY SHARE")
                here.sql(expire, name)
                await until(lambda: here.sql("SELECT expires_at > now() FROM turnlog.leases", name) == [(True,)])
            await one._leases.close()  # no more heartbeats
            with psycopg.connect(here.url(name)) as append:
                append.execute("SELECT FROM turnlog.leases FOR KEY SHARE")
                here.sql(expire, name)
                taking = asyncio.create_task(enter(two))
                await until(lambda: here.sql(blocked, name) == [(1,)])
                assert not taking.done()
            async with asyncio.timeout(GIVES_UP_S):
                await taking

    asyncio.run(create(url))
    asyncio.run(run())


def test_a_killed_holder_is_overtaken_when_its_lease_is_over_and_not_before(tmp_path):
    here, name = postgres.server(), postgres.server().database(tmp_path)
    url = here.url(name, lease_s=2)
    asyncio.run(create(url))
    holder = holder_of(url)
    before = expiry(here, name)
    while expiry(here, name) == before:  # a heartbeat
        time.sleep(0.05)
    holder.kill()
    holder.communicate()
    last = expiry(here, name)
    assert last > before
    asyncio.run(take_over(url, "second"))
    assert here.sql("SELECT clock_timestamp() >= %s", name, (last,)) == [(True,)]
    assert asyncio.run(words(url)) == ["first", "second"]


def expiry(here, name):
    [(expires,)] = here.sql("SELECT expires_at FROM turnlog.leases", name)
    return expires


def test_a_lease_lasts_as_long_as_its_holder_lives(tmp_path, monkeypatch):
    monkeypatch.setattr(heartbeat, "BEATS", BEATS)
    here, name = postgres.server(), postgres.server().database(tmp_path)

    async def run(url):
        async with open_store(url) as store, open_store(url) as other, store.lease("s1") as lease:
            first = expiry(here, name)
            await until(lambda: expiry(here, name) > first)
            busy = await raises(turnlog.Busy, enter(other, 0.1))
            assert f"process {os.getpid()}" in busy.holder
            assert lease.live
            await store.append("s1", [said("mine")], lease=lease)

    url = here.url(name, lease_s=postgres.LONG_S)
    asyncio.run(create(url))
    asyncio.run(run(url))


async def enter(store, wait_s=None, name="s1"):
    async with store.lease(name, wait_s=wait_s):
        pass


def test_who_waits_for_a_lease_asks_for_it_once_and_then_only_looks(tmp_path, monkeypatch):
    here, name = postgres.server(), postgres.server().database(tmp_path)
    url = here.url(name, listen="off", lease_s=postgres.LONG_S)
    names = [f"s{n}" for n in range(30)]
    looks = Counter()
    plain = PostgresLeases._is_free

    async def counted(leases, session_id):
        found = await plain(leases, session_id)
        looks[session_id] += 1
        return found

    monkeypatch.setattr(PostgresLeases, "_is_free", counted)

    async def main():
        await create(url, *names)
        async with open_store(url) as holder, open_store(url) as other, AsyncExitStack() as held:
            for name in names:
                await held.enter_async_context(holder.lease(name))
            [before] = epochs()
            waits = [asyncio.create_task(enter(other, name=name)) for name in names]
            await until(lambda: all(looks[name] >= 3 for name in names))
            assert epochs() == [before + len(names)], "each asked for it once; then they only looked"
            await held.aclose()
            async with asyncio.timeout(GIVES_UP_S):
                await asyncio.gather(*waits)

    def epochs():
        return [row[0] for row in here.sql('SELECT last_value FROM "turnlog".lease_epochs', name)]

    asyncio.run(main())


def test_a_waiter_who_gives_up_leaves_no_lease_behind(tmp_path):
    async def run(url):
        async with open_store(url) as store, open_store(url) as other:
            for _ in range(20):
                task = asyncio.create_task(enter(store))
                await asyncio.sleep(random.random() * 0.004)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await enter(other, GIVES_UP_S)

    asyncio.run(run(postgres.url_of(tmp_path, lease_s=10 * GIVES_UP_S)))


def test_an_expired_lease_that_nobody_took_goes_on(tmp_path, monkeypatch):
    """The database was away for longer than a lease: the turns that were running need not die of it."""
    monkeypatch.setattr(heartbeat, "BEATS", BEATS)
    here, name = postgres.server(), postgres.server().database(tmp_path)
    url = here.url(name, lease_s=postgres.LONG_S)

    async def run():
        async with open_store(url) as store, store.lease("s1") as lease:
            here.sql("UPDATE turnlog.leases SET expires_at = now() - interval '1 hour'", name)
            await store.append("s1", [said("still mine")], lease=lease)
            await until(lambda: here.sql("SELECT expires_at > now() FROM turnlog.leases", name) == [(True,)])

    asyncio.run(create(url))
    asyncio.run(run())


async def talk(store, name, enough, acknowledged, errors):
    """Each word once, until it is enough; after an error, reads whether it was written, as the hint says."""
    async with store.lease(name) as lease:
        for n in itertools.count():
            if enough.is_set():
                return
            for body in (said(f"{name} q{n}"), answered(f"{name} a{n}")):
                try:
                    await store.append(name, [body], lease=lease)
                except turnlog.StoreUnavailable as error:
                    errors.append(error)
                    continue
                acknowledged.append((name, body.content))


async def check_all(url, names, acknowledged):
    for name in names:
        found = await words(url, name)
        assert len(set(map(str, found))) == len(found), "something is doubled"
        mine = [word for who, word in acknowledged if who == name]
        assert [word for word in found if word in mine] == mine, "something acknowledged is missing"


def test_connections_that_break_lose_and_double_nothing(tmp_path):
    here, name = postgres.server(), postgres.server().database(tmp_path)
    names = [f"s{n}" for n in range(8)]
    acknowledged, errors = [], []

    async def run():
        async with postgres.Proxy(here.port) as proxy:
            url = here.url(name, tcp=True, port=proxy.port, lease_s=postgres.LONG_S)
            async with open_store(url) as store:
                enough = asyncio.Event()
                work = asyncio.gather(*(talk(store, each, enough, acknowledged, errors) for each in names))
                for n in itertools.count():
                    before = len(acknowledged)
                    await until(lambda before=before: len(acknowledged) > before + 2 * len(names) or work.done())
                    if proxy.broken >= CUTS or work.done():
                        break
                    if n % 2:
                        proxy.cut()
                    else:
                        # The request arrives and is carried out; its answer does not come back.
                        proxy.cut_answers_after = random.randrange(4)
                enough.set()
                await work

    url = here.url(name)
    asyncio.run(create(url, *names))
    asyncio.run(run())
    assert not errors, errors[0]
    asyncio.run(check_all(url, names, acknowledged))


def test_an_answer_that_is_lost_after_the_commit_is_asked_for_again(tmp_path):
    here = postgres.server()
    name = here.database(tmp_path)

    async def run():
        async with postgres.Proxy(here.port) as proxy:
            url = here.url(name, tcp=True, port=proxy.port, pool=1, listen="off")
            async with open_store(url) as store:
                for n in range(10):
                    proxy.cut_answers_after = 0
                    (new,) = await store.append("s1", [entry(type="title", title=f"t{n}")])
                    assert new.seq == n + 2
                    proxy.cut_answers_after = 0
                    assert await store.ledger.put_if_absent("a", f"k{n}", n) is None
                    proxy.cut_answers_after = 0
                    assert await store.ledger.cas("a", f"k{n}", n, n + 1)
                    proxy.cut_answers_after = 1
                    assert await store.ledger.cas("a", f"k{n}", n + 1, None)
                    proxy.cut_answers_after = 0
                    async with store.lease("s1", wait_s=GIVES_UP_S):
                        pass

    asyncio.run(create(here.url(name)))
    asyncio.run(run())
    assert len(here.sql("SELECT 1 FROM turnlog.session_messages", name)) == 11


def test_a_slow_connection_is_only_slow(tmp_path):
    here, name = postgres.server(), postgres.server().database(tmp_path)
    acknowledged, errors = [], []
    enough = asyncio.Event()

    async def run():
        async with postgres.Proxy(here.port) as proxy:
            url = here.url(name, tcp=True, port=proxy.port, lease_s=postgres.LONG_S)
            async with open_store(url) as store:
                proxy.delay_s = 0.1
                work = asyncio.create_task(talk(store, "s1", enough, acknowledged, errors))
                await until(lambda: len(acknowledged) >= 4 or errors)
                enough.set()
                await work

    url = here.url(name)
    asyncio.run(create(url))
    asyncio.run(run())
    assert not errors
    asyncio.run(check_all(url, ["s1"], acknowledged))


def test_a_connection_without_answers_is_given_up_and_its_lease_with_it(tmp_path, monkeypatch):
    """A cut cable: nobody says that the other side is gone."""
    here, name = postgres.server(), postgres.server().database(tmp_path)
    direct = here.url(name)
    monkeypatch.setattr(writer, "CALL_S", 1.0)

    async def run():
        async with postgres.Proxy(here.port) as proxy:
            url = here.url(name, tcp=True, port=proxy.port, lease_s=1, patience_s=GIVES_UP_S)
            async with open_store(url) as store, store.lease("s1") as lease:
                await store.append("s1", [said("first")], lease=lease)
                proxy.silent = True
                late = asyncio.create_task(store.append("s1", [said("late")], lease=lease))
                await take_over(direct, "second")
                proxy.silent = False
                proxy.cut()  # nothing that was said meanwhile is ever answered
                error = await raises(turnlog.TurnlogError, late)
                assert isinstance(error, turnlog.Conflict | turnlog.StoreUnavailable), "whichever is noticed first"
                async with asyncio.timeout(GIVES_UP_S):
                    assert not await lease.regain()
                await raises(turnlog.Conflict, store.append("s1", [said("later")], lease=lease))

    asyncio.run(create(direct))
    asyncio.run(run())
    assert asyncio.run(words(direct)) == ["first", "second"]


def test_a_database_that_crashes_and_comes_back_loses_and_doubles_nothing(tmp_path):
    here = postgres.stoppable()
    names = [f"s{n}" for n in range(8)]
    url = here.url(here.database(tmp_path), lease_s=postgres.LONG_S, patience_s=GIVES_UP_S)
    acknowledged, errors = [], []

    async def run():
        async with open_store(url) as store:
            enough = asyncio.Event()
            work = asyncio.gather(*(talk(store, name, enough, acknowledged, errors) for name in names))
            for _ in range(2):
                before = len(acknowledged)
                await until(lambda before=before: len(acknowledged) > before + 10 * len(names) or work.done())
                await asyncio.to_thread(here.stop, "immediate")
                await asyncio.to_thread(here.start)
            before = len(acknowledged)
            await until(lambda: len(acknowledged) > before + 10 * len(names) or work.done())
            enough.set()
            await work

    asyncio.run(create(url, *names))
    asyncio.run(run())
    assert not errors, errors[0]
    asyncio.run(check_all(url, names, acknowledged))


def test_an_append_is_on_disk_also_where_the_server_would_not_wait_for_it(tmp_path):
    here = postgres.stoppable()
    url = here.url(here.database(tmp_path))

    async def run(n):
        async with open_store(url) as store:
            await store.append("s1", [entry(type="title", title=f"t{n}")], expect=n)
            assert await store.ledger.put_if_absent("a", f"k{n}", n) is None
            await asyncio.to_thread(here.stop, "immediate")
        here.start()

    asyncio.run(create(url))
    for n in (1, 2):
        asyncio.run(run(n))
    assert here.sql("SELECT count(*) FROM turnlog.session_messages", here.database(tmp_path)) == [(3,)]
    assert here.sql("SELECT count(*) FROM turnlog.ledger", here.database(tmp_path)) == [(2,)]


def test_a_long_wait_for_connections_costs_no_lease(tmp_path, monkeypatch):
    monkeypatch.setattr(heartbeat, "BEATS", BEATS)
    here, name = postgres.server(), postgres.server().database(tmp_path)

    async def run(url):
        async with open_store(url) as store, store.lease("s1") as lease:
            with psycopg.connect(here.url(name)) as other:
                other.execute("SELECT pg_advisory_lock(1)")
                waiting = [asyncio.create_task(store._db.all("SELECT pg_advisory_xact_lock(1)")) for _ in range(2)]
                postgres.expire_leases(url)
                await until(lambda: here.sql("SELECT expires_at > now() FROM turnlog.leases", name) == [(True,)])
                assert lease.live
                assert not any(task.done() for task in waiting)
            await asyncio.gather(*waiting)

    asyncio.run(run(here.url(name, pool=1, lease_s=postgres.LONG_S)))


def test_a_database_that_is_gone_is_said_so_and_the_store_goes_on_when_it_is_back(tmp_path, monkeypatch):
    monkeypatch.setattr(heartbeat, "BEATS", BEATS)
    here = postgres.stoppable()
    url = here.url(here.database(tmp_path), lease_s=postgres.LONG_S, patience_s=0.2)

    async def run():
        async with open_store(url) as store:
            watching = asyncio.create_task(first_after(store, 2))
            async with store.lease("s1") as lease:
                await store.append("s1", [said("before")], lease=lease)
                await asyncio.to_thread(here.stop, "fast")
                for attempt in (
                    store.append("s1", [said("lost")], lease=lease),
                    store.read("s1"),
                    store.describe("s1"),
                    store.find(turnlog.Query()),
                    store.search("before"),
                    store.ledger.get("a", "b"),
                    store.ledger.put_if_absent("a", "b", 1),
                    store.delete("s1"),
                ):
                    error = await raises(turnlog.StoreUnavailable, attempt)
                    assert error.hint
                error = await raises(turnlog.StoreUnavailable, open_store(url).__aenter__())
                assert "reached" in str(error)
                await asyncio.to_thread(here.start)
                assert await lease.regain()
                await store.append("s1", [answered("after")], lease=lease)
            assert [type(e).__name__ for e in await store.read("s1", after=1)] == ["User", "Assistant"]
            with pytest.raises(turnlog.StoreUnavailable):
                await watching

    asyncio.run(create(url))
    asyncio.run(run())


async def first_after(store, seq):
    async for item in store.watch("s1", after=seq):
        return item
    return None


def test_racing_servers_write_to_one_session_without_a_gap(tmp_path):
    """No lease is needed for titles, so two stores overtake each other all the time."""

    async def run(url):
        async with open_store(url) as one, open_store(url) as two:
            work = [store.append("s1", [entry(type="title", title=f"{n}")]) for n in range(100) for store in (one, two)]
            got = await asyncio.gather(*work)
            assert sorted(e.seq for [e] in got) == list(range(2, 202))
            assert len(await one.read("s1")) == 201

    url = postgres.url_of(tmp_path)
    asyncio.run(create(url))
    asyncio.run(run(url))


def test_watching_hears_of_another_server_without_looking(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "POLL_S", 3_600)
    monkeypatch.setattr(watching, "POLL_MAX_S", 3_600)
    here, name = postgres.server(), postgres.server().database(tmp_path)
    listening = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %'"

    async def run(url):
        async with open_store(url) as one, open_store(url) as two:
            heard = asyncio.create_task(first_after(one, 1))
            await until(lambda: here.sql(listening, name) == [(1,)])
            await two.append("s1", [entry(type="title", title="x")])
            async with asyncio.timeout(GIVES_UP_S):
                assert (await heard).title == "x"

    url = here.url(name)
    asyncio.run(create(url))
    asyncio.run(run(url))

"""Holders that are stopped, connections that break, servers that vanish: everything acknowledged is there once."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import psycopg
import pytest

import turnlog
from turnlog import Busy, open_store
from turnlog.core import history
from turnlog.stores import postgres_writer
from turnlog.stores.postgres_pool import Database
from turnlog.testing import answered, check_messages, entry, opened, raises, said

from . import postgres

ROOT = Path(__file__).parents[2]

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
    """Seconds until the lease was ours."""
    start = time.monotonic()
    async with open_store(url) as store, store.lease("s1") as lease:
        taken = time.monotonic() - start
        await store.append("s1", [said(word)], lease=lease)
    return taken


async def words(url, name="s1"):
    async with open_store(url) as store:
        entries = await store.read(name)
        assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
        assert (await store.describe(name)).last_seq == len(entries)
        check_messages(history.build(entries).messages)
        return [e.content for e in entries if hasattr(e, "content")]


@pytest.mark.parametrize("over", [False, True], ids=["during the other turn", "after it"])
def test_a_stopped_holder_is_overtaken_and_cannot_write_when_it_goes_on(tmp_path, over):
    url = postgres.url_of(tmp_path, lease_s=1)
    asyncio.run(create(url))
    holder = holder_of(url)
    holder.send_signal(signal.SIGSTOP)

    def resume():
        holder.send_signal(signal.SIGCONT)
        told, _ = holder.communicate("go\n", timeout=30)
        assert told == "Conflict False\n" * 2

    async def other_turn():
        start = time.monotonic()
        async with open_store(url) as store, store.lease("s1") as lease:
            assert time.monotonic() - start < 3
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
                assert [type(answer) for answer in together] == [turnlog.Conflict, list, list]
                assert not old.live
            assert [getattr(e, "content", "") for e in await one.read("s1")].count("mine") == 1

    url = postgres.url_of(tmp_path)
    asyncio.run(create(url))
    asyncio.run(run(url))


def test_whoever_takes_over_waits_for_an_append_under_way_but_a_heartbeat_does_not(tmp_path):
    here, name = postgres.server(), postgres.server().database(tmp_path)
    url = postgres.url_of(tmp_path, lease_s=0.8)

    async def run():
        async with open_store(url) as one, open_store(url) as two, one.lease("s1"):
            with psycopg.connect(here.url(name)) as append:
                append.execute("SELECT FROM turnlog.leases FOR KEY SHARE")
                await asyncio.sleep(1.5)
                assert here.sql("SELECT expires_at > now() FROM turnlog.leases", name) == [(True,)]
            await one._leases.close()  # no more heartbeats
            with psycopg.connect(here.url(name)) as append:
                append.execute("SELECT FROM turnlog.leases FOR KEY SHARE")
                taking = asyncio.create_task(enter(two))
                await asyncio.sleep(2)
                assert not taking.done()
            async with asyncio.timeout(2):
                await taking

    asyncio.run(create(url))
    asyncio.run(run())


def test_a_killed_holder_is_overtaken_within_ten_seconds(tmp_path):
    url = postgres.url_of(tmp_path)
    asyncio.run(create(url))
    holder = holder_of(url)
    time.sleep(3)  # longer than a heartbeat
    holder.kill()
    holder.communicate()
    assert 4 < asyncio.run(take_over(url, "second")) < 10
    assert asyncio.run(words(url)) == ["first", "second"]


def test_a_lease_lasts_as_long_as_its_holder_lives(tmp_path):
    async def run(url):
        async with open_store(url) as store, open_store(url) as other, store.lease("s1") as lease:
            busy = await raises(turnlog.Busy, enter(other, 2.0))
            assert f"process {os.getpid()}" in busy.holder
            assert lease.live
            await store.append("s1", [said("mine")], lease=lease)

    url = postgres.url_of(tmp_path, lease_s=0.5)
    asyncio.run(create(url))
    asyncio.run(run(url))


async def enter(store, wait_s=None):
    async with store.lease("s1", wait_s=wait_s):
        pass


def test_who_waits_for_a_lease_asks_for_it_once_and_then_only_looks(tmp_path):
    url = postgres.url_of(tmp_path, listen="off")
    names = [f"s{n}" for n in range(30)]

    async def main():
        await create(url, *names)
        async with open_store(url) as holder, open_store(url) as other, AsyncExitStack() as held:
            for name in names:
                await held.enter_async_context(holder.lease(name))
            [before] = epochs()
            begin = time.monotonic()
            waits = [raises(Busy, other.lease(name, wait_s=2).__aenter__()) for name in names]
            await asyncio.gather(*waits)
            assert time.monotonic() - begin >= 2
            assert epochs() == [before + len(names)], "each asked for it once; then they only looked"
            await held.aclose()
            async with other.lease(names[0], wait_s=1):
                pass

    def epochs():
        here = postgres.server()
        return [row[0] for row in here.sql('SELECT last_value FROM "turnlog".lease_epochs', here.database(tmp_path))]

    asyncio.run(main())


def test_a_waiter_who_gives_up_leaves_no_lease_behind(tmp_path):
    async def run(url):
        async with open_store(url) as store, open_store(url) as other:
            for _ in range(20):
                task = asyncio.create_task(enter(store))
                await asyncio.sleep(random.random() * 0.004)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await enter(other, 1.0)

    asyncio.run(run(postgres.url_of(tmp_path)))


def test_an_expired_lease_that_nobody_took_goes_on(tmp_path):
    """The database was away for longer than a lease: the turns that were running need not die of it."""
    here = postgres.server()
    url = postgres.url_of(tmp_path, lease_s=1)

    async def run():
        async with open_store(url) as store, store.lease("s1") as lease:
            here.sql("UPDATE turnlog.leases SET expires_at = now() - interval '1 hour'", here.database(tmp_path))
            await store.append("s1", [said("still mine")], lease=lease)
            await asyncio.sleep(0.5)
            live = here.sql("SELECT expires_at > now() FROM turnlog.leases", here.database(tmp_path))
            assert live == [(True,)]

    asyncio.run(create(url))
    asyncio.run(run())


async def talk(store, name, turns, acknowledged, errors):
    """Each word once; after an error, reads whether it was written, as the hint says."""
    async with store.lease(name) as lease:
        for n in range(turns):
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
    here = postgres.server()
    names = [f"s{n}" for n in range(8)]
    acknowledged, errors = [], []

    async def run():
        async with postgres.Proxy(here.port) as proxy:
            url = here.url(here.database(tmp_path), tcp=True, port=proxy.port)
            async with open_store(url) as store:
                work = asyncio.gather(*(talk(store, name, 60, acknowledged, errors) for name in names))
                while not work.done():
                    await asyncio.sleep(random.uniform(0.05, 0.3))
                    if random.random() < 0.5:
                        proxy.cut()
                    else:
                        # The request arrives and is carried out; its answer does not come back.
                        proxy.cut_answers_after = random.randrange(4)
                await work
            assert proxy.connections > 10

    url = postgres.url_of(tmp_path)
    asyncio.run(create(url, *names))
    asyncio.run(run())
    assert not errors, errors[0]
    assert len(acknowledged) == 8 * 120
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
                    async with store.lease("s1", wait_s=1):
                        pass

    asyncio.run(create(postgres.url_of(tmp_path)))
    asyncio.run(run())
    assert len(here.sql("SELECT 1 FROM turnlog.session_messages", name)) == 11


def test_a_slow_connection_is_only_slow(tmp_path):
    here = postgres.server()
    acknowledged, errors = [], []

    async def run():
        async with postgres.Proxy(here.port) as proxy:
            url = here.url(here.database(tmp_path), tcp=True, port=proxy.port, lease_s=1)
            async with open_store(url) as store:
                proxy.delay_s = 0.15
                await talk(store, "s1", 5, acknowledged, errors)

    url = postgres.url_of(tmp_path)
    asyncio.run(create(url))
    asyncio.run(run())
    assert not errors
    asyncio.run(check_all(url, ["s1"], acknowledged))


def test_a_connection_without_answers_is_given_up_and_its_lease_with_it(tmp_path, monkeypatch):
    """A cut cable: nobody says that the other side is gone."""
    here = postgres.server()
    direct = postgres.url_of(tmp_path, lease_s=1)
    monkeypatch.setattr(postgres_writer, "CALL_S", 1.0)

    async def run():
        async with postgres.Proxy(here.port) as proxy:
            url = here.url(here.database(tmp_path), tcp=True, port=proxy.port, lease_s=1)
            async with open_store(url) as store, store.lease("s1") as lease:
                await store.append("s1", [said("first")], lease=lease)
                proxy.silent = True
                late = asyncio.create_task(store.append("s1", [said("late")], lease=lease))
                assert await take_over(direct, "second") < 3
                proxy.silent = False
                await raises(turnlog.Conflict, late)

    asyncio.run(create(direct))
    asyncio.run(run())
    assert asyncio.run(words(direct)) == ["first", "second"]


@pytest.fixture(scope="module")
def own_server():
    """One that may be stopped without disturbing other tests, and that acknowledges too early unless told not to."""
    here = postgres.Server(synchronous_commit="off")
    yield here
    here.remove()


def test_a_database_that_crashes_and_comes_back_loses_and_doubles_nothing(tmp_path, own_server):
    here = own_server
    names = [f"s{n}" for n in range(8)]
    url = here.url(here.database(tmp_path))
    acknowledged, errors = [], []

    async def run():
        async with open_store(url) as store:
            work = asyncio.gather(*(talk(store, name, 150, acknowledged, errors) for name in names))
            for _ in range(3):
                await asyncio.sleep(0.2)
                await asyncio.to_thread(here.stop, "immediate")
                await asyncio.sleep(0.3)
                await asyncio.to_thread(here.start)
            await work

    asyncio.run(create(url, *names))
    asyncio.run(run())
    assert not errors, errors[0]
    assert len(acknowledged) == 8 * 300
    asyncio.run(check_all(url, names, acknowledged))


def test_an_append_is_on_disk_also_where_the_server_would_not_wait_for_it(tmp_path, own_server):
    here = own_server
    url = here.url(here.database(tmp_path))

    async def run(n):
        async with open_store(url) as store:
            await store.append("s1", [entry(type="title", title=f"t{n}")], expect=n)
            assert await store.ledger.put_if_absent("a", f"k{n}", n) is None
            await asyncio.to_thread(here.stop, "immediate")
        here.start()

    asyncio.run(create(url))
    for n in range(1, 4):
        asyncio.run(run(n))
    assert here.sql("SELECT count(*) FROM turnlog.session_messages", here.database(tmp_path)) == [(4,)]
    assert here.sql("SELECT count(*) FROM turnlog.ledger", here.database(tmp_path)) == [(3,)]


def test_a_long_wait_for_connections_costs_no_lease(tmp_path):
    here, name = postgres.server(), postgres.server().database(tmp_path)

    async def run(url):
        async with open_store(url) as store, store.lease("s1") as lease:
            busy = [store._db.all("SELECT pg_sleep(1.5)") for _ in range(2)]
            await asyncio.gather(*busy)
            assert here.sql("SELECT expires_at > now() FROM turnlog.leases", name) == [(True,)]
            assert lease.live

    asyncio.run(run(postgres.url_of(tmp_path, pool=1, lease_s=0.8)))


def test_a_database_that_is_gone_is_said_so_and_the_store_goes_on_when_it_is_back(tmp_path, own_server, monkeypatch):
    here = own_server
    url = here.url(here.database(tmp_path), lease_s=1)
    monkeypatch.setitem(Database.all.__kwdefaults__, "patience_s", 0.2)

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


def test_watching_hears_of_another_server_at_once(tmp_path):
    async def run(url):
        async with open_store(url) as here, open_store(url) as there:
            heard = asyncio.create_task(first_after(here, 1))
            await asyncio.sleep(0.7)  # connected and listening
            start = time.monotonic()
            await there.append("s1", [entry(type="title", title="x")])
            assert (await heard).title == "x"
            return time.monotonic() - start

    url = postgres.url_of(tmp_path)
    asyncio.run(create(url))
    assert asyncio.run(run(url)) < 0.3

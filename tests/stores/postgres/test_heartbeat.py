"""Leases at PostgreSQL while event loops are blocked, logins are refused and the database stands still."""

import asyncio
import os
import signal
from contextlib import suppress

import pytest

import turnlog
from turnlog import open_store
from turnlog.errors import Busy, Conflict, StoreUnavailable
from turnlog.providers import sdk
from turnlog.runtime import background
from turnlog.stores.postgres import heartbeat
from turnlog.testing import opened, raises, said

from ...waiting import GIVES_UP_S, until
from .. import postgres

LEASE_S = 1.0
"""Where a lease has to lapse."""


@pytest.fixture
def own_server():
    return postgres.stoppable()


async def create(url):
    async with open_store(url) as store:
        await store.append("s1", [opened("s1")], expect=0)


def main_process(server):
    return int((server.data / "postmaster.pid").read_text().splitlines()[0])


def children_of(parent):
    return [int(pid) for pid in os.listdir("/proc") if pid.isdecimal() and parent_of(pid) == parent]


def parent_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return None


def stand_still(server):
    """The main process first: then no other process is begun."""
    main = main_process(server)
    os.kill(main, signal.SIGSTOP)
    signal_all(children_of(main), signal.SIGSTOP)


def go_on(server):
    main = main_process(server)
    signal_all([*children_of(main), main], signal.SIGCONT)


def signal_all(processes, number):
    for pid in processes:
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, number)


async def append_when_live(store, lease, body):
    """A busy machine may let the lease lapse once more in between."""
    async with asyncio.timeout(GIVES_UP_S):
        while await lease.regain():
            with suppress(StoreUnavailable):
                return await store.append("s1", [body], lease=lease)
    raise AssertionError("the lease was not regained")


async def over(lease):
    """Called when no more renewals are answered. One that was answered before may be read late, and then the lease is
    live once more; but no renewal that was sent before now can make it last longer than this.
    """
    end = heartbeat.now() + LEASE_S
    await until(lambda: heartbeat.now() > end)
    assert not lease.live


def test_a_lease_is_renewed_while_the_event_loop_is_blocked(tmp_path, monkeypatch):
    monkeypatch.setattr(heartbeat, "BEATS", 200)
    here, name = postgres.server(), postgres.server().database(tmp_path)
    url = here.url(name, lease_s=postgres.LONG_S)

    def nearly_over_and_renewed():
        """Called from the loop, which stands still until it returns."""
        here.sql("UPDATE turnlog.leases SET expires_at = clock_timestamp() + interval '30 seconds'", name)
        renewed = "SELECT expires_at > clock_timestamp() + interval '60 seconds' FROM turnlog.leases"
        while here.sql(renewed, name) != [(True,)]:
            pass

    async def run():
        async with open_store(url) as store, store.lease("s1") as lease:
            epoch = lease.epoch
            for _ in range(2):
                nearly_over_and_renewed()
            assert lease.live
            async with open_store(url) as other:
                await raises(Busy, other.lease("s1", wait_s=0).__aenter__())
            assert (await store.append("s1", [said("mine")], lease=lease))[0].seq == 2
            assert lease.epoch == epoch

    asyncio.run(create(url))
    asyncio.run(run())


def test_a_lease_that_cannot_be_renewed_is_dead_for_its_holder_before_another_can_take_it(tmp_path, own_server):
    name = own_server.database(tmp_path)
    url = own_server.url(name, lease_s=LEASE_S, patience_s=0.2)

    async def run():
        async with open_store(url) as store, store.lease("s1") as lease:
            await until(lambda: lease.live)
            stand_still(own_server)
            try:
                await over(lease)
                await raises(StoreUnavailable, store.append("s1", [said("late")], lease=lease))
            finally:
                go_on(own_server)
            await append_when_live(store, lease, said("again"))
            assert [e.content for e in await store.read("s1", after=1)] == ["again"]

    asyncio.run(create(url))
    asyncio.run(run())


def test_a_refused_login_ends_no_heartbeat_and_leaves_no_lease_live_past_its_expiry(tmp_path, own_server):
    name = own_server.database(tmp_path)
    own_server.sql("DROP ROLE IF EXISTS app")
    own_server.sql("CREATE ROLE app SUPERUSER LOGIN PASSWORD 'first'")
    url = own_server.url(name, tcp=True, user="app", password="first", lease_s=LEASE_S, patience_s=0.2)
    kick = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'"

    async def run():
        before = background.failures().get("postgres heartbeat", 0)
        async with open_store(url) as store, store.lease("s1") as lease:
            own_server.sql("ALTER ROLE app PASSWORD 'second'")
            own_server.sql(kick)
            over = "SELECT expires_at <= clock_timestamp() FROM turnlog.leases"
            await until(lambda: own_server.sql(over, name) == [(True,)])
            assert not lease.live
            await raises(StoreUnavailable, store.append("s1", [said("late")], lease=lease))
            await raises(StoreUnavailable, store.describe("s1"))
            await until(lambda: background.failures()["postgres heartbeat"] > before)
            own_server.sql("ALTER ROLE app PASSWORD 'first'")
            await append_when_live(store, lease, said("again"))

    asyncio.run(create(own_server.url(name)))
    asyncio.run(run())


def test_a_lease_that_another_took_meanwhile_is_not_regained(tmp_path, own_server):
    name = own_server.database(tmp_path)
    url = own_server.url(name, lease_s=LEASE_S, patience_s=0.2)

    async def run():
        async with open_store(url) as store, store.lease("s1") as lease:
            stand_still(own_server)
            try:
                await over(lease)
                waiting = asyncio.create_task(lease.regain())
                await asyncio.sleep(0)
            finally:
                go_on(own_server)
            own_server.sql("UPDATE turnlog.leases SET epoch = epoch + 1000, token = 7", name)
            async with asyncio.timeout(GIVES_UP_S):
                while await waiting:  # it was renewed just before, perhaps more than once
                    waiting = asyncio.create_task(lease.regain())
            assert not lease.live
            await raises(Conflict, store.append("s1", [said("late")], lease=lease))

    asyncio.run(create(url))
    asyncio.run(run())


def test_closing_the_store_tells_those_who_wait_for_a_lease(tmp_path):
    url = postgres.url_of(tmp_path, lease_s=postgres.LONG_S)

    async def run():
        async with turnlog.open_store(url) as store:
            taken = store.lease("s1")
            lease = await taken.__aenter__()
            waiting = asyncio.create_task(lease.regain())
            await asyncio.sleep(0)
            await store._leases.close()
            assert not await waiting
            await taken.__aexit__(None, None, None)

    asyncio.run(create(url))
    asyncio.run(run())


def test_a_library_is_imported_while_the_event_loop_goes_on(tmp_path, monkeypatch):
    """The library waits for the loop: one that is imported in the loop is never ready."""
    path = tmp_path / "slow_sdk.py"
    path.write_text(
        "import os, time\n"
        "end = time.monotonic() + 60\n"
        f"while not os.path.exists({str(tmp_path / 'passed')!r}):\n"
        "    assert time.monotonic() < end, 'the event loop stands still'\n"
        "    time.sleep(0.01)\n"
        "READY = True\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    async def run():
        loads = [asyncio.create_task(sdk.load("slow_sdk")) for _ in range(3)]
        for _ in range(3):
            await asyncio.sleep(0.01)
        (tmp_path / "passed").touch()
        assert all(module.READY for module in await asyncio.gather(*loads))

    asyncio.run(run())

"""How statements travel: which go out together, and what the failure of one means for the others."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest
from benchmarks.round_trips import counting

import turnlog
from turnlog import open_store
from turnlog.convlog import open_convlog
from turnlog.errors import Busy, Conflict
from turnlog.stores.postgres.connections import TOGETHER_MAX
from turnlog.stores.postgres.pool import PostgresPool
from turnlog.stores.postgres.schema import parse
from turnlog.stores.postgres.wire import PostgresWire, array_of, numbered
from turnlog.testing import entry, opened, raises, said

from ...waiting import GIVES_UP_S, until
from .. import postgres
from .pooler import Pooler

LATER_S = 3_600.0


@asynccontextmanager
async def counted(place):
    """(the round trips, the URL of the place's store behind a socket that counts them)"""
    here = postgres.server()
    with TemporaryDirectory(prefix="rt-", dir="/tmp") as folder:  # the path of a socket has to be short
        async with counting(here.root, Path(folder), here.port) as trips:
            options = f"schema={postgres.name_of(place)}&lease_s={postgres.LONG_S}&listen=off"
            yield trips, f"postgresql://postgres@/postgres?host={folder}&port={here.port}&{options}"


def pool(size=1, **options):
    return PostgresPool(parse(postgres.server().url("postgres")).conninfo, schema="public", size=size, **options)


def test_placeholders_are_numbered_and_a_name_has_one_number():
    sql, formats, names = numbered("SELECT %s, %b, '5 %%' FROM turnlog.t", "mine")
    assert (sql, len(formats), names) == (b"SELECT $1, $2, '5 %' FROM \"mine\".t", 2, [])
    sql, formats, names = numbered("SELECT %(a)s, %(b)s, %(a)s", "mine")
    assert (sql, len(formats), names) == (b"SELECT $1, $2, $1", 2, ["a", "b"])


def test_an_array_holds_any_text_as_it_is():
    texts = [
        "",
        "NULL",
        'a "quoted" one',
        "back\\slash\\",
        "{1,2}",
        "a,b",
        " blanks ",
        "line\nend",
        "\\u0000",
        "日本 é",
    ]

    async def main():
        db = pool()
        assert await db.one("SELECT %s::text[]", (array_of(texts),)) == texts
        assert await db.one("SELECT %s::text[]", (array_of([]),)) == []
        assert await db.one("SELECT %s::bigint[]", (array_of([1, -(1 << 62)]),)) == [1, -(1 << 62)]
        await db.close()

    asyncio.run(main())


def test_the_error_of_one_statement_leaves_those_that_go_out_with_it_alone():
    async def main():
        db = pool()
        asked = ["SELECT 1", "SELECT 1 / 0", "SELECT 2", "SELECT nonsense", "SELECT 3"]
        found = await asyncio.gather(*map(db.all, asked), return_exceptions=True)
        assert [found[0], found[2], found[4]] == [[(1,)], [(2,)], [(3,)]]
        assert all(isinstance(found[n], turnlog.TurnlogError) for n in (1, 3))
        error = await raises(Exception, db.all("SELECT %s", (object(),)))
        assert "adapt" in str(error)
        assert await db.all("SELECT 4") == [(4,)]
        await db.close()

    asyncio.run(main())


def test_more_statements_than_connections_are_all_answered_each_with_its_own_answer():
    async def main():
        db = pool(size=2)
        count = TOGETHER_MAX * 5
        large = "x" * 2_000_000  # more than a socket takes at once, in both directions
        found = await asyncio.gather(*(db.all("SELECT %s::int, %s::text", (n, large)) for n in range(5)))
        assert [rows[0] for rows in found] == [(n, large) for n in range(5)]
        found = await asyncio.gather(*(db.one("SELECT %s::int", (n,)) for n in range(count)))
        assert found == list(range(count))
        await db.close()

    asyncio.run(main())


def test_what_has_time_goes_along_with_the_next_statement(tmp_path):
    async def main():
        async with counted(tmp_path) as (trips, url):
            db = PostgresPool(parse(url).conninfo, schema="public", size=4)
            assert await db.one("SELECT 0") == 0
            before = trips.count
            patient = [asyncio.ensure_future(db.all("SELECT %s::int", (n,), within_s=LATER_S)) for n in range(3)]
            await asyncio.sleep(0)
            assert await db.all("SELECT 9", then=("SELECT 10", ())) == [(9,)]
            assert await asyncio.gather(*patient) == [[(0,)], [(1,)], [(2,)]]
            assert trips.count == before + 1
            alone = db.all("SELECT 7", within_s=0.001)
            assert await alone == [(7,)]
            await db.close()

    asyncio.run(main())


def test_a_connection_that_breaks_costs_no_statement_that_went_out_on_it(tmp_path):
    async def main():
        async with postgres.Proxy(postgres.server().port) as proxy:
            url = postgres.server().url("postgres", tcp=True, port=proxy.port)
            db = PostgresPool(parse(url).conninfo, schema="public", size=1)
            assert await db.one("SELECT 0") == 0
            waiting = [asyncio.ensure_future(db.one("SELECT %s::int FROM pg_sleep(0.2)", (n,))) for n in range(3)]
            await asyncio.sleep(0.05)
            proxy.cut()
            assert await asyncio.gather(*waiting) == [0, 1, 2]
            await db.close()

    asyncio.run(main())


def test_a_server_that_resets_the_connection_is_noticed_also_by_uvloop():
    """uvloop stops watching the socket then, and tells nobody."""
    uvloop = pytest.importorskip("uvloop")
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%%reset me%%' AND state = 'active'"
    large = "x" * 5_000_000  # the server has not read all of it when it closes its socket: that resets the connection

    async def main():
        db = pool(size=1)
        slow = asyncio.ensure_future(db.one("SELECT 1 FROM pg_sleep(1) /* reset me */"))
        behind = asyncio.ensure_future(db.one("SELECT length(%s::text)", (large,)))
        await until(lambda: (True,) in postgres.server().sql(f"{end} AND pid <> pg_backend_pid()", values=()))
        async with asyncio.timeout(GIVES_UP_S):
            assert await asyncio.gather(slow, behind) == [1, len(large)]
            await db.close()

    uvloop.run(main())


def test_a_connection_that_is_broken_before_anything_is_sent_costs_no_statement_that_was_to_go_out_on_it():
    async def main():
        db = pool(size=1)
        assert await db.one("SELECT 0") == 0
        db.connections._idle[0]._pg.finish()
        patient = [asyncio.ensure_future(db.all("SELECT %s::int", (n,), within_s=LATER_S)) for n in range(3)]
        await asyncio.sleep(0)
        async with asyncio.timeout(GIVES_UP_S):
            assert await db.all("SELECT 9", then=("SELECT 10", ())) == [(9,)]
            assert await asyncio.gather(*patient) == [[(0,)], [(1,)], [(2,)]]
        await db.close()

    asyncio.run(main())


def test_what_has_time_is_sent_even_if_nothing_follows_and_no_connection_can_be_had_at_first(monkeypatch):
    made = PostgresWire.open

    async def refused(*_):
        monkeypatch.setattr(PostgresWire, "open", made)
        raise psycopg.OperationalError("not yet")

    async def main():
        db = pool(size=1, patience_s=0.0)
        monkeypatch.setattr(PostgresWire, "open", refused)
        patient = [asyncio.ensure_future(db.all("SELECT %s::int", (n,), within_s=0.001)) for n in range(3)]
        async with asyncio.timeout(GIVES_UP_S):
            found = await asyncio.gather(*patient, return_exceptions=True)
        assert isinstance(found[0], turnlog.TurnlogError)
        assert found[1:] == [[(1,)], [(2,)]]
        await db.close()

    asyncio.run(main())


def test_the_convlog_shares_the_connections_of_its_store(tmp_path):
    url = postgres.url_of(tmp_path)

    async def main():
        async with open_store(url) as store, open_convlog(url) as convlog:
            assert convlog._backend._db.connections is store._db.connections
            async with open_store(f"{url}&pool=3") as other:
                assert other._db.connections is not store._db.connections
        async with open_convlog(url) as convlog:
            assert await convlog.list() is not None

    asyncio.run(main())


def test_a_lease_and_the_first_append_are_one_round_trip(tmp_path):
    async def main():
        async with counted(tmp_path) as (trips, url), open_store(f"{url}&pool=1") as store:
            await store.append("s1", [opened("s1")])
            before = trips.count
            async with store.lease("s1", wait_s=0, with_append=True) as lease:
                await store.append("s1", [said("hello")], lease=lease, expect=1)
                assert trips.count == before + 1
                assert lease.live
            assert trips.count == before + 2

    asyncio.run(main())


def test_an_append_that_finds_another_log_takes_no_lease(tmp_path):
    url = postgres.url_of(tmp_path)

    async def main():
        async with open_store(url) as one, open_store(url) as two:
            await one.append("s1", [opened("s1")])
            await one.append("s1", [entry(type="title", title="mine")])
            await two.append("s1", [entry(type="title", title="theirs")])
            async with one.lease("s1", wait_s=0, with_append=True) as lease:
                await raises(Conflict, one.append("s1", [said("hello")], lease=lease, expect=2))
                assert not lease.live
                async with two.lease("s1", wait_s=0):
                    pass
                await raises(Conflict, one.append("s1", [said("hello")], lease=lease))
            assert len(await one.read("s1")) == 3

    asyncio.run(main())


def test_an_append_with_its_lease_whose_answer_is_lost_is_stored_once_and_holds_the_lease(tmp_path):
    here = postgres.server()

    async def main():
        async with postgres.Proxy(here.port) as proxy:
            options = {"schema": postgres.name_of(tmp_path), "lease_s": postgres.LONG_S, "listen": "off"}
            url = here.url("postgres", tcp=True, port=proxy.port, **options)
            async with open_store(url) as store, open_store(postgres.url_of(tmp_path)) as other:
                await store.append("s1", [opened("s1")])
                async with store.lease("s1", wait_s=0, with_append=True) as lease:
                    proxy.cut_answers_after = 0
                    await store.append("s1", [said("once")], lease=lease, expect=1)
                    assert proxy.broken
                    assert lease.live
                    await raises(Busy, other.lease("s1", wait_s=0).__aenter__())
                    await store.append("s1", [said("twice")], lease=lease)
                assert [e.seq for e in await other.read("s1")] == [1, 2, 3]
                async with other.lease("s1", wait_s=GIVES_UP_S):
                    pass

    asyncio.run(main())


@pytest.fixture
def asked(monkeypatch):
    """The statements about single facts."""
    found = []
    every = PostgresPool.all

    async def recorded(self, sql, values=(), **options):
        found.extend(values[:2] for _ in range("FROM turnlog.ledger WHERE space = %s AND key = %s" in sql))
        return await every(self, sql, values, **options)

    monkeypatch.setattr(PostgresPool, "all", recorded)
    return found


async def is_kept(ledger, asked):
    """Whether the next answer comes from memory."""
    asked.clear()
    await ledger.get("tokens", "t1", from_memory=True)
    return not asked


async def wait_until_kept(ledger, asked):
    async with asyncio.timeout(GIVES_UP_S):
        while not await is_kept(ledger, asked):  # noqa: ASYNC110 - the database answers
            await asyncio.sleep(0.02)


async def wait_for(ledger, value):
    async with asyncio.timeout(GIVES_UP_S):
        while await ledger.get("tokens", "t1", from_memory=True) != value:  # noqa: ASYNC110 - the database answers
            await asyncio.sleep(0.001)


def test_a_token_in_memory_changes_when_another_server_or_a_person_changes_it(tmp_path, asked):
    url = postgres.url_of(tmp_path)
    table = f'"{postgres.name_of(tmp_path)}".ledger'

    async def main():
        async with open_store(url) as one, open_store(url) as two:
            await one.ledger.put_if_absent("tokens", "t1", "valid")
            await wait_until_kept(two.ledger, asked)
            assert await two.ledger.get("tokens", "t1", from_memory=True) == "valid"
            assert await one.ledger.cas("tokens", "t1", "valid", "revoked")
            await wait_for(two.ledger, "revoked")
            await wait_until_kept(two.ledger, asked)
            postgres.server().sql(f"UPDATE {table} SET value_json = '\"by hand\"' WHERE space = 'tokens'")
            await wait_for(two.ledger, "by hand")
            await wait_until_kept(two.ledger, asked)
            postgres.server().sql(f"DELETE FROM {table} WHERE space = 'tokens'")
            await wait_for(two.ledger, None)

    asyncio.run(main())


def test_a_token_in_memory_is_gone_when_the_call_that_revokes_it_here_returns(tmp_path, asked):
    async def main():
        async with open_store(postgres.url_of(tmp_path)) as store:
            await store.ledger.put_if_absent("tokens", "t1", "valid")
            await wait_until_kept(store.ledger, asked)
            heard = store._notifier._take
            store._notifier._take = lambda name: name in store._notifier._echoes and heard(name)  # all else is late
            assert await store.ledger.delete("tokens", "t1")
            assert await store.ledger.get("tokens", "t1", from_memory=True) is None

    asyncio.run(main())


def test_a_fact_in_memory_expires_at_its_time(tmp_path, asked):
    now = [1_000_000]

    async def main():
        async with open_store(postgres.url_of(tmp_path), clock=lambda: now[0]) as store:
            await store.ledger.put_if_absent("tokens", "t1", "short", ttl_s=60)
            await wait_until_kept(store.ledger, asked)
            now[0] += 59_999
            assert await store.ledger.get("tokens", "t1", from_memory=True) == "short"
            now[0] += 1
            assert await store.ledger.get("tokens", "t1", from_memory=True) is None

    asyncio.run(main())


def test_nothing_is_taken_from_memory_once_the_listening_connection_is_gone(tmp_path, asked):
    here = postgres.server()
    name = here.database(tmp_path)
    cut = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND query LIKE 'LISTEN %'"
    )

    async def main():
        async with open_store(here.url(name)) as store:
            await store.ledger.put_if_absent("tokens", "t1", "valid")
            await wait_until_kept(store.ledger, asked)
            kept = dict(store.ledger._kept)
            assert here.sql(cut, name) == [(1,)]
            await until(lambda: store._notifier._heard_at < 0 or store.ledger._kept != kept)
            await wait_until_kept(store.ledger, asked)

    asyncio.run(main())


def test_nothing_is_taken_from_memory_behind_a_pooler_that_delivers_no_notifications(tmp_path, asked):
    here = postgres.server()
    socket_path = here.root / f".s.PGSQL.{here.port}"

    async def main(port):
        options = {"schema": postgres.name_of(tmp_path), "lease_s": postgres.LONG_S}
        async with open_store(here.url("postgres", tcp=True, port=port, **options)) as store:
            await store.ledger.put_if_absent("tokens", "t1", "valid")
            assert not await is_kept(store.ledger, asked)
            await until(lambda: store._notifier._echoes)
            for _ in range(20):
                assert not await is_kept(store.ledger, asked)
                await asyncio.sleep(0.02)

    with Pooler(str(socket_path)) as pooler:
        asyncio.run(main(pooler.port))

"""Lists of the SQLite store over many sessions: the indexes that answer them, few and many hits, older databases."""

import asyncio
import threading
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from turnlog import Query, open_store
from turnlog.core.query import UNTRASHED, rank
from turnlog.stores import finding, index_timer
from turnlog.stores.sqlite import opening, statements as statements, store as sqlite_store
from turnlog.stores.sqlite.connection import SqliteConnection
from turnlog.testing import answered, entry, opened, said
from turnlog.testing.store_finding import FindingContract

SORTS = ("newest", "messages", "tokens")
STATUSES = ("inactive", "active", "archived", "trashed")


async def plant(store, count=40):
    for n in range(count):
        name = f"s{n:03}"
        body = opened(name, peer=f"p{n}", agent="ops" if n % 3 else "main")
        async with store.lease(name) as lease:
            talk = [said(f"word {n}"), answered("a" * n)] * (n % 4)
            await store.append(name, [body, *talk, entry(type="status", value=STATUSES[n % 4])], lease=lease)


all_pages = FindingContract.all_pages


@pytest.mark.parametrize("size", [1, 7, 10, 40, 200])
def test_every_row_is_given_once_whatever_the_size_of_a_page(size, monkeypatch):
    monkeypatch.setattr(finding, "PAGE_MAX", size)

    async def look():
        async with open_store("memory:") as store:
            await plant(store)
            rows = [row.id async for row in finding.every_row(store.find, Query(limit=3))]
            assert sorted(rows) == [f"s{n:03}" for n in range(40)]
            ops = [row async for row in finding.every_row(store.find, Query(agent="ops"))]
            assert {row.agent for row in ops} == {"ops"}
            assert not [row async for row in finding.every_row(store.find, Query(agent="nobody"))]

    asyncio.run(look())


@pytest.mark.parametrize("few", [0, 5, 10_000])
@pytest.mark.parametrize("sort", SORTS)
def test_lists_are_the_same_whether_few_or_many_rows_match(few, sort, tmp_path, monkeypatch):
    monkeypatch.setattr(statements, "FEW_OF_BROAD", few)

    async def look():
        async with open_store(f"sqlite:{tmp_path}/s.db") as store:
            await plant(store)
            everything = (await store.find(Query(limit=200))).items
            for more in (*LISTS, {"agent": "ops"}, {"agent": "nobody"}):
                query = Query(sort=sort, limit=3, **more)
                wanted = list(filter(statements.queries.matcher(query), everything))
                wanted.sort(key=lambda row: rank(sort, row), reverse=True)
                assert await all_pages(store, query) == wanted

    asyncio.run(look())


@pytest.mark.parametrize("few", [0, 5, 10_000])
@pytest.mark.parametrize("sort", SORTS)
def test_words_are_found_alike_whether_few_or_many_have_them(few, sort, tmp_path, monkeypatch):
    monkeypatch.setattr(statements, "FEW", few)

    async def look():
        async with open_store(f"sqlite:{tmp_path}/s.db") as store:
            await plant(store)
            everything = (await store.find(Query(limit=200))).items
            for words in ("s0", "s01", "ops s0", "nothing"):
                for more in ({}, {"agent": "ops"}, {"status": UNTRASHED}, {"status": "trashed"}, {"channel": "cli"}):
                    query = Query(q=words, sort=sort, limit=3, **more)
                    wanted = list(filter(statements.queries.matcher(query), everything))
                    wanted.sort(key=lambda row: rank(sort, row), reverse=True)
                    assert await all_pages(store, query) == wanted

    asyncio.run(look())


LISTS = [
    {},
    {"status": UNTRASHED},
    {"status": "trashed"},
    {"agent": "main", "status": UNTRASHED},
    {"channel": "cli", "status": UNTRASHED},
    {"agent": "main", "channel": "cli", "status": UNTRASHED},
]


@pytest.mark.parametrize("sort", SORTS)
def test_few_rows_of_an_agent_channel_or_status_are_found_without_a_look_at_the_others(sort, tmp_path):
    asyncio.run(_make(tmp_path))
    for fields in LISTS[1:]:
        for sql, plan in plans(tmp_path / "s.db", Query(sort=sort, limit=5, **fields)):
            looks = [line for line in plan if "sessions" in line and "PRIMARY KEY" not in line]
            assert looks
            assert all(line.startswith("SEARCH") for line in looks), (sql, plan)


@pytest.mark.parametrize("sort", SORTS)
def test_lists_are_read_off_an_index_and_only_their_own_rows_are_looked_at(sort, tmp_path, monkeypatch):
    monkeypatch.setattr(statements, "FEW_OF_BROAD", 0)
    asyncio.run(_make(tmp_path))
    for fields in LISTS:
        for sql, plan in plans(tmp_path / "s.db", Query(sort=sort, limit=5, **fields)):
            looks = [line for line in plan if "sessions" in line and "PRIMARY KEY" not in line]
            assert looks
            assert all("COVERING INDEX" in line for line in looks), (sql, plan)
            if sort == "newest":
                assert sum("TEMP B-TREE" in line for line in plan) <= 1, plan  # the page's own rows


FEW_HAVE = {
    "sessions_by_home": {"homes": ("agent:main:cli:direct:p0",)},
    "sessions_by_peer": {"peer": "p0"},
    "sessions_last_role": {"last_role": "failed"},
    "sessions_waiting": {"waiting": True},
    "sessions_needed_approval": {"needed_approval": True},
    "sessions_unfinished": {"unfinished": True},
}


@pytest.mark.parametrize("index", FEW_HAVE)
@pytest.mark.parametrize("more", LISTS)
def test_what_few_rows_have_is_found_without_a_look_at_the_others(index, more, tmp_path):
    asyncio.run(_make(tmp_path))
    for sql, plan in plans(tmp_path / "s.db", Query(limit=5, **FEW_HAVE[index], **more)):
        looks = [line for line in plan if "sessions" in line and "PRIMARY KEY" not in line]
        assert looks
        assert all(index in line or "sessions_by_key" in line for line in looks), (sql, plan)


def test_many_rows_of_one_person_are_walked_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(statements, "FEW", 0)
    asyncio.run(_make(tmp_path))
    for fields in ({"homes": ("agent:main:cli:direct:p0",)}, {"peer": "p0"}):
        _, plan = plans(tmp_path / "s.db", Query(limit=5, **fields))[1]
        assert any("sessions_newest" in line for line in plan), plan


def test_a_word_is_looked_for_in_the_index_of_words(tmp_path):
    asyncio.run(_make(tmp_path))
    for fields in LISTS:
        _, plan = plans(tmp_path / "s.db", Query(q="word", **fields))[0]
        assert plan == ["SCAN sessions USING COVERING INDEX sessions_words"]
    _, plan = plans(tmp_path / "s.db", Query(q="word", key="agent:main:cli:direct:p0"))[0]
    assert "sessions_by_key" in plan[0]


async def _make(place):
    async with open_store(f"sqlite:{place}/s.db") as store:
        await plant(store, 8)


def plans(path, query):
    """What was asked, and how SQLite goes about it."""
    db = SqliteConnection(path)
    asked = []

    class Listening:
        def all(self, sql, values=()):
            asked.append((sql, values))
            return db.all(sql, values)

        def one(self, sql, values=()):
            asked.append((sql, values))
            return db.one(sql, values)

    statements.find(Listening(), query)
    told = [(sql, [line[3] for line in db.all(f"EXPLAIN QUERY PLAN {sql}", values)]) for sql, values in asked]
    db.close()
    return told


def test_a_database_of_an_older_schema_is_brought_up_to_date_with_all_its_sessions(tmp_path, monkeypatch):
    steps = opening.migrations()
    assert len(steps) > 1

    async def look():
        async with open_store(f"sqlite:{tmp_path}/s.db") as store:
            return [await all_pages(store, Query(sort=sort, limit=7, status=UNTRASHED)) for sort in SORTS]

    with monkeypatch.context() as patch:
        patch.setattr(opening, "migrations", lambda: steps[:1])
        asyncio.run(_make(tmp_path))
        before = asyncio.run(look())
    db = SqliteConnection(tmp_path / "s.db")
    assert db.pragma("user_version") == 1
    db.close()
    assert asyncio.run(look()) == before
    db = SqliteConnection(tmp_path / "s.db")
    assert db.pragma("user_version") == len(steps)
    db.close()


@pytest.mark.parametrize("kind", ["sqlite:{}/s.db", "jsonl:{}/s"])
def test_pages_of_a_list_that_changes_hold_nothing_twice(kind, tmp_path):
    """What moves up while pages are turned was seen before or is missed; the rest comes once, in order."""

    async def look():
        async with open_store(kind.format(tmp_path)) as store:
            await plant(store, 20)
            for sort in SORTS:
                query, seen = Query(sort=sort, limit=4), []
                while True:
                    page = await store.find(query)
                    seen += [row.id for row in page.items]
                    moved = f"s{len(seen) % 20:03}"
                    async with store.lease(moved) as lease:
                        await store.append(moved, [said("more"), answered("much more")], lease=lease)
                    if page.next is None:
                        break
                    query = replace(query, cursor=page.next)
                assert len(seen) == len({*seen})

    asyncio.run(look())


def test_closing_while_the_index_is_being_filled_reports_nothing(tmp_path, monkeypatch):
    """The part that is being indexed plans the next one, which must not run on a closed store."""
    begun = threading.Event()
    reported = []

    def index_some(_db):
        begun.set()
        return True

    monkeypatch.setattr(index_timer, "INDEX_AFTER_S", 0)
    monkeypatch.setattr(sqlite_store.searching, "index_some", index_some)
    monkeypatch.setattr(index_timer, "report", lambda name, error: reported.append((name, error)))

    async def run():
        async with open_store(f"sqlite:{tmp_path}/s.db") as store:
            await store.append("s", [opened("s")])
            await asyncio.to_thread(begun.wait)
        for _ in range(50):
            await asyncio.sleep(0)

    asyncio.run(run())
    assert reported == []


def columns(path):
    db = SqliteConnection(path)
    try:
        return db.all("SELECT * FROM sessions ORDER BY session_id")
    finally:
        db.close()


def test_the_columns_follow_the_row_append_by_append(tmp_path):
    """An append sets only the columns that it changes; a reindex sets all."""

    async def run():
        async with open_store(f"sqlite:{tmp_path}/s.db") as store:
            async with store.lease("s") as lease:
                await store.append("s", [opened("s")], lease=lease)
                for bodies in (
                    [said("Straße \ud800"), answered("b")],
                    [entry(type="title", title="Ein Titel \ud800", by="user")],
                    [said("c"), answered("d")],
                    [entry(type="status", value="archived")],
                    [entry(type="rewind", to=3)],
                    [said("e")],
                    [entry(type="status", value="active")],
                ):
                    await store.append("s", bodies, lease=lease)
                    before = columns(tmp_path / "s.db")
                    await store.reindex()
                    assert columns(tmp_path / "s.db") == before
            await store.append("s", [entry(type="title", title="later", by="user")])
            await store.append("s", [entry(type="title", title="latest", by="user")])
            assert [row.title for row in (await store.find(Query(q="latest"))).items] == ["latest"]
            assert not (await store.find(Query(q="later"))).items

    asyncio.run(run())


def test_an_append_writes_no_index_that_it_does_not_change(tmp_path, monkeypatch):
    monkeypatch.setattr(index_timer, "INDEX_AFTER_S", 60)
    unchanged = ("sessions_by_status", "sessions_by_channel", "sessions_words", "sessions_by_key")

    async def run():
        async with open_store(f"sqlite:{tmp_path}/s.db") as store:
            async with store.lease("s") as lease:
                await store.append("s", [opened("s"), said("a"), answered("b")], lease=lease)
                size = (tmp_path / "s.db-wal").stat().st_size
                await store.append("s", [said("c"), answered("d")], lease=lease)
            db = SqliteConnection(tmp_path / "s.db")
            pages = dict(db.all("SELECT name, rootpage FROM sqlite_schema WHERE rootpage > 0"))
            db.close()
            written = (tmp_path / "s.db-wal").read_bytes()[size:]
            frame = 24 + 4096
            assert written
            assert len(written) % frame == 0
            numbers = {int.from_bytes(written[at : at + 4]) for at in range(0, len(written), frame)}
            assert pages["sessions"] in numbers
            assert numbers.isdisjoint(pages[name] for name in unchanged)

    asyncio.run(run())


def test_words_are_indexed_when_appends_pause_or_at_the_latest_in_time(monkeypatch):
    clock = SimpleNamespace(now=100.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(index_timer, "time", clock)
    monkeypatch.setattr(index_timer, "INDEX_AFTER_S", 60)  # no timer runs out here
    monkeypatch.setattr(index_timer, "INDEX_LATEST_S", 100)
    indexed = []

    async def index_some():
        indexed.append(clock.now)
        return False

    async def run():
        timer = index_timer.IndexTimer(index_some)

        async def look(now, latest):
            clock.now = now
            timer._timer.cancel()
            timer._in_time(latest)
            for _ in range(3):
                await asyncio.sleep(0)

        timer.written()
        await look(159.0, latest=200.0)
        assert not indexed, "the last append was 59 seconds ago"
        assert timer._timer.when() > asyncio.get_running_loop().time(), "it looks again"
        await look(160.0, latest=200.0)
        assert indexed == [160.0]
        timer.written()
        await look(161.0, latest=161.0)
        assert indexed == [160.0, 161.0], "not later than that, although something was just written"
        timer.soon()
        await timer.close()
        timer.written()
        assert timer._timer.cancelled(), "a closed timer starts nothing"

    asyncio.run(run())

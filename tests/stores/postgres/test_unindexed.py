"""A search on PostgreSQL finds what its index does not have yet."""

import asyncio

import pytest
from hypothesis import given, strategies as st

from turnlog import Query, open_store
from turnlog.codecs import native
from turnlog.core import search
from turnlog.core.entries import Assistant, Opened, User
from turnlog.core.words import fold, indexed
from turnlog.stores import index_timer
from turnlog.stores.postgres import search_index, unindexed

from ...waiting import GIVES_UP_S, LOOK_S
from .. import postgres


def opened(name):
    return Opened(id=name, key=f"agent:main:cli:direct:{name}", agent="main", channel="cli")


async def write(store, name, *texts):
    async with store.lease(name) as lease:
        await store.append(name, [opened(name), *(User(content=text) for text in texts)], lease=lease)


async def marks(store):
    return dict(await store._db.all("SELECT session_id, indexed_to FROM turnlog.sessions"))


@pytest.fixture
def no_timer(monkeypatch):
    monkeypatch.setattr(index_timer, "INDEX_AFTER_S", 3_600)


def running(tmp_path, work):
    async def run():
        async with open_store(postgres.url_of(tmp_path)) as store:
            await work(store)

    asyncio.run(run())


def test_a_search_finds_new_entries_without_waiting_for_the_index(tmp_path, no_timer):
    async def work(store):
        await write(store, "s1", "the zebra", "the horse")
        assert [hit.seq for hit in await store.search("the")] == [3, 2]
        assert [hit.seq for hit in await store.search("zebra", scope=Query(id="s1"))] == [2]
        assert await store.search("zebra", scope=Query(id="s2")) == []
        assert await store.search("zebra", before=2) == []
        assert await marks(store) == {"s1": 0}

    running(tmp_path, work)


def test_a_search_of_new_entries_lets_them_be_indexed_soon(tmp_path, monkeypatch):
    monkeypatch.setattr(index_timer, "INDEX_AFTER_S", 3_600)

    async def work(store):
        await write(store, "s1", "the zebra")

    running(tmp_path, work)
    monkeypatch.setattr(index_timer, "INDEX_AFTER_S", 0)

    async def look(store):
        assert await store.search("zebra")

        async with asyncio.timeout(GIVES_UP_S):
            while await marks(store) != {"s1": 2}:  # noqa: ASYNC110 - the database says when
                await asyncio.sleep(LOOK_S)
        assert len(await store.search("zebra")) == 1

    running(tmp_path, look)


@pytest.mark.parametrize(("limit", "value"), [("ENTRIES_MAX", 3), ("BYTES_MAX", 300)])
def test_more_new_entries_than_a_search_looks_through_are_indexed_first(tmp_path, monkeypatch, no_timer, limit, value):
    monkeypatch.setattr(unindexed, limit, value)

    async def work(store):
        await write(store, "s1", "the zebra")
        assert await store.search("zebra")
        assert await marks(store) == {"s1": 0}
        await write(store, "s2", "the zebra")
        assert len(await store.search("zebra", scope=Query(id="s2"))) == 1
        assert await marks(store) == {"s1": 0, "s2": 0}  # in its scope there are few
        assert len(await store.search("zebra")) == 2
        assert await marks(store) == {"s1": 2, "s2": 2}

    running(tmp_path, work)


def test_an_entry_that_is_indexed_during_a_search_is_found_once(tmp_path, monkeypatch, no_timer):
    read = unindexed.read

    async def read_and_index(db, scope):
        found = await read(db, scope)
        await search_index.catch_up(db)
        return found

    async def work(store):
        await write(store, "s1", "the zebra", "the horse")
        monkeypatch.setattr(unindexed, "read", read_and_index)
        monkeypatch.setattr(search, "CANDIDATES_MAX", 2)  # an entry that counts twice would displace another
        assert [hit.seq for hit in await store.search("the")] == [3, 2]
        assert await marks(store) == {"s1": 3}

    running(tmp_path, work)


def test_after_an_erasure_what_the_index_has_of_the_session_is_not_trusted(tmp_path, no_timer):
    async def work(store):
        await write(store, "s1", "the zebra", "the horse")
        await search_index.catch_up(store._db)
        assert [hit.seq for hit in await store.search("the")] == [3, 2]
        await store.erase("s1", [2], redact=True)
        assert (await marks(store))["s1"] < 0
        assert await store.search("zebra") == []
        assert (await marks(store))["s1"] > 3
        assert [hit.seq for hit in await store.search("the")] == [3]

    running(tmp_path, work)


def test_new_entries_that_are_erased_are_not_found(tmp_path, no_timer):
    async def work(store):
        await write(store, "s1", "the zebra", "the horse")
        assert [hit.seq for hit in await store.search("the")] == [3, 2]
        await store.erase("s1", [2], redact=True)
        assert [hit.seq for hit in await store.search("the")] == [3]
        assert await store.search("zebra") == []

    running(tmp_path, work)


PIECES = (
    "The",
    "plan",
    "parseConfig",
    "INV2041",
    "1,234",
    "2026-12-01T08",
    "\\n",
    "\n",
    "\t",
    '"',
    "\\",
    "é",
    "\x01",
    "中",
    " ",
)


@given(st.lists(st.sampled_from(PIECES), min_size=1))
def test_no_entry_that_matches_is_left_out_before_it_is_decoded(pieces):
    text = "".join(pieces)
    for body in (User(content=text), Assistant(content=[{"type": "text", "text": text}])):
        one = unindexed.UnindexedEntry("s1", 2, 0, native.encode_stored(body).decode())
        for token in indexed(text):
            assert one.may_have((search.Term((search.Phrase((token,)),)),)) or token == "¦"
        assert [folded for _, folded in one.units()] == ([fold(text)] if text.strip() else [])


def test_an_entry_with_escaped_letters_is_decoded_before_it_is_left_out():
    one = unindexed.UnindexedEntry("s1", 2, 0, '{"type":"user","seq":2,"ts":"","content":"\\u007aebra"}')
    assert one.may_have(search.understand("zebra").strict)
    assert [folded for _, folded in one.units()] == ["zebra"]

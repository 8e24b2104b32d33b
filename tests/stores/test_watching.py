"""Those who follow sessions share one look: whatever goes wrong with it, it goes on; and with the store it ends."""

import asyncio
import errno

import pytest
from msgspec.structs import replace

from turnlog import open_store
from turnlog.core.entries import Opened, Title
from turnlog.errors import StoreUnavailable
from turnlog.stores import index_timer, watching
from turnlog.stores.sqlite import statements as statements
from turnlog.stores.sqlite.writer import SqliteWriter
from turnlog.stores.watching import Watchers
from turnlog.testing import said

from ..waiting import GIVES_UP_S, until

OPENED = Opened(id="s", key="agent:main:cli:direct:user", agent="main", channel="cli")


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "too many"), StoreUnavailable("away")])
def test_a_look_that_fails_is_not_the_last(error):
    asked, told = [], []

    def ends(names):
        asked.append(names)
        if len(asked) in (2, 3):
            raise error
        return {name: len(asked) for name in names}

    async def story():
        here = Watchers(ends=ends)

        class Here:
            async def read(self, session_id, *, after, limit, incarnation):
                return [replace(said(str(after)), seq=after + 1)] if len(asked) > 3 and after < 1 else []

        async for entry in here.follow(Here(), "s", 0, "i"):
            told.append(entry.seq)
            break

    asyncio.run(asyncio.wait_for(story(), GIVES_UP_S))
    assert told == [1]


def test_a_look_is_begun_anew_for_those_who_come_after_everybody_left():
    async def story():
        looks = []
        here = Watchers(ends=lambda names: looks.append(names) or {name: len(looks) for name in names})

        class Here:
            async def read(self, session_id, *, after, limit, incarnation):
                return [replace(said("x"), seq=after + 1)]

        for _ in range(2):
            async for _ in here.follow(Here(), "s", 0, "i"):
                break
            await until(lambda: here._looking is None)
        assert looks

    asyncio.run(asyncio.wait_for(story(), GIVES_UP_S))


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_those_who_follow_are_not_left_waiting_by_a_store_that_is_closed(tmp_path, kind):
    url = f"jsonl:{tmp_path}/files" if kind == "jsonl" else f"sqlite:{tmp_path}/sessions.db"

    async def story():
        async with open_store(url, durability="os") as store:
            await store.append("s", [OPENED])
            following = aiter(store.watch("s", after=0))
            assert (await anext(following)).seq == 1
            waiting = asyncio.ensure_future(anext(following, None))
            await asyncio.sleep(0.1)
        assert await asyncio.wait_for(waiting, GIVES_UP_S) is None

    asyncio.run(story())


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_one_of_two_stores_sees_what_the_other_writes_also_after_a_long_silence(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(watching, "LOOK_MAX_S", 0.2)
    url = f"jsonl:{tmp_path}/files" if kind == "jsonl" else f"sqlite:{tmp_path}/sessions.db"

    async def story():
        async with open_store(url, durability="os") as one, open_store(url, durability="os") as two:
            await one.append("s", [OPENED])
            following = aiter(two.watch("s", after=1))
            waiting = asyncio.ensure_future(anext(following))
            await asyncio.sleep(0.5)
            assert not waiting.done()
            await one.append("s", [Title(title="new", by="user")])
            assert (await asyncio.wait_for(waiting, GIVES_UP_S)).seq == 2
            await following.aclose()

    asyncio.run(story())


def test_what_a_failed_look_did_not_find_is_looked_for_again(tmp_path, monkeypatch):
    url, looks, failing = f"sqlite:{tmp_path}/sessions.db", [], []
    ends_of = statements.ends_of

    def sometimes(db, names):
        looks.append(names)
        if failing:
            failing.pop()
            raise StoreUnavailable("away")
        return ends_of(db, names)

    async def story():
        async with open_store(url, durability="os") as one, open_store(url, durability="os") as two:
            await one.append("s", [OPENED])
            following = aiter(two.watch("s", after=1))
            waiting = asyncio.ensure_future(anext(following))
            await asyncio.sleep(0.5)
            failing.append(True)
            await one.append("s", [Title(title="new", by="user")])
            assert (await asyncio.wait_for(waiting, GIVES_UP_S)).seq == 2
            assert not failing
            await following.aclose()

    monkeypatch.setattr(statements, "ends_of", sometimes)
    monkeypatch.setattr(index_timer, "INDEX_AFTER_S", 60)  # or its commit would bring the next look about
    asyncio.run(story())


def test_a_transaction_that_cannot_begin_is_told_to_those_who_wait_for_it():
    class Broken:
        path = "nowhere"

        def wait_when_busy(self, ms):
            raise OSError(errno.EIO, "the disk is gone")

    async def story():
        with pytest.raises(OSError, match="the disk is gone"):
            await asyncio.wait_for(SqliteWriter(Broken()).run(lambda db: None), GIVES_UP_S)

    asyncio.run(story())

"""An append on the spot: what `append` would store, or nothing at all; it never waits."""

import asyncio
import threading
import time
from contextlib import contextmanager

import apsw
import pytest

from turnlog.core.entries import Assistant, Opened, Rewind, User
from turnlog.errors import Conflict, NotFound, UsageError
from turnlog.runtime.engine import Engine
from turnlog.stores import open_store
from turnlog.stores.at_once import append_at_once
from turnlog.stores.disk import syncing

from ...waiting import GIVES_UP_S

ID = "ses-a"


@pytest.fixture(autouse=True)
def _any_disk(monkeypatch):
    monkeypatch.setattr(syncing, "ENGINE_INLINE_MAX_S", 1_000)


def stored(call, *bodies, **expected):
    """Calls until the loop has nothing else to do."""
    until = time.monotonic() + GIVES_UP_S
    while (appended := call(*bodies, **expected)) is None:
        assert time.monotonic() < until
        time.sleep(0.001)
    return appended


@contextmanager
def store_of(path, **options):
    """(a store in the loop of an engine, what runs a function there outside of any task, the engine)"""
    engine = Engine()
    try:
        entered = engine.enter(open_store(f"sqlite:{path}", **options))
        store = entered.value

        async def begin():
            return (await store.append(ID, [Opened(id=ID, key="k", agent="main", channel="cli")])).row

        row = engine.run(begin())

        def call(*bodies, expect=None, incarnation=row.incarnation):
            return on_the_spot(engine, lambda: append_at_once(store)(ID, bodies, expect, incarnation))

        yield store, call, engine
    finally:
        engine.close()


def on_the_spot(engine, function):
    done, outcome = threading.Event(), []

    def run():
        try:
            outcome.append((function(), None))
        except BaseException as error:
            outcome.append((None, error))
        done.set()

    engine._loop.submit(run)
    assert done.wait(GIVES_UP_S)
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


def log_of(store, engine):
    return engine.run(store.read(ID))


def test_it_stores_what_append_stores(tmp_path):
    with store_of(tmp_path / "a.db") as (store, call, engine):
        appended = stored(call, User(content="hi"), Assistant(content="hello"))
        assert appended == log_of(store, engine)[1:]
        assert appended.row == engine.run(store.describe(ID))
        again = engine.run(store.append(ID, [User(content="again")], lease="own"))
        assert again[0].seq == 4, "the lease is free, and the row is known"


def test_what_is_refused_is_raised_and_not_stored(tmp_path):
    with store_of(tmp_path / "a.db") as (store, call, engine):
        with pytest.raises(UsageError):
            stored(call, User(content=5))
        with pytest.raises(UsageError):
            stored(call, Rewind(to=9))
        with pytest.raises(Conflict):
            stored(call, User(content="hi"), expect=7)
        with pytest.raises(NotFound):
            stored(call, User(content="hi"), incarnation="another")
        assert len(log_of(store, engine)) == 1
        assert stored(call, User(content="hi"), expect=1), "and the lease is free again"


def test_it_does_not_wait_for_a_lease_here_or_elsewhere(tmp_path):
    with store_of(tmp_path / "a.db") as (store, call, engine), store_of_other(tmp_path / "a.db") as (other, its_engine):
        for holder, owner in ((store, engine), (other, its_engine)):
            held = owner.enter(holder.lease(ID))
            assert call(User(content="hi")) is None
            held.exit()
        assert len(log_of(store, engine)) == 1
        assert stored(call, User(content="hi"))


@contextmanager
def store_of_other(path):
    engine = Engine()
    try:
        yield engine.enter(open_store(f"sqlite:{path}")).value, engine
    finally:
        engine.close()


def test_it_does_not_wait_for_the_database_and_gives_the_lease_back(tmp_path):
    with store_of(tmp_path / "a.db") as (store, call, engine):
        db = apsw.Connection(str(tmp_path / "a.db"))
        db.execute("BEGIN IMMEDIATE")
        assert call(User(content="hi")) is None
        held = engine.enter(store.lease(ID, wait_s=0))
        held.exit()
        db.execute("ROLLBACK")
        db.close()
        assert stored(call, User(content="hi"))


def test_it_leaves_changes_that_can_share_a_transaction_to_append(tmp_path):
    with store_of(tmp_path / "a.db") as (store, _, engine):
        append = append_at_once(store)
        row = engine.run(store.describe(ID))

        async def among_others():
            others = [asyncio.ensure_future(store.ledger.put_if_absent("s", str(n), n)) for n in range(3)]
            refused = append(ID, [User(content="hi")], None, row.incarnation)
            await asyncio.gather(*others)
            return refused

        assert engine.run(among_others()) is None


def test_a_loop_that_has_other_work_is_never_kept_waiting(tmp_path):
    async def story():
        async with open_store(f"sqlite:{tmp_path}/a.db") as store:
            row = (await store.append(ID, [Opened(id=ID, key="k", agent="main", channel="cli")])).row
            await asyncio.sleep(0)
            return append_at_once(store)(ID, [User(content="hi")], None, row.incarnation)

    assert asyncio.run(story()) is None


def test_followers_see_it_at_once(tmp_path):
    with store_of(tmp_path / "a.db") as (store, call, engine):

        async def first():
            async for entry in store.watch(ID, after=1):
                return entry
            return None

        async def follow():
            return asyncio.ensure_future(first())

        following = engine.run(follow())
        stored(call, User(content="hi"))

        async def seen():
            return await asyncio.wait_for(following, GIVES_UP_S)

        assert engine.run(seen()).content == "hi"


def test_other_stores_do_not_offer_it(tmp_path):
    async def story():
        async with open_store(f"jsonl:{tmp_path}/a") as files, open_store("memory:") as memory:
            return [append_at_once(one) for one in (files, memory)]

    assert asyncio.run(story()) == [None, None]

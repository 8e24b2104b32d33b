"""Ids of entries in SQLite: they rise with every commit, whoever writes, so that the word index misses none."""

import asyncio

import apsw
import pytest

from turnlog.core.query import Query
from turnlog.stores import open_store
from turnlog.stores.sqlite import entry_rows
from turnlog.testing import opened, said


def asked(place, sql, values=()):
    db = apsw.Connection(str(place))
    try:
        return db.execute(sql, values).fetchall()
    finally:
        db.close()


def ids(place):
    return [number for (number,) in asked(place, "SELECT id FROM session_messages ORDER BY session_id, seq")]


def reserved_to(place):
    return asked(place, "SELECT seq FROM sqlite_sequence WHERE name = 'session_messages'")[0][0]


async def say(store, session_id, *texts):
    await store.append(session_id, [said(text) for text in texts], lease="own")


async def found(store, word):
    return {(hit.session_id, hit.seq) for hit in await store.search(word, scope=Query())}


@pytest.fixture
def place(tmp_path):
    return tmp_path / "s.db"


def test_an_append_leaves_the_reserved_number_alone(place):
    async def run():
        async with open_store(f"sqlite:{place}", durability="os") as store:
            await store.append("s1", [opened("s1")])
            await say(store, "s1", "word")
            reserved = reserved_to(place)
            assert reserved == 1 + entry_rows.RESERVED
            for n in range(20):
                await say(store, "s1", f"word{n}")
                assert reserved_to(place) == reserved
            assert ids(place) == list(range(1, 23))

    asyncio.run(run())


def test_more_than_were_reserved(place):
    async def run():
        async with open_store(f"sqlite:{place}", durability="os") as store:
            await store.append("s1", [opened("s1")])
            await say(store, "s1", *["many"] * (3 * entry_rows.RESERVED))
            await say(store, "s1", "after")
            numbers = ids(place)
            assert numbers == sorted(set(numbers))
            assert len(numbers) == 3 * entry_rows.RESERVED + 2
            assert reserved_to(place) >= numbers[-1]

    asyncio.run(run())


def test_ids_rise_while_two_processes_take_turns_and_delete_what_is_newest(place):
    async def run():
        highest = 0
        async with (
            open_store(f"sqlite:{place}", durability="os") as one,
            open_store(f"sqlite:{place}", durability="os") as other,
        ):
            await one.append("kept", [opened("kept")])
            for n in range(6):
                writer, deleter = (one, other) if n % 2 else (other, one)
                await writer.append("gone", [opened("gone")])
                await say(writer, "gone", "short")
                assert await found(writer, "short")
                before = max(ids(place))
                await deleter.delete("gone")
                await say(deleter if n % 3 else writer, "kept", f"lasting {n}")
                assert ids(place)[-1] > max(before, highest)
                highest = ids(place)[-1]
                assert ("kept", n + 2) in await found(one, "lasting")

    asyncio.run(run())


def test_a_session_that_is_deleted_and_written_again_by_one_store_is_found(place):
    async def run():
        async with open_store(f"sqlite:{place}", durability="os") as store:
            for n in range(3):
                await store.append("s1", [opened("s1")])
                await say(store, "s1", f"again{n}")
                assert await found(store, f"again{n}") == {("s1", 2)}
                await store.delete("s1")

    asyncio.run(run())


def test_another_version_inserts_without_an_id(place):
    async def run():
        async with open_store(f"sqlite:{place}", durability="os") as store:
            await store.append("s1", [opened("s1")])
            await say(store, "s1", "mine")
            line = (
                '{"type":"session","seq":1,"ts":"2026-01-01T00:00:00.000Z","version":1,"id":"s2","key":"k","agent":'
                '"main","channel":"c"}'
            )
            insert = "INSERT INTO session_messages (session_id, seq, created_at, meta_json) VALUES ('s2', 1, '', ?)"
            asked(place, insert, (line,))
            theirs = max(ids(place))
            assert theirs == 1 + entry_rows.RESERVED + 1
            await say(store, "s1", "later")
            assert max(ids(place)) > theirs
            assert await found(store, "later") == {("s1", 3)}

    asyncio.run(run())


def test_a_number_that_is_too_low_or_missing_does_no_harm(place):
    async def run(statement):
        asked(place, statement)
        async with open_store(f"sqlite:{place}", durability="os") as store:
            before = max(ids(place))
            await say(store, "s1", "word")
            assert max(ids(place)) > before

    async def begin():
        async with open_store(f"sqlite:{place}", durability="os") as store:
            await store.append("s1", [opened("s1")])
            await say(store, "s1", "one", "two")

    asyncio.run(begin())
    asyncio.run(run("UPDATE sqlite_sequence SET seq = 1"))
    asyncio.run(run("DELETE FROM sqlite_sequence"))


def test_ids_of_a_transaction_that_failed_are_reserved_anew(place, monkeypatch):
    async def run():
        async with open_store(f"sqlite:{place}", durability="os") as store:
            await store.append("s1", [opened("s1")])
            monkeypatch.setattr(entry_rows, "RESERVED", 4)
            await say(store, "s1", "x")
            assert reserved_to(place) == 5
            update = store._db.run

            def failing(sql, *values):
                update(sql, *values)
                if sql.startswith("UPDATE sessions"):
                    raise OSError("the disk is gone")

            monkeypatch.setattr(store._db, "run", failing)
            with pytest.raises(Exception, match="gone"):
                await say(store, "s1", "lost", "lost")
            monkeypatch.setattr(store._db, "run", update)
            assert reserved_to(place) == 5
            await say(store, "s1", "kept", "kept")
            assert ids(place)[-2:] == [6, 7]
            await say(store, "s1", "more")
            assert ids(place)[-1] == 8
            assert reserved_to(place) == 11

    asyncio.run(run())


def test_an_erasure_takes_the_next_id(place):
    async def run():
        async with open_store(f"sqlite:{place}", durability="os") as store:
            await store.append("s1", [opened("s1")])
            await say(store, "s1", "secret")
            assert await store.erase("s1", [2], redact=True) == [2]
            await say(store, "s1", "after")
            numbers = ids(place)
            assert numbers[:3] == [1, 2, 3]
            assert numbers[3] > 3
            assert await found(store, "after") == {("s1", 4)}

    asyncio.run(run())

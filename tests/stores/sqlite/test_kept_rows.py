"""Rows that a SQLite store keeps while another process writes: they are read again only where they have changed."""

import asyncio

import pytest

from turnlog.core.entries import Title
from turnlog.core.session import describe
from turnlog.stores import open_store
from turnlog.stores.sqlite import kept_rows, statements
from turnlog.testing import answered, opened, said


@pytest.fixture
def url(tmp_path):
    return f"sqlite:{tmp_path}/s.db"


async def append(store, session_id, *bodies):
    row = (await store.append(session_id, bodies, lease="own")).row
    assert row == describe(None, await store.read(session_id))
    return row


@pytest.fixture
def decoded(monkeypatch):
    """The texts of rows that were decoded."""
    decode, found = statements.decode_row, []

    def counted(text):
        found.append(text)
        return decode(text)

    monkeypatch.setattr(statements, "decode_row", counted)
    return found


def test_two_stores_that_write_in_turns_to_sessions_of_their_own(url, decoded):
    async def run():
        async with open_store(url, durability="os") as one, open_store(url, durability="os") as other:
            await one.append("s1", [opened("s1")])
            await other.append("s2", [opened("s2")])
            decoded.clear()
            for n in range(5):
                await one.append("s1", [said(f"question {n}"), answered(f"answer {n}")], lease="own")
                await other.append("s2", [said(f"question {n}"), answered(f"answer {n}")], lease="own")
            assert decoded == []
            for store in (one, other):
                for session_id in ("s1", "s2"):
                    assert await store.describe(session_id) == describe(None, await store.read(session_id))

    asyncio.run(run())


def test_a_row_that_another_store_changed(url):
    async def run():
        async with open_store(url, durability="os") as one, open_store(url, durability="os") as other:
            await append(one, "s1", opened("s1"), said("question"))
            await append(other, "s1", Title(title="a title of the other"))
            row = await append(one, "s1", answered("answer"))
            assert row.title == "a title of the other"
            await append(other, "s1", Title(title="a second one"))
            await append(other, "s2", opened("s2"))
            assert (await append(one, "s1", said("more"))).title == "a second one"
            assert (await one.describe("s1")).title == "a second one"

    asyncio.run(run())


def test_a_session_that_another_store_deleted_and_made_again(url):
    async def run():
        async with open_store(url, durability="os") as one, open_store(url, durability="os") as other:
            await append(one, "s1", opened("s1"), said("question"))
            await other.delete("s1")
            await append(other, "s1", opened("s1"), said("another question"), answered("another answer"))
            row = await append(one, "s1", said("more"))
            assert row.last_seq == 4

    asyncio.run(run())


def test_a_row_of_an_append_that_failed(url, monkeypatch):
    """It was kept before the transaction ended, and is not in the file."""

    def fail(*_):
        raise RuntimeError("broken on purpose")

    async def run():
        async with open_store(url, durability="os") as store:
            before = await append(store, "s1", opened("s1"), said("question"))
            with monkeypatch.context() as patched:
                patched.setattr("turnlog.stores.sqlite.kept_weights.KeptWeights.written", fail)
                with pytest.raises(RuntimeError):
                    await store.append("s1", [answered("lost")], lease="own")
            row = await append(store, "s1", answered("answer"))
            assert row.last_seq == before.last_seq + 1

    asyncio.run(run())


def test_no_more_than_so_many_are_kept(url, monkeypatch):
    monkeypatch.setattr(kept_rows, "ROWS_MAX", 3)

    async def run():
        async with open_store(url, durability="os") as store:
            for n in range(10):
                await append(store, f"s{n}", opened(f"s{n}"), said("question"))
            for n in range(10):
                await append(store, f"s{n}", answered("answer"))

    asyncio.run(run())

"""Entries kept in memory: the answers are those of a reader that keeps nothing, whoever writes, pops or erases."""

import asyncio
import tempfile

import pytest
from hypothesis import given, settings, strategies as st

import turnlog
from turnlog.adapters import kept_entries as keeping
from turnlog.adapters.kept_entries import KeptEntries
from turnlog.core.entries import Assistant, User
from turnlog.errors import Conflict

pytest.importorskip("agents", reason="needs openai-agents (requirements/test.txt)")

from turnlog.adapters.openai_agents import TurnlogSession

ITEM = st.one_of(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": st.text(max_size=5)}),
    st.fixed_dictionaries({"type": st.just("reasoning"), "summary": st.lists(st.text(max_size=3), max_size=2)}),
)
WHO = st.sampled_from(["one", "other"])
STEP = st.one_of(
    st.tuples(st.just("add"), WHO, st.lists(ITEM, min_size=1, max_size=5)),
    st.tuples(st.just("pop"), WHO, st.none()),
    st.tuples(st.just("reset"), WHO, st.none()),
    st.tuples(st.just("clear"), WHO, st.none()),
    st.tuples(st.just("erase"), WHO, st.integers(0, 20)),
    st.tuples(st.just("get"), st.just("one"), st.integers(1, 6)),
)


async def row_of(session):
    return await session.holder.call(session.log_of(None).find)


async def erase(t, session, at):
    if (row := await row_of(session)) is not None:
        said = [one.seq for one in await t.store.read(row.id) if isinstance(one, User | Assistant)]
        if said:
            await t.store.erase(row.id, [said[at % len(said)]], redact=True)


@pytest.mark.parametrize("most", [600, 2_000, 1_000_000], ids=lambda most: f"{most} bytes")
@settings(max_examples=8, deadline=None)
@given(steps=st.lists(STEP, max_size=12))
def test_whoever_writes_the_answers_are_those_of_a_reader_that_keeps_nothing(most, steps):
    async def main(url):
        async with turnlog.open(url) as one, turnlog.open(url) as other, turnlog.open(url) as plain:
            keeping._kept[one] = KeptEntries(most, most)
            keeping._kept[plain] = KeptEntries(0, 0)
            opened = {"one": one, "other": other}
            sessions = {name: TurnlogSession("ann", store=t) for name, t in opened.items()}
            reader = TurnlogSession("ann", store=plain)
            for name, who, value in steps:
                session = sessions[who]
                match name:
                    case "add":
                        await session.add_items(value)
                    case "pop":
                        await session.pop_item()
                    case "reset":
                        await session.reset()
                    case "clear":
                        await session.clear_session()
                    case "erase":
                        await erase(opened[who], session, value)
                    case _:
                        assert await session.get_items(value) == await reader.get_items(value)
                assert await sessions["one"].get_items() == await reader.get_items()
                assert await sessions["one"].get_items(3) == await reader.get_items(3)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(f"sqlite:{folder}/store.db"))


@pytest.mark.parametrize("scheme", ["sqlite", "jsonl", "memory"])
def test_what_was_read_or_written_once_is_not_read_again(scheme, tmp_path):
    async def main():
        async with turnlog.open("memory:" if scheme == "memory" else f"{scheme}:{tmp_path}/store") as t:
            session = TurnlogSession("ann", store=t)
            await session.add_items([{"role": "user", "content": str(n)} for n in range(50)])
            await session.get_items()
            reads = []
            read = t.store.read
            t.store.read = lambda *args, **more: reads.append(more) or read(*args, **more)
            await session.add_items([{"role": "user", "content": "new"}])
            assert len(await session.get_items()) == 51
            assert await session.pop_item() == {"role": "user", "content": "new"}
            assert len(await session.get_items(40)) == 40
            assert reads == []

    asyncio.run(main())


def test_an_item_that_a_caller_changes_is_not_changed_for_the_next_one():
    async def main():
        session = TurnlogSession("ann", "memory:")
        item = {"type": "message", "role": "assistant", "id": "m", "content": [{"type": "output_text", "text": "hi"}]}
        await session.add_items([item, {"type": "reasoning", "id": "r", "summary": [{"text": "why"}]}])
        first = await session.get_items()
        for one in first:
            one.clear()
        again = await session.get_items()
        again[0]["content"][0]["text"] = again[1]["summary"][0]["text"] = "changed"
        assert [one["id"] for one in await session.get_items(5)] == ["m", "r"]
        assert "changed" not in str(await session.get_items())
        session.close()

    asyncio.run(main())


def test_what_is_kept_is_bounded_and_the_latest_used_stays():
    async def main():
        async with turnlog.open("memory:") as t:
            kept = keeping._kept[t] = KeptEntries(20_000, 8_000)
            for n in range(10):
                session = TurnlogSession(f"s{n}", store=t)
                await session.add_items([{"role": "user", "content": "x" * 1_000}] * 4)
                await session.get_items()
                assert kept._size <= 20_000
                assert kept._size == sum(one.size for one in kept._sessions.values())
            assert next(reversed(kept._sessions.values())).row.key.endswith(":s9")
            large = TurnlogSession("large", store=t)
            await large.add_items([{"role": "user", "content": "x" * 1_000}] * 20)
            assert len(await large.get_items()) == 20
            assert not any(one.row.key.endswith(":large") for one in kept._sessions.values())

    asyncio.run(main())


def test_an_item_of_a_session_that_another_has_deleted_cannot_be_taken(tmp_path):
    async def main(url):
        async with turnlog.open(url) as one, turnlog.open(url) as other:
            ours, theirs = TurnlogSession("ann", store=one), TurnlogSession("ann", store=other)
            await ours.add_items([{"type": "reasoning", "summary": []}])
            await theirs.clear_session()
            assert await ours.pop_item() is None
            await ours.add_items([{"role": "user", "content": "a"}])
            await theirs.clear_session()
            await theirs.add_items([{"role": "user", "content": "b"}])
            assert await ours.pop_item() == {"role": "user", "content": "b"}

    asyncio.run(main(f"sqlite:{tmp_path}/store.db"))


def test_what_is_erased_is_not_given_from_memory():
    async def main():
        async with turnlog.open("memory:") as t:
            session = TurnlogSession("ann", store=t)
            await session.add_items([{"role": "user", "content": "secret"}, {"role": "user", "content": "rest"}])
            assert "secret" in str(await session.get_items())
            await erase(t, session, 0)
            assert "secret" not in str(await session.get_items())
            assert "secret" not in str(await session.get_items(2))

    asyncio.run(main())


def test_a_read_that_began_before_an_erasure_keeps_nothing_for_later():
    async def main():
        async with turnlog.open("memory:") as t:
            session = TurnlogSession("ann", store=t)
            await session.add_items([{"role": "user", "content": "secret"}] + [{"role": "user", "content": "x"}] * 40)
            read, waiting, go_on = t.store.read, asyncio.Event(), asyncio.Event()

            async def slow(*args, **more):
                found = await read(*args, **more)
                waiting.set()
                await go_on.wait()
                return found

            t.store.read = slow
            first = asyncio.create_task(session.get_items())
            await waiting.wait()
            t.store.read = read
            await erase(t, session, 0)
            await session.get_items(1)
            go_on.set()
            await first
            assert "secret" not in str(await session.get_items())

    asyncio.run(main())


def test_many_pops_from_two_objects_take_every_item_once():
    async def main():
        async with turnlog.open("memory:") as t:
            sessions = [TurnlogSession("ann", store=t) for _ in range(2)]
            await sessions[0].add_items([{"role": "user", "content": str(n)} for n in range(40)])

            async def take(session):
                found = []
                while True:
                    try:
                        item = await session.pop_item()
                    except Conflict:  # many others at once
                        continue
                    if item is None:
                        return found
                    found.append(int(item["content"]))

            taken = await asyncio.gather(*map(take, sessions))
            assert sorted(n for found in taken for n in found) == list(range(40))

    asyncio.run(main())

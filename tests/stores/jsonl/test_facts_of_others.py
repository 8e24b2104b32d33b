"""Facts of a JSONL store that another process writes at the same time."""

import asyncio

from turnlog import open_store
from turnlog.core import facts as session_facts
from turnlog.core.entries import Facts
from turnlog.stores.jsonl.fact_index import NOTHING, end_of, scan
from turnlog.testing import opened


def test_facts_that_came_after_the_last_look_at_the_file_are_found_by_another_look(tmp_path):
    async def main():
        url = f"jsonl:{tmp_path}"
        async with open_store(url, durability="os") as one, open_store(url, durability="os") as two:
            await one.append("s1", [opened("s1"), Facts(app="mine", put={"a": 1})])
            assert [fact.value for fact in await one.facts("s1", "mine")] == [1]
            seen = await one._current("s1", None)
            await two.append("s1", [Facts(app="mine", put={"a": 2})])
            assert [fact.value for fact in await two.facts("s1", "mine")] == [2]
            wanted = session_facts.choice("mine", (), "", last=False, limit=None)
            assert await one._facts.find(seen, wanted) is None
            assert [fact.value for fact in await one.facts("s1", "mine")] == [2]

    asyncio.run(main())


def test_a_process_that_begins_the_index_late_takes_nothing_from_it(tmp_path):
    """Both find no index; the slower one must not replace what the faster one knows."""

    async def main():
        url = f"jsonl:{tmp_path}"
        async with open_store(url, durability="os") as one, open_store(url, durability="os") as two:
            await one.append("s1", [opened("s1")])
            seen = await one._current("s1", None)
            slow = one._facts.of(seen.folder)
            assert slow.behind(seen) == NOTHING
            end = end_of(seen)
            late = scan(seen, NOTHING, end)
            await two.append("s1", [Facts(app="mine", put={"a": 1})])
            await two.facts("s1", "mine")
            slow.catch_up(seen, NOTHING, end, late)
            await two.append("s1", [Facts(app="mine", put={"b": 2})])
            for store in (two, one):
                assert [fact.value for fact in await store.facts("s1", "mine")] == [1, 2]

    asyncio.run(main())

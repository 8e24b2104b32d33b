"""What every store promises about lists, searches, the ledger and reindexing."""

import asyncio
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ..core.query import UNTRASHED, Query, Sort, rank
from ..core.session import Session
from ..errors import UsageError
from ..stores import Store
from . import FixedClock, answered, entry, opened, raises, said
from .base import claim, store_claim
from .rows import RowContract

SORTS: tuple[Sort, ...] = ("newest", "messages", "tokens", "id")


class FindingContract(RowContract):
    @claim
    async def test_find_lists_newest_first_in_pages_with_the_real_total(self, place: Path) -> None:
        clock = FixedClock()
        async with self.open(place, clock=clock) as store:
            for n in range(7):
                clock.advance(ms=1)
                await store.append(f"s{n}", [opened(f"s{n}", peer=f"p{n}")])
            clock.advance(ms=1)
            await store.append("s2", [entry(type="title", title="Lunch plans")])
            seen = [row.id for row in await self.all_pages(store, Query(limit=3))]
            assert seen == ["s2", "s6", "s5", "s4", "s3", "s1", "s0"]

    @store_claim
    async def test_find_filters_by_who_and_by_how_the_last_turn_stands(self, store: Store) -> None:
        asked = entry(type="approval", state="requested", call="c1", tool="t")
        endings = {
            "answered": [answered("yes")],
            "failed": [entry(type="failed", code="provider")],
            "waiting": [asked],
            "asked": [asked, entry(type="failed", code="stopped")],
        }
        for n, (name, ending) in enumerate(endings.items()):
            body = opened(name, peer=f"p{n // 2}", agent="ops" if n % 2 else "main")
            await store.append(name, [body, said("hello"), *ending], lease="own")

        async def ids(**fields: Any) -> set[str]:
            return {row.id for row in await self.all_pages(store, Query(**fields))}

        assert await ids(peer="p0") == {"answered", "failed"}
        assert await ids(peer="p0", agent="ops", status=UNTRASHED) == {"failed"}
        assert await ids(last_role="failed") == {"failed", "asked"} == await ids(last_role="failed", channel="cli")
        assert await ids(last_role="failed", peer="p1", sort="tokens") == {"asked"}
        assert await ids(waiting=True) == {"waiting"}
        assert await ids(waiting=False) == {"answered", "failed", "asked"}
        assert await ids(needed_approval=True) == {"waiting", "asked"} == await ids(needed_approval=True, q="p1")
        assert await ids(needed_approval=True, status="trashed") == set()

    @store_claim
    async def test_find_filters_by_each_field(self, store: Store) -> None:
        await store.append("a1", [opened("a1", peer="ann")])
        await store.append("b1", [opened("b1", peer="bob", agent="ops"), entry(type="selected", n=1)])
        await store.append("b2", [entry(type="session", version=1, id="b2", key="agent:ops:web:direct:bob",
                                        agent="ops", channel="web", label="Deploys")])  # fmt: skip
        await store.append("b2", [entry(type="title", title="Überraschung im Büro")])

        async def ids(**fields: Any) -> list[str]:
            return sorted(row.id for row in await self.all_pages(store, Query(**fields)))

        assert await ids(key="agent:main:cli:direct:ann") == ["a1"]
        assert await ids(agent="ops") == ["b1", "b2"]
        assert await ids(agent="nobody") == [] == await ids(agent=())
        assert await ids(agent=("ops", "nobody")) == ["b1", "b2"]
        assert await ids(agent=("main", "ops"), status="active") == ["b1"]
        assert await ids(agent=("main", "ops"), q="direct:bob") == ["b1", "b2"]
        assert await ids(q="b1") == []  # ids contain times: nearly every number would match
        assert await ids(channel="web") == ["b2"] == await ids(channel=("web", "app"))
        assert await ids(label="Deploys") == ["b2"]
        assert await ids(status="active") == ["b1"]
        assert await ids(status="inactive", agent="ops") == ["b2"]
        assert await ids(prefix="b") == ["b1", "b2"]
        assert await ids(prefix="Dep") == ["b2"]
        assert await ids(prefix="agent:ops:cli") == ["b1"]
        assert await ids(q="büro ÜBER") == ["b2"]
        assert await ids(q="100% _") == []
        assert await ids(ids=("a1", "b2", "zz")) == ["a1", "b2"]
        assert await ids(id="b1") == ["b1"]
        assert await ids(id="zz") == []
        await raises(UsageError, store.find(Query(limit=0)))
        await raises(UsageError, store.find(Query(limit=100_000)))
        await raises(UsageError, store.find(Query(cursor="nonsense")))
        await raises(UsageError, store.find(Query(cursor=f"{10**20}.x")))
        await raises(UsageError, store.find(Query(status="gone")))
        assert await ids(q="\ud800") == await ids(label="\ud800") == await ids(prefix="\ud800") == []

    @store_claim
    async def test_find_takes_any_of_several_statuses(self, store: Store) -> None:
        for n, status in enumerate(("inactive", "archived", "trashed", "trashed")):
            await store.append(f"s{n}", [opened(f"s{n}", peer=f"p{n}"), entry(type="status", value=status)])
        narrowings: list[Any] = [{}, {"agent": "main"}, {"channel": "cli"}, {"q": "main"}, {"prefix": "s"}]
        for narrowing in narrowings:
            for status, wanted in (
                (UNTRASHED, ["s0", "s1"]),
                (("trashed", "archived"), ["s1", "s2", "s3"]),
                ("trashed", ["s2", "s3"]),
                (("active",), []),
                (None, ["s0", "s1", "s2", "s3"]),
            ):
                page = await store.find(Query(status=status, **narrowing))
                assert sorted(row.id for row in page.items) == wanted, (narrowing, status)
                assert page.total == len(wanted)

    @claim
    async def test_every_order_gives_every_session_once_page_by_page(self, place: Path) -> None:
        """Many sessions have equal sort keys, some also equal times; each order is tested with filters."""
        clock = FixedClock()
        async with self.open(place, clock=clock) as store:
            for n in range(13):
                clock.advance(ms=n % 3)
                await store.append(f"s{n:02}", [opened(f"s{n:02}", peer=f"p{n}")])
                await self.talk(store, f"s{n:02}", n % 4)
            narrowings: list[Any] = [
                {},
                {"agent": "main", "status": "inactive"},
                {"q": "DIRECT:P1"},
                {"channel": "cli"},
            ]
            for sort in SORTS:
                for narrowing in narrowings:
                    seen = await self.all_pages(store, Query(sort=sort, limit=2, **narrowing))
                    ranks = [rank(sort, row) for row in seen]
                    assert ranks == sorted(ranks, reverse=True)
                    assert len(seen) == len({row.id for row in seen}) == (4 if "q" in narrowing else 13)
            first = await store.find(Query(sort="messages", limit=2))
            await raises(UsageError, store.find(Query(sort="tokens", cursor=first.next)))

    @staticmethod
    async def all_pages(store: Store, query: Query) -> list[Session]:
        seen: list[Session] = []
        totals: set[int] = set()
        while True:
            page = await store.find(query)
            seen += page.items
            totals.add(page.total)
            if page.next is None:
                assert {len(seen)} == totals
                return seen
            query = replace(query, cursor=page.next)

    @store_claim
    async def test_sessions_of_one_moment_are_each_on_one_page(self, store: Store) -> None:
        names = [f"s{n * 7 % 10}" for n in range(10)]
        for name in names:  # copies keep their times
            await store.append(name, [replace(opened(name, peer=name), ts="2026-01-01T00:00:00.000Z")])
        found = [row.id for row in await self.all_pages(store, Query(limit=3))]
        assert found == sorted(names, reverse=True)

    @store_claim
    async def test_find_tells_where_messages_wait_or_a_turn_is_under_way(self, store: Store) -> None:
        for name in ("idle", "asked", "waiting", "failed"):
            await store.append(name, [opened(name, peer=name)])
        await self.talk(store, "idle", 1)
        await store.append("waiting", [entry(type="received", content="later")])
        for name in ("asked", "failed"):
            await store.append(name, [said("now")], lease="own")
            if name == "failed":
                await store.append(name, [entry(type="failed", code="provider")], lease="own")
        page = await store.find(Query(unfinished=True))
        assert sorted(row.id for row in page.items) == ["asked", "waiting"]
        assert page.total == 2

    @store_claim
    async def test_search_finds_words_in_any_script_and_nothing_outside_its_scope(self, store: Store) -> None:
        for name, peer in (("s1", "ann"), ("s2", "bob")):
            await store.append(name, [opened(name, peer=peer)])
        await store.append(
            "s1",
            [
                said("分析 payment.py 的并发问题"),
                answered("The Deadlock is in `lock_all`; see Straße 12."),
                entry(type="tool_result", tool_use_id="t", content="これはテストです"),
            ],
            lease="own",
        )
        await store.append("s2", [said("no such deadlock here")], lease="own")
        await store.append("s2", [said("🙂 … 。"), answered("—")], lease="own")  # no word is in these

        async def where(words: str, **scope: Any) -> list[tuple[str, int]]:
            return sorted((hit.session_id, hit.seq) for hit in await store.search(words, scope=Query(**scope)))

        assert await where("并发") == await where("payment.py") == await where("payment 问题") == [("s1", 2)]
        assert await where("deadlock") == [("s1", 3), ("s2", 2)]
        assert await where("deadlock", key="agent:main:cli:direct:bob") == [("s2", 2)]
        assert await where("deadlock", ids=("s1",)) == [("s1", 3)]
        assert await where("deadlock", channel=("cli", "app")) == [("s1", 3), ("s2", 2)]
        assert await where("deadlock", channel=("app", "web")) == []
        assert await where("STRASSE") == await where("lock_all") == [("s1", 3)]
        assert await where("テスト") == [("s1", 4)]
        assert await where("dead") == []
        assert await where("lock dead") == [("s1", 3)]  # no entry has both, so any of them
        assert await where("dead*") == [("s1", 3), ("s2", 2)]
        assert await where('"such deadlock"') == [("s2", 2)]
        assert len(await store.search("deadlock", scope=Query(limit=1))) == 1
        assert "Deadlock" in (await store.search("deadlock", scope=Query(ids=("s1",))))[0].snippet
        for words in ("", "   ", "***", '"', "x" * 2000):
            await raises(UsageError, store.search(words))
        await store.delete("s2")
        assert await where("deadlock") == [("s1", 3)]

    @claim
    async def test_the_ledger_keeps_small_facts(self, place: Path) -> None:
        clock = FixedClock()
        async with self.open(place, clock=clock) as store:
            ledger = store.ledger
            assert await ledger.get("a", "k") is None
            assert await ledger.put_if_absent("a", "k", {"x": [1, "中"]}) is None
            assert await ledger.put_if_absent("a", "k", 2) == {"x": [1, "中"]}
            assert await ledger.get("b", "k") is None
            assert not await ledger.cas("a", "k", None, 3)
            assert await ledger.cas("a", "k", {"x": [1, "中"]}, 3)
            assert await ledger.cas("a", "new", None, 4)
            assert [(f.key, f.value) for f in await ledger.list("a")] == [("k", 3), ("new", 4)]
            assert [f.key for f in await ledger.list("a", prefix="n")] == ["new"]
            assert [f.key for f in await ledger.list("a", limit=1)] == ["k"]
            assert [f.key for f in await ledger.list("a", after="k")] == ["new"]
            assert await ledger.list("a", after="new") == []
            assert [f.key for f in await ledger.list("a", prefix="n", after="k")] == ["new"]
            assert await ledger.delete("a", "k")
            assert not await ledger.delete("a", "k")
            assert await ledger.cas("a", "new", 4, None)
            assert await ledger.list("a") == []
            assert await ledger.put_if_absent("a", "soon", 1, ttl_s=60) is None
            clock.advance(s=59)
            assert await ledger.get("a", "soon") == 1
            clock.advance(s=1)
            assert await ledger.get("a", "soon") is None
            assert await ledger.list("a") == []
            assert await ledger.put_if_absent("a", "soon", 2) is None
        if self.durable:
            async with self.open(place, clock=clock) as store:
                assert await store.ledger.get("a", "soon") == 2

    @store_claim
    async def test_one_of_many_racers_puts_a_fact(self, store: Store) -> None:
        got = await asyncio.gather(*(store.ledger.put_if_absent("a", "k", n) for n in range(1, 21)))
        assert got.count(None) == 1
        assert await store.ledger.get("a", "k") == got.index(None) + 1

    @store_claim
    async def test_reindexing_changes_nothing_that_was_right(self, store: Store) -> None:
        for n in range(5):
            await store.append(f"s{n}", [opened(f"s{n}"), entry(type="selected", n=n + 1)])
            await self.talk(store, f"s{n}", n)
        before = await store.find(Query())
        steps: list[tuple[int, int]] = []
        assert await store.reindex(lambda done, total: steps.append((done, total))) == 5
        assert steps
        assert steps[-1][0] == steps[-1][1]
        assert await store.find(Query()) == before
        assert len(await store.search("question")) == 10

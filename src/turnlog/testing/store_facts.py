"""What every store promises about facts, what other programs gave, appends with their own lease, and rising times."""

import asyncio
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from ..core import history
from ..core.entries import Assistant, Facts, Foreign, Rewind, User
from ..core.facts import Fact
from ..core.query import Query
from ..errors import Conflict, NotFound, UsageError
from ..stores import Store
from . import FixedClock, answered, entry, opened, raises, said
from .base import Contract, claim, session_claim, store_claim

WEIRD_KEYS = ("\x00", "a\x00b", "\ud800", "x\udfffy", "\U0001f600", "\U0010ffff", "中|文", " ", "k" * 512)


class FactsContract(Contract):
    async def put(self, store: Store, session_id: str, **put: Any) -> int:
        return (await store.append(session_id, [Facts(app="app", put=put)]))[0].seq

    async def keys(self, store: Store, **asked: Any) -> list[str]:
        return [fact.key for fact in await store.facts("s1", "app", **asked)]

    @session_claim
    async def test_the_newest_put_of_a_fact_counts_until_it_is_dropped(self, store: Store) -> None:
        first = await self.put(store, "s1", a=1, b={"x": [1, None]})
        assert await store.facts("s1", "app") == [Fact("a", 1, first), Fact("b", {"x": [1, None]}, first)]
        second = await self.put(store, "s1", a=2)
        assert await store.facts("s1", "app", keys=["a"]) == [Fact("a", 2, second)]
        await store.append("s1", [Facts(app="app", put={"c": 3}, drop=("a", "nosuch"))])
        assert await self.keys(store) == ["b", "c"]
        third = await self.put(store, "s1", a=4)
        assert await store.facts("s1", "app", keys=["a"]) == [Fact("a", 4, third)]
        await store.append("s1", [Facts(app="app", drop=("d",)), Facts(app="app", put={"d": 1}),
                                  Facts(app="app", drop=("d", "b"))])  # fmt: skip
        assert await self.keys(store) == ["a", "c"]

    @session_claim
    async def test_facts_are_found_by_name_by_prefix_and_from_both_ends(self, store: Store) -> None:
        await store.append("s1", [Facts(app="app", put={f"c|{n:02}": n for n in range(20)})])
        await store.append("s1", [Facts(app="app", put={"b": 0, "d": 0}), Facts(app="app2", put={"c|99": 0})])
        await store.append("s2", [opened("s2"), Facts(app="app", put={"c|98": 0})])
        assert await self.keys(store, prefix="c|", limit=2) == ["c|00", "c|01"]
        assert await self.keys(store, prefix="c|", last=True, limit=2) == ["c|19", "c|18"]
        assert await self.keys(store, last=True, limit=1) == ["d"]
        assert await self.keys(store, keys=["d", "c|03", "nosuch", "d", "b"]) == ["b", "c|03", "d"]
        assert await self.keys(store, keys=["d", "c|03", "c|04"], prefix="c", last=True) == ["c|04", "c|03"]
        assert await self.keys(store, keys=["b", "d"], limit=1) == ["b"]
        assert len(await self.keys(store)) == 22
        assert await self.keys(store, prefix="e") == await self.keys(store, limit=0) == []
        assert await store.facts("s1", "nobody") == []

    @claim
    async def test_facts_survive_reopening_reindexing_and_another_opening(self, place: Path) -> None:
        if not self.durable:
            return
        async with self.with_session(place) as store:
            for n in range(30):
                await store.append("s1", [Facts(app="app", put={f"k{n % 7}": n}, drop=(f"k{(n + 1) % 7}",))])
                await store.append("s1", [entry(type="title", title=f"t{n}")])
            before = await store.facts("s1", "app")
        async with self.open(place) as one, self.open(place) as two:
            assert before == await one.facts("s1", "app") == await two.facts("s1", "app")
            await one.reindex()
            assert before == await one.facts("s1", "app") == await two.facts("s1", "app")
            await self.put(two, "s1", new=1)
            await two.append("s1", [entry(type="title", title="x")])
            assert await one.facts("s1", "app") == await two.facts("s1", "app") != before
            await self.put(one, "s1", new=2)
            assert [fact.value for fact in await two.facts("s1", "app", keys=["new"])] == [2]

    @session_claim
    async def test_values_and_names_of_facts_come_back_as_they_were(self, store: Store) -> None:
        values: list[Any] = [
            *(b"", b"\x00\xff", [b"a", {"b": b"c"}], {"$bytes": "x"}, {"$bytes": b"x"}, {"$$bytes": {"$bytes": 1}}),
            *({"$bytes": 1, "x": 2}, None, "", "\x00\ud800", 1.5, -(2**63), 2**64 - 1, True, [], {}, {"": {}}),
        ]
        await store.append("s1", [Facts(app="app", put={f"v{n:02}": value for n, value in enumerate(values)})])
        found = [fact.value for fact in await store.facts("s1", "app")]
        assert found == values
        assert [type(value) for value in found] == [type(value) for value in values]
        await store.append("s1", [Facts(app="w", put=dict.fromkeys(WEIRD_KEYS, 1))])
        assert [fact.key for fact in await store.facts("s1", "w")] == sorted(WEIRD_KEYS)
        for key in WEIRD_KEYS:
            assert [fact.key for fact in await store.facts("s1", "w", keys=[key])] == [key]
            assert key in [fact.key for fact in await store.facts("s1", "w", prefix=key[:1])]
        await store.append("s1", [Facts(app="w", drop=WEIRD_KEYS)])
        assert await store.facts("s1", "w") == []

    @session_claim
    async def test_facts_that_break_a_rule_are_refused_and_nothing_is_stored(self, store: Store) -> None:
        bad: list[Any] = [
            *({"app": app, "put": {"k": 1}} for app in ("", "A", "a b", "x" * 33, "a\n", "a_b")),
            *({"app": "app", "put": {key: 1}} for key in ("", "k" * 513)),
            *({"app": "app", "drop": (key,)} for key in ("", "k" * 513)),
            *({"app": "app", "put": put} for put in (5, [1], {1: 2}, {"k": float("nan")}, {"k": {1}}, {})),
            {"app": "app", "drop": ["k"]},
            {"app": "app", "put": {"k": 1}, "drop": ("k",)},
        ]
        for fields in bad:
            title = entry(type="title", title="x")
            await raises(UsageError, store.append("s1", [title, Facts(**fields)]))
        assert (await store.describe("s1")).last_seq == 1
        await raises(UsageError, store.facts("s1", "A"))
        await raises(UsageError, store.facts("s1", "app", limit=-1))
        await raises(UsageError, store.facts("s1", "app", keys="k"))
        await raises(NotFound, store.facts("nobody", "app"))

    @store_claim
    async def test_an_append_can_expect_a_fact(self, store: Store) -> None:
        await store.append("s1", [opened("s1")], expect_fact=("app", "k", None))
        body = Facts(app="app", put={"k": 1})
        [first] = await store.append("s1", [body], expect_fact=("app", "k", None))
        await raises(Conflict, store.append("s1", [body], expect_fact=("app", "k", None)))
        await raises(Conflict, store.append("s1", [body], expect_fact=("app", "k", first.seq + 1)))
        [second] = await store.append("s1", [body], expect_fact=("app", "k", first.seq))
        await raises(Conflict, store.append("s1", [body], expect_fact=("app", "k", first.seq)))
        await store.append("s1", [Facts(app="app", drop=("k",))], expect_fact=("app", "k", second.seq))
        await raises(Conflict, store.append("s1", [body], expect_fact=("app", "k", second.seq)))
        await store.append("s1", [body], expect_fact=("app", "k", None))
        assert (await store.describe("s1")).last_seq == 5
        await raises(UsageError, store.append("s1", [body], expect_fact=cast("Any", ("app", "k"))))

    @session_claim
    async def test_of_racing_appends_that_expect_a_fact_none_is_lost(self, store: Store) -> None:
        async def count() -> None:
            for _ in range(5):
                while True:
                    seen = await store.facts("s1", "app", keys=["n"])
                    number, seq = (seen[0].value, seen[0].seq) if seen else (0, None)
                    try:
                        await store.append(
                            "s1", [Facts(app="app", put={"n": number + 1})], expect_fact=("app", "n", seq)
                        )
                        break
                    except Conflict:
                        await asyncio.sleep(0)

        await asyncio.gather(*(count() for _ in range(6)))
        assert [fact.value for fact in await store.facts("s1", "app")] == [30]

    @session_claim
    async def test_facts_stay_when_messages_are_rewound_and_go_with_the_session(self, store: Store) -> None:
        await store.append("s1", [said("a"), Facts(app="app", put={"k": 1}), answered("b")], lease="own")
        await store.append("s1", [Rewind(to=1)], lease="own")
        assert await self.keys(store) == ["k"]
        assert (await store.describe("s1")).message_count == 2
        held = (await store.describe("s1")).incarnation
        assert await self.keys(store, incarnation=held) == ["k"]
        await store.delete("s1")
        await raises(NotFound, store.facts("s1", "app"))
        await store.append("s1", [opened("s1")])
        assert await self.keys(store) == []
        await store.append("s1", [Facts(app="app", put={"k2": 1})], expect_fact=("app", "k", None))
        assert await self.keys(store) == ["k2"]
        await raises(NotFound, store.facts("s1", "app", incarnation=held))

    @session_claim
    async def test_what_a_program_gave_comes_back_and_is_neither_sent_nor_searched(self, store: Store) -> None:
        given = {"id": "msg_1", "role": "user", "content": [{"type": "input_text", "text": "zebra", "\ud800": None}]}
        bodies = [User(content="hi", raw=given), Assistant(content="oh", raw=[given]), Foreign(raw=given)]
        stored = await store.append("s1", bodies, lease="own")
        assert [e.raw for e in stored] == [given, [given], given]
        found = await store.read("s1")
        assert found[1:] == stored
        assert "zebra" not in str(history.build(found).messages)
        assert await store.search("zebra") == []
        assert (await store.describe("s1")).token_estimate < 20
        await raises(UsageError, store.append("s1", [User(content="hi", raw={1})], lease="own"))
        copied = await store.append("s2", [opened("s2"), *(replace(e, seq=0) for e in stored)], lease="own")
        assert [e.raw for e in copied[1:]] == [given, [given], given]

    @store_claim
    async def test_an_append_takes_its_own_lease_and_gives_it_back(self, store: Store) -> None:
        await store.append("s1", [opened("s1")], lease="own")
        answers = await asyncio.gather(*(store.append("s1", [said(f"{n}")], lease="own") for n in range(10)))
        assert sorted(answer[0].seq for answer in answers) == list(range(2, 12))
        async with store.lease("s1", wait_s=0) as lease:
            await store.append("s1", [said("mine")], lease=lease)
            waiting = asyncio.create_task(store.append("s1", [said("late")], lease="own"))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await store.append("s1", [answered("mine")], lease=lease)
        assert (await waiting)[0].seq == 14
        await raises(UsageError, store.append("s1", [said("x")], lease=cast("Any", "mine")))

    @claim
    async def test_times_rise_with_every_append(self, place: Path) -> None:
        async with self.open(place, clock=FixedClock()) as store:
            for n in range(20):
                await store.append(f"s{n}", [opened(f"s{n}", peer=f"p{n}")])
            for n in (7, 3, 11):
                await store.append(f"s{n}", [entry(type="title", title="x")])
            rows = (await store.find(Query(limit=100))).items
            assert [row.id for row in rows[:4]] == ["s11", "s3", "s7", "s19"]
            assert len({row.last_at for row in rows}) == 20

    @store_claim
    async def test_sessions_are_found_by_their_homes_and_the_threads_there_and_no_others(self, store: Store) -> None:
        key = "agent:main:cli:direct:"
        peers = (("a1", "ann"), ("a2", "ann:thread:x"), ("b1", "anna"), ("b2", "anna:thread:x"), ("c1", "bob"))
        for session_id, peer in peers:
            await store.append(session_id, [replace(opened(session_id), key=f"{key}{peer}")])
            await store.append(session_id, [User(content="a word")], lease="own")

        async def found(*homes: str, **more: Any) -> list[str]:
            query = Query(homes=tuple(f"{key}{home}" for home in homes), **more)
            page = await store.find(query)
            assert page.total == len(page.items)
            assert {hit.session_id for hit in await store.search("word", scope=query)} == {r.id for r in page.items}
            return sorted(row.id for row in page.items)

        assert await found("ann") == ["a1", "a2"]
        assert await found("ann", "bob") == ["a1", "a2", "c1"]
        assert await found("ann", id="b1") == await found("an") == await found("ann", key=f"{key}bob") == []
        assert await found("ann", id="a2", status="inactive", agent="main") == ["a2"]

    @store_claim
    async def test_sessions_are_found_by_the_beginning_of_their_key_alone(self, store: Store) -> None:
        for session_id, peer in (("a1", "x"), ("b1", "x1"), ("agent", "y"), ("c1", "x\U0010ffff"), ("d1", "X")):
            await store.append(session_id, [opened(session_id, peer=peer)])

        async def found(key_prefix: str, **more: Any) -> list[str]:
            page = await store.find(Query(key_prefix=key_prefix, **more))
            assert page.total == len(page.items)
            return sorted(row.id for row in page.items)

        assert await found("agent:main:cli:direct:x") == ["a1", "b1", "c1"]
        assert await found("agent:main:cli:direct:x", agent="main", channel="cli", q="x1") == ["b1"]
        assert await found("agent:main:cli:direct:y") == ["agent"]
        assert await found("agent:nobody") == await found("a1") == await found("%") == []
        assert len(await found("")) == 5

"""Convlog and memory beside a PostgreSQL store: schemas of their own, behind a pooler, over connections that break."""

import asyncio
import random
import re

import pytest
from msgspec import structs

from turnlog import UsageError, open_store
from turnlog.convlog import Filter, Record, open_convlog
from turnlog.convlog.postgres import LINES_MAX, PostgresBackend
from turnlog.convlog.postgres_search import BLOCK_MESSAGES, make_blocks
from turnlog.errors import StoreError, StoreUnavailable
from turnlog.memory import open_memory
from turnlog.testing import opened, raises

from .. import postgres
from .pooler import Pooler

OWNER = ("main", "cli:direct:user")


def record(text):
    return Record(
        ts="2026-01-01T00:00:00.000Z",
        role="user",
        content=text,
        channel_id="web-a",
        channel_type="web",
        sender="ann",
    )


async def use(url, words=10):
    async with open_convlog(url) as log, open_memory(url) as memory:
        for n in range(words):
            await log.write("main", "web-a", record(f"line {n}"))
            await memory.save(*OWNER, f"memo {n} about the 上海 office")
        page = await log.messages("main", "web-a", limit=200)
        assert [item.content for item in page.items] == [f"line {n}" for n in range(words)]
        [row] = (await log.list()).items
        assert row.message_count == page.total == words
        assert len(await memory.recall(*OWNER, "上海 office")) == 5
        assert [memo.text for memo in await memory.search("memo 7")] == ["memo 7 about the 上海 office"]
        assert len(await memory.list(limit=200)) == words


def test_each_has_a_schema_of_its_own_and_shares_no_table_with_the_sessions(tmp_path):
    async def main():
        here, name = postgres.server(), postgres.server().database(tmp_path)
        url = here.url(name)
        async with open_store(url) as store:
            await store.append("s1", [opened("s1")])
            await use(url)
            await store.delete("s1")
            await raises(UsageError, open_convlog(here.url(name, schema="x_convlog")).__aenter__())
        found = here.sql(
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema LIKE 'turnlog_%'", name
        )
        assert {schema for schema, _ in found} == {"turnlog_convlog", "turnlog_memory"}

    asyncio.run(main())


def test_both_work_behind_a_pooler_in_transaction_mode(tmp_path):
    here = postgres.server()
    name = here.database(tmp_path)
    with Pooler(str(here.root / f".s.PGSQL.{here.port}")) as pooler:
        asyncio.run(use(here.url(name, tcp=True, port=pooler.port, listen="off")))
        assert pooler.transactions > 20


def test_what_is_repeated_because_its_answer_was_lost_is_written_once(tmp_path):
    async def main():
        here = postgres.server()
        async with postgres.Proxy(here.port) as proxy:
            url = here.url(here.database(tmp_path), tcp=True, port=proxy.port)
            async with open_convlog(url) as log, open_memory(url) as memory:
                for n in range(20):
                    await log.list()  # so that it is not the login that is cut off
                    proxy.cut_answers_after = 0  # the next answer is: the database has done the work
                    await log.write("main", "web-a", record(f"line {n}"))
                    await memory.list()
                    proxy.cut_answers_after = 0
                    await memory.save(*OWNER, f"memo {n}")
                assert proxy.connections > 20
                page = await log.messages("main", "web-a")
                assert [item.content for item in page.items] == [f"line {n}" for n in range(20)]
                assert [memo.text for memo in await memory.list()] == [f"memo {n}" for n in reversed(range(20))]

    asyncio.run(main())


@pytest.mark.parametrize("part", ["convlog", "memory"])
def test_several_openers_make_one_schema_and_a_newer_one_is_refused(part, tmp_path):
    async def main():
        here, name = postgres.server(), postgres.server().database(tmp_path)
        url = here.url(name)
        opening = open_convlog if part == "convlog" else open_memory

        async def once():
            async with opening(url):
                pass

        await asyncio.gather(*(once() for _ in range(6)))
        here.sql(f"UPDATE turnlog_{part}.store_facts SET value = 99", name)
        await raises(StoreUnavailable, once())

    asyncio.run(main())


def test_a_lease_that_ran_out_is_told_as_abandoned_until_somebody_takes_it(tmp_path):
    async def main():
        here, database = postgres.server(), postgres.server().database(tmp_path)
        url = here.url(database, lease_s=postgres.LONG_S)
        async with open_store(url) as store:
            for name in ("s1", "s2"):
                await store.append(name, [opened(name, peer=name)])
            async with store.lease("s1"), store.lease("s2"):
                assert await store.abandoned() == []
                here.sql("UPDATE turnlog.leases SET epoch = -1, expires_at = now() WHERE session_id = 's1'", database)
                assert await store.abandoned() == ["s1"]
            async with open_store(url) as other, other.lease("s1"):
                assert await store.abandoned() == []
            assert await store.abandoned() == []

    asyncio.run(main())


def test_any_piece_of_what_was_said_is_found_whether_in_a_block_or_not(tmp_path):
    """Against the rule itself, over texts and keywords of every kind, in conversations of several lengths."""
    chance = random.Random(5)
    kinds = ("the Quokka's", "C:\\temp", "it's", "缓存", "并发缓", "ß", "😀", "x", "  ", "a'b\\c", "naïve\n", "50%")
    lengths = {"long": 3 * BLOCK_MESSAGES + 7, "exact": BLOCK_MESSAGES, "short": 5}

    async def main():
        here, database = postgres.server(), postgres.server().database(tmp_path)
        async with open_convlog(here.url(database)) as log:
            said = {name: [] for name in lengths}
            for name, length in lengths.items():
                for n in range(length):
                    text = "".join(chance.choices(kinds, k=chance.randint(1, 6))) + (f" only{n}" if n % 50 == 3 else "")
                    said[name].append(text)
                    await log.write("main", name, structs.replace(record(text), channel_id=name))
            while await make_blocks(log._backend._db):
                pass
            assert here.sql(
                'SELECT channel_id, count(*), max(last_n) FROM "turnlog_convlog".blocks GROUP BY 1 ORDER BY 1', database
            ) == [("exact", 1, BLOCK_MESSAGES), ("long", 3, 3 * BLOCK_MESSAGES)]
            keywords = [
                *kinds,
                "q",
                "KK",
                "缓",
                "存并",
                "only53",
                "nly3",
                "ann",
                "nothing like it",
                "\x00",
                "'",
                "\\",
                "%",
            ]
            keywords += ["".join(chance.choices(kinds, k=2))[1:] for _ in range(40)]
            for q in keywords:
                wanted = q.casefold().replace("\x00", "")
                for name, texts in said.items():
                    right = [text for text in texts if wanted in f"{text}\nann\n{name}".casefold()]
                    page = await log.messages("main", name, Filter(q=q), limit=3)
                    assert (page.total, [item.content for item in page.items]) == (len(right), right[:3]), (q, name)
                    found = {row.channel_id for row in (await log.list(Filter(q=q))).items}
                    assert (name in found) == bool(right), (q, name)

    asyncio.run(main())


class Lines:
    """A database that refuses some texts and, once `hangs` is set, never answers."""

    def __init__(self):
        self.written, self.hangs, self.tasks = [], False, []

    def spawn(self, work):
        self.tasks.append(asyncio.ensure_future(work))

    async def all(self, statement, columns, *, changes=False, within_s=0.0):
        if not changes:
            return []
        if self.hangs:
            await asyncio.Event().wait()
        if "refused" in columns[6]:
            raise StoreError("refused")
        self.written += re.findall(r'"content', columns[6])
        return []


def test_a_line_that_is_refused_costs_no_other_line_its_place():
    async def main():
        lines = Lines()
        backend = PostgresBackend(lines)
        texts = ["one", "refused", *(f"line {n}" for n in range(LINES_MAX))]
        ends = await asyncio.gather(
            *(backend.append([("main", record(text))]) for text in texts), return_exceptions=True
        )
        assert [type(end) for end in ends] == [type(None), StoreError, *[type(None)] * LINES_MAX]
        assert len(lines.written) == LINES_MAX + 1

    asyncio.run(main())


def test_nobody_waits_for_a_line_that_is_no_longer_written():
    async def main():
        lines = Lines()
        lines.hangs = True
        backend = PostgresBackend(lines)
        waiting = [asyncio.ensure_future(backend.append([("main", record(str(n)))])) for n in range(LINES_MAX * 2)]
        await asyncio.sleep(0.01)
        lines.tasks[0].cancel()
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(end) for end in ends} == {asyncio.CancelledError}

    asyncio.run(main())

"""Nothing reads a whole table: the server's own counters of sequential scans, and the plans of the lists and searches.

The rows are made by the server (generate_series): 20,000 sessions, 200,000 entries. ENTRIES=1000000 makes a million.
A table that fits in a page is read whole by any planner, so leases, facts and ledger are filled as well.
"""

import asyncio
import os
import time
from types import SimpleNamespace

import pytest

import turnlog
from turnlog import Query
from turnlog.convlog import Filter, open_convlog
from turnlog.core.query import UNTRASHED
from turnlog.core.rows import FOLD
from turnlog.stores.postgres import statements
from turnlog.stores.postgres.pool import PostgresPool
from turnlog.testing import answered, entry, opened, said

from .. import postgres

ENTRIES = int(os.environ.get("ENTRIES", "200000"))
SESSIONS = ENTRIES // 10

FILL = [
    """
    INSERT INTO turnlog.sessions (session_id, session_key, agent_id, channel, label, status, title, message_count,
        turn_count, token_estimate, compactions, compaction_seq, last_seq, boundary, selected_n, unfinished,
        fold, created_at, updated_at, indexed_to, meta_json)
    SELECT 's' || n, 'agent:main:cli:direct:p' || n, 'a' || n % 50, 'c' || n % 20,
        CASE WHEN n % 10 = 0 THEN 'label' || n END, CASE WHEN n % 100 = 0 THEN 'archived' ELSE 'inactive' END,
        'title ' || n, 9, 5, 100, 0, 0, 10, 1, 0, n % 1000 = 0, {fold}, n, n, 10,
        format('{"id":"s%%1$s","key":"agent:main:cli:direct:p%%1$s","agentId":"a%%2$s","channel":"c%%3$s",'
               '"title":"title %%1$s","titleBy":"first","createdAt":%%1$s,"lastAt":%%1$s,"lastSeq":10,'
               '"messageCount":9,"turnCount":5,"fold":{fold}}', n, n %% 50, n %% 20)
    FROM generate_series(1, {sessions}) n
    """.replace("%%", "%"),
    """
    INSERT INTO turnlog.session_messages (session_id, seq, role, created_at, token, meta_json)
    SELECT 's' || s, n, 'user', '2026-01-01T00:00:00.000Z', 1,
        CASE n WHEN 1 THEN format('{{"type":"session","seq":1,"ts":"2026-01-01T00:00:00.000Z","version":1,"id":"s%s",'
            '"key":"agent:main:cli:direct:p%s","agent":"main","channel":"cli"}}', s, s)
        ELSE format('{{"type":"user","seq":%s,"ts":"2026-01-01T00:00:00.000Z","content":"word%s common"}}', n, s) END
    FROM generate_series(1, {sessions}) s, generate_series(1, 10) n
    """,
    """
    INSERT INTO turnlog.session_search (session_id, seq, id, at, role, words)
    SELECT session_id, seq, id, id, 'user', array_to_tsvector(ARRAY['common', 'word' || substr(session_id, 2)])
    FROM turnlog.session_messages WHERE seq > 1
    """,
    """
    INSERT INTO turnlog.session_words
    SELECT session_id, title, array_to_tsvector(ARRAY(SELECT DISTINCT substr(title, at, size)
        FROM generate_series(1, length(title)) at, generate_series(1, 3) size WHERE substr(title, at, size) <> ''))
    FROM turnlog.sessions
    """,
    """
    INSERT INTO turnlog.session_facts SELECT 's' || n, 'app', 'key', 2 FROM generate_series(1, {sessions}) n
    """,
    "INSERT INTO turnlog.ledger SELECT 'dedupe', 'k' || n, '1', n, 1 FROM generate_series(1, 20000) n",
    "INSERT INTO turnlog.leases SELECT 'x' || n, n, n, 'h', now() FROM generate_series(1, 20000) n",
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    here = postgres.server()
    name = here.database(tmp_path_factory.mktemp("plans"))

    async def create():
        async with turnlog.open_store(here.url(name)):
            pass

    asyncio.run(create())
    for statement in FILL:
        here.sql(
            statement.replace("{sessions}", str(SESSIONS))
            .replace("{fold}", str(FOLD))
            .replace("{{", "{")
            .replace("}}", "}"),
            name,
        )
    here.sql("VACUUM ANALYZE", name)
    return here, name


def sequential_scans(here, name):
    rows = here.sql("SELECT relname, seq_scan FROM pg_stat_user_tables", name)
    return {table: count for table, count in rows if table != "store_facts"}


async def everything(store):
    await store.append("new", [opened("new"), entry(type="selected", n=1)])
    async with store.lease("new") as lease:
        await store.append("new", [said("hello 并发"), answered("answer")], lease=lease)
        await asyncio.sleep(0.5)
    async with store.lease("s77") as lease:
        await store.append("s77", [said("more common"), answered("words")], lease=lease)
        await store.append("s77", [entry(type="rewind", to=3)], lease=lease)
    await store.read("s500", after=5)
    await store.read("s500", before=5, limit=2)
    await store.describe("s500")
    for fields in QUERIES:
        page = await store.find(Query(**fields))
        assert page.items, fields
    for sort in ("newest", "messages", "tokens", "id"):
        first = await store.find(Query(sort=sort, limit=5))
        await store.find(Query(sort=sort, limit=200, cursor=first.next))
    assert len(await store.search("word500")) == 9
    assert len(await store.search("common")) == 50
    assert await store.search("word50*", scope=Query(limit=5))
    assert await store.search("common", scope=Query(key="agent:main:cli:direct:p77"))
    assert await store.search("并发")
    await store.ledger.put_if_absent("dedupe", "new", 1, ttl_s=60)
    await store.ledger.cas("dedupe", "new", 1, 2)
    await store.ledger.list("dedupe", prefix="ne")
    await store.ledger.delete("dedupe", "new")
    await store.delete("new")


QUERIES = [
    {},
    {"id": "s5"},
    {"ids": ("s5", "s6")},
    {"key": "agent:main:cli:direct:p7"},
    {"agent": "a7"},
    {"agent": "a7", "status": "inactive"},
    {"channel": "c7"},
    {"label": "label50"},
    {"status": "archived"},
    {"status": "inactive"},
    {"prefix": "s12"},
    {"prefix": "label12"},
    {"q": "title 123"},
    {"q": "12"},
    {"status": UNTRASHED},
    {"status": UNTRASHED, "agent": "a7"},
    {"status": UNTRASHED, "channel": "c7"},
    {"sort": "messages"},
    {"sort": "tokens", "status": UNTRASHED},
    {"sort": "tokens", "agent": "a7"},
    {"sort": "messages", "q": "title 123"},
]


def test_no_operation_reads_a_whole_table(filled):
    here, name = filled

    async def run():
        async with turnlog.open_store(here.url(name)) as store:
            await everything(store)

    before = sequential_scans(here, name)
    asyncio.run(run())
    after = sequential_scans(here, name)
    assert {table: count - before[table] for table, count in after.items() if count != before[table]} == {}


def test_the_plans_use_the_indexes_meant_for_them(filled, monkeypatch):
    here, name = filled
    said_to_it = []
    plain = PostgresPool.all

    async def listen(self, sql, values=(), **options):
        said_to_it.append((sql, values))
        return await plain(self, sql, values, **options)

    async def run():
        async with turnlog.open_store(here.url(name)) as store:
            for fields in QUERIES:
                await store.find(Query(**fields))
            await store.search("word500")
            await store.read("s500", after=5)
            await store.ledger.list("dedupe", prefix="k19")

    monkeypatch.setattr(PostgresPool, "all", listen)
    asyncio.run(run())
    for sql, values in said_to_it:
        plan = "\n".join(line for (line,) in here.sql("EXPLAIN " + sql, name, values))
        assert "Seq Scan" not in plan, f"{sql}\n{values}\n{plan}"
        if "ORDER BY seq LIMIT" in sql:
            assert "session_messages_pkey" in plan
        if "t.words @@" in sql:
            assert "session_search_words" in plan
        if "w.grams @@" in sql:
            assert "session_words_grams" in plan


CHATS = [
    """
    INSERT INTO turnlog_convlog.conversations
    SELECT 'a' || c % 5, 'chat' || c, 'web', {each}, 1, c, {each} FROM generate_series(1, {chats}) c
    """,
    """
    INSERT INTO turnlog_convlog.messages
    SELECT 'a' || c % 5, 'chat' || c, n, 'ann', format('common words, word%s of chat%s', n, c), 1,
        format('{"ts":"2026-01-01T00:00:00.000Z","role":"user","content":"word%s of chat%s","channelId":"chat%s",'
               '"channelType":"web","sender":"ann"}', n, c, c)
    FROM generate_series(1, {chats}) c, generate_series(1, {each}) n
    """,
    """
    INSERT INTO turnlog_convlog.blocks
    SELECT agent, channel_id, min(n), max(n), array_to_tsvector(array_agg(DISTINCT substr(folded, at, 3)))
    FROM turnlog_convlog.messages, LATERAL generate_series(1, length(folded)) at
    GROUP BY agent, channel_id, (n - 1) / 64
    """,
]


def test_a_keyword_is_looked_for_in_the_blocks_that_may_have_it(tmp_path, monkeypatch):
    here = postgres.server()
    name = here.database(tmp_path)
    each, chats = 1_300, ENTRIES // 4_000
    said_to_it = []
    plain = PostgresPool.all

    async def listen(self, sql, values=(), **options):
        said_to_it.append((sql.replace("turnlog.", "turnlog_convlog."), values))
        return await plain(self, sql, values, **options)

    async def run():
        async with open_convlog(here.url(name)) as log:
            page = await log.messages("a3", "chat3", Filter(q="ord1234 of"))
            assert [item.content for item in page.items] == ["word1234 of chat3"]
            assert [row.channel_id for row in (await log.list(Filter(q="word77 of chat42"))).items] == ["chat42"]
            assert (await log.messages("a3", "chat3", limit=10)).total == each

    async def create():
        async with open_convlog(here.url(name)):
            pass

    asyncio.run(create())
    for statement in CHATS:
        here.sql(statement.replace("{each}", str(each)).replace("{chats}", str(chats)), name)
    here.sql("VACUUM ANALYZE", name)
    monkeypatch.setattr(PostgresPool, "all", listen)
    asyncio.run(run())
    for sql, values in said_to_it:
        plan = "\n".join(line for (line,) in here.sql("EXPLAIN " + sql, name, values))
        for table in ("messages", "blocks"):
            assert f"Seq Scan on {table}" not in plan, f"{sql}\n{values}\n{plan}"
        if "pieces" in sql:
            assert ("blocks_pkey" if "found" in sql else "blocks_pieces") in plan, f"{sql}\n{values}\n{plan}"


def test_the_total_of_a_long_list_is_remembered_for_a_while_and_that_of_a_short_one_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(statements, "MANY_SESSIONS", 5)
    here = postgres.server()

    async def run(url):
        async with turnlog.open_store(url) as one, turnlog.open_store(url) as other:
            for n in range(6):
                async with one.lease(f"s{n}") as lease:
                    await one.append(f"s{n}", [opened(f"s{n}", peer=f"p{n}")], lease=lease)
            assert (await one.find(Query())).total == 6
            await other.delete("s0")
            page = await one.find(Query())
            assert (page.total, len(page.items)) == (6, 5)
            assert (await one.find(Query(key="agent:main:cli:direct:p0"))).total == 0
            later = time.monotonic() + statements.TOTAL_KEPT_S
            monkeypatch.setattr(statements, "time", SimpleNamespace(monotonic=lambda: later))
            assert (await one.find(Query())).total == 5
            await other.delete("s1")
            monkeypatch.setattr(statements, "time", SimpleNamespace(monotonic=lambda: later + statements.TOTAL_KEPT_S))
            assert (await one.find(Query())).total == 4
            await other.delete("s2")
            assert (await one.find(Query())).total == 3

    asyncio.run(run(here.url(here.database(tmp_path))))

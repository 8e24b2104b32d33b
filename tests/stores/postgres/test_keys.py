"""Every statement that a turn makes names one session, or one key of the ledger: so the tables can be partitioned or
sharded by session. The statements are those that were really made, and the functions that they call are read too.
"""

import asyncio
import re
from pathlib import Path

import psycopg
import pytest

import turnlog
from turnlog.stores.postgres.pool import PostgresPool
from turnlog.testing import ScriptedProvider

from .. import postgres

DOCS = Path(__file__).parents[3] / "docs/operating/postgresql.md"
KEYS = {"ledger": ("space", "key")}
"""Tables that are not keyed by session first."""
FIXED = {"store_facts"}
"""Tables that do not grow with use."""
NAMED = re.compile(r"session_id\s*=\s*(%s|[a-z_]+\.?[a-z_]*|m\.session_id)|session_id IN \(|VALUES \(", re.IGNORECASE)
LEDGER_NAMED = re.compile(r"space = .*key = |INTO turnlog\.ledger", re.IGNORECASE | re.DOTALL)
BY_PLACE = "FROM turnlog.sessions s WHERE s.session_key = %s)"
"""Asked once for a place that nobody has written to before, in case the ledger was lost: an index of each partition."""
BACKGROUND = ("indexed_to <", "searched_to <", "has_older", "fold <", "space = %s AND key ^@ %s")
"""Statements of the search index, of an upgrade and of the look for stops of a long turn, which run apart from turns:
they read indexes that hold only the remaining work.
"""


def test_every_table_that_grows_is_keyed_by_session_first_or_by_its_own_full_key(tmp_path):
    here = postgres.server()
    url = here.url(here.database(tmp_path))

    async def create():
        async with turnlog.open(url, provider=ScriptedProvider(), home=tmp_path / "home") as t:
            await t.ask("agent:main:cli:direct:a", "hi")

    asyncio.run(create())
    for table, columns in primary_keys(url).items():
        if table not in FIXED:
            assert columns[: len(KEYS.get(table, ("session_id",)))] == KEYS.get(table, ("session_id",)), table


def primary_keys(url):
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT c.relname::text, array_agg(a.attname::text ORDER BY array_position(i.indkey::int2[], a.attnum))"
            " FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid"
            " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey)"
            " WHERE i.indisprimary AND c.relnamespace = 'turnlog'::regnamespace GROUP BY c.relname"
        ).fetchall()
    return {
        table: tuple(columns) for table, columns in found if table.startswith(("session", "lease", "ledger", "store"))
    }


@pytest.fixture
def said(monkeypatch):
    found = []
    every = PostgresPool.all

    async def recorded(self, sql, values=(), **options):
        found.append((sql, values))
        return await every(self, sql, values, **options)

    monkeypatch.setattr(PostgresPool, "all", recorded)
    return found


def scenes(url, home):
    """A new session, warm turns, tools, a compaction, a rewind, and a turn that another process left behind."""

    def tool() -> str:
        """Does nothing."""
        return "done"

    async def main():
        call = {"tool_calls": [{"id": "c1", "name": "tool", "input": {}}]}
        script = [{"text": "one"}, {"text": "two"}, call, {"text": "three"}, {"text": "four"}, {"text": "five"}]
        key = "agent:main:cli:direct:a"
        provider = ScriptedProvider(script, summaries=[{"text": "S"}])
        async with turnlog.open(url, provider=provider, home=home, tools=[tool]) as t:
            for text in ("hi", "again", "use it"):
                await t.ask(key, f"{text} " * 200)
            await t.compact(key)
            row = await t.session(key)
            await t.sessions.rewind(row.id, 4)
            await t.ask(key, "other words", dedupe_id="d1")
            async with t.store.lease("gone", wait_s=0):
                pass
        async with turnlog.open(url, provider=ScriptedProvider(), home=home) as t:
            await t.ask(key, "after a restart")

    asyncio.run(main())


def test_every_statement_of_a_turn_names_one_session_or_one_key(said, tmp_path):
    url = postgres.url_of(tmp_path)
    scenes(url, tmp_path / "home")
    statements = {sql for sql, _ in said}
    assert len(statements) > 5
    bodies = functions(url)
    called = {name for sql in statements for name in re.findall(r"turnlog\.(\w+)\(", sql)}
    called |= {inner for name in called for inner in re.findall(r"\.(\w+)\(", bodies.get(name, "")) if inner in bodies}
    parts = [*statements, *(part for name in called for part in bodies[name].split(";"))]
    for part in parts:
        if BY_PLACE not in part and not any(word in part for word in BACKGROUND):
            assert names_its_key(part), part
    assert sum(BY_PLACE in sql for sql, _ in said) <= 1  # the first turn of all; no later one


def test_the_tables_of_messages_can_be_partitioned_by_session_and_everything_works(said, tmp_path):
    here = postgres.server()
    url = here.url(here.database(tmp_path))

    async def create():
        async with turnlog.open_store(url):
            pass

    asyncio.run(create())
    [script] = re.findall(r"```sql\n(BEGIN;.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(script)
    scenes(url, tmp_path / "home")

    async def look():
        async with turnlog.open_store(url) as store:
            assert [hit.session_id for hit in await store.search("restart")]
            return await store.reindex()

    assert asyncio.run(look()) == 1
    with psycopg.connect(url) as connection:
        kinds = connection.execute(
            "SELECT relname::text FROM pg_class WHERE relkind = 'p' AND relnamespace = 'turnlog'::regnamespace"
        ).fetchall()
        plan = connection.execute(
            "EXPLAIN SELECT meta_json FROM turnlog.session_messages WHERE session_id = 's1' AND seq > 0"
        ).fetchall()
        assert connection.execute("SELECT count(*) FROM turnlog.session_state").fetchone()
    assert {name for (name,) in kinds} == {"session_messages", "session_search"}
    assert len(set(re.findall(r"session_messages_\d+", str(plan)))) == 1  # one partition is looked at


def functions(url):
    schema = re.search(r"schema=(\w+)", url)[1]
    with psycopg.connect(re.sub(r"&(schema|lease_s)=\w+", "", url)) as connection:
        found = connection.execute(
            "SELECT proname::text, prosrc FROM pg_proc WHERE pronamespace = %s::regnamespace", (schema,)
        ).fetchall()
    return {name: text.replace(f"{schema}.", "turnlog.") for name, text in found}


def names_its_key(sql):
    tables = set(re.findall(r"turnlog\.(sessions|session_\w+|leases|ledger)\b(?!\()", sql))
    if "ledger" in tables and not LEDGER_NAMED.search(sql):
        return False
    return not tables - {"ledger"} or bool(NAMED.search(sql))

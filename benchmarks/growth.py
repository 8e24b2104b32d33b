"""A PostgreSQL store that grows to millions of messages: what appends, a resume, lists and searches cost at each size.

    python -m benchmarks.growth [--messages 10000000]

The server makes the rows (generate_series), ten messages a session, each in the form that an append would give it; the
store itself is then measured on sessions from anywhere in it. Medians of wall time, and the slowest tenth.
"""

import argparse
import asyncio
import os
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable

import psycopg

from benchmarks import postgres_server
from turnlog import Query, Sessions, open_store
from turnlog.core.entries import Assistant, Entry, User
from turnlog.core.rows import FOLD
from turnlog.core.searchable import units
from turnlog.stores import Store
from turnlog.stores.postgres.lexemes import words_of

PER_SESSION = 10
NUMBER = "4711"
STEPS = (0.01, 0.03, 0.1, 0.3, 1.0)
TIMES = 200
WORDS = "the invoice of customer {n} names order QX-{n} and the report of last week, which is to be sent again"
SESSION_ROWS = """
INSERT INTO turnlog.sessions (session_id, session_key, agent_id, channel, status, title, message_count, turn_count,
    token_estimate, compactions, compaction_seq, last_seq, boundary, selected_n, unfinished, fold, created_at,
    updated_at, indexed_to, meta_json)
SELECT 's' || n, 'agent:main:web:direct:p' || n, 'main', 'web', 'inactive', 'invoice ' || n, {per}, {per} / 2,
    {per} * 30, 0, 0, {per} + 1, 1, 0, false, {fold}, n, n, {per} + 1,
    format('{{"id":"s%1$s","key":"agent:main:web:direct:p%1$s","agentId":"main","channel":"web","title":"invoice %1$s",'
        '"titleBy":"first","createdAt":%1$s,"lastAt":%1$s,"lastSeq":{last},"messageCount":{per},"turnCount":{half},'
        '"tokenEstimate":300,"firstMessage":2,"lastRole":"assistant","fold":{fold}}}', n)
FROM generate_series(%s::bigint, %s::bigint) n
"""
MESSAGE_ROWS = """
INSERT INTO turnlog.session_messages (session_id, seq, role, created_at, token, meta_json)
SELECT 's' || s, n, CASE WHEN n > 1 THEN CASE n % 2 WHEN 0 THEN 'user' ELSE 'assistant' END END,
    '2026-01-01T00:00:00.000Z', 1, CASE WHEN n = 1 THEN format('{{"type":"session","seq":1,'
        '"ts":"2026-01-01T00:00:00.000Z","version":1,"id":"s%1$s","key":"agent:main:web:direct:p%1$s","agent":"main",'
        '"channel":"web"}}', s)
    ELSE format('{{"type":"%s","seq":%s,"ts":"2026-01-01T00:00:00.000Z","content":"{words}"}}',
        CASE n % 2 WHEN 0 THEN 'user' ELSE 'assistant' END, n, s, s) END
FROM generate_series(%s::bigint, %s::bigint) s, generate_series(1, {last}) n
"""
SEARCH_ROWS = """
INSERT INTO turnlog.session_search (session_id, seq, id, at, role, words)
SELECT session_id, seq, id, id, role, array_to_tsvector(
    ARRAY[substr(session_id, 2)] || CASE role WHEN 'user' THEN ARRAY[{user}] ELSE ARRAY[{assistant}] END)
FROM turnlog.session_messages
WHERE seq > 1 AND session_id = ANY (SELECT 's' || n FROM generate_series(%s::bigint, %s::bigint) n)
"""
AT_ONCE = 20_000


def lexemes(entry: Entry) -> str:
    """What the store indexes of the entry, as SQL; without the session's number, which is a lexeme too."""
    (unit,) = units(entry, {})
    return ", ".join(f"'{lexeme}'" for lexeme in words_of(unit).split() if lexeme != NUMBER)


def load(url: str, first: int, last: int) -> None:
    """Sessions `first` to `last`."""
    words, sample = WORDS.replace("{n}", "%s"), WORDS.replace("{n}", NUMBER)
    parts = {
        "{per}": PER_SESSION,
        "{half}": PER_SESSION // 2,
        "{last}": PER_SESSION + 1,
        "{fold}": FOLD,
        "{words}": words,
        "{user}": lexemes(User(content=sample)),
        "{assistant}": lexemes(Assistant(content=sample)),
    }
    with psycopg.connect(url, autocommit=True) as connection:
        for sql in (SESSION_ROWS, MESSAGE_ROWS, SEARCH_ROWS):
            text = sql
            for name, value in parts.items():
                text = text.replace(name, str(value))
            text = text.replace("{{", "{").replace("}}", "}")
            for begin in range(first, last + 1, AT_ONCE):
                end = min(last, begin + AT_ONCE - 1)
                bound = text.replace("%s::bigint, %s::bigint", f"{begin}, {end}")
                connection.execute(bound.encode())
        connection.execute("ANALYZE")


async def timed(call: Callable[[int], Awaitable[object]], sessions: int, times: int = TIMES) -> tuple[float, float]:
    """(median, slowest tenth) in ms."""
    chosen = random.Random(7)
    samples: list[float] = []
    for _ in range(times):
        number = chosen.randint(1, sessions)
        began = time.perf_counter()
        await call(number)
        samples.append((time.perf_counter() - began) * 1000)
    return statistics.median(samples), statistics.quantiles(samples, n=10)[-1] if times > 1 else samples[0]


async def measure(store: Store, count: int) -> dict[str, tuple[float, float]]:
    sessions = Sessions(store)

    async def append(number: int) -> None:
        async with store.lease(f"s{number}") as lease:
            await store.append(f"s{number}", [User(content="one more"), Assistant(content="done")], lease=lease)

    async def search(number: int) -> None:
        hits = await store.search(f"QX-{number}", scope=Query(limit=20))
        assert any(hit.session_id == f"s{number}" for hit in hits)

    async def list_all(_: int) -> None:
        assert (await store.find(Query(agent="main", limit=50))).total >= count

    async def list_at(key: str) -> None:
        assert (await store.find(Query(key=key))).items

    return {
        "append": await timed(append, count),
        "resume": await timed(lambda number: sessions.load(f"s{number}"), count),
        "list, counted": await timed(list_all, count, 1),
        "list": await timed(list_all, count, 20),
        "list of one": await timed(lambda number: list_at(f"agent:main:web:direct:p{number}"), count),
        "search, rare word": await timed(search, count, 20),
    }


async def grow(url: str, messages: int) -> None:
    there = 0
    async with open_store(url) as store:
        for share in STEPS:
            wanted = max(1, int(messages * share) // PER_SESSION)
            began = time.perf_counter()
            await asyncio.to_thread(load, url, there + 1, wanted)
            there = wanted
            took = time.perf_counter() - began
            found = await measure(store, there)
            with psycopg.connect(url) as connection:
                size = connection.execute("SELECT pg_database_size(current_database())").fetchone()
            figures = " | ".join(f"{name} {median:.1f} ({slow:.1f})" for name, (median, slow) in found.items())
            stored = size[0] / 1e9 if size else 0
            print(
                f"{there * PER_SESSION:>11,} messages, {stored:.2f} GB (loaded in {took:.0f} s): {figures}", flush=True
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    asked = parser.parse_args()
    with postgres_server.serving(os.environ) as what, tempfile.TemporaryDirectory() as place:
        print(f"{what}\nMedian ms, and in brackets the slowest tenth:")
        asyncio.run(grow(postgres_server.url(postgres_server.database(place)), asked.messages))


if __name__ == "__main__":
    main()

"""Every store finds the same entries in the same order: transcripts and questions are generated."""

import asyncio
import random
from contextlib import AsyncExitStack

import pytest
from msgspec.structs import replace

from turnlog import Query, open_store
from turnlog.core import search, searchable
from turnlog.core.entries import (
    Assistant,
    Compaction,
    Opened,
    Pin,
    Received,
    Rewind,
    Title,
    ToolResult,
    Undo,
    User,
)
from turnlog.errors import UsageError
from turnlog.stores import index_timer
from turnlog.stores.postgres import search_index

from . import postgres

_PLAIN = "budget harbour invoice retention deploy planned cluster node region parcel signal ledger the of is with"
_NAMES = (
    "parseConfig src/payment.py lib/io/HTTPServer2.ts QX-7741 INV2041 v2.4.1 10.0.3.17 1,234,567 1234567 foo_bar"
    " https://example.org/a/b?q=7 ann@example.org naïve Straße STRASSE ﬁeld 4711 user_id"
)
_OTHER = "海港项目 预算 支付失败 数据库 迁移 東京支社 予算 会議室 テスト 예산은 회의실 서버를 งบประมาณ โครงการ"
WORDS = f"{_PLAIN} {_NAMES} {_OTHER}".split()
JOINTS = (" ", " ", " ", ", ", "\n", "", " is ", "的", "は")
ASKED = (
    "what is the {} of {}?",
    "{}的{}是多少？",
    "{}の{}はいくらですか",
    '"{} {}"',
    "{} -{}",
    "{} {}",
    "from:user {} {}",
)
FILTERS = ("from:ann", "from:tool", "from:assistant", "from:read_file", "after:2026-03-02", "before:2026-03-02T06:00")


class Scribe:
    """Writes a transcript. Every entry has its own time, so that no store may choose between equals."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.at = 0

    def text(self, most=14):
        pick = self.random
        return "".join(pick.choice(WORDS) + pick.choice(JOINTS) for _ in range(pick.randrange(1, most))) + pick.choice(
            WORDS
        )

    def ts(self):
        self.at += self.random.randrange(1, 900_000)
        minutes, ms = divmod(self.at, 60_000)
        day, minute = divmod(minutes, 1440)
        return f"2026-03-{1 + day % 28:02}T{minute // 60:02}:{minute % 60:02}:{ms // 1000:02}.{ms % 1000:03}Z"

    def turn(self, seq):
        """The entries after `seq`."""
        kind = self.random.randrange(12)
        user = User(content=self.text(), sender=self.random.choice((None, "Ann Lee", "bob")))
        answer = Assistant(content=[{"type": "text", "text": self.text()}])
        if kind < 4:
            return [user, answer]
        if kind < 8:
            name = self.random.choice(("read_file", "search_history", "mcp__notes__recall"))
            calls = [
                {"type": "text", "text": self.text(3)},
                {"type": "tool_use", "id": f"c{seq}", "name": name, "input": {"path": self.text(2), "n": [seq, {}]}},
            ]
            output = self.text() if kind < 7 else "\n".join(f"line {n} {self.text(4)}" for n in range(60))
            return [user, Assistant(content=calls), ToolResult(tool_use_id=f"c{seq}", content=output), answer]
        if kind == 8:
            return [Title(title=self.text(3)), user, answer]
        if kind == 9 and seq > 8:
            return [Rewind(to=self.ends[self.random.randrange(len(self.ends))]), user, answer]
        if kind == 10 and seq > 8:
            kept = self.random.randrange(4, seq)
            fold = Compaction(summary=self.text(), first_kept=kept, covers=(2, kept - 1))
            return [fold, Undo(target=seq + 1)] if self.random.random() < 0.3 else [fold]
        return [Received(content=self.text()), User(from_=(seq + 1,)), answer, Pin(target=2)]

    async def write(self, store, name, turns):
        """Writes to this store, and returns what it has taken."""
        agent = self.random.choice(("main", "ops"))
        opened = Opened(id=name, key=f"agent:{agent}:cli:direct:{name}", agent=agent, channel="cli")
        groups = [[replace(opened, ts=self.ts())]]
        self.ends = [1]
        async with store.lease(name) as lease:
            row = (await store.append(name, groups[0])).row
            for _ in range(turns):
                group = [replace(entry, ts=self.ts()) for entry in self.turn(row.last_seq)]
                try:
                    row = (await store.append(name, group, lease=lease)).row
                except UsageError:
                    continue  # a summary that would leave a gap
                self.ends.append(row.last_seq)
                groups.append(group)
        return groups

    def question(self):
        pick = self.random
        words = pick.choice(ASKED).format(pick.choice(WORDS), pick.choice(WORDS))
        words = pick.choice((words, pick.choice(WORDS), self.text(4)))
        return f"{words} {pick.choice(FILTERS)}" if pick.random() < 0.3 else words

    def scope(self, sessions):
        pick = self.random
        return pick.choice(
            (
                Query(),
                Query(id=pick.choice(sessions)),
                Query(agent="ops", limit=7),
                Query(key=f"agent:main:cli:direct:{sessions[0]}"),
                Query(status=("active", "inactive"), limit=200),
            )
        )


async def _fill(store, logs):
    for name, groups in logs.items():
        async with store.lease(name) as lease:
            for group in groups:
                await store.append(name, group, lease=lease)


async def _fill_postgres(store, logs, indexed):
    """Indexes so much of each log."""
    parts = {name: round(len(groups) * indexed) for name, groups in logs.items()}
    await _fill(store, {name: groups[: parts[name]] for name, groups in logs.items()})
    await search_index.catch_up(store._db)
    await _fill(store, {name: groups[parts[name] :] for name, groups in logs.items()})


@pytest.mark.parametrize(
    ("seed", "most", "indexed"), [(1, 1_000, 1), (2, 8, 1), (3, 1_000, 0.5), (4, 8, 0.7), (5, 8, 0)]
)
def test_every_store_finds_the_same_in_the_same_order(seed, most, indexed, tmp_path, monkeypatch):
    scribe = Scribe(seed)
    monkeypatch.setattr(index_timer, "INDEX_AFTER_S", 3_600)
    monkeypatch.setattr(search, "CANDIDATES_MAX", most)
    monkeypatch.setattr(searchable, "PART_CHARS", 1_000)

    async def run():
        async with AsyncExitStack() as opened:
            urls = ["memory:", f"jsonl:{tmp_path}/j", f"sqlite:{tmp_path}/s.db", postgres.url_of(tmp_path)]
            stores = [await opened.enter_async_context(open_store(url)) for url in urls]
            logs = {f"s{n}": await scribe.write(stores[0], f"s{n}", 25) for n in range(3)}
            for store in stores[1:-1]:
                await _fill(store, logs)
            await _fill_postgres(stores[-1], logs, indexed)
            some = 0
            for _ in range(80):
                words, scope = scribe.question(), scribe.scope(sorted(logs))
                before = scribe.random.choice((None, None, 30))
                first, *others = [await store.search(words, scope=scope, before=before) for store in stores]
                some += bool(first)
                for url, hits in zip(urls[1:], others, strict=True):
                    assert hits == first, (url, words, scope)
            assert some > 40

    asyncio.run(run())

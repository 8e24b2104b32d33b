"""Writes a transcript into a store, compacts it a number of times, and counts what is still there."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

import turnlog
from benchmarks.fidelity.summarisers import SUMMARISERS
from benchmarks.fidelity.transcripts import Language, MarkedTranscript, QuestionKind, make
from turnlog import Turnlog
from turnlog.core.entries import Compaction, Entry, text_of
from turnlog.core.identifiers import found_in, is_in
from turnlog.core.prompt import Prompt, as_dict
from turnlog.core.session import Session
from turnlog.core.summaries import SECTIONS
from turnlog.core.summary_check import CORRECTED_HEADING, LIST_LEAD
from turnlog.providers.offline import OfflineProvider
from turnlog.tools import Toolbox, history_tools
from turnlog.turns.journal import Journal
from turnlog.turns.tool_context import context_of

ASKED_MAX = 12
"""The questions asked of each kind, chosen by the seed."""
BEGIN = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
STEP = timedelta(seconds=47)
KINDS: tuple[QuestionKind, ...] = ("value", "subject", "question", "call", "line", "newest")


class Figures(Struct, frozen=True, kw_only=True):
    """Percentages, and numbers of what should not be."""

    pinned: float
    undone: float
    invented: int
    found: dict[QuestionKind, float]
    in_prompt: float
    stale: int
    changed: int


class Summarising(OfflineProvider):
    """The offline model with a summariser of its own."""

    def __init__(self, write: Callable[[Prompt], str], window: int) -> None:
        super().__init__(window=window)
        self._write = write

    async def summarise(self, prompt: Prompt) -> str:
        return self._write(prompt)


def clock() -> Callable[[], int]:
    """Later than every message, and the same in every run."""
    moments = iter(range(1_790_000_000_000, 1_800_000_000_000, 1_000))
    return lambda: next(moments)


class Cell(Struct, frozen=True):
    """One row of the table, which one process measures."""

    number: int
    language: Language
    compactions: int
    summariser: str
    messages: int
    window: int


def measure_on_each(cell: Cell, urls: Sequence[str]) -> list[Figures]:
    """`urls`: with a place for the number of the row."""
    marked = make(cell.language, cell.messages)
    each = (measure(u.format(cell.number), marked, cell.summariser, cell.compactions, cell.window) for u in urls)
    return [asyncio.run(one) for one in each]


async def measure(url: str, marked: MarkedTranscript, summariser: str, compactions: int, window: int) -> Figures:
    provider = Summarising(SUMMARISERS[summariser], window)
    async with turnlog.open(url, home="/nonexistent", provider=provider, clock=clock(), store_durability="os") as t:
        row = await t.sessions.new(f"agent:main:cli:direct:{marked.language}-{summariser}-{compactions}")
        before = await _write(t, row, marked, compactions)
        shown = _text(await t.prompt(row.id))
        log = await t.store.read(row.id)
        found = await _found(t, row, marked)
        await t.sessions.undo(row.id)
        undone = _bytes(await t.prompt(row.id)) == before
    return Figures(
        pinned=_share(text_of(marked.messages[n].content) in shown for n in marked.pinned),
        undone=100.0 * undone,
        invented=_invented(log),
        found=found,
        in_prompt=_share(is_in(marker, shown) for marker in marked.markers),
        stale=sum(is_in(one.old, shown) and not is_in(one.new, shown) for one in marked.changed),
        changed=len(marked.changed),
    )


async def _write(t: Turnlog, row: Session, marked: MarkedTranscript, compactions: int) -> str:
    """Appends and compacts in turn; returns the prompt before the last compaction."""
    count = len(marked.messages)
    before = ""
    for number in range(compactions):
        first, end = (_turn_start(marked.messages, count * n // compactions) for n in (number, number + 1))
        stamped = [
            replace(entry, ts=(BEGIN + STEP * n).isoformat(timespec="milliseconds").replace("+00:00", "Z"))
            for n, entry in enumerate(marked.messages[first:end], first)
        ]
        async with t.store.lease(row.id) as lease:
            stored = await t.store.append(row.id, stamped, lease=lease)
        for n in marked.pinned:
            if first <= n < end:
                await t.sessions.pin(row.id, stored[n - first].seq)
        before = _bytes(await t.prompt(row.id))
        await t.compact(row.id)
    return before


def _turn_start(messages: Sequence[Entry], at: int) -> int:
    """The next place that does not part a turn."""
    while at < len(messages) and not isinstance(messages[at], turnlog.User):
        at += 1
    return at


async def _found(t: Turnlog, row: Session, marked: MarkedTranscript) -> dict[QuestionKind, float]:
    chosen = random.Random(len(marked.messages))
    box = Toolbox(history_tools())
    hits: Counter[QuestionKind] = Counter()
    asked: Counter[QuestionKind] = Counter()
    async with t.store.lease(row.id) as lease:
        loaded = await t.sessions.load(row.id)
        context = context_of(t.sessions, Journal(t.store, lease, loaded), "main", loaded.session.last_seq + 1, None)
        for kind in KINDS:
            all_asked = [one for one in marked.asked if one.kind == kind]
            for one in chosen.sample(all_asked, min(ASKED_MAX, len(all_asked))):
                call = {"type": "tool_use", "id": "look", "name": "search_history", "input": {"words": one.words}}
                answer = text_of((await box.run(call, context)).content)
                where = answer.split("\n")[1] if kind == "newest" else answer
                hits[kind] += one.expected in where
                asked[kind] += 1
    return {kind: 100 * hits[kind] / asked[kind] for kind in KINDS if asked[kind]}


def _invented(log: Sequence[Entry]) -> int:
    """Identifiers in summaries that no message has."""
    said = "\n".join(json.dumps(entry.content, ensure_ascii=False) for entry in log if hasattr(entry, "content"))
    frame = "\n".join((*SECTIONS, CORRECTED_HEADING, LIST_LEAD))
    names = {
        name
        for entry in log
        if isinstance(entry, Compaction)
        for line in entry.summary.splitlines()
        if not line.startswith("## ")
        for name in found_in(line)
    }
    return sum(name not in said and name not in frame for name in names)


def _text(prompt: Prompt) -> str:
    return "\n".join([prompt.system, *(_words(message["content"]) for message in prompt.messages)])


def _words(content: object) -> str:
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False).replace("\\n", "\n")


def _bytes(prompt: Prompt) -> str:
    return json.dumps(as_dict(prompt), ensure_ascii=False)


def _share(held: Iterable[bool]) -> float:
    each = list(held)
    return 100 * sum(each) / len(each) if each else 100.0

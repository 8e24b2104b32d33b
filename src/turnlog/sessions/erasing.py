"""Finds the words to erase in sessions: in entries, and in what was made from them (summaries, titles, forks)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, cast

from msgspec import Struct, to_builtins

from ..core import erasing
from ..core.entries import Assistant, Block, Compaction, Entry, Facts, Title, Transcript, kind_of, text_of, tool_uses
from ..core.forks import words_of
from ..core.marks import on_path, path_of
from ..core.outline import for_erasing
from ..core.principals import Principal
from ..core.query import Query
from ..core.rows import Session
from ..core.user_content import with_words
from ..errors import Denied, UsageError
from ..stores.finding import every_row
from . import Sessions, holding

TEXT_MIN_CHARS = 3
"""A shorter text would be found everywhere."""
Made: TypeAlias = Literal["entry", "summary", "title", "fact", "fork", "label", "convlog", "ledger"]

_MADE: Mapping[str, Made] = {"compaction": "summary", "title": "title", "facts": "fact"}


class FoundWords(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A place that holds words to be erased. It never repeats them."""

    made: Made
    session_id: str = ""
    seq: int = 0
    type: str = ""
    where: str = ""
    count: int = 1
    free: bool = False
    """Whether it can be erased without redaction."""


class SessionFinds(Struct, frozen=True):
    """The entries of one session."""

    row: Session
    entries: list[FoundWords]
    derived: list[FoundWords]
    texts: list[str]
    """What these entries say, to find copies of it. Never shown."""


def check_asked(who: Principal, seqs: Sequence[int], text: str | None, *, everywhere: bool) -> None:
    if "admin" not in who.scopes:
        raise Denied("only an administrator may erase")
    if bool(seqs) == (text is not None):
        raise UsageError("say what to erase: entries or a text", hint="Use either seqs (--seq) or text (--text).")
    if text is not None and len(text.strip()) < TEXT_MIN_CHARS:
        raise UsageError(f"the text has fewer than {TEXT_MIN_CHARS} characters", hint="Give a longer part of it.")
    if everywhere and seqs:
        raise UsageError(
            "each session numbers its own entries", hint="Name the session, or give a text to erase it everywhere."
        )


async def look(sessions: Sessions, row: Session, seqs: Sequence[int], text: str | None) -> SessionFinds:
    """The words to erase in one session."""
    log: list[Entry] = []
    holders: list[int] = []
    async for page in sessions.pages(row):
        log += map(for_erasing, page)
        if text is not None:
            holders += [entry.seq for entry in page if _is_open(entry) and holds(entry, text)]
    if text is None:
        chosen = erasing.plan(log, seqs, redact=True).seqs
        made = _made_from(log, set(chosen))
    else:
        kinds = {entry.seq for entry in log if isinstance(entry, Compaction | Title)}
        made = [seq for seq in holders if seq in kinds]
        chosen = sorted(erasing.together(log, [seq for seq in holders if seq not in kinds]))
    chosen = [seq for seq in chosen if seq not in made]
    if text is not None:
        return _finds(row, log, chosen, made, [text])
    source = await entries_of(sessions, row, chosen)
    made += [seq for seq in await _facts_with(sessions, row, log, _whole_texts(source)) if seq not in chosen]
    said = [text_of(getattr(entry, "content", "")) for entry in source]
    return _finds(row, log, chosen, made, [one for one in said if one.strip()])


async def entries_of(sessions: Sessions, row: Session, seqs: Collection[int]) -> list[Entry]:
    """These entries, without those that were erased."""
    wanted = set(seqs)
    return [entry async for page in sessions.pages(row) for entry in page if entry.seq in wanted and _is_open(entry)]


def _is_open(entry: Entry) -> bool:
    return not entry.erased and entry.blank is not None


def _finds(row: Session, log: Transcript, chosen: Sequence[int], made: Sequence[int], texts: list[str]) -> SessionFinds:
    there = {entry.seq: entry for entry in log if _is_open(entry)}
    free = _free(log)
    entries = [FoundWords("entry", row.id, n, kind_of(there[n]), free=n in free) for n in chosen if n in there]
    derived = [FoundWords(_MADE[kind_of(there[n])], row.id, n, kind_of(there[n])) for n in made if n in there]
    return SessionFinds(row, entries, derived, texts)


def _free(log: Transcript) -> set[int]:
    """The entries that were rewound. Facts that no longer count are found when they are erased."""
    path = path_of(log)
    return {entry.seq for entry in log if not on_path(entry.seq, path)}


def _made_from(log: Transcript, chosen: Collection[int]) -> list[int]:
    """Summaries that cover these entries, and titles that were made of the conversation."""
    found: list[int] = []
    for entry in log:
        if isinstance(entry, Compaction) and any(entry.covers[0] <= seq <= entry.covers[1] for seq in chosen):
            found.append(entry.seq)
        if isinstance(entry, Title) and entry.by == "auto":
            found.append(entry.seq)
    return [seq for seq in found if seq not in chosen]


def holds(entry: Entry, text: str) -> bool:
    """Whether any text in the entry contains these words. Bytes in facts are looked at too."""
    return holding.holds(to_builtins(entry), text)


def _whole_texts(entries: Iterable[Entry]) -> set[str]:
    """What these messages say, and the ids of their calls: a framework that keeps a message twice repeats them."""
    found: set[str] = set()
    for entry in entries:
        content = getattr(entry, "content", None)
        blocks = cast("list[Block]", content) if isinstance(content, list) else [{"text": content}]
        found.update(text for block in blocks if isinstance(text := block.get("text"), str))
        if isinstance(entry, Assistant):
            found.update(str(block.get("id")) for block in tool_uses(entry))
    return {text for text in found if len(text.strip()) >= TEXT_MIN_CHARS}


async def _facts_with(sessions: Sessions, row: Session, log: Transcript, texts: Collection[str]) -> list[int]:
    """The entries with facts that repeat one of these texts."""
    if not texts or not any(isinstance(entry, Facts) for entry in log):
        return []
    return [
        entry.seq
        async for page in sessions.pages(row)
        for entry in page
        if isinstance(entry, Facts) and holding.repeats(to_builtins(entry.put), texts)
    ]


async def related(sessions: Sessions, row: Session) -> list[Session]:
    """The sessions that were forked from this one or its forks, and those it was forked from."""
    rows = {one.id: one async for one in every_row(sessions.list, Query())}
    found = {row.id}
    while True:
        more = {name for name, one in rows.items() if one.forked_from and one.forked_from.id in found}
        more |= {one.forked_from.id for name, one in rows.items() if name in found and one.forked_from}
        if more <= found:
            return [rows[name] for name in sorted(found - {row.id}) if name in rows]
        found |= more


async def look_in_fork(sessions: Sessions, row: Session, source: Sequence[Entry], text: str | None) -> list[FoundWords]:
    """The entries of a related session that hold the text, or are copies of these entries."""
    log: list[Entry] = []
    copies = {(entry.seq, entry.ts) for entry in source}
    words = {words_of(entry) for entry in with_words(source)}
    chosen: list[int] = []
    async for page in sessions.pages(row):
        log += map(for_erasing, page)
        chosen += [
            entry.seq
            for entry in page
            if _is_open(entry)
            and ((entry.seq, entry.ts) in copies or words_of(entry) in words if text is None else holds(entry, text))
        ]
    kinds = {entry.seq: kind_of(entry) for entry in log}
    open_ones = {entry.seq for entry in log if _is_open(entry)}
    return [
        FoundWords("fork", row.id, seq, kinds[seq]) for seq in sorted(erasing.together(log, chosen)) if seq in open_ones
    ]

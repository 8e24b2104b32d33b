"""Imports conversations of other programs into a store. The source is never changed.

Each conversation becomes a session whose id is a digest of its identity in the source. A repeated import compares the
session with the source, entry by entry: equal entries are left alone, new ones are added, and a difference is reported
and nothing changed. docs/decisions/0011-import.md has the reasons.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from itertools import accumulate, islice
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ...codecs import native as native_codec
from ...core import keys, names
from ...core.entries import Entry, Failed, Foreign, Opened, Title
from ...core.session import Session
from ...errors import TurnlogError, UsageError
from ...library import Turnlog
from ...stores import Lease, Progress, Store
from . import claude_code, codex, databases, dialects, documents, gemini, lines, messages, native, opencode, zeroclaw
from .detect import Refused, Source, sources
from .draft import Draft, RecordReader, SourceRecord
from .following import Follower

BATCH_ENTRIES = 500
BATCH_BYTES = 8 * 1024 * 1024
"""The bytes held in memory and synced at a time."""
STEP_RECORDS = 200
"""The records read before the event loop gets its turn."""
UNDER_WAY = "the source ended here when it was imported"

READERS: dict[str, Callable[[Draft], RecordReader]] = {
    "native": native.NativeReader,
    **dict.fromkeys(("pi", "openclaw", "zyhive"), dialects.V3Reader),
    **dict.fromkeys(("claw0", "claw0-keyed"), dialects.FlatReader),
    "claude-code": claude_code.ClaudeCodeReader,
    "codex": codex.CodexReader,
    "opencode": opencode.OpenCodeReader,
    "gemini": gemini.GeminiReader,
    "messages": messages.MessagesReader,
    "zeroclaw": zeroclaw.ZeroClawReader,
}


class Imported(Struct, frozen=True):
    """The result for one conversation, or for a file without one."""

    id: str
    """Empty if nothing could be imported."""
    source: str
    entries: int
    """The entries written now, without those of an earlier import."""
    notes: tuple[str, ...]
    """What could not be carried over, and where."""


async def import_path(
    into: Store | Turnlog,
    path: str | Path,
    *,
    agent: str = "main",
    key: str | None = None,
    progress: Progress | None = None,
) -> list[Imported]:
    """Imports a file or a directory of any known kind. Sessions are created at `key`, and not selected."""
    store = into.store if isinstance(into, Turnlog) else into
    keys.check_agent(agent)
    place = keys.format(keys.parse(key)) if key else None
    found = await asyncio.to_thread(lambda: list(sources(Path(path))))
    if not any(isinstance(source, Source) for source in found):
        raise _nothing(Path(path), found)
    telling = _telling(found, progress)
    imported: list[Imported] = []
    with ExitStack() as stack:
        opened = _databases(stack)
        for source in found:
            read = telling(source.path)
            imported.append(await _import(store, source, agent, place, opened, read))
            read(_size(source.path))
    return imported


def _nothing(path: Path, found: list[Source | Refused]) -> UsageError:
    first = next((source for source in found if isinstance(source, Refused)), None)
    why = f"{first.path} {first.why}" if first else f"there is not a transcript of a known kind in {path}"
    return UsageError(why, hint="Name a file or a directory that one of the known programs wrote.")


def _telling(found: list[Source | Refused], progress: Progress | None) -> Callable[[Path], Callable[[int], None]]:
    """Progress in bytes over all files, so that one large file shows as well as many small ones."""
    sizes = {source.path: _size(source.path) for source in found}
    starts = dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))
    total = sum(sizes.values())

    def reading(path: Path) -> Callable[[int], None]:
        return lambda done: progress(min(starts[path] + done, total), total) if progress else None

    return reading


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


async def _import(
    store: Store,
    source: Source | Refused,
    agent: str,
    key: str | None,
    files: "Databases",
    read: Callable[[int], None],
) -> Imported:
    if isinstance(source, Refused):
        return Imported("", str(source.path), 0, (f"not imported: it {source.why}",))
    opened = _opened(source, agent, key)
    draft = Draft(source.kind, exact=isinstance(source.opened, Opened))
    try:
        records = _records(source, files, read)
        async with AsyncExitStack() as stack:
            return await _write(store, _Batch(store, stack, opened.id), source, opened, draft, records)
    except TurnlogError as error:
        return Imported("", str(source.path), 0, (*draft.notes(), f"not imported: {error} {error.hint}".strip()))


def _opened(source: Source, agent: str, key: str | None) -> Opened:
    if isinstance(source.opened, Opened) and keys.SESSION_ID.match(source.opened.id):
        return _own(source.opened, agent)
    identity = "\0".join((source.kind, source.agent, source.id, agent)).encode("utf-8", "replace")
    session_id = f"imp-{hashlib.sha256(identity).hexdigest()[:24]}"
    place = keys.parse(key or f"agent:{agent}:{source.kind}:direct:import")
    label = names.one_line(source.row.label)[: names.LABEL_MAX_CHARS]
    return Opened(
        id=session_id,
        key=keys.format(place),
        agent=place.agent,
        channel=place.channel,
        label=label if names.is_seen(label) else None,
    )


def _own(opened: Opened, agent: str) -> Opened:
    """A session of Turnlog keeps its key; the values of the file are checked before a store makes a path of them."""
    try:
        place = keys.parse(opened.key)
    except UsageError:
        place = keys.parse(f"agent:{agent}:native:direct:import")
    return replace(opened, seq=0, key=keys.format(place), agent=place.agent, channel=place.channel)


def _records(source: Source, opened: "Databases", read: Callable[[int], None]) -> Iterator[SourceRecord]:
    match source.form:
        case "lines":
            return lines.records(source.path, read)
        case "document":
            return documents.records(source.path, read=read)
        case _:
            return zeroclaw.records(opened(source.path), source.opened)


Databases: TypeAlias = Callable[[Path], databases.Reader]


def _databases(stack: ExitStack) -> Databases:
    """Keeps one database open at a time: it holds many sessions, and opening it may mean copying it."""
    opened: dict[Path, databases.Reader] = {}

    def database(path: Path) -> databases.Reader:
        if path not in opened:
            stack.close()
            opened.clear()
            opened[path] = stack.enter_context(databases.reading(path))
        return opened[path]

    return database


def _noted(records: Iterator[SourceRecord], draft: Draft) -> Iterator[SourceRecord]:
    for record in records:
        if record.problem and isinstance(record.value, dict):
            draft.note(record.problem, record.place)
        yield record


async def _write(
    store: Store, batch: "_Batch", source: Source, opened: Opened, draft: Draft, records: Iterator[SourceRecord]
) -> Imported:
    follower = await Follower.start(store, opened.id)
    batch.incarnation = follower.incarnation
    _begin(draft, source, opened)
    steps = READERS[source.kind](draft).read(_noted(records, draft))
    going = True
    while going:
        draft.skip(await follower.closing(draft.last_seq))
        # Comparing is done record by record, which is too little work for a thread.
        behind = follower.behind
        going = _step(steps, draft, 1) if behind else await asyncio.to_thread(_step, steps, draft, STEP_RECORDS)
        for entry in map(draft.storable, draft.take()):
            if not await follower.matches(entry):
                if follower.differs:
                    return Imported(opened.id, str(source.path), 0, (*draft.notes(), follower.differs))
                await batch.add(entry)
    await batch.flush()
    if more := follower.more(draft.last_seq):
        draft.note(more)
    elif batch.written:
        await _close(batch, source, await store.describe(opened.id, incarnation=batch.incarnation), draft.ts)
    return Imported(opened.id, str(source.path), batch.written, draft.notes())


def _step(steps: Iterator[None], draft: Draft, count: int) -> bool:
    """Reads the next records; False at the end of the source, when the draft holds its last entries."""
    before = draft.last_seq
    read = sum(1 for _ in islice(steps, count))
    return read > 0 or draft.last_seq > before


def _begin(draft: Draft, source: Source, opened: Opened) -> None:
    draft.add(opened, opened.ts or None)
    if not draft.exact:
        told = {"kind": source.kind, "id": source.id if "/" not in source.id else source.path.name}
        draft.keep({"import": told | ({"agent": source.agent} if source.agent else {})})


class _Batch:
    """Takes the lease only if there is something to write: most repeated imports have nothing new."""

    def __init__(self, store: Store, stack: AsyncExitStack, session_id: str) -> None:
        self._store = store
        self._stack = stack
        self._lease: Lease | None = None
        self._id = session_id
        self.incarnation: str | None = None
        """The incarnation of the session that was created or compared here."""
        self._entries: list[Entry] = []
        self._bytes = 0
        self.written = 0

    async def add(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._bytes += len(native_codec.encode(entry))
        if len(self._entries) >= BATCH_ENTRIES or self._bytes >= BATCH_BYTES:
            await self.flush()

    async def flush(self) -> None:
        if self._entries:
            if self._lease is None:
                self._lease = await self._stack.enter_async_context(self._store.lease(self._id))
            first = self._entries[0].seq
            bodies = [replace(entry, seq=0) for entry in self._entries]
            made = await self._store.append(
                self._id, bodies, expect=first - 1, lease=self._lease, incarnation=self.incarnation
            )
            self.incarnation = made.row.incarnation
            self.written += len(bodies)
            self._entries, self._bytes = [], 0


async def _close(batch: _Batch, source: Source, row: Session, ts: str) -> None:
    """Appends the data of the source's index, and marks a turn that was unfinished in the source as failed."""
    extra = list(_closing(source, row))
    if extra or source.row.fields:
        marker = Foreign(raw={"import": "end", "then": len(extra), "row": source.row.fields})
        for seq, entry in enumerate([marker, *extra], row.last_seq + 1):
            await batch.add(replace(entry, seq=seq, ts=ts))
        await batch.flush()


def _closing(source: Source, row: Session) -> Iterator[Entry]:
    if source.row.title.strip() and row.title_by in ("", "first"):
        yield Title(title=source.row.title, by="auto")
    if row.under_way:
        yield Failed(code="interrupted", reason=UNDER_WAY)

"""Conversations of other programs, read into a store of ours. The source is never written to.

Each becomes a session whose id is a digest of what it is in the source. An import that is repeated compares what is
there with what the source says now, entry by entry: what is equal is left alone, what the source has more is added,
and what differs is reported and not touched. docs/decisions/0011-import.md has the reasons.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack
from itertools import islice
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ..codecs import native as native_codec
from ..core import keys
from ..core.entries import Entry, Failed, Foreign, Opened, Title
from ..core.session import Session
from ..errors import TurnlogError, UsageError
from ..stores import Lease, Progress, Store
from . import claude_code, codex, databases, dialects, documents, gemini, lines, messages, native, opencode, zeroclaw
from .detect import Refused, Source, sources
from .draft import Draft, Record
from .following import Follower

BATCH_ENTRIES = 500
BATCH_BYTES = 8 * 1024 * 1024
"""What is held in memory and made durable at a time."""
STEP_RECORDS = 200
"""Records read between two looks at the event loop."""
LABEL_MAX_CHARS = 200
UNDER_WAY = "the source ended here when it was imported"

READERS: dict[str, Callable[[Iterable[Record], Draft], Iterator[None]]] = {
    "native": native.read,
    **dict.fromkeys(("pi", "openclaw", "zyhive"), dialects.read_v3),
    **dict.fromkeys(("claw0", "claw0-keyed"), dialects.read_flat),
    "claude-code": claude_code.read,
    "codex": codex.read,
    "opencode": opencode.read,
    "gemini": gemini.read,
    "messages": messages.read,
    "zeroclaw": zeroclaw.read,
}


class Imported(Struct, frozen=True):
    """What became of one conversation, or of a file that held none."""

    id: str
    """Empty if nothing of it could be imported."""
    source: str
    entries: int
    """Entries written now; those of an earlier import are not counted."""
    notes: tuple[str, ...]
    """What could not be carried over, where it was."""


async def import_path(
    store: Store, path: str | Path, *, agent: str = "main", key: str | None = None, progress: Progress | None = None
) -> list[Imported]:
    """A file or a directory of any known kind. Sessions are made at `key`, and selected nowhere."""
    keys.check_agent(agent)
    place = keys.format(keys.parse(key)) if key else None
    found = await asyncio.to_thread(lambda: list(sources(Path(path))))
    if not any(isinstance(source, Source) for source in found):
        raise _nothing(Path(path), found)
    told = _Told(found, progress)
    imported: list[Imported] = []
    with _OpenDatabase() as opened:
        for n, source in enumerate(found):
            imported.append(await _import(store, source, agent, place, opened, told.reading(n)))
            told.reading(n)(_size(source.path))
    return imported


def _nothing(path: Path, found: list[Source | Refused]) -> UsageError:
    first = next((source for source in found if isinstance(source, Refused)), None)
    why = f"{first.path} {first.why}" if first else f"there is no transcript of a known kind in {path}"
    return UsageError(why, hint="Name a file or a directory that one of the known programs wrote.")


class _Told:
    """Progress in bytes over all files, so that one large file shows as well as many small ones."""

    def __init__(self, found: list[Source | Refused], progress: Progress | None) -> None:
        self._progress = progress
        self._before: list[int] = []
        self._total = 0
        seen: set[Path] = set()
        for source in found:
            self._before.append(self._total)
            if source.path not in seen:
                self._total += _size(source.path)
            seen.add(source.path)

    def reading(self, n: int) -> Callable[[int], None]:
        start = self._before[n]

        def told(done: int) -> None:
            if self._progress:
                self._progress(min(start + done, self._total), self._total)

        return told


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
    files: "_OpenDatabase",
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
    label = " ".join(source.row.label.split())[:LABEL_MAX_CHARS]
    return Opened(
        id=session_id,
        key=keys.format(place),
        agent=place.agent,
        channel=place.channel,
        label=label if label.isprintable() and label else None,
    )


def _own(opened: Opened, agent: str) -> Opened:
    """A session of ours keeps its place; what a file says is checked before a store makes a path of it."""
    try:
        place = keys.parse(opened.key)
    except UsageError:
        place = keys.parse(f"agent:{agent}:native:direct:import")
    return replace(opened, seq=0, key=keys.format(place), agent=place.agent, channel=place.channel)


def _records(source: Source, opened: "_OpenDatabase", read: Callable[[int], None]) -> Iterator[Record]:
    match source.form:
        case "lines":
            return lines.records(source.path, read)
        case "document":
            return documents.records(source.path, read=read)
        case _:
            return zeroclaw.records(opened.database(source.path), source.opened)


class _OpenDatabase:
    """The database that is being read: one holds many sessions, and opening it may mean copying it."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._db: databases.Reader | None = None
        self._stack = ExitStack()

    def __enter__(self) -> "_OpenDatabase":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def database(self, path: Path) -> databases.Reader:
        if self._db is None or path != self._path:
            self._stack.close()
            self._path, self._db = path, self._stack.enter_context(databases.reading(path))
        return self._db


def _noted(records: Iterator[Record], draft: Draft) -> Iterator[Record]:
    for record in records:
        if record.problem and isinstance(record.value, dict):
            draft.note(record.problem, record.place)
        yield record


async def _write(
    store: Store, batch: "_Batch", source: Source, opened: Opened, draft: Draft, records: Iterator[Record]
) -> Imported:
    follower = await Follower.start(store, opened.id)
    _begin(draft, source, opened)
    steps = READERS[source.kind](_noted(records, draft), draft)
    going = True
    while going:
        draft.skip(await follower.closing(draft.last_seq))
        # Comparing goes record by record, which is too little work for a thread of its own.
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
        await _close(batch, source, await store.describe(opened.id), draft.ts)
    return Imported(opened.id, str(source.path), batch.written, draft.notes())


def _step(steps: Iterator[None], draft: Draft, count: int) -> bool:
    """Reads on; False at the end of the source, when what is in the draft is the last of it."""
    before = draft.last_seq
    read = sum(1 for _ in islice(steps, count))
    return read > 0 or draft.last_seq > before


def _begin(draft: Draft, source: Source, opened: Opened) -> None:
    draft.add(opened, opened.ts or None)
    if not draft.exact:
        told = {"kind": source.kind, "id": source.id if "/" not in source.id else source.path.name}
        draft.keep({"import": told | ({"agent": source.agent} if source.agent else {})})


class _Batch:
    """Takes the lease when there is something to write: most of what is imported again has nothing new."""

    def __init__(self, store: Store, stack: AsyncExitStack, session_id: str) -> None:
        self._store = store
        self._stack = stack
        self._lease: Lease | None = None
        self._id = session_id
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
            await self._store.append(self._id, bodies, expect=first - 1, lease=self._lease)
            self.written += len(bodies)
            self._entries, self._bytes = [], 0


async def _close(batch: _Batch, source: Source, row: Session, ts: str) -> None:
    """What the source's index says, and that a turn which was under way there is not ours to go on with."""
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

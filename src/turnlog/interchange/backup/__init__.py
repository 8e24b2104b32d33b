"""Backup and restore of everything that a store keeps: sessions, ledger, convlog and memory, in one file.

A backup is made while the store is in use: each session is in it up to a moment between the start and the end of the
backup, whole appends only, because a log only grows. It can be restored into a store of any kind. Restoring adds what
is missing and overwrites nothing: a session that is there already must begin like the one in the backup, or end where
its beginning ends; so a restore that was interrupted can be repeated.

The configuration, the administrator's token file and the workspaces of agents are plain files and are not part of it.
"""

import asyncio
import hashlib
import os
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...codecs import native
from ...convlog import ConvLog, Record, has_convlog, open_convlog
from ...core.entries import Entry, Opened
from ...core.paging import batches
from ...core.query import PAGE_MAX
from ...errors import Conflict, NotFound, UsageError
from ...memory import Memo, Memory, is_there, open_memory, place_of
from ...sessions.copying import SPACES, all_ids, copy_fact, pages
from ...sessions.reading import described
from ...stores import LedgerFact, Progress, Store, open_store
from ...stores.disk.files import disk_errors, lock, sync_dir
from ...stores.facts import every_fact
from ...stores.stamping import now_ms, timestamp
from .archive import VERSION, ArchiveReader, ArchiveWriter, BackupCounts, BackupSummary, is_like_one

MADE_SUFFIX = ".part"


class Restored(Struct, frozen=True):
    sessions: int
    """In the backup."""
    entries: int
    """Entries written now, without those that existed already."""
    facts: int
    said: int
    memos: int


async def backup(url: str, path: str | Path, *, progress: Progress | None = None) -> BackupSummary:
    """Writes a backup of the store to a file. The file appears under its name once it is whole and synced.

    It replaces an older backup, and no other file: who names the database here wants a copy of it, not its end.
    """
    path = Path(path)
    if path.exists() and not is_like_one(path):
        raise UsageError(f"{path} exists already, and is not a backup", hint="Name the file that is to be written.")
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(url, create=False))
        with disk_errors(f"the backup {path} cannot be written"):
            _remove_abandoned(path)
            descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=MADE_SUFFIX)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    lock(descriptor, wait=False)  # as long as it is unfinished: nobody takes it for an abandoned one
                    await _Backup(url, store, file).write(progress)
                    await asyncio.to_thread(_sync, file)
                    summary = await asyncio.to_thread(check, name)  # what was written can be read back
                    Path(name).replace(path)
                    sync_dir(path.parent)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
    return summary


def _remove_abandoned(path: Path) -> None:
    """What earlier backups to this file have left that were killed: nobody holds a lock on it."""
    for part in path.parent.iterdir():
        if part.name.startswith(f".{path.name}.") and part.name.endswith(MADE_SUFFIX):
            with suppress(OSError), part.open("rb") as file:
                if lock(file.fileno(), wait=False):
                    part.unlink()


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def check(path: str | Path) -> BackupSummary:
    """What a backup holds; Corrupt if it is not whole, or was changed."""
    return _proven(Path(path))[0]


def _proven(path: Path) -> tuple[BackupSummary, set[str]]:
    """What a backup holds, and the sessions that were deleted while it was made."""
    reader = ArchiveReader(path)
    dropped = {value["id"] for value, _ in reader.lines() if value and value["turnlog"] == "dropped"}
    assert reader.summary is not None  # otherwise it is damaged
    return reader.summary, dropped


class _Backup:
    def __init__(self, url: str, store: Store, file: BinaryIO) -> None:
        self._url = url
        self._store = store
        self._out = ArchiveWriter(file)
        self._entries = 0
        self._total = hashlib.sha256()

    async def write(self, progress: Progress | None) -> None:
        self._out.add("backup", version=VERSION, made=timestamp(now_ms()))
        ids = sorted([session_id async for session_id in all_ids(self._store)])
        for number, session_id in enumerate(ids, 1):
            await self._session(session_id)
            if progress:
                progress(number, len(ids))
        await self._facts()
        if has_convlog(self._url):
            await self._said()
        if is_there(place_of(self._url)):
            await self._memos()
        sessions, facts, said, memos = (self._out.counts[kind] for kind in ("session_end", "fact", "said", "memo"))
        self._out.finish(BackupCounts(sessions, self._entries, facts, said, memos), self._total.hexdigest())

    async def _session(self, session_id: str) -> None:
        """A session that is deleted meanwhile is left out."""
        self._out.add("session", id=session_id)
        digest, count = hashlib.sha256(), 0
        try:
            row = await self._store.describe(session_id)
            async for page in pages(self._store, session_id, after=0, to=row.last_seq, incarnation=row.incarnation):
                lines = await asyncio.to_thread(_lines, page)
                for line in lines:
                    digest.update(line + b"\n")
                    self._out.add_entry(line)
                count += len(lines)
        except NotFound:
            self._out.add("dropped", id=session_id)
            return
        self._out.add("session_end", id=session_id, entries=count, digest=digest.hexdigest())
        self._total.update(f"{session_id} {digest.hexdigest()}\n".encode())
        self._entries += count

    async def _facts(self) -> None:
        for space in SPACES:
            async for fact in every_fact(self._store.ledger, space):
                self._out.add("fact", space=space, key=fact.key, value=fact.value, until=fact.until)

    async def _said(self) -> None:
        async with open_convlog(self._url) as convlog:
            for one in await convlog.all():
                start: str | None = "0"
                while start is not None:
                    found = await convlog.messages(one.agent_id, one.channel_id, limit=PAGE_MAX, cursor=start)
                    for record in found.items:
                        self._out.add("said", agent=one.agent_id, record=record)
                    start = found.next

    async def _memos(self) -> None:
        async with open_memory(place_of(self._url), create=False) as memory:
            async for memo in _all_memos(memory):
                self._out.add("memo", memo=memo)


async def restore(path: str | Path, url: str, *, progress: Progress | None = None) -> Restored:
    """Adds to a store what a backup holds and the store has not; creates the store if it is not there.

    The file is read twice: nothing is written before all of it is proven.
    """
    summary, dropped = await asyncio.to_thread(_proven, Path(path))
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(url))
        return await _Restore(url, store, stack).read(Path(path), summary, dropped, progress)


class _Restore:
    def __init__(self, url: str, store: Store, stack: AsyncExitStack) -> None:
        self._url = url
        self._store = store
        self._stack = stack
        self._memory: tuple[Memory, Counter[bytes]] | None = None
        """With the memos that the store had before; each is the same as one memo of the backup."""
        self._convlog: ConvLog | None = None
        self._conversations: dict[tuple[str, str], int] = {}
        """(agent, conversation) → records that are still to be skipped, because the store has them."""

    async def read(self, path: Path, summary: BackupSummary, dropped: set[str], progress: Progress | None) -> Restored:
        entries = facts = said = memos = sessions = 0
        lines = ArchiveReader(path).lines()
        for value, _ in lines:
            match value:
                case {"turnlog": "session", "id": session_id} if session_id not in dropped:
                    entries += await self._session(session_id, _log(lines))
                    sessions += 1
                    if progress:
                        progress(sessions, summary.counts.sessions)
                case {"turnlog": "fact"}:
                    fact = LedgerFact(value["key"], value["value"], value["until"])
                    facts += await self._fact(value["space"], fact)
                case {"turnlog": "said"}:
                    said += await self._said(value["agent"], msgspec.convert(value["record"], Record))
                case {"turnlog": "memo"}:
                    memos += await self._memo(msgspec.convert(value["memo"], Memo))
                case _:
                    """The entries of a session that was deleted while the backup was made, or of a newer version."""
        return Restored(sessions, entries, facts, said, memos)

    async def _session(self, session_id: str, log: Iterator[Entry]) -> int:
        there = await described(self._store, session_id)
        made = there.incarnation if there else None
        async for page in pages(self._store, session_id, after=0, incarnation=made) if there else _nothing():
            given = list(islice(log, len(page)))
            if [_line(entry) for entry in given] != [_line(entry) for entry in page[: len(given)]]:
                raise Conflict(
                    f"session {session_id} is in the store already and differs from the backup",
                    hint="Delete or move one of the two; nothing was overwritten.",
                )
            if len(given) < len(page):
                return 0  # the store has all that the backup has, and more
        written = 0
        async with self._store.lease(session_id) as lease:
            for page in batches(log):
                bodies = [replace(entry, seq=0) for entry in page]
                done = await self._store.append(
                    session_id, bodies, expect=page[0].seq - 1, lease=lease, incarnation=made
                )
                made, written = done.row.incarnation, written + len(page)
        return written

    async def _fact(self, space: str, fact: LedgerFact) -> int:
        if space not in SPACES or (fact.until is not None and fact.until <= now_ms()):
            return 0
        return await copy_fact(self._store, space, fact, now_ms)

    async def _said(self, agent: str, record: Record) -> int:
        if self._convlog is None:
            self._convlog = await self._stack.enter_async_context(open_convlog(self._url))
        place = (agent, record.channel_id)
        if place not in self._conversations:
            self._conversations[place] = (await self._convlog.messages(*place, limit=1)).total
        if self._conversations[place]:
            self._conversations[place] -= 1
            return 0
        await self._convlog.write(agent, record.channel_id, record)
        return 1

    async def _memo(self, memo: Memo) -> int:
        if self._memory is None:
            memory = await self._stack.enter_async_context(open_memory(place_of(self._url)))
            self._memory = memory, Counter([_of_memo(one) async for one in _all_memos(memory)])
        memory, known = self._memory
        if known[_of_memo(memo)]:
            known[_of_memo(memo)] -= 1
            return 0
        await memory.save(memo.agent, memo.owner, memo.text, ts=memo.ts)
        return 1


def _log(lines: Iterator[tuple[dict[str, Any] | None, bytes]]) -> Iterator[Entry]:
    """The entries up to the line that ends the session."""
    for value, line in lines:
        if value is not None:
            return
        yield native.decode(line)


def _line(entry: Entry) -> bytes:
    """Each store sets its own incarnation."""
    return native.encode(replace(entry, incarnation=None) if isinstance(entry, Opened) else entry)


def _lines(page: list[Entry]) -> list[bytes]:
    return [_line(entry) for entry in page]


def _of_memo(memo: Memo) -> bytes:
    text = f"{memo.agent}\n{memo.owner}\n{memo.ts}\n{memo.text}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


async def _all_memos(memory: Memory) -> AsyncIterator[Memo]:
    """Oldest first, so that they keep their order."""
    found: list[Memo] = []
    before: int | None = None
    while page := await memory.list(before=before, limit=PAGE_MAX):
        found += page
        before = page[-1].id
    for memo in reversed(found):
        yield memo


async def _nothing() -> AsyncIterator[list[Entry]]:
    return
    yield


__all__ = ["BackupCounts", "BackupSummary", "Restored", "backup", "check", "restore"]

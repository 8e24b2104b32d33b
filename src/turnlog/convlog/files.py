"""The convlog of a JSONL store: `agents/{agent}/convlogs/{channel}.jsonl`, one record per line, readable with `cat`."""

import asyncio
import fcntl
import os
import threading
from collections import OrderedDict
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

import msgspec

from ..core.keys import AGENT_ID
from ..core.session import milliseconds
from ..errors import StoreUnavailable
from ..stores.disk.files import disk_errors, make_dir, replace_file
from . import AgentRecord, Conversation, Filter, Record, erased_record, file_name, matches

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Record).decode


KEPT_BYTES = 16 * 2**20
"""The files whose records are remembered have this size together, or there is only one. In memory they take a few times
as much.
"""


class FileBackend:
    """Remembers what each file held by its size, because files only grow, until one is replaced."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._known: OrderedDict[Path, tuple[int, int, list[Record]]] = OrderedDict()
        """(inode, bytes, records) of the files that were read last: erasing replaces a file."""
        self._bytes = 0
        self._told: dict[Path, tuple[int, int, Conversation]] = {}
        """(inode, bytes, what a list says) of all files."""

    async def append(self, records: Sequence[AgentRecord]) -> None:
        await asyncio.to_thread(self._append_all, records)

    def _append_all(self, records: Sequence[AgentRecord]) -> None:
        failed: StoreUnavailable | None = None
        for agent, record in records:
            try:
                self._append(agent, record)
            except StoreUnavailable as error:  # the others may be of other agents and channels
                failed = error
        if failed is not None:
            raise failed

    def _append(self, agent: str, record: Record) -> None:
        folder = self._root / "agents" / agent / "convlogs"
        path = folder / f"{file_name(record.channel_id)}.jsonl"
        try:
            make_dir(folder)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            with _locked(path, flags) as file:
                size = os.fstat(file.fileno()).st_size
                # A line that a crash cut short stays; the next record begins on its own line.
                torn = size and os.pread(file.fileno(), 1, size - 1) != b"\n"
                file.write((b"\n" if torn else b"") + _encode(record) + b"\n")
        except OSError as error:
            raise StoreUnavailable(f"the convlog cannot be written: {error.strerror}") from error

    async def conversations(self, wanted: Filter) -> list[Conversation]:
        return await asyncio.to_thread(lambda: list(self._conversations(wanted)))

    def _conversations(self, wanted: Filter) -> Iterator[Conversation]:
        for agent, path in self._files(wanted):
            if wanted.sender is None and wanted.q is None:
                found = self._conversation(agent, path)
                if found and _is_of(wanted, found.channel_type, found.channel_id):
                    yield found
            elif (records := self._read(path)) and _is_wanted(wanted, records):
                yield _described(agent, records)

    def _conversation(self, agent: str, path: Path) -> Conversation | None:
        """What a list says of a file, which is read only if it has changed."""
        try:
            about = path.stat()
        except OSError:
            self._told.pop(path, None)
            return None
        ino, size, found = self._told.get(path, (0, -1, None))
        if found is None or (ino, size) != (about.st_ino, about.st_size):
            if not (records := self._read(path)):
                return None
            found = _described(agent, records)
            self._told[path] = about.st_ino, about.st_size, found
        return found

    def _files(self, wanted: Filter) -> Iterator[tuple[str, Path]]:
        for folder in sorted((self._root / "agents").glob("*/convlogs")):
            agent = folder.parent.name
            if AGENT_ID.match(agent) and (wanted.agents is None or agent in wanted.agents):
                for path in sorted(folder.glob("*.jsonl")):
                    yield agent, path

    def _read(self, path: Path) -> list[Record]:
        try:
            about = path.stat()
        except OSError:
            return []
        with self._lock:
            ino, at, records = self._known.get(path, (0, 0, []))
        if about.st_size < at or about.st_ino != ino:
            at, records = 0, []
        if about.st_size > at:
            with path.open("rb") as file:
                file.seek(at)
                data = file.read()
            whole = data.rfind(b"\n") + 1
            at, records = at + whole, [*records, *_records(data[:whole])]
        self._keep(path, (about.st_ino, at, records))
        return records

    def _keep(self, path: Path, read: tuple[int, int, list[Record]]) -> None:
        with self._lock:
            self._drop(path)
            self._known[path] = read
            self._bytes += read[1]
            while self._bytes > KEPT_BYTES and len(self._known) > 1:
                self._drop(next(iter(self._known)))

    def _drop(self, path: Path) -> None:
        self._bytes -= self._known.pop(path, (0, 0, []))[1]

    async def erase(self, agent: str, channel_id: str, texts: Sequence[str]) -> int:
        path = self._root / "agents" / agent / "convlogs" / f"{file_name(channel_id)}.jsonl"
        with disk_errors("the convlog cannot be erased"):
            return await asyncio.to_thread(self._erase, path, texts) if path.exists() else 0

    def _erase(self, path: Path, texts: Sequence[str]) -> int:
        count = 0
        with _locked(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW) as file:
            lines = file.read().split(b"\n")
            for n, line in enumerate(lines):
                new = [erased_record(record, texts) for record in _records(line)]
                if new and new[0] is not None:
                    lines[n] = _encode(new[0])
                    count += 1
            if count:
                replace_file(path, b"\n".join(lines), durable=True)
        with self._lock:
            self._drop(path)
        return count

    async def records(self, agent: str, wanted: Filter, start: int, limit: int) -> tuple[list[Record], int]:
        path = self._root / "agents" / agent / "convlogs" / f"{file_name(wanted.channel_id or '')}.jsonl"
        found = [record for record in await asyncio.to_thread(self._read, path) if matches(wanted, record)]
        return found[start : start + limit], len(found)

    async def close(self) -> None:
        """Nothing is kept open."""


@contextmanager
def _locked(path: Path, flags: int) -> Generator[FileIO]:
    """The file, locked; not one that was replaced meanwhile."""
    while True:
        with os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_nlink:
                yield file
                return


def _records(data: bytes) -> Iterator[Record]:
    for line in data.split(b"\n"):
        if line.strip():
            try:
                yield _decode(line)
            except msgspec.MsgspecError:
                continue  # a line that a crash cut short


def _described(agent: str, records: Sequence[Record]) -> Conversation:
    return Conversation(
        channel_id=records[0].channel_id,
        channel_type=records[0].channel_type,
        agent_id=agent,
        message_count=len(records),
        first_at=milliseconds(records[0].ts),
        last_at=milliseconds(records[-1].ts),
    )


def _is_of(wanted: Filter, channel_type: str, channel_id: str) -> bool:
    return wanted.channel_type in (None, channel_type) and wanted.channel_id in (None, channel_id)


def _is_wanted(wanted: Filter, records: Sequence[Record]) -> bool:
    if not _is_of(wanted, records[0].channel_type, records[0].channel_id):
        return False
    by_sender = wanted.sender is None or any(record.sender == wanted.sender for record in records)
    about = Filter(q=wanted.q)
    return by_sender and any(matches(about, record) for record in records)

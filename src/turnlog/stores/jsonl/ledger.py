"""The ledger of the JSONL store: an append-only file of facts, kept in memory, shared by processes under its lock.

If a damaged line still says which fact it is about, that fact is unreadable, because an older line may say the opposite
(for example that a token is valid). Other damaged lines are reported, kept and skipped.
"""

import asyncio
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from .. import Clock, LedgerFact, Notice, boundary, facts
from ..disk.files import disk_errors, lock, open_private, read_at, replace_file, unlock, write_all
from ..disk.syncing import Syncer

SPARE_LINES = 1_000
T = TypeVar("T")


class LedgerLine(Struct, array_like=True, gc=False):
    """space, key, value (None: deleted), Unix ms at which it expires."""

    space: str
    key: str
    value: Any = None
    until: int | None = None


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(LedgerLine)
_head = msgspec.json.Decoder(tuple[str, str])
_HEAD = re.compile(rb'\[\s*"(?:[^"\\]|\\.)*"\s*,\s*"(?:[^"\\]|\\.)*"')


@boundary.ledger
class JsonlLedger:
    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        syncer: Syncer | None,
        notice: Callable[[Notice], None],
        make: Callable[[], None] | None = None,
        read_only: bool = False,
    ) -> None:
        """`make`: called before the file is created for its first fact; without it, the file is created at opening."""
        self._flags = os.O_RDONLY if read_only else os.O_RDWR | os.O_APPEND | os.O_CREAT
        self._path = path
        self._make = make
        self._clock = clock
        self._syncer = syncer
        self._notice = notice
        self._turn = asyncio.Lock()
        self._fd = -1
        self._reset()

    def _reset(self) -> None:
        self._facts: dict[str, dict[str, LedgerLine]] = {}
        """By space and key."""
        self._damaged: list[bytes] = []
        """Lines that cannot be read at all, not even which fact they are about."""
        self._size = 0
        self._lines = 0

    def open(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._make is None or self._path.exists():
            self._fd = open_private(self._path, self._flags)
        self._reset()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    async def get(self, space: str, key: str, *, from_memory: bool = False) -> Any:
        return await self._locked(lambda: (self._live(space, key), None))

    async def put_if_absent(self, space: str, key: str, value: Any, *, ttl_s: float | None = None) -> Any:
        def change() -> tuple[Any, LedgerLine | None]:
            there = self._live(space, key)
            return there, self._line(space, key, value, ttl_s) if there is None else None

        return await self._locked(change)

    async def cas(self, space: str, key: str, old: Any, new: Any, *, ttl_s: float | None = None) -> bool:
        def change() -> tuple[bool, LedgerLine | None]:
            same = self._live(space, key) == old
            return same, self._line(space, key, new, ttl_s) if same else None

        return await self._locked(change)

    async def list(self, space: str, *, prefix: str = "", after: str = "", limit: int = 1000) -> list[LedgerFact]:
        def look() -> tuple[list[LedgerFact], None]:
            here = self._facts.get(space, {})
            names = sorted(key for key in here if key > after and key.startswith(prefix))
            found = (LedgerFact(key, self._live(space, key), here[key].until) for key in names)
            return [fact for fact in found if fact.value is not None][:limit], None

        return await self._locked(look)

    async def delete(self, space: str, key: str) -> bool:
        def change() -> tuple[bool, LedgerLine | None]:
            there = self._live(space, key) is not None
            return there, LedgerLine(space, key) if there else None

        return await self._locked(change)

    def _line(self, space: str, key: str, value: Any, ttl_s: float | None) -> LedgerLine:
        return LedgerLine(space, key, value, None if ttl_s is None else self._clock() + int(ttl_s * 1000))

    def _live(self, space: str, key: str) -> Any:
        line = self._facts.get(space, {}).get(key)
        if line is None or (line.until is not None and line.until <= self._clock()):
            return None
        return line.value

    async def _locked(self, change: Callable[[], tuple[T, LedgerLine | None]]) -> T:
        """Reads new lines, decides, writes and syncs, all under the file's lock."""
        async with self._turn:
            if self._fd < 0:
                self.open()
            if self._fd < 0 and self._make is not None:
                answer, line = change()
                if line is None:
                    return answer
                with disk_errors("the ledger cannot be made"):
                    self._make()
                    self._fd = open_private(self._path, self._flags)
            await self._take_lock()
            try:
                with disk_errors("the ledger cannot be written"):
                    self._catch_up()
                    answer, line = change()
                    if line is not None:
                        await self._write(line)
                    return answer
            finally:
                unlock(self._fd)

    async def _take_lock(self) -> None:
        while True:
            pause = 0.0005
            while not lock(self._fd, wait=False):
                await asyncio.sleep(pause)
                pause = min(pause * 2, 0.02)
            if os.fstat(self._fd).st_nlink:
                return
            unlock(self._fd)
            self.open()

    def _catch_up(self) -> None:
        there = os.fstat(self._fd).st_size
        if there == self._size:
            return
        data = read_at(self._fd, self._size, there)
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            # We hold the lock, so nobody is writing: a crash left this.
            os.ftruncate(self._fd, self._size + whole)
            self._notice(Notice(what="a torn last line was dropped", where=str(self._path)))
        for number, raw in enumerate(data[:whole].split(b"\n")[:-1], self._lines + 1):
            self._lines += 1
            if line := self._read(raw, number):
                self._fold(line)
        self._size += whole

    def _fold(self, line: LedgerLine) -> None:
        self._facts.setdefault(line.space, {})[line.key] = line

    def _read(self, raw: bytes, number: int) -> LedgerLine | None:
        try:
            return _decoder.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            why = f"line {number}: {error}"
        self._notice(Notice(what=f"a fact cannot be read, and counts as absent ({why})", where=str(self._path)))
        if (about := _about(raw)) is None:
            self._damaged.append(raw)
            facts.report("", f"{self._path}:{number}", why)
            return None
        return LedgerLine(*about, raw.decode("utf-8", "replace"))

    async def _write(self, line: LedgerLine) -> None:
        data = _encode(line) + b"\n"
        try:
            write_all(self._fd, data)
            if self._syncer is not None:
                done = self._syncer.request(self._fd)
                try:
                    await done
                finally:
                    if done.exception():
                        os.ftruncate(self._fd, self._size)
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(data)
        self._lines += 1
        self._fold(line)
        if self._lines > 2 * sum(map(len, self._facts.values())) + len(self._damaged) + SPARE_LINES:
            self._rewrite()

    def _rewrite(self) -> None:
        """Keeps only valid and damaged lines. Other processes notice that their file is gone and open the new one."""
        now = self._clock()
        lines = [line for space in self._facts.values() for line in space.values()]
        held = [f for f in lines if f.value is not None and (f.until is None or f.until > now)]
        damaged = self._damaged
        replace_file(self._path, b"\n".join([*damaged, *map(_encode, held), b""]), durable=self._syncer is not None)
        old, self._fd = self._fd, open_private(self._path, os.O_RDWR | os.O_APPEND)
        self._reset()
        self._damaged = damaged
        for line in held:
            self._fold(line)
        self._size, self._lines = os.fstat(self._fd).st_size, len(held) + len(damaged)
        # Nobody can change the new file before the old lock is released: they must read it first anyway.
        os.close(old)
        lock(self._fd)


def _about(raw: bytes) -> tuple[str, str] | None:
    """The fact that a damaged line is about, if its beginning says so."""
    found = _HEAD.match(raw)
    try:
        return _head.decode(found[0] + b"]") if found else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None

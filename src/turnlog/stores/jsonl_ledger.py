"""The ledger of the JSONL store: an append-only file of facts, folded in memory, shared by processes under its lock."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from ..errors import Corrupt
from . import Clock, Fact, Notice
from .files import disk_errors, lock, open_private, read_at, replace_file, unlock, write_all
from .syncing import Syncer

SPARE_LINES = 1_000
T = TypeVar("T")


class Line(Struct, array_like=True, gc=False):
    """space, key, value (None: deleted), Unix ms at which it ceases to hold."""

    space: str
    key: str
    value: Any = None
    until: int | None = None


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Line)


class JsonlLedger:
    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        syncer: Syncer | None,
        notice: Callable[[Notice], None],
        make: Callable[[], None] | None = None,
    ) -> None:
        """`make`: called before the file is made at its first fact; without it, the file is made when it is opened."""
        self._path = path
        self._make = make
        self._clock = clock
        self._syncer = syncer
        self._notice = notice
        self._turn = asyncio.Lock()
        self._fd = -1
        self._reset()

    def _reset(self) -> None:
        self._facts: dict[tuple[str, str], Line] = {}
        self._size = 0
        self._lines = 0

    def open(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._make is None or self._path.exists():
            self._fd = open_private(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        self._reset()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    async def get(self, space: str, key: str) -> Any:
        return await self._locked(lambda: (self._live(space, key), None))

    async def put_if_absent(self, space: str, key: str, value: Any, *, ttl_s: float | None = None) -> Any:
        def change() -> tuple[Any, Line | None]:
            there = self._live(space, key)
            return there, self._line(space, key, value, ttl_s) if there is None else None

        return await self._locked(change)

    async def cas(self, space: str, key: str, old: Any, new: Any, *, ttl_s: float | None = None) -> bool:
        def change() -> tuple[bool, Line | None]:
            same = self._live(space, key) == old
            return same, self._line(space, key, new, ttl_s) if same else None

        return await self._locked(change)

    async def list(self, space: str, *, prefix: str = "", limit: int = 1000) -> list[Fact]:
        def look() -> tuple[list[Fact], None]:
            names = sorted(key for name, key in self._facts if name == space and key.startswith(prefix))
            facts = (Fact(key, self._live(space, key), self._facts[space, key].until) for key in names)
            return [fact for fact in facts if fact.value is not None][:limit], None

        return await self._locked(look)

    async def delete(self, space: str, key: str) -> bool:
        def change() -> tuple[bool, Line | None]:
            there = self._live(space, key) is not None
            return there, Line(space, key) if there else None

        return await self._locked(change)

    def _line(self, space: str, key: str, value: Any, ttl_s: float | None) -> Line:
        return Line(space, key, value, None if ttl_s is None else self._clock() + int(ttl_s * 1000))

    def _live(self, space: str, key: str) -> Any:
        line = self._facts.get((space, key))
        if line is None or (line.until is not None and line.until <= self._clock()):
            return None
        return line.value

    async def _locked(self, change: Callable[[], tuple[T, Line | None]]) -> T:
        """Catch up, decide, write, sync: all under the file's lock."""
        async with self._turn:
            if self._fd < 0:
                self.open()
            if self._fd < 0 and self._make is not None:
                answer, line = change()
                if line is None:
                    return answer
                with disk_errors("the ledger cannot be made"):
                    self._make()
                    self._fd = open_private(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
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
            # We hold the lock, so nobody is writing: this is what a crash left.
            os.ftruncate(self._fd, self._size + whole)
            self._notice(Notice(what="a torn last line was dropped", where=str(self._path)))
        for number, raw in enumerate(data[:whole].split(b"\n")[:-1], self._lines + 1):
            try:
                line = _decoder.decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise Corrupt(
                    f"{self._path}, line {number}: {error}",
                    path=str(self._path),
                    line=number,
                    hint="Move the file away: what sessions keys have selected is rebuilt from the transcripts.",
                ) from error
            self._facts[line.space, line.key] = line
            self._lines += 1
        self._size += whole

    async def _write(self, line: Line) -> None:
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
        self._facts[line.space, line.key] = line
        if self._lines > 2 * len(self._facts) + SPARE_LINES:
            self._rewrite()

    def _rewrite(self) -> None:
        """Only what still holds. Others notice that their file is gone and open the new one."""
        now = self._clock()
        held = [f for f in self._facts.values() if f.value is not None and (f.until is None or f.until > now)]
        replace_file(self._path, b"\n".join([*map(_encode, held), b""]), durable=self._syncer is not None)
        old, self._fd = self._fd, open_private(self._path, os.O_RDWR | os.O_APPEND)
        self._reset()
        self._facts = {(f.space, f.key): f for f in held}
        self._size, self._lines = os.fstat(self._fd).st_size, len(held)
        # Nobody can have locked the new file with something to say before the old lock goes: they must re-read anyway.
        os.close(old)
        lock(self._fd)

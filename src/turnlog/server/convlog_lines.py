"""Writes the lines of the convlog in the order in which they come, all that wait in one call.

No turn waits for its lines, and none needs a task of its own for them: one task writes until no line waits. If lines
cannot be written, that is reported, and the conversation continues. Where many wait, messages wait for `room`, but not
for long: a log that stands still stops nobody. Where far too many wait, new ones are left out, and counted.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias

from structlog.typing import FilteringBoundLogger

from ..convlog import ConvLog, ConvlogLine, Record, channel_of, record_ts
from ..core import keys
from ..core.keys import SessionKey
from ..core.session import Session
from ..runtime import background

TOGETHER_MAX = 64
TOGETHER_CHARS = 128_000
"""Lines in one call, by number and by size: together they are one transaction, which other calls wait for."""
WAITING_CHARS = 8_000_000
"""When so much waits, a message waits too, for at most `ROOM_S`."""
WAITING_MAX_CHARS = 32_000_000
ROOM_S = 1.0
LINE_CHARS = 1_000
"""What a line takes beside its text."""

AllWritten: TypeAlias = "asyncio.Future[None]"
"""Done when all lines before it are written, or could not be."""


class ConvlogLines:
    def __init__(self, convlog: ConvLog, log: FilteringBoundLogger) -> None:
        self._convlog = convlog
        self._log = log
        self._waiting: deque[ConvlogLine | AllWritten] = deque()
        self._chars = 0
        self._left_out = 0
        self._writing: asyncio.Task[None] | None = None

    def add(self, row: Session, role: str, content: str, *, sender: str) -> None:
        if self._chars > WAITING_MAX_CHARS:
            self._left_out += 1
            return
        channel = channel_of(keys.parse(row.key))
        record = Record(
            ts=record_ts(), role=role, content=content, channel_id=channel, channel_type=row.channel, sender=sender
        )
        self._waiting.append((row.agent, channel, record))
        self._chars += _chars(record)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def room(self) -> None:
        """Returns when the lines that wait take no more room than they should, and soon in any case."""
        if self._chars > WAITING_CHARS:
            with suppress(TimeoutError):
                async with asyncio.timeout(ROOM_S):
                    await self.flush()

    async def flush(self) -> None:
        """Returns when every line that was added until now is written, or could not be."""
        if self._writing is not None:
            reached = asyncio.get_running_loop().create_future()
            self._waiting.append(reached)
            await reached

    async def holding(self, texts: Sequence[str], key: SessionKey | None = None) -> list[tuple[str, str, int]]:
        """As `ConvLog.holding`, with the lines that wait."""
        await self.flush()
        return await self._convlog.holding(texts, key)

    async def erase(self, agent: str, channel_id: str, texts: Sequence[str]) -> int:
        """As `ConvLog.erase`, with the lines that wait."""
        await self.flush()
        return await self._convlog.erase(agent, channel_id, texts)

    async def _write(self) -> None:
        try:
            while self._waiting:
                if lines := self._next():
                    try:
                        await self._convlog.write_all(lines)
                    except Exception as error:  # noqa: BLE001 - a failing log stops no turn
                        self._log.error("convlog", lines=len(lines), error=str(error))
                        background.report("convlog", error)
                    self._chars -= sum(_chars(record) for _, _, record in lines)
                    if self._left_out:
                        self._log.error("convlog", lines=self._left_out, error="left out: too many lines waited")
                        self._left_out = 0
                while self._waiting and isinstance(self._waiting[0], asyncio.Future):
                    _set(self._waiting.popleft())
        finally:
            self._writing = None
            for one in self._waiting:  # this task was cancelled
                _set(one)

    def _next(self) -> list[ConvlogLine]:
        """The lines of one call: at least one, unless somebody waits for those before it."""
        lines: list[ConvlogLine] = []
        chars = 0
        while self._waiting and len(lines) < TOGETHER_MAX:
            one = self._waiting[0]
            if isinstance(one, asyncio.Future) or (lines and chars + _chars(one[2]) > TOGETHER_CHARS):
                break
            chars += _chars(one[2])
            lines.append(one)
            self._waiting.popleft()
        return lines

    async def finish(self, within_s: float) -> None:
        """Returns when all lines are written; those not written within this many seconds are reported as lost."""
        if self._writing is not None:
            await asyncio.wait({self._writing}, timeout=within_s)
        if lost := sum(isinstance(one, tuple) for one in self._waiting):
            self._log.error("convlog", lines=lost, error="not written before the server stopped")


def _chars(record: Record) -> int:
    return len(record.content) + LINE_CHARS


def _set(one: "ConvlogLine | AllWritten") -> None:
    if isinstance(one, asyncio.Future) and not one.done():
        one.set_result(None)

"""Writes the lines of the convlog in the order in which they come, all that wait in one call.

No turn waits for its lines, and none needs a task of its own for them: one task writes until no line waits. If lines
cannot be written, that is reported, and the conversation continues.
"""

import asyncio

from structlog.typing import FilteringBoundLogger

from ..convlog import ConvLog, ConvlogLine, Record, channel_of, record_ts
from ..core import keys
from ..core.session import Session
from ..runtime import background

TOGETHER_MAX = 64
"""Lines in one call: together they are one transaction, which other calls wait for."""


class ConvlogLines:
    def __init__(self, convlog: ConvLog, log: FilteringBoundLogger) -> None:
        self._convlog = convlog
        self._log = log
        self._waiting: list[ConvlogLine] = []
        self._writing: asyncio.Task[None] | None = None

    def add(self, row: Session, role: str, content: str, *, sender: str) -> None:
        channel = channel_of(keys.parse(row.key))
        record = Record(
            ts=record_ts(), role=role, content=content, channel_id=channel, channel_type=row.channel, sender=sender
        )
        self._waiting.append((row.agent, channel, record))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def _write(self) -> None:
        try:
            while self._waiting:
                lines, self._waiting = self._waiting[:TOGETHER_MAX], self._waiting[TOGETHER_MAX:]
                try:
                    await self._convlog.write_all(lines)
                except Exception as error:  # noqa: BLE001 - a failing log stops no turn
                    self._log.error("convlog", lines=len(lines), error=str(error))
                    background.report("convlog", error)
        finally:
            self._writing = None

    async def finish(self, within_s: float) -> None:
        """Returns when all lines are written, or after so many seconds."""
        if self._writing is not None:
            await asyncio.wait({self._writing}, timeout=within_s)

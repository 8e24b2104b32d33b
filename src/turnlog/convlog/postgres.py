"""The convlog of a PostgreSQL store: its own schema next to the sessions, shared by all servers of the store.

Every statement can be repeated, and none leaves state in a database session, as in the store itself.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from ..core.session import milliseconds
from ..errors import StoreError, StoreUnavailable
from ..stores.postgres.ledger import new_token
from ..stores.postgres.pool import PostgresPool
from ..stores.postgres.schema import CONVLOG, open_beside
from ..stores.postgres.statements import storable
from ..stores.postgres.wire import array_of
from . import AgentRecord, Conversation, Filter, Record, erased_record
from .postgres_search import BLOCK_MESSAGES, hits, make_blocks

log = logging.getLogger("turnlog.convlog")

_decode = msgspec.json.Decoder(Record).decode

VACUUM_S = 600.0
WITHIN_S = 0.02
"""How long a line may wait for another statement to go along with."""
LINES_MAX = 32
"""Lines in one call. A line has at most 1 MiB of text."""
WaitingLine: TypeAlias = tuple[tuple[Any, ...], asyncio.Future[None]]
"""The arguments of `write_1`, and what its caller waits for."""
_WRITE = """
SELECT turnlog.write_1(l.agent, l.channel, l.type, l.at, l.sender, l.folded, l.record, l.token)
FROM unnest(%s::text[], %s::text[], %s::text[], %s::bigint[], %s::text[], %s::text[], %s::text[], %s::bigint[])
    AS l (agent, channel, type, at, sender, folded, record, token)
"""
_ERASE = """
WITH gone AS (
    UPDATE turnlog.messages SET sender = '', folded = %s, record_json = %s
    WHERE agent = %s AND channel_id = %s AND n = %s RETURNING n
)
UPDATE turnlog.blocks b SET pieces = NULL
WHERE b.agent = %s AND b.channel_id = %s AND %s BETWEEN b.first_n AND b.last_n
"""
"""A block without pieces is looked through."""


class PostgresBackend:
    def __init__(self, db: PostgresPool) -> None:
        self._db = db
        self._loose = BLOCK_MESSAGES  # enough messages for a block: earlier writers may have left some
        self._gathering: asyncio.Task[None] | None = None
        self._closing = False
        self._waiting: list[WaitingLine] = []
        self._is_writing = False

    @classmethod
    async def open(cls, store_url: str) -> "PostgresBackend":
        return cls(await open_beside(store_url, CONVLOG))

    async def append(self, records: Sequence[AgentRecord]) -> None:
        """Lines that wait during one call go into the next: a call costs much more than a line."""
        written = [self._add(agent, record) for agent, record in records]
        if not self._is_writing:
            self._is_writing = True
            self._db.spawn(self._write())
        await asyncio.gather(*written)

    def _add(self, agent: str, record: Record) -> asyncio.Future[None]:
        folded = "\n".join((record.content, record.sender, record.channel_id)).casefold()
        place = (agent, record.channel_id, record.channel_type, milliseconds(record.ts))
        text = msgspec.json.encode(record).decode()
        values = (*map(_column, place), storable(record.sender), storable(folded), text, new_token())
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((values, done))
        return done

    async def _write(self) -> None:
        try:
            while self._waiting:
                lines, self._waiting = self._waiting[:LINES_MAX], self._waiting[LINES_MAX:]
                await self._write_together(lines)
        finally:
            self._is_writing = False
            for _, done in self._waiting:  # nobody writes them: this task was cancelled
                done.cancel()
            self._waiting = []

    async def _write_together(self, lines: list[WaitingLine]) -> None:
        # In the order of their conversations: two servers must not wait for each other.
        values = sorted((line for line, _ in lines), key=lambda line: line[:2])
        try:
            columns = [array_of(column) for column in zip(*values, strict=True)]
            await self._db.all(_WRITE, columns, changes=True, within_s=WITHIN_S)
        except asyncio.CancelledError:
            for _, done in lines:
                done.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - each caller gets it
            if len(lines) > 1 and not isinstance(error, StoreUnavailable):
                for line in lines:  # one of them was refused, which must not cost the others theirs
                    await self._write_together([line])
                return
            for _, done in lines:
                if not done.done():
                    done.set_exception(error)
            return
        for _, done in lines:
            if not done.done():  # its caller may have left
                done.set_result(None)
        self._loose += len(lines)
        if self._loose >= BLOCK_MESSAGES and self._gathering is None:
            self._loose = 0
            self._gathering = self._db.spawn(self._gather())

    async def _gather(self) -> None:
        try:
            while not self._closing and await make_blocks(self._db):
                pass
        except StoreError as error:  # retried later; until then these messages are searched directly
            log.warning("messages not gathered into blocks yet: %s", error)
        finally:
            self._gathering = None

    async def conversations(self, wanted: Filter) -> list[Conversation]:
        where, values = _conditions(wanted)
        rows = await self._db.all(
            "SELECT channel_id, channel_type, agent, message_count, first_at, last_at"
            f" FROM turnlog.conversations c WHERE {where}",
            values,
        )
        return [Conversation(*row) for row in rows]

    async def records(self, agent: str, wanted: Filter, start: int, limit: int) -> tuple[list[Record], int]:
        place = ["m.agent = %s", "m.channel_id = %s"], [_column(agent), _column(wanted.channel_id)]
        matching, said = _said(wanted, *place)
        kept = "MATERIALIZED" if wanted.q else "NOT MATERIALIZED"  # searched once; or counted and paged by the key
        # One statement, so that the page and the total are from the same moment.
        rows = await self._db.all(
            f"WITH found AS {kept} ({matching})"
            " SELECT (SELECT count(*) FROM found), p.record_json FROM (SELECT 1) one"
            " LEFT JOIN (SELECT m.n, m.record_json FROM (SELECT * FROM found ORDER BY n LIMIT %s OFFSET %s) f"
            " JOIN turnlog.messages m ON m.agent = f.agent AND m.channel_id = f.channel_id AND m.n = f.n) p ON true"
            " ORDER BY p.n",
            (*said, limit, start),
        )
        return [_decode(line) for _, line in rows if line is not None], rows[0][0]

    async def erase(self, agent: str, channel_id: str, texts: Sequence[str]) -> int:
        place = _column(agent), _column(channel_id)
        rows = await self._db.all(
            "SELECT n, record_json FROM turnlog.messages WHERE agent = %s AND channel_id = %s", place
        )
        found = [(n, erased_record(_decode(line), texts)) for n, line in rows]
        gone = [(n, one) for n, one in found if one is not None]
        for n, one in gone:
            folded = storable(f"{one.content}\n\n{channel_id}".casefold())
            await self._db.all(_ERASE, (folded, msgspec.json.encode(one).decode(), *place, n, *place, n), changes=True)
        if gone:
            for table in ("messages", "blocks"):
                await self._db.all(f"VACUUM (FULL) turnlog.{table}", call_s=VACUUM_S)
        return len(gone)

    async def close(self) -> None:
        self._closing = True
        await self._db.close()


def _conditions(wanted: Filter) -> tuple[str, list[Any]]:
    """Conditions on `turnlog.conversations c`."""
    parts, values = ["true"], list[Any]()
    if wanted.agents is not None:
        parts.append("c.agent = ANY(%s)")
        values.append(sorted(wanted.agents))
    for column, value in (("channel_id", wanted.channel_id), ("channel_type", wanted.channel_type)):
        if value is not None:
            parts.append(f"c.{column} = %s")
            values.append(_column(value))
    for one in (Filter(sender=wanted.sender), Filter(q=wanted.q)):  # not necessarily of the same message
        if one.sender is not None or one.q:
            matching, said = _said(one, [], [])
            parts.append(f"(c.agent, c.channel_id) IN (SELECT h.agent, h.channel_id FROM ({matching}) h)")
            values += said
    return " AND ".join(parts), values


def _said(wanted: Filter, parts: list[str], values: list[Any]) -> tuple[str, list[Any]]:
    """A statement for the messages (agent, channel_id, n) that match, in addition to the given conditions."""
    if wanted.sender is not None:
        parts, values = [*parts, "m.sender = %s"], [*values, storable(wanted.sender)]
    if keyword := storable((wanted.q or "").casefold()):
        return hits(keyword, parts, values)
    where = " AND ".join(["true", *parts])
    return f"SELECT m.agent, m.channel_id, m.n FROM turnlog.messages m WHERE {where}", values


def _column(value: Any) -> Any:
    """Keys contain no NUL, but a query may."""
    return storable(value) if isinstance(value, str) else value

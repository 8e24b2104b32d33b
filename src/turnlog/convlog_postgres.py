"""The convlog of a PostgreSQL store: a schema of its own beside the sessions, shared by all servers of the store.

Every statement may be repeated and none leaves anything in a database session, as in the store itself.
"""

from typing import Any

import msgspec

from .convlog import Conversation, Filter, Record, milliseconds
from .stores.postgres_ledger import new_token
from .stores.postgres_pool import Database
from .stores.postgres_schema import CONVLOG, open_beside
from .stores.postgres_statements import storable

_decode = msgspec.json.Decoder(Record).decode


class PostgresShelf:
    def __init__(self, db: Database) -> None:
        self._db = db

    @classmethod
    async def open(cls, store_url: str) -> "PostgresShelf":
        return cls(await open_beside(store_url, CONVLOG))

    async def append(self, agent: str, record: Record) -> None:
        folded = "\n".join((record.content, record.sender, record.channel_id)).casefold()
        place = (agent, record.channel_id, record.channel_type, milliseconds(record.ts))
        text = msgspec.json.encode(record).decode()
        await self._db.all(
            "SELECT turnlog.write_1(%s, %s, %s, %s, %s, %s, %s, %s)",
            (*map(_column, place), storable(record.sender), storable(folded), text, new_token()),
            changes=True,
        )

    async def conversations(self, wanted: Filter) -> list[Conversation]:
        where, values = _conditions(wanted)
        rows = await self._db.all(
            "SELECT channel_id, channel_type, agent, message_count, first_at, last_at"
            f" FROM turnlog.conversations c WHERE {where}",
            values,
        )
        return [
            Conversation(channel_id=a, channel_type=b, agent_id=c, message_count=d, first_at=e, last_at=f)
            for a, b, c, d, e, f in rows
        ]

    async def records(self, agent: str, wanted: Filter, start: int, limit: int) -> tuple[list[Record], int]:
        where, said = _said(wanted)
        where = f"agent = %s AND channel_id = %s{where}"
        values = [_column(agent), _column(wanted.channel_id), *said]
        # One statement, so that the page and the total are of the same moment.
        rows = await self._db.all(
            f"SELECT (SELECT count(*) FROM turnlog.messages m WHERE {where}), p.record_json FROM (SELECT 1) one"
            f" LEFT JOIN (SELECT m.n, m.record_json FROM turnlog.messages m WHERE {where}"
            " ORDER BY m.n LIMIT %s OFFSET %s) p ON true ORDER BY p.n",
            (*values, *values, limit, start),
        )
        return [_decode(line) for _, line in rows if line is not None], rows[0][0]

    async def close(self) -> None:
        await self._db.close()


def _conditions(wanted: Filter) -> tuple[str, list[Any]]:
    """On `turnlog.conversations c`."""
    parts, values = ["true"], list[Any]()
    if wanted.agents is not None:
        parts.append("c.agent = ANY(%s)")
        values.append(sorted(wanted.agents))
    for column, value in (("channel_id", wanted.channel_id), ("channel_type", wanted.channel_type)):
        if value is not None:
            parts.append(f"c.{column} = %s")
            values.append(_column(value))
    same = "m.agent = c.agent AND m.channel_id = c.channel_id"
    for one in (Filter(sender=wanted.sender), Filter(q=wanted.q)):  # not of the same message
        clause, said = _said(one)
        if clause:
            parts.append(f"EXISTS (SELECT FROM turnlog.messages m WHERE {same}{clause})")
            values += said
    return " AND ".join(parts), values


def _said(wanted: Filter) -> tuple[str, list[Any]]:
    """On `turnlog.messages m`."""
    clause, values = "", list[Any]()
    if wanted.sender is not None:
        clause, values = f"{clause} AND m.sender = %s", [*values, storable(wanted.sender)]
    if wanted.q is not None:
        clause, values = f"{clause} AND strpos(m.folded, %s) > 0", [*values, storable(wanted.q.casefold())]
    return clause, values


def _column(value: Any) -> Any:
    """Keys hold no NUL, but whoever asks may."""
    return storable(value) if isinstance(value, str) else value

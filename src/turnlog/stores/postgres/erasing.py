"""Erases entries of a PostgreSQL store: from all rows and indexes, then from the pages of its tables.

PostgreSQL keeps the old version of a changed row until its table is vacuumed. A small table is written anew, which
leaves nothing of old versions or of words in indexes; of a large one only the dead rows are freed, because writing it
anew would stop every server for long. Nobody but an administrator of the database can remove earlier segments of the
write-ahead log, archives and backups: docs/how-to/erase.md says how.
"""

import logging
from typing import Any

import msgspec

from ...codecs import native
from ...core import erasing, facts as session_facts
from ...core.admission import admit
from ...core.outline import for_erasing
from ...core.searchable import units
from ...core.session import RowFold
from ...errors import Conflict, NotFound, StoreError
from .. import Clock, Lease
from ..stamping import AskedErase, check_incarnation, stamp
from .ledger import new_token
from .pool import CALL_S, PostgresPool
from .row_functions import ERASE
from .statements import current, decode_row, readable_pages, told_facts, told_of

log = logging.getLogger("turnlog.stores.postgres")

TABLES = ("session_messages", "session_search", "sessions", "session_words", "session_facts")
WRITTEN_ANEW_MAX_BYTES = 64 * 1024 * 1024
"""A table up to this size is written anew within a second or two, during which others wait."""
VACUUM_S = 600.0
RACES_MAX = 20


async def erase(
    db: PostgresPool, session_id: str, asked: AskedErase, lease: Lease | None, *, clock: Clock, durable: bool
) -> list[int]:
    for _ in range(RACES_MAX):
        found = await db.all("SELECT session_no, meta_json FROM turnlog.sessions WHERE session_id = %s", (session_id,))
        row = await current(db, decode_row(found[0][1])) if found else None
        row = check_incarnation(row, session_id, asked.incarnation)
        end = row.last_seq + 1
        # Twice in parts instead of once as a whole, which a large log would not allow.
        outline = [for_erasing(entry) async for page in readable_pages(db, session_id, before=end) for entry in page]
        plan = erasing.plan(outline, asked.seqs, redact=asked.redact, by=asked.by)
        if not plan.emptied:
            return []
        added = stamp(admit(row, plan.appended, leased=True), row.last_seq, clock())
        fold, gone, anew = RowFold(None), set(plan.seqs), False
        async for page in readable_pages(db, session_id, before=end):
            anew = anew or any(units(entry, {}) for entry in page if entry.seq in gone)
            for entry in plan.applied(page):
                fold.add(entry)
        for entry in added:
            fold.add(entry)
        told: dict[str, Any] = {
            "id": session_id,
            "no": found[0][0],
            "last": row.last_seq,
            "token": new_token(),
            "epoch": lease.epoch if lease else None,
            "anew": anew,
            **told_of(fold.row(), None),
            "facts": told_facts(session_facts.changes(added)),
        }
        lines = [native.encode_stored(entry).decode() for entry in plan.emptied]
        verdict = await db.one(
            f"SELECT turnlog.{ERASE}(%s::jsonb, %s::bigint[], %b::text[], %b::text[], %b::text[], %s)",
            (
                msgspec.json.encode(told).decode(),
                plan.seqs,
                lines,
                [native.encode_stored(entry).decode() for entry in added],
                [entry.ts for entry in added],
                durable,
            ),
            changes=True,
        )
        match verdict:
            case "written":
                return plan.seqs
            case "gone":
                raise NotFound(f"there is no session {session_id}")
            case "fenced":
                raise Conflict("the lease was lost", hint="Erase again.")
            case _:
                continue
    raise Conflict("too many changes of this session at once")


async def free_pages(db: PostgresPool, *, redact: bool) -> None:
    """Removes old versions from the tables. A failure leaves them for the next vacuum, and is logged."""
    for table in TABLES:
        try:
            size = await db.one(f"SELECT pg_total_relation_size('turnlog.{table}')")
            whole = redact and (size or 0) <= WRITTEN_ANEW_MAX_BYTES
            how = "(FULL, ANALYZE)" if whole else ""
            await db.all(f"VACUUM {how} turnlog.{table}", call_s=CALL_S + VACUUM_S)
        except StoreError as error:
            log.warning("%s is not vacuumed after erasing: %s", table, error)

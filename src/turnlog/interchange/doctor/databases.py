"""Checks the version of SQLite and each database. Databases are never changed here."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from msgspec import Struct

from ...core.strict_json import fields_in
from ...errors import TurnlogError
from ..importing.databases import MAGIC, Reader, reading
from ..importing.lines import head, parsed
from .entries import EntryChecks
from .findings import Finding

Version = tuple[int, ...]
WAL_LARGE_BYTES = 64 * 1024 * 1024
"""A write-ahead log is merged into the database every few megabytes; a log this large means that something
blocks it.
"""
FREE_LARGE = 0.3
"""The share of a file that is unused."""
QUICK_FROM_BYTES = 1 << 30
"""From this size on, indexes are not compared with their tables, which would take minutes."""
_RESTORE = "none: restore it from a backup, or export what is readable with `import`"


class CheckedDatabase(Struct, frozen=True):
    path: str
    user_version: int
    journal_mode: str
    bytes: int
    wal_bytes: int
    integrity: str


class Sqlite(Struct, frozen=True):
    library: str
    verdict: str
    databases: tuple[CheckedDatabase, ...] = ()


def verdict(version: Version) -> str:
    """Whether this SQLite can damage a database in WAL mode that several processes use."""
    if version[:3] == (3, 52, 0):
        return "withdrawn by its makers; use 3.51.3, or 3.53.0 and later"
    if (3, 7, 0) <= version < (3, 51, 3):
        return "has the WAL-reset bug, fixed in 3.51.3: very rarely two processes can damage a database"
    return "good"


def files(path: Path) -> list[Path]:
    """Regular files below a path that are databases by content; links are not followed."""
    found = [path] if path.is_file() else sorted(p for end in ("*.db", "*.sqlite") for p in path.rglob(end))
    return [file for file in found if not file.is_symlink() and file.is_file() and head(file, 16) == MAGIC]


def with_logs(found: Sequence[Path]) -> list[Path]:
    logs = [file.with_name(file.name + end) for file in found for end in ("-wal", "-shm")]
    return [*found, *(log for log in logs if log.exists())]


def examine(found: Sequence[Path]) -> tuple[list[Finding], Sqlite]:
    import apsw

    library = apsw.sqlite_lib_version()
    findings: list[Finding] = []
    told: list[CheckedDatabase] = []
    for file in found:
        try:
            with reading(file) as db:
                database = _described(file, db)
                told.append(database)
                findings += _findings(file, database, db)
        except TurnlogError as error:
            findings.append(Finding.of(file, f"damage: {error}", _RESTORE))
    return findings, Sqlite(library, verdict(tuple(map(int, library.split(".")))), tuple(told))


def _described(file: Path, db: Reader) -> CheckedDatabase:
    wal = file.with_name(f"{file.name}-wal")
    size = file.stat().st_size
    how = "quick_check" if size >= QUICK_FROM_BYTES else "integrity_check"
    return CheckedDatabase(
        path=str(file),
        user_version=db.one("PRAGMA user_version"),
        # SQLite says "delete" for an immutable file, so the header is read: 2 means WAL.
        journal_mode="wal" if head(file, 20)[18:20] == b"\x02\x02" else "delete",
        bytes=size,
        wal_bytes=wal.stat().st_size if wal.exists() else 0,
        integrity=str(db.one(f"PRAGMA {how}(1)")),
    )


def _findings(file: Path, database: CheckedDatabase, db: Reader) -> Iterator[Finding]:
    if database.integrity != "ok":
        yield Finding.of(file, f"damage: {database.integrity}", _RESTORE)
    if database.wal_bytes > WAL_LARGE_BYTES:
        yield Finding.of(file, f"bloat: {database.wal_bytes:,} bytes in its -wal", "none needed: close what holds it")
    pages, free = db.one("PRAGMA page_count"), db.one("PRAGMA freelist_count")
    if pages > 1_000 and free > FREE_LARGE * pages:
        yield Finding.of(file, f"bloat: {free:,} of {pages:,} pages are unused", "none needed: VACUUM would shrink it")
    for what, count in _drift(db):
        if count:
            yield Finding.of(file, f"index drift: {count:,} {what}", "none needed: import takes them along")
    if "seq" in db.columns("session_messages"):
        yield from _entries(file, db)


def _entries(file: Path, db: Reader) -> Iterator[Finding]:
    """Checks each session in a store of Turnlog."""
    found: list[Finding] = []
    ends = dict(db.rows("SELECT session_id, last_seq FROM sessions"))
    rows = db.rows("SELECT session_id, seq, meta_json FROM session_messages ORDER BY session_id, seq")
    for session_id, group in groupby(rows, key=itemgetter(0)):

        def told(place: str, what: str, repair: str, of: str = session_id) -> None:
            where = f"{file}, session {of}"
            found.append(Finding.of(f"{where}, {place}" if place else where, what, repair))

        entries = EntryChecks(told)
        for _, seq, line in group:
            entries.add(_values(line), f"entry {seq}")
        entries.finish(ends.get(session_id, 0))
        yield from found
        found.clear()


def _values(line: Any) -> dict[str, Any]:
    try:
        return fields_in(parsed(line))
    except (ValueError, TypeError):
        return {}


def _drift(db: Reader) -> Iterator[tuple[str, Any]]:
    indexed = (("messages", "session_messages", "session_id"), ("keys", "session_index", "active_session_id"))
    for what, table, column in indexed:
        if column in db.columns(table) and "session_id" in db.columns("sessions"):
            missing = f"{column} NOT IN (SELECT session_id FROM sessions)"
            yield f"{what} of sessions that are not there", db.one(f"SELECT count(*) FROM {table} WHERE {missing}")

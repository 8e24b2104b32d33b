"""SQLite: the library's version, and what each database says of itself. Databases are never changed here."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..errors import TurnlogError
from ..importing.databases import MAGIC, Reader, reading
from ..importing.lines import head
from .findings import Finding, Problem

Version = tuple[int, ...]
WAL_LARGE_BYTES = 64 * 1024 * 1024
"""A log is folded into the database every few megabytes; one this large means that something holds it up."""
FREE_LARGE = 0.3
"""Share of a file that is unused."""
QUICK_FROM_BYTES = 1 << 30
"""From here on indexes are not compared with their tables, which would take minutes."""
_RESTORE = "none: restore it from a backup, or export what is readable with `import`"


class Database(Struct, frozen=True):
    path: str
    user_version: int
    journal_mode: str
    bytes: int
    wal_bytes: int
    integrity: str


class Sqlite(Struct, frozen=True):
    library: str
    verdict: str
    databases: tuple[Database, ...] = ()


def verdict(version: Version) -> str:
    """Whether this SQLite can damage a database in WAL mode that several processes use."""
    if version[:3] == (3, 52, 0):
        return "withdrawn by its makers; use 3.51.3, or 3.53.0 and later"
    if (3, 7, 0) <= version < (3, 51, 3):
        return "has the WAL-reset bug, fixed in 3.51.3: very rarely two processes can damage a database"
    return "good"


def files(path: Path) -> list[Path]:
    """Regular files below a path that are databases by content; nothing is followed."""
    found = [path] if path.is_file() else sorted(p for end in ("*.db", "*.sqlite") for p in path.rglob(end))
    return [file for file in found if not file.is_symlink() and file.is_file() and head(file, 16) == MAGIC]


def with_logs(found: Sequence[Path]) -> list[Path]:
    logs = [file.with_name(file.name + end) for file in found for end in ("-wal", "-shm")]
    return [*found, *(log for log in logs if log.exists())]


def examine(found: Sequence[Path]) -> tuple[list[Finding], Sqlite]:
    import apsw

    library = apsw.sqlite_lib_version()
    findings: list[Finding] = []
    told: list[Database] = []
    for file in found:
        try:
            with reading(file) as db:
                database = _described(file, db)
                told.append(database)
                findings += _findings(file, database, db)
        except TurnlogError as error:
            findings.append(Finding(Problem(str(file), f"damage: {error}", _RESTORE)))
    return findings, Sqlite(library, verdict(tuple(map(int, library.split(".")))), tuple(told))


def _described(file: Path, db: Reader) -> Database:
    wal = file.with_name(f"{file.name}-wal")
    size = file.stat().st_size
    how = "quick_check" if size >= QUICK_FROM_BYTES else "integrity_check"
    return Database(
        path=str(file),
        user_version=db.one("PRAGMA user_version"),
        # Of an immutable file SQLite says "delete", so it is read from the header: 2 means WAL.
        journal_mode="wal" if head(file, 20)[18:20] == b"\x02\x02" else "delete",
        bytes=size,
        wal_bytes=wal.stat().st_size if wal.exists() else 0,
        integrity=str(db.one(f"PRAGMA {how}(1)")),
    )


def _findings(file: Path, database: Database, db: Reader) -> Iterator[Finding]:
    if database.integrity != "ok":
        yield _found(file, f"damage: {database.integrity}", _RESTORE)
    if database.wal_bytes > WAL_LARGE_BYTES:
        yield _found(file, f"bloat: {database.wal_bytes:,} bytes in its -wal", "none: close the program that holds it")
    pages, free = db.one("PRAGMA page_count"), db.one("PRAGMA freelist_count")
    if pages > 1_000 and free > FREE_LARGE * pages:
        yield _found(file, f"bloat: {free:,} of {pages:,} pages are unused", "none: run VACUUM with its own program")
    for what, count in _drift(db):
        if count:
            yield _found(file, f"index drift: {count:,} {what}", "none needed: import takes them along")


def _drift(db: Reader) -> Iterator[tuple[str, Any]]:
    known = db.columns("sessions")
    if "session_id" in known and "session_id" in db.columns("session_messages"):
        missing = "session_id NOT IN (SELECT session_id FROM sessions)"
        yield (
            "messages of sessions that are not there",
            db.one(f"SELECT count(*) FROM session_messages WHERE {missing}"),
        )
    if "session_id" in known and "active_session_id" in db.columns("session_index"):
        missing = "active_session_id NOT IN (SELECT session_id FROM sessions)"
        yield "keys of sessions that are not there", db.one(f"SELECT count(*) FROM session_index WHERE {missing}")


def _found(file: Path, what: str, repair: str) -> Finding:
    return Finding(Problem(str(file), what, repair))

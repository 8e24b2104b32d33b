"""Opens the database file of a SQLite store: creates it, upgrades its schema, and refuses a file that is not a store.

Nothing is changed, not even the journal mode, before it is known that the file is a store of a schema that we know.
"""

import os
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from ...errors import Corrupt, NotAStore, StoreError, StoreUnavailable
from .. import word_index
from ..disk.files import make_dir, open_private, sync_dir
from . import statements
from .connection import SqliteConnection, alone_in

APPLICATION_ID = 0x54524E4C
BUSY_MS = 30_000
CACHE_KB = 8_000
"""Pages that a connection keeps: those of a long session, which SQLite's own 2 MB do not hold."""


class SqliteConnections(NamedTuple):
    writing: SqliteConnection
    near: SqliteConnection
    """For small reads, on the event loop."""
    far: SqliteConnection
    """For reads in a thread."""


def open_to_read(path: Path) -> SqliteConnections:
    """Nothing is written, not even next to the file."""
    found = SqliteConnections(*(SqliteConnection(path, read_only=True) for _ in range(3)))
    version, known = found.writing.pragma("user_version"), len(migrations())
    _check_ours(found.writing, version, known, str(path))
    if version < known or statements.missing_columns(found.writing):
        raise StoreUnavailable(
            f"{path} was made by an older Turnlog and cannot be upgraded",
            hint="Make the file and its directory writable, or copy them to a writable place.",
        )
    return found


def open_to_write(path: Path, synchronous: str) -> SqliteConnections:
    make_dir(path.parent)
    if not os.path.lexists(path):
        _begin_anew(path)
    # Created here, so that it and its -wal and -shm files are private from the first byte.
    os.close(open_private(path, os.O_RDWR | os.O_CREAT))
    if path.stat().st_size:
        look_first(path)
    # Switching a new database to WAL fails, instead of waiting, while another process does the same.
    with alone_in(leases_folder(path)):
        _refuse_emptied(path)
        db = _connect(path, synchronous)
        migrate(db, str(path))
        statements.complete(db)
        _remember_made(path)
    db.run("PRAGMA secure_delete = ON")
    return SqliteConnections(db, _connect(path, synchronous), _connect(path, synchronous))


def leases_folder(path: Path) -> Path:
    return path.with_name(f"{path.name}-leases")


def _made(path: Path) -> Path:
    """A file that exists since the database was created: without it an emptied database would look like a new one."""
    return leases_folder(path) / ".made"


def _begin_anew(path: Path) -> None:
    """A removed database means that a new one is wanted."""
    with alone_in(leases_folder(path)):
        if not os.path.lexists(path):
            _made(path).unlink(missing_ok=True)


def _refuse_emptied(path: Path) -> None:
    log_file = path.with_name(f"{path.name}-wal")
    logged = log_file.exists() and log_file.stat().st_size > 0
    if path.stat().st_size == 0 and (logged or _made(path).exists()):
        raise Corrupt(
            f"{path} is empty, but it was a database",
            hint="It was emptied. Restore it from a backup, or remove the file to start with an empty store.",
            path=str(path),
        )


def _remember_made(path: Path) -> None:
    """Written before any session is acknowledged; also for a database that was copied here, or made by an older
    Turnlog.
    """
    made = _made(path)
    if not made.exists():
        os.close(open_private(made, os.O_RDWR | os.O_CREAT))
        sync_dir(made.parent)


def _connect(path: Path, synchronous: str) -> SqliteConnection:
    db = SqliteConnection.with_log(path, synchronous=synchronous, busy_ms=BUSY_MS)
    db.run("PRAGMA foreign_keys = ON")
    db.run(f"PRAGMA cache_size = -{CACHE_KB}")
    return db


def migrate(db: SqliteConnection, where: str) -> None:
    """Applies numbered .sql files in order, in one transaction with the version they lead to."""
    steps = migrations()
    with db.transaction():
        version = db.pragma("user_version")
        _check_ours(db, version, len(steps), where)
        for number, script in enumerate(steps[version:], version + 1):
            db.run(script)
            db.pragma("application_id", APPLICATION_ID)
            db.pragma("user_version", number)
        word_index.prepare(db)


def look_first(path: Path) -> None:
    """Checks before anything is changed, even the switch to WAL: is it a store of Turnlog, and is its schema known?"""
    db = SqliteConnection(path, create=False)
    try:
        db.wait_when_busy(BUSY_MS)
        _check_ours(db, db.pragma("user_version"), len(migrations()), str(path))
    finally:
        db.close()


def _check_ours(db: SqliteConnection, version: int, known: int, where: str) -> None:
    ours = db.pragma("application_id") == APPLICATION_ID
    if not ours and db.one("SELECT count(*) FROM sqlite_schema"):
        raise NotAStore(f"{where} is a database of another program")
    if version > known:
        raise StoreError(
            f"{where} was made by a newer Turnlog (schema {version}; this one knows {known})",
            hint="Upgrade Turnlog. Nothing was changed.",
        )


def migrations() -> list[str]:
    folder = resources.files("turnlog.stores.sqlite") / "sql"
    files = sorted((item for item in folder.iterdir() if item.name.endswith(".sql")), key=lambda item: item.name)
    return [item.read_text(encoding="utf-8") for item in files]

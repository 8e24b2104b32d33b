"""The functions in PostgreSQL that write a session's row (`rows.sql`), made from the row's fields.

Their names end in a digest of their text. So a new column, another rule or a changed statement gives functions with
another name, which the next open creates, and a server of the older version continues to use its own.
"""

import hashlib
from importlib import resources

from ...core.rows import FOLD
from .. import sql

DIGEST_CHARS = 8
"""Enough to distinguish the few versions that share a database."""

COLUMNS = (*sql.COLUMNS, "compaction_seq")
"""The columns of `turnlog.sessions` that are made from a row."""
_TYPES = {bool: "boolean", int: "bigint", str: "text"}
_ADDED = sql.definitions(_TYPES).values()
CHANGING = (*sql.CHANGING, "compaction_seq")


def _text() -> str:
    text = (resources.files("turnlog.stores.postgres") / "rows.sql").read_text(encoding="utf-8")
    parts = {
        "@columns": ", ".join(COLUMNS),
        "@typed": ", ".join(map(" ".join, zip(COLUMNS, (*sql.types_of(_TYPES), "bigint"), strict=True))),
        "@values": ", ".join(f"g.{name}" for name in COLUMNS),
        "@empty": ", ".join("0" if name == "last_seq" else f"g.{name}" for name in COLUMNS),
        "@changes": ", ".join(f"{name} = g.{name}" for name in CHANGING),
        "@every": ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name != "session_id"),
        "@added": ", ".join(f"ADD COLUMN IF NOT EXISTS {one}" for one in _ADDED),
        "@indexes": "\n".join(
            f"CREATE INDEX IF NOT EXISTS {name} ON turnlog.sessions {of};" for name, of in sql.INDEXES.items()
        ),
        "@fold": str(FOLD),
    }
    for name, value in parts.items():
        text = text.replace(name, value)
    return text


_TEXT = _text()
_DIGEST = hashlib.sha256(_TEXT.encode()).hexdigest()[:DIGEST_CHARS]
APPEND, REFOLD, HAS_OLDER, ERASE = (f"{name}_{_DIGEST}" for name in ("append", "refold", "has_older", "erase"))
SCRIPT = _TEXT.replace("@n", _DIGEST)

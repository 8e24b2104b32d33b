"""The lines of the index of a JSONL store (`folder_index`), and whether a line is about the session that is meant.

{"index": 1, "boot": "…"}                       first line: the format, and the boot of the machine
{"dirty": "<id>", "by": "<writer>"}             this writer is about to append to that session
{"row": {…}, "size": 1234, "ino": 5, "by": …}   the row of a file when it had this size; takes `dirty` back
{"deleted": "<id>", "incarnation": "…"}
"""

import msgspec
from msgspec import Struct

from ...core.session import Session


class IndexLine(Struct, omit_defaults=True, gc=False):
    row: Session | None = None
    size: int = 0
    ino: int = 0
    dirty: str | None = None
    by: str = ""
    deleted: str | None = None
    incarnation: str = ""
    """The incarnation of the deleted session; empty: any session with that id."""
    index: int = 0
    boot: str = ""


class IndexedRow(Struct, gc=False):
    """A row, and the file and size from which it was computed."""

    row: Session
    size: int
    ino: int


encode = msgspec.json.Encoder().encode
decoder = msgspec.json.Decoder(IndexLine)


def is_meant(line: IndexLine, known: IndexedRow) -> bool:
    """Whether the line says that this session was deleted, and not another one that had its id."""
    return line.incarnation in ("", known.row.incarnation)


def is_later(row: Session, other: Session) -> bool:
    return row.incarnation == other.incarnation and row.last_seq > other.last_seq

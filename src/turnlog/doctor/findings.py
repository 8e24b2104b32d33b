"""What was found, and the change that would mend it."""

from pathlib import Path

from msgspec import Struct

NONE_NEEDED = "none needed: Turnlog reads around it"


class Problem(Struct, frozen=True):
    where: str
    what: str
    repair: str
    """What `apply` would do; or, beginning with "none", why it does nothing."""


class Fix(Struct, frozen=True, kw_only=True):
    """A change to one file."""

    path: Path
    drop_last: bool = False
    """Cut off the last line, which was never finished."""
    end_last: bool = False
    """Put the missing newline behind the last line."""
    parents: tuple[tuple[int, str], ...] = ()
    """(line, id of the line it is to follow)."""
    content: bytes | None = None
    """The whole file anew."""
    mode: int | None = None


class Finding(Struct, frozen=True):
    problem: Problem
    fixes: tuple[Fix, ...] = ()

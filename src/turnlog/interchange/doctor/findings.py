"""A problem, and the change that would repair it."""

from pathlib import Path

from msgspec import Struct

NONE_NEEDED = "none needed: Turnlog reads around it"
AS_ABOVE = "as above"
"""For problems that are only counted; the first of their kind say what can be done."""


class ProblemKind(Struct, frozen=True):
    where: str
    what: str
    repair: str
    """What `apply` would do; if it begins with "none", why it does nothing."""

    @property
    def needs_repair(self) -> bool:
        """Whether something is lost or wrong until it is repaired."""
        return not self.repair.startswith(("none needed", AS_ABOVE))


class Fix(Struct, frozen=True, kw_only=True):
    """A change to one file."""

    path: Path
    drop_last: bool = False
    """Cut off the last, incomplete line."""
    end_last: bool = False
    """Add the missing newline at the end."""
    parents: tuple[tuple[int, str], ...] = ()
    """(line, id of its new parent)."""
    content: bytes | None = None
    """The whole new content."""
    mode: int | None = None


class Finding(Struct, frozen=True):
    problem: ProblemKind
    fixes: tuple[Fix, ...] = ()

    @classmethod
    def of(cls, where: Path | str, what: str, repair: str, *fixes: Fix) -> "Finding":
        return cls(ProblemKind(str(where), what, repair), fixes)

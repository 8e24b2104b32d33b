"""Names that people give: labels and titles, in any script.

The joiners and marks that Persian, Indic scripts and emoji need are allowed. Everything that is not one line of text is
not: control characters, line separators, lone surrogates, and overrides that make a line read as another one.
"""

import re
import unicodedata

from ..errors import UsageError
from .entries import clean
from .graphemes import cut_before

LABEL_MAX_CHARS = 200
ROW_TEXT_MAX_CHARS = 1_024
TITLE_MAX_CHARS = 60
"""The length of a title."""
_NOT_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_UNSEEN = ("Cc", "Cf", "Cs", "Zs", "Zl", "Zp")
"""Categories of characters that are invisible by themselves."""


def storable(text: str) -> str:
    """As a row holds a text that a log from elsewhere may have: not too long, and without what databases refuse."""
    return clean(text[:ROW_TEXT_MAX_CHARS]).replace("\x00", "\ufffd")


def is_one_line(text: str) -> bool:
    return not _NOT_TEXT.search(text)


def is_seen(text: str) -> bool:
    """Whether any of its characters is visible."""
    return any(unicodedata.category(char) not in _UNSEEN for char in text)


def one_line(text: str) -> str:
    """The part that can be a name: other characters are dropped, and runs of blanks become one."""
    return " ".join(_NOT_TEXT.sub(" ", text).split())


def check_label(label: str | None) -> str | None:
    """The label as it is stored; raises UsageError if it is invalid."""
    if label is None:
        return None
    name = " ".join(label.encode("utf-8", "replace").decode().split())
    if not is_seen(name) or not is_one_line(name) or len(name) > LABEL_MAX_CHARS:
        raise UsageError(
            f"a label is one line of 1 to {LABEL_MAX_CHARS} characters",
            hint="Leave out control characters and characters that change the text direction.",
        )
    return name


def cut_title(text: str, limit: int = TITLE_MAX_CHARS) -> str:
    """One line of at most `limit` characters, never cut inside a grapheme; `…` marks a cut."""
    head = text.lstrip()
    line = clean(" ".join(head[: limit * 8].split()))
    if len(line) <= limit and len(head) <= limit * 8:
        return line
    return line[: cut_before(line, limit - 1)].rstrip() + "…"


def escaped(text: str) -> str:
    """The text as a name that every store can hold: NUL and half characters are written as escapes. Applying it again
    changes nothing.
    """
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")

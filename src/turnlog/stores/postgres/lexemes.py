"""What PostgreSQL indexes of a text.

Neighbouring characters of scripts without blanks, and neighbouring numbers, are lexemes as pairs too: alone they occur
in most texts.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from ...core.searchable import SearchUnit
from ...core.words import BORDER, SINGLE, has_digits, indexed, is_plain, parted

LEXEME_CHARS = 400
"""A lexeme has at most 2,046 bytes. Longer tokens are found by their beginning and then compared whole."""


def words_of(unit: SearchUnit) -> str:
    """Its lexemes as the text of a tsvector. Tokens are letters and digits, so nothing has to be escaped; and of those
    that occur several times, the database keeps one.
    """
    if is_plain(unit.text) and not has_digits(unit.text) and not _has_long(tokens := parted(unit.text)):
        return " ".join([tokens, *unit.facets])
    tokens = indexed(unit.text)
    kept = set(tokens)
    if max(map(len, kept), default=0) > LEXEME_CHARS:
        kept = {token[:LEXEME_CHARS] for token in kept}
    if not unit.text.isascii() or any(map(str.isdigit, tokens)):
        kept.update(first + second for first, second in pairs(tokens))
    kept.discard(BORDER)
    return " ".join([*kept, *unit.facets])


def _has_long(tokens: str) -> bool:
    """Whether one of the tokens between blanks is longer than a lexeme may be."""
    start = 0
    while len(tokens) - start > LEXEME_CHARS:
        start = tokens.rfind(" ", start, start + LEXEME_CHARS + 1) + 1
        if start == 0:
            return True
    return False


def pairs(tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Two numbers are joined by a sign that no token has."""
    for first, second in pairwise(tokens):
        if first.isdigit() and second.isdigit():
            yield first[:LEXEME_CHARS], "·" + second[:LEXEME_CHARS]
        elif len(first) == len(second) == 1 and SINGLE.match(first) and SINGLE.match(second):
            yield first, second

"""Cuts the text around a match, and says where in it the matches are.

The cut is where most of the words are close together: in a long output that is the line that was meant, not the first
one with any of the words. It is one line, and never parts a visible character.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from msgspec import Struct

from .graphemes import cut_before
from .search import Phrase, Sought, Term, has
from .words import SINGLE, TOKEN, fold, readings

SNIPPET_CHARS = 160
CLOSE_CHARS = 300
"""Words further apart than this are scattered."""
OCCURRENCES_MAX = 400
"""Of each phrase in one text: enough to see where the words are close together."""
_BETWEEN = r"[\W_]*"
_NEAR_BORDER_CHARS = 20
_GRAPHEME_CHARS = 64
"""A visible character is shorter than this."""


class Excerpt(Struct, frozen=True):
    text: str
    matches: tuple[tuple[int, int], ...]
    """(start, end) of each match in `text`, in characters."""
    scattered: bool
    """Whether the words are too far apart to be shown together."""


class _Match(Struct, frozen=True):
    start: int
    end: int
    term: int


def excerpt(text: str, sought: Sought, width: int = SNIPPET_CHARS) -> Excerpt:
    folded = fold(text)
    matches = _matches(folded, sought)
    if not matches:
        end = _border(text, width)
        return _shown(text, 0, end, [])
    first, last = _densest(matches, max(width, CLOSE_CHARS))
    near = matches[first : last + 1]
    scattered = len({match.term for match in near}) < len({match.term for match in matches})
    place = _Places(text, folded)
    start, end = _window(text, [(place(match.start), place(match.end)) for match in near], width)
    around = [match for match in matches if near[0].start - width <= match.start <= near[-1].end + width]
    spans = [(place(match.start), place(match.end)) for match in around]
    found = _shown(text, start, end, [span for span in spans if start <= span[0] and span[1] <= end])
    return Excerpt(found.text, found.matches, scattered)


def _matches(folded: str, sought: Sought) -> list[_Match]:
    """Where the terms occur: of the words as they were written, or else of their pieces."""
    for terms in (sought.strict, sought.split, sought.loose):
        if found := _matches_of(folded, terms):
            return sorted(found, key=lambda match: (match.start, -match.end))
    return []


def _matches_of(folded: str, terms: Sequence[Term]) -> list[_Match]:
    """All places of a rare term; of one that is everywhere, those near the rarer ones."""
    found: list[_Match] = []
    for count, n in sorted((_count(folded, term), n) for n, term in enumerate(terms)):
        if count <= OCCURRENCES_MAX or not found:
            found += _occurrences(folded, terms[n], n)
            continue
        for start, high in _apart([(match.start - CLOSE_CHARS, match.end + CLOSE_CHARS) for match in found]):
            low = max(0, start)
            found += [_Match(m.start + low, m.end + low, n) for m in _occurrences(folded[low:high], terms[n], n)]
    return found


def _count(folded: str, term: Term) -> int:
    return sum(min(map(folded.count, phrase.tokens)) for phrase in term.any_of)


def _occurrences(folded: str, term: Term, number: int) -> list[_Match]:
    """Of whole words; if there are none, of the letters inside words: a part of a longer name was meant."""
    for loose in (False, True):
        spans = (span for phrase in term.any_of for span in _spans(folded, phrase, loose))
        if found := [_Match(start, end, number) for start, end in spans]:
            return found
    return []


def _spans(folded: str, phrase: Phrase, loose: bool) -> Iterator[tuple[int, int]]:
    """`find` is many times as fast as a regular expression."""
    first, at, count = phrase.tokens[0], -1, 0
    if loose and first.isdigit() and len(phrase.tokens) == 1 and len(first) > 3:
        yield from (found.span() for found in _grouped(first).finditer(folded))
        return
    while (at := folded.find(first, at + 1)) >= 0 and count < OCCURRENCES_MAX:
        if end := _end(folded, at, phrase, loose):
            count += 1
            yield at, end


def _end(folded: str, at: int, phrase: Phrase, loose: bool) -> int:
    """Where the phrase ends whose first token is here; 0 if it does not go on, or is only a part of words."""
    first, last = phrase.tokens[0], phrase.tokens[-1]
    end = at + len(first)
    if len(phrase.tokens) > 1:
        found = _pattern(phrase.tokens, loose).match(folded, at)
        end = found.end() if found else 0
    if loose or not end:
        return end
    if not SINGLE.match(first) and _is_inside_word(folded[at - 1 : at]):
        return 0
    if not _is_inside_word(folded[end : end + 1]):
        return end
    if phrase.open_ended:
        word = TOKEN.match(folded, end)
        return word.end() if word else end
    return end if SINGLE.match(last[-1]) else 0


def _is_inside_word(char: str) -> bool:
    """Whether it is part of a token of several letters or digits."""
    return char.isalnum() and not SINGLE.match(char)


@lru_cache(maxsize=512)
def _pattern(tokens: tuple[str, ...], loose: bool) -> "re.Pattern[str]":
    """Without what may be before and after it: a class of all letters takes milliseconds to compile."""
    if loose:
        return re.compile(_BETWEEN.join(map(re.escape, tokens)))
    text = re.escape(tokens[0])
    for before, token in pairwise(tokens):
        alone = SINGLE.match(before[-1]) or SINGLE.match(token[0])
        text += (r"[\W_]*" if alone else r"[\W_]+") + re.escape(token)
    return re.compile(text)


@lru_cache(maxsize=64)
def _grouped(digits: str) -> "re.Pattern[str]":
    return re.compile("[,_'’]?".join(digits))


def occurs(text: str, folded: str, phrase: Phrase) -> bool:
    """Whether the tokens of a phrase occur in a row in a text, or in one of its further readings. `folded`: the text,
    normalised.
    """
    if next(_spans(folded, phrase, loose=False), None) is not None:
        return True
    if not phrase.open_ended and "".join(phrase.tokens) not in folded and not phrase.tokens[0].isdigit():
        return False
    return any(has(run, phrase) for run in readings(text))


def _densest(matches: Sequence[_Match], width: int) -> tuple[int, int]:
    """The first and last match of the stretch with most different terms; of those, the shortest; of those, the
    first.
    """
    best: tuple[int, int] = (0, 0)
    best_order: tuple[int, int] = (0, 0)
    start = 0
    inside: dict[int, int] = {}
    for end, match in enumerate(matches):
        inside[match.term] = inside.get(match.term, 0) + 1
        while start < end and (
            match.end - matches[start].start > width or inside[matches[start].term] > 1
        ):  # a term that occurs again later in the stretch
            inside[matches[start].term] -= 1
            start += 1
        different = sum(count > 0 for count in inside.values())
        order = (different, matches[start].start - match.end)
        if order > best_order or not best_order[0]:
            best, best_order = (start, end), order
    return best


def _window(text: str, spans: Sequence[tuple[int, int]], width: int) -> tuple[int, int]:
    first, last = spans[0][0], max(end for _, end in spans)
    if last - first > width:
        last = max((end for _, end in spans if end - first <= width), default=min(len(text), first + width))
    start = max(0, first - max(0, width - (last - first)) // 3)
    end = min(len(text), start + width)
    start = max(0, min(start, end - width))
    if start:
        blank = text.find(" ", start, min(start + _NEAR_BORDER_CHARS, first))
        start = blank + 1 if blank >= 0 else _border(text, start)
    return start, max(last, _border(text, end))


def _border(text: str, at: int) -> int:
    """The last border between visible characters up to there."""
    if at >= len(text):
        return len(text)
    low = max(0, at - _GRAPHEME_CHARS)
    return low + cut_before(text[low : at + _GRAPHEME_CHARS], at - low) or at


def _shown(text: str, start: int, end: int, spans: Sequence[tuple[int, int]]) -> Excerpt:
    """On one line: runs of blanks become one, and the spans move with them."""
    out = "…" if text[:start].strip() else ""
    matches: list[tuple[int, int]] = []
    at = start
    for first, last in _apart(spans):
        out = _joined(out, text[at:first])
        begin = len(out)
        out = _joined(out, text[first:last])
        matches.append((begin, len(out)))
        at = last
    out = _joined(out, text[at:end]).rstrip()
    return Excerpt(out + ("…" if text[end:].strip() else ""), tuple(matches), scattered=False)


def _joined(out: str, piece: str) -> str:
    line = re.sub(r"\s+", " ", piece)
    return out + (line[1:] if line.startswith(" ") and (not out or out[-1] in " …") else line)


def _apart(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Without overlaps, in order."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if found and first < found[-1][1]:
            found[-1] = found[-1][0], max(last, found[-1][1])
        elif last > first:
            found.append((first, last))
    return found


class _Places:
    """Places in the normalised text → places in the text. Normalising may change lengths (ß, ﬁ), but no line ends."""

    def __init__(self, text: str, folded: str) -> None:
        self._same = text.isascii() or all(len(fold(char)) == 1 for char in set(text))
        self._text = text
        self._folded = folded

    def __call__(self, at: int) -> int:
        if self._same:
            return at
        line = self._folded.count("\n", 0, at)
        start = self._folded.rfind("\n", 0, at) + 1
        begin = 0
        for _ in range(line):
            begin = self._text.find("\n", begin) + 1
        end = self._text.find("\n", begin)
        return begin + _inside(self._text[begin : end if end >= 0 else len(self._text)], at - start)


def _inside(line: str, wanted: int) -> int:
    """The place in a line up to which its normalised text has this many characters."""
    length = 0
    for at, char in enumerate(line):
        if length >= wanted:
            return at
        length += len(fold(char))
    return len(line)

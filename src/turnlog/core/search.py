"""What a search finds, the same on every store.

Text is folded (NFKC, case) and cut into tokens: each Chinese, Japanese or Korean character is one, so that words of
any length can be found as a phrase; elsewhere a run of letters and digits is one. An entry is found if every word of
the query occurs in it, the tokens of a word in a row. A word that ends in * stands for its beginning.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from msgspec import Struct

from ..errors import UsageError
from .entries import Assistant, Entry, Received, ToolResult, User, text_of

SNIPPET_CHARS = 160
QUERY_MAX_CHARS = 1_000
TEXT_MAX_CHARS = 1_000_000
"""Of one entry, what is searched. Longer ones are dumps; they stay readable, whole, where they are."""

_CJK = (
    "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3100-\u318f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_TOKEN = re.compile(f"[{_CJK}]|[^\\W_{_CJK}]+")
_WORD = re.compile(r'"([^"]*)"|(\S+)')


class Term(Struct, frozen=True):
    """One word of a query: tokens in a row, the last one perhaps only a beginning."""

    tokens: tuple[str, ...]
    open_ended: bool = False


Terms: TypeAlias = tuple[Term, ...]


def fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", text).casefold()


def tokenise(text: str) -> list[str]:
    return _TOKEN.findall(fold(text[:TEXT_MAX_CHARS]))


@lru_cache(maxsize=64)
def terms(words: str) -> Terms:
    if len(words) > QUERY_MAX_CHARS:
        raise UsageError(f"a search has at most {QUERY_MAX_CHARS:,} characters", hint="Search for fewer words.")
    found: list[Term] = []
    for quoted, bare in _WORD.findall(words):
        tokens = tuple(tokenise(quoted or bare))
        if tokens:
            found.append(Term(tokens, bare.endswith("*")))
    if not found:
        raise UsageError("there is no word to search for", hint="Give at least one letter, digit or character.")
    return tuple(found)


def searchable(entry: Entry) -> str:
    """The words of an entry that searching looks at. A user entry made from `received` ones leaves it to them."""
    match entry:
        case User() if entry.from_:
            return ""
        case User() | Assistant() | ToolResult() | Received():
            return text_of(entry.content)
        case _:
            return ""


def role_of(entry: Entry) -> str:
    match entry:
        case Assistant():
            return "assistant"
        case ToolResult():
            return "tool"
        case _:
            return "user"


def found(query: Terms, text: str) -> bool:
    folded = fold(text[:TEXT_MAX_CHARS])
    if not all(term.tokens[0] in folded for term in query):
        return False
    tokens = _TOKEN.findall(folded)
    return all(_occurs(term, tokens) for term in query)


def _occurs(term: Term, tokens: Sequence[str]) -> bool:
    first, length = term.tokens[0], len(term.tokens)
    only_beginning = term.open_ended and length == 1
    for index, token in enumerate(tokens):
        if not (token.startswith(first) if only_beginning else token == first):
            continue
        run = tokens[index : index + length]
        if len(run) == length and _same_run(term, run):
            return True
    return False


def _same_run(term: Term, run: Sequence[str]) -> bool:
    head = list(run[:-1]) == list(term.tokens[:-1])
    return head and (run[-1].startswith(term.tokens[-1]) if term.open_ended else run[-1] == term.tokens[-1])


def snippet(query: Terms, text: str, width: int = SNIPPET_CHARS) -> str:
    """The surroundings of the first word found, on one line."""
    folded = fold(text)
    at = max(0, folded.find(query[0].tokens[0]))
    # Folding may change the length (ß, ﬁ): the same share of the way is near enough for a snippet.
    start = max(0, at * len(text) // max(1, len(folded)) - width // 3)
    piece = " ".join(text[start : start + width].split())
    return ("…" if start else "") + piece + ("…" if start + width < len(text) else "")

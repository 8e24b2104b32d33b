"""Reads what a person or a model searches for, says which lists of candidates a store must give, and ranks them.

    words "a phrase" begin* -without -"a phrase" from:NAME after:DATE before:DATE

All words first; if no entry has them all, any of them. Words that only carry a question need not match (`stop_words`).
A store gives at most `CANDIDATES_MAX` candidates, the newest first, and decides nothing: so every store finds the same
entries in the same order.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import combinations
from math import log2
from typing import Literal, TypeAlias

from msgspec import Struct

from ..errors import UsageError
from .stop_words import CONTRACTED, ENGLISH, KOREAN, pieces_of, without_ending
from .words import SINGLE, TOKEN, fold, forms_of, joined_number, parts_of, tokenise

QUERY_MAX_CHARS = 1_000
CANDIDATES_MAX = 1_000
LOOSE_TERMS_MAX = 12
PAIRED_TERMS_MAX = 6
"""With more terms, pairs of them would be more lists than they are worth."""
DERIVED = ("summary", "title")
"""Roles of entries that repeat what messages say: those messages come first."""

SearchState: TypeAlias = Literal["tail", "compacted", "rewound"]


class Phrase(Struct, frozen=True):
    """Tokens in a row; of the last one, only its beginning if it is open-ended."""

    tokens: tuple[str, ...]
    open_ended: bool = False


class Term(Struct, frozen=True):
    """One thing to find: any of these phrases."""

    any_of: tuple[Phrase, ...]


Terms: TypeAlias = tuple[Term, ...]


class Sought(Struct, frozen=True):
    """A query as it was understood."""

    strict: Terms
    """Each word as it was written."""
    split: Terms
    """The same, but questions without blanks are taken apart."""
    loose: Terms
    """Smaller pieces, of which any may match."""
    without: tuple[Phrase, ...] = ()
    facets: tuple[str, ...] = ()
    """What an entry must have besides words (`facet`)."""
    since: int | None = None
    until: int | None = None
    """Unix milliseconds: since <= time < until."""


class Wanted(Struct, frozen=True):
    """One list of candidates: the newest entries that have all these terms, at most `most`."""

    terms: Terms
    most: int


class Candidate(Struct, frozen=True, gc=False):
    """A part of an entry that matches."""

    session_id: str
    seq: int
    part: int
    at: int
    """Unix milliseconds."""
    role: str


class Ranked(Struct, frozen=True, gc=False):
    candidate: Candidate
    state: SearchState
    score: float


_ITEM = re.compile(r'(-(?=[^\s-]))?(?:(from|after|before):(?=\S))?(?:"([^"]*)"|(\S+))', re.IGNORECASE)
_IN = re.compile(r'(?:^|(?<=\s))in:(?:"([^"]+)"|(\S+))', re.IGNORECASE)
_DATE = re.compile(r"(\d{4})(?:[-/.](\d{1,2}))?(?:[-/.](\d{1,2}))?")


@lru_cache(maxsize=64)
def understand(words: str) -> Sought:
    if len(words) > QUERY_MAX_CHARS:
        raise UsageError(f"a search has at most {QUERY_MAX_CHARS:,} characters", hint="Search for fewer words.")
    reader = _Reader()
    for minus, field, quoted, bare in _ITEM.findall(words):
        reader.add(bool(minus), field.lower(), quoted, bare)
    sought = reader.sought()
    if not sought.strict and not sought.facets:
        raise UsageError("there is no word to search for", hint="Give at least one letter, digit or character.")
    return sought


def take_sessions(words: str) -> tuple[str, list[str]]:
    """The words without `in:SESSION`, and the sessions that they name."""
    named = [quoted or bare for quoted, bare in _IN.findall(words)]
    return (_IN.sub(" ", words), named) if named else (words, [])


def phrases(words: str) -> tuple[Phrase, ...]:
    """Every word or quoted phrase as it is, for searches in short texts."""
    if len(words) > QUERY_MAX_CHARS:
        raise UsageError(f"a search has at most {QUERY_MAX_CHARS:,} characters", hint="Search for fewer words.")
    found = [
        Phrase(tuple(tokens), bare.endswith("*"))
        for quoted, bare in re.findall(r'"([^"]*)"|(\S+)', words)
        if (tokens := tokenise(quoted or bare))
    ]
    if not found:
        raise UsageError("there is no word to search for", hint="Give at least one letter, digit or character.")
    return tuple(found)


@lru_cache(maxsize=1_024)
def facet(value: str) -> str:
    """A token that stands for a sender, a role or a tool. No text contains it."""
    return "§" + fold(value)[:80].encode("utf-8", "replace").hex()


class _Reader:
    """Collects the items of one query."""

    def __init__(self) -> None:
        self.words: list[tuple[str, bool]] = []
        """(word, whether it was quoted)."""
        self.without: list[Phrase] = []
        self.facets: list[str] = []
        self.since: int | None = None
        self.until: int | None = None

    def add(self, minus: bool, field: str, quoted: str, bare: str) -> None:
        value = quoted or bare
        if field and not minus and self._limited(field, value):
            return
        word = f"{field}:{value}" if field else value
        if minus and (phrase := _phrase(word, bool(quoted))):
            self.without.append(phrase)
        elif not minus:
            self.words.append((word, bool(quoted)))

    def _limited(self, field: str, value: str) -> bool:
        if field == "from":
            self.facets.append(facet(value.strip()))
            return True
        moment = _moment(value, field)
        if moment is None:
            return False
        if field == "after":
            self.since = moment if self.since is None else max(moment, self.since)
        else:
            self.until = moment if self.until is None else min(moment, self.until)
        return True

    def sought(self) -> Sought:
        words = [(word, quoted) for word, quoted in self.words if tokenise(word)]
        told = [item for item in words if item[1] or not _is_stop_word(item[0])] or words
        split = [piece for item in told for piece in _pieces(*item)]
        return Sought(
            strict=_terms(told),
            split=_terms(split),
            loose=_spread(_terms([piece for item in split for piece in _smaller(*item)])),
            without=tuple(self.without),
            facets=tuple(self.facets),
            since=self.since,
            until=self.until,
        )


def _spread(terms: Terms) -> Terms:
    """At most `LOOSE_TERMS_MAX`, from all over the query."""
    count = min(len(terms), LOOSE_TERMS_MAX)
    return tuple(terms[n * len(terms) // count] for n in range(count))


def _moment(value: str, field: str) -> int | None:
    """Unix ms; None for a word that is no date at all."""
    found = _DATE.match(value)
    if found is None:
        if any(char.isdigit() for char in value):
            raise UsageError(f"{field}:{value[:40]} is not a date", hint=f"Write {field}:2026-11-16, in UTC.")
        return None
    try:
        if found.end() < len(value):
            moment = datetime.fromisoformat(value)
        else:
            moment = datetime(int(found[1]), int(found[2] or 1), int(found[3] or 1), tzinfo=UTC)
    except ValueError:
        raise UsageError(
            f"{field}:{value[:40]} is not a date", hint=f"Write {field}:2026-11-16 or {field}:2026-11-16T09:30, in UTC."
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)


def _is_stop_word(word: str) -> bool:
    tokens = tokenise(CONTRACTED.sub("", word.strip("?!.,;:\"')(]}[{")))
    return tokens == [] or (len(tokens) == 1 and tokens[0] in ENGLISH) or without_ending("".join(tokens)) in KOREAN


def _phrase(word: str, quoted: bool = False) -> Phrase | None:
    tokens = tuple(tokenise(word))
    return Phrase(tokens, word.endswith("*") and not quoted) if tokens else None


def _terms(words: Sequence[tuple[str, bool]]) -> Terms:
    found = {term: None for word, quoted in words if (term := _term(word, quoted))}
    return tuple(found)


def _term(word: str, quoted: bool) -> Term | None:
    """A word as it is and in its other forms; a quoted phrase only as it is."""
    bare = word if quoted else CONTRACTED.sub("", word)
    phrase = _phrase(bare, quoted)
    if phrase is None or quoted or phrase.open_ended:
        return Term((phrase,)) if phrase else None
    found = [phrase]
    if len(phrase.tokens) == 1:
        found += [Phrase((form,)) for form in forms_of(phrase.tokens[0])[1:]]
        found += [Phrase(parts) for one in re.findall(r"[A-Za-z0-9]+", bare) if (parts := parts_of(one))]
    found += _other_writings(bare.strip("?!.,;:"))
    return Term(tuple(dict.fromkeys(found)))


_SHORT_HASH = re.compile(r"(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{7,39}")
_VERSION = re.compile(r"v?(\d+(?:\.\d+)+)")


def _other_writings(word: str) -> list[Phrase]:
    """1,234 as 1234, a version with and without its v, and a hash by its beginning."""
    found: list[Phrase] = []
    if number := joined_number(word):
        found.append(Phrase((number,)))
    if version := _VERSION.fullmatch(fold(word)):
        first, *more = version[1].split(".")
        found += [Phrase((start, *more)) for start in (first, f"v{first}")]
    if _SHORT_HASH.fullmatch(fold(word)):
        found.append(Phrase((fold(word),), open_ended=True))
    return found


_SINGLES = re.compile(f"{SINGLE.pattern}+")


def _pieces(word: str, quoted: bool) -> list[tuple[str, bool]]:
    """A word that holds a run of characters without blanks, taken apart; any other word as it is."""
    if quoted or word.endswith("*") or not SINGLE.search(fold(word)):
        return [(word, quoted)]
    text = fold(word)
    found: list[tuple[str, bool]] = []
    end = 0
    for run in _SINGLES.finditer(text):
        found += [(text[end : run.start()], False), *((piece, False) for piece in pieces_of(run[0]))]
        end = run.end()
    found.append((text[end:], False))
    told = [item for item in found if tokenise(item[0]) and not _is_stop_word(item[0])]
    return told or [(word, quoted)]


def _smaller(word: str, quoted: bool) -> list[tuple[str, bool]]:
    """The pairs of a longer run without blanks: no dictionary says where its words are. Other words as they are."""
    if quoted:
        return [(word, quoted)]
    tokens = tokenise(word)
    if len(tokens) > 2 and all(SINGLE.match(token) for token in tokens):
        size = 2 if ord(tokens[0]) >= 0x2E80 else 4  # a pair of Thai letters occurs in every text
        return [("".join(tokens[at : at + size]), False) for at in range(max(1, len(tokens) - size + 1))]
    return [(word, quoted)]


def steps(sought: Sought) -> list[tuple[Wanted, ...]]:
    """The lists to ask for, step by step, until a step finds something."""
    found: list[tuple[Wanted, ...]] = [(Wanted(sought.strict, CANDIDATES_MAX),)]
    if sought.split != sought.strict:
        found.append((Wanted(sought.split, CANDIDATES_MAX),))
    if len(sought.loose) > 1:
        found.append(_any_of(sought.loose))
    return found


def _any_of(terms: Terms) -> tuple[Wanted, ...]:
    """Each term alone, so that a rare one is never crowded out by a frequent one; and several together, so that an
    old entry with several frequent ones is not.
    """
    groups: dict[Terms, None] = {(term,): None for term in terms}
    if len(terms) <= PAIRED_TERMS_MAX:
        groups.update(dict.fromkeys(combinations(terms, 2)))
    if len(terms) > 3:
        groups.update({(*terms[:n], *terms[n + 1 :]): None for n in range(len(terms))})
    return tuple(Wanted(group, max(1, CANDIDATES_MAX // len(groups))) for group in groups)


def rank(
    found: Sequence[tuple[Wanted, Sequence[Candidate]]], state: Callable[[Candidate], SearchState]
) -> list[Ranked]:
    """Each entry once, the best first: what was rewound last; then by the terms that match, a rare one counting more
    than a frequent one; among equals, messages before summaries and titles, and the newest first.
    """
    weights = {wanted.terms[0]: _weight(len(listed)) for wanted, listed in found if len(wanted.terms) == 1}
    matched: dict[Candidate, dict[Term, None]] = {}
    for wanted, listed in found:
        terms = dict.fromkeys(wanted.terms)
        for candidate in listed:
            known = matched.get(candidate)
            matched[candidate] = terms if known is None else known | terms
    scores: dict[int, float] = {}
    ranked: dict[tuple[str, int], Ranked] = {}
    for candidate, terms in matched.items():
        score = scores.get(id(terms))  # many have the same
        if score is None:
            score = scores[id(terms)] = round(sum(weights.get(term, 1.0) for term in terms), 6)
        place = (candidate.session_id, candidate.seq)
        before = ranked.get(place)
        if before is None or (-score, candidate.part) < (-before.score, before.candidate.part):
            ranked[place] = Ranked(candidate, state(candidate), score)
    return sorted(ranked.values(), key=_order)


def _weight(count: int) -> float:
    return log2(1 + CANDIDATES_MAX / (1 + count))


def _order(one: Ranked) -> tuple[bool, float, bool, int, str, int]:
    candidate = one.candidate
    is_derived = candidate.role in DERIVED
    return one.state == "rewound", -one.score, is_derived, -candidate.at, candidate.session_id, -candidate.seq


def closest_first(ranked: Sequence[Ranked], scattered: Sequence[bool]) -> list[int]:
    """The positions in their final order: among equally good ones, those with all their words close together first.
    `scattered`: for each, whether its words are far apart.
    """

    def order(n: int) -> tuple[bool, float, bool, bool, int]:
        one = ranked[n]
        return one.state == "rewound", -one.score, one.candidate.role in DERIVED, scattered[n], n

    return sorted(range(len(ranked)), key=order)


def newest_first(candidates: Sequence[Candidate], most: int) -> list[Candidate]:
    """The newest ones, as every store must list them."""
    return sorted(candidates, key=lambda one: (-one.at, one.session_id, -one.seq, one.part))[:most]


def has(tokens: Sequence[str], phrase: Phrase) -> bool:
    """Whether these tokens occur in a row."""
    first, length = phrase.tokens[0], len(phrase.tokens)
    only_beginning = phrase.open_ended and length == 1
    for index, token in enumerate(tokens):
        if token.startswith(first) if only_beginning else token == first:
            run = tokens[index : index + length]
            if len(run) == length and _same_run(phrase, run):
                return True
    return False


def _same_run(phrase: Phrase, run: Sequence[str]) -> bool:
    head = list(run[:-1]) == list(phrase.tokens[:-1])
    return head and (run[-1].startswith(phrase.tokens[-1]) if phrase.open_ended else run[-1] == phrase.tokens[-1])


def has_all(tokens: Sequence[str], terms: Terms, without: Sequence[Phrase] = ()) -> bool:
    return all(any(has(tokens, phrase) for phrase in term.any_of) for term in terms) and not any(
        has(tokens, phrase) for phrase in without
    )


def found(query: Sequence[Phrase], text: str) -> bool:
    """Whether all these phrases occur in a short text."""
    tokens = TOKEN.findall(fold(text))
    return all(has(tokens, phrase) for phrase in query)

"""What other ways of keeping a conversation within a window would still have: simulated, by their rules.

Each has the same messages, window and offline summariser. None checks a summary. All of them are given the search that
such programs have at best: the newest eight messages whose text has all words of the query.
"""

import random
import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from benchmarks.fidelity.measuring import ASKED_MAX, KINDS
from benchmarks.fidelity.transcripts import MarkedTranscript, QuestionKind
from turnlog.core import tokens
from turnlog.core.entries import Assistant, Entry, User, text_of
from turnlog.core.identifiers import is_in
from turnlog.providers.offline.summary import summarise

RESERVE = 0.25
"""The share of the window that is left for the answer."""
HITS = 8


class PeerFigures(Struct, frozen=True, kw_only=True):
    pinned: float
    found: dict[QuestionKind, float]
    in_prompt: float
    stale: int
    changed: int


class Rule(Struct, frozen=True):
    name: str
    kept: Callable[[Sequence[str], int], int]
    """(messages, window) → how many of the newest ones stay."""
    summary_tokens: int


def _fitting(texts: Sequence[str], window: int) -> int:
    return _newest_that_fit(texts, int(window * (1 - RESERVE)))


def _newer_half(texts: Sequence[str], window: int) -> int:
    return min(len(texts) // 2, _newest_that_fit(texts, window // 2))


def _newest_that_fit(texts: Sequence[str], room: int) -> int:
    count = 0
    for text in reversed(texts):
        room -= tokens.of_text(text) + 4
        if room < 0:
            break
        count += 1
    return count


RULES = (
    Rule(
        "newest messages that fit, no summary",
        _fitting,
        0,
    ),
    Rule(
        "older half into 2,048 tokens",
        _newer_half,
        2_048,
    ),
    Rule("20 turns and 500 words", lambda texts, _: min(40, len(texts)), 700),
    Rule("last turn and 6,000 characters", lambda texts, _: min(2, len(texts)), 1_500),
)


def simulate(rule: Rule, marked: MarkedTranscript, compactions: int, window: int) -> PeerFigures:
    texts = [f"{_label(entry)}: {_text(entry)}" for entry in marked.messages]
    summary, tail = "", list[str]()
    for number in range(compactions):
        first, end = (len(texts) * n // compactions for n in (number, number + 1))
        tail += texts[first:end]
        kept = rule.kept(tail, window)
        folded, tail = tail[: len(tail) - kept], tail[len(tail) - kept :]
        if rule.summary_tokens:
            summary = _summary(summary, folded, rule.summary_tokens)
    prompt = "\n\n".join((summary, *tail))
    return PeerFigures(
        pinned=_share([text_of(marked.messages[n].content) in prompt for n in marked.pinned]),
        found=_found(marked),
        in_prompt=_share([is_in(marker, prompt) for marker in marked.markers]),
        stale=sum(is_in(one.old, prompt) and not is_in(one.new, prompt) for one in marked.changed),
        changed=len(marked.changed),
    )


def _label(entry: Entry) -> str:
    return "USER" if isinstance(entry, User) else "ASSISTANT" if isinstance(entry, Assistant) else "TOOL RESULT"


def _text(entry: Entry) -> str:
    return text_of(getattr(entry, "content", ""))


def _summary(previous: str, folded: Sequence[str], most: int) -> str:
    so_far = f"The summary so far:\n```\n{previous}\n```\n" if previous else ""
    record = "\n\n".join(folded)
    return summarise(f"at most {most} words\n{so_far}The record:\n```\n{record}\n```", most)


def _found(marked: MarkedTranscript) -> dict[QuestionKind, float]:
    chosen = random.Random(len(marked.messages))
    texts = [_text(entry).casefold() for entry in marked.messages]
    shares: dict[QuestionKind, float] = {}
    for kind in KINDS:
        asked = [one for one in marked.asked if one.kind == kind]
        held: list[bool] = []
        for one in chosen.sample(asked, min(ASKED_MAX, len(asked))):
            words = re.findall(r"\S+", one.words.casefold())
            hits = [text for text in reversed(texts) if all(word in text for word in words)][:HITS]
            looked_at = hits[:1] if kind == "newest" else hits
            held.append(any(one.expected.casefold() in _shown(text, words) for text in looked_at))
        if held:
            shares[kind] = _share(held)
    return shares


def _shown(text: str, words: Sequence[str]) -> str:
    """300 characters around the first word, as such searches show them."""
    at = text.find(words[0])
    return text[max(0, at - 150) : at + 150]


def _share(held: Sequence[bool]) -> float:
    return 100 * sum(held) / len(held) if held else 100.0

"""The offline model's summaries: sentences taken over from the record, sorted under the headings that were asked for.

What is exact goes first, because a summary without it does not count: identifiers, above all those of the newest
messages. Then come the statements that the summary so far holds, but only into half of the room, so that new ones find
a place however often a session is compacted; then the new ones, and a little of the talk itself.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from msgspec import Struct

from ..core import tokens
from ..core.summaries import IDENTIFIERS_FROM_MESSAGES, SECTIONS, SUMMARY_FREE_TOKENS, identifiers
from .offline_words import quote

GOAL, RULES, DECISIONS, DONE, NEXT, EXACT, OPEN = SECTIONS
WORDS = 500
"""Where the request names no number."""
ITEM_CHARS = 160
CARRIED_CHARS = 400
"""What was worth keeping once is cut less: it cannot be looked up any more."""
EXACT_SHARE = 2 / 3
"""Of the room, what identifiers may take, so that a long listing does not leave a bare list."""
CARRIED_SHARE = 1 / 2
"""Of the room then left, what the statements of the summary so far may take before new ones."""
TALK_ITEMS = 10
"""Of the newest talk, and of that in the summary so far: more would only crowd out what somebody stated."""

_LIMIT = re.compile(r"at most (\d+) words")
_PREVIOUS = re.compile(r"The summary so far:\n(`{3,})\n(.*?)\n\1(?=\n|$)", re.DOTALL)
_RECORD = re.compile(r"The record:\n(`{3,})\n(.*)\n\1\s*$", re.DOTALL)
_LABEL = re.compile(r"(?:^|\n\n)(USER|ASSISTANT|TOOL RESULT|TOOL ERROR)(?: \([^\n]{0,90}?\))?: ")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_HAN = re.compile(r"[\u3400-\u9fff]")

_KINDS = (
    (RULES, re.compile(
        r"\b(?:my|our|the) [\w -]{1,40} (?:is|are|was)\b|\b(?:i am|i'm|call me|remember|always|never|prefer|must|only"
        r"|don't|do not)\b|我叫|我的.{1,20}[是叫]|记住|总是|不要|必须", re.IGNORECASE)),
    (DECISIONS, re.compile(
        r"\b(?:decided?|let's|agreed|chose|go with|we(?:'ll| will) use)\b|决定|就用|采用", re.IGNORECASE)),
    (NEXT, re.compile(r"\b(?:next|todo|afterwards|later|tomorrow)\b|接下来|下一步|然后|待办", re.IGNORECASE)),
)  # fmt: skip


_SPEAKERS = {"USER": "user", "ASSISTANT": "agent", "TOOL ERROR": "blocked"}
_USER_LINES = ("user: ", "USER: ", "USER (")
"""How a user's words begin in our own summaries, and in a digest that was made without a model."""


class _Said(Struct, frozen=True):
    label: str
    text: str


class _Page:
    """Items by section as long as there is room, in words and in tokens."""

    def __init__(self, words: int, size: int) -> None:
        self.words = words - sum(len(section.split()) + 1 for section in SECTIONS)
        self.size = size - tokens.of_text("\n## ".join(SECTIONS))
        self.items: dict[str, dict[str, None]] = {section: {} for section in SECTIONS}

    def add(self, section: str, item: str) -> None:
        words, size = _words(item), tokens.of_text(item) + 2
        if not item or item in self.items[section] or words > self.words or size > self.size:
            return
        self.items[section][item] = None
        self.words -= words
        self.size -= size

    def fill(self, items: Iterable[tuple[str, str]], share: float = 1.0) -> None:
        """As many as fit into that share of the room that is left."""
        words, size = self.words * (1 - share), self.size * (1 - share)
        for section, item in items:
            if self.words < words or self.size < size:
                return
            self.add(section, item)

    def write(self) -> str:
        parts = [f"## {section}\n{_listing(section, items)}" for section, items in self.items.items() if items]
        return "\n".join(parts) or f"## {GOAL}\n- (nothing was said)"


def summarise(request: str) -> str:
    previous, record = _parts(request)
    limit = _LIMIT.search(request)
    said = _messages(record)
    page = _Page(
        int(limit[1]) if limit else WORDS,
        max(SUMMARY_FREE_TOKENS * 4 // 5, (tokens.of_text(record) + tokens.of_text(previous)) // 2),
    )
    carried = _items(previous)
    facts = [item for item in carried if item[0] not in (DONE, EXACT)]
    page.fill(_exact(said, [item for item in carried if item[0] == EXACT]), EXACT_SHARE)
    page.fill(facts, CARRIED_SHARE)
    page.fill(_statements(said, has_goal=bool(page.items[GOAL])))
    page.fill(facts)
    page.fill(islice(_talk(said), TALK_ITEMS))
    page.fill([item for item in carried if item[0] == DONE][:TALK_ITEMS])
    return page.write()


def _parts(request: str) -> tuple[str, str]:
    """(the summary so far, the record); a request of another form is its own record."""
    previous = _PREVIOUS.search(request)
    record = _RECORD.search(request, previous.end() if previous else 0)
    return previous[2] if previous else "", record[2] if record else request


def _messages(record: str) -> list[_Said]:
    marks = list(_LABEL.finditer(record))
    if not marks:
        return [_Said("USER", record)]
    ends = [mark.start() for mark in marks[1:]] + [len(record)]
    return [_Said(mark[1], record[mark.end() : end]) for mark, end in zip(marks, ends, strict=True)]


def _items(summary: str) -> list[tuple[str, str]]:
    """(section, item) of an earlier summary; lines of another form are sorted by what they say."""
    found: list[tuple[str, str]] = []
    section = DONE
    for line in filter(None, map(str.strip, summary.splitlines())):
        heading = line.strip("#*-: ")
        item = line.removeprefix("- ")
        if heading in SECTIONS:
            section = heading
        elif section == EXACT:
            found.extend((EXACT, name) for name in item.split(", "))
        else:
            told = item.startswith(_USER_LINES)
            found.append(((_kind_of(item) if told else "") or section, quote(item, CARRIED_CHARS)))
    return found


def _exact(said: list[_Said], carried: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    cut = -IDENTIFIERS_FROM_MESSAGES - 1
    yield from ((EXACT, name) for part in said[:cut:-1] for name in _sorted(identifiers(part.text)))
    yield from carried
    yield from ((EXACT, name) for part in said[cut::-1] for name in _sorted(identifiers(part.text)))


def _sorted(names: set[str]) -> list[str]:
    # A set's order changes from process to process, and the same request must give the same summary.
    return sorted(names)


def _statements(said: list[_Said], *, has_goal: bool) -> Iterator[tuple[str, str]]:
    users = [part.text for part in said if part.label == "USER"]
    if users and not has_goal:
        yield GOAL, _gist(users[0])
    if said[-1].label == "USER" and _asks(said[-1].text):
        yield OPEN, _gist(said[-1].text)
    for text in reversed(users):
        for sentence in filter(None, map(str.strip, _SENTENCE_END.split(text))):
            if (section := _kind_of(sentence)) and not _asks(sentence):
                yield section, quote(sentence, ITEM_CHARS)


def _kind_of(sentence: str) -> str:
    return next((name for name, pattern in _KINDS if pattern.search(sentence)), "")


def _asks(text: str) -> bool:
    return text.rstrip().endswith(("?", "？"))


def _talk(said: list[_Said]) -> Iterator[tuple[str, str]]:
    """What else was said, newest first; a tool's result only if it failed."""
    for part in reversed(said):
        if speaker := _SPEAKERS.get(part.label):
            yield DONE, f"{speaker}: {_gist(part.text)}"


def _gist(text: str) -> str:
    sentences = (sentence.strip() for sentence in _SENTENCE_END.split(text))
    return quote(next(filter(None, sentences), ""), ITEM_CHARS)


def _words(item: str) -> int:
    return len(item.split()) + len(_HAN.findall(item)) // 2 + 1


def _listing(section: str, items: Iterable[str]) -> str:
    return "- " + ", ".join(items) if section == EXACT else "\n".join(f"- {item}" for item in items)

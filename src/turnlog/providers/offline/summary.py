"""Summaries of the offline model: sentences of the record, under the headings that were asked for.

Identifiers come first, the newest and most used before all others, because a summary without them does not count. Then
come the corrections and the statements of the previous summary, in half of the remaining room, so that new ones fit
however often a session is compacted; then the new statements, and a few other messages. What was corrected is left out.
"""

import re
from collections.abc import Iterable, Iterator

from ...core import identifiers, tokens
from ...core.corrections import corrected
from ...core.plain import sentences
from ...core.summaries import SECTIONS, SUMMARY_FREE_TOKENS
from ...core.summary_check import CORRECTED_HEADING, LIST_LEAD, SEPARATOR
from .answers import is_question, quote

GOAL, RULES, _, DONE, _, EXACT, _ = SECTIONS
CORRECTED = "Corrected"
"""No section: the corrections that were added to the previous summary."""
WORDS = 500
"""The default if the request names no number."""
EXACT_SHARE, CARRIED_SHARE = 2 / 3, 1 / 2
"""The shares of the remaining room for identifiers, and then for earlier statements before new ones."""
OUTPUT_SHARE = 7 / 8
"""The share of the allowed output that is used: corrections may have to be added after the summary."""
TALK_ITEMS = 10
"""The most items of other talk, new and earlier: more would crowd out statements."""

_LIMIT = re.compile(r"at most (\d+) words")
_PARTS = re.compile(r"(?:The summary so far:\n(`{3,})\n(.*?)\n\1\n)?The record:\n(`{3,})\n(.*)\n\3\s*$", re.DOTALL)
_LABEL = re.compile(r"(?:^|\n\n)(USER|ASSISTANT|TOOL RESULT|TOOL ERROR)(?: \([^\n]{0,90}?\))?: ")
_HAN = re.compile(r"[\u3400-\u9fff]")
_STATED = re.compile(
    r"\b(?:my|our|the) [\w -]{1,40} (?:is|are|was)\b|\b(?:i am|i'm|remember|always|never|prefer|must|decided|next)\b"
    r"|我叫|我的.{1,20}[是叫]|记住|总是|不要|必须|决定|接下来",
    re.IGNORECASE,
)
_SPEAKERS = {"USER": "user", "ASSISTANT": "agent", "TOOL ERROR": "blocked"}
_USER_LINES = ("user: ", "USER: ", "USER (")
"""How a user's words begin in Turnlog's own summaries, and in a digest made without a model."""

Item = tuple[str, str]
"""A section and a line of it."""


class _Page:
    """Items by section as long as there is room, in words and in tokens."""

    def __init__(self, words: int, size: int) -> None:
        self.words = words - sum(len(section.split()) + 1 for section in SECTIONS)
        self.size = size - tokens.of_text("\n## ".join(SECTIONS))
        self.items: dict[str, dict[str, None]] = {section: {} for section in SECTIONS}

    def fill(self, items: Iterable[Item], share: float = 1.0) -> None:
        """Adds as many as fit into that share of the remaining room."""
        least_words, least_size = self.words * (1 - share), self.size * (1 - share)
        for section, item in items:
            words, size = len(item.split()) + len(_HAN.findall(item)) // 2 + 1, tokens.of_text(item) + 2
            if self.words < least_words or self.size < least_size:
                return
            if item and item not in self.items[section] and words <= self.words and size <= self.size:
                self.items[section][item] = None
                self.words -= words
                self.size -= size

    def write(self) -> str:
        lines = {section: SEPARATOR.join(items) if section == EXACT else "\n- ".join(items)
                 for section, items in self.items.items() if items}  # fmt: skip
        return "\n".join(f"## {section}\n- {text}" for section, text in lines.items()) or f"## {GOAL}\n- (nothing)"


def summarise(request: str, max_output: int | None = None) -> str:
    parts = _PARTS.search(request)
    previous, record = (parts[2] or "", parts[4]) if parts else ("", request)
    limit = _LIMIT.search(request)
    said = _messages(record)
    size = max(SUMMARY_FREE_TOKENS * 4 // 5, (tokens.of_text(record) + tokens.of_text(previous)) // 2)
    size = min(size, int(max_output * OUTPUT_SHARE)) if max_output else size
    page = _Page(int(limit[1]) if limit else WORDS, size)
    carried = list(_carried(previous))
    spoken = [text for label, text in said if label in ("USER", "ASSISTANT")]
    changed = corrected(spoken, [item for section, item in carried if section not in (EXACT, CORRECTED)],
                        [item for section, item in carried if section == CORRECTED])  # fmt: skip
    carried = [item for item in carried if item[1] not in changed.superseded and item[1] not in changed.stale]
    stated = [item for item in carried if item[0] not in (DONE, EXACT, CORRECTED)]
    page.fill(_exact(said, (item for section, item in carried if section == EXACT), changed.stale), EXACT_SHARE)
    page.fill(((RULES, quote(sentence)) for sentence in reversed(changed.sentences)), CARRIED_SHARE)
    page.fill(stated, CARRIED_SHARE)
    page.fill(_statements(said, changed.superseded, has_goal=bool(page.items[GOAL])))
    page.fill(stated)
    page.fill(_talk(said, changed.superseded)[:TALK_ITEMS])
    page.fill([item for item in carried if item[0] == DONE][:TALK_ITEMS])
    return page.write()


def _messages(record: str) -> list[tuple[str, str]]:
    """(label, text), oldest first."""
    _, *parts = _LABEL.split(record)
    return list(zip(parts[::2], parts[1::2], strict=True)) or [("USER", record)]


def _carried(summary: str) -> Iterator[Item]:
    section = DONE
    for line in filter(None, map(str.strip, summary.splitlines())):
        item = line.removeprefix("- ")
        if (heading := line.strip("#*-: ")) in SECTIONS:
            section = heading
        elif line == CORRECTED_HEADING:
            section = CORRECTED
        elif section == EXACT or line.startswith(LIST_LEAD):
            listed = item.removeprefix(LIST_LEAD)
            yield from ((EXACT, name) for name in listed.split(SEPARATOR if SEPARATOR in listed else ", "))
        else:
            stated = item.startswith(_USER_LINES) and _STATED.search(item)
            yield RULES if stated else section, quote(item, 400)  # cut less: its source is no longer in the prompt


def _exact(said: list[tuple[str, str]], carried: Iterable[str], stale: frozenset[str]) -> Iterator[Item]:
    texts = [text for _, text in said]
    weights = identifiers.weighed(texts, carried, half=max(1, len(texts) // 2))
    return ((EXACT, name) for name in weights if name not in stale and SEPARATOR not in name)


def _statements(said: list[tuple[str, str]], superseded: frozenset[str], *, has_goal: bool) -> Iterator[Item]:
    users = [text for label, text in said if label == "USER"]
    if users and not has_goal and not superseded.intersection(first := sentences(users[0])[:1]):
        yield GOAL, quote("".join(first))
    for sentence in (sentence for text in reversed(users) for sentence in sentences(text)):
        if sentence not in superseded and _STATED.search(sentence) and not is_question(sentence):
            yield RULES, quote(sentence)


def _talk(said: list[tuple[str, str]], superseded: frozenset[str]) -> list[Item]:
    """The other messages, newest first; a tool result only if it failed."""
    spoken = [(_SPEAKERS[label], sentences(text)[:1]) for label, text in reversed(said) if label in _SPEAKERS]
    return [(DONE, f"{who}: {quote(first[0])}") for who, first in spoken if first and first[0] not in superseded]

"""The offline model's summaries: sentences taken over from the record, sorted under the headings that were asked for.

What is exact goes first, because a summary without it does not count: identifiers, above all those of the newest
messages; then what the summary so far held, what the user stated, and as much of the talk as there is room for.
"""

import re
from collections.abc import Iterable

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


class _Said(Struct, frozen=True):
    label: str
    text: str


class _Page:
    """Items by section as long as there is room, in words and in tokens."""

    def __init__(self, words: int, size: int) -> None:
        self.words = words - sum(len(section.split()) + 1 for section in SECTIONS)
        self.size = size - tokens.of_text("\n## ".join(SECTIONS))
        self.items: dict[str, dict[str, None]] = {section: {} for section in SECTIONS}

    def add(self, section: str, item: str) -> bool:
        words, size = _words(item), tokens.of_text(item) + 2
        if item in self.items[section] or not item:
            return True
        if words > self.words or size > self.size:
            return False
        self.items[section][item] = None
        self.words -= words
        self.size -= size
        return True

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
    carried = _sections(previous)
    _add_exact(page, said, carried.get(EXACT, []))
    for section, items in carried.items():
        for item in items:
            page.add(section, item if section == EXACT else quote(item, CARRIED_CHARS))
    _add_statements(page, said)
    _add_talk(page, said)
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


def _sections(summary: str) -> dict[str, list[str]]:
    """The items of an earlier summary; lines of another form count as done."""
    found: dict[str, list[str]] = {}
    section = DONE
    for line in filter(None, map(str.strip, summary.splitlines())):
        heading = line.strip("#*-: ")
        if heading in SECTIONS:
            section = heading
            continue
        item = line.removeprefix("- ").strip()
        found.setdefault(section, []).extend(item.split(", ") if section == EXACT else [item])
    return found


def _add_exact(page: _Page, said: list[_Said], carried: list[str]) -> None:
    room = page.words * (1 - EXACT_SHARE), page.size * (1 - EXACT_SHARE)
    newest = [_sorted(identifiers(part.text)) for part in said[: -IDENTIFIERS_FROM_MESSAGES - 1 : -1]]
    older = [_sorted(identifiers(part.text)) for part in said[-IDENTIFIERS_FROM_MESSAGES - 1 :: -1]]
    for name in (*_flat(newest), *carried, *_flat(older)):
        if page.words < room[0] or page.size < room[1]:
            return
        page.add(EXACT, name)


def _sorted(names: set[str]) -> list[str]:
    # A set's order changes from process to process, and the same request must give the same summary.
    return sorted(names)


def _flat(lists: Iterable[list[str]]) -> list[str]:
    return [item for items in lists for item in items]


def _add_statements(page: _Page, said: list[_Said]) -> None:
    users = [part.text for part in said if part.label == "USER"]
    if users and not page.items[GOAL]:
        page.add(GOAL, _gist(users[0]))
    for text in reversed(users):
        for sentence in filter(None, map(str.strip, _SENTENCE_END.split(text))):
            section = next((name for name, pattern in _KINDS if pattern.search(sentence)), "")
            if section and not sentence.endswith(("?", "？")):
                page.add(section, quote(sentence, ITEM_CHARS))
    if said and said[-1].label == "USER" and said[-1].text.rstrip().endswith(("?", "？")):
        page.add(OPEN, _gist(said[-1].text))


def _add_talk(page: _Page, said: list[_Said]) -> None:
    """What else was said, newest first while there is room; a tool's result only if it failed."""
    for part in reversed(said):
        match part.label:
            case "USER":
                going = page.add(DONE, f"user: {_gist(part.text)}")
            case "ASSISTANT":
                going = page.add(DONE, f"agent: {_gist(part.text)}")
            case "TOOL ERROR":
                going = page.add(DONE, f"blocked: {_gist(part.text)}")
            case _:
                going = True
        if not going:
            return


def _gist(text: str) -> str:
    sentences = (sentence.strip() for sentence in _SENTENCE_END.split(text))
    return quote(next(filter(None, sentences), ""), ITEM_CHARS)


def _words(item: str) -> int:
    return len(item.split()) + len(_HAN.findall(item)) // 2 + 1


def _listing(section: str, items: Iterable[str]) -> str:
    return "- " + ", ".join(items) if section == EXACT else "\n".join(f"- {item}" for item in items)

"""The whole conversation as a list of messages in the shape of Anthropic's or OpenAI's API, with compaction markers.

Nothing is compacted: the list holds the messages that summaries replace, and `compactions` says before which message
each one took effect. `core.history` builds every part between two of them, so calls and results are paired as in a
prompt.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from ...core import entries as kinds, history
from ...core.entries import MESSAGES, Block, Content, Entry, clean, text_of, tool_uses
from ...core.history import ApiMessage
from ...core.paging import weight
from ...core.session import Session, on_path
from ...core.tail_cache import settled_ids
from ...core.user_content import user_content
from ...providers.chat_messages import part_of
from .writing import ExportWriter, LogOutline

VERSION = 1


class MessagesWriter(ExportWriter):
    """Writes compactions before messages, so that a reader can use both in one pass. Where there are some, the messages
    before each of them are built and counted first.
    """

    looks_at_messages = True

    def __init__(self, session: Session, shape: str) -> None:
        self._session = session
        self._shape = shape
        self.looks = 2 if session.compactions else 1
        self._log = LogOutline()
        self._folds: dict[int, kinds.Compaction] = {}
        self._marks: list[dict[str, Any]] = []
        self._ids: set[tuple[str, str]] = set()
        self._is_repeating = False
        self._build: _Builder | None = None
        self._count = 0

    def look(self, number: int, page: Sequence[Entry]) -> None:
        if number == 0:
            self._log.look(page)
            self._folds.update((entry.seq, entry) for entry in page if isinstance(entry, kinds.Compaction))
            for entry in page:
                self._know_ids(entry)
        else:
            self._take(page)

    def _know_ids(self, entry: Entry) -> None:
        """A second use of an id is written with another id, which must differ from all the others."""
        if isinstance(entry, kinds.ToolResult):
            used = [("result", entry.tool_use_id)]
        elif isinstance(entry, kinds.Assistant):
            used = [("call", str(block.get("id"))) for block in tool_uses(entry)]
        else:
            return
        self._is_repeating = self._is_repeating or not self._ids.isdisjoint(used)
        self._ids.update(used)

    def begin(self) -> Iterator[str]:
        if self.looks == 2:
            self._take(None)
        self._build, self._count = None, 0
        row = {name: value for name, value in msgspec.to_builtins(self._session).items() if name in _ROW}
        head = {"turnlog": VERSION, "shape": self._shape, "session": row, "compactions": self._marks}
        yield json.dumps(head, ensure_ascii=False, indent=1)[:-2] + ',\n "messages": ['

    def write(self, page: Sequence[Entry]) -> Iterator[str]:
        return self._written(page)

    def end(self) -> Iterator[str]:
        yield from self._written(None)
        yield "\n ]\n}\n"

    def _written(self, page: Sequence[Entry] | None) -> Iterator[str]:
        before = self._count
        for number, message in enumerate(self._take(page), before):
            yield ("," if number else "") + "\n  " + json.dumps(message, ensure_ascii=False)

    def _take(self, page: Sequence[Entry] | None) -> list[ApiMessage]:
        """The messages that are complete after this page; None: it was the last."""
        if self._build is None:
            folds = [self._folds[mark.seq] for mark in self._log.compactions()]
            self._build = _Builder(self._log, self._shape, folds, may_cut=not self._is_repeating)
            self._marks = self._build.marks
        found = self._build.finish() if page is None else self._build.add(page)
        self._count += len(found)
        return found


class _Builder:
    """Builds messages part by part. A part ends where a compaction took effect, or before a user's message that follows
    an answer, if all calls before it have their results there, and no id is used twice in the log.
    """

    def __init__(self, log: LogOutline, shape: str, folds: Sequence[kinds.Compaction], *, may_cut: bool) -> None:
        self._log = log
        self._shape = shape
        self._may_cut = may_cut
        self._folds = list(reversed(folds))
        self._part: list[Entry] = []
        self._size = 0
        self._is_first = True
        self._count = 0
        self.marks: list[dict[str, Any]] = []

    def add(self, page: Sequence[Entry]) -> list[ApiMessage]:
        found: list[ApiMessage] = []
        for entry in page:
            while self._folds and entry.seq >= self._folds[-1].first_kept:
                found += self._boundary()
            if isinstance(entry, MESSAGES) and on_path(entry.seq, self._log.path):
                if self._may_cut and self._size > PART_BYTES and isinstance(entry, kinds.User):
                    found += self._cut_before(entry)
                self._part.append(msgspec.structs.replace(entry, after=None))
                self._size += weight(entry)
        return found

    def finish(self) -> list[ApiMessage]:
        found: list[ApiMessage] = []
        while self._folds:
            found += self._boundary()
        return found + self._built()

    def _boundary(self) -> list[ApiMessage]:
        found = self._built()
        self.marks.append(_mark(self._folds.pop(), self._count))
        self._is_first = False
        return found

    def _cut_before(self, entry: kinds.User) -> list[ApiMessage]:
        last = self._part[-1]
        is_between = isinstance(last, kinds.Assistant) and last.stop != "error" and _says(last.content)
        if not is_between or not _says(user_content(entry, self._log.received)):
            return []
        if settled_ids([one for one in self._part if isinstance(one, MESSAGES)]) is None:
            self._size = 0  # asked again after as much more
            return []
        found = self._built()
        self._is_first = False
        return found

    def _built(self) -> list[ApiMessage]:
        part, self._part, self._size = self._part, [], 0
        named = [seq for entry in part if isinstance(entry, kinds.User) for seq in entry.from_]
        received = [self._log.received[seq] for seq in sorted(set(named)) if seq in self._log.received]
        built = _built([*received, *part], first=self._is_first)
        shaped = built if self._shape == "anthropic" else [turned for message in built for turned in _openai(message)]
        self._count += len(shaped)
        return shaped


def _says(content: Content) -> bool:
    """Whether the message is certainly shown: one without words may be left out, and its neighbours joined."""
    return any(map(str.isalnum, text_of(content)))


PART_BYTES = 4_000_000


_ROW = ("id", "key", "agentId", "channel", "label", "title", "createdAt", "lastAt")


def _mark(entry: kinds.Compaction, before: int) -> dict[str, Any]:
    return {"before": before, "summary": clean(entry.summary), "ts": entry.ts, "covers": list(entry.covers)}


def _built(part: Sequence[Entry], *, first: bool) -> list[ApiMessage]:
    messages = history.build(part).messages
    if first:
        return messages
    # The opening of a prompt is not needed inside a conversation.
    stand_in = {"role": "user", "content": history.CONTINUES}
    if messages[:1] == [stand_in]:
        return messages[1:]
    blank = not any(text_of(entry.content).strip() for entry in part if isinstance(entry, MESSAGES))
    return [] if blank and messages == [{"role": "user", "content": history.EMPTY}] else messages


def _openai(message: ApiMessage) -> Iterator[ApiMessage]:
    content: Content = message["content"]
    if isinstance(content, str):
        yield message
        return
    for block in content:
        if block.get("type") == "tool_result":
            yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": _parts_of(block["content"])}
    said = [block for block in content if block.get("type") not in ("tool_result", "tool_use", *_HIDDEN)]
    calls = [_call(block) for block in content if block.get("type") == "tool_use"]
    if said or calls:
        turned: ApiMessage = {"role": message["role"], "content": _parts_of(said) if said else None}
        yield turned | ({"tool_calls": calls} if calls else {})


_HIDDEN = ("thinking", "redacted_thinking")


def _call(block: Block) -> dict[str, Any]:
    given = json.dumps(block["input"], ensure_ascii=False)
    return {"id": block["id"], "type": "function", "function": {"name": block["name"], "arguments": given}}


def _parts_of(content: Content) -> Content:
    return content if isinstance(content, str) else [part_of(block) for block in content]


def _has(*types: str) -> Callable[[Entry], bool]:
    def has(entry: Entry) -> bool:
        if not isinstance(entry, kinds.Assistant | kinds.ToolResult) or isinstance(entry.content, str):
            return False
        return any(block.get("type") in types for block in entry.content)

    return has


OPENAI_LOSSES: tuple[tuple[str, Callable[[Entry], bool]], ...] = (
    ("thinking is left out", _has(*_HIDDEN)),
    ("in an answer all words stand before all calls", _has("tool_use")),
    ("which tool results are errors is left out", lambda e: isinstance(e, kinds.ToolResult) and bool(e.is_error)),
)

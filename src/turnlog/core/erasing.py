"""Erasing: decides which entries lose their words, and what an entry without words looks like.

It is the only exception to "an entry never changes". An erased entry keeps its seq, time, type and place, and the
`lasting` fields of its type, so that everything computed from the log stays valid: an erased message is shown as
`[erased]`, an erased result is not shown.

Entries that no longer count can be erased freely: facts that were dropped or replaced, and entries that were rewound.
Erasing any other entry is redaction, which a caller must ask for. Some entries are erased together, because one repeats
or explains the other: a call with its results and a person's answer about it, and a user entry with the `received`
entries that hold its words. The same holds for the calls, results and reasoning among a framework's own items.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from msgspec import Struct, to_builtins

from ..errors import UsageError
from .entries import (
    ERASED as ERASED,
    TYPES,
    Approval,
    ApprovalAnswer,
    Assistant,
    Entry,
    Erasure,
    Facts,
    Foreign,
    ToolResult,
    Transcript,
    User,
    kind_of,
    tool_uses,
)
from .facts import changes
from .marks import live_path, marks_of, on_path
from .strict_json import fields_in

NAMES_AT_ONCE = 5_000
"""The names of facts that one entry drops."""
BY_MAX_CHARS = 200


class ErasePlan(Struct, frozen=True):
    """What erasing changes in a log."""

    emptied: list[Entry]
    """The entries that replace those of the same seqs."""
    appended: list[Entry]
    """What is written after them: who erased, and facts that would count again otherwise."""

    @property
    def seqs(self) -> list[int]:
        return [entry.seq for entry in self.emptied]

    def applied(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """The entries of the log, those that lose their words without them."""
        changed = {entry.seq: entry for entry in self.emptied}
        return (changed.get(entry.seq, entry) for entry in entries)


def plan(transcript: Transcript, seqs: Iterable[int], *, redact: bool = False, by: str = "") -> ErasePlan:
    """`transcript`: the whole log. Raises UsageError if something among these may not be erased."""
    if len(by) > BY_MAX_CHARS:
        raise UsageError(f"`by` has more than {BY_MAX_CHARS} characters", hint="Give a short name.")
    there = {entry.seq: entry for entry in transcript}
    wanted = set(seqs)
    for seq in sorted(wanted):
        _check(there.get(seq), seq)
    gone = {seq for seq in together(transcript, wanted) if _is_open(there[seq])}
    if not gone:
        return ErasePlan([], [])
    before, after = _facts_of(transcript), _facts_of(entry for entry in transcript if entry.seq not in gone)
    if not redact:
        _check_free(transcript, gone, set(before.values()))
    lost = {place for place, seq in before.items() if seq in gone}
    again = sorted(place for place in after if place in lost or place not in before)
    erasure = Erasure(by=by, entries=len(gone))
    return ErasePlan([emptied(there[seq]) for seq in sorted(gone)], [*_drops(again), erasure])


def _check(entry: Entry | None, seq: int) -> None:
    if entry is None:
        raise UsageError(f"there is no entry {seq}", hint="`turnlog sessions show` lists the entries.")
    if entry.blank is None:
        raise UsageError(
            f"entry {seq} ({kind_of(entry)}) holds no words to erase", hint="Delete the session to remove all of it."
        )


def _is_open(entry: Entry) -> bool:
    return entry.blank is not None and not entry.erased


def _check_free(transcript: Transcript, gone: set[int], holding: set[int]) -> None:
    """`holding`: entries with facts that count."""
    path = live_path(marks_of(transcript), transcript[-1].seq)
    for entry in transcript:
        if entry.seq in gone and (entry.seq in holding or (not isinstance(entry, Facts) and on_path(entry.seq, path))):
            raise UsageError(
                f"entry {entry.seq} ({kind_of(entry)}) still counts",
                hint="Ask for redaction (redact=True, --redact) to erase it all the same.",
            )


def _facts_of(entries: Iterable[Entry]) -> dict[tuple[str, str], int]:
    """(app, key) → the entry that holds the fact."""
    found: dict[tuple[str, str], int] = {}
    for change in changes(entries):
        if change.seq is None:
            found.pop((change.app, change.key), None)
        else:
            found[change.app, change.key] = change.seq
    return found


def _drops(places: Sequence[tuple[str, str]]) -> list[Entry]:
    """Ends facts whose older values would count again."""
    found: list[Entry] = []
    for app in dict.fromkeys(app for app, _ in places):
        names = [key for name, key in places if name == app]
        pieces = range(0, len(names), NAMES_AT_ONCE)
        found += [Facts(app=app, drop=tuple(names[first : first + NAMES_AT_ONCE])) for first in pieces]
    return found


def together(transcript: Transcript, seqs: Iterable[int]) -> set[int]:
    """These, and all entries that go with them."""
    partners = _partners(transcript)
    found: set[int] = set()
    waiting = list(seqs)
    while waiting:
        seq = waiting.pop()
        if seq not in found:
            found.add(seq)
            waiting += partners.get(seq, ())
    return found


def _partners(transcript: Transcript) -> dict[int, set[int]]:
    partners: dict[int, set[int]] = {}
    for one, other in chain(_message_pairs(transcript), _item_pairs(transcript)):
        partners.setdefault(one, set()).add(other)
        partners.setdefault(other, set()).add(one)
    return partners


def _message_pairs(transcript: Transcript) -> Iterator[tuple[int, int]]:
    calls: dict[str, int] = {}
    early: dict[str, list[int]] = {}
    """Results that another program wrote before their calls."""
    for entry in transcript:
        match entry:
            case User() | ToolResult():
                for seq in entry.from_ if isinstance(entry, User) else ():
                    yield entry.seq, seq
                for call in _answered_by(entry):
                    if call in calls:
                        yield entry.seq, calls[call]
                    else:
                        early.setdefault(call, []).append(entry.seq)
            case Assistant():
                for call in (str(block.get("id")) for block in tool_uses(entry)):
                    calls[call] = entry.seq
                    for seq in early.pop(call, ()):
                        yield entry.seq, seq
            case Approval() | ApprovalAnswer():  # they repeat the arguments
                if entry.call in calls:
                    yield entry.seq, calls[entry.call]
            case _:
                pass


def _item_pairs(transcript: Transcript) -> Iterator[tuple[int, int]]:
    """Calls and results among a framework's items, and reasoning with what the model said right after it: the API
    refuses either without the other.
    """
    calls: dict[str, int] = {}
    reasoning = 0
    for entry in transcript:
        if not isinstance(entry, Assistant | Foreign):
            continue
        item = item_fields(entry) if isinstance(entry, Foreign) else {}
        kind, call = item.get("type", ""), item.get("call_id")
        if kind.endswith("_output"):
            if call in calls:
                yield entry.seq, calls[call]
            continue
        if reasoning and reasoning == entry.seq - 1:
            yield entry.seq, reasoning
        if kind == "reasoning":
            reasoning = entry.seq
        if call is not None:
            calls[call] = entry.seq


def item_fields(entry: Foreign) -> dict[str, str]:
    """The kind of a framework's item that is no message, and the call that it belongs to."""
    raw = fields_in(entry.raw)
    item = fields_in(next(iter(raw.values()))) if len(raw) == 1 else {}
    return {name: value for name in ("type", "call_id") if isinstance(value := item.get(name), str)}


def _answered_by(entry: User | ToolResult) -> list[str]:
    """The calls whose results it holds."""
    if isinstance(entry, ToolResult):
        return [] if entry.erased else [entry.tool_use_id]
    if not isinstance(entry.content, list):
        return []
    return [str(block.get("tool_use_id")) for block in entry.content if block.get("type") == "tool_result"]


def emptied(entry: Entry) -> Entry:
    """The entry without its words."""
    if isinstance(entry, Foreign) and "type" in (entry.unknown or {}):
        kind = (entry.unknown or {})["type"]
        mark = {"type": kind, "erased": True}
        return Foreign(seq=entry.seq, ts=entry.ts, after=entry.after, raw=mark, unknown={"type": kind}, erased=True)
    kept: dict[str, Any] = {name: getattr(entry, name) for name in entry.lasting}
    common: dict[str, Any] = {"seq": entry.seq, "ts": entry.ts, "after": entry.after, "erased": True}
    return type(entry)(**common, **(entry.blank or {}), **kept)


def line_of(entry: Entry) -> dict[str, Any]:
    """The values of an erased entry as they are stored: `erased` instead of its words."""
    values: dict[str, Any] = to_builtins(emptied(entry))
    return {name: value for name, value in values.items() if name not in (entry.blank or {})}


def completed(values: dict[str, Any]) -> dict[str, Any]:
    """The opposite: the values of an erased line with the fields that its type requires."""
    kind = TYPES.get(str(values.get("type")))
    if values.get("erased") is not True or kind is None or kind.blank is None:
        return values
    return {**kind.blank, **values}

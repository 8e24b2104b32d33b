"""Decides which tool result belongs to which call, in any order that crashes, imports and other programs may leave.

A result belongs to the latest message before it that has an open call with its id, and there to the first such call:
the calls of one message are answered in order. Otherwise it belongs to the first open call after it (one seed system
wrote results first). A call that is repeated word for word while the first is still open is the same call (another seed
system wrote each call twice), unless both are in one message and two different results came: then they are two calls.
If an id is used again for a new call, it gets a suffix, because providers require unique ids. Results without a call
are orphans: the caller shows them as quoted data.
"""

import json
from collections.abc import Sequence

from .entries import Assistant, Block, Message, ToolResult, clean, text_of


class OpenCall:
    """One tool_use block of the message `seq`. `repeats`: the same call, written before and still open then."""

    __slots__ = ("block", "id", "repeats", "result", "seq")

    def __init__(self, block: Block, call_id: str, seq: int, repeats: "OpenCall | None" = None) -> None:
        self.block = block
        self.id = call_id
        self.seq = seq
        self.repeats = repeats
        self.result: ToolResult | None = None


class Pairing:
    def __init__(self) -> None:
        self.calls: dict[int, list[OpenCall | None]] = {}
        """seq of an assistant entry → its calls in order, one for each tool_use block; None: malformed."""
        self._orphans: set[int] = set()
        self._early: set[int] = set()

    def blocks(self, entry: Assistant) -> list[Block] | str:
        """The entry's content with unique call ids, without repeats, and with malformed calls as text."""
        if entry.seq not in self.calls or isinstance(entry.content, str):
            return entry.content
        calls = iter(self.calls[entry.seq])
        out: list[Block] = []
        for block in entry.content:
            if block.get("type") != "tool_use":
                out.append(block)
                continue
            call = next(calls)
            if call is None:
                out.append({"type": "text", "text": f"[malformed tool call: {json.dumps(block, default=str)}]"})
            elif not call.repeats:
                out.append(_sendable(block, call.id))
        return out

    def owed(self, entry: Assistant) -> list[tuple[str, ToolResult | None]]:
        """(id, result or None) of each call of this entry, in call order."""
        calls = self.calls.get(entry.seq, ())
        return [(call.id, call.result) for call in calls if call is not None and not call.repeats]

    def add_orphan(self, result: ToolResult) -> None:
        self._orphans.add(id(result))

    def is_orphan(self, result: ToolResult) -> bool:
        """Decides by the object, not by its seq: results that were blocks of one user message have the same seq."""
        return id(result) in self._orphans

    def results_of(self, entry: Assistant) -> list[ToolResult | None]:
        """The result of each tool_use block of this entry, in order; a repeated call has the result of the first."""
        calls = self.calls.get(entry.seq, ())
        return [None if call is None else (call.repeats or call).result for call in calls]

    def follows_early_results(self, entry: Assistant) -> bool:
        """Whether the results of the calls before it were written before those calls: then this entry is the answer."""
        return entry.seq in self._early

    def pairs(self) -> list[tuple[int, OpenCall]]:
        """(seq of the entry, call) of every call that is not a repeat."""
        found = ((seq, call) for seq, calls in self.calls.items() for call in calls)
        return [(seq, call) for seq, call in found if call is not None and not call.repeats]

    def mark_early(self, tail: Sequence[Message]) -> None:
        due = False
        for entry in tail:
            if not isinstance(entry, Assistant):
                due = False
            elif calls := self.owed(entry):
                due = all(result is not None and result.seq < entry.seq for _, result in calls)
            elif due:
                self._early.add(entry.seq)
                due = False


def _sendable(block: Block, call_id: str) -> Block:
    given = block.get("input")
    if block["id"] == call_id and isinstance(given, dict):
        return block
    return {**block, "id": call_id, "input": given if isinstance(given, dict) else {"value": given}}


def pair(tail: Sequence[Message]) -> Pairing:
    pairing = Pairing()
    known = _Known()
    early: list[ToolResult] = []
    for entry in tail:
        if isinstance(entry, Assistant) and entry.stop != "error":
            _add_calls(pairing, entry, known)
        elif isinstance(entry, ToolResult) and not known.answer(entry):
            early.append(entry)
    for result in early:
        if not known.answer_early(result):
            pairing.add_orphan(result)
    if early:
        pairing.mark_early(tail)
    return pairing


def _add_calls(pairing: Pairing, entry: Assistant, known: "_Known") -> None:
    if isinstance(entry.content, str):
        return
    blocks = [block for block in entry.content if block.get("type") == "tool_use"]
    if blocks:
        pairing.calls[entry.seq] = [known.call(block, entry.seq) for block in blocks]


class _Known:
    """The calls so far, by the ids they were written with."""

    def __init__(self) -> None:
        self.open: dict[str, list[OpenCall]] = {}
        self.doubles: dict[str, list[OpenCall]] = {}
        """Calls that repeat, word for word, a call before them in the same message."""
        self.results: dict[str, list[ToolResult]] = {}
        self.used: set[str] = set()

    def call(self, block: Block, seq: int) -> OpenCall | None:
        raw = block.get("id")
        if not isinstance(raw, str) or not raw or not isinstance(block.get("name"), str) or not block["name"]:
            return None
        waiting = self.open.setdefault(raw, [])
        if first := next((call for call in waiting if _same(call.block, block)), None):
            double = OpenCall(block, raw, seq, first)
            if first.seq == seq:
                self.doubles.setdefault(raw, []).append(double)
            return double
        call = OpenCall(block, self._unique(raw), seq)
        waiting.append(call)
        return call

    def answer(self, result: ToolResult) -> bool:
        """Assigns the result to an open call before it, if there is one."""
        waiting = self.open.get(result.tool_use_id)
        if waiting:
            newest = waiting[-1].seq
            self._give(next(call for call in waiting if call.seq == newest), result)
            return True
        return self._answer_double(result)

    def _answer_double(self, result: ToolResult) -> bool:
        doubles = self.doubles.get(result.tool_use_id)
        if not doubles or self._is_known(result):
            return False
        call = doubles.pop(0)
        call.id, call.repeats = self._unique(result.tool_use_id), None
        self._give(call, result)
        return True

    def answer_early(self, result: ToolResult) -> bool:
        """Assigns the result to a call after it; False if there is none and its text is nowhere else."""
        if waiting := self.open.get(result.tool_use_id):
            self._give(waiting[0], result)
            return True
        return self._is_known(result)

    def _give(self, call: OpenCall, result: ToolResult) -> None:
        call.result = result
        self.results.setdefault(result.tool_use_id, []).append(result)
        if call in (waiting := self.open[result.tool_use_id]):
            waiting.remove(call)

    def _is_known(self, result: ToolResult) -> bool:
        return any(_says_the_same(other, result) for other in self.results.get(result.tool_use_id, ()))

    def _unique(self, raw: str) -> str:
        name, n = clean(raw), 1
        while name in self.used:
            n += 1
            name = f"{clean(raw)}_{n}"
        self.used.add(name)
        return name


def _says_the_same(one: ToolResult, other: ToolResult) -> bool:
    """A text may be written as one block or several, by clients that write history anew."""
    if one.content == other.content:
        return True
    is_text = all(block.get("type") == "text" for block in (*_blocks(one), *_blocks(other)))
    return is_text and text_of(one.content).rstrip() == text_of(other.content).rstrip()


def _blocks(result: ToolResult) -> Sequence[Block]:
    return () if isinstance(result.content, str) else result.content


def _same(one: Block, other: Block) -> bool:
    return one.get("name") == other.get("name") and one.get("input") == other.get("input")

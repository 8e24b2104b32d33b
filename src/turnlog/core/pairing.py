"""Which tool result belongs to which call, in any order that crashes, imports and other tools may have left.

A result belongs to the latest open call of its id before it; failing that, to the first open call after it (one seed
system wrote results first). A call repeated word for word while the first is still open is the same call (another
wrote each call twice). An id used again for a new call gets a suffix, because providers want ids unique. Results
without any call are orphans: the caller shows them as quoted data.
"""

import json
from collections.abc import Sequence

from .entries import Assistant, Block, Message, ToolResult, clean


class Call:
    """One tool_use block. `repeats`: the same call was written before and is still open."""

    __slots__ = ("block", "id", "repeats", "result")

    def __init__(self, block: Block, call_id: str, *, repeats: bool) -> None:
        self.block = block
        self.id = call_id
        self.repeats = repeats
        self.result: ToolResult | None = None


class Pairing:
    def __init__(self) -> None:
        self.calls: dict[int, list[Call | None]] = {}
        """seq of an assistant entry → one for each of its tool_use blocks, in order; None: malformed."""
        self.orphans: set[int] = set()
        self._early: set[int] = set()

    def blocks(self, entry: Assistant) -> list[Block] | str:
        """The entry's content with unique call ids, repeats left out and malformed calls as text."""
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

    def follows_early_results(self, entry: Assistant) -> bool:
        """Whether the results of the calls before it were written before those calls: then this is the answer."""
        return entry.seq in self._early

    def pairs(self) -> list[tuple[int, Call]]:
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
    open_calls: dict[str, list[Call]] = {}
    answered: dict[str, list[ToolResult]] = {}
    early: list[ToolResult] = []
    used: set[str] = set()
    for entry in tail:
        if isinstance(entry, Assistant) and entry.stop != "error":
            _add_calls(pairing, entry, open_calls, used)
        elif isinstance(entry, ToolResult):
            waiting = open_calls.get(entry.tool_use_id)
            if waiting:
                waiting.pop().result = entry
                answered.setdefault(entry.tool_use_id, []).append(entry)
            else:
                early.append(entry)
    for result in early:
        _place_early(pairing, result, open_calls, answered)
    if early:
        pairing.mark_early(tail)
    return pairing


def _add_calls(pairing: Pairing, entry: Assistant, open_calls: dict[str, list[Call]], used: set[str]) -> None:
    if isinstance(entry.content, str):
        return
    blocks = [block for block in entry.content if block.get("type") == "tool_use"]
    if blocks:
        pairing.calls[entry.seq] = [_call(block, open_calls, used) for block in blocks]


def _call(block: Block, open_calls: dict[str, list[Call]], used: set[str]) -> Call | None:
    raw = block.get("id")
    if not isinstance(raw, str) or not raw or not isinstance(block.get("name"), str) or not block["name"]:
        return None
    waiting = open_calls.setdefault(raw, [])
    if any(_same(call.block, block) for call in waiting):
        return Call(block, raw, repeats=True)
    call = Call(block, _unique(clean(raw), used), repeats=False)
    waiting.append(call)
    return call


def _same(one: Block, other: Block) -> bool:
    return one.get("name") == other.get("name") and one.get("input") == other.get("input")


def _unique(raw: str, used: set[str]) -> str:
    name, n = raw, 1
    while name in used:
        n += 1
        name = f"{raw}_{n}"
    used.add(name)
    return name


def _place_early(
    pairing: Pairing, result: ToolResult, open_calls: dict[str, list[Call]], answered: dict[str, list[ToolResult]]
) -> None:
    waiting = open_calls.get(result.tool_use_id)
    if waiting:
        waiting.pop(0).result = result
        return
    doubles = answered.get(result.tool_use_id, ())
    if not any(other.content == result.content for other in doubles):
        pairing.orphans.add(result.seq)

"""Which tool result belongs to which call, in any order that crashes, imports and other tools may have left.

A result belongs to the latest open call of its id before it; failing that, to the first open call after it (one seed
system wrote results first). A call repeated word for word while the first is still open is the same call (another
wrote each call twice). An id used again for a new call gets a suffix, because providers want ids unique. Results
without any call are orphans: the caller shows them as quoted data.
"""

import json
from collections.abc import Sequence

from .entries import Assistant, Block, Message, ToolResult


class _Call:
    __slots__ = ("block", "id", "name", "repeats", "result")

    def __init__(self, block: Block, call_id: str, repeats: "_Call | None") -> None:
        self.block = block
        self.id = call_id
        self.repeats = repeats
        self.result: ToolResult | None = None


class Pairing:
    def __init__(self) -> None:
        self.calls: dict[int, list[_Call]] = {}
        self.orphans: set[int] = set()
        self.doubles: set[int] = set()

    def blocks(self, entry: Assistant) -> list[Block] | str:
        """The entry's content with unique call ids, repeats left out and malformed calls as text."""
        calls = self.calls.get(entry.seq)
        if calls is None or isinstance(entry.content, str):
            return entry.content
        own = {id(call.block): call for call in calls}
        out: list[Block] = []
        for block in entry.content:
            call = own.get(id(block))
            if block.get("type") != "tool_use":
                out.append(block)
            elif call is None:
                out.append({"type": "text", "text": f"[malformed tool call: {json.dumps(block, default=str)}]"})
            elif call.repeats is None:
                out.append(_sendable(block, call.id))
        return out

    def owed(self, entry: Assistant) -> list[tuple[str, ToolResult | None]]:
        """(id, result or None) of each call of this entry, in call order."""
        return [(call.id, call.result) for call in self.calls.get(entry.seq, ()) if call.repeats is None]


def _sendable(block: Block, call_id: str) -> Block:
    given = block.get("input")
    if block["id"] == call_id and isinstance(given, dict):
        return block
    return {**block, "id": call_id, "input": given if isinstance(given, dict) else {"value": given}}


def pair(tail: Sequence[Message]) -> Pairing:
    pairing = Pairing()
    open_calls: dict[str, list[_Call]] = {}
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
    return pairing


def _add_calls(pairing: Pairing, entry: Assistant, open_calls: dict[str, list[_Call]], used: set[str]) -> None:
    if isinstance(entry.content, str):
        return
    blocks = [block for block in entry.content if block.get("type") == "tool_use"]
    if not blocks:
        return
    calls = pairing.calls.setdefault(entry.seq, [])
    for block in blocks:
        raw = block.get("id")
        if not isinstance(raw, str) or not raw or not isinstance(block.get("name"), str) or not block["name"]:
            continue
        waiting = open_calls.setdefault(raw, [])
        same = next((call for call in waiting if _same(call.block, block)), None)
        call = _Call(block, raw if same else _unique(raw, used), same)
        calls.append(call)
        if same is None:
            waiting.append(call)


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
    pairing: Pairing, result: ToolResult, open_calls: dict[str, list[_Call]], answered: dict[str, list[ToolResult]]
) -> None:
    waiting = open_calls.get(result.tool_use_id)
    if waiting:
        waiting.pop(0).result = result
        return
    doubles = answered.get(result.tool_use_id, ())
    if not any(other.content == result.content for other in doubles):
        pairing.orphans.add(result.seq)

"""In which pieces an answer came, so that its stream can be told again after a restart, event for event.

Only lengths are stored, next to the answer that has the words. An entry is written in the same append as the answer:

    {"turnlog": "pieces", "groups": [["text", 3, 5], ["call:0", 12, 4]], "inputs": {"0": "…"}}

A group is what came of one block without a break. `inputs`: what a model wrote as the input of a call, if the stored
input would be written otherwise.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from ..core.entries import Assistant, Block, Foreign, tool_uses
from ..providers import CallPiece, Delta
from .relay_call import pieces_of, written_input

PIECES = "pieces"
_KINDS = ("thinking", "signature", "text")


def note(pieces: Sequence[Delta], reply: Assistant) -> Foreign | None:
    """None if the pieces do not give the answer, or came in the form that `pieces_of` gives anyway."""
    groups: list[list[Any]] = []
    written: dict[int, str] = {}
    newest = ""
    for kind, text, begins in _parts(pieces):
        if kind != newest or begins:
            groups.append([kind])
            newest = kind
        groups[-1].append(len(text))
        if kind.startswith("call:"):
            number = int(kind.removeprefix("call:"))
            written[number] = written.get(number, "") + text
    whole = {number: written_input(call) for number, call in enumerate(tool_uses(reply))}
    inputs = {str(number): text for number, text in written.items() if whole.get(number) != text}
    made = {"turnlog": PIECES, "groups": groups, **({"inputs": inputs} if inputs else {})}
    if not groups or _told(read(made, reply)) != _told(pieces) or _told(pieces_of(reply)) == _told(pieces):
        return None
    return Foreign(raw=made)


def read(made: Mapping[str, Any] | None, reply: Assistant) -> list[Delta]:
    """The pieces that an answer came in; without a note one for each block."""
    if made is None:
        return pieces_of(reply)
    words = _Words(reply, cast("Mapping[str, str]", made.get("inputs") or {}))
    found: list[Delta] = []
    newest = ""
    for kind, *lengths in cast("list[list[Any]]", made["groups"]):
        for number, length in enumerate(lengths):
            begins = number == 0 and kind == newest
            found.append(words.next(str(kind), int(length), begins))
        newest = kind
    return found


class _Words:
    """The words of an answer, taken piece by piece."""

    def __init__(self, reply: Assistant, inputs: Mapping[str, str]) -> None:
        blocks = [{"type": "text", "text": reply.content}] if isinstance(reply.content, str) else reply.content
        self._left = {kind: "".join(_field(block, kind) for block in blocks) for kind in _KINDS}
        self._calls = tool_uses(reply)
        for number, call in enumerate(self._calls):
            self._left[f"call:{number}"] = inputs.get(str(number)) or written_input(call)
        self._blocks = [block for block in blocks if block.get("type") == "redacted_thinking"]

    def next(self, kind: str, length: int, begins: bool) -> Delta:
        if kind == "block":
            return Delta(block=self._blocks.pop(0)) if self._blocks else Delta()
        left = self._left.get(kind, "")
        taken, self._left[kind] = left[:length], left[length:]
        if kind.startswith("call:"):
            number = int(kind.removeprefix("call:"))
            call: Block = self._calls[number] if number < len(self._calls) else {"id": "", "name": ""}
            return Delta(call=CallPiece(number, str(call["id"]), str(call["name"]), taken))
        match kind:
            case "thinking":
                return Delta(thinking=taken, begins=begins)
            case "signature":
                return Delta(signature=taken)
            case _:
                return Delta(text=taken, begins=begins)


def _field(block: Block, kind: str) -> str:
    is_its = block.get("type") == ("text" if kind == "text" else "thinking")
    value = block.get(kind) if is_its else ""
    return value if isinstance(value, str) else ""


def _parts(pieces: Sequence[Delta]) -> Iterator[tuple[str, str, bool]]:
    """(kind, words, whether it begins a block), in the order in which a writer tells them."""
    for piece in pieces:
        if piece.thinking:
            yield "thinking", piece.thinking, piece.begins
        if piece.signature:
            yield "signature", piece.signature, False
        if piece.text:
            yield "text", piece.text, piece.begins
        if piece.call is not None:
            yield f"call:{piece.call.index}", piece.call.input, False
        if piece.block is not None and piece.block.get("type") == "redacted_thinking":
            yield "block", str(piece.block.get("data")), False


def _told(pieces: Sequence[Delta]) -> list[tuple[str, str, bool]]:
    """What listeners are told: a mark of a beginning counts only where the block would go on without it."""
    found: list[tuple[str, str, bool]] = []
    for kind, text, begins in _parts(pieces):
        found.append((kind, text, begins and bool(found) and found[-1][0] == kind))
    return found

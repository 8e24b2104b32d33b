"""Writes an answer for /v1/messages, whole or as events.

    message_start · ping · [content_block_start · content_block_delta* · content_block_stop]*
        · message_delta · message_stop

Blocks come one after another. A server may send the pieces of two calls in turns: then the later call waits until the
input of the earlier one is whole.
"""

from typing import Any

from ...core.entries import Assistant, Block, tool_uses
from ...providers import CallPiece, Delta
from ...settings import ApiSettings
from ...turns.relay_call import RelayCall, written_input
from . import errors, response_ids as ids
from .compaction_fields import CLEAR_THINKING, CLEAR_TOOLS, COMPACT
from .reading import WireRequest
from .response_tools import is_whole

STOPS = frozenset(
    {
        "end_turn",
        "max_tokens",
        "stop_sequence",
        "tool_use",
        "pause_turn",
        "refusal",
        "model_context_window_exceeded",
        "compaction",
    }
)
USAGE = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
PING = b'event: ping\ndata: {"type":"ping"}\n\n'


class EventsWriter:
    """Writes the answer of a call for this wire."""

    keepalive = PING

    def __init__(self, call: RelayCall, request: WireRequest, api: ApiSettings, created: int) -> None:
        self._call = call
        self._request = request
        self._index = -1
        self._open: str | int | None = None
        """The kind of the block that is open, or the number of its call."""
        self._written: dict[int, list[str]] = {}
        """Calls that were begun, and their input so far."""
        self._waiting: dict[int, list[CallPiece]] = {}

    def whole(self, reply: Assistant, note: dict[str, Any] | None) -> bytes:
        made = self._compaction()
        content = [made, *_blocks(reply)] if made else _blocks(reply)
        body = {**self._message(content, _stop(reply), usage_of(reply)), **self._edits()}
        return errors.encode({**body, "turnlog": note} if note else body)

    def begin(self) -> bytes:
        usage = {**dict.fromkeys(USAGE, 0), "input_tokens": self._call.estimate}
        return _event("message_start", message=self._message([], None, usage)) + PING

    def piece(self, piece: Delta) -> bytes:
        frames = self._compacted()
        if piece.thinking:
            frames += self._words("thinking", piece.thinking, piece.begins)
        if piece.signature:
            frames += self._opened("thinking")
            frames += self._delta({"type": "signature_delta", "signature": piece.signature})
        if piece.text:
            frames += self._words("text", piece.text, piece.begins)
        if piece.call is not None:
            frames += self._call_piece(piece.call)
        if piece.block is not None:
            frames += self._close() + self._start("block", piece.block) + self._close()
        return frames

    def end(self, reply: Assistant, note: dict[str, Any] | None) -> bytes:
        frames = self._compacted()
        for index, call in enumerate(tool_uses(reply)):
            if index not in self._written and index not in self._waiting:  # its pieces did not come
                self._waiting[index] = [CallPiece(index, call["id"], call["name"], written_input(call))]
        for index in list(self._waiting):
            frames += self._begin_call(self._waiting.pop(index))
        frames += self._close()
        delta = {"stop_reason": _stop(reply), "stop_sequence": None}
        more = {**({"turnlog": note} if note else {}), **self._edits()}
        frames += _event("message_delta", delta=delta, usage=usage_of(reply), **more)
        return frames + _event("message_stop")

    def failed(self, error: Exception, request_id: str) -> bytes:
        return b"event: error\ndata: %b\n\n" % errors.encode(errors.body_of(error, "anthropic", request_id))

    def _compaction(self) -> Block | None:
        """The block that a client asked for; its handle stands for everything up to the compaction."""
        made, stream = self._call.compaction, self._call.stream
        if made is None or stream is None or COMPACT not in self._request.edit_kinds or not self._call.summary:
            return None
        coded = ids.handle(self._call.session_id, made.seq, stream.incarnation or "")
        return {"type": "compaction", "content": self._call.summary, "encrypted_content": coded}

    def _compacted(self) -> bytes:
        if self._index >= 0 or (made := self._compaction()) is None:
            return b""
        frames = self._start("block", {"type": "compaction", "content": None})
        delta = {"type": "compaction_delta", "content": made["content"], "encrypted_content": made["encrypted_content"]}
        return frames + self._delta(delta) + self._close()

    def _edits(self) -> dict[str, Any]:
        """What was done to the context, for a client that asked for it."""
        kinds, applied = self._request.edit_kinds, list[dict[str, Any]]()
        if CLEAR_TOOLS in kinds and self._call.cleared is not None:
            uses, saved = self._call.cleared
            applied.append({"type": CLEAR_TOOLS, "cleared_tool_uses": uses, "cleared_input_tokens": saved})
        if CLEAR_THINKING in kinds:
            applied.append({"type": CLEAR_THINKING, "cleared_thinking_turns": 0, "cleared_input_tokens": 0})
        return {"context_management": {"applied_edits": applied}} if kinds else {}

    def _message(self, content: list[Block], stop: str | None, usage: dict[str, int]) -> dict[str, Any]:
        return {
            "id": f"msg_{self._call.session_id}_{self._call.turn}",
            "type": "message",
            "role": "assistant",
            "model": self._request.model,
            "content": content,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": usage,
        }

    def _words(self, kind: str, text: str, begins: bool) -> bytes:
        return self._opened(kind, begins) + self._delta({"type": f"{kind}_delta", kind: text})

    def _opened(self, kind: str, begins: bool = False) -> bytes:
        if self._open == kind and not begins:
            return b""
        empty = {"type": kind, kind: "", **({"signature": ""} if kind == "thinking" else {})}
        return self._close() + self._start(kind, empty)

    def _call_piece(self, piece: CallPiece) -> bytes:
        index = piece.index
        if self._open == index:
            self._written[index].append(piece.input)
            frames = self._input(piece.input)
            return frames + self._go_on() if self._waiting else frames
        self._waiting.setdefault(index, []).append(piece)
        return self._go_on()

    def _go_on(self) -> bytes:
        """Begins the calls that wait, if the open one is whole."""
        frames = b""
        while self._waiting and (not isinstance(self._open, int) or is_whole("".join(self._written[self._open]))):
            frames += self._begin_call(self._waiting.pop(next(iter(self._waiting))))
        return frames

    def _begin_call(self, pieces: list[CallPiece]) -> bytes:
        first = pieces[0]
        if first.index in self._written:  # a piece that came after its call was closed
            return b""
        start: Block = {"type": "tool_use", "id": first.id, "name": first.name, "input": {}}
        self._written[first.index] = [piece.input for piece in pieces]
        frames = self._close() + self._start(first.index, start)
        return frames + b"".join(self._input(piece.input) for piece in pieces)

    def _input(self, written: str) -> bytes:
        return self._delta({"type": "input_json_delta", "partial_json": written}) if written else b""

    def _start(self, kind: str | int, block: Block) -> bytes:
        self._index += 1
        self._open = kind
        return _event("content_block_start", index=self._index, content_block=block)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        return _event("content_block_stop", index=self._index)


def usage_of(reply: Assistant) -> dict[str, int]:
    usage = reply.usage or {}
    return {name: count if isinstance(count := usage.get(name), int) else 0 for name in USAGE}


def _stop(reply: Assistant) -> str:
    return reply.stop if reply.stop in STOPS else "end_turn"


def _blocks(reply: Assistant) -> list[Block]:
    if isinstance(reply.content, str):
        return [{"type": "text", "text": reply.content}] if reply.content else []
    return [{"signature": "", **block} if block.get("type") == "thinking" else block for block in reply.content]


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), errors.encode({"type": kind, **fields}))

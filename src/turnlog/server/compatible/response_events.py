"""Writes an answer for /v1/responses, whole or as events that are numbered from 0 without gaps.

    created · in_progress · [output_item.added · … · output_item.done]* · completed | incomplete | failed

Which events come is a function of the pieces of the answer alone. So a stream can be resumed at any number, by writing
it again and leaving out what the client has. Several items are open at once only if a server sends the pieces of two
calls in turns.
"""

import sys
from typing import Any

from ...core.entries import Assistant, Block, tool_uses
from ...providers import CallPiece, Delta
from ...settings import ApiSettings
from ...turns.relay_call import RelayCall, pieces_of, written_input
from . import errors, response_items as items, response_objects as objects, response_tools
from .reading import WireRequest
from .response_items import ResponseItem
from .response_objects import ResponseFacts


class _OpenItem:
    """An item that was begun and is not done."""

    def __init__(self, kind: str, index: int, item: ResponseItem) -> None:
        self.kind = kind
        self.index = index
        self.item = item
        self.texts: list[list[str]] = []
        """The pieces of each part; a call has one part."""
        self.signature = ""


class ResponseWriter:
    """Writes the answer of a call for this wire. `seals`: its items can be sent back, even if the request did not ask
    for that. `after`: the number of the last event that the client has.
    """

    keepalive = b": still here\n\n"

    def __init__(
        self,
        call: RelayCall,
        facts: ResponseFacts,
        *,
        shows_thinking: bool = True,
        seals: bool = False,
        after: int = -1,
    ) -> None:
        self._call = call
        self._facts = facts
        self._shows_thinking = shows_thinking
        self._shows_compaction = bool(facts.echo.get("compaction"))
        self._seals = seals or bool(facts.echo.get("seals"))
        self._after = after
        self._number = 0
        self._output: list[ResponseItem] = []
        self._open: list[_OpenItem] = []
        self._calls: dict[int, _OpenItem] = {}
        self._answer_items = 0
        self._is_told = False
        self._called = response_tools.called(facts.tools)
        self._response: dict[str, Any] = {}

    def now(self) -> dict[str, Any]:
        """The response object as the call is now. Nothing else can be written after it."""
        self._after = sys.maxsize
        self.begin()
        if self._call.over:
            for piece in self._call.pieces:
                self.piece(piece)
        if self._call.reply is not None:
            self.end(self._call.reply, None)
        elif self._call.error is not None:
            self.failed(self._call.error, "")
        return self._response

    def pending(self) -> bytes:
        """For a client that does not wait."""
        return errors.encode(objects.made(self._facts, "in_progress", []))

    def whole(self, reply: Assistant, note: dict[str, Any] | None) -> bytes:
        return errors.encode(objects.of_reply(self._facts, reply, self.output_of(reply), note))

    def output_of(self, reply: Assistant) -> list[ResponseItem]:
        call = self._call
        content = reply.content if self._shows_thinking else without_thinking(reply)
        said = items.answer_items(content, call.session_id, call.turn, seals=self._seals, called=self._called)
        made = self._compaction()
        return [made, *said] if made else said

    def begin(self) -> bytes:
        begun = self._response = objects.made(self._facts, "in_progress", [])
        return self._event("response.created", response=begun) + self._event("response.in_progress", response=begun)

    def piece(self, piece: Delta) -> bytes:
        frames = self._compacted()
        if piece.thinking and self._shows_thinking:
            frames += self._thinking(piece.thinking, piece.begins)
        if piece.signature and self._shows_thinking:
            frames += self._signed(piece.signature)
        if piece.text:
            frames += self._text(piece.text, piece.begins)
        if piece.call is not None:
            frames += self._call_piece(piece.call)
        if piece.block is not None and piece.block.get("type") == "redacted_thinking" and self._shows_thinking:
            frames += self._redacted(piece.block)
        return frames

    def end(self, reply: Assistant, note: dict[str, Any] | None) -> bytes:
        frames = self._compacted()
        if not self._is_told:
            frames += b"".join(map(self.piece, pieces_of(reply)))
        for number, call in enumerate(tool_uses(reply)):
            if number not in self._calls:  # its pieces did not come
                frames += self._call_piece(CallPiece(number, call["id"], call["name"], written_input(call)))
        frames += self._close()
        made = self._response = objects.of_reply(self._facts, reply, self._output, note)
        return frames + self._event(f"response.{made['status']}", response=made)

    def failed(self, error: Exception, request_id: str) -> bytes:
        frames = self._close("incomplete")
        made = self._response = objects.of_error(self._facts, error, self._output, is_stopped=self._call.stopping)
        return frames + self._event("response.failed", response=made)

    def _compaction(self) -> ResponseItem | None:
        made, stream = self._call.compaction, self._call.stream
        if not self._shows_compaction or made is None or stream is None:
            return None
        return items.compaction_item(self._call.session_id, made.seq, stream.incarnation or "")

    def _compacted(self) -> bytes:
        """A compaction is told before everything else, as an item of its own."""
        if self._output or self._open or (item := self._compaction()) is None:
            return b""
        self._output.append(item)
        return self._event("response.output_item.added", output_index=0, item=item) + self._event(
            "response.output_item.done", output_index=0, item=item
        )

    def _begin(self, kind: str, item: ResponseItem) -> tuple[_OpenItem, bytes]:
        """`item`: without its id."""
        self._is_told = True
        index = len(self._output) + len(self._open)
        item_id = items.ids.item(kind, self._call.session_id, self._call.turn, self._answer_items)
        self._answer_items += 1
        made = _OpenItem(kind, index, {"id": item_id, **item})
        self._open.append(made)
        return made, self._event("response.output_item.added", output_index=index, item=made.item)

    def _only(self, kind: str) -> _OpenItem | None:
        """The open item, if it is the only one and of this kind."""
        return self._open[0] if len(self._open) == 1 and self._open[0].kind == kind else None

    def _text(self, text: str, begins: bool) -> bytes:
        frames = b""
        opened = self._only("msg")
        if opened is None:
            empty: ResponseItem = {"type": "message", "status": "in_progress", "role": "assistant", "content": []}
            frames = self._close()
            opened, added = self._begin("msg", empty)
            frames += added
        if not opened.texts or begins:
            frames += self._end_part(opened)
            opened.texts.append([])
            frames += self._within(opened, "response.content_part.added", part=items.text_part(""), content=True)
        opened.texts[-1].append(text)
        return frames + self._within(opened, "response.output_text.delta", delta=text, logprobs=[], content=True)

    def _end_part(self, opened: _OpenItem) -> bytes:
        if not opened.texts:
            return b""
        text = "".join(opened.texts[-1])
        done = self._within(opened, "response.output_text.done", text=text, logprobs=[], content=True)
        return done + self._within(opened, "response.content_part.done", part=items.text_part(text), content=True)

    def _reasoning(self, begins: bool) -> tuple[_OpenItem, bytes]:
        opened = self._only("rs")
        if opened is not None and not begins:
            return opened, b""
        frames = self._close()
        empty: ResponseItem = {"type": "reasoning", "summary": [], "encrypted_content": None}
        opened, added = self._begin("rs", empty)
        return opened, frames + added

    def _thinking(self, words: str, begins: bool) -> bytes:
        opened, frames = self._reasoning(begins)
        if not opened.texts:
            opened.texts.append([])
            part = {"type": "summary_text", "text": ""}
            frames += self._within(opened, "response.reasoning_summary_part.added", part=part, summary=True)
        opened.texts[0].append(words)
        return frames + self._within(opened, "response.reasoning_summary_text.delta", delta=words, summary=True)

    def _signed(self, signature: str) -> bytes:
        opened, frames = self._reasoning(False)
        opened.signature += signature
        return frames

    def _redacted(self, block: Block) -> bytes:
        opened, frames = self._reasoning(True)
        if self._seals:
            opened.item = {**opened.item, "encrypted_content": items.sealed(block)}
        return frames + self._close()

    def _call_piece(self, piece: CallPiece) -> bytes:
        opened, frames = self._calls.get(piece.index), b""
        if opened is None:
            frames = self._close(but_unfinished_calls=True)
            call = items.call_item("", piece.id, piece.name, "", "in_progress", self._called.get(piece.name))
            opened, added = self._begin("fc", {name: value for name, value in call.items() if name != "id"})
            opened.texts.append([])
            self._calls[piece.index] = opened
            frames += added
        if not piece.input or opened not in self._open:  # whatever comes after a whole input is of no use
            return frames
        opened.texts[0].append(piece.input)
        if "input" in opened.item:  # text, which is told when all of its JSON is there
            return frames
        return frames + self._within(opened, "response.function_call_arguments.delta", delta=piece.input)

    def _close(self, status: str = "completed", *, but_unfinished_calls: bool = False) -> bytes:
        """Ends the open items, in their order; those after one that stays open stay open too."""
        frames = b""
        while self._open:
            opened = self._open[0]
            if but_unfinished_calls and opened.kind == "fc" and not response_tools.is_whole("".join(opened.texts[0])):
                break
            del self._open[0]
            frames += self._done(opened, status)
        return frames

    def _done(self, opened: _OpenItem, status: str) -> bytes:
        frames = b""
        match opened.kind:
            case "msg":
                frames = self._end_part(opened)
                parts = [items.text_part("".join(pieces)) for pieces in opened.texts]
                opened.item = {**opened.item, "status": status, "content": parts}
            case "fc":
                frames = self._end_call(opened, "".join(opened.texts[0]), status)
            case _:
                frames = self._end_reasoning(opened)
        self._output.append(opened.item)
        return frames + self._event("response.output_item.done", output_index=opened.index, item=opened.item)

    def _end_call(self, opened: _OpenItem, written: str, status: str) -> bytes:
        if "input" in opened.item:
            text = response_tools.text_of(written)
            opened.item = {**opened.item, "status": status, "input": text}
            frames = self._within(opened, "response.custom_tool_call_input.delta", delta=text)
            return frames + self._within(opened, "response.custom_tool_call_input.done", input=text)
        written = written or "{}"
        opened.item = {**opened.item, "status": status, "arguments": written}
        done = "response.function_call_arguments.done"
        return self._within(opened, done, name=opened.item["name"], arguments=written)

    def _end_reasoning(self, opened: _OpenItem) -> bytes:
        frames = b""
        words = "".join("".join(pieces) for pieces in opened.texts)
        if opened.texts:
            part = {"type": "summary_text", "text": words}
            frames = self._within(opened, "response.reasoning_summary_text.done", text=words, summary=True)
            frames += self._within(opened, "response.reasoning_summary_part.done", part=part, summary=True)
            opened.item = {**opened.item, "summary": [part]}
        if self._seals and opened.signature:
            block: Block = {"type": "thinking", "thinking": words, "signature": opened.signature}
            opened.item = {**opened.item, "encrypted_content": items.sealed(block)}
        return frames

    def _within(
        self, opened: _OpenItem, kind: str, *, content: bool = False, summary: bool = False, **fields: Any
    ) -> bytes:
        place: dict[str, Any] = {"item_id": opened.item["id"], "output_index": opened.index}
        if content:
            place["content_index"] = len(opened.texts) - 1
        if summary:
            place["summary_index"] = 0
        return self._event(kind, **place, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        if number <= self._after:
            return b""
        data = errors.encode({"type": kind, "sequence_number": number, **fields})
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)


def writer_of(call: RelayCall, request: WireRequest, api: ApiSettings, created: int) -> ResponseWriter:
    """For a request that was just read."""
    facts = ResponseFacts(
        session=call.session_id,
        turn=call.turn,
        created_at=created,
        model=request.model,
        system=request.system,
        tools=request.tools,
        parameters=request.kept_parameters(),
        echo=request.echo,
    )
    return ResponseWriter(call, facts, shows_thinking=api.reasoning != "none" and not call.is_turn)


def without_thinking(reply: Assistant) -> list[Block] | str:
    if isinstance(reply.content, str):
        return reply.content
    return [block for block in reply.content if block.get("type") not in ("thinking", "redacted_thinking")]

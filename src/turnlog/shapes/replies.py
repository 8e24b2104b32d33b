"""What a user's own call to a model gave, as the answer to store: a text, a dict, an object of an SDK, or a stream.

SDK objects are read by their fields: those of the official SDKs and of LiteLLM give them as dicts. A stream may have
pieces of text, or the chunks or events of one of the three APIs.
"""

from collections.abc import Mapping
from typing import Any, cast

from ..core.arguments import shown
from ..core.entries import Assistant, Block, Usage
from ..core.strict_json import fields_in
from ..errors import ProviderBusy, ProviderRefused, UsageError
from ..providers import Delta
from ..providers.anthropic import MessageAnswer
from ..providers.openai import ChatAnswer
from .reading import entries_of

HINT = "Return a text, turnlog.Assistant(content=…), what the SDK gave, or its stream."


def fields_of(value: Any) -> dict[str, Any] | None:
    """The fields of a dict or of an SDK's object; None for anything else."""
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    dump = getattr(value, "to_dict", None) or getattr(value, "model_dump", None)
    found: Any = dump(mode="json") if callable(dump) else None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def reply_of(answer: Any) -> Assistant:
    """The answer of a call that was not streamed."""
    if isinstance(answer, str):
        return Assistant(content=answer, stop="end_turn")
    if isinstance(answer, Assistant):
        return answer
    fields = fields_of(answer)
    if fields is None:
        raise UsageError(f"the call returned {shown(answer)}", hint=HINT)
    model = fields.get("model")
    if "choices" in fields:
        whole = ChatAnswer()
        whole.take(fields)
        return whole.finish(model if isinstance(model, str) else "")
    if isinstance(fields.get("output"), list):
        return _response(fields)
    if fields.get("role") == "assistant":
        return _message(fields)
    raise UsageError(f"the call returned {shown(answer)}", hint=HINT)


def _message(fields: dict[str, Any]) -> Assistant:
    [entry] = entries_of([fields])
    assert isinstance(entry, Assistant)
    return entry


def _response(fields: dict[str, Any]) -> Assistant:
    """Of the Responses API: all its items are one answer."""
    status, model, usage = fields.get("status"), fields.get("model"), fields.get("usage")
    if status == "failed":
        raise ProviderRefused(str(fields_in(fields.get("error")).get("message") or "the response failed"))
    blocks: list[Block] = []
    others: list[Any] = []
    for entry in entries_of(fields["output"]):
        if isinstance(entry, Assistant):
            blocks += [{"type": "text", "text": entry.content}] if isinstance(entry.content, str) else entry.content
        else:
            others.append(entry.raw)
    called = any(block.get("type") == "tool_use" for block in blocks)
    return Assistant(
        content=blocks,
        model=model if isinstance(model, str) else None,
        usage=_usage(usage),
        stop="tool_use" if called else "max_tokens" if status == "incomplete" else "end_turn",
        raw={"output": fields["output"]} if others else None,
    )


def _usage(usage: Any) -> Usage | None:
    given = fields_in(usage)
    if not given:
        return None
    details = fields_in(given.get("input_tokens_details")).get("cached_tokens")
    cached = details if isinstance(details, int) else 0
    taken, made = given.get("input_tokens"), given.get("output_tokens")
    return {
        "input_tokens": max(0, taken - cached) if isinstance(taken, int) else 0,
        "cache_read_input_tokens": cached,
        "output_tokens": made if isinstance(made, int) else 0,
    }


class StreamedAnswer:
    """Builds an answer from the pieces of any API as they arrive."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._chat: ChatAnswer | None = None
        self._message: MessageAnswer | None = None
        self._whole: dict[str, Any] | None = None
        self._model = ""

    def take(self, piece: Any) -> list[Delta]:
        if isinstance(piece, str):
            self._text.append(piece)
            return [Delta(text=piece)] if piece else []
        fields = fields_of(piece)
        if fields is None:
            raise UsageError(f"the stream gave {shown(piece)}", hint=HINT)
        kind = str(fields.get("type") or "")
        if "choices" in fields:
            self._model = str(fields.get("model") or self._model)
            self._chat = self._chat or ChatAnswer()
            return self._chat.take(fields)
        if kind.startswith("response."):
            return self._take_response(kind, fields)
        self._message = self._message or MessageAnswer()
        if kind == "message_start":
            self._model = str(fields_in(fields.get("message")).get("model") or "")
        return self._message.take(fields)

    def _take_response(self, kind: str, fields: dict[str, Any]) -> list[Delta]:
        match kind:
            case "response.output_text.delta":
                return [Delta(text=str(fields.get("delta") or ""))]
            case "response.completed" | "response.incomplete" | "response.failed":
                self._whole = fields_in(fields.get("response"))
            case _:
                pass
        return []

    def finish(self) -> Assistant:
        """Raises ProviderBusy if the stream ended before the answer was complete."""
        if self._whole is not None:
            return reply_of(self._whole)
        if self._chat is not None:
            return self._chat.finish(self._model)
        if self._message is not None:
            return self._message.finish(self._model)
        if not self._text:
            raise ProviderBusy("the stream ended without an answer")
        return Assistant(content="".join(self._text), stop="end_turn")

"""Events of Google's ADK as entries, and back. This module knows events as JSON, and needs no package of Google's.

An event with content is one message: text, function calls and function responses are its blocks. An event without
content (changes of the state, a compaction of ADK's own) is a `foreign` entry. `raw` holds the event without the parts
of its content that the blocks give back equal, so that nothing is stored twice.
"""

import json
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from typing import Any, TypeAlias

from ..core import plain
from ..core.entries import Assistant, Block, Content, Entry, Foreign, ToolResult, User
from ..core.strict_json import fields_in
from .blocks import counts_in, input_of

EventJson: TypeAlias = dict[str, Any]
EventPart: TypeAlias = dict[str, Any]

OPAQUE = "google_adk"
"""The field of `raw` that holds an event, or a message's event without the parts of its content."""
RESULT = "result_in"
"""The field of `raw` that says where in the response of a function the text of the entry belongs."""
PROJECTED_MAX_BYTES = 8 * 1024 * 1024
"""A larger event is stored once, as an opaque one: a message would hold it in its own fields and in `raw`."""
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def entry_of(event: EventJson, size: int = 0) -> Entry:
    """`size`: the length of its JSON, if known."""
    content = fields_in(event.get("content"))
    given = content.get("parts") or ()
    if not given or size > PROJECTED_MAX_BYTES or event.get("partial"):
        return Foreign(raw={OPAQUE: event})
    parts = [fields_in(part) for part in given]
    text = parts[0].get("text") if len(parts) == len(parts[0]) == 1 else None
    if text and isinstance(text, str):  # as below, and most events are like this
        return _message(event, parts, [{"type": "text", "text": text}], _with_parts(event, []))
    match parts:
        case [{"function_response": {"id": str(call_id), **rest}}] if call_id and len(parts[0]) == 1:
            words, field = result_of(rest.get("response"))
            raw = {OPAQUE: event}
            if field is not None:
                left = {name: value for name, value in (("id", call_id), *rest.items()) if name != "response"}
                raw = {OPAQUE: _with_parts(event, [{"function_response": left}]), RESULT: field}
            return ToolResult(tool_use_id=call_id, content=words, is_error=is_failed(rest), raw=raw)
        case _:
            blocks = blocks_of(parts, str(event.get("id") or ""))
            kept = _raw(event, parts, _parts_of(blocks))
            if not blocks or (kept is event and _bytes_of(parts) > PROJECTED_MAX_BYTES):
                return Foreign(raw={OPAQUE: event})
            return _message(event, parts, blocks, kept)


def _message(event: EventJson, parts: list[EventPart], blocks: list[Block], kept: EventJson) -> User | Assistant:
    raw = {OPAQUE: kept}
    if event.get("author") == "user" or any("function_response" in part for part in parts):
        return User(content=blocks, raw=raw)
    return Assistant(content=blocks, model=_text(event.get("model_version")), usage=usage_of(event), raw=raw)


def _bytes_of(parts: list[EventPart]) -> int:
    return len(plain.as_json(parts).encode("utf-8", "surrogatepass"))


def _raw(event: EventJson, parts: list[EventPart], given_back: list[EventPart]) -> EventJson:
    """The event, without its parts if the entry gives them back."""
    return event if parts != given_back else _with_parts(event, [])


def _with_parts(event: EventJson, parts: list[EventPart]) -> EventJson:
    return {**event, "content": {**event["content"], "parts": parts}}


def event_of(entry: Entry) -> EventJson | None:
    """The event that the entry stands for; None if it is of another origin."""
    if not isinstance(entry, Foreign | User | Assistant | ToolResult):
        return None
    held = fields_in(entry.raw)
    event = fields_in(held.get(OPAQUE))
    if not event or isinstance(entry, Foreign):
        return event or None
    if isinstance(entry, ToolResult):
        return _with_result(event, held.get(RESULT), entry.content)
    return _whole(event, entry.content if isinstance(entry.content, list) else [])


def _whole(event: EventJson, blocks: list[Block]) -> EventJson:
    return event if event["content"].get("parts") else _with_parts(event, _parts_of(blocks))


def _with_result(event: EventJson, field: str | None, words: Content) -> EventJson:
    if field is None or not isinstance(words, str):
        return event
    response = {**event["content"]["parts"][0]["function_response"]}
    response["response"] = {field: words} if field else json.loads(words)
    return _with_parts(event, [{"function_response": response}])


def blocks_of(parts: list[EventPart], event_id: str) -> list[Block]:
    """The parts that a person or a model would call words, calls, results and images; thoughts are left out."""
    found = [_block(part, f"{event_id}-{number}") for number, part in enumerate(parts)]
    return [block for block in found if block is not None]


def _block(part: EventPart, name: str) -> Block | None:
    match part:
        case {"thought": True}:
            return None
        case {"text": str(text)}:
            return {"type": "text", "text": text} if text else None
        case {"function_call": dict()}:
            call = fields_in(part["function_call"])
            return {
                "type": "tool_use",
                "id": str(call.get("id") or name),
                "name": str(call.get("name") or "unnamed"),
                "input": input_of(call.get("args") or {}),
            }
        case {"function_response": dict()}:
            response = fields_in(part["function_response"])
            block: Block = {
                "type": "tool_result",
                "tool_use_id": str(response.get("id") or name),
                "content": result_of(response.get("response"))[0],
            }
            return {**block, "is_error": True} if is_failed(response) else block
        case {"inline_data": {"mime_type": str(kind), "data": str(data)}} if kind in _IMAGES:
            return _image(kind, data)
        case _:
            return {"type": "text", "text": f"[{next((name for name in part if name != 'thought_signature'), 'part')}]"}


def _image(kind: str, data: str) -> Block:
    try:
        standard = b64encode(urlsafe_b64decode(data)).decode()
    except (ValueError, Base64Error):
        return {"type": "text", "text": "[inline_data]"}
    if not standard:
        return {"type": "text", "text": "[inline_data]"}
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": standard}}


def result_of(given: Any) -> tuple[str, str | None]:
    """(what a function gave, as text; the field that it was in).

    The field is "" if the text is the whole response as JSON, and None if the response cannot be made of the text.
    """
    fields = fields_in(given)
    if len(fields) == 1:
        [(name, value)] = fields.items()
        if name in ("result", "output", "error") and isinstance(value, str):
            return value, name
    words = plain.as_json(fields)
    return words, "" if isinstance(given, dict) and json.loads(words) == given else None


def is_failed(response: dict[str, Any]) -> bool:
    return "error" in fields_in(response.get("response"))


def _parts_of(blocks: list[Block]) -> list[EventPart]:
    """The parts that these blocks were made of, if they are of the plainest form; otherwise something else."""
    return [_part(block) for block in blocks]


def _part(block: Block) -> EventPart:
    match block:
        case {"type": "text", "text": str(text)}:
            return {"text": text}
        case {"type": "tool_use", "id": str(call_id), "name": str(name), "input": dict()}:
            return {"function_call": {"id": call_id, "args": block["input"], "name": name}}
        case {"type": "image", "source": {"media_type": str(kind), "data": str(data)}}:
            return {"inline_data": {"data": urlsafe_b64encode(b64decode(data)).decode(), "mime_type": kind}}
        case _:
            return {}


def usage_of(event: EventJson) -> dict[str, Any] | None:
    return counts_in(event.get("usage_metadata"), "prompt_token_count", "candidates_token_count")


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None

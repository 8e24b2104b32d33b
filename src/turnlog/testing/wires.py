"""The rules of each model API, stated independently of the code that follows them.

There are two shapes: the messages of Anthropic's Messages API, and those of Chat Completions. The rules are those that
the APIs document or state in their refusals; if servers of one format differ, the strictest counts.
"""

import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

WireName: TypeAlias = Literal["anthropic", "openai"]
Fields: TypeAlias = Mapping[str, Any]

ANTHROPIC_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
OPENAI_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]+")
SERVER_ID = re.compile(r"srvtoolu_[a-zA-Z0-9_]+")
OPENAI_ID_MAX = 40
MARKS_MAX = 4
ANTHROPIC_PICTURES_MAX = 100
OPENAI_PICTURES_MAX = 500
PICTURE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
SIGNATURES = {"image/png": b"\x89PNG", "image/jpeg": b"\xff\xd8\xff", "image/gif": b"GIF8", "image/webp": b"RIFF"}
OTHER_PICTURES = (b"BM", b"II*\x00", b"MM\x00*", b"<svg", b"<?xml", b"%PDF", b"\x00\x00\x01\x00")

_BY_ROLE = {
    "user": {"text", "image", "document", "search_result", "tool_result"},
    "assistant": {"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use"},
}
_IN_RESULT = {"text", "image", "document", "search_result"}
_FIELDS = {
    "text": {"text", "citations"},
    "image": {"source"},
    "document": {"source", "title", "context", "citations"},
    "search_result": {"source", "title", "content", "citations"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
    "tool_use": {"id", "name", "input", "caller"},
    "tool_result": {"tool_use_id", "content", "is_error"},
    "server_tool_use": {"id", "name", "input", "caller"},
}


class InvalidMessages(AssertionError):
    """A provider would refuse these messages."""


def check(held: object, what: str) -> None:
    if not held:
        raise InvalidMessages(what)


def check_json(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (UnicodeEncodeError, TypeError, ValueError) as error:
        raise InvalidMessages(f"not sendable as JSON: {error}") from error


def check_anthropic(messages: Sequence[Fields], tools: Sequence[Fields] = ()) -> None:
    """The rules beyond order and pairing."""
    check(messages[-1]["role"] == "user", "the last message is not the user's")
    check(_count(messages, "cache_control") + _count(tools, "cache_control") <= MARKS_MAX, "more than 4 cache marks")
    names = [tool.get("name") for tool in tools]
    check(len(set(names)) == len(names), "two tools have one name")
    for name in names:
        check(isinstance(name, str) and ANTHROPIC_NAME.fullmatch(name), f"tool name {name!r}")
    pictures = 0
    for index, message in enumerate(messages):
        content = message["content"]
        blocks = cast("list[Fields]", [{"type": "text", "text": content}] if isinstance(content, str) else content)
        for number, block in enumerate(blocks):
            pictures += _check_block(block, f"message {index}, block {number}", _BY_ROLE[message["role"]])
        check(
            blocks[-1]["type"] not in ("thinking", "redacted_thinking"),
            f"message {index}: the final block in an assistant message cannot be thinking",
        )
        _check_server_tools(blocks, index)
    check(pictures <= ANTHROPIC_PICTURES_MAX, f"{pictures} pictures")


def _check_block(block: Fields, place: str, allowed: set[str]) -> int:
    """Checks a block; returns the number of pictures in it."""
    kind = str(block.get("type"))
    if kind.endswith("_tool_result") and "server_tool_use" in allowed:
        return 0  # checked with its call
    check(kind in allowed, f"{place}: a block of type {kind!r} may not stand here")
    extra = block.keys() - _FIELDS[kind] - {"type", "cache_control"}
    check(not extra, f"{place}: {sorted(extra)}: Extra inputs are not permitted")
    _CHECKS[kind](block, place)
    if kind == "tool_result":
        return _check_result(block, place)
    return int(kind == "image")


def _check_result(block: Fields, place: str) -> int:
    content = block.get("content")
    if isinstance(content, str):
        check(content.strip(), f"{place}: blank result")
        return 0
    check(isinstance(content, list) and bool(cast("list[Any]", content)), f"{place}: a result without content")
    inner = cast("list[Fields]", content)
    if block.get("is_error"):
        check(
            all(part.get("type") == "text" for part in inner), f"{place}: content must be text where is_error is true"
        )
    return sum(_check_block(part, place, _IN_RESULT) for part in inner)


def _check_text(block: Fields, place: str) -> None:
    check(isinstance(block.get("text"), str) and block["text"].strip(), f"{place}: blank text")
    citations = block.get("citations")
    check(citations is None or isinstance(citations, list), f"{place}: citations")


def _check_picture(block: Fields, place: str) -> None:
    match block.get("source"):
        case {"type": "base64", "media_type": str(form), "data": str(data), **rest} if not rest:
            check_picture(form, data, place, 5_000_000)
        case {"type": "url", "url": str(url), **rest} if not rest:
            check(re.fullmatch(r"https://\S+", url), f"{place}: only https addresses")
        case source:
            raise InvalidMessages(f"{place}: source {str(source)[:80]}")


def check_picture(form: str, data: str, place: str, limit: int) -> None:
    check(form in PICTURE_TYPES, f"{place}: media type {form!r}")
    raw = _decoded(data, place)
    check(0 < len(raw) <= limit, f"{place}: a picture of {len(raw)} bytes")
    for other, mark in SIGNATURES.items():
        check(not raw.startswith(mark) or other == form, f"{place}: said to be {form}, and appears to be {other}")
    check(not raw.startswith(OTHER_PICTURES), f"{place}: not a picture of type {form}")


def _decoded(data: str, place: str) -> bytes:
    try:
        return binascii.a2b_base64(data, strict_mode=True)
    except ValueError as error:
        raise InvalidMessages(f"{place}: invalid base64 data") from error


def _check_document(block: Fields, place: str) -> None:
    match block.get("source"):
        case {"type": "base64", "media_type": "application/pdf", "data": str(data)}:
            check(b"%PDF" in _decoded(data, place)[:1024], f"{place}: not a PDF")
        case {"type": "text", "media_type": "text/plain", "data": str(text)}:
            check(text.strip(), f"{place}: a blank document")
        case {"type": "url", "url": str(url)}:
            check(re.fullmatch(r"https://\S+", url), f"{place}: only https addresses")
        case {"type": "content", "content": str(text)}:
            check(text.strip(), f"{place}: a blank document")
        case {"type": "content", "content": [*parts]} if parts:
            for part in cast("list[Fields]", parts):
                _check_block(part, place, {"text", "image"})
        case source:
            raise InvalidMessages(f"{place}: source {str(source)[:80]}")
    for name in ("title", "context"):
        check(name not in block or (isinstance(block[name], str) and block[name]), f"{place}: {name}")


def _check_search_result(block: Fields, place: str) -> None:
    check(isinstance(block.get("source"), str) and isinstance(block.get("title"), str), f"{place}: source and title")
    content = block.get("content")
    check(isinstance(content, list) and bool(cast("list[Any]", content)), f"{place}: content")
    for part in cast("list[Fields]", content):
        _check_block(part, place, {"text"})


def _check_thinking(block: Fields, place: str) -> None:
    check("cache_control" not in block, f"{place}: thinking cannot be marked")
    if block["type"] == "thinking":
        check(isinstance(block.get("thinking"), str), f"{place}: thinking")
        check(re.fullmatch(r"[A-Za-z0-9+/=_-]+", str(block.get("signature") or "")), f"{place}: invalid signature")
    else:
        check(isinstance(block.get("data"), str) and block["data"], f"{place}: data")


def _check_call(block: Fields, place: str) -> None:
    call_id, name = block.get("id"), block.get("name")
    check(isinstance(call_id, str) and ANTHROPIC_ID.fullmatch(call_id), f"{place}: id {call_id!r}")
    check(isinstance(name, str) and ANTHROPIC_NAME.fullmatch(name), f"{place}: name {name!r}")
    check(isinstance(block.get("input"), dict), f"{place}: input is not an object")


def _check_answered(block: Fields, place: str) -> None:
    call_id = block.get("tool_use_id")
    check(isinstance(call_id, str) and ANTHROPIC_ID.fullmatch(call_id), f"{place}: id {call_id!r}")
    check(isinstance(block.get("is_error", False), bool), f"{place}: is_error")


def _check_server_call(block: Fields, place: str) -> None:
    check(SERVER_ID.fullmatch(str(block.get("id"))), f"{place}: id {block.get('id')!r}")
    check(isinstance(block.get("input"), dict), f"{place}: input is not an object")


def _check_server_tools(blocks: Sequence[Fields], index: int) -> None:
    made = [block["id"] for block in blocks if block["type"] == "server_tool_use"]
    came = [block.get("tool_use_id") for block in blocks if str(block["type"]).endswith("_tool_result")]
    check(sorted(made) == sorted(map(str, came)), f"message {index}: server tools {made} and results {came}")
    check(len(set(made)) == len(made), f"message {index}: server tool ids are used twice")


_CHECKS: dict[str, Callable[[Fields, str], None]] = {
    "text": _check_text,
    "image": _check_picture,
    "document": _check_document,
    "search_result": _check_search_result,
    "thinking": _check_thinking,
    "redacted_thinking": _check_thinking,
    "tool_use": _check_call,
    "tool_result": _check_answered,
    "server_tool_use": _check_server_call,
}


def _count(value: Any, name: str) -> int:
    if isinstance(value, Mapping):
        fields = cast("Fields", value)
        return (name in fields) + sum(_count(inner, name) for inner in fields.values())
    return sum(_count(inner, name) for inner in cast("list[Any]", value)) if isinstance(value, list | tuple) else 0


def check_openai(messages: Sequence[Fields], tools: Sequence[Fields] = ()) -> None:
    """All rules of Chat Completions, and those of stricter templates on compatible servers."""
    names = [tool.get("function", {}).get("name") for tool in tools]
    check(len(set(names)) == len(names), "two tools have one name")
    for name in names:
        check(isinstance(name, str) and OPENAI_NAME.fullmatch(name), f"tool name {name!r}")
    talk = messages[1:] if messages and messages[0].get("role") == "system" else messages
    check(talk, "there is no message")
    if len(talk) < len(messages):
        check(isinstance(messages[0]["content"], str) and messages[0]["content"].strip(), "a blank system message")
    seen: set[str] = set()
    owed: list[str] = []
    before = ""
    pictures = 0
    for index, message in enumerate(talk):
        role = message.get("role")
        check(role in ("user", "assistant", "tool"), f"message {index}: role {role!r}")
        if role == "tool":
            _check_tool_message(message, owed, index)
        else:
            check(not owed, f"message {index}: calls {owed} have no response")
            check(role != before and (before or role == "user"), f"message {index}: roles must alternate")
        if role == "user":
            pictures += _check_user_message(message, index)
        elif role == "assistant":
            owed = _check_assistant_message(message, seen, index)
        before = str(role)
    check(not owed, f"calls {owed} have no response")
    check(pictures <= OPENAI_PICTURES_MAX, f"{pictures} pictures")


def _check_tool_message(message: Fields, owed: list[str], index: int) -> None:
    check(set(message) == {"role", "tool_call_id", "content"}, f"message {index}: {sorted(message)}")
    call_id = message["tool_call_id"]
    check(call_id in owed, f"message {index}: no call {call_id!r} right before")
    owed.remove(call_id)
    check(isinstance(message["content"], str) and message["content"].strip(), f"message {index}: blank result")


def _check_user_message(message: Fields, index: int) -> int:
    check(set(message) == {"role", "content"}, f"message {index}: {sorted(message)}")
    content = message["content"]
    if isinstance(content, str):
        check(content.strip(), f"message {index}: blank")
        return 0
    check(isinstance(content, list) and bool(cast("list[Any]", content)), f"message {index}: no content")
    return sum(_check_part(part, f"message {index}") for part in cast("list[Fields]", content))


def _check_part(part: Fields, place: str) -> int:
    match part:
        case {"type": "text", "text": str(text), **rest} if not rest:
            check(text.strip(), f"{place}: blank text")
            return 0
        case {"type": "image_url", "image_url": {"url": str(url)}, **rest} if not rest:
            if found := re.fullmatch(r"data:([^;,]*);base64,(.*)", url, re.DOTALL):
                check_picture(found[1], found[2], place, 20_000_000)
            else:
                check(re.fullmatch(r"https?://\S+", url), f"{place}: address {url[:60]!r}")
            return 1
        case _:
            raise InvalidMessages(f"{place}: part {str(part)[:80]}")


def _check_assistant_message(message: Fields, seen: set[str], index: int) -> list[str]:
    check(message.keys() <= {"role", "content", "tool_calls"}, f"message {index}: {sorted(message)}")
    content = message.get("content")
    check(content is None or (isinstance(content, str) and content.strip()), f"message {index}: content {content!r}")
    calls = cast("list[Fields]", message.get("tool_calls", []))
    check(content or calls, f"message {index}: empty")
    check(calls or "tool_calls" not in message, f"message {index}: an empty list of calls")
    for call in calls:
        _check_function_call(call, seen, index)
    return [str(call["id"]) for call in calls]


def _check_function_call(call: Fields, seen: set[str], index: int) -> None:
    match call:
        case {"id": str(call_id), "type": "function", "function": {"name": str(name), "arguments": str(arguments)}}:
            check(0 < len(call_id) <= OPENAI_ID_MAX, f"message {index}: id {call_id!r}")
            check(call_id not in seen, f"message {index}: id {call_id!r} is used twice")
            check(OPENAI_NAME.fullmatch(name), f"message {index}: name {name!r}")
            check(isinstance(_parsed(arguments), dict), f"message {index}: arguments are not an object")
            seen.add(call_id)
        case _:
            raise InvalidMessages(f"message {index}: call {str(call)[:80]}")


def _parsed(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise InvalidMessages(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)

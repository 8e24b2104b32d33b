"""The messages inside v3 lines: pi's own blocks or, in ZyHive's files, unchanged blocks of Anthropic's API."""

from collections.abc import Mapping
from typing import Any, cast

from ..core.entries import Assistant, Block, Content, ToolResult, User
from .lines import Raw, Reading, content_of, unix_ms

_STOPS = {"stop": "end_turn", "length": "max_tokens", "toolUse": "tool_use", "error": "error", "aborted": "interrupted"}
_REASONS = {stop: reason for reason, stop in _STOPS.items()}
_COUNTS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cacheRead": "cache_read_input_tokens",
    "cacheWrite": "cache_creation_input_tokens",
}
_MAKERS = (
    ("claude", "anthropic", "anthropic-messages"),
    ("gpt", "openai", "openai-responses"),
    ("gemini", "google", "google-generative-ai"),
)
"""pi's names of model providers; pi finds a model by them when it resumes a session."""
_NO_OUTPUT = "(no output)"
_CALL = {"type": "type", "id": "id", "name": "name", "arguments": "input"}
_THINKING = {"type": "type", "thinking": "thinking", "thinkingSignature": "signature"}
_CALL_BACK = {ours: theirs for theirs, ours in _CALL.items()}
_THINKING_BACK = {ours: theirs for theirs, ours in _THINKING.items()}


def read_blocks(content: Content) -> Content:
    return content if isinstance(content, str) else [_read_block(block) for block in content]


def _read_block(block: Block) -> Block:
    match block:
        case {"type": "toolCall"}:
            return _renamed({**block, **_absent(block)}, _CALL, "tool_use")
        case {"type": "thinking", "redacted": True, "thinkingSignature": str(hidden)}:
            return {"type": "redacted_thinking", "data": hidden}
        case {"type": "thinking", "thinkingSignature": _}:
            return _renamed({**block, "thinking": block.get("thinking", "")}, _THINKING, "thinking")
        case {"type": "image", "data": str(data), "mimeType": str(kind)}:
            return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
        case {"type": "text", "textSignature": _}:
            return {name: value for name, value in block.items() if name != "textSignature"}
        case _:
            return block


def _renamed(block: Block, names: Mapping[str, str], kind: str) -> Block:
    """The block with renamed fields, in their order; fields without a new name are dropped."""
    return {names[field]: value for field, value in block.items() if field in names} | {"type": kind}


def _absent(block: Block) -> Block:
    needed: Block = {"id": None, "name": None, "arguments": {}}
    return {field: value for field, value in needed.items() if field not in block}


def read_assistant(message: Raw, at: Raw) -> Assistant:
    model, reason = message.get("model"), message.get("stopReason")
    return Assistant(
        **at,
        content=read_blocks(content_of(message.get("content"))),
        model=model if isinstance(model, str) and model else None,
        usage=_read_usage(message.get("usage")),
        stop=_STOPS.get(reason, reason) if isinstance(reason, str) else None,
    )


def _read_usage(usage: Any) -> dict[str, Any] | None:
    if not isinstance(usage, dict):
        return None
    given = cast("Raw", usage)
    counts = {ours: given[theirs] for theirs, ours in _COUNTS.items() if isinstance(given.get(theirs), int)}
    return {name: count for name, count in counts.items() if count} or None


def read_result(content: Content, at: Raw) -> ToolResult | None:
    """Reads the result of a call, which ZyHive writes as a user message with one block."""
    match content:
        case [{"type": "tool_result", "tool_use_id": str(call_id)} as block]:
            inner, failed = content_of(block.get("content")), block.get("is_error") is True
            return ToolResult(**at, tool_use_id=call_id, content=inner, is_error=failed)
        case _:
            return None


def bash_text(message: Raw) -> str:
    """A command that the user ran by hand, as a user's text."""
    output = message.get("output")
    shown = f"```\n{output}\n```" if output else _NO_OUTPUT
    code = message.get("exitCode")
    ending = "\n\n(cancelled)" if message.get("cancelled") else f"\n\nExit code {code}" if code else ""
    return f"Ran `{message.get('command')}`\n{shown}{ending}"


def write_message(entry: User | Assistant | ToolResult, content: Content, end: Reading) -> Raw:
    return _zyhive(entry, content) if end.style == "zyhive" else _pi(entry, content, end)


def _zyhive(entry: User | Assistant | ToolResult, content: Content) -> Raw:
    if not isinstance(entry, ToolResult):
        return {"role": "user" if isinstance(entry, User) else "assistant", "content": content}
    block: Raw = {"type": "tool_result", "tool_use_id": entry.tool_use_id, "content": content}
    if entry.is_error:
        block["is_error"] = True
    return {"role": "user", "content": [block]}


def _pi(entry: User | Assistant | ToolResult, content: Content, end: Reading) -> Raw:
    ms = unix_ms(entry.ts)
    match entry:
        case User():
            return {"role": "user", "content": _write_blocks(content), "timestamp": ms}
        case Assistant():
            return {"role": "assistant", "content": _as_list(content), **_answer(entry), "timestamp": ms}
        case _:
            return {
                "role": "toolResult",
                "toolCallId": entry.tool_use_id,
                "toolName": end.known.calls.get(entry.tool_use_id, "unknown"),
                "content": _as_list(content),
                "isError": entry.is_error,
                "timestamp": ms,
            }


def _answer(entry: Assistant) -> Raw:
    name = entry.model or ""
    provider, api = next(((p, a) for start, p, a in _MAKERS if name.startswith(start)), ("turnlog", "turnlog"))
    given = entry.usage or {}
    counts = {theirs: given.get(ours) for theirs, ours in _COUNTS.items()}
    usage: Raw = {theirs: count if isinstance(count, int) else 0 for theirs, count in counts.items()}
    usage["totalTokens"] = sum(usage.values())
    usage["cost"] = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}
    reason = _REASONS.get(entry.stop or "", "stop")
    return {"api": api, "provider": provider, "model": name, "usage": usage, "stopReason": reason}


def _as_list(content: Content) -> Content:
    return [{"type": "text", "text": content}] if isinstance(content, str) else _write_blocks(content)


def _write_blocks(content: Content) -> Content:
    return content if isinstance(content, str) else [_write_block(block) for block in content]


def _write_block(block: Block) -> Block:
    match block:
        case {"type": "tool_use"}:
            return _renamed(block, _CALL_BACK, "toolCall")
        case {"type": "thinking", "signature": _}:
            return _renamed(block, _THINKING_BACK, "thinking")
        case {"type": "redacted_thinking", "data": hidden}:
            return {"type": "thinking", "thinking": "", "thinkingSignature": hidden, "redacted": True}
        case {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}:
            return {"type": "image", "data": data, "mimeType": kind}
        case _:
            return block

"""The messages inside v3 lines: pi's own blocks, or, in ZyHive's files, those of Anthropic's API as they are."""

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
"""How pi calls the makers of models; it looks a model up by these when a session is resumed."""
_NO_OUTPUT = "(no output)"


def read_blocks(content: Content) -> Content:
    return content if isinstance(content, str) else [_read_block(block) for block in content]


def _read_block(block: Block) -> Block:
    match block:
        case {"type": "toolCall"}:
            return {
                "type": "tool_use",
                "id": block.get("id"),
                "name": block.get("name"),
                "input": block.get("arguments", {}),
            }
        case {"type": "thinking", "redacted": True, "thinkingSignature": str(hidden)}:
            return {"type": "redacted_thinking", "data": hidden}
        case {"type": "thinking", "thinkingSignature": signature}:
            return {"type": "thinking", "thinking": block.get("thinking", ""), "signature": signature}
        case {"type": "image", "data": str(data), "mimeType": str(kind)}:
            return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
        case {"type": "text", "textSignature": _}:
            return {name: value for name, value in block.items() if name != "textSignature"}
        case _:
            return block


def read_assistant(message: Raw, seq: int, ts: str, after: int | None) -> Assistant:
    model, reason = message.get("model"), message.get("stopReason")
    return Assistant(
        seq=seq,
        ts=ts,
        after=after,
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


def read_result(content: Content, seq: int, ts: str, after: int | None) -> ToolResult | None:
    """ZyHive writes the result of a call as a user message of one block."""
    match content:
        case [{"type": "tool_result", "tool_use_id": str(call_id)} as block]:
            return ToolResult(
                seq=seq,
                ts=ts,
                after=after,
                tool_use_id=call_id,
                content=content_of(block.get("content")),
                is_error=block.get("is_error") is True,
            )
        case _:
            return None


def bash_text(message: Raw) -> str:
    """A command that the user ran by hand, as words of the user."""
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
    return {"api": api, "provider": provider, "model": name, "usage": usage, "stopReason": _reason(entry)}


def _reason(entry: Assistant) -> str:
    return _REASONS.get(entry.stop or "", "stop")


def _as_list(content: Content) -> Content:
    return [{"type": "text", "text": content}] if isinstance(content, str) else _write_blocks(content)


def _write_blocks(content: Content) -> Content:
    return content if isinstance(content, str) else [_write_block(block) for block in content]


def _write_block(block: Block) -> Block:
    match block:
        case {"type": "tool_use"}:
            return {
                "type": "toolCall",
                "id": block.get("id"),
                "name": block.get("name"),
                "arguments": block.get("input", {}),
            }
        case {"type": "thinking", "signature": signature}:
            return {"type": "thinking", "thinking": block.get("thinking", ""), "thinkingSignature": signature}
        case {"type": "redacted_thinking", "data": hidden}:
            return {"type": "thinking", "thinking": "", "thinkingSignature": hidden, "redacted": True}
        case {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}:
            return {"type": "image", "data": data, "mimeType": kind}
        case _:
            return block

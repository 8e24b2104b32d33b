"""Messages of LangChain as entries: what a list of threads, search and the page show of a LangGraph thread."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol, cast

from ..core import plain
from ..core.entries import Assistant, Block, Content, Entry, ToolResult, Transcript, User
from ..core.guard import Limits
from .blocks import block_of, content_of, counts_in, input_of
from .fitting import NO_CALL, NO_RESULT

_IN_CALLS = ("tool_use", "tool_call", "server_tool_call", "function_call", "tool_call_chunk")
"""Blocks that say again what `tool_calls` says."""
_UNSEEN = ("thinking", "redacted_thinking", "reasoning")


class LangChainMessage(Protocol):
    """What a message of LangChain offers; the package itself is not needed."""

    @property
    def type(self) -> str: ...
    @property
    def content(self) -> Any: ...
    @property
    def id(self) -> str | None: ...


def is_message(value: Any) -> bool:
    return isinstance(getattr(value, "type", None), str) and hasattr(value, "content") and hasattr(value, "id")


def messages_in(value: Any, but: Collection[str] = ()) -> dict[str, LangChainMessage]:
    """The messages with ids that a channel holds, by id; without those whose ids are given."""
    items = cast("list[Any]", value) if isinstance(value, list) else []
    with suppress(TypeError):  # an id may be anything
        items = [item for item in items if getattr(item, "id", None) not in but]
    found: dict[str, LangChainMessage] = {}
    for item in items:
        name = getattr(item, "id", None)
        if isinstance(name, str) and name and name not in but and is_message(item):
            found[name] = item
    return found


def entry_of(message: LangChainMessage) -> Entry | None:
    """None for a message that is no part of the conversation, such as a system message."""
    match message.type:
        case "human":
            return User(content=content_of(message.content))
        case "ai":
            usage = counts_in(getattr(message, "usage_metadata", None))
            return Assistant(content=_answer(message), model=_model(message), usage=usage)
        case "tool" | "function":
            call_id = str(getattr(message, "tool_call_id", "") or getattr(message, "name", "") or "")
            failed = getattr(message, "status", "") == "error"
            return ToolResult(tool_use_id=call_id, content=content_of(message.content), is_error=failed)
        case _:
            return None


def _answer(message: LangChainMessage) -> list[Block]:
    content = message.content
    parts: Iterable[Any] = [content] if isinstance(content, str) else cast("list[Any]", content or [])
    blocks = [block_of(part) for part in parts if not _is_left_out(part)]
    calls = cast("list[dict[str, Any]]", getattr(message, "tool_calls", None) or [])
    blocks += [
        {"type": "tool_use", "id": call["id"], "name": call["name"], "input": input_of(call.get("args"))}
        for call in calls
        if call.get("id") and call.get("name")
    ]
    return [block for block in blocks if block.get("text") != ""]


def _is_left_out(part: Any) -> bool:
    return isinstance(part, dict) and cast("dict[str, Any]", part).get("type") in (*_IN_CALLS, *_UNSEEN)


def _model(message: LangChainMessage) -> str | None:
    name = cast("dict[str, Any]", getattr(message, "response_metadata", None) or {}).get("model_name")
    return name if isinstance(name, str) else None


class LangChainDialect:
    """How messages of LangChain are made to fit (`fitting`)."""

    def split(self, items: Sequence[Any]) -> list[Any]:
        return list(items)

    def join(self, items: list[Any]) -> list[Any]:
        return items

    def entry(self, item: Any) -> Entry:
        return entry_of(item) or User(content=content_of(item.content))

    def is_instruction(self, item: Any) -> bool:
        return item.type in ("system", "developer")

    def words(self, item: Any) -> Any:
        return item.content

    def cut(self, item: Any, content: Content) -> Any:
        return item.model_copy(update={"content": plain.as_text(content)})

    def summary(self, text: str) -> Any:
        from langchain_core.messages import HumanMessage

        return HumanMessage(content=text)

    def finish(self, items: list[Any], transcript: Transcript, limits: Limits) -> list[Any]:
        """Models refuse a result without its call, and a call without its result."""
        called: set[str] = set()
        answered = {item.tool_call_id for item in items if item.type == "tool"}
        found: list[Any] = []
        for item in items:
            if item.type == "tool" and item.tool_call_id not in called:
                words = plain.fence(plain.as_text(content_of(item.content)))
                found.append(self.summary(f"{NO_CALL}\n{words}"))
                continue
            found.append(item)
            calls: list[dict[str, Any]] = getattr(item, "tool_calls", None) or []
            for call in calls:
                called.add(call["id"])
                if call["id"] not in answered:
                    found.append(_no_result(call["id"]))
        return found


def _no_result(call_id: str) -> Any:
    from langchain_core.messages import ToolMessage

    return ToolMessage(content=NO_RESULT, tool_call_id=call_id, status="error")

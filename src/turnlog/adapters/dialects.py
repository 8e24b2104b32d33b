"""The dialects that `fitting.fit` knows by name."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from ..core import history, plain, wires
from ..core.entries import Assistant, Block, Content, Entry, ToolResult, Transcript, User
from ..core.guard import Limits
from ..core.prompt import Prompt, assemble
from ..core.strict_json import fields_in
from ..providers import chat_messages
from . import responses
from .blocks import block_of, content_of, input_of
from .fitting import NO_CALL, NO_RESULT, Dialect

OUTPUT_OF: Mapping[str, str] = {
    "program": "program_output",
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "tool_search_call": "tool_search_output",
}
"""The kinds of calls among the items of the Responses API, and of what answers each."""
_CALL_OF = {output: call for call, output in OUTPUT_OF.items()}
_WITH_TEXT = ("function_call", "custom_tool_call")
"""Calls whose output may be any text."""
_INSTRUCTIONS = ("system", "developer")
_STATE = ("compaction", "compaction_summary", "item_reference")
"""Items that stand for something that only the provider knows."""


class PlainDialect:
    """Items that are dicts, each of them one message or one result."""

    def split(self, items: Sequence[Any]) -> list[Any]:
        return list(items)

    def join(self, items: list[Any]) -> list[Any]:
        return items

    def summary(self, text: str) -> Any:
        return {"role": "user", "content": text}


class ResponsesDialect(PlainDialect):
    """Items of OpenAI's Responses API."""

    def entry(self, item: Any) -> Entry:
        fields = fields_in(item)
        found = responses.entry_of(item)
        if isinstance(found, User | Assistant | ToolResult):
            return found
        kind, call_id = fields.get("type"), fields.get("call_id")
        if isinstance(call_id, str) and call_id and kind in OUTPUT_OF:
            return Assistant(content=[{"type": "tool_use", "id": call_id, "name": str(kind), "input": fields}])
        if isinstance(call_id, str) and call_id and kind in _CALL_OF:
            output = fields.get("output")
            return ToolResult(tool_use_id=call_id, content=output if isinstance(output, str) else plain.as_json(output))
        if kind == "reasoning":
            return Assistant(content=plain.as_json(fields.get("summary") or ""))
        return Assistant(content=plain.as_json(item))

    def is_instruction(self, item: Any) -> bool:
        fields = fields_in(item)
        return fields.get("role") in _INSTRUCTIONS or fields.get("type") in _STATE

    def words(self, item: Any) -> Any:
        return item.get("content") or item

    def cut(self, item: Any, content: Content) -> Any:
        return {**item, "output": plain.as_text(content)} if isinstance(item.get("output"), str | list) else item

    def finish(self, items: list[Any], transcript: Transcript, limits: Limits) -> list[Any]:
        """Every call has an output after it, and every output a call before it."""
        answered = {(_CALL_OF.get(_kind(item)), _id(item)): place for place, item in enumerate(items)}
        called: set[tuple[str, str]] = set()
        found: list[Any] = []
        for place, item in enumerate(items):
            kind, call_id = _kind(item), _id(item)
            if kind in OUTPUT_OF and call_id:
                called.add((kind, call_id))
                found += self._call(found, item, answered.get((kind, call_id), -1) > place)
            elif kind in _CALL_OF and call_id and (_CALL_OF[kind], call_id) not in called:
                found.append(self.summary(f"{NO_CALL}\n{_quoted(item)}"))
            elif kind in OUTPUT_OF and kind != "tool_search_call":
                found.append(self.summary(f"[Call of a tool without a result]\n{_quoted(item)}"))
            else:
                found.append(item)
        return found

    def _call(self, before: list[Any], item: Any, is_answered: bool) -> list[Any]:
        kind = _kind(item)
        if is_answered:
            return [item]
        if kind in _WITH_TEXT:
            return [item, {"type": OUTPUT_OF[kind], "call_id": item["call_id"], "output": NO_RESULT}]
        while before and _kind(before[-1]) == "reasoning":
            before.pop()  # the API refuses reasoning without what followed it
        return [self.summary(f"[Call of a tool without a result]\n{_quoted(item)}")]


def _kind(item: Any) -> str:
    kind = fields_in(item).get("type")
    return kind if isinstance(kind, str) else ""


def _id(item: Any) -> str:
    call_id = fields_in(item).get("call_id")
    return call_id if isinstance(call_id, str) else ""


def _quoted(item: Any) -> str:
    return plain.fence(plain.as_json(item))


class AnthropicDialect(PlainDialect):
    """Messages of Anthropic's API. They are given back as a request would send them: neighbours of one role joined."""

    def entry(self, item: Any) -> Entry:
        content = content_of(item.get("content"))
        return Assistant(content=content) if item.get("role") == "assistant" else User(content=content)

    def is_instruction(self, item: Any) -> bool:
        return False

    def words(self, item: Any) -> Any:
        return item.get("content")

    def cut(self, item: Any, content: Content) -> Any:
        return item

    def finish(self, items: list[Any], transcript: Transcript, limits: Limits) -> list[Any]:
        return wires.fit(_prompt(transcript, limits), "anthropic").prompt.messages


class ChatDialect(AnthropicDialect):
    """Messages of OpenAI's Chat Completions."""

    def entry(self, item: Any) -> Entry:
        if item.get("role") == "tool":
            return ToolResult(tool_use_id=str(item.get("tool_call_id") or ""), content=content_of(item.get("content")))
        if item.get("role") != "assistant":
            return super().entry(item)
        content: Any = item.get("content") or ()
        parts: list[Any] = [content] if isinstance(content, str) else list(content)
        calls = [_call_block(call) for call in cast("list[Any]", item.get("tool_calls") or [])]
        return Assistant(content=[*(block_of(part) for part in parts), *calls])

    def is_instruction(self, item: Any) -> bool:
        return item.get("role") in _INSTRUCTIONS

    def finish(self, items: list[Any], transcript: Transcript, limits: Limits) -> list[Any]:
        instructions = [item for item in items if self.is_instruction(item)]
        return [*instructions, *chat_messages.messages_of(wires.fit(_prompt(transcript, limits), "openai").prompt)]


def _call_block(call: Any) -> Block:
    function: Any = call.get("function") or {}
    return {
        "type": "tool_use",
        "id": str(call.get("id") or ""),
        "name": str(function.get("name") or ""),
        "input": input_of(function.get("arguments")),
    }


def _prompt(transcript: Transcript, limits: Limits) -> Prompt:
    return assemble(history.build(transcript, inject=limits.inject), tools=(), max_output=None)


def _langchain() -> Dialect[Any]:
    from .langchain_messages import LangChainDialect

    return LangChainDialect()


def _gemini() -> Dialect[Any]:
    from .gemini_contents import GeminiDialect

    return GeminiDialect()


def _pydantic_ai() -> Dialect[Any]:
    from .pydantic_messages import PydanticDialect

    return PydanticDialect()


DIALECTS: Mapping[str, Callable[[], Dialect[Any]]] = {
    "responses": ResponsesDialect,
    "openai": ChatDialect,
    "anthropic": AnthropicDialect,
    "langchain": _langchain,
    "gemini": _gemini,
    "pydantic_ai": _pydantic_ai,
}

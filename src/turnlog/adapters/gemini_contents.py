"""Contents of Google's GenAI API, as ADK sends them: how they are made to fit (`fitting`).

ADK removes the ids of its own function calls before it sends them, so a response belongs to its call by id if both have
one, and otherwise by name and order. Responses of parallel calls are in one content, where each can be shortened.
"""

from collections.abc import Iterator, Sequence
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from ..core import plain
from ..core.entries import Assistant, Content, Entry, ToolResult, Transcript, User
from ..core.guard import Limits
from . import adk_events
from .fitting import NO_CALL, NO_RESULT
from .framework import framework

with framework("adk"):
    from google.genai import types


class GeminiItem(Struct, frozen=True):
    """A content, or one response of it."""

    content: types.Content
    origin: int
    """The place of the content among those that were given; -1: it is new."""
    calls: tuple[str, ...] = ()
    """An id for each of its calls, in order."""
    result: str | None = None
    """The id of the call that it answers. "" if there is no such call."""


class GeminiDialect:
    def split(self, items: Sequence[Any]) -> list[Any]:
        open_calls: list[tuple[str, str]] = []
        found: list[Any] = []
        for origin, item in enumerate(items):
            if isinstance(item, GeminiItem):
                found.append(item)
            else:
                found += _split(item, origin, open_calls)
        return found

    def join(self, items: list[Any]) -> list[Any]:
        found: list[types.Content] = []
        last: GeminiItem | None = None
        for item in cast("list[GeminiItem]", items):
            is_result = item.result is not None
            if last and (item.origin == last.origin >= 0 or (is_result and last.result is not None)):
                joined = [*(found[-1].parts or ()), *(item.content.parts or ())]
                found[-1] = found[-1].model_copy(update={"parts": joined})
            else:
                found.append(item.content)
            last = item
        return found

    def entry(self, item: Any) -> Entry:
        given = cast("GeminiItem", item)
        dumped: dict[str, Any] = given.content.model_dump(mode="json", exclude_none=True)
        parts: list[dict[str, Any]] = dumped.get("parts") or []
        if given.result is not None:
            response = parts[0]["function_response"]
            words, _ = adk_events.result_of(response.get("response"))
            return ToolResult(
                tool_use_id=given.result or "none", content=words, is_error=adk_events.is_failed(response)
            )
        names = iter(given.calls)
        for part in parts:
            if "function_call" in part:
                part["function_call"]["id"] = next(names)
        blocks = adk_events.blocks_of(parts, f"content-{given.origin}")
        return Assistant(content=blocks) if given.content.role == "model" else User(content=blocks)

    def is_instruction(self, item: Any) -> bool:
        return False

    def words(self, item: Any) -> Any:
        return ""

    def cut(self, item: Any, content: Content) -> Any:
        given = cast("GeminiItem", item)
        part = (given.content.parts or [])[0]
        assert part.function_response is not None
        response = part.function_response.model_copy(update={"response": {"result": plain.as_text(content)}})
        changed = part.model_copy(update={"function_response": response})
        return replace(given, content=given.content.model_copy(update={"parts": [changed]}))

    def summary(self, text: str) -> Any:
        return GeminiItem(types.Content(role="user", parts=[types.Part(text=text)]), -1)

    def finish(self, items: list[Any], transcript: Transcript, limits: Limits) -> list[Any]:
        """The API refuses a response without its call, and a call whose response does not follow at once."""
        waiting: list[tuple[str, str]] = []
        found: list[Any] = []
        for item in cast("list[GeminiItem]", items):
            if item.result is not None:
                part = (item.content.parts or [])[0]
                match = next((call for call in waiting if call[0] == item.result), None)
                if match is None:
                    words = plain.fence(plain.as_json(part.function_response and part.function_response.response))
                    text = f"{NO_CALL}\n{words}"
                    found += [*_unanswered(waiting), self.summary(text)]
                    waiting = []
                    continue
                waiting.remove(match)
            else:
                found += _unanswered(waiting)
                waiting = list(zip(item.calls, _names(item.content), strict=True))
            found.append(item)
        return [*found, *_unanswered(waiting)]


def _split(content: types.Content, origin: int, open_calls: list[tuple[str, str]]) -> list[GeminiItem]:
    names = list(_names(content))
    ids = [
        (part.function_call.id or f"call-{origin}-{place}")
        for place, part in enumerate(content.parts or ())
        if part.function_call
    ]
    if names:
        open_calls[:] = list(zip(ids, names, strict=True))
    if not any(part.function_response for part in content.parts or ()):
        return [GeminiItem(content, origin, tuple(ids))]
    found: list[GeminiItem] = []
    others = [part for part in content.parts or () if not part.function_response]
    for part in content.parts or ():
        if part.function_response:
            one = content.model_copy(update={"parts": [part]})
            found.append(GeminiItem(one, origin, result=_answered(part.function_response, open_calls)))
    if others:
        found.append(GeminiItem(content.model_copy(update={"parts": others}), origin, tuple(ids)))
    return found


def _answered(response: types.FunctionResponse, open_calls: list[tuple[str, str]]) -> str:
    by_id = [call for call in open_calls if response.id and call[0] == response.id]
    by_name = [call for call in open_calls if not response.id and call[1] == response.name]
    for call in (by_id or by_name)[:1]:
        open_calls.remove(call)
        return call[0]
    return response.id or ""


def _names(content: types.Content) -> Iterator[str]:
    for part in content.parts or ():
        if part.function_call:
            yield part.function_call.name or ""


def _unanswered(calls: Sequence[tuple[str, str]]) -> list[GeminiItem]:
    found: list[GeminiItem] = []
    for call_id, name in calls:
        given = None if call_id.startswith("call-") else call_id
        response = types.FunctionResponse(id=given, name=name, response={"error": NO_RESULT})
        content = types.Content(role="user", parts=[types.Part(function_response=response)])
        found.append(GeminiItem(content, -1, result=call_id))
    return found

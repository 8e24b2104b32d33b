"""The response object: every field that the SDK needs, from a request that was just read or from its entry in the log.

The log keeps what the words do not tell: `ECHO` in the call's own entry. Instructions are the beginning of the system
text, whose length it holds, so they are not stored twice.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from ...core.entries import Assistant
from ...errors import ContextOverflow
from . import errors, response_ids as ids
from .response_items import ResponseItem

ECHO = "response"
"""The field of a call's own entry that holds what only this wire knows of the request."""
INCOMPLETE = {
    "max_tokens": "max_output_tokens",
    "model_context_window_exceeded": "max_output_tokens",
    "refusal": "content_filter",
}
CHOICES = ("auto", "none", "required")


class ResponseFacts(Struct, frozen=True, kw_only=True):
    """What a response object says besides its output."""

    session: str
    turn: int
    created_at: int
    model: str
    system: str
    tools: Sequence[Mapping[str, Any]]
    parameters: Mapping[str, Any]
    """As the log keeps them."""
    echo: Mapping[str, Any]


def made(
    facts: ResponseFacts,
    status: str,
    output: Sequence[ResponseItem],
    *,
    usage: dict[str, Any] | None = None,
    error: dict[str, str] | None = None,
    incomplete: str | None = None,
    note: dict[str, Any] | None = None,
) -> dict[str, Any]:
    given, echo = facts.parameters, facts.echo
    told = {"turnlog": note} if note else {}
    return {
        "id": ids.response(facts.session, facts.turn),
        "object": "response",
        "created_at": facts.created_at,
        "status": status,
        "background": bool(echo.get("background")),
        "error": error,
        "incomplete_details": {"reason": incomplete} if incomplete else None,
        "instructions": _instructions(facts),
        "max_output_tokens": given.get("max_output"),
        "max_tool_calls": None,
        "metadata": dict(echo.get("metadata") or {}),
        "model": facts.model,
        "output": list(output),
        "parallel_tool_calls": given.get("parallel") is not False,
        "previous_response_id": echo.get("previous"),
        "conversation": {"id": echo["conversation"]} if echo.get("conversation") else None,
        "reasoning": {"effort": given.get("effort"), "summary": echo.get("summary")},
        "store": echo.get("store") is not False,
        "temperature": given.get("temperature"),
        "text": {"format": _format(given.get("format"))},
        "tool_choice": _choice(given),
        "tools": [_tool(tool) for tool in facts.tools],
        "top_p": given.get("top_p"),
        "truncation": echo.get("truncation") or "disabled",
        "usage": usage,
        **told,
    }


def of_reply(
    facts: ResponseFacts, reply: Assistant, output: Sequence[ResponseItem], note: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Of an answer that came to its end."""
    incomplete = INCOMPLETE.get(reply.stop or "")
    status = "incomplete" if incomplete else "completed"
    return made(facts, status, output, usage=usage_of(reply), incomplete=incomplete, note=note)


def of_error(
    facts: ResponseFacts, error: Exception, output: Sequence[ResponseItem], *, is_stopped: bool = False
) -> dict[str, Any]:
    status = "cancelled" if is_stopped else "failed"
    return made(facts, status, output, error={"code": code_of(error), "message": errors.message_of(error, "openai")})


def code_of(error: Exception) -> str:
    """A code that clients of this wire know."""
    if isinstance(error, ContextOverflow):
        return "context_length_exceeded"
    match errors.told(error).status:
        case 429:
            return "rate_limit_exceeded"
        case 400:
            return "invalid_prompt"
        case _:
            return "server_error"


def usage_of(reply: Assistant) -> dict[str, Any]:
    usage = reply.usage or {}
    cached, written = usage.get("cache_read_input_tokens", 0), usage.get("cache_creation_input_tokens", 0)
    taken, given = usage.get("input_tokens", 0) + cached + written, usage.get("output_tokens", 0)
    return {
        "input_tokens": taken,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
        "output_tokens": given,
        "output_tokens_details": {"reasoning_tokens": usage.get("reasoning_tokens", 0)},
        "total_tokens": taken + given,
    }


def _instructions(facts: ResponseFacts) -> str | None:
    length = facts.echo.get("instructions")
    return facts.system[:length] if isinstance(length, int) and length else None


def _format(given: Mapping[str, Any] | None) -> dict[str, Any]:
    if not given:
        return {"type": "text"}
    return {"name": "answer", **given} if "schema" in given else dict(given)


def _choice(given: Mapping[str, Any]) -> Any:
    chosen = given.get("tool_choice")
    if chosen == "named":
        return {"type": "function", "name": given.get("tool")}
    return chosen if chosen in CHOICES else "auto"


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    words = {"description": tool["description"]} if tool.get("description") else {}
    named = {"type": "function", "name": tool["name"], **words}
    return {**named, "parameters": tool.get("input_schema") or {}, "strict": False}

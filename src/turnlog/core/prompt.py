"""What one call sends, in the order that lets providers cache it: system, tools, pins and summary, tail, new input.

Nothing volatile goes in front of the tail, so that the next request begins with the bytes of this one.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from .entries import Transcript
from .history import ApiMessage, History, build

MAX_BREAKPOINTS = 4
"""Anthropic's limit on cache_control marks: system and tools, summary, the turn before, the newest message."""


class Tool(Struct, frozen=True, kw_only=True):
    """A tool as the model sees it."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] = {}


class Prompt(Struct, frozen=True, kw_only=True):
    system: str
    messages: list[ApiMessage]
    tools: tuple[Tool, ...] = ()
    breakpoints: tuple[tuple[int, int], ...] = ()
    """(message, block) after which a provider may cache; -1 as message stands for the system prompt and tools."""
    max_output: int | None = None
    may_call: bool = True
    """False: the tools are named, because earlier messages call them and caches know them, but none may be called."""


INVALID_INPUT = "__invalid_json__"
"""The one field of a tool call's input when what the model wrote is not a JSON object: its text as it came."""


def assemble(
    history: History,
    *,
    tools: Sequence[Tool] = (),
    max_output: int | None = None,
    may_call: bool = True,
) -> Prompt:
    return Prompt(
        system=history.system,
        messages=history.messages,
        tools=tuple(tools),
        breakpoints=_breakpoints(history, bool(history.system or tools)),
        max_output=max_output,
        may_call=may_call,
    )


def of_transcript(
    transcript: Transcript, *, system: str = "", inject: str = "user", tools: Sequence[Tool] = ()
) -> Prompt:
    return assemble(build(transcript, system=system, inject=inject), tools=tools)


def _breakpoints(history: History, has_head: bool) -> tuple[tuple[int, int], ...]:
    messages = history.messages
    marks: list[tuple[int, int]] = [(-1, 0)] if has_head else []
    if history.lead:
        marks.append((0, history.lead - 1))
    users = [index for index, message in enumerate(messages) if message["role"] == "user"]
    for index in users[-2:]:
        last = len(messages[index]["content"]) - 1 if isinstance(messages[index]["content"], list) else 0
        if (index, last) not in marks:
            marks.append((index, last))
    return tuple(marks[:MAX_BREAKPOINTS])


def as_dict(prompt: Prompt) -> dict[str, Any]:
    """The shape of `turnlog prompt --json` and of the request log; tools are those that may be called."""
    offered = prompt.tools if prompt.may_call else ()
    tools = [{"name": t.name, "description": t.description, "input_schema": t.input_schema} for t in offered]
    return {"system": prompt.system, "messages": prompt.messages, "tools": tools}

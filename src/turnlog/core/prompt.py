"""What one call sends, in the order that lets providers cache it: system, tools, pins and summary, tail, new input.

Nothing that changes often comes before the tail, so the next request begins with the bytes of this one.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct, to_builtins

from .history import ApiMessage, History
from .parameters import NONE, Parameters

MAX_BREAKPOINTS = 4
"""Anthropic's limit on cache_control marks: system and tools, summary, the turn before, the newest message."""
HEAD, SYSTEM_LEAD = (-1, 0), (-1, 1)
"""The marks after tools and constant system text, and after pins and summary, if these are in the system prompt."""


class ToolDefinition(Struct, frozen=True, kw_only=True):
    """A tool as the model sees it."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] = {}

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> "ToolDefinition":
        """A tool as a log keeps it, where it may have more fields than the model sees."""
        return cls(
            name=kept["name"], description=kept.get("description", ""), input_schema=kept.get("input_schema", {})
        )


class Prompt(Struct, frozen=True, kw_only=True):
    system: str
    messages: list[ApiMessage]
    tools: tuple[ToolDefinition, ...] = ()
    breakpoints: tuple[tuple[int, int], ...] = ()
    """(message, block) after which a provider may cache; -1 as message stands for the system prompt and tools."""
    constant: int | None = None
    """The characters of `system` before pins and summary; None: it holds none."""
    max_output: int | None = None
    may_call: bool = True
    """False: the tools are listed, because earlier messages call them and caches contain them, but none may
    be called.
    """
    parameters: Parameters = NONE


INVALID_INPUT = "__invalid_json__"
"""The only field of a tool call's input if the model's text is not a JSON object: that text."""


def assemble(
    history: History,
    *,
    tools: Sequence[ToolDefinition] = (),
    max_output: int | None = None,
    may_call: bool = True,
    parameters: Parameters = NONE,
) -> Prompt:
    return Prompt(
        system=history.system,
        messages=history.messages,
        tools=tuple(tools),
        breakpoints=_breakpoints(history, has_head=bool(tools or history.system[: history.constant])),
        constant=history.constant,
        max_output=max_output,
        may_call=may_call,
        parameters=parameters,
    )


def _breakpoints(history: History, *, has_head: bool) -> tuple[tuple[int, int], ...]:
    messages = history.messages
    marks: list[tuple[int, int]] = [HEAD] if has_head else []
    if history.constant is not None:
        marks.append(SYSTEM_LEAD)
    if history.lead:
        marks.append((0, history.lead - 1))
    users = (index for index in reversed(range(len(messages))) if messages[index]["role"] == "user")
    for index in reversed(list(islice(users, 2))):
        last = len(messages[index]["content"]) - 1 if isinstance(messages[index]["content"], list) else 0
        if (index, last) not in marks:
            marks.append((index, last))
    return tuple(marks[:MAX_BREAKPOINTS])


def system_parts(prompt: Prompt) -> tuple[str, str]:
    """The constant system text, and pins and summary; a compaction changes only the second."""
    if prompt.constant is None:
        return prompt.system, ""
    return prompt.system[: prompt.constant], prompt.system[prompt.constant :].lstrip("\n")


def as_dict(prompt: Prompt) -> dict[str, Any]:
    """The shape of `turnlog prompt --json` and of the request log; `tools` are those that may be called."""
    offered = prompt.tools if prompt.may_call else ()
    tools = [{"name": t.name, "description": t.description, "input_schema": t.input_schema} for t in offered]
    told = {"system": prompt.system, "messages": prompt.messages, "tools": tools}
    return {**told, "parameters": to_builtins(prompt.parameters)} if prompt.parameters != NONE else told

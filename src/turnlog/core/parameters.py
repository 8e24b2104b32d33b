"""How an answer is to be made: one vocabulary for all model APIs, and what happens to a parameter that an API lacks.

A provider says which parameters it takes (`Provider.takes`). If a parameter that it does not take only shapes how words
are chosen, the parameter is left out, and its name is told. If it changes what an answer is, as a JSON schema does, the
request is refused.
"""

from collections.abc import Collection
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..errors import UnsupportedParameter

ToolChoice: TypeAlias = Literal["auto", "required", "none", "named"]


class Parameters(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """None, or empty: not given, and the model's own default holds."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop: tuple[str, ...] = ()
    """Texts at which the answer ends; they are not part of it."""
    tool_choice: ToolChoice | None = None
    tool: str = ""
    """The tool that must be called, if `tool_choice` is "named"."""
    parallel: bool | None = None
    """False: at most one call in an answer."""
    format: dict[str, Any] | None = None
    """{"type": "json_object"}, or {"type": "json_schema", "schema": …} with or without name, description and strict."""
    effort: str | None = None
    """none, minimal, low, medium, high, xhigh or max."""
    thinking: dict[str, Any] | None = None
    """As in Anthropic's API: {"type": "enabled", "budget_tokens": …}, {"type": "adaptive"} or {"type": "disabled"}."""
    user: str | None = None
    """What the application calls its end user."""
    cache_key: str | None = None
    """OpenAI's `prompt_cache_key`."""
    betas: tuple[str, ...] = ()
    """Names for Anthropic's header `anthropic-beta`; no other API knows them."""
    server_tools: tuple[dict[str, Any], ...] = ()
    """Tools that Anthropic's API runs itself, in its own form."""


NONE = Parameters()
JSON_OBJECT = "json_object"
"""The name in `Provider.takes` for a format without a schema; with a schema it is `format`."""
ALL = frozenset({*Parameters.__struct_fields__, JSON_OBJECT})
UNTOLD = frozenset({"betas", "user", "cache_key"})
"""Leaving these out changes no answer, so nobody is told."""
TOGETHER = frozenset({"tool"})
"""Belongs to another parameter and is never left out alone."""


def given(parameters: Parameters) -> frozenset[str]:
    """The names of the parameters that have a value."""
    names = {name for name in Parameters.__struct_fields__ if getattr(parameters, name) not in (None, (), "")}
    if parameters.format is not None and parameters.format.get("type") == JSON_OBJECT:
        names = names - {"format"} | {JSON_OBJECT}
    return frozenset(names)


def fitting(parameters: Parameters, takes: Collection[str]) -> tuple[Parameters, tuple[str, ...]]:
    """The parameters that can be sent, and the names of those that are left out.

    Raises UnsupportedParameter for a required call or a format that the model cannot do.
    """
    lacking = sorted(given(parameters) - frozenset(takes) - TOGETHER)
    for name in lacking:
        if name in ("format", JSON_OBJECT) or (name == "tool_choice" and forces_call(parameters)):
            raise UnsupportedParameter(
                f"this model cannot be made to follow {name}",
                hint=f"Leave out {name}, or use a model that supports it.",
                name=name,
            )
    if "server_tools" in lacking and parameters.tool in {str(tool.get("name")) for tool in parameters.server_tools}:
        raise UnsupportedParameter(
            f"this model has no tool {parameters.tool}", hint="Leave out tool_choice.", name="tool_choice"
        )
    empty = {name: getattr(NONE, name) for name in lacking if name != "tool_choice"}
    told = tuple(name for name in empty if name not in UNTOLD)
    return (replace(parameters, **empty) if empty else parameters), told


def forces_call(parameters: Parameters) -> bool:
    return parameters.tool_choice in ("required", "named")


BUDGETS = (("low", 4_096), ("medium", 16_384))
"""Tokens of thinking up to which an effort is called that; above: high."""


def effort_of(parameters: Parameters) -> str | None:
    """The effort; where only a budget of thinking is given, the word nearest to it."""
    if parameters.effort is not None or parameters.thinking is None:
        return parameters.effort
    match parameters.thinking:
        case {"type": "disabled"}:
            return "none"
        case {"type": "enabled", "budget_tokens": int(budget)}:
            return next((word for word, most in BUDGETS if budget <= most), "high")
        case _:
            return None

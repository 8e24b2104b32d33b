"""Decides whether a call runs, waits for a person's approval, or is denied without asking.

Declared effects and the setting `tools.approval` decide: under `writes`, reading needs no approval; writing and running
do. A tool's own `approval` decides before the setting. A Python function that declares neither runs, because its
developer gave it to the agent. The lists come last: a call on the deny list never runs, one on the allow
list needs no approval.
"""

from collections.abc import Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct, field

from ..core import call_patterns
from .base import Tool

ApprovalMode: TypeAlias = Literal["writes", "all", "none"]
EXPIRES_S = 24 * 3600.0
"""How long a call waits for a person before it counts as denied."""
DENIED_BY_LIST = "a deny list forbids this call"


class ApprovalPolicy(Struct, frozen=True, kw_only=True):
    """The settings of one agent."""

    mode: ApprovalMode = "writes"
    allow: tuple[str, ...] = ()
    added: list[str] = field(default_factory=list[str])
    """Allowed since the start. All agents of a process share this list."""
    deny: tuple[str, ...] = ()
    expires_s: float = EXPIRES_S


class Judgement(Struct, frozen=True):
    verdict: Literal["run", "ask", "deny"]
    why: str = ""


RUN = Judgement("run")


def judge(tool: Tool, given: Mapping[str, Any], policy: ApprovalPolicy, allowed: Sequence[str] = ()) -> Judgement:
    """`allowed`: patterns that were allowed for this session only."""
    name = tool.spec.name
    if call_patterns.any_matches(policy.deny, name, given, allowing=False):
        return Judgement("deny", DENIED_BY_LIST)
    why = _reason(tool, given, policy.mode)
    if why is None or call_patterns.any_matches((*policy.allow, *policy.added, *allowed), name, given, allowing=True):
        return RUN
    return Judgement("ask", why)


def _reason(tool: Tool, given: Mapping[str, Any], mode: ApprovalMode) -> str | None:
    """Why a person is asked; None: nobody needs to be."""
    if tool.approval is not None:
        return "this tool asks for approval" if _wants(tool.approval, given) else None
    if mode == "all":
        return "every call waits for approval"
    if mode == "none" or tool.effects is None:
        return None
    if "runs" in tool.effects:
        return "it runs something"
    return "it changes something" if "writes" in tool.effects else None


def _wants(approval: bool | Callable[[dict[str, Any]], Any], given: Mapping[str, Any]) -> bool:
    """A predicate that raises, or that gives something other than a truth value, counts as "ask"."""
    if isinstance(approval, bool):
        return approval
    try:
        value = approval(dict(given))
        if isawaitable(value):
            cast("Any", value).close()
            return True
        return bool(value)
    except Exception:  # noqa: BLE001 - the developer's function may raise anything
        return True

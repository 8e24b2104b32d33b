"""What one entry adds to the row of its session: tokens, and a step of the role."""

from . import heard, tokens
from .entries import MESSAGES, Assistant, Entry, Failed, Received, ToolResult, User, text_of, tool_uses
from .tokens import context_tokens
from .turns import Role, after

_ROLES: tuple[Role, ...] = ("", "user", "call", "tool", "assistant", "failed")


_RESULT = ToolResult(tool_use_id="", content="")


ANSWERS = len(_ROLES)
"""The step of a result: it counts only if a result is expected, so it depends on the role before."""


def step_of(entry: Entry) -> int:
    """The effect of an entry on the role, as a number: there may be millions of them."""
    if not isinstance(entry, (*MESSAGES, Failed)):
        return 0
    first, second = after("", entry), after("call", entry)
    if first == second:
        return _ROLES.index(first)
    return ANSWERS if second == "tool" else 0


def role_after(role: Role, step: int) -> Role:
    if step == ANSWERS:
        return after(role, _RESULT)
    return _ROLES[step] or role


def added_tokens(entry: Entry) -> int:
    """An estimate of the tokens that an entry adds."""
    if isinstance(entry, Assistant):
        return tokens.quick(text_of(entry.content)) + 20 * len(tool_uses(entry))
    if (isinstance(entry, User) and entry.from_) or (isinstance(entry, Received) and entry.mode == heard.HEARD):
        return 0  # counted when they were received, or when they join a turn
    return tokens.quick(text_of(entry.content)) if isinstance(entry, User | ToolResult | Received) else 0


def tokens_after(size: int, entry: User | Assistant | ToolResult | Received) -> int:
    """The reported usage, if there is one; otherwise the old size plus a quick estimate."""
    reported = context_tokens(entry.usage) if isinstance(entry, Assistant) else 0
    return reported or size + added_tokens(entry)

"""What one entry adds to the row of its session: tokens, and a step of the role. Both in one number: its weight."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from . import heard, tokens
from .entries import MESSAGES, Assistant, Entry, Failed, Received, ToolResult, User, text_of, tool_uses
from .marks import Interval, Mark, Route, on_path
from .tokens import context_tokens
from .turns import Role, after

Weights: TypeAlias = Mapping[int, int]
"""The weights of entries, by their seqs. Those of no weight may be missing."""
_ROLES: tuple[Role, ...] = ("", "user", "call", "tool", "assistant", "failed")
_WITH_STEP = (*MESSAGES, Failed)


_RESULT = ToolResult(tool_use_id="", content="")


ANSWERS = len(_ROLES)
"""The step of a result: it counts only if a result is expected, so it depends on the role before."""


def step_of(entry: Entry) -> int:
    """The effect of an entry on the role, as a number: there may be millions of them."""
    if not isinstance(entry, _WITH_STEP):
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


def weight_of(entry: Entry) -> int:
    """The tokens that an entry adds to the size, times 8, plus its step; 0 for an entry that adds nothing."""
    return added_tokens(entry) * 8 + step_of(entry)


def step_in(weight: int) -> int:
    return weight & 7


def size_on(path: Sequence[Interval], weights: Weights, marks: Sequence[Mark]) -> int:
    """The tokens of these entries, with what compactions among them saved. `marks`: of the log."""
    said = sum(weights.get(seq, 0) >> 3 for first, last in path for seq in range(first, last + 1))
    folds = [mark for mark in marks if mark.saved and on_path(mark.seq, path)]
    return said + sum(mark.saved if mark.kind == "undo" else -mark.saved for mark in folds)


def role_at(route: Route, weights: Weights) -> Role:
    """The role at the end of this route. Results without a call there count as expected, unless the log begins with
    them.
    """
    role: Role = ""
    for first, last in reversed([*route.entering, *route.before]):
        for seq in range(first, last + 1):
            if not (weight := weights.get(seq)):
                continue  # no message
            step = step_in(weight)
            before: Role = "call" if step == ANSWERS and not role and not route.from_start else role
            role = role_after(before, step)
    return role

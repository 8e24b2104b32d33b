"""Which tool results are cleared, rule by rule."""

import pytest

from turnlog.core import clearing
from turnlog.core.clearing import CLEARED_CHARS, ClearRule
from turnlog.core.entries import Assistant, Opened, Shortened, ToolResult, User

LONG = "x" * 500


def log_of(*names, short=(), more=()):
    """A call of each tool with a long result; results are the entries 4, 6, …"""
    entries = [Opened(seq=1, id="s", key="k", agent="main", channel="api"), User(seq=2, content="look")]
    for n, name in enumerate(names):
        call = {"type": "tool_use", "id": f"c{n}", "name": name, "input": {}}
        entries.append(Assistant(seq=len(entries) + 1, content=[call]))
        words = "short" if n in short else LONG
        entries.append(ToolResult(seq=len(entries) + 1, tool_use_id=f"c{n}", content=words))
    return [*entries, *more]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (ClearRule(over_tokens=100, keep=2), [4, 6]),
        (ClearRule(over_tokens=100, keep=0), [4, 6, 8, 10]),
        (ClearRule(over_tokens=100, keep=9), []),
        (ClearRule(over_tokens=1000), []),
        (ClearRule(over_tokens=None, over_uses=3, keep=3), [4]),
        (ClearRule(over_tokens=None, over_uses=4), []),
        (ClearRule(over_tokens=100, keep=1, excluded=("b",)), [4, 8]),
    ],
)
def test_old_results_are_cleared_when_the_rule_applies(rule, expected):
    assert clearing.targets(log_of("a", "b", "a", "a"), rule, 500) == expected


def test_short_results_and_those_that_are_cleared_already_stay_as_they_are():
    rule = ClearRule(over_tokens=100, keep=0)
    assert clearing.targets(log_of("a", "a", short=(0,)), rule, 500) == [6]
    cleared = Shortened(seq=7, targets=(4,), limit=CLEARED_CHARS)
    assert clearing.targets(log_of("a", "a", more=(cleared,)), rule, 500) == [6]

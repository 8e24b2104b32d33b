"""The size of the context turn by turn, as numbers and as the geometry of a small chart. Pure.

Sizes are those that the provider reported; if it reported none, they are estimated from the text.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ...core import tokens
from ...core.entries import Assistant, Compaction, Entry, Received, ToolResult, User, text_of
from ...core.tokens import context_tokens
from ...core.turns import Walk

TURNS_DRAWN = 120
"""More bars would be too thin to tell apart."""
WIDTH, HEIGHT = 720.0, 200.0
LEFT, RIGHT, TOP, BOTTOM = 48.0, 8.0, 16.0, 24.0
"""Room for labels, in the units of the chart."""
GAP = 0.25
"""The share of a bar's place that is left empty."""


class PlotStep(Struct, frozen=True):
    """A turn, or a compaction between two turns."""

    kind: Literal["turn", "fold"]
    seq: int
    n: int
    """The number of the turn; for a compaction, of the turn in which or after which it happened."""
    tokens: int
    before: int = 0


class Bar(Struct, frozen=True):
    step: PlotStep
    x: float
    y: float
    width: float
    height: float


class Plot(Struct, frozen=True):
    bars: list[Bar]
    folds: list[Bar]
    """x: the position of the step; y to y + height: from the size before to the size after."""
    ticks: list[tuple[float, int]]
    window_y: float | None
    left_out: int
    """Turns before the first one in the chart."""


def steps(entries: Sequence[Entry]) -> list[PlotStep]:
    """`entries` must start with the log's first entry, or the numbers of turns are too small."""
    found: list[PlotStep] = []
    size, turn, at = 0, 0, -1
    walk = Walk()
    for entry in entries:
        if walk.take(entry):
            turn, at = turn + 1, len(found)
            found.append(PlotStep("turn", entry.seq, turn, size))
        match entry:
            case User() | Received() | ToolResult():
                size += tokens.quick(text_of(entry.content))
            case Assistant():
                size = context_tokens(entry.usage) or size + tokens.quick(text_of(entry.content))
            case Compaction():
                found.append(PlotStep("fold", entry.seq, turn, entry.tokens_after, entry.tokens_before or size))
                size = entry.tokens_after
                continue  # it changes the start of the next turn, not the size of this one
            case _:
                continue
        if at >= 0:  # the size of a turn is that of its last reply
            found[at] = replace(found[at], tokens=size)
    return found


def draw(found: Sequence[PlotStep], window: int) -> Plot:
    turns = [step for step in found if step.kind == "turn"]
    shown = turns[-TURNS_DRAWN:]
    first = shown[0].n if shown else 1
    folds = [step for step in found if step.kind == "fold" and step.n >= first]
    top = max([1, *(step.tokens for step in shown), *(step.before for step in folds)])
    show_window = window <= top * 3
    top = _round_up(max(top, window if show_window else 0))
    place = (WIDTH - LEFT - RIGHT) / max(8, len(shown))

    def y_of(size: int) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - size / top), 1)

    def bar(step: PlotStep) -> Bar:
        x = LEFT + place * (step.n - first) + place * GAP / 2
        y = y_of(step.tokens)
        return Bar(step, round(x, 1), y, round(place * (1 - GAP), 1), round(max(1.0, HEIGHT - BOTTOM - y), 1))

    def fold(step: PlotStep) -> Bar:
        y = y_of(step.before)
        return Bar(step, round(LEFT + place * (step.n - first + 1), 1), y, 0, round(max(2.0, y_of(step.tokens) - y), 1))

    return Plot(
        bars=[bar(step) for step in shown],
        folds=[fold(step) for step in folds],
        ticks=[(y_of(size), size) for size in (0, top // 2, top)],
        window_y=y_of(window) if show_window else None,
        left_out=len(turns) - len(shown),
    )


def _round_up(size: int) -> int:
    """Rounded up to a number that suits the label of an axis."""
    unit = 10 ** (len(str(size)) - 1)
    return next(unit * n // 2 for n in range(2, 22) if unit * n // 2 >= size and (unit * n) % 2 == 0)

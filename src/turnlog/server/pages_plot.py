"""How full the context was, turn by turn, as numbers and as the geometry of a small drawing. Pure.

What a provider reported counts; where it said nothing, the size is estimated from the words.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from ..core import tokens
from ..core.entries import Assistant, Compaction, Entry, Received, ToolResult, User, context_tokens, text_of

TURNS_DRAWN = 120
"""More bars than that are thinner than what a finger or an eye can tell apart."""
WIDTH, HEIGHT = 720.0, 200.0
LEFT, RIGHT, TOP, BOTTOM = 48.0, 8.0, 16.0, 24.0
"""Room for labels, in the drawing's own units."""
GAP = 0.25
"""Of a bar's place, what is left empty."""


class Step(Struct, frozen=True):
    """A turn, or a compaction between two turns."""

    kind: Literal["turn", "fold"]
    seq: int
    n: int
    """The number of the turn; of a compaction, the turn it came in or after."""
    tokens: int
    before: int = 0


class Bar(Struct, frozen=True):
    step: Step
    x: float
    y: float
    width: float
    height: float


class Plot(Struct, frozen=True):
    bars: list[Bar]
    folds: list[Bar]
    """x: where the step is; y to y + height: from before to after."""
    ticks: list[tuple[float, int]]
    window_y: float | None
    left_out: int
    """Turns before the first that is drawn."""


def steps(entries: Sequence[Entry]) -> list[Step]:
    """From the log's first entry on, or the numbers of turns are too small."""
    found: list[Step] = []
    size, turn, before = 0, 0, None
    for entry in entries:
        match entry:
            case User():
                if not isinstance(before, ToolResult):
                    turn += 1
                    found.append(Step("turn", entry.seq, turn, size))
                size += tokens.quick(text_of(entry.content))
            case Received() | ToolResult():
                size += tokens.quick(text_of(entry.content))
            case Assistant():
                size = context_tokens(entry.usage) or size + tokens.quick(text_of(entry.content))
            case Compaction():
                found.append(Step("fold", entry.seq, turn, entry.tokens_after, entry.tokens_before or size))
                size = entry.tokens_after
                continue  # it changes what the next turn begins with, not how full this one was
            case _:
                continue
        before = before if isinstance(entry, Received) else entry
        _raise_turn(found, size)
    return found


def _raise_turn(found: list[Step], size: int) -> None:
    """The newest turn is as large as what was said last in it."""
    for index in range(len(found) - 1, -1, -1):
        step = found[index]
        if step.kind == "turn":
            found[index] = Step("turn", step.seq, step.n, size)
            return


def draw(found: Sequence[Step], window: int) -> Plot:
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

    def bar(step: Step) -> Bar:
        x = LEFT + place * (step.n - first) + place * GAP / 2
        y = y_of(step.tokens)
        return Bar(step, round(x, 1), y, round(place * (1 - GAP), 1), round(max(1.0, HEIGHT - BOTTOM - y), 1))

    def fold(step: Step) -> Bar:
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
    """To a number that a person would label an axis with."""
    unit = 10 ** (len(str(size)) - 1)
    return next(unit * n // 2 for n in range(2, 22) if unit * n // 2 >= size and (unit * n) % 2 == 0)

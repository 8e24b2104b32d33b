"""The page Usage: turns, tokens, cost, cache share and errors by day, by agent and by model. It reads what was counted
(`daily_usage`), never a log, so it costs the same for a store of any size. It shows no word of any session.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from litestar import Response, get, post
from litestar.params import Parameter
from msgspec import Struct

from ...core import usage
from ...core.usage import Cost, ModelUse, cost_of
from ..daily_usage import UsageCell
from ..service import AnyRequest, acting, principal_of, service_of
from .view import lead_to, show

DAYS = (7, 30, 90)
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 480.0, 120.0, 44.0, 8.0, 18.0
"""Of one chart, in its own units."""

Days = Literal[7, 30, 90]
Name = Annotated[str, Parameter(max_length=200)]


class UsageSum(Struct, frozen=True):
    """One line of a table: a day, an agent or a model."""

    name: str
    turns: int
    errors: int
    use: ModelUse
    cost: Cost | None

    @property
    def cached(self) -> float | None:
        """The share of the input that was read from the cache."""
        given = self.use.input + self.use.cache_read + self.use.cache_write
        return self.use.cache_read / given if given else None


class DayBar(Struct, frozen=True):
    name: str
    value: float
    x: float
    y: float
    width: float
    height: float


class DayPlot(Struct, frozen=True):
    """A chart with one bar a day."""

    kind: Literal["turns", "tokens", "cost", "errors"]
    bars: list[DayBar]
    top: float
    total: float


@get("/usage")
async def usage_page(request: AnyRequest, days: Days = 30, agent: Name = "", model: Name = "") -> Response[str]:
    who, service = acting(request, "read", agent=agent or None).principal, service_of(request)
    last = datetime.now(UTC).date()
    shown = [last - timedelta(days=n) for n in range(days - 1, -1, -1)]
    counted = await service.usage.days(shown[0])
    seen = {day: [c for c in one.cells if who.agents is None or c.agent in who.agents] for day, one in counted.items()}
    chosen = {day: [cell for cell in cells if _matches(cell, agent, model)] for day, cells in seen.items()}
    every = [cell for cells in chosen.values() for cell in cells]
    by_day = [summed(day.isoformat(), chosen.get(day, ())) for day in shown]
    return await show(
        request,
        "usage.html",
        days=days,
        choices=DAYS,
        agent=agent,
        model=model,
        models=sorted({cell.use.model for cells in seen.values() for cell in cells if cell.use.model}),
        total=summed("", every),
        plots=plots_of(by_day),
        by_day=by_day[::-1],
        by_agent=_grouped(every, lambda cell: cell.agent),
        by_model=_grouped(every, lambda cell: cell.use.model),
        counted_to=max((one.to for one in counted.values()), default=0),
        counted_from=min(counted, default=None),
        cut=any(one.cut for one in counted.values()),
    )


@post("/usage/recount", status_code=200)
async def recount_usage(request: AnyRequest) -> Response[str]:
    """Counts the last days anew, in the background."""
    principal_of(request, "admin")
    service_of(request).recount_usage()
    return lead_to("/usage")


def _matches(cell: UsageCell, agent: str, model: str) -> bool:
    return (not agent or cell.agent == agent) and (not model or cell.use.model == model)


def summed(name: str, cells: Sequence[UsageCell]) -> UsageSum:
    used = ModelUse()
    for cell in cells:
        used = usage.joined(used, cell.use)
    cost = cost_of(cell.use for cell in cells if cell.use.tokens)
    return UsageSum(name, sum(cell.turns for cell in cells), sum(cell.errors for cell in cells), used, cost)


def _grouped(cells: Sequence[UsageCell], name: Callable[[UsageCell], str]) -> list[UsageSum]:
    groups: dict[str, list[UsageCell]] = {}
    for cell in cells:
        groups.setdefault(name(cell), []).append(cell)
    found = [summed(group, some) for group, some in groups.items()]
    return sorted(found, key=lambda one: (-one.use.tokens, -one.turns, one.name))


def plots_of(days: Sequence[UsageSum]) -> list[DayPlot]:
    return [
        _plot("turns", days, lambda day: day.turns),
        _plot("tokens", days, lambda day: day.use.tokens),
        _plot("cost", days, lambda day: day.cost.dollars if day.cost else 0),
        _plot("errors", days, lambda day: day.errors),
    ]


def _plot(
    kind: Literal["turns", "tokens", "cost", "errors"], days: Sequence[UsageSum], value: Callable[[UsageSum], float]
) -> DayPlot:
    top = max(map(value, days), default=0)
    place = (WIDTH - LEFT) / max(1, len(days))
    room = HEIGHT - TOP - BOTTOM

    def bar(n: int, day: UsageSum) -> DayBar:
        height = room * value(day) / top if top else 0
        height = max(1.0, height) if value(day) else 0
        y = HEIGHT - BOTTOM - height
        return DayBar(day.name, value(day), *(round(one, 1) for one in (LEFT + place * n, y, place * 0.8, height)))

    return DayPlot(kind, [bar(n, day) for n, day in enumerate(days)], top, sum(map(value, days)))

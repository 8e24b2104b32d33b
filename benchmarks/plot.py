"""`cost.svg`: what an append costs against the size of the session and the number of sessions. By hand, log-log."""

import math
from dataclasses import dataclass

from benchmarks.claims import NAMES, Figure, Results, median_of, short

WIDTH, HEIGHT = 1000, 460
TOP, BOTTOM = 64, 400
LABEL_GAP = 15
# Of middling lightness: each is legible on a white and on a black page.
COLOURS = {
    "jsonl": "#1f9d55",
    "sqlite": "#2f7fd6",
    "pi": "#c77d0a",
    "openai_agents": "#b0509f",
    "langgraph_sqlite": "#d14b4b",
    "adk": "#8a7a3c",
    "claw0": "#7b78c8",
}
STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #333; }
.title { font-size: 14px; font-weight: 600; }
.axis { stroke: #888; stroke-width: 1; }
.grid { stroke: #888; stroke-opacity: 0.25; stroke-width: 1; }
.ours { stroke-width: 3; }
.peer { stroke-width: 1.5; }
@media (prefers-color-scheme: dark) { text { fill: #ddd; } }"""


@dataclass(frozen=True)
class Panel:
    """One pair of axes, in pixels and in the values they stand for."""

    title: str
    unit: str
    left: int
    right: int
    sizes: list[int]
    costs_us: tuple[float, float]

    def x(self, size: float) -> float:
        return scale(size, (self.sizes[0], self.sizes[-1]), (self.left, self.right))

    def y(self, cost_us: float) -> float:
        return scale(cost_us, self.costs_us, (BOTTOM, TOP))


def scale(value: float, values: tuple[float, float], pixels: tuple[float, float]) -> float:
    low, high = (math.log10(limit) for limit in values)
    part = (math.log10(value) - low) / (high - low or 1)
    return pixels[0] + part * (pixels[1] - pixels[0])


def series(results: Results, group: str) -> dict[str, list[tuple[int, float]]]:
    """Contestant → (size, cost in µs), ascending."""
    found: dict[str, list[tuple[int, float]]] = {}
    for key in results:
        parts = key.split("/")
        if parts[0] == group and parts[-1] in COLOURS:
            found.setdefault(parts[-1], []).append((int(parts[1]), median_of(results, Figure(key)) or 1.0))
    return {name: sorted(points) for name, points in found.items()}


def decades(values: list[float]) -> tuple[float, float]:
    return 10.0 ** math.floor(math.log10(min(values))), 10.0 ** math.ceil(math.log10(max(values)))


def show_cost(cost_us: float) -> str:
    if cost_us < 1_000:
        return f"{cost_us:g} µs"
    return f"{cost_us / 1e3:g} ms" if cost_us < 1e6 else f"{cost_us / 1e6:g} s"


def draw_axes(panel: Panel) -> list[str]:
    parts = [f'<text class="title" x="{panel.left}" y="{TOP - 28}">{panel.title}</text>']
    low, high = (round(math.log10(limit)) for limit in panel.costs_us)
    for power in range(low, high + 1):
        y = panel.y(10.0**power)
        parts.append(f'<line class="grid" x1="{panel.left}" x2="{panel.right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{panel.left - 8}" y="{y + 4:.1f}" text-anchor="end">{show_cost(10.0**power)}</text>')
    for size in panel.sizes:
        x = panel.x(size)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{BOTTOM}"/>')
        parts.append(f'<text x="{x:.1f}" y="{BOTTOM + 20}" text-anchor="middle">{short(size)}</text>')
    middle = (panel.left + panel.right) / 2
    parts.append(f'<text x="{middle:.1f}" y="{BOTTOM + 42}" text-anchor="middle">{panel.unit}</text>')
    parts.append(f'<line class="axis" x1="{panel.left}" x2="{panel.right}" y1="{BOTTOM}" y2="{BOTTOM}"/>')
    parts.append(f'<line class="axis" x1="{panel.left}" x2="{panel.left}" y1="{TOP}" y2="{BOTTOM}"/>')
    return parts


def spread_labels(wanted: dict[str, float]) -> dict[str, float]:
    """Push labels down, then all back up, until none covers another."""
    placed: dict[str, float] = {}
    last = -math.inf
    for name, y in sorted(wanted.items(), key=lambda item: item[1]):
        last = max(y, last + LABEL_GAP)
        placed[name] = last
    excess = max(0.0, last - BOTTOM)
    return {name: y - excess for name, y in placed.items()}


def draw_lines(panel: Panel, lines: dict[str, list[tuple[int, float]]]) -> list[str]:
    parts = []
    labels = spread_labels({name: panel.y(points[-1][1]) for name, points in lines.items()})
    for name, points in lines.items():
        colour, kind = COLOURS[name], "ours" if name in ("jsonl", "sqlite") else "peer"
        path = " ".join(f"{panel.x(size):.1f},{panel.y(cost):.1f}" for size, cost in points)
        parts.append(f'<polyline class="{kind}" fill="none" stroke="{colour}" points="{path}"/>')
        for size, cost in points:
            parts.append(f'<circle cx="{panel.x(size):.1f}" cy="{panel.y(cost):.1f}" r="3" fill="{colour}"/>')
        x, y = panel.right + 10, labels[name] + 4
        parts.append(f'<text x="{x}" y="{y:.1f}" style="fill:{colour}">{NAMES[name]}</text>')
    return parts


def draw(results: Results) -> str:
    left, right = series(results, "append"), series(results, "among")
    costs = [cost for lines in (left, right) for points in lines.values() for _, cost in points]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">']
    parts += ["<title>Cost of appending a turn</title>", f"<style>{STYLE}</style>"]
    for lines, title, unit, x in (
        (left, "append a turn, by messages in the session", "messages in the session", 70),
        (right, "append a turn, by sessions in the store", "sessions in the store", 570),
    ):
        if lines:
            sizes = sorted({size for points in lines.values() for size, _ in points})
            panel = Panel(title, unit, x, x + 310, sizes, decades(costs))
            parts += draw_axes(panel) + draw_lines(panel, lines)
    return "\n".join([*parts, "</svg>"]) + "\n"

"""Results as a page and a drawing: `results.md` and `cost.svg`, or the `quick` ones of a partial run."""

import os
import platform
import statistics
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import install, plot, promises
from benchmarks.claims import NAMES, Claim, Figure, Results, Verdict, claims, judge, median_of, rounds_of, short
from benchmarks.plan import Scale

HERE = Path(__file__).resolve().parent

BUSY = " (others were using the machine: read the spreads, and run it again when it is quiet)"
METHOD = """\
One turn is 240 characters from the user and 830 from the assistant, appended as two entries in one call if the library
has such a call. Each figure comes from a fresh process; the contestants take turns, round after round. A figure is the
median of the rounds (of each round's median over its appends), a ratio is the median of the rounds' ratios, and the
spread is the lowest and the highest round. Leases, connections and files are opened before the clock starts, and
Turnlog's own code is compiled to bytecode before, as pip does with the others.

openai-agents, langgraph and google-adk sync every append, which `durability="os"` does not: compare them with the
durable rows too. pi runs in node, the others in Python. On a resume, openai-agents and google-adk fetch their newest 40
items without a summary, which they do not have; pi has one and reads the whole file.

On PostgreSQL every other contestant has a connection for each session. Turnlog has 8 in total, and appends that wait go
into one call together. All sessions begin empty. Turnlog indexes messages for search in the first pause or after 5
seconds, and such a burst is shorter; the neighbouring figure has that cost, which no other contestant has.

Servers, database and clients share the cores of one machine. If all cores are busy, a second server can only use what
is left; the processor time of a turn shows which process needs it. google-adk's server has its own default store, which
syncs. Beside it and beside the bare server, Turnlog's server has a model that costs nothing, as google-adk's has: the
same answer in five pieces. In all other rows of Turnlog's server the offline model answers, which counts its prompt,
remembers and compacts. Each of Turnlog's clients sends 20 turns, each of google-adk's 5. A failed turn does not count.
The bare server is uvicorn on uvloop and httptools with an application that commits two rows to SQLite and streams six
frames: it has no token, no lease, no index, no search and no model, and is the limit of such a server.

Two workers share the cores with their clients, so their gain is shown by processor time: what one turn costs all the
processes of the server says how many turns they could take if the clients had cores of their own. A round trip is a
request to PostgreSQL that follows an answer of it on the same connection, counted by a socket between the two.

The sessions of agent frameworks are compared in one process: a call of the framework's own store and the same call of
Turnlog's adapter alternate, each goes first every other time, and the figures are the medians of one process."""


def show(value: float | None, metric: str = "us") -> str:
    if value is None:
        return "not run"
    if metric == "trips":
        return f"{value:.1f}"
    if metric == "kb":
        return f"{value:.1f} KB"
    if metric in ("mb", "bytes"):
        return f"{value if metric == 'mb' else value / 1e6:.1f} MB"
    if metric.endswith("per_s"):
        return f"{value:,.0f} /s"
    if metric.endswith("percent"):
        return f"{value:.1f} %"
    if value < 1_000:
        return f"{value:.0f} µs" if value >= 100 else f"{value:.1f} µs"
    return f"{value / 1e3:.1f} ms" if value < 1e6 else f"{value / 1e6:.1f} s"


def show_ratio(value: float, unit: str) -> str:
    digits = 3 if value < 0.1 and unit == "x" else 2 if value < 10 else 1
    return f"{value:.{digits}f}" + ("x" if unit == "x" else f" {unit}".rstrip())


def name_of(key: str) -> str:
    last = key.rsplit("/", maxsplit=1)[-1]
    return NAMES.get(last, last)


def against_of(claim: Claim, results: Results) -> str:
    beside = [each if isinstance(each, Figure) else Figure(each, claim.ours.metric) for each in claim.beside]
    figures = ([claim.against] if claim.against else []) + beside
    shown = [f"{label(figure, claim)} {show(median_of(results, figure), figure.metric)}" for figure in figures]
    return ", ".join(shown)


WAYS = {"serial": "one session", "server/full": 'durability="full"'}
"""The same contestant, at work in another way."""


def label(figure: Figure, claim: Claim) -> str:
    if figure.key == claim.ours.key:
        return NAMES[figure.metric]
    parts = figure.key.split("/")
    same_side = parts[-1] == claim.ours.key.split("/")[-1]
    if same_side and (way := WAYS.get("/".join(parts[:-1]))):
        return way
    if not parts[1].isdigit() or (not same_side and parts[1] == claim.ours.key.split("/")[1]):
        return name_of(figure.key)
    size = f"at {short(int(parts[1]))}"
    return size if same_side else f"{name_of(figure.key)} {size}"


def verdict_row(verdict: Verdict, results: Results) -> str:
    claim = verdict.claim
    sign = "≥" if claim.at_least else "≤"
    reach = f"{sign} {show_ratio(claim.reach, claim.unit)}"
    ours = show(median_of(results, claim.ours), claim.ours.metric)
    if verdict.value is None:
        return f"| {claim.work} | {ours} | {against_of(claim, results)} | – | {reach} | not run |"
    value = show_ratio(verdict.value, claim.unit)
    spread = f"{show_ratio(verdict.low, claim.unit)} … {show_ratio(verdict.high, claim.unit)}"
    answer = "yes" if verdict.reached else "**no**"
    return f"| {claim.work} | {ours} | {against_of(claim, results)} | {value} ({spread}) | {reach} | {answer} |"


def figures_table(results: Results) -> str:
    """Every measurement: the median, the spread of the rounds, and how uneven it was within them."""
    lines = [
        "| measurement | median | lowest … highest round | mean | 95th percentile | rounds |",
        "|---|---|---|---|---|---|",
    ]
    for key, answers in results.items():
        for metric in [name for name in answers[0] if name not in ("mean_us", "p95_us")]:
            values = rounds_of(results, Figure(key, metric))
            shown = metric if metric.endswith(("per_s", "kb", "mb", "bytes", "percent", "trips")) else "us"
            inner = [
                statistics.median(answer[name] for answer in answers)
                for name in ("mean_us", "p95_us")
                if name in answers[0]
            ]
            mean, late = (show(value) for value in inner) if metric == "us" and inner else ("", "")
            title = key if metric in ("us", "per_s") else f"{key} {metric.removesuffix('_us')}"
            spread = f"{show(min(values), shown)} … {show(max(values), shown)}"
            middle = show(statistics.median(values), shown)
            lines.append(f"| {title} | {middle} | {spread} | {mean} | {late} | {len(values)} |")
    return "\n".join(lines)


def versions() -> str:
    pins = (HERE / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return ", ".join(line.replace("==", " ") for line in pins if line and not line.startswith("#"))


def conditions(results: Results, servers: list[str], minutes: float, load: float) -> str:
    busy = BUSY if load > 0.5 else ""
    pi = f"pi {install.PI_VERSION}" if any(key.endswith("/pi") for key in results) else "pi left out"
    described = "".join(f" {server}." for server in dict.fromkeys(servers))
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.system()} on {platform.machine()}, {os.cpu_count()} processors, "
        f"Python {sys.version.split()[0]}, {minutes:.0f} minutes, "
        f"load {load:.1f} before it began{busy}. {versions()}, {pi}.{described}"
    )


def table(verdicts: list[Verdict], results: Results) -> str:
    head = "| work | Turnlog | others | ratio or figure (spread) | target | met |\n|---|---|---|---|---|---|"
    return "\n".join([head, *(verdict_row(verdict, results) for verdict in verdicts)])


def misses(verdicts: list[Verdict]) -> str:
    judged = [verdict for verdict in verdicts if verdict.value is not None]
    missed = [verdict.claim.work for verdict in judged if not verdict.reached]
    if not judged:
        return "No target was measured."
    if not missed:
        return f"All of the {len(judged)} targets that were measured are met."
    return f"{len(missed)} of {len(judged)} targets are missed:\n\n" + "\n".join(f"- {work}" for work in missed)


def write(
    results: Results,
    failures: dict[str, str],
    scale: Scale,
    servers: list[str],
    *,
    whole: bool,
    minutes: float,
    load: float,
) -> str:
    verdicts = [judge(claim, results) for claim in claims(scale)]
    if not whole:
        verdicts = [verdict for verdict in verdicts if verdict.claim.ours.key in results | failures]
    stem, drawing = ("results", "cost.svg") if whole else ("results-quick", "cost-quick.svg")
    (HERE / drawing).write_text(plot.draw(results), encoding="utf-8")
    failed = "".join(f"- `{key}` was not measured: {why}\n" for key, why in failures.items())
    summary = misses(verdicts) + ("\n\n" + failed.rstrip() if failed else "")
    title = "# Turnlog compared with other libraries" + ("" if whole else " (partial run)")
    page = [
        title,
        "Written by `make bench`. " + conditions(results, servers, minutes, load),
        summary,
        table(verdicts, results),
        f"![cost of an append against the size of the session and the number of sessions]({drawing})",
        "## What each contestant promises\n\n" + promises.table(),
        "## How it is measured\n\n" + METHOD,
        "## All figures\n\n" + figures_table(results),
    ]
    (HERE / f"{stem}.md").write_text("\n\n".join(page) + "\n", encoding="utf-8")
    return f"{table(verdicts, results)}\n\n{summary}\n\nwritten: benchmarks/{stem}.md, benchmarks/{drawing}"

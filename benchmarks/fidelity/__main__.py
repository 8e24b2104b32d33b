"""`python -m benchmarks.fidelity [--quick] [--write]`: what is left of a long conversation after compactions.

Seeded transcripts in three languages, 1, 3 and 10 compactions, three summarisers, each store. A row is the worst of the
stores. Nothing depends on the clock: two runs print the same. The run fails if a goal is missed.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from itertools import product, repeat
from multiprocessing import get_context
from pathlib import Path

from msgspec import Struct

from benchmarks import postgres_server
from benchmarks.fidelity import peers
from benchmarks.fidelity.measuring import KINDS, Cell, Figures, measure_on_each
from benchmarks.fidelity.summarisers import SUMMARISERS
from benchmarks.fidelity.transcripts import LANGUAGES, make

PAGE = Path(__file__).parents[1] / "fidelity.md"
COMPACTIONS = (1, 3, 10)
QUESTION_GOAL = 90.0
HEAD = (
    *("language", "compactions", "summariser", "pinned", "undo", "invented"),
    *("by value", "by subject", "by question", "in a call", "line of output", "newest of 60"),
    *("in the prompt", "stale"),
)
Row = tuple[str, int, str, Figures]


class Size(Struct, frozen=True):
    messages: int
    window: int


FULL, QUICK = Size(2_100, 32_000), Size(420, 6_400)
"""The quick one has as many messages for its window."""


def stores(stack: ExitStack) -> Iterator[tuple[str, str]]:
    """(name, URL with a place for a number)."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fidelity-")))
    yield "JSONL", f"jsonl:{folder}/files-{{}}"
    yield "SQLite", f"sqlite:{folder}/log-{{}}.db"
    try:
        stack.enter_context(postgres_server.serving(os.environ))
    except (RuntimeError, OSError, StopIteration) as error:
        print(f"PostgreSQL is left out: {error}", flush=True)
        return
    place = folder / "fidelity"
    place.mkdir()
    name = postgres_server.database(str(place))
    yield "PostgreSQL", postgres_server.url(name)


def worst(found: Sequence[Figures]) -> Figures:
    return Figures(
        pinned=min(one.pinned for one in found),
        undone=min(one.undone for one in found),
        invented=max(one.invented for one in found),
        found={kind: min(one.found[kind] for one in found) for kind in KINDS},
        in_prompt=min(one.in_prompt for one in found),
        stale=max(one.stale for one in found),
        changed=found[0].changed,
    )


def rows(size: Size, places: Sequence[tuple[str, str]], jobs: int) -> list[Row]:
    """In the order of the table, whichever is ready first."""
    asked = enumerate(product(LANGUAGES, COMPACTIONS, SUMMARISERS), 1)
    cells = [Cell(number, *each, size.messages, size.window) for number, each in asked]
    urls = [url for _, url in places]
    found: list[Row] = []
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for cell, figures in zip(cells, pool.map(measure_on_each, cells, repeat(urls)), strict=True):
            found.append((cell.language, cell.compactions, cell.summariser, worst(figures)))
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0f} %" if share in (0, 100) else f"{share:.1f} %"


def lines(found: Sequence[Row]) -> Iterator[str]:
    yield from header(HEAD)
    for language, count, summariser, one in found:
        shares = [percent(one.found[kind]) for kind in KINDS]
        cells = [language, str(count), summariser, percent(one.pinned), percent(one.undone), str(one.invented), *shares]
        yield f"| {' | '.join([*cells, percent(one.in_prompt), f'{one.stale} of {one.changed}'])} |"


def peer_lines(size: Size) -> Iterator[str]:
    yield from header((*HEAD[:2], "rule", "pinned", *HEAD[6:]))
    for language in LANGUAGES:
        marked = make(language, size.messages)
        for count in COMPACTIONS:
            for rule in peers.RULES:
                one = peers.simulate(rule, marked, count, size.window)
                shares = [percent(one.found.get(kind)) for kind in KINDS]
                cells = [language, str(count), rule.name, percent(one.pinned), *shares, percent(one.in_prompt)]
                yield f"| {' | '.join([*cells, f'{one.stale} of {one.changed}'])} |"


def header(names: Sequence[str]) -> Iterator[str]:
    yield f"| {' | '.join(names)} |"
    yield "|---" * len(names) + "|"


def missed(found: Sequence[Row]) -> Iterator[str]:
    offline = {(language, count): one for language, count, name, one in found if name == "offline"}
    for language, count, summariser, one in found:
        where = f"{language}, {count} compactions, {summariser}"
        whole = {"pinned": one.pinned, "undo": one.undone, **{k: one.found[k] for k in KINDS if k != "question"}}
        yield from (f"{where}: {name} {share:.1f} %" for name, share in whole.items() if share < 100)
        if one.found["question"] < QUESTION_GOAL:
            yield f"{where}: questions {one.found['question']:.1f} %"
        if one.invented or one.stale:
            yield f"{where}: {one.invented} invented, {one.stale} stale"
        if summariser == "sly" and one.in_prompt < offline[language, count].in_prompt:
            yield f"{where}: fewer identifiers in the prompt than with the offline summariser"


def page(found: Sequence[Row], names: Sequence[str], size: Size, command: str) -> str:
    return "\n".join(
        (
            "# What is left after compactions",
            "",
            f"`{command}` printed this. Each transcript has {size.messages:,} messages with a marked fact in each,",
            f"and the window has {size.window:,} tokens.",
            f"A row is the worst of {', '.join(names)}. Nothing depends on the clock: another run prints the same.",
            "",
            "Summarisers: *offline* is the model without a network; *lossy* keeps one sentence in ten; *sly* keeps 60 %"
            " of the checked",
            "identifiers and drops the rest. `by …`, `in a call`, `line of output`, `newest of 60`: the share of"
            " questions that one call of",
            "`search_history` answers. `in the prompt`: the share of all marked values that the prompt still has."
            " `stale`: corrected values",
            "that the prompt still has without their correction.",
            "",
            *lines(found),
            "",
            "## Other rules, simulated",
            "",
            "The same transcripts under the rules that other programs use, with the offline summariser and no check."
            " Their search is",
            "simulated too: the newest eight messages with all words of the query, 300 characters of each.",
            "",
            *peer_lines(size),
            "",
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="What is left of a long conversation after compactions.")
    parser.add_argument("--quick", action="store_true", help="a fifth of the messages, in a fifth of the window")
    parser.add_argument("--write", action="store_true", help=f"also write {PAGE.name}")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that measure at the same time")
    asked = parser.parse_args()
    size, command = (QUICK, "make fidelity ARGS=--quick") if asked.quick else (FULL, "make fidelity")
    with ExitStack() as stack:
        places = list(stores(stack))
        found = rows(size, places, max(1, asked.jobs))
    text = page(found, [name for name, _ in places], size, command)
    print(text)
    if asked.write:
        PAGE.write_text(text, encoding="utf-8")
    for goal in (failures := list(missed(found))):
        print(f"missed: {goal}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

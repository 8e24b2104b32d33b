"""A progress bar, on a terminal only, and only if the work takes longer than a moment."""

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

from ..stores import Progress

SHOW_AFTER_S = 0.5


@contextmanager
def bar(what: str) -> Generator[Progress]:
    """`with bar("Copying sessions") as progress: await copy(…, progress=progress)`"""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress as Bars, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bars = Bars(*columns, console=Console(stderr=True), transient=True)
    task = bars.add_task(what, total=None)
    started = time.monotonic()
    shown = False

    def report(done: int, total: int) -> None:
        nonlocal shown
        if not shown and time.monotonic() - started > SHOW_AFTER_S:
            bars.start()
            shown = True
        bars.update(task, completed=done, total=total)

    try:
        yield report
    finally:
        if shown:
            bars.stop()

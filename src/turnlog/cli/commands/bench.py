"""`turnlog bench`: the figures of `turnlog.testing.bench`, as a table or as JSON."""

import asyncio
import platform
import tempfile
from pathlib import Path

import click
from msgspec import to_builtins

from ... import __version__
from ...errors import UsageError
from ...stores.disk.files import disk_errors
from ...testing.bench import KINDS, measure
from ..options import common, flags_now, report
from ..output import table


@click.command()
@click.option("--kind", type=click.Choice(list(KINDS)), default="sqlite", help="Which store [sqlite].")
@click.option("--messages", type=click.IntRange(100, 100_000), default=2_000, help="In the session resumed [2000].")
@click.option("--dir", "place", type=click.Path(exists=True, file_okay=False), help="On which disk [temporary files'].")
@common
def bench(kind: str, messages: int, place: str | None) -> None:
    """Measure append, resume and a turn of the offline model, on a temporary store.

    The figures do not include the start of the process.

    \b
    turnlog bench
    turnlog bench --kind jsonl --dir /srv/data --messages 20000
    """
    refuse_store("bench")
    with disk_errors("the temporary store cannot be used"), tempfile.TemporaryDirectory(dir=place) as folder:
        figures = asyncio.run(measure(KINDS[kind], Path(folder), messages))
    on = {"version": __version__, "python": platform.python_version(), "system": platform.platform()}
    on |= {"kind": kind, "dir": place or tempfile.gettempdir()}
    cells = [(f.what, f"{f.median_ms:,.2f} ms", f"{f.slowest_ms:,.2f} ms", f"{f.count} times") for f in figures]
    lines = table([("", "median", "slowest", ""), *cells])
    report({**on, "figures": to_builtins(figures)}, " · ".join(on.values()), *lines)


def refuse_store(command: str) -> None:
    if flags_now().store_url:
        raise UsageError(f"{command} uses its own store", hint="Choose with --kind and --dir instead.")

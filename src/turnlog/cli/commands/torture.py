"""`turnlog torture`: runs `turnlog.testing.torture` and says what it found."""

import random

import click
from msgspec import to_builtins

from ...stores.disk.files import disk_errors
from ...testing.torture import KINDS, TortureCounts, run_rounds
from ..options import common, report
from .bench import refuse_store


@click.command()
@click.option("--kind", type=click.Choice(list(KINDS)), default="sqlite", help="Which store [sqlite].")
@click.option("--kills", type=click.IntRange(1), default=50, help="How many processes to kill [50].")
@click.option(
    "--seconds",
    type=click.FloatRange(0.1),
    help="Stop after this many seconds, even if there were fewer kills than --kills.",
)
@click.option("--dir", "place", type=click.Path(exists=True, file_okay=False), help="On which disk [temporary files'].")
@click.option("--seed", type=int, help="Which random moments [others each time].")
@common
def torture(kind: str, kills: int, seconds: float | None, place: str | None, seed: int | None) -> None:
    """Kill processes in the middle of turns (kill -9), and check that nothing acknowledged is lost or doubled.

    Exit code 3 if something is; then the store is kept, and the output says where.

    \b
    turnlog torture
    turnlog torture --kind jsonl --kills 1000 --dir /srv/data
    turnlog torture --seconds 60 --json
    """
    refuse_store("torture")
    tally = TortureCounts(kind, random.SystemRandom().randrange(10**6) if seed is None else seed)
    with disk_errors("the temporary store cannot be used"):
        run_rounds(tally, kills, seconds, place)
    report(
        to_builtins(tally),
        f"{tally.kills} processes killed in {tally.seconds:.1f} s, {tally.kind}, seed {tally.seed}",
        f"{tally.accepted} messages accepted, {tally.answered} answered, {tally.compactions} compactions",
        "Nothing lost, nothing doubled, every prompt valid.",
    )

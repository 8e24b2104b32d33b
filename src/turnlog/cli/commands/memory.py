"""`turnlog memory`: lists, searches and deletes memos of the global memory."""

from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from ..options import Flags, common, report, with_turnlog
from ..output import columns_of_screen, table
from ..session_names import age

if TYPE_CHECKING:
    from ...library import Turnlog
    from ...memory import Memo

SHOWN_CHARS = 200


@click.group()
@common
def memory() -> None:
    """List, search and forget what the global memory holds.

    \b
    turnlog memory list
    turnlog memory search "release 7"
    turnlog memory forget 12
    """


@memory.command("list")
@click.option("--limit", type=int, default=50, help="How many at most, up to 200 [50].")
@click.option("--before", type=int, metavar="ID", help="Only those before this one: the next page.")
@click.option("--owner", metavar="OWNER", help="Only of one person or group, such as telegram:direct:5.")
@with_turnlog()
async def list_(t: "Turnlog", flags: Flags, limit: int, before: int | None, owner: str | None) -> None:
    """List memos, newest first."""
    memo = await t.memory()
    _show(await memo.list(agent=flags.agent, owner=owner, before=before, limit=limit))


@memory.command()
@click.argument("words")
@click.option("--limit", type=int, default=50, help="How many at most, up to 200 [50].")
@click.option("--owner", metavar="OWNER", help="Only of one person or group, such as telegram:direct:5.")
@with_turnlog()
async def search(t: "Turnlog", flags: Flags, words: str, limit: int, owner: str | None) -> None:
    """Find memos with all these words, best first."""
    memo = await t.memory()
    _show(await memo.search(words, agent=flags.agent, owner=owner, limit=limit))


@memory.command()
@click.argument("id_", metavar="ID", type=int)
@with_turnlog()
async def forget(t: "Turnlog", flags: Flags, id_: int) -> None:
    """Delete one memo, for good."""
    await (await t.memory()).forget(id_)
    report({"id": id_, "forgotten": True}, f"forgotten: {id_}")


def _show(memos: "list[Memo]") -> None:
    rows = [(str(m.id), m.agent, m.owner, age(m.ts), " ".join(m.text[:SHOWN_CHARS].split())) for m in memos]
    report({"memos": to_builtins(memos)}, *table(rows, columns_of_screen()))

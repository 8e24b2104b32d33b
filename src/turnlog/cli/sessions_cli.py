"""`turnlog sessions …` and `turnlog copy`: everything about sessions that is not a turn."""

from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from ..core.query import Query, named_status
from ..core.session import Session
from ..errors import UsageError
from .naming import age, called, resolve, row_json, session_argument
from .options import Flags, common, flags_now, run
from .output import columns_of_screen, table, write, write_json
from .spoken import lines_of

if TYPE_CHECKING:
    from ..library import Turnlog

STATUSES = ("untrashed", "active", "inactive", "archived", "trashed", "all")


@click.group()
@common
def sessions() -> None:
    """List, show, rename, fork, search and delete sessions.

    SESSION is an id, a key or a label, whole or the beginning of only one.

    \b
    turnlog sessions list --q invoice
    turnlog sessions show my-project
    turnlog sessions search "release 7"
    """


@sessions.command("list")
@click.option("--status", type=click.Choice(STATUSES), default="untrashed", help="Only these [untrashed].")
@click.option("--limit", type=int, default=50, help="How many at most, up to 200 [50].")
@click.option("--cursor", help="`next` of the page before.")
@click.option("--q", metavar="WORDS", help="Words in title, label, key or id.")
@common
def list_(status: str, limit: int, cursor: str | None, q: str | None) -> None:
    """List sessions, newest first; those in the trash only with --status trashed or all."""
    flags = flags_now()
    query = Query(status=named_status(status), limit=limit, cursor=cursor, q=q, agent=flags.agent)

    async def work(t: "Turnlog") -> None:
        page = await t.sessions.list(query)
        if flags.json:
            rows = [row_json(t, row) for row in page.items]
            write_json({"sessions": rows, "next": page.next, "total": page.total})
            return
        for line in listing(page.items, columns_of_screen()):
            write(line)
        if page.next:
            write(f"{len(page.items)} of {page.total}; go on with --cursor {page.next}")

    run(work, flags)


def listing(rows: list[Session], room: int | None, current: str = "") -> list[str]:
    """One line a session, the current one marked."""
    if not rows:
        return []
    cells = [
        (
            "*" if row.id == current else " ",
            row.id,
            f"{row.message_count} msgs",
            age(row.last_at),
            row.status,
            " · ".join(filter(None, (row.label, row.title))),
        )
        for row in rows
    ]
    narrow = room is not None and room < 80
    return table([(*c[:2], c[2], c[5]) for c in cells] if narrow else cells, room)


@sessions.command()
@session_argument
@common
def show(session: str) -> None:
    """Print what was said in a session, with its markers."""
    flags = flags_now()

    async def work(t: "Turnlog") -> None:
        row = await resolve(t, flags, session)
        loaded = await t.sessions.transcript(row.id)
        if flags.json:
            write_json({"session": row_json(t, row), "entries": to_builtins(loaded.entries)})
            return
        write(f"{called(row)}  {row.key}")
        for line in lines_of(loaded.entries):
            write(line)

    run(work, flags)


@sessions.command()
@session_argument
@click.argument("title")
@common
def rename(session: str, title: str) -> None:
    """Give a session a title. It is never overwritten by an automatic one."""
    flags = flags_now()

    async def work(t: "Turnlog") -> None:
        row = await t.sessions.rename((await resolve(t, flags, session)).id, title)
        _tell_row(t, flags, row, f"{row.id}: {row.title}")

    run(work, flags)


@sessions.command()
@session_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@common
def delete(session: str, yes: bool) -> None:
    """Delete a session, for good."""
    flags = flags_now()

    async def work(t: "Turnlog") -> None:
        row = await resolve(t, flags, session)
        if not yes and not click.confirm(f"Delete {called(row)} with {row.message_count} messages for good?"):
            raise UsageError("nothing was deleted", hint="Say yes, or give --yes.")
        await t.sessions.delete(row.id)
        _tell(flags, {"id": row.id}, f"Deleted: {called(row)}")

    run(work, flags)


@sessions.command()
@session_argument
@click.option("--at", type=int, metavar="SEQ", help="The last entry both share [the newest].")
@click.option("--label", help="A name for the fork.")
@common
def fork(session: str, at: int | None, label: str | None) -> None:
    """Make a new session that shares the past of this one."""
    flags = flags_now()

    async def work(t: "Turnlog") -> None:
        row = await t.sessions.fork((await resolve(t, flags, session)).id, at=at, label=label)
        _tell(flags, {"id": row.id}, row.id)

    run(work, flags)


@sessions.command()
@session_argument
@click.argument("seq", type=int)
@common
def pin(session: str, seq: int) -> None:
    """Keep a message in the prompt word for word."""
    flags = flags_now()

    async def work(t: "Turnlog") -> None:
        row = await t.sessions.pin((await resolve(t, flags, session)).id, seq)
        _tell_row(t, flags, row, f"Pinned entry {seq}.")

    run(work, flags)


@sessions.command()
@session_argument
@click.argument("seq", type=int)
@common
def unpin(session: str, seq: int) -> None:
    """Let a pinned message be folded again."""
    flags = flags_now()

    async def work(t: "Turnlog") -> None:
        row = await t.sessions.unpin((await resolve(t, flags, session)).id, seq)
        _tell_row(t, flags, row, f"Unpinned entry {seq}.")

    run(work, flags)


@sessions.command()
@session_argument
@click.argument("seq", type=int)
@common
def rewind(session: str, seq: int) -> None:
    """Go on from an earlier entry. Nothing is removed: rewind forward to come back."""
    flags = flags_now()

    async def work(t: "Turnlog") -> None:
        row = await t.sessions.rewind((await resolve(t, flags, session)).id, seq)
        _tell_row(t, flags, row, f"{row.id} goes on from entry {seq}.")

    run(work, flags)


@sessions.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--limit", type=int, default=50, help="How many hits at most [50].")
@common
def search(words: tuple[str, ...], limit: int) -> None:
    """Search everything that was said."""
    flags = flags_now()

    async def work(t: "Turnlog") -> None:
        hits = await t.sessions.search(" ".join(words), scope=Query(agent=flags.agent, limit=limit))
        if flags.json:
            found = [{"sessionId": hit.session_id, "seq": hit.seq, "snippet": hit.snippet} for hit in hits]
            write_json({"hits": found})
            return
        rows = [(hit.session_id, str(hit.seq), hit.role, hit.snippet) for hit in hits]
        for line in table(rows, columns_of_screen()) if rows else ["Nothing found."]:
            write(line)

    run(work, flags)


@sessions.command()
@common
def reindex() -> None:
    """Build the index anew from the transcripts. Nothing is lost by it."""
    flags = flags_now()

    async def work(t: "Turnlog") -> None:
        from ..progress import bar

        with bar("Reindexing") as progress:
            count = await t.sessions.reindex(progress)
        _tell(flags, {"sessions": count}, f"{count} sessions")

    run(work, flags)


@click.command()
@click.argument("source", metavar="SRC_URL")
@click.argument("target", metavar="DST_URL")
@common
def copy(source: str, target: str) -> None:
    """Copy every session of one store into another, and prove them equal.

    A copy that was cut off goes on where it stopped; nothing in the target is overwritten.

    \b
    turnlog copy sqlite:sessions.db jsonl:transcripts
    """
    import asyncio

    flags = flags_now()

    async def work() -> None:
        from ..copying import copy as copy_store
        from ..progress import bar
        from ..stores import open_store

        async with open_store(source) as old, open_store(target) as new:
            with bar("Copying sessions") as progress:
                done = await copy_store(old, new, progress=progress)
        _tell(flags, to_builtins(done), f"{done.sessions} sessions, {done.entries} new entries, digest {done.digest}")

    asyncio.run(work())


sessions.add_command(copy)


def _tell(flags: Flags, value: object, text: str) -> None:
    if flags.json:
        write_json(value)
    else:
        write(text)


def _tell_row(t: "Turnlog", flags: Flags, row: Session, text: str) -> None:
    _tell(flags, row_json(t, row), text)

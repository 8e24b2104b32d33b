"""`turnlog sessions …` and `turnlog copy`."""

from contextlib import nullcontext
from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from ...core.query import Hit, Query, named_status
from ...core.session import Session
from ...core.survey import survey
from ...errors import UsageError
from ...texts import words_here
from ..chat.transcript_view import TEXT_COLUMN, lines_of
from ..options import Flags, common, report, with_turnlog
from ..output import columns_of_screen, stream_json, table, to_json, write, write_json, write_wrapped
from ..session_names import age, called, change_session, resolve, row_json, session_argument, shown_key

if TYPE_CHECKING:
    from ...library import Turnlog
    from ...sessions.erasing import FoundWords
    from ...sessions.erasing_text import EraseReport

STATUSES = ("untrashed", "active", "inactive", "archived", "trashed", "all")


@click.group()
@common
def sessions() -> None:
    """List, show, rename, fork, search and delete sessions.

    SESSION is an id, a key or a label, or the beginning of only one.

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
@with_turnlog()
async def list_(t: "Turnlog", flags: Flags, status: str, limit: int, cursor: str | None, q: str | None) -> None:
    """List sessions, newest first; those in the trash only with --status trashed or all."""
    query = Query(status=named_status(status), limit=limit, cursor=cursor, q=q, agent=flags.agent)
    page = await t.sessions.list(query)
    if flags.json:
        rows = [row_json(t, row) for row in page.items]
        write_json({"sessions": rows, "next": page.next, "total": page.total})
        return
    for line in listing(page.items, columns_of_screen()):
        write(line)
    if page.next:
        write(f"{len(page.items)} of {page.total}; go on with --cursor {page.next}")


def listing(rows: list[Session], room: int | None, current: str = "") -> list[str]:
    """One line for each session; the current one is marked."""
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
@with_turnlog()
async def show(t: "Turnlog", flags: Flags, session: str) -> None:
    """Print the messages of a session, with markers."""
    row = await resolve(t, flags, session)
    if flags.json:
        before = to_json({"session": row_json(t, row), "entries": []}).removesuffix("]}")
        await stream_json(before, (to_builtins(page) async for page in t.sessions.pages(row)), "]}")
        return
    write(f"{called(row)}  {shown_key(t, row)}")
    left_out = survey(await t.sessions.outline(row)).left_out
    async for page in t.sessions.pages(row, named=True):
        for line in lines_of(page, words_here(), left_out=left_out):
            write_wrapped(line, TEXT_COLUMN)


@sessions.command()
@session_argument
@click.argument("title")
@common
def rename(session: str, title: str) -> None:
    """Give a session a title. An automatic title never replaces it."""
    change_session(session, lambda s, id_: s.rename(id_, title), lambda row: f"{row.id}: {row.title}")


@sessions.command()
@session_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_turnlog()
async def delete(t: "Turnlog", flags: Flags, session: str, yes: bool) -> None:
    """Delete a session, for good."""
    row = await resolve(t, flags, session)
    question = f"Delete {called(row)} with {row.message_count} messages for good?"
    if not yes and (flags.json or not _agreed(question)):
        raise UsageError("nothing was deleted", hint="Say yes, or give --yes.")
    await t.sessions.delete(row.id)
    report({"id": row.id}, f"Deleted: {called(row)}")


def _agreed(question: str) -> bool:
    """No answer, because the input ended or Ctrl-C was pressed, is a no."""
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        click.echo(err=True)
        return False


@sessions.command()
@click.argument("session", required=False)
@click.option("--seq", "seqs", type=int, multiple=True, help="An entry; may be given several times.")
@click.option("--text", help="Entries that contain this text; case does not matter.")
@click.option("--redact", is_flag=True, help="Also what still counts: it is shown as [erased] from then on.")
@click.option("--derived", is_flag=True, help="Also summaries, titles, forks and lines of the convlog made of it.")
@click.option("--everywhere", is_flag=True, help="In all sessions.")
@click.option("--yes", is_flag=True, help="Erase for good. Without it, only what would be erased is listed.")
@with_turnlog()
async def erase(
    t: "Turnlog",
    flags: Flags,
    *,
    session: str | None,
    seqs: tuple[int, ...],
    text: str | None,
    redact: bool,
    derived: bool,
    everywhere: bool,
    yes: bool,
) -> None:
    """Erase words for good; without --yes, list what holds them.

    Free to erase are rewound entries and facts that were dropped; everything else needs --redact.

    \b
    turnlog sessions erase my-project --text "4111 1111" --redact --derived
    turnlog sessions erase my-project --seq 12 --redact --yes
    """
    from ...convlog import has_convlog, open_convlog

    if everywhere == (session is not None):
        raise UsageError("name one session, or use --everywhere", hint="turnlog sessions list shows them.")
    row = await resolve(t, flags, session) if session is not None else None
    url = t.settings.store_url()
    # Nothing is opened if nothing was written to it, so that a look creates nothing.
    async with open_convlog(url) if has_convlog(url) else nullcontext() as convlog:
        done = await t.erase(row, seqs=seqs, text=text, redact=redact, derived=derived, apply=yes, convlog=convlog)
    report(to_builtins(done), *erased_lines(done, redact=redact, derived=derived))


def erased_lines(done: "EraseReport", *, redact: bool, derived: bool) -> list[str]:
    """What holds the words, for people; never the words."""
    verb = "erased" if done.applied else "would be erased"
    made = verb if derived else "listed only: --derived erases it too"
    # Whether a fact still counts is found out when it is erased.
    counting = [] if redact else [one for one in done.entries if not one.free and one.type != "facts"]
    lines = [_place(one, "still counts: --redact erases it" if one in counting else verb) for one in done.entries]
    lines += [_place(one, made) for one in done.derived]
    lines += [_place(one, "kept: it cannot be erased") for one in done.kept]
    if not done.applied and lines:
        lines.append(f"Nothing was changed. Give {'--redact and ' if counting else ''}--yes to erase for good.")
    return lines or ["Nothing found."]


def _place(one: "FoundWords", verb: str) -> str:
    what = f"{one.session_id} {one.seq} {one.type}" if one.session_id else f"{one.where} {one.type}"
    count = f" ({one.count} lines)" if one.count > 1 else ""
    return f"{one.made}: {what.strip()}{count}: {verb}"


@sessions.command()
@session_argument
@click.option("--at", type=int, metavar="SEQ", help="The last entry both share [the newest].")
@click.option("--label", help="A name for the fork.")
@with_turnlog()
async def fork(t: "Turnlog", flags: Flags, session: str, at: int | None, label: str | None) -> None:
    """Create a session with a copy of this one's past."""
    row = await t.sessions.fork((await resolve(t, flags, session)).id, at=at, label=label)
    report({"id": row.id}, row.id)


@sessions.command()
@session_argument
@click.argument("seq", type=int)
@common
def pin(session: str, seq: int) -> None:
    """Keep a message in the prompt word for word."""
    change_session(session, lambda s, id_: s.pin(id_, seq), lambda _: f"Pinned entry {seq}.")


@sessions.command()
@session_argument
@click.argument("seq", type=int)
@common
def unpin(session: str, seq: int) -> None:
    """Unpin a message."""
    change_session(session, lambda s, id_: s.unpin(id_, seq), lambda _: f"Unpinned entry {seq}.")


@sessions.command()
@session_argument
@click.argument("seq", type=int)
@common
def rewind(session: str, seq: int) -> None:
    """Continue from an earlier entry. Nothing is removed: rewind forward to come back."""
    change_session(session, lambda s, id_: s.rewind(id_, seq), lambda row: f"{row.id} goes on from entry {seq}.")


def marked(hit: Hit) -> str:
    """The snippet with its matches in « »."""
    text, at = "", 0
    for start, end in hit.matches:
        text += f"{hit.snippet[at:start]}«{hit.snippet[start:end]}»"
        at = end
    return text + hit.snippet[at:]


@sessions.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--limit", type=int, default=50, help="How many hits at most [50].")
@with_turnlog()
async def search(t: "Turnlog", flags: Flags, words: tuple[str, ...], limit: int) -> None:
    """Search all sessions: words or a question, the best hits first.

    \b
    "a phrase"  begin*  -without  from:NAME  after:2026-11-01  before:2026-12-01  in:SESSION
    """
    hits = await t.sessions.search(" ".join(words), scope=Query(agent=flags.agent, limit=limit))
    rows = [(hit.session_id, str(hit.seq), hit.time[:10], hit.role, hit.state, marked(hit)) for hit in hits]
    report({"hits": to_builtins(hits)}, *(table(rows, columns_of_screen()) or ["Nothing found."]))


@sessions.command()
@with_turnlog()
async def reindex(t: "Turnlog", flags: Flags) -> None:
    """Rebuild the index from the transcripts. Nothing is lost."""
    from ..progress import bar

    with bar("Reindexing") as progress:
        count = await t.sessions.reindex(progress)
    report({"sessions": count}, f"{count} sessions")


@click.command()
@click.argument("source", metavar="SRC_URL")
@click.argument("target", metavar="DST_URL")
@common
def copy(source: str, target: str) -> None:
    """Copy every session of one store into another, and prove them equal.

    An interrupted copy continues where it stopped; nothing in the target is overwritten.

    \b
    turnlog copy sqlite:sessions.db jsonl:transcripts
    """
    import asyncio

    from ...sessions.copying import copy_between
    from ..progress import bar

    with bar("Copying sessions") as progress:
        done = asyncio.run(copy_between(source, target, progress=progress))
    report(to_builtins(done), f"{done.sessions} sessions, {done.entries} new entries, digest {done.digest}")


sessions.add_command(copy)

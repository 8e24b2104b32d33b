"""Commands of the chat about sessions: new, list, switch, history, fork, rename, search, recall, delete, export."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core import keys
from ...core.query import UNTRASHED, Query
from ...core.session import Session
from ...errors import Ambiguous, NotFound
from ..commands.sessions import listing, marked
from ..escaping import cut, escape, inline, width
from ..session_names import called, shown_key
from .slash_context import number
from .transcript_view import TEXT_COLUMN, lines_of

if TYPE_CHECKING:
    from .console import Console
    from .loop import Chat

LISTED = 50
SAID = 20
"""Messages that /history shows when no number is given."""
SNIPPET_MIN_CELLS = 12
"""A snippet that has less room stands on a line of its own."""


async def new(chat: "Chat", console: "Console", rest: str) -> None:
    chat.row, chat.by_key = await chat.t.new(keys.parse(chat.row.key), rest or None), True
    row = chat.row
    text = f"Created session: {row.id}" + (f" ({row.label})" if row.label else "")
    if chat.t.settings.session.new_makes == "key":
        text += f"  {shown_key(chat.t, row)}"
    console.show(text)
    await chat.refresh()


async def list_(chat: "Chat", console: "Console", rest: str) -> None:
    page = await chat.t.sessions.list(_mine(chat, LISTED))
    _show_rows(chat, console, page.items)
    if page.total > len(page.items):
        console.show(chat.words("more", n=page.total - len(page.items)), "quiet")


def _mine(chat: "Chat", limit: int) -> Query:
    """The sessions of this key; if /new makes new keys, all sessions of the agent in this channel."""
    place = keys.parse(chat.row.key)
    if chat.t.settings.session.new_makes == "key":
        return Query(agent=place.agent, channel=place.channel, status=UNTRASHED, limit=limit)
    return Query(key=chat.row.key, status=UNTRASHED, limit=limit)


def _show_rows(chat: "Chat", console: "Console", rows: Sequence[Session]) -> None:
    for line in listing(list(rows), console.columns, chat.row.id):
        console.show(line, "strong" if line.startswith("*") else "plain")
    if not rows:
        console.show(chat.words("no_sessions"))


async def switch(chat: "Chat", console: "Console", rest: str) -> None:
    row = await _named(chat, console, rest)
    if row is None:
        return
    chat.row, chat.by_key = await chat.t.sessions.select(row.id), False
    console.show(chat.words("switched", name=called(chat.row), n=chat.row.message_count))
    entries = await chat.t.sessions.read(chat.row.id, before=chat.row.last_seq + 1, limit=SAID)
    for line in lines_of(entries, chat.words, last=4):
        console.show(line, "quiet", TEXT_COLUMN)
    await chat.refresh()


async def _named(chat: "Chat", console: "Console", name: str) -> Session | None:
    """A session of this key, otherwise one of this agent. Says so if no session or several fit."""
    agent = chat.row.agent
    try:
        try:
            return await chat.t.sessions.resolve(name, key=chat.row.key)
        except NotFound:
            return await chat.t.sessions.resolve(name, agent=agent)
    except Ambiguous as error:
        console.show(chat.words("ambiguous", name=inline(name, 60), n=len(error.matches)), "bad")
        _show_rows(chat, console, [await chat.t.sessions.get(found) for found in error.matches[:LISTED]])
    except NotFound:
        console.show(chat.words("not_found", name=inline(name, 60)), "bad")
    return None


async def history(chat: "Chat", console: "Console", rest: str) -> None:
    loaded = await chat.t.sessions.transcript(chat.row.id)
    lines = lines_of(loaded.entries, chat.words, last=number(rest, "/history [n]") or SAID)
    for line in lines or [chat.words("nothing_said")]:
        console.show(line, hang=TEXT_COLUMN)


async def fork(chat: "Chat", console: "Console", rest: str) -> None:
    row = await chat.t.sessions.fork(chat.row.id, label=rest or None)
    chat.row = await chat.t.sessions.select(row.id)
    console.show(chat.words("forked", id=row.id))


async def rename(chat: "Chat", console: "Console", rest: str) -> None:
    chat.row = await chat.t.sessions.rename(chat.row.id, rest)
    console.show(chat.words("renamed", title=chat.row.title))


async def delete(chat: "Chat", console: "Console", rest: str) -> None:
    row = await _named(chat, console, rest)
    if row is None:
        return
    if row.id == chat.row.id:
        console.show(chat.words("delete_current"), "bad")
    elif await console.confirm(chat.words("delete_ask", name=inline(called(row)), n=row.message_count)):
        await chat.t.sessions.delete(row.id)
        console.show(chat.words("deleted", name=called(row)))
    else:
        console.show(chat.words("kept"))


async def search(chat: "Chat", console: "Console", rest: str) -> None:
    hits = await chat.t.sessions.search(rest, scope=Query(agent=chat.row.agent, limit=SAID))
    for hit in hits:
        mark = "*" if hit.session_id == chat.row.id else " "
        about = f"{hit.time[:10]} [{hit.role}, {hit.state}]"
        head = escape(f"{mark} {hit.session_id} {hit.seq} {about} ")
        room = console.columns - 1
        if room - len(head) < SNIPPET_MIN_CELLS:
            console.show(cut(head, room))
            head = "    "
        console.show(head + around_match(inline(marked(hit)), room - len(head)))
    if not hits:
        console.show(chat.words("no_hits", words=inline(rest, 60)))


def around_match(text: str, room: int) -> str:
    """The part of a marked snippet that shows its first match, not wider than `room` cells."""
    before = text.find("«") - room // 4
    if before > 0 and width(text) > room:
        text = "…" + text[before:]
    return cut(text, max(room, 1))


async def recall(chat: "Chat", console: "Console", rest: str) -> None:
    memos = await chat.t.recall(chat.row, rest, limit=SAID)
    for memo in memos:
        console.show(inline(f"{memo.id} {memo.text}", console.columns - 1))
    if not memos:
        console.show(chat.words("no_hits", words=inline(rest, 60)))


async def export(chat: "Chat", console: "Console", rest: str) -> None:
    from ..commands.exporting import export

    await export(chat, console, rest)

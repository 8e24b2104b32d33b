"""Commands of the chat about sessions: new, list, switch, history, fork, rename, search, delete, export."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..core import keys
from ..core.query import UNTRASHED, Query
from ..core.session import Session
from ..errors import Ambiguous, NotFound
from .escaping import inline
from .naming import called
from .opening import make
from .sessions_cli import listing
from .spoken import lines_of

if TYPE_CHECKING:
    from .fronts import Front
    from .repl import Chat

LISTED = 50
SAID = 20
"""Messages that /history shows when no number is given."""


async def new(chat: "Chat", front: "Front", rest: str) -> None:
    chat.row = await make(chat.t, keys.parse(chat.row.key), rest or None)
    row = chat.row
    told = f"Created session: {row.id}" + (f" ({row.label})" if row.label else "")
    if chat.t.settings.session.new_makes == "key":
        told += f"  {keys.format(keys.parse(row.key), 'triple')}"
    front.show(told)
    await chat.refresh()


async def list_(chat: "Chat", front: "Front", rest: str) -> None:
    page = await chat.t.sessions.list(_mine(chat, LISTED))
    _show_rows(chat, front, page.items)
    if page.total > len(page.items):
        front.show(chat.words("more", n=page.total - len(page.items)), "quiet")


def _mine(chat: "Chat", limit: int) -> Query:
    """Where /new makes keys the agent's sessions of this channel are meant, otherwise those of the key."""
    place = keys.parse(chat.row.key)
    if chat.t.settings.session.new_makes == "key":
        return Query(agent=place.agent, channel=place.channel, status=UNTRASHED, limit=limit)
    return Query(key=chat.row.key, status=UNTRASHED, limit=limit)


def _show_rows(chat: "Chat", front: "Front", rows: Sequence[Session]) -> None:
    for line in listing(list(rows), front.columns, chat.row.id):
        front.show(line, "strong" if line.startswith("*") else "plain")
    if not rows:
        front.show(chat.words("no_sessions"))


async def switch(chat: "Chat", front: "Front", rest: str) -> None:
    row = await _named(chat, front, rest)
    if row is None:
        return
    chat.row = await chat.t.sessions.select(row.id)
    front.show(chat.words("switched", name=called(chat.row), n=chat.row.message_count))
    entries = await chat.t.sessions.read(chat.row.id, before=chat.row.last_seq + 1, limit=SAID)
    for line in lines_of(entries, last=4):
        front.show(line, "quiet")
    await chat.refresh()


async def _named(chat: "Chat", front: "Front", name: str) -> Session | None:
    """Here first, then anywhere of this agent; what does not fit one session is said, and is no error."""
    agent = chat.row.agent
    try:
        try:
            return await chat.t.sessions.resolve(name, key=chat.row.key)
        except NotFound:
            return await chat.t.sessions.resolve(name, agent=agent)
    except Ambiguous as error:
        front.show(chat.words("ambiguous", name=inline(name, 60), n=len(error.matches)), "bad")
        _show_rows(chat, front, [await chat.t.sessions.get(found) for found in error.matches[:LISTED]])
    except NotFound:
        front.show(chat.words("not_found", name=inline(name, 60)), "bad")
    return None


async def history(chat: "Chat", front: "Front", rest: str) -> None:
    loaded = await chat.t.sessions.transcript(chat.row.id)
    lines = lines_of(loaded.entries, last=int(rest) if rest.isdecimal() and int(rest) else SAID)
    for line in lines or [chat.words("nothing_said")]:
        front.show(line)


async def fork(chat: "Chat", front: "Front", rest: str) -> None:
    row = await chat.t.sessions.fork(chat.row.id, label=rest or None)
    chat.row = await chat.t.sessions.select(row.id)
    front.show(chat.words("forked", id=row.id))


async def rename(chat: "Chat", front: "Front", rest: str) -> None:
    chat.row = await chat.t.sessions.rename(chat.row.id, rest)
    front.show(chat.words("renamed", title=chat.row.title))


async def delete(chat: "Chat", front: "Front", rest: str) -> None:
    row = await _named(chat, front, rest)
    if row is None:
        return
    if row.id == chat.row.id:
        front.show(chat.words("delete_current"), "bad")
    elif await front.confirm(chat.words("delete_ask", name=inline(called(row)), n=row.message_count)):
        await chat.t.sessions.delete(row.id)
        front.show(chat.words("deleted", name=called(row)))
    else:
        front.show(chat.words("kept"))


async def search(chat: "Chat", front: "Front", rest: str) -> None:
    hits = await chat.t.sessions.search(rest, scope=Query(agent=chat.row.agent, limit=SAID))
    for hit in hits:
        mark = "*" if hit.session_id == chat.row.id else " "
        front.show(inline(f"{mark} {hit.session_id} {hit.seq} [{hit.role}] {hit.snippet}", front.columns - 1))
    if not hits:
        front.show(chat.words("no_hits", words=inline(rest, 60)))


async def recall(chat: "Chat", front: "Front", rest: str) -> None:
    await _borrowed(chat, front, "recall", "memory_cli", rest)


async def export(chat: "Chat", front: "Front", rest: str) -> None:
    await _borrowed(chat, front, "export", "export_cli", rest)


async def _borrowed(chat: "Chat", front: "Front", name: str, module: str, rest: str) -> None:
    """A command that another part of the product gives, by a function of the command's name, if it is there."""
    if not find_spec(f"turnlog.cli.{module}"):
        front.show(chat.words("unavailable", name=name), "bad")
        return
    from importlib import import_module

    act = getattr(import_module(f"turnlog.cli.{module}"), name)
    await act(chat, front, rest)

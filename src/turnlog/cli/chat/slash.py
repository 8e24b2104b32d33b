"""The commands of the chat: one table of names, usage and help, and how a line is matched with it.

`/help`, completion, the documentation's table and the errors are all made from this table.
"""

from collections.abc import Awaitable, Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from ...texts import Texts
from ..escaping import inline
from . import slash_context as context, slash_sessions as sessions
from .approving import give, open_requests

if TYPE_CHECKING:
    from .console import Console
    from .loop import Chat

Act: TypeAlias = "Callable[[Chat, Console, str], Awaitable[None]]"


class SlashCommand(Struct, frozen=True):
    name: str
    usage: str
    act: Act
    aliases: tuple[str, ...] = ()
    takes_session: bool = False
    needs_argument: bool = False

    def line(self, words: Texts) -> str:
        return words(f"slash_{self.name.replace('-', '_')}")


async def _help(chat: "Chat", console: "Console", rest: str) -> None:
    for line in help_lines(chat.words):
        console.show(line, hang=HELP_COLUMN)


async def _quit(chat: "Chat", console: "Console", rest: str) -> None:
    chat.over = True


async def _stop(chat: "Chat", console: "Console", rest: str) -> None:
    if not await chat.t.stop_anywhere(chat.row.id):
        console.show(chat.words("no_turn"))


async def _yes(chat: "Chat", console: "Console", rest: str) -> None:
    word = rest.strip().lower()
    await _answer(chat, console, word if word in ("always", "everywhere") else "yes", "")


async def _answer(chat: "Chat", console: "Console", word: str, rest: str) -> None:
    waiting = await open_requests(chat)
    if not waiting:
        console.show(chat.words("no_question"))
        return
    await give(chat, waiting[0], word, rest, console)
    if not await chat.show_questions(console):
        await chat.go_on(console)


TABLE: tuple[SlashCommand, ...] = (
    SlashCommand("new", "/new [label]", sessions.new),
    SlashCommand("sessions", "/sessions", sessions.list_, ("list",)),
    SlashCommand("switch", "/switch X", sessions.switch, takes_session=True, needs_argument=True),
    SlashCommand("history", "/history [n]", sessions.history),
    SlashCommand("context", "/context", context.context),
    SlashCommand("compact", "/compact [focus]", context.compact),
    SlashCommand("undo-compact", "/undo-compact", context.undo_compact),
    SlashCommand("expand", "/expand [seq]", context.expand),
    SlashCommand("rewind", "/rewind [n]", context.rewind),
    SlashCommand("retry", "/retry", lambda chat, console, _: chat.retry(console)),
    SlashCommand("fork", "/fork [label]", sessions.fork),
    SlashCommand("rename", "/rename T", sessions.rename, needs_argument=True),
    SlashCommand("pin", "/pin [seq]", context.pin),
    SlashCommand("unpin", "/unpin [seq]", context.unpin),
    SlashCommand("search", "/search WORDS", sessions.search, needs_argument=True),
    SlashCommand("recall", "/recall WORDS", sessions.recall, needs_argument=True),
    SlashCommand("export", "/export md|jsonl|html", sessions.export, needs_argument=True),
    SlashCommand("delete", "/delete X", sessions.delete, takes_session=True, needs_argument=True),
    SlashCommand("model", "/model [NAME]", context.model),
    SlashCommand("cost", "/cost", context.cost),
    SlashCommand("yes", "/yes [always]", _yes),
    SlashCommand("no", "/no [reason]", lambda chat, console, rest: _answer(chat, console, "no", rest)),
    SlashCommand("stop", "/stop", _stop),
    SlashCommand("help", "/help", _help),
    SlashCommand("quit", "/quit", _quit, ("exit",)),
)
"""In the order of /help and of completion, the most used first."""


HELP_COLUMN = max(len(command.usage) for command in TABLE) + 2


def help_lines(words: Texts) -> list[str]:
    return [f"{command.usage:<{HELP_COLUMN}}{command.line(words)}" for command in TABLE]


def matches(name: str) -> list[SlashCommand]:
    """The command of this name; otherwise all commands whose names begin with it."""
    wanted = name.lower()
    exact = [command for command in TABLE if wanted in (command.name, *command.aliases)]
    begun = [c for c in TABLE if any(known.startswith(wanted) for known in (c.name, *c.aliases))]
    return exact or (begun if wanted else [])


async def run(chat: "Chat", console: "Console", line: str) -> None:
    name, _, rest = line[1:].strip().partition(" ")
    found = matches(name)
    words = chat.words
    if len(found) > 1:
        names = ", ".join(f"/{command.name}" for command in found)
        console.show(words("ambiguous_command", name=inline(name), matches=names), "bad")
    elif not found:
        console.show(words("unknown", name=inline(f"/{name}", 60), hint=_hint(name, words)), "bad")
    elif found[0].needs_argument and not rest.strip():
        console.show(words("usage", usage=found[0].usage), "bad")
    else:
        await found[0].act(chat, console, rest.strip())


def _hint(name: str, words: Texts) -> str:
    near = get_close_matches(name.lower(), [command.name for command in TABLE], n=1)
    return words("near", name=near[0]) if near else words("see_help")

"""Starts a chat: opens Turnlog, finds the session, and chooses a terminal or a plain console."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...errors import UsageError
from ...texts import Texts, words_here
from ..options import Flags, opened
from .loop import Chat
from .session_choice import SessionChoice, find

if TYPE_CHECKING:
    from .console import Console


def is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb")


async def converse(flags: Flags, choice: SessionChoice, lines: Sequence[str], *, pick: bool) -> int:
    """Runs a chat; after each change of model, another one in the same session."""
    words = words_here()
    if pick and not is_terminal():
        raise UsageError("-r needs a terminal", hint="Name the session instead: --session SESSION.")
    console = _console(words, lines)
    greeted, by_key = False, choice.by_key and not pick
    while True:
        async with opened(flags, workspace=".") as t:
            if pick:
                from .picker import pick_session

                chosen = await pick_session(t, flags, words)
                if chosen is None:
                    return 0
                choice, pick = SessionChoice(session=chosen), False
            chat = Chat(t, flags, await find(t, flags, choice, select=True), words, by_key=by_key)
            console.attach(chat)
            if not greeted:
                chat.greet(console)
            await chat.run(console)
            if chat.model is None:
                return 0
            greeted, by_key, choice = True, chat.by_key, SessionChoice(session=chat.row.id)
            flags = replace(flags, model=chat.model)
            console.show(words("model_changed", model=chat.model))
            console.show(words("model_only_here"), "quiet")


def _console(words: Texts, lines: Sequence[str]) -> "Console":
    if is_terminal() and not lines:
        from .terminal import TerminalConsole

        return TerminalConsole(words)
    from .plain import PlainConsole

    return PlainConsole(words, lines)

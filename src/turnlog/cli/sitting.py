"""From the command line to a running chat: opens the store, finds the session, picks the surroundings."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..errors import UsageError
from .messages import Words, words_here
from .opening import Choice, find
from .options import Flags, opened
from .repl import Chat

if TYPE_CHECKING:
    from .fronts import Front


def is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb")


async def converse(flags: Flags, choice: Choice, lines: Sequence[str], *, pick: bool) -> int:
    """A chat, and after each change of model the next one in the same session."""
    words = words_here()
    if pick and not is_terminal():
        raise UsageError("-r needs a terminal", hint="Name the session instead: --session SESSION.")
    front = _front(words, lines)
    greeted = False
    while True:
        async with opened(flags, workspace=".") as t:
            if pick:
                from .picker import pick_session

                chosen = await pick_session(t, flags, words)
                if chosen is None:
                    return 0
                choice, pick = Choice(session=chosen), False
            chat = Chat(t, flags, await find(t, flags, choice, select=True), words)
            front.attend(chat)
            if not greeted:
                chat.greet(front)
            await chat.run(front)
            if chat.model is None:
                return 0
            greeted, choice = True, Choice(session=chat.row.id)
            flags = replace(flags, model=chat.model)
            front.show(words("model_changed", model=chat.model))


def _front(words: Words, lines: Sequence[str]) -> "Front":
    if is_terminal() and not lines:
        from .terminal import TerminalFront

        return TerminalFront(words)
    from .plain import PlainFront

    return PlainFront(words, lines)

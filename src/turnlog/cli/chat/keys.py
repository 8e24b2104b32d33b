"""Keys of the prompt: sending, new lines, pastes, Ctrl-C."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from prompt_toolkit.application.current import get_app
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from ...texts import Texts

FOLDED_LINES = 10
FOLDED_CHARS = 2_000
"""A longer paste is shown at the prompt as one placeholder; it is sent whole."""
BURST_S = 0.01
"""Nobody types two keys within this time. If Ctrl-J follows the text of its line this soon, a program sent the line."""


class Pastes:
    """Large pastes, by the placeholders that stand for them."""

    def __init__(self, words: Texts) -> None:
        self._words = words
        self._texts: dict[str, str] = {}

    def fold(self, text: str) -> str:
        lines = text.count("\n") + 1
        if lines <= FOLDED_LINES and len(text) <= FOLDED_CHARS:
            return text
        placeholder = self._words("pasted", n=len(self._texts) + 1, lines=lines)
        self._texts[placeholder] = text
        return placeholder

    def refold(self, text: str) -> str:
        """The same text with its placeholders, for a text that comes back to the prompt."""
        for placeholder, whole in self._texts.items():
            text = text.replace(whole, placeholder)
        return text

    def unfold(self, text: str) -> str:
        for placeholder, whole in self._texts.items():
            text = text.replace(placeholder, whole)
        return text


class InputHistory(FileHistory):
    """Keeps whole texts: a placeholder would mean nothing in the next chat. Errors of the disk are ignored."""

    def __init__(self, path: Path, pastes: Pastes) -> None:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)
        super().__init__(str(path))
        self._pastes = pastes

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            super().store_string(self._pastes.unfold(string))


class Rhythm:
    """Whether the text at the prompt changed just now: in this same read of the terminal, or very shortly before."""

    def __init__(self) -> None:
        self._at = 0.0
        self._in_this_read = False

    def beat(self, _: Any = None) -> None:
        self._at = time.monotonic()
        self._in_this_read = True
        asyncio.get_running_loop().call_soon(self._end_read)

    def _end_read(self) -> None:
        self._in_this_read = False

    @property
    def in_burst(self) -> bool:
        return self._in_this_read or time.monotonic() - self._at < BURST_S


def bindings(
    pastes: Pastes, rhythm: Rhythm, *, send: Callable[[KeyPressEvent], None], interrupt: Callable[[KeyPressEvent], None]
) -> KeyBindings:
    keys = KeyBindings()
    typing = ~is_searching
    choosing = Condition(_has_choice)

    @keys.add("enter", filter=typing & choosing, eager=True)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.complete_state = None

    keys.add("enter", filter=typing & ~choosing, eager=True)(send)

    @keys.add("escape", "enter", filter=typing)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-j", filter=typing, eager=True)
    def _(event: KeyPressEvent) -> None:
        if rhythm.in_burst or not event.current_buffer.text:
            send(event)
        else:
            event.current_buffer.insert_text("\n")

    @keys.add(Keys.BracketedPaste)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text(pastes.fold(event.data.replace("\r\n", "\n").replace("\r", "\n")))

    keys.add("c-c", filter=typing, eager=True)(interrupt)
    return keys


def _has_choice() -> bool:
    chosen = get_app().current_buffer.complete_state
    return chosen is not None and chosen.current_completion is not None

"""`turnlog chat -p`: one turn. The reply goes to stdout, errors to stderr, how it ended into the exit code."""

import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from ..core.events import ErrorEvent, Event, Queued, Snapshot, Stopped, TextDelta, ToolCall
from ..core.session import Session
from ..errors import UsageError
from .escaping import escape
from .failing import TURN_FAILED, exit_code_of_turn, tell
from .interrupts import on_interrupt
from .messages import words_here
from .opening import Choice, find, who_waits
from .options import Flags, opened
from .output import to_json, warn

if TYPE_CHECKING:
    from ..library import Turnlog


async def answer(flags: Flags, choice: Choice, text: str) -> int:
    """The exit code."""
    if not text.strip():
        raise UsageError("there is nothing to send", hint="Give a text: turnlog chat -p TEXT, or -p - for stdin.")
    async with opened(flags, workspace=".") as t:
        found = await find(t, flags, choice, select=False)
        with on_interrupt(lambda: t.stop(found.row.id)):
            return await _turn(t, flags, found.row, text)


async def _turn(t: "Turnlog", flags: Flags, row: Session, text: str) -> int:
    events = t.send(row, text)
    end = await (_as_json(events, row) if flags.json else _as_text(_waiting_told(t, row, events)))
    if isinstance(end, ErrorEvent):
        if not flags.json:
            tell(end.error, end.code, end.hint, as_json=False, words=words_here())
        return exit_code_of_turn(end)
    return TURN_FAILED if isinstance(end, Stopped) else 0


async def _waiting_told(t: "Turnlog", row: Session, events: AsyncIterator[Event]) -> AsyncIterator[Event]:
    async for event in events:
        if isinstance(event, Queued):
            warn(await who_waits(t, row, words_here()))
        yield event


async def _as_json(events: AsyncIterator[Event], row: Session) -> Event | None:
    first: dict[str, Any] = {"sessionId": row.id}
    end = None
    async for event in events:
        end = event
        _write(to_json({**to_builtins(event), **first}) + "\n")
        first = {}
    return end


async def _as_text(events: AsyncIterator[Event]) -> Event | None:
    """On a screen as it comes; elsewhere at the end, because a guard may still replace what was streamed."""
    shown = _Shown(streams=sys.stdout.isatty())
    end = None
    async for event in events:
        end = event
        match event:
            case TextDelta():
                shown.add(event.text)
            case Snapshot():
                shown.replace(event.text)
            case ToolCall():
                shown.part()
            case _:
                pass
    shown.finish()
    return end


class _Shown:
    def __init__(self, *, streams: bool) -> None:
        self._streams = streams
        self._parts = [""]

    def add(self, text: str) -> None:
        self._parts[-1] += text
        if self._streams:
            _write(escape(text))

    def replace(self, text: str) -> None:
        """Of the part under way; on a screen what was said cannot be taken back."""
        if self._streams and self._parts[-1]:
            _write("\n")
        self._parts[-1] = ""
        self.add(text)

    def part(self) -> None:
        """What follows is another message of the same turn."""
        if self._parts[-1]:
            self._parts.append("")
            if self._streams:
                _write("\n\n")

    def finish(self) -> None:
        text = "\n\n".join(filter(None, self._parts))
        if self._streams:
            _write("" if not text or text.endswith("\n") else "\n")
        elif text:
            _write(escape(text) + "\n" * (not text.endswith("\n")))


def _write(text: str) -> None:
    """A reader who has gone does not end the turn: what was said is in the store."""
    with suppress(BrokenPipeError, ValueError):
        sys.stdout.write(text)
        sys.stdout.flush()

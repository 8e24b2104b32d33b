"""`turnlog chat -p`: one turn. The reply goes to stdout, errors go to stderr, and the exit code says how it ended."""

import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from ...core.events import ErrorEvent, Event, Queued, Snapshot, Stopped, TextDelta, ToolCall
from ...core.session import Session
from ...errors import UsageError
from ...texts import words_here
from ..escaping import escape
from ..exit_codes import TURN_FAILED, exit_code_of_turn, tell
from ..options import Flags, opened
from ..output import to_json, warn, write_reply
from .interrupts import on_interrupt
from .session_choice import SessionChoice, find, waiting_note

if TYPE_CHECKING:
    from ...library import Turnlog


async def answer(flags: Flags, choice: SessionChoice, text: str) -> int:
    """The exit code."""
    if not text.strip():
        raise UsageError("there is nothing to send", hint="Give a text: turnlog chat -p TEXT, or -p - for stdin.")
    async with opened(flags, workspace=".") as t:
        found = await find(t, flags, choice, select=False)
        row = await t.renewed(found.row) if choice.by_key else found.row
        with on_interrupt(lambda: t.stop(row.id)):
            return await _turn(t, flags, row, text)


async def _turn(t: "Turnlog", flags: Flags, row: Session, text: str) -> int:
    events = (await t.accept(row, text, asks=False)).follow()
    end = await (_as_json(events, row) if flags.json else _as_text(_waiting_told(t, row, events)))
    if isinstance(end, ErrorEvent):
        if not flags.json:
            tell(end.error, end.code, end.hint, as_json=False, words=words_here())
        return exit_code_of_turn(end)
    return TURN_FAILED if isinstance(end, Stopped) else 0


async def _waiting_told(t: "Turnlog", row: Session, events: AsyncIterator[Event]) -> AsyncIterator[Event]:
    async for event in events:
        if isinstance(event, Queued):
            warn(await waiting_note(t, row, words_here()))
        yield event


async def _as_json(events: AsyncIterator[Event], row: Session) -> Event | None:
    first: dict[str, Any] = {"sessionId": row.id}
    end = None
    async for event in events:
        end = event
        write_reply(to_json({**to_builtins(event), **first}) + "\n")
        first = {}
    return end


async def _as_text(events: AsyncIterator[Event]) -> Event | None:
    """Prints the reply: on a terminal as it comes, elsewhere at the end, because a `snapshot` may replace text."""
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
        self._parts: list[list[str]] = [[]]
        """The pieces of each message of the turn, joined at the end: adding to a string would copy it each time."""

    def add(self, text: str) -> None:
        self._parts[-1].append(text)
        if self._streams:
            write_reply(escape(text))

    def replace(self, text: str) -> None:
        """Replaces the current message; on a terminal the printed text stays."""
        if self._streams and self._parts[-1]:
            write_reply("\n")
        self._parts[-1] = []
        self.add(text)

    def part(self) -> None:
        """Begins another message of the same turn."""
        if self._parts[-1]:
            self._parts.append([])
            if self._streams:
                write_reply("\n\n")

    def finish(self) -> None:
        text = "\n\n".join(filter(None, map("".join, self._parts)))
        if self._streams:
            write_reply("" if not text or text.endswith("\n") else "\n")
        elif text:
            write_reply(escape(text) + "\n" * (not text.endswith("\n")))

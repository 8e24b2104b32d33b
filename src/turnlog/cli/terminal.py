"""The chat on a terminal, in its normal buffer: scrollback, selection and copying stay the terminal's own.

Whatever is said goes to the scrollback once. Below it stand only the few lines that still change: the end of an
answer, the prompt, the status line. The prompt `You > ` is there when a message begins a turn; while one runs, what is
typed behind `› ` joins it.
"""

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.key_binding import KeyPressEvent
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.shortcuts import PromptSession
from prompt_toolkit.styles import Style

from ..core.events import Done, Event
from ..errors import TurnlogError
from .completion import ChatCompleter
from .fronts import Steer, Stop
from .keys import History, Pastes, Rhythm, bindings
from .messages import Words
from .running import Running, painted
from .telling import Tone

if TYPE_CHECKING:
    from .repl import Chat

PROMPT = "You > "
FRAME_S = 0.05
"""Between two redraws of an answer under way: 20 a second look smooth, and leave the machine to others."""
YES = ("y", "yes", "是", "好")
STYLE = Style.from_dict(
    {
        "prompt": "bold ansigreen",
        "steer": "ansibrightblack",
        "bottom-toolbar": "noreverse ansibrightblack",
        "bottom-toolbar.text": "noreverse ansibrightblack",
    }
)


class TerminalFront:
    def __init__(self, words: Words) -> None:
        self._words = words
        self._pastes = Pastes(words)
        self._output = make_output()
        self._chat: Chat | None = None
        self._asking: PromptSession[str] | None = None
        self._steering: PromptSession[str] | None = None
        self._turn: Running | None = None
        self._steer: Steer | None = None
        self._stop: Stop | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._typed = ""
        """What was typed during a turn and not sent: the next prompt begins with it."""

    def attend(self, chat: "Chat") -> None:
        self._chat = chat
        self._start(self._settle_in(chat))

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _settle_in(self, chat: "Chat") -> None:
        """What the first answer needs, got ready while the person reads and types."""
        await asyncio.sleep(FRAME_S)
        self._steering = self._steering or self._make_steering()
        with suppress(TurnlogError):  # whatever is wrong, the first turn tells
            await chat.refresh()
        if self._asking:
            self._asking.app.invalidate()
        await asyncio.to_thread(warm_up)

    @property
    def columns(self) -> int:
        return shutil.get_terminal_size().columns

    def show(self, text: str, tone: Tone = "plain") -> None:
        if self._turn is not None:
            self._turn.add(painted(text, tone))
        else:
            self._write([painted(text, tone)])

    def _write(self, lines: Sequence[str]) -> None:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()

    async def ask(self, default: str = "") -> str | None:
        session = self._asking = self._asking or self._make_asking()
        begin, self._typed = self._pastes.refold(default or self._typed), ""
        try:
            return self._pastes.unfold(await session.prompt_async(default=begin, handle_sigint=False))
        except EOFError:
            return None

    def _make_asking(self) -> "PromptSession[str]":
        chat = self._chat
        assert chat is not None  # attend comes first
        rhythm = Rhythm()
        session: PromptSession[str] = PromptSession(
            [("class:prompt", PROMPT)],
            output=self._output,
            style=STYLE,
            multiline=True,
            prompt_continuation=" " * len(PROMPT),
            history=History(chat.t.settings.home / "chat-history", self._pastes),
            completer=ChatCompleter(self._attended),
            complete_while_typing=Condition(lambda: session.default_buffer.text.startswith("/")),
            enable_open_in_editor=True,
            tempfile_suffix=".md",
            bottom_toolbar=self._status,
            key_bindings=bindings(
                self._pastes,
                rhythm,
                send=lambda event: event.current_buffer.validate_and_handle(),
                interrupt=_clear_or_leave,
            ),
        )
        session.default_buffer.on_text_changed += rhythm.beat
        return session

    def _attended(self) -> "Chat":
        assert self._chat is not None
        return self._chat

    def _status(self) -> StyleAndTextTuples:
        chat = self._attended()
        return [("", chat.gauge.line(chat.row, self.columns - 1))]

    async def confirm(self, question: str) -> bool:
        asking: PromptSession[str] = PromptSession(output=self._output)
        try:
            answer = await asking.prompt_async(f"{question} [y/N] ", handle_sigint=False)
        except (EOFError, KeyboardInterrupt):
            return False
        return answer.strip().lower() in YES

    async def follow(self, events: AsyncIterator[Event], *, steer: Steer, stop: Stop) -> Event:
        self._turn = running = Running(self._words, self.columns)
        self._steer, self._stop = steer, stop
        session = self._steering = self._steering or self._make_steering()
        typing = asyncio.create_task(session.prompt_async(default=self._typed, handle_sigint=False))
        try:
            return await self._draw(events, running, session)
        finally:
            self._turn = None
            await _leave(session, typing)
            self._typed = session.default_buffer.text
            running.finish()
            self._write([*running.take_lines(), ""])

    async def _draw(self, events: AsyncIterator[Event], running: Running, session: "PromptSession[str]") -> Event:
        end: Event = Done(session_id="", token_estimate=0)
        loop = asyncio.get_running_loop()
        drawn = 0.0
        async for event in events:
            end = event
            running.take(event)
            if loop.time() - drawn >= FRAME_S:
                running.resize(self.columns)
                running.settle()
                await self._flush(running, session)
                drawn = loop.time()
        return end

    async def _flush(self, running: Running, session: "PromptSession[str]") -> None:
        lines = running.take_lines()
        if not lines:
            session.app.invalidate()
        elif session.app.is_running:
            await run_in_terminal(lambda: self._write(lines))
        else:
            self._write(lines)

    def _make_steering(self) -> "PromptSession[str]":
        rhythm = Rhythm()
        session: PromptSession[str] = PromptSession(
            lambda: ANSI(self._turn.live() if self._turn else ""),
            output=self._output,
            style=STYLE,
            multiline=True,
            erase_when_done=True,
            refresh_interval=2 * FRAME_S,
            bottom_toolbar=self._status,
            key_bindings=bindings(self._pastes, rhythm, send=self._send_along, interrupt=self._interrupt),
        )
        session.default_buffer.on_text_changed += rhythm.beat
        return session

    def _send_along(self, event: KeyPressEvent) -> None:
        """Enter, while a turn runs."""
        text = event.current_buffer.text
        event.current_buffer.reset()
        if text.strip() and self._turn and self._steer:
            self._turn.add(painted(f"› {text}", "quiet"))
            self._start(_quietly(self._steer, self._pastes.unfold(text)))

    def _interrupt(self, event: KeyPressEvent) -> None:
        """Ctrl-C, while a turn runs: stops it; once more, before it has stopped, leaves."""
        if self._stop and not self._stop():
            self._attended().over = True


def _clear_or_leave(event: KeyPressEvent) -> None:
    if event.current_buffer.text:
        event.current_buffer.reset()
    else:
        event.app.exit(exception=KeyboardInterrupt())


async def _quietly(steer: Steer, text: str) -> None:
    with suppress(TurnlogError):  # the turn it was meant for tells what is wrong
        await steer(text)


async def _leave(session: "PromptSession[str]", typing: "asyncio.Task[str]") -> None:
    """Ends the prompt, which may not have begun yet."""
    while not typing.done() and not session.app.is_running:  # noqa: ASYNC110 - within a step or two, and untold
        await asyncio.sleep(0)
    if not typing.done():
        session.app.exit(result="")
    with suppress(EOFError, KeyboardInterrupt):
        await typing


def warm_up() -> None:
    from .markdown import render

    render("*ready*", 80)


def make_output() -> Vt100_Output:
    """Asks the terminal nothing: where it has no answer (a recorder, an expect script) we would wait for one.

    Prompt toolkit hides the status line until it knows how many rows are left below the cursor; that there is one is
    always true, because the terminal scrolls.
    """
    output = Vt100_Output.from_pty(sys.stdout, default_color_depth=ColorDepth.from_env())
    output.enable_cpr = False
    setattr(output, "get_rows_below_cursor_position", lambda: 1)  # noqa: B010 - a method, replaced on purpose
    return output

"""The chat on a terminal, in its normal buffer, so that scrollback, selection and copying work as usual.

Every final line is printed to the scrollback once. Below it are only the few lines that still change: the end of a
reply, the prompt, the status line. At the prompt `You > ` a message begins a turn; while a turn runs, a message typed
after `› ` joins it.
"""

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.application.current import set_app
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.key_binding import KeyPressEvent
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.shortcuts import PromptSession
from prompt_toolkit.styles import Style

from ...core.events import ApprovalRequest, Done, Event
from ...errors import TurnlogError
from ...texts import Texts
from ..escaping import escape
from ..wrapping import wrap
from .completion import ChatCompleter
from .console import PROMPT, YES, Steer, Stop
from .keys import InputHistory, Pastes, Rhythm, bindings
from .notes import Tone
from .turn_view import TurnView, painted

if TYPE_CHECKING:
    from .loop import Chat

FRAME_S = 0.05
"""Between two redraws of a reply: 20 a second look smooth and cost little."""
STYLE = Style.from_dict(
    {
        "prompt": "bold ansigreen",
        "steer": "ansibrightblack",
        "bottom-toolbar": "noreverse ansibrightblack",
        "bottom-toolbar.text": "noreverse ansibrightblack",
    }
)


class TerminalConsole:
    def __init__(self, words: Texts) -> None:
        self._words = words
        self._pastes = Pastes(words)
        self._output = make_output()
        self._chat: Chat | None = None
        self._asking: PromptSession[str] | None = None
        self._steering: PromptSession[str] | None = None
        self._view: TurnView | None = None
        self._steer: Steer | None = None
        self._stop: Stop | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._typed = ""
        """Text that was typed during a turn and not sent: the next prompt starts with it."""

    def attach(self, chat: "Chat") -> None:
        self._chat = chat
        self._start(self._prepare(chat))

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _prepare(self, chat: "Chat") -> None:
        """Prepares what the first reply needs, while the person reads and types."""
        await asyncio.sleep(FRAME_S)
        self._steering = self._steering or self._make_steering()
        with suppress(TurnlogError):  # the first turn shows the same error
            await chat.refresh()
        if self._asking:
            self._asking.app.invalidate()
        await asyncio.to_thread(warm_up)

    @property
    def columns(self) -> int:
        return shutil.get_terminal_size().columns

    def show(self, text: str, tone: Tone = "plain", hang: int | None = None) -> None:
        line = painted(text, tone, self.columns, hang)
        if self._view is not None:
            self._view.add(line)
        else:
            self._write([line])

    shows_others = True

    async def show_other(self, text: str) -> None:
        await self._print_above([painted(text, "quiet", self.columns)])

    async def show_other_answer(self, text: str) -> None:
        from .markdown import render

        await self._print_above([*await asyncio.to_thread(render, text, self.columns), ""])

    async def _print_above(self, lines: Sequence[str]) -> None:
        """Prints lines above the prompt, and keeps the text at the prompt."""
        if self._view is not None:
            for line in lines:
                self._view.add(line)
        elif self._asking and self._asking.app.is_running:
            with set_app(self._asking.app):
                await run_in_terminal(lambda: self._write(lines))
        else:
            self._write(lines)

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
        chat = self._attached()
        rhythm = Rhythm()
        session: PromptSession[str] = PromptSession(
            [("class:prompt", PROMPT)],
            output=self._output,
            style=STYLE,
            multiline=True,
            prompt_continuation=" " * len(PROMPT),
            history=InputHistory(chat.t.settings.home / "chat-history", self._pastes),
            completer=ChatCompleter(self._attached),
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

    def _attached(self) -> "Chat":
        assert self._chat is not None  # attach comes first
        return self._chat

    def _status(self) -> StyleAndTextTuples:
        chat = self._attached()
        return [("", chat.gauge.line(chat.row, self.columns - 1))]

    async def confirm(self, question: str) -> bool:
        asking: PromptSession[str] = PromptSession(output=self._output)
        try:
            asked = wrap(f"{escape(question)} [y/N]", self.columns - len(" y"))
            answer = await asking.prompt_async(f"{asked} ", handle_sigint=False)
        except (EOFError, KeyboardInterrupt):
            return False
        return answer.strip().lower() in YES

    async def follow(self, events: AsyncIterator[Event], *, steer: Steer, stop: Stop) -> Event:
        self._view = view = TurnView(self._words, self.columns)
        self._steer, self._stop = steer, stop
        session = self._steering = self._steering or self._make_steering()
        typing = asyncio.create_task(session.prompt_async(default=self._typed, handle_sigint=False))
        try:
            return await self._draw(events, view, session)
        finally:
            self._view = None
            await _leave(session, typing)
            self._typed = session.default_buffer.text
            view.finish()
            self._write([*view.take_lines(), ""])

    async def _draw(self, events: AsyncIterator[Event], view: TurnView, session: "PromptSession[str]") -> Event:
        end: Event = Done(session_id="", token_estimate=0)
        loop = asyncio.get_running_loop()
        drawn = 0.0
        async for event in events:
            end = event
            view.take(event)
            if loop.time() - drawn >= FRAME_S or isinstance(event, ApprovalRequest):
                view.resize(self.columns)
                view.settle()
                await self._flush(view, session)
                drawn = loop.time()
        return end

    async def _flush(self, view: TurnView, session: "PromptSession[str]") -> None:
        lines = view.take_lines()
        if not lines:
            session.app.invalidate()
        elif session.app.is_running:
            await run_in_terminal(lambda: self._write(lines))
        else:
            self._write(lines)

    def _make_steering(self) -> "PromptSession[str]":
        rhythm = Rhythm()
        session: PromptSession[str] = PromptSession(
            lambda: ANSI(self._view.changing() if self._view else ""),
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
        """Enter while a turn runs: sends the text to this turn."""
        text = event.current_buffer.text
        event.current_buffer.reset()
        if text.strip() and self._view and self._steer:
            self._view.add(painted(f"› {text}", "quiet", self.columns))
            self._start(_quietly(self._steer, self._pastes.unfold(text)))

    def _interrupt(self, event: KeyPressEvent) -> None:
        """Ctrl-C while a turn runs: stops the turn; pressed again before it has stopped, ends the chat."""
        if self._stop and not self._stop():
            self._attached().over = True


def _clear_or_leave(event: KeyPressEvent) -> None:
    if event.current_buffer.text:
        event.current_buffer.reset()
    else:
        event.app.exit(exception=KeyboardInterrupt())


async def _quietly(steer: Steer, text: str) -> None:
    with suppress(TurnlogError):  # the turn shows the same error
        await steer(text)


async def _leave(session: "PromptSession[str]", typing: "asyncio.Task[str]") -> None:
    """Ends the prompt, which may not have started yet."""
    while not typing.done() and not session.app.is_running:  # noqa: ASYNC110 - a few steps, and there is no event for it
        await asyncio.sleep(0)
    if not typing.done():
        session.app.exit(result="")
    with suppress(EOFError, KeyboardInterrupt):
        await typing


def warm_up() -> None:
    from .markdown import render

    render("*ready*", 80)


def make_output() -> Vt100_Output:
    """Sends the terminal no queries: a recorder or an expect script would not answer them.

    Prompt toolkit hides the status line until it knows how many rows are left below the cursor; that there is one is
    always true, because the terminal scrolls.
    """
    output = Vt100_Output.from_pty(sys.stdout, default_color_depth=ColorDepth.from_env())
    output.enable_cpr = False
    setattr(output, "get_rows_below_cursor_position", lambda: 1)  # noqa: B010 - a method, replaced on purpose
    return output

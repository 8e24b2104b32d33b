"""Completion at the prompt: commands while they are typed; session names and files at Tab."""

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from ...core.query import Query
from ..escaping import inline
from . import slash

if TYPE_CHECKING:
    from .loop import Chat

OFFERED_MAX = 40


class ChatCompleter(Completer):
    def __init__(self, chat: "Callable[[], Chat]") -> None:
        self._chat = chat

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Not used: prompt_toolkit calls the async method."""
        return ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        text = document.text_before_cursor
        name, space, rest = text[1:].partition(" ")
        if text.startswith("/") and not space:
            for found in self._commands(name):
                yield found
        elif text.startswith("/") and [command.takes_session for command in slash.matches(name)] == [True]:
            async for found in self._sessions(rest):
                yield found
        elif complete_event.completion_requested:
            for found in _files(document.get_word_before_cursor(WORD=True)):
                yield found

    def _commands(self, name: str) -> Iterator[Completion]:
        words = self._chat().words
        for command in slash.TABLE:
            if command.name.startswith(name.lower()):
                usage = command.usage.partition(" ")[2]
                yield Completion(
                    f"/{command.name}",
                    start_position=-len(name) - 1,
                    display=f"/{command.name} {usage}".strip(),
                    display_meta=command.line(words),
                )

    async def _sessions(self, beginning: str) -> AsyncGenerator[Completion, None]:
        chat = self._chat()
        query = Query(agent=chat.row.agent, prefix=beginning or None, limit=OFFERED_MAX)
        for row in (await chat.t.sessions.list(query)).items:
            name = row.label if row.label and row.label.startswith(beginning) else row.id
            if name.startswith(beginning) and row.id != chat.row.id:
                yield Completion(inline(name), start_position=-len(beginning), display_meta=inline(row.title, 40))


def _files(word: str) -> Iterator[Completion]:
    """Files in the directory of the chat, which is also the workspace of the file tools."""
    folder, beginning = os.path.split(word)
    try:
        names = sorted(os.listdir(folder or "."))
    except OSError:
        return
    for name in names[: 50 * OFFERED_MAX]:
        if name.startswith(beginning) and (beginning or not name.startswith(".")) and name.isprintable():
            ending = "/" if os.path.isdir(os.path.join(folder, name)) else ""
            yield Completion(name + ending, start_position=-len(beginning))

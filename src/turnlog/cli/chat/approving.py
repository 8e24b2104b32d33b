"""Questions of a turn to the person at the terminal: reads and gives the answer. `notes` shows them.

While a call waits, a line that is `y`, `a`, `w`, `n`, `n REASON` or `e {ARGUMENTS}` is the answer; any other line is a
message, which denies the call. `/yes` and `/no` answer in every chat, also after a restart.
"""

import json
from typing import TYPE_CHECKING, Any, cast

from ...core import approvals
from ...core.events import ApprovalAnswered, ApprovalRequest, of_request
from ...errors import UsageError

if TYPE_CHECKING:
    from .console import Console
    from .loop import Chat


class Questions:
    """The calls that wait in the turn that the chat shows."""

    def __init__(self, chat: "Chat") -> None:
        self._chat = chat
        self._open: dict[str, ApprovalRequest] = {}

    def take(self, event: object) -> None:
        match event:
            case ApprovalRequest():
                self._open[event.call_id] = event
            case ApprovalAnswered():
                self._open.pop(event.call_id, None)
            case _:
                pass

    def clear(self) -> None:
        self._open.clear()

    async def answer(self, line: str, console: "Console") -> bool:
        """Whether the line was an answer to the oldest question."""
        word, _, rest = line.strip().partition(" ")
        if not self._open or word.lower() not in _WORDS or (rest and word.lower() in ("y", "yes", "a", "w", "/yes")):
            return False
        request = next(iter(self._open.values()))
        await give(self._chat, request, _WORDS[word.lower()], rest.strip(), console)
        self._open.pop(request.call_id, None)
        return True


_WORDS = {
    **dict.fromkeys(("y", "yes", "/yes"), "yes"),
    **dict.fromkeys(("n", "no", "/no"), "no"),
    "a": "always",
    "w": "everywhere",
    "e": "edit",
}


async def give(chat: "Chat", request: ApprovalRequest, word: str, rest: str, console: "Console") -> None:
    call_id, seq = request.call_id, request.seq
    match word:
        case "no":
            await chat.t.deny(chat.row, call_id, rest, request=seq)
        case "edit":
            try:
                await chat.t.approve(chat.row, call_id, input=_arguments(rest), request=seq)
            except UsageError as error:
                console.show(f"{error}. {error.hint}", "bad")
        case "everywhere":
            await chat.t.approve(chat.row, call_id, always="everywhere", request=seq)
        case _:
            await chat.t.approve(chat.row, call_id, always=word == "always", request=seq)


def _arguments(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UsageError(
            "these are not the arguments of a call", hint='Write e {"path": "…", "content": "…"} on one line.'
        ) from error
    if not isinstance(found, dict):
        raise UsageError("these are not the arguments of a call", hint="Write a JSON object.")
    return cast("dict[str, Any]", found)


async def open_requests(chat: "Chat") -> list[ApprovalRequest]:
    """The questions that wait in the session, also those of an earlier process."""
    entries = await chat.t.sessions.read(chat.row.id)
    return [of_request(one) for one in approvals.unanswered(approvals.asked(entries))]

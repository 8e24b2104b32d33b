"""Replies that have not reached anybody: how many each row of Chats has, and each of them for its drawer.

Found by one look at the letters that wait or failed, whatever the number of rows and of replies that were delivered.
"""

from typing import Literal, Protocol

from msgspec import Struct

from ..core import masking
from ..outbox import Letter, Letters, State, token_of, undelivered
from .service import Service

SHOWN_CHARS = 2_000
"""Of a reply that waits; its session has the whole of it."""
SHOWN_MAX = 50
"""Of one conversation: the newest."""
STATES: tuple[State, ...] = ("waiting", "refused", "expired")


class Reply(Struct, frozen=True, kw_only=True):
    """One that waits, was refused or came too late."""

    id: str
    """For the page: no other has it."""
    sender: str
    state: State
    since: int
    """Unix ms, as `again`."""
    again: int
    attempts: int
    why: str
    text: str
    """What is left of it: of one that ended, nothing."""


class Row(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def agent(self) -> str: ...
    @property
    def id(self) -> str: ...


class Replies:
    """Of all conversations."""

    def __init__(self, letters: Letters) -> None:
        self._of: dict[tuple[str, ...], Letters] = {}
        for letter_id, letter in letters:
            for place in (("log", letter.channel_id), ("session", _session_of(letter_id))):
                self._of.setdefault((*place, letter.agent), []).append((letter_id, letter))

    def counts(self, row: Row) -> dict[State, int]:
        """How many in each state, waiting ones first; nothing where all were delivered."""
        states = [letter.state for _, letter in self._of.get((row.kind, row.id, row.agent), ())]
        return {state: states.count(state) for state in STATES if state in states}

    def of(self, kind: Literal["log", "session"], name: str, agent: str) -> list[Reply]:
        """Oldest first."""
        return [_reply(*one) for one in self._of.get((kind, name, agent), [])[-SHOWN_MAX:]]


async def replies_in(service: Service) -> Replies:
    return Replies(await undelivered(service.turnlog.store.ledger))


def _reply(letter_id: str, letter: Letter) -> Reply:
    return Reply(
        id=token_of(letter_id, 0),
        sender=letter.agent,
        state=letter.state,
        since=letter.order,
        again=letter.not_before,
        attempts=letter.attempts,
        why=letter.why,
        # A secret that begins within what is shown must be seen whole to be known as one.
        text=masking.mask(letter.text[: 2 * SHOWN_CHARS])[:SHOWN_CHARS],
    )


def _session_of(letter_id: str) -> str:
    """The id of an answer begins with its session's; that of a command's answer with something that is none."""
    return letter_id.partition("/")[0]

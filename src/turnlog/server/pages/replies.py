"""Replies that were not delivered: their number for each row of Sessions, and their texts for the drawer.

One query finds all of them, whatever the number of rows and of delivered replies.
"""

from typing import Literal, Protocol

from msgspec import Struct

from ...channels.outbox import OutgoingReplies, OutgoingReply, State, token_of
from ...core import masking
from ...core.principals import Principal
from ..service import Service

SHOWN_CHARS = 2_000
"""Of a waiting reply; its session has the whole text."""
SHOWN_MAX = 50
"""The newest ones of one conversation."""
STATES: tuple[State, ...] = ("waiting", "refused", "expired")


class PendingReplyRow(Struct, frozen=True, kw_only=True):
    """A reply that waits, was refused or expired."""

    id: str
    """Unique in the page."""
    sender: str
    state: State
    since: int
    """Unix ms, as `again`."""
    again: int
    attempts: int
    why: str
    text: str
    """The part that was not sent yet; empty if the reply has ended."""


class ReplyRow(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def agent(self) -> str: ...
    @property
    def id(self) -> str: ...


class Replies:
    """Undelivered replies of all conversations."""

    def __init__(self, replies: OutgoingReplies) -> None:
        self._of: dict[tuple[str, ...], OutgoingReplies] = {}
        for reply_id, reply in replies:
            for place in (("log", reply.channel_id), ("session", _session_of(reply_id))):
                self._of.setdefault((*place, reply.agent), []).append((reply_id, reply))

    def counts(self, row: ReplyRow) -> dict[State, int]:
        """The number in each state, waiting ones first; empty if all were delivered."""
        states = [reply.state for _, reply in self._of.get((row.kind, row.id, row.agent), ())]
        return {state: states.count(state) for state in STATES if state in states}

    def of(self, kind: Literal["log", "session"], name: str, agent: str) -> list[PendingReplyRow]:
        """Oldest first."""
        return [_reply(*one) for one in self._of.get((kind, name, agent), [])[-SHOWN_MAX:]]


async def replies_in(service: Service, who: Principal) -> Replies:
    """No replies unless the principal is an administrator, who may see the channels."""
    return Replies(await service.undelivered() if "admin" in who.scopes else [])


def _reply(reply_id: str, reply: OutgoingReply) -> PendingReplyRow:
    return PendingReplyRow(
        id=token_of(reply_id, 0),
        sender=reply.agent,
        state=reply.state,
        since=reply.order,
        again=reply.not_before,
        attempts=reply.attempts,
        why=reply.why,
        # Masked before cutting, because a secret is recognised only as a whole.
        text=masking.mask(reply.text[: 2 * SHOWN_CHARS])[:SHOWN_CHARS],
    )


def _session_of(reply_id: str) -> str:
    """The id of a reply begins with its session's id; the id of a command's reply begins with something else."""
    return reply_id.partition("/")[0]

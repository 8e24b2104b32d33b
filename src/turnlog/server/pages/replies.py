"""Replies that were not delivered: their number for each row of Sessions, and their texts for the drawer.

One query finds all of them, whatever the number of rows and of delivered replies.
"""

from typing import Literal, TypeAlias

from msgspec.structs import replace

from ...channels.outbox import OutgoingReplies, State, token_of
from ...core import masking
from ...core.principals import Principal
from ..service import Service

SHOWN_CHARS = 2_000
"""Of a waiting reply; its session has the whole text."""
SHOWN_MAX = 50
"""The newest ones of one conversation."""
ReplyPlaceKind: TypeAlias = Literal["log", "session"]
STATES: tuple[State, ...] = ("waiting", "refused", "expired")


class Replies:
    """Undelivered replies of all conversations."""

    def __init__(self, replies: OutgoingReplies) -> None:
        self._of: dict[tuple[str, ...], OutgoingReplies] = {}
        for reply_id, reply in replies:
            # The id of a reply begins with its session's id; the id of a command's reply begins with something else.
            for place in (("log", reply.channel_id), ("session", reply_id.partition("/")[0])):
                self._of.setdefault((*place, reply.agent), []).append((reply_id, reply))

    def counts(self, kind: ReplyPlaceKind, name: str, agent: str) -> dict[State, int]:
        """The number in each state, waiting ones first; empty if all were delivered."""
        states = [reply.state for _, reply in self._of.get((kind, name, agent), ())]
        return {state: states.count(state) for state in STATES if state in states}

    def of(self, kind: ReplyPlaceKind, name: str, agent: str) -> OutgoingReplies:
        """Oldest first, with ids that are unique in the page. The text is the part that was not sent yet; a reply that
        has ended has none.
        """
        found = self._of.get((kind, name, agent), [])[-SHOWN_MAX:]
        # Masked before cutting, because a secret is recognised only as a whole.
        texts = [masking.mask(reply.text[: 2 * SHOWN_CHARS])[:SHOWN_CHARS] for _, reply in found]
        return [(token_of(one, 0), replace(reply, text=text)) for (one, reply), text in zip(found, texts, strict=True)]


async def replies_in(service: Service, who: Principal) -> Replies:
    """No replies unless the principal is an administrator, who may see the channels."""
    return Replies(await service.undelivered() if "admin" in who.scopes else [])

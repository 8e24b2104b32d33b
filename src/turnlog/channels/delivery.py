"""One message that an account received: its session key, chat, ids and sender, and the text that the model sees."""

import asyncio

from msgspec.structs import replace

from ..core import keys
from ..core.history import name_of
from ..core.keys import SessionKey
from ..texts import Language
from ..turns.deliveries import delivery_key, scope_of
from . import Arrival, Unsent
from .accounts import Account
from .commands import language_of
from .outbox import OutgoingReply, PendingReply, ReplyPlace

NAME_S = 1.0
"""How long a message waits until its platform says who the sender is. The platform waits for us meanwhile."""


class Delivery:
    def __init__(self, account: Account, arrival: Arrival, place: SessionKey, channel_id: str) -> None:
        self.account = account
        self.arrival = arrival
        self.place = place
        self.channel_id = channel_id
        self.scope = scope_of(account.kind, account.name)
        self.dedupe_id = arrival.inbound.dedupe_id or f"{channel_id}/{arrival.inbound.message_id}"
        """Where the platform gives no delivery id, chat and message id identify the delivery."""
        self.key = delivery_key(self.scope, self.dedupe_id)
        self.notice_id = f"notice|{self.key}"
        """The id of a reply that no turn made: the answer to a command, or that the queue is full."""
        self.language: Language = language_of(arrival.inbound.text, arrival.language)

    @property
    def is_asked(self) -> bool:
        """Whether the bot should answer. True where the platform does not say whether the bot was mentioned."""
        if self.place.kind != "group" or self.account.settings.answer == "always":
            return True
        return self.arrival.mentioned is not False

    @property
    def pending(self) -> PendingReply:
        return PendingReply(
            kind=self.account.kind,
            account=self.account.name,
            agent=self.account.settings.agent,
            channel_id=self.channel_id,
            address=self.arrival.address,
            dedupe_id=self.dedupe_id,
            language=self.language,
        )

    def reply(self, text: str) -> OutgoingReply:
        return outgoing_of(self.pending, text)


def outgoing_of(pending: PendingReply, text: str) -> OutgoingReply:
    return OutgoingReply(**{name: getattr(pending, name) for name in ReplyPlace.__struct_fields__}, text=text)


def chat_of(account: Account, arrival: Arrival) -> SessionKey:
    """The chat itself, whichever session its messages go to. The convlog has one record per chat."""
    own = keys.resolve(arrival.inbound, agent=account.settings.agent)
    return replace(own, peer=arrival.inbound.chat_id or own.peer)


async def with_name(account: Account, arrival: Arrival) -> Arrival:
    try:
        async with asyncio.timeout(NAME_S):
            return await account.channel.complete(arrival)
    except (Unsent, TimeoutError):
        return arrival  # the sender's id tells people apart as well


def text_for_model(arrival: Arrival, place: SessionKey) -> str:
    """The text that is stored and that the model sees. In a group it begins with the sender's name in brackets.

    Several messages may become one prompt message, where a line that begins with `[` begins the next message. So the
    name has no brackets and no line breaks, and later lines that begin with `[` are indented.
    """
    text = arrival.inbound.text
    if place.kind != "group":
        return text
    name = name_of(arrival.sender_name) or name_of(arrival.inbound.sender_id or "")
    safe = name.replace("[", "(").replace("]", ")") or "somebody"
    first, *rest = text.splitlines() or [""]
    return f"[{safe}] " + "\n".join((first, *(f" {line}" if line.startswith("[") else line for line in rest)))

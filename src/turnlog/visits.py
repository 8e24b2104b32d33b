"""One arrival at one booth: the place it belongs to, the chat it came from, the ids that tell it from all others."""

from msgspec.structs import replace

from .channels import Arrival
from .channels.choosing import Booth
from .chat_commands import Language, language_of
from .core import keys
from .core.keys import SessionKey
from .outbox import Awaited, Letter


class Visit:
    """One arrival at one booth, and everything that is derived from it."""

    def __init__(self, booth: Booth, arrival: Arrival, place: SessionKey, channel_id: str) -> None:
        self.booth = booth
        self.arrival = arrival
        self.place = place
        self.channel_id = channel_id
        self.scope = f"{booth.kind}|{booth.account or ''}"
        self.delivery = arrival.inbound.dedupe_id or ""
        self.dedupe_id = self.delivery or f"{channel_id}/{arrival.inbound.message_id}"
        """A platform that names no delivery is told apart by its message."""
        self.key = f"{self.scope}|{self.dedupe_id}"
        self.note_id = f"note|{self.key}"
        self.language: Language = language_of(arrival.inbound.text, arrival.language)

    @property
    def awaited(self) -> Awaited:
        return Awaited(
            kind=self.booth.kind,
            account=self.booth.account,
            agent=self.booth.agent,
            channel_id=self.channel_id,
            address=self.arrival.address,
            dedupe_id=self.dedupe_id,
            language=self.language,
        )

    def letter(self, text: str) -> Letter:
        return letter_of(self.awaited, text)


def letter_of(awaited: Awaited, text: str) -> Letter:
    return Letter(
        kind=awaited.kind,
        account=awaited.account,
        agent=awaited.agent,
        channel_id=awaited.channel_id,
        address=awaited.address,
        text=text,
    )


def chat_of(booth: Booth, arrival: Arrival) -> SessionKey:
    """The chat itself, whatever sessions its messages go to: what the convlog keeps apart, and answers go to."""
    own = keys.resolve(arrival.inbound, agent=booth.agent)
    return replace(own, peer=arrival.inbound.chat_id or own.peer)

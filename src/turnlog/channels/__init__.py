"""The contract of a channel, which connects one platform (Telegram, Slack …); `testing.ChannelContract` tests it.

A channel verifies and parses requests and sends messages. It stores nothing, knows no session and no store, and
retries nothing: `gateway` and `outbox` decide what is stored, answered and sent again. It verifies the raw bytes of a
request before it parses them.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from ..core.keys import DmScope, Inbound
from ..core.splitting import Unit
from ..errors import TurnlogError

REPLAY_S = 300
"""How far the timestamp of a signed request may be from now; without a limit a captured request could be replayed."""


class Unsent(TurnlogError):
    """The platform did not take a message."""

    hint = "It will be sent again later."

    def __init__(self, message: str = "", *, hint: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class Rejected(Unsent):
    """The platform will never take this message."""

    hint = "The chat is gone, or the bot may not write there."


class AccountSettings(Struct, frozen=True, kw_only=True):
    """The settings that every channel takes; those of a platform add its own."""

    agent: str = "main"
    dm_scope: DmScope = "per-account-channel-peer"
    queue: Literal["steer", "followup", "collect", "interrupt"] | None = None
    answer: Literal["always", "mentioned"] = "mentioned"
    """Which messages of a group the bot answers. It answers every direct message."""
    approvers: tuple[str, ...] = ()
    """Ids of the people who may approve calls, in groups and in direct chats; without any, such calls are denied."""

    def needed(self) -> tuple[str, ...]:
        """The settings without which the channel does not start."""
        return ()


class Address(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a reply goes. Stored with the reply, so that a later process can send it."""

    chat: str
    thread: str = ""
    reply_to: str = ""
    """The message that is answered, where the platform needs it for threads."""
    reply_token: str = ""
    """A token that the platform gave with the message for its reply, if any."""


class Arrival(Struct, frozen=True, kw_only=True):
    """One message that somebody wrote."""

    inbound: Inbound
    address: Address
    sender_name: str = ""
    mentioned: bool | None = None
    """Whether the bot was addressed: by its name, by a reply to it, or by a command. None: not known."""
    replies_to: str = ""
    """The id of the message that it replies to, where the platform must be asked who wrote that one."""
    language: str = ""
    """The sender's, if the platform says so: "zh-hans", "en" …"""


class Button(Struct, frozen=True, kw_only=True):
    """A button below a message. Its value comes back in a `Press`."""

    label: str
    value: str
    """At most 64 bytes: Telegram lets a button carry no more."""
    style: Literal["good", "plain", "bad"] = "plain"


class Press(Struct, frozen=True, kw_only=True):
    """Somebody pressed a button of a message of the bot."""

    value: str
    address: Address
    message_id: str
    """Of the message that has the button."""
    sender_id: str
    sender_name: str = ""
    token: str = ""
    """With which the platform takes the response, if it has one."""


class Outgoing(Struct, frozen=True, kw_only=True):
    """One piece of a reply."""

    address: Address
    text: str
    token: str
    """The same for each attempt at this piece: a platform that compares tokens takes it once."""
    part: int = 0
    buttons: tuple[Button, ...] = ()
    """Only for a `ButtonChannel`."""


class Hook(Struct, frozen=True, kw_only=True):
    """A request of a platform, as it came."""

    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    now_s: float


class Answer(Struct, frozen=True, kw_only=True):
    """The response to the platform, once every message of its request is stored."""

    status: int = 200
    body: bytes = b""
    media_type: str = "text/plain"


class Reception(Struct, frozen=True, kw_only=True):
    arrivals: tuple[Arrival, ...] = ()
    answer: Answer = Answer()
    press: Press | None = None


Take: TypeAlias = Callable[[Arrival | Press], Awaitable[None]]
"""Returns when the message, or the answer that a press gives, is durable."""


class Channel(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def limit(self) -> int:
        """The length of one message that the platform takes, in `unit`."""
        ...

    @property
    def unit(self) -> Unit: ...
    def receive(self, hook: Hook) -> Reception:
        """Denied unless the signature fits; UsageError if the body cannot be read. Ignores events of other kinds."""
        ...

    async def complete(self, arrival: Arrival) -> Arrival:
        """Asks the platform for the sender's name and whether the bot was addressed, if the request does not say."""
        ...

    async def listen(self, take: Take) -> None:
        """For platforms that are polled or connected to: runs until cancelled. Others return at once."""
        ...

    async def send(self, outgoing: Outgoing) -> str:
        """Returns the platform's id of the message. Unsent: not taken now; Rejected: never. Nothing else is raised."""
        ...

    async def show_typing(self, address: Address) -> None:
        """Shows for some seconds that a reply is being written. Does nothing where the platform cannot show it."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class ButtonChannel(Channel, Protocol):
    """A channel whose platform shows buttons below a message."""

    def respond(self, press: Press, note: str, text: str) -> Answer | None:
        """The response to the request that brought the press: it tells the note to the person who pressed, and gives
        the message the new text without buttons, unless the text is empty. None: `settle` does both.
        """
        ...

    async def settle(self, press: Press, note: str, text: str) -> None:
        """The same by calls to the platform, if `respond` gave None."""
        ...

    async def edit(self, address: Address, message_id: str, text: str) -> None:
        """Gives a message of the bot another text and takes its buttons away."""
        ...

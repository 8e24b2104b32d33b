"""The contract of a channel: a place people talk from, its traffic normalised.

A channel verifies and parses what comes in and sends what goes out; it decides nothing. It keeps nothing, knows no
session and no store, and retries nothing: what is kept, answered and sent again is decided by `switchboard` and
`outbox`. Verification looks at the raw bytes before anything else does.
"""

import hmac
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias, cast

import msgspec
from msgspec import Struct

from ..core.keys import Inbound
from ..core.splitting import Unit
from ..errors import Denied, TurnlogError, UsageError

REPLAY_S = 300
"""How old, or how far ahead, a signed request may be; beyond it a captured one could be sent again."""


class Unsent(TurnlogError):
    """The platform did not take a message."""

    hint = "It is sent again later."

    def __init__(self, message: str = "", *, hint: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class Rejected(Unsent):
    """The platform will never take this message."""

    hint = "The chat is gone, or the bot may not write there."


class Address(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where an answer goes. Stored with it, so that a later process can send it."""

    chat: str
    thread: str = ""
    reply_to: str = ""
    """The message that is answered, where a platform needs it for threads."""
    ticket: str = ""
    """What a platform gave to answer by, if anything."""


class Arrival(Struct, frozen=True, kw_only=True):
    """One message that somebody wrote."""

    inbound: Inbound
    address: Address
    sender_name: str = ""
    language: str = ""
    """Of the sender, if the platform says so: "zh-hans", "en" …"""


class Outgoing(Struct, frozen=True, kw_only=True):
    """One piece of an answer."""

    address: Address
    text: str
    token: str
    """The same each time this piece is sent: a platform that knows such tokens takes it once."""
    part: int = 0


class Hook(Struct, frozen=True, kw_only=True):
    """A request of a platform, untouched."""

    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    now_s: float


class Answer(Struct, frozen=True, kw_only=True):
    """What the platform is told when everything that came is stored."""

    status: int = 200
    body: bytes = b""
    media_type: str = "text/plain"


class Reception(Struct, frozen=True, kw_only=True):
    arrivals: tuple[Arrival, ...] = ()
    answer: Answer = Answer()


Take: TypeAlias = Callable[[Arrival], Awaitable[None]]
"""Returns when the message is durable."""


class Channel(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def limit(self) -> int:
        """Of one message, in its unit."""
        ...

    @property
    def unit(self) -> Unit: ...
    def receive(self, hook: Hook) -> Reception:
        """Denied unless the signature fits; UsageError if the body makes no sense."""
        ...

    async def complete(self, arrival: Arrival) -> Arrival:
        """With the sender's name, where the platform must be asked for it."""
        ...

    async def listen(self, take: Take) -> None:
        """For platforms that are asked, or connected to: runs until cancelled. Others return at once."""
        ...

    async def send(self, outgoing: Outgoing) -> str:
        """The platform's id of the message; Unsent if it was not taken."""
        ...

    async def show_typing(self, address: Address) -> None:
        """That an answer is under way, for some seconds. Where the platform has no such thing, nothing."""
        ...

    async def close(self) -> None: ...


def same(given: str, expected: str) -> bool:
    """In constant time; nothing is never the same as nothing."""
    return bool(expected) and hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def check_age(hook: Hook, stamp: str) -> None:
    """Denied unless a timestamp in seconds is near enough to now."""
    if not stamp.isascii() or not stamp.isdecimal() or len(stamp) > 12 or abs(hook.now_s - int(stamp)) > REPLAY_S:
        raise Denied("the request is too old, or not dated", hint="Check the clocks of both sides.")


def wrong_signature() -> Denied:
    return Denied("the signature does not fit", hint="Use the secret of this channel's settings.")


def parsed(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError("the body is not JSON", hint="Send an object, in UTF-8.") from error
    if not isinstance(found, dict):
        raise UsageError("the body is not an object", hint="Send an object.")
    return cast("dict[str, Any]", found)


def table(value: Any) -> dict[str, Any]:
    """What should be an object; an empty one where something else stands, for platforms add and change things."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def text(value: Any) -> str:
    """An id or a text as a string; "" where there is none."""
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def without_mention(words: str, mark: re.Pattern[str]) -> str:
    """What is said to a bot often begins with its name; what is said begins after it."""
    words = words.strip()
    while found := mark.match(words):
        words = words[found.end() :].lstrip()
    return words


def as_json(value: Any, status: int = 200) -> Answer:
    return Answer(status=status, body=msgspec.json.encode(value), media_type="application/json")

"""What every channel promises, as tests. A channel that passes this suite can be joined to sessions.

The subclass imitates the platform: it makes the messages that the platform would deliver, signs requests as the
platform does, and has a `Platform` that accepts what the channel sends. Nothing leaves the machine.
"""

import asyncio
import functools
import json
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import httpx

from ..channels import REPLAY_S, Address, Arrival, Channel, Hook, Outgoing, Reception, Rejected, Unsent
from ..core import keys
from ..core.splitting import split
from ..errors import Denied, TurnlogError, UsageError
from . import raises
from .platforms import JsonFields, Platform, PlatformFailure

NOW_S = 1_700_000_000.0
TEXTS = ("hello", "你好，世界", "👩‍👩‍👧 e\u0301", "a\nb\tc", '"quoted" \\ {json}', "x" * 3_000)
STRANGE: tuple[Any, ...] = (
    *(None, 0, -1, 1e300, 10**400, True, "", "x", "\u0000", "é 你", "7" * 5_000, [], [1], {}, {"a": 1}),
)
NOT_OBJECTS = (b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b'{"a":' * 20_000, b"[" * 100_000)
RESPONSE_FIELDS = (
    *("ok", "code", "status", "result", "data", "id", "ts", "message", "message_id", "error", "description", "msg"),
    *("retry_after", "parameters", "expire", "expires_in", "token", "tenant_access_token"),
)
"""The names of the fields in the platforms' responses."""
WAIT_S = 7
"""The pause that a platform asks for after too many messages."""
TOKEN = "t" * 24

_BYTES = {"chars": ("utf-32-le", 4), "utf16": ("utf-16-le", 2), "bytes": ("utf-8", 1)}
"""The encoding in which a platform counts, and the bytes of its unit."""


def checked(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Gives the test a fresh platform and a channel that reaches it."""

    @functools.wraps(test)
    def run(self: "ChannelContract") -> None:
        async def main() -> None:
            self.platform = self.make_platform()
            channel = self.open(self.platform, httpx.ASGITransport(app=self.platform))
            try:
                await test(self, channel)
            finally:
                await channel.close()

        asyncio.run(main())

    del run.__wrapped__  # type: ignore[attr-defined]  # runners look at the signature: (self)
    return run


class ChannelContract:
    """Subclass it and implement everything that raises NotImplementedError."""

    platform: Platform
    """The platform of the running test."""
    address = Address(chat="5")
    """The chat that the tests write to."""
    rejection: ClassVar[PlatformFailure]
    """The platform's answer if it will never accept a message."""
    rate_limit: ClassVar[PlatformFailure]
    """Its answer to too many messages, which asks for WAIT_S seconds."""
    secrets: Sequence[str] = ()
    """Secrets that no error may contain."""
    signs_bodies = True
    """False: the platform proves its identity by a secret alone, without a date or a signature."""
    compares_tokens = False
    """Whether the platform ignores a message that is sent again with the same token."""

    def make_platform(self) -> Platform:
        raise NotImplementedError

    def open(self, platform: Platform, transport: Any, account: str | None = None) -> Channel:
        """A channel that uses this httpx transport."""
        raise NotImplementedError

    def message(self, text: str, *, group: bool = False) -> JsonFields:
        """The body in which the platform delivers a new message: direct, or addressed to the bot in a group."""
        raise NotImplementedError

    def request(self, body: bytes, at_s: float) -> Hook:
        """A request of the platform with this body, signed at this time and received at NOW_S."""
        raise NotImplementedError

    def other_events(self) -> Sequence[JsonFields]:
        """Bodies without a message of a person: edits, joins, messages of bots."""
        raise NotImplementedError

    def read(self) -> list[str]:
        """The texts that people see on the platform."""
        return self.platform.texts()

    def deliver(self, channel: Channel, body: JsonFields | bytes, at_s: float = NOW_S) -> Reception:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return channel.receive(self.request(raw, at_s))

    def arrival(self, channel: Channel, body: JsonFields) -> Arrival:
        [arrival] = self.deliver(channel, body).arrivals
        return arrival

    def outgoing(self, text: str, part: int = 0) -> Outgoing:
        return Outgoing(address=self.address, text=text, token=f"{TOKEN[:-1]}{part}", part=part)

    @checked
    async def test_a_direct_message_is_one_arrival_with_its_text_sender_and_address(self, channel: Channel) -> None:
        for text in TEXTS:
            arrival = self.arrival(channel, self.message(text))
            assert arrival.inbound.text == text
            assert (arrival.inbound.channel, arrival.inbound.account) == (channel.kind, None)
            assert arrival.inbound.sender_id
            assert arrival.address.chat
            assert keys.resolve(arrival.inbound).kind == "direct"

    @checked
    async def test_a_group_is_a_place_of_its_own_where_the_bot_was_addressed(self, channel: Channel) -> None:
        arrival = self.arrival(channel, self.message("hello", group=True))
        assert keys.resolve(arrival.inbound).kind == "group"
        assert arrival.mentioned is not False
        completed = await channel.complete(arrival)
        assert completed.inbound == arrival.inbound

    @checked
    async def test_each_account_says_which_it_is(self, channel: Channel) -> None:
        other = self.open(self.platform, httpx.ASGITransport(app=self.platform), "work")
        assert self.arrival(other, self.message("hello")).inbound.account == "work"
        await other.close()

    @checked
    async def test_the_same_delivery_has_one_id_and_another_message_another(self, channel: Channel) -> None:
        first, second = self.message("hello"), self.message("hello")
        before = self.arrival(channel, first)
        [again] = self.deliver(channel, first, NOW_S + 60).arrivals
        assert before.inbound.dedupe_id
        assert again == before
        assert self.arrival(channel, second).inbound.dedupe_id != before.inbound.dedupe_id

    @checked
    async def test_a_forged_request_is_denied_before_its_body_is_read(self, channel: Channel) -> None:
        for body in (json.dumps(self.message("hello")).encode(), *NOT_OBJECTS):
            good = self.request(body, NOW_S)
            for headers in _forged(good.headers):
                _refused(Denied, channel, Hook(headers=headers, body=good.body, now_s=NOW_S))

    @checked
    async def test_a_request_that_was_changed_or_kept_for_later_is_denied(self, channel: Channel) -> None:
        if not self.signs_bodies:
            return
        body = json.dumps(self.message("hello")).encode()
        good = self.request(body, NOW_S)
        _refused(Denied, channel, Hook(headers=good.headers, body=good.body.replace(b"{", b"{ ", 1), now_s=NOW_S))
        for at_s in (NOW_S - REPLAY_S - 1, NOW_S + REPLAY_S + 1):
            _refused(Denied, channel, self.request(body, at_s))

    @checked
    async def test_events_of_other_kinds_are_acknowledged_and_are_no_arrivals(self, channel: Channel) -> None:
        for event in self.other_events():
            reception = self.deliver(channel, event)
            assert reception.arrivals == (), event
            assert reception.answer.status == 200

    @checked
    async def test_a_body_that_is_no_object_is_refused(self, channel: Channel) -> None:
        for body in NOT_OBJECTS:
            _refused(UsageError, channel, self.request(body, NOW_S))

    @checked
    async def test_a_value_of_another_kind_anywhere_in_a_body_is_never_an_unexpected_error(
        self, channel: Channel
    ) -> None:
        for group in (False, True):
            for body in _variants(self.message("hello", group=group)):
                try:
                    for arrival in self.deliver(channel, body).arrivals:
                        keys.resolve(arrival.inbound)
                except TurnlogError as error:
                    assert error.hint, body

    @checked
    async def test_what_is_sent_arrives_as_it_is_and_has_an_id(self, channel: Channel) -> None:
        ids = [await channel.send(self.outgoing(text, part)) for part, text in enumerate(TEXTS) if len(text) < 1_000]
        assert all(ids)
        assert self.read() == [text for text in TEXTS if len(text) < 1_000]

    @checked
    async def test_a_long_reply_is_taken_in_pieces_that_are_counted_as_the_platform_counts(
        self, channel: Channel
    ) -> None:
        encoding, size = _BYTES[channel.unit]
        for text in ("x" * 2, "你好", "😀", "&<>"):
            whole = text * channel.limit
            pieces = split(whole, channel.limit, channel.unit)
            assert all(len(piece.encode(encoding)) // size <= channel.limit for piece in pieces)
            self.platform.sent.clear()
            for part, piece in enumerate(pieces):
                outgoing = Outgoing(address=self.address, text=piece, token=f"{ord(text[0])}-{part}", part=part)
                await channel.send(outgoing)
            assert "".join(self.read()) == whole

    @checked
    async def test_a_platform_that_fails_is_tried_again_later(self, channel: Channel) -> None:
        for failure in (PlatformFailure(500), PlatformFailure(503), PlatformFailure(401)):
            self.platform.failure = failure
            error = await self._failed(channel.send(self.outgoing("hello")))
            assert not isinstance(error, Rejected), failure
        self.platform.failure = None
        assert await channel.send(self.outgoing("hello"))

    @checked
    async def test_a_platform_that_asks_for_a_pause_gets_it(self, channel: Channel) -> None:
        await channel.send(self.outgoing("first"))
        self.platform.failure = self.rate_limit
        error = await self._failed(channel.send(self.outgoing("hello", 1)))
        assert not isinstance(error, Rejected)
        assert error.retry_after_s == WAIT_S
        for asked in ("nan", "inf", "-1", "soon", "1e999", ""):
            self.platform.failure = PlatformFailure(429, headers={"Retry-After": asked})
            error = await self._failed(channel.send(self.outgoing("hello", 1)))
            assert error.retry_after_s is None or 0 <= error.retry_after_s < math.inf

    @checked
    async def test_a_message_that_the_platform_will_never_take_is_rejected(self, channel: Channel) -> None:
        await channel.send(self.outgoing("first"))
        self.platform.failure = self.rejection
        assert isinstance(await self._failed(channel.send(self.outgoing("hello", 1))), Rejected)

    @checked
    async def test_an_answer_that_makes_no_sense_is_never_an_unexpected_error(self, channel: Channel) -> None:
        bodies: list[Mapping[str, Any]] = [{}, *({name: value} for name in RESPONSE_FIELDS for value in STRANGE)]
        bodies += [{**dict.fromkeys(RESPONSE_FIELDS, value), "ok": True, "code": 0} for value in STRANGE]
        for body in bodies:
            for status in (200, 400, 429):
                self.platform.failure = PlatformFailure(status, body=body)
                try:
                    assert isinstance(await channel.send(self.outgoing("hello")), str)
                except Unsent as error:
                    self._check(error)

    @checked
    async def test_a_platform_that_cannot_be_reached_is_tried_again_later(self, channel: Channel) -> None:
        def refuse(request: httpx.Request) -> httpx.Response:
            raise httpx.ConnectError(f"no route to {request.url}")

        await channel.send(self.outgoing("hello"))
        lost = self.open(self.platform, httpx.MockTransport(refuse))
        assert not isinstance(await self._failed(lost.send(self.outgoing("hello"))), Rejected)
        await lost.close()

    @checked
    async def test_a_message_that_is_sent_twice_with_one_token_is_taken_once(self, channel: Channel) -> None:
        if self.compares_tokens:
            assert await channel.send(self.outgoing("hello")) == await channel.send(self.outgoing("hello"))
            assert self.read() == ["hello"]

    @checked
    async def test_showing_that_a_reply_is_written_fails_like_sending(self, channel: Channel) -> None:
        await channel.show_typing(self.address)
        self.platform.failure = PlatformFailure(503)
        try:
            await channel.show_typing(self.address)
        except Unsent as error:
            self._check(error)

    async def _failed(self, sending: Awaitable[str]) -> Unsent:
        error = await raises(Unsent, sending)
        self._check(error)
        return error

    def _check(self, error: Unsent) -> None:
        assert not [secret for secret in self.secrets if secret in f"{error} {error.hint}"], "an error shows a secret"


def _forged(headers: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Requests without any header of the platform, and with each header missing or changed."""
    yield {}
    for name, value in headers.items():
        if name != "content-type":
            for other in ("", f"{value}x", "é", value[::-1] if value[::-1] != value else "0"):
                yield {**headers, name: other}


def _variants(body: JsonFields) -> Iterator[JsonFields]:
    """The body with each of its values in turn replaced by an unusual one."""
    for path in _paths(body):
        for value in STRANGE:
            changed = json.loads(json.dumps(body))
            *above, last = path
            functools.reduce(lambda node, name: node[name], above, changed)[last] = value
            yield changed


def _paths(node: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items: Any = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()  # type: ignore[arg-type]
    for name, value in items:
        yield (*above, name)
        yield from _paths(value, (*above, name))


def _refused(kind: type[TurnlogError], channel: Channel, hook: Hook) -> None:
    try:
        channel.receive(hook)
    except kind as error:
        assert error.hint
        return
    raise AssertionError(f"{hook.body[:20]!r} with the headers {dict(hook.headers)} was taken")

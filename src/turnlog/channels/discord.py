"""Discord: messages by its gateway (through discord.py, extra `discord`), interactions by signed requests, answers by
plain HTTP.

A thread is a channel of its own there, with a parent: here it is a thread of that parent. Answers mention nobody:
a model must not be able to call on everybody.
"""

import asyncio
import re
import warnings
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..core.keys import Inbound
from ..core.splitting import Unit
from ..errors import TurnlogError, UsageError
from . import (
    Address,
    Arrival,
    Hook,
    Outgoing,
    Reception,
    Rejected,
    Take,
    Unsent,
    as_json,
    check_age,
    parsed,
    table,
    text,
    without_mention,
    wrong_signature,
)
from .calling import Caller

if TYPE_CHECKING:
    import discord

API = "https://discord.com/api/v10"
PING, COMMAND = 1, 2
PONG, DEFERRED = 1, 5
DIRECT = 1
THREADS = (10, 11, 12)
"""Types of channels."""
TALK = "ask"
"""The interaction whose option is said to the model; others are taken for chat commands of their name."""
PAUSE_S = 0.5
PAUSE_MAX_S = 60.0
_MENTION = re.compile(r"<@!?\d+>[:,]?")


class DiscordSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    token: str = ""
    public_key: str = ""
    application_id: str = ""
    api_url: str = API

    def needed(self) -> tuple[str, ...]:
        return ("token", "public_key", "application_id")


class Discord:
    kind = "discord"
    limit = 2_000
    unit: Unit = "chars"

    def __init__(self, settings: DiscordSettings, account: str | None = None, transport: Any = None) -> None:
        self._settings = settings
        self._account = account
        self._key = _public_key(settings.public_key)
        self._caller = Caller(settings.api_url, headers={"Authorization": f"Bot {settings.token}"}, transport=transport)

    def receive(self, hook: Hook) -> Reception:
        stamp = hook.headers.get("x-signature-timestamp", "")
        self._verify(hook.headers.get("x-signature-ed25519", ""), stamp.encode("utf-8", "replace") + hook.body)
        check_age(hook, stamp)
        body = parsed(hook.body)
        match body.get("type"):
            case 1:
                return Reception(answer=as_json({"type": PONG}))
            case 2 if arrival := self._interaction(body):
                return Reception(arrivals=(arrival,), answer=as_json({"type": DEFERRED}))
            case _:
                raise UsageError("this interaction is not known here", hint="Register only commands with a text.")

    def _verify(self, signature: str, signed: bytes) -> None:
        from cryptography.exceptions import InvalidSignature

        try:
            self._key.verify(bytes.fromhex(signature), signed)
        except (InvalidSignature, ValueError) as error:
            raise wrong_signature() from error

    def _interaction(self, body: dict[str, Any]) -> Arrival | None:
        asked, channel = table(body.get("data")), table(body.get("channel"))
        user = table(table(body.get("member")).get("user") or body.get("user"))
        options = asked.get("options")
        values = [text(table(option).get("value")) for option in (options if isinstance(options, list) else [])]  # type: ignore[misc]
        name, given = text(asked.get("name")), " ".join(filter(None, values))
        words = given if name == TALK else f"/{name} {given}".strip()
        place = text(body.get("channel_id")) or text(channel.get("id"))
        if not (words and place and text(user.get("id"))):
            return None
        is_thread = channel.get("type") in THREADS
        return self._arrival(
            place=place,
            parent=text(channel.get("parent_id")) if is_thread else "",
            direct=not body.get("guild_id") and channel.get("type") == DIRECT,
            sender=text(user.get("id")),
            name=text(user.get("global_name")) or text(user.get("username")),
            message=text(body.get("id")),
            words=words,
            ticket=text(body.get("token")),
            language=text(body.get("locale")),
        )

    def _arrival(
        self,
        *,
        place: str,
        parent: str,
        direct: bool,
        sender: str,
        name: str,
        message: str,
        words: str,
        ticket: str = "",
        language: str = "",
    ) -> Arrival:
        return Arrival(
            inbound=Inbound(
                channel=self.kind,
                account=self._account,
                chat_type="direct" if direct else "group",
                chat_id=parent or place,
                thread_id=place if parent else None,
                sender_id=sender,
                message_id=message,
                dedupe_id=message,
                text=words,
            ),
            address=Address(chat=place, ticket=ticket),
            sender_name=name,
            language=language,
        )

    def of_message(self, message: "discord.Message") -> Arrival | None:
        """None: nothing that a person said to us. discord.py tells of edits by another event, which is not heard."""
        words = without_mention(message.content, _MENTION)
        if message.author.bot or message.webhook_id or not words:
            return None
        parent = getattr(message.channel, "parent_id", None)
        kind = getattr(getattr(message.channel, "type", None), "value", None)
        return self._arrival(
            place=str(message.channel.id),
            parent=str(parent) if parent and kind in THREADS else "",
            direct=kind == DIRECT,  # not "has no guild": of a guild it has not heard of, the library says None too
            sender=str(message.author.id),
            name=message.author.display_name,
            message=str(message.id),
            words=words,
        )

    async def complete(self, arrival: Arrival) -> Arrival:
        return arrival

    async def listen(self, take: Take) -> None:
        discord = _library()
        if self._settings.api_url != API:
            await self._go_elsewhere(discord)
        intents = discord.Intents(guilds=True, messages=True, message_content=True)
        client = discord.Client(intents=intents)

        @client.event
        async def on_message(message: Any) -> None:  # pyright: ignore[reportUnusedFunction] - discord.py calls it
            if arrival := self.of_message(message):
                await _insist(take, arrival)

        try:
            await client.start(self._settings.token)
        except (discord.LoginFailure, discord.PrivilegedIntentsRequired) as error:
            raise UsageError(
                f"Discord did not let us in: {error}", hint="Check the token and the intents of the bot."
            ) from error
        except Exception as error:  # the library's own, and those of what it is built upon
            raise Unsent(f"the connection to Discord failed: {type(error).__name__}: {error}"[:300]) from error
        finally:
            await client.close()

    async def _go_elsewhere(self, discord: Any) -> None:
        """The library knows one Discord, and keeps its addresses for the whole process."""
        discord.http.Route.BASE = self._settings.api_url
        found = await self._caller.call("/gateway/bot", method="GET")
        socket = discord.gateway.DiscordWebSocket
        socket.DEFAULT_GATEWAY = type(socket.DEFAULT_GATEWAY)(text(found.get("url")))

    async def send(self, outgoing: Outgoing) -> str:
        """By what the interaction gave, as long as Discord takes that; else as a message in the channel."""
        content: dict[str, Any] = {"content": outgoing.text, "allowed_mentions": {"parse": []}}
        if outgoing.address.ticket:
            path = f"/webhooks/{self._settings.application_id}/{outgoing.address.ticket}"
            try:
                if outgoing.part == 0:
                    answer = await self._caller.call(f"{path}/messages/@original", content, method="PATCH")
                else:
                    answer = await self._caller.call(f"{path}?wait=true", content)
                return text(answer.get("id"))
            except Rejected:
                pass  # a quarter of an hour is over
        content |= {"nonce": outgoing.token, "enforce_nonce": True}
        answer = await self._caller.call(f"/channels/{outgoing.address.chat}/messages", content)
        return text(answer.get("id"))

    async def show_typing(self, address: Address) -> None:
        if not address.ticket:
            await self._caller.call(f"/channels/{address.chat}/typing")

    async def close(self) -> None:
        await self._caller.close()


async def _insist(take: Take, arrival: Arrival) -> None:
    """The gateway brings nothing twice: as long as the store cannot take it, it is kept here."""
    pause_s = PAUSE_S
    while True:
        try:
            return await take(arrival)
        except TurnlogError:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)


def _public_key(given: str) -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ModuleNotFoundError as error:
        raise UsageError("Discord needs the library cryptography", hint="Install turnlog[channels].") from error
    try:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(given))
    except ValueError as error:
        raise UsageError(
            "[channels.discord] public_key is not a key", hint="Copy it from the application's page: 64 hex digits."
        ) from error


def _library() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # for voice, which we do not use, it imports what Python deprecates
            import discord
    except ModuleNotFoundError as error:
        raise UsageError("Discord needs the library discord.py", hint="Install turnlog[discord].") from error
    return discord

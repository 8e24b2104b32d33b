"""Discord: messages from its gateway (through discord.py, extra `discord`), interactions by signed requests, replies by
plain HTTP.

Discord's thread is a channel with a parent; here it is a thread of that parent. Replies mention nobody: a model must
not be able to notify everybody.
"""

import asyncio
import re
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

from ...core.keys import Inbound
from ...core.splitting import Unit
from ...errors import MissingExtra, UsageError
from ...runtime import background
from .. import AccountSettings, Address, Answer, Arrival, Button, Hook, Outgoing, Press, Reception, Take
from ..http import Caller, HttpChannel, Rejected, Unsent
from ..requests import as_json, check_age, parsed, table, tables, text, without_mention, wrong_signature

if TYPE_CHECKING:
    import discord

API = "https://discord.com/api/v10"
PING, COMMAND, COMPONENT = 1, 2, 3
PONG, DEFERRED = 1, 5
MESSAGE, UPDATE = 4, 7
"""Responses to a press: a message of its own, or another content for the message that has the button."""
ONLY_FOR_YOU = 64
"""The flag of a message that only the person who pressed sees."""
ROW, BUTTON = 1, 2
"""Types of components."""
STYLES = {"good": 3, "plain": 2, "bad": 4}
DIRECT = 1
THREADS = (10, 11, 12)
"""Types of channels."""
TALK = "ask"
"""The interaction whose option goes to the model; others are the chat commands of their names."""
LOOP = "channel discord"
_MENTION = re.compile(r"<@!?\d+>[:,]?")


class DiscordSettings(AccountSettings, frozen=True, kw_only=True):
    token: str = ""
    public_key: str = ""
    application_id: str = ""
    api_url: str = API

    def needed(self) -> tuple[str, ...]:
        return ("token", "public_key", "application_id")


class Discord(HttpChannel):
    kind = "discord"
    limit = 2_000
    unit: Unit = "chars"

    def __init__(self, settings: DiscordSettings, account: str | None = None, transport: Any = None) -> None:
        self._settings = settings
        self._key = _public_key(settings.public_key)  # first: the extra that has its library brings the others too
        headers = {"Authorization": f"Bot {settings.token}"}
        super().__init__(account, Caller(settings.api_url, headers=headers, transport=transport))

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
            case 3:
                return Reception(press=_press(body), answer=as_json({"type": 6}))
            case _:
                raise UsageError("this interaction is unknown", hint="Register only commands with a text.")

    def _verify(self, signature: str, signed: bytes) -> None:
        from cryptography.exceptions import InvalidSignature

        try:
            self._key.verify(bytes.fromhex(signature), signed)
        except (InvalidSignature, ValueError) as error:
            raise wrong_signature() from error

    def _interaction(self, body: dict[str, Any]) -> Arrival | None:
        asked, channel = table(body.get("data")), table(body.get("channel"))
        user = table(table(body.get("member")).get("user") or body.get("user"))
        values = [text(option.get("value")) for option in tables(asked.get("options"))]
        name, given = text(asked.get("name")), " ".join(filter(None, values))
        words = given if name == TALK else f"/{name} {given}".strip()
        place = text(body.get("channel_id")) or text(channel.get("id"))
        if not (words and place and text(user.get("id"))):
            return None
        parent = text(channel.get("parent_id")) if channel.get("type") in THREADS else ""
        is_direct = not body.get("guild_id") and channel.get("type") == DIRECT
        return Arrival(
            inbound=self._inbound(place, parent, is_direct, text(user.get("id")), text(body.get("id")), words),
            address=Address(chat=place, reply_token=text(body.get("token"))),
            sender_name=text(user.get("global_name")) or text(user.get("username")),
            language=text(body.get("locale")),
            mentioned=True,
        )

    def _inbound(self, place: str, parent: str, is_direct: bool, sender: str, message: str, words: str) -> Inbound:
        return Inbound(
            channel=self.kind,
            account=self._account,
            chat_type="direct" if is_direct else "group",
            chat_id=parent or place,
            thread_id=place if parent else None,
            sender_id=sender,
            message_id=message,
            dedupe_id=message,
            text=words,
        )

    def of_message(self, message: "discord.Message", me: int = 0) -> Arrival | None:
        """None: not a message of a person. discord.py reports edits by another event, which is ignored."""
        words = without_mention(message.content, _MENTION)
        if message.author.bot or message.webhook_id or not words:
            return None
        found = getattr(message.channel, "parent_id", None)
        kind = getattr(getattr(message.channel, "type", None), "value", None)
        place, parent = str(message.channel.id), str(found) if found and kind in THREADS else ""
        is_direct = kind == DIRECT  # not "has no guild": the library says None for a guild that it does not know, too
        return Arrival(
            inbound=self._inbound(place, parent, is_direct, str(message.author.id), str(message.id), words),
            address=Address(chat=place),
            sender_name=message.author.display_name,
            mentioned=_is_mentioned(message, str(me or self._settings.application_id)),
        )

    async def listen(self, take: Take) -> None:
        discord = await asyncio.to_thread(_library)
        if self._settings.api_url != API:
            await self._change_address(discord)
        intents = discord.Intents(guilds=True, messages=True, message_content=True)
        client = discord.Client(intents=intents)

        @client.event
        async def on_message(message: Any) -> None:  # pyright: ignore[reportUnusedFunction] - discord.py calls it
            with background.going_on(LOOP):
                if arrival := self.of_message(message, client.user.id if client.user else 0):
                    # The gateway delivers nothing twice, so this tries until the store takes the message.
                    await background.run_until_done(LOOP, partial(take, arrival))

        @client.event
        async def on_interaction(given: Any) -> None:  # pyright: ignore[reportUnusedFunction] - discord.py calls it
            with background.going_on(LOOP):
                if given.type.value == COMPONENT and (press := _press_of(given)):
                    await take(press)

        try:
            await client.start(self._settings.token)
        except (discord.LoginFailure, discord.PrivilegedIntentsRequired) as error:
            raise UsageError(
                f"Discord refused the bot: {error}", hint="Check the token and the intents of the bot."
            ) from error
        except Exception as error:  # the library's own, and those of the libraries below it
            raise Unsent(f"the connection to Discord failed: {type(error).__name__}: {error}"[:300]) from error
        finally:
            await client.close()

    async def _change_address(self, discord: Any) -> None:
        """The library has one set of addresses for the whole process."""
        discord.http.Route.BASE = self._settings.api_url
        found = await self._caller.call("/gateway/bot", method="GET")
        socket = discord.gateway.DiscordWebSocket
        socket.DEFAULT_GATEWAY = type(socket.DEFAULT_GATEWAY)(text(found.get("url")))

    async def send(self, outgoing: Outgoing) -> str:
        """With the token of the interaction while Discord takes it; else as a message in the channel.

        The first piece of a reply takes the place of "is thinking". A question does not: the reply comes after it.
        """
        content: dict[str, Any] = {"content": outgoing.text, "allowed_mentions": {"parse": []}}
        if outgoing.buttons:
            content["components"] = [{"type": ROW, "components": [_shown(one) for one in outgoing.buttons]}]
        if outgoing.address.reply_token:
            path = f"/webhooks/{self._settings.application_id}/{outgoing.address.reply_token}"
            try:
                if outgoing.part == 0 and not outgoing.buttons:
                    answer = await self._caller.call(f"{path}/messages/@original", content, method="PATCH")
                else:
                    answer = await self._caller.call(f"{path}?wait=true", content)
                return text(answer.get("id"))
            except Rejected:
                pass  # the token expires after fifteen minutes
        content |= {"nonce": outgoing.token, "enforce_nonce": True}
        answer = await self._caller.call(f"/channels/{outgoing.address.chat}/messages", content)
        return text(answer.get("id"))

    def respond(self, press: Press, note: str, text: str) -> Answer | None:
        """The gateway's interactions have no request to respond to: they bring a token."""
        return None if press.token else as_json(_response(note, text))

    async def settle(self, press: Press, note: str, text: str) -> None:
        await self._caller.call(f"/interactions/{press.token}/callback", _response(note, text))

    async def edit(self, address: Address, message_id: str, text: str) -> None:
        await self._caller.call(f"/channels/{address.chat}/messages/{message_id}", _closed(text), method="PATCH")

    async def show_typing(self, address: Address) -> None:
        if not address.reply_token:
            await self._caller.call(f"/channels/{address.chat}/typing")


def _press(body: dict[str, Any]) -> Press | None:
    user = table(table(body.get("member")).get("user") or body.get("user"))
    message, value = table(body.get("message")), text(table(body.get("data")).get("custom_id"))
    place = text(body.get("channel_id")) or text(table(body.get("channel")).get("id"))
    if not (value and place and text(user.get("id"))):
        return None
    return Press(
        value=value,
        address=Address(chat=place),
        message_id=text(message.get("id")),
        sender_id=text(user.get("id")),
        sender_name=text(user.get("global_name")) or text(user.get("username")),
    )


def _press_of(given: Any) -> Press | None:
    """A press that the gateway brought."""
    value = text(table(given.data).get("custom_id"))
    if not value or given.channel_id is None or given.message is None:
        return None
    return Press(
        value=value,
        address=Address(chat=str(given.channel_id)),
        message_id=str(given.message.id),
        sender_id=str(given.user.id),
        sender_name=given.user.display_name,
        token=f"{given.id}/{given.token}",
    )


def _response(note: str, words: str) -> dict[str, Any]:
    if words:
        return {"type": UPDATE, "data": _closed(words)}
    return {"type": MESSAGE, "data": {"content": note, "flags": ONLY_FOR_YOU, "allowed_mentions": {"parse": []}}}


def _closed(words: str) -> dict[str, Any]:
    return {"content": words[: Discord.limit], "components": [], "allowed_mentions": {"parse": []}}


def _shown(button: Button) -> dict[str, Any]:
    style = STYLES[button.style]
    return {"type": BUTTON, "style": style, "label": button.label[:80], "custom_id": button.value}


def _is_mentioned(message: "discord.Message", me: str) -> bool:
    """By its name, by the role that Discord made for it, by a reply to it, or by a command."""
    replied = getattr(message.reference, "resolved", None) or getattr(message.reference, "cached_message", None)
    roles = [getattr(role.tags, "bot_id", None) for role in message.role_mentions if role.tags]
    people = [person.id for person in message.mentions]
    author = getattr(getattr(replied, "author", None), "id", None)
    named = {str(one) for one in (*message.raw_mentions, *people, *roles, author)}
    return me in named or message.content.lstrip().startswith("/")


def _public_key(given: str) -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ModuleNotFoundError as error:
        raise MissingExtra("Discord needs the package cryptography", extra="discord") from error
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
        raise MissingExtra("Discord needs the package discord.py", extra="discord") from error
    return discord

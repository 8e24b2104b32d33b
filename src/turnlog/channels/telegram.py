"""Telegram, by its Bot API over plain HTTP: a webhook with a secret, or long polling.

The thread of a message counts only if it is a topic's: in groups without topics a plain reply carries a thread id too.
An edit of a message is not a new message. What bots say is ignored, our own words included.
"""

import asyncio
from typing import Any, Literal

from msgspec import Struct

from ..core.keys import Inbound
from ..core.splitting import Unit
from ..errors import TurnlogError
from . import Address, Arrival, Hook, Outgoing, Reception, Take, Unsent, parsed, same, table, text, wrong_signature
from .calling import Caller

API = "https://api.telegram.org"
SECRET_HEADER = "x-telegram-bot-api-secret-token"  # noqa: S105 - the name of a header
POLL_S = 25
"""How long Telegram holds a request for updates open."""
PAUSE_S = 0.5
"""Between polls that bring nothing at once, and the first wait after one that failed."""
PAUSE_MAX_S = 60.0
BATCH = 100


class TelegramSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    token: str = ""
    webhook_secret: str = ""
    mode: Literal["webhook", "poll"] = "webhook"
    api_url: str = API

    def needed(self) -> tuple[str, ...]:
        return ("token", "webhook_secret") if self.mode == "webhook" else ("token",)


class Telegram:
    kind = "telegram"
    limit = 4096
    unit: Unit = "utf16"

    def __init__(self, settings: TelegramSettings, account: str | None = None, transport: Any = None) -> None:
        self._settings = settings
        self._account = account
        self._caller = Caller(settings.api_url, transport=transport)
        self._name = ""
        """Of the bot, in lower case; known once Telegram was asked."""

    def receive(self, hook: Hook) -> Reception:
        if not same(hook.headers.get(SECRET_HEADER, ""), self._settings.webhook_secret):
            raise wrong_signature()
        arrival = self.parse(parsed(hook.body))
        return Reception(arrivals=(arrival,) if arrival else ())

    async def complete(self, arrival: Arrival) -> Arrival:
        return arrival

    async def listen(self, take: Take) -> None:
        await self._ask_name()
        if self._settings.mode == "poll":
            await self._poll(take)

    async def _ask_name(self) -> None:
        try:
            self._name = text(table((await self._call("getMe")).get("result")).get("username")).lower()
        except Unsent:
            pass  # then commands that name a bot are taken for ours, and nothing else changes

    async def _poll(self, take: Take) -> None:
        try:
            await self._call("deleteWebhook")  # Telegram does not answer polls while there is one
        except Unsent:
            pass  # if it matters, the polls say so
        offset, pause_s = 0, PAUSE_S
        while True:
            try:
                found = await self._updates(offset)
                for update in found:
                    # Asking from the next one on is what acknowledges it: only when it is stored.
                    if arrival := self.parse(update):
                        await take(arrival)
                    offset = max(offset, int(update.get("update_id") or 0) + 1)
                pause_s = PAUSE_S
                if not found:
                    await asyncio.sleep(PAUSE_S)
            except TurnlogError:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_MAX_S)

    async def _updates(self, offset: int) -> list[dict[str, Any]]:
        wanted = {
            "offset": offset,
            "timeout": POLL_S,
            "limit": BATCH,
            "allowed_updates": ["message", "channel_post"],
        }
        found = (await self._call("getUpdates", wanted, timeout_s=POLL_S + 10)).get("result")
        return [table(update) for update in found] if isinstance(found, list) else []  # type: ignore[misc]

    def parse(self, update: dict[str, Any]) -> Arrival | None:
        """None: nothing that somebody said to us."""
        message = table(update.get("message") or update.get("channel_post"))
        chat, thread = table(message.get("chat")), ""
        sender = table(message.get("sender_chat") or message.get("from"))
        words = self._words(message)
        if not words or not text(chat.get("id")) or sender.get("is_bot") or message.get("via_bot"):
            return None
        if message.get("is_topic_message"):
            thread = text(message.get("message_thread_id"))
        return Arrival(
            inbound=Inbound(
                channel=self.kind,
                account=self._account,
                chat_type=text(chat.get("type")),
                chat_id=text(chat.get("id")),
                thread_id=thread or None,
                sender_id=text(sender.get("id")) or text(chat.get("id")),
                message_id=text(message.get("message_id")) or None,
                dedupe_id=text(update.get("update_id")) or None,
                text=words,
            ),
            address=Address(chat=text(chat.get("id")), thread=thread),
            sender_name=_name_of(sender),
            language=text(sender.get("language_code")),
        )

    def _words(self, message: dict[str, Any]) -> str:
        words = text(message.get("text")) or text(message.get("caption"))
        command, at, name = words.split(maxsplit=1)[0].partition("@") if words.startswith("/") else ("", "", "")
        if at:
            if self._name and name.lower() != self._name:
                return ""  # said to another bot
            words = command + words[len(command) + 1 + len(name) :]
        source = _source_of(message)
        return f"[forwarded from {source}]\n{words}" if words and source else words

    async def send(self, outgoing: Outgoing) -> str:
        to = outgoing.address
        payload: dict[str, Any] = {"chat_id": _number(to.chat), "text": outgoing.text}
        if to.thread:
            payload["message_thread_id"] = _number(to.thread)
        answer = await self._call("sendMessage", payload)
        return text(table(answer.get("result")).get("message_id"))

    async def show_typing(self, address: Address) -> None:
        payload: dict[str, Any] = {"chat_id": _number(address.chat), "action": "typing"}
        if address.thread:
            payload["message_thread_id"] = _number(address.thread)
        await self._call("sendChatAction", payload)

    async def _call(self, method: str, payload: Any = None, **how: Any) -> dict[str, Any]:
        answer = await self._caller.call(f"/bot{self._settings.token}/{method}", payload or {}, **how)
        if answer.get("ok") is not True:
            raise Unsent(f"Telegram refused {method}: {text(answer.get('description'))}"[:300])
        return answer

    async def close(self) -> None:
        await self._caller.close()


def _name_of(who: dict[str, Any]) -> str:
    """A person's, a group's or a channel's."""
    whole = f"{text(who.get('first_name'))} {text(who.get('last_name'))}".strip()
    return whole or text(who.get("title")) or text(who.get("username"))


def _source_of(message: dict[str, Any]) -> str:
    """Who wrote what was forwarded; on one line, for people choose their names themselves."""
    origin = table(message.get("forward_origin"))
    if not origin:
        return ""
    whose = table(origin.get("sender_user") or origin.get("sender_chat") or origin.get("chat"))
    name = text(origin.get("sender_user_name")) or _name_of(whose) or "somebody"
    return " ".join(name.replace("]", ")").split())[:80]


def _number(chat: str) -> int | str:
    return int(chat) if chat.lstrip("-").isdecimal() else chat

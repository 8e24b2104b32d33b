"""Telegram, by its Bot API over plain HTTP: a webhook with a secret, or long polling.

A thread id counts only in a topic: in groups without topics a plain reply has a thread id, too. An edit is not a new
message. Messages of bots are ignored, our own included.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Any, Literal

from ...core.keys import Inbound
from ...core.splitting import Unit
from ...errors import TurnlogError
from .. import AccountSettings, Address, Answer, Arrival, Hook, Outgoing, Press, Reception, Take
from ..http import Caller, HttpChannel, Rejected, Unsent
from ..requests import parsed, same, table, tables, text, wrong_signature

log = logging.getLogger("turnlog.channels.platforms.telegram")

API = "https://api.telegram.org"
SECRET_HEADER = "x-telegram-bot-api-secret-token"  # noqa: S105 - the name of a header
POLL_S = 25
"""How long Telegram holds a request for updates open."""
PAUSE_S = 0.5
"""Pause after a poll that returned nothing at once."""
UNEXPECTED_MAX = 5
"""Attempts at one update that may end in an unexpected error. Then it is skipped, for it blocks all later ones."""
BATCH = 100
NOTE_MAX_CHARS = 200
"""Of the note that Telegram shows to the person who pressed a button."""


class TelegramSettings(AccountSettings, frozen=True, kw_only=True):
    token: str = ""
    webhook_secret: str = ""
    mode: Literal["webhook", "poll"] = "webhook"
    api_url: str = API

    def needed(self) -> tuple[str, ...]:
        return ("token", "webhook_secret") if self.mode == "webhook" else ("token",)


class Telegram(HttpChannel):
    kind = "telegram"
    limit = 4096
    unit: Unit = "utf16"

    def __init__(self, settings: TelegramSettings, account: str | None = None, transport: Any = None) -> None:
        super().__init__(account, Caller(settings.api_url, transport=transport))
        self._settings = settings
        self._id = settings.token.partition(":")[0]
        """The bot's id, with which its token begins."""
        self._name = ""
        """The bot's user name in lower case; empty until Telegram has told it."""
        self._offset = 0
        """Updates before this number are acknowledged."""
        self._unexpected: tuple[int, int] = (0, 0)
        """An update that failed unexpectedly, and how often."""

    def receive(self, hook: Hook) -> Reception:
        if not same(hook.headers.get(SECRET_HEADER, ""), self._settings.webhook_secret):
            raise wrong_signature()
        update = parsed(hook.body)
        arrival = self.parse(update)
        return Reception(arrivals=(arrival,) if arrival else (), press=_press(update))

    async def listen(self, take: Take) -> None:
        await self._ask_name()
        if self._settings.mode == "poll":
            await self._poll(take)

    async def _ask_name(self) -> None:
        with suppress(Unsent):  # then a command that names any bot counts as ours
            self._name = text(table((await self._call("getMe")).get("result")).get("username")).lower()

    async def _poll(self, take: Take) -> None:
        with suppress(Unsent):  # if it matters, the polls fail
            await self._call("deleteWebhook")  # Telegram refuses polls while a webhook is set
        while True:
            before = self._offset
            found = await self._updates(before)
            for update in found:
                await self._take(update, take)
            if found and self._offset == before:
                # Asking again would return them again, without end.
                raise Unsent("Telegram sends updates that have no number")
            if not found:
                await asyncio.sleep(PAUSE_S)

    async def _take(self, update: dict[str, Any], take: Take) -> None:
        """Moves the offset, which acknowledges the update, when it is stored or has failed too often."""
        number = _update_id(update)
        try:
            if found := self.parse(update) or _press(update):
                await take(found)
        except TurnlogError:
            raise
        except Exception:
            tried = 1 + (self._unexpected[1] if self._unexpected[0] == number else 0)
            self._unexpected = (number, tried)
            if tried < UNEXPECTED_MAX:
                raise
            log.exception("update %s of Telegram is left out", number)
        self._offset = max(self._offset, number + 1)

    async def _updates(self, offset: int) -> list[dict[str, Any]]:
        wanted = {
            "offset": offset,
            "timeout": POLL_S,
            "limit": BATCH,
            "allowed_updates": ["message", "channel_post", "callback_query"],
        }
        return tables((await self._call("getUpdates", wanted, timeout_s=POLL_S + 10)).get("result"))

    def parse(self, update: dict[str, Any]) -> Arrival | None:
        """None: not a message of a person to this bot."""
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
            mentioned=self._is_mentioned(message, words),
            language=text(sender.get("language_code")),
        )

    def _is_mentioned(self, message: dict[str, Any], words: str) -> bool:
        """While the bot's name is not known, any mention may mean the bot."""
        replied = table(table(message.get("reply_to_message")).get("from"))
        if words.startswith("/") or text(replied.get("id")) == self._id:
            return True
        written = text(message.get("text")) or text(message.get("caption"))
        marks = tables(message.get("entities") or message.get("caption_entities"))
        names = [_marked(written, mark).lower() for mark in marks if mark.get("type") == "mention"]
        people = [text(table(mark.get("user")).get("id")) for mark in marks if mark.get("type") == "text_mention"]
        return self._id in people or (f"@{self._name}" in names if self._name else bool(names))

    def _words(self, message: dict[str, Any]) -> str:
        words = text(message.get("text")) or text(message.get("caption"))
        command, at, name = words.split(maxsplit=1)[0].partition("@") if words.startswith("/") else ("", "", "")
        if at:
            if self._name and name.lower() != self._name:
                return ""  # for another bot
            words = command + words[len(command) + 1 + len(name) :]
        source = _source_of(message)
        return f"[forwarded from {source}]\n{words}" if words and source else words

    async def send(self, outgoing: Outgoing) -> str:
        to = outgoing.address
        payload: dict[str, Any] = {"chat_id": _number(to.chat), "text": outgoing.text}
        if to.thread:
            payload["message_thread_id"] = _number(to.thread)
        if outgoing.buttons:
            shown = [[{"text": one.label, "callback_data": one.value}] for one in outgoing.buttons]
            payload["reply_markup"] = {"inline_keyboard": shown}
        answer = await self._call("sendMessage", payload)
        return text(table(answer.get("result")).get("message_id"))

    def respond(self, press: Press, note: str, text: str) -> Answer | None:
        return None

    async def settle(self, press: Press, note: str, text: str) -> None:
        with suppress(Rejected):  # Telegram takes it for some minutes only
            payload = {"callback_query_id": press.token, "text": note[:NOTE_MAX_CHARS], "show_alert": not text}
            await self._call("answerCallbackQuery", payload)
        if text:
            await self.edit(press.address, press.message_id, text)

    async def edit(self, address: Address, message_id: str, text: str) -> None:
        """Without `reply_markup` the buttons go."""
        payload = {"chat_id": _number(address.chat), "message_id": _number(message_id), "text": text}
        await self._call("editMessageText", payload)

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


def _press(update: dict[str, Any]) -> Press | None:
    query = table(update.get("callback_query"))
    message, sender = table(query.get("message")), table(query.get("from"))
    chat, person = text(table(message.get("chat")).get("id")), text(sender.get("id"))
    if not (chat and person and text(query.get("data"))):
        return None
    return Press(
        value=text(query.get("data")),
        address=Address(chat=chat),
        message_id=text(message.get("message_id")),
        sender_id=person,
        sender_name=_name_of(sender),
        token=text(query.get("id")),
    )


def _update_id(update: dict[str, Any]) -> int:
    number = text(update.get("update_id"))
    return int(number) if number.isascii() and number.isdecimal() else -1


def _name_of(who: dict[str, Any]) -> str:
    """The name of a person, a group or a channel."""
    whole = f"{text(who.get('first_name'))} {text(who.get('last_name'))}".strip()
    return whole or text(who.get("title")) or text(who.get("username"))


def _source_of(message: dict[str, Any]) -> str:
    """Who wrote a forwarded message. One line and without brackets: people choose their names themselves."""
    origin = table(message.get("forward_origin"))
    if not origin:
        return ""
    whose = table(origin.get("sender_user") or origin.get("sender_chat") or origin.get("chat"))
    name = text(origin.get("sender_user_name")) or _name_of(whose) or "somebody"
    return " ".join(name.replace("]", ")").split())[:80]


def _marked(words: str, mark: dict[str, Any]) -> str:
    """The text that an entity marks. Telegram counts in units of UTF-16."""
    given = (mark.get("offset"), mark.get("length"))
    start, length = (value if isinstance(value, int) and value > 0 else 0 for value in given)
    return words.encode("utf-16-le", "surrogatepass")[2 * start : 2 * (start + length)].decode("utf-16-le", "replace")


def _number(chat: str) -> int | str:
    return int(chat) if chat.lstrip("-").isdecimal() else chat

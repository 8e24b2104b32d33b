"""Telegram's Bot API, as far as a chatting bot needs it."""

import asyncio
import itertools
import re
from typing import Any

from ...core.splitting import split
from . import JsonFields, Platform, PlatformRequest

HELD_S = 0.2
"""How long a poll is held open; the real one holds it for as long as it is asked to."""
ACTIONS = ("typing", "upload_photo", "upload_document")


class TelegramPlatform(Platform):
    def __init__(
        self,
        token: str = "1:test",  # noqa: S107 - not a secret
        *,
        name: str = "try_bot",
        first_update: int = 1001,
    ) -> None:
        super().__init__()
        self.token = token
        self.me: JsonFields = {"id": 1, "is_bot": True, "first_name": "Try", "username": name}
        self.updates: list[JsonFields] = []
        self.typing: list[str] = []
        self.notes: list[str] = []
        """What people were told who pressed a button."""
        self._numbers = itertools.count(1)
        self._update_ids = itertools.count(first_update)

    def update(
        self,
        text: str,
        *,
        chat: int = 5,
        kind: str = "private",
        sender: int | None = None,
        name: str = "Ann",
        topic: int | None = None,
        **more: Any,
    ) -> JsonFields:
        """The update that Telegram would deliver if somebody said this. It is not delivered yet."""
        who = sender if sender is not None else abs(chat)
        message: JsonFields = {
            "message_id": next(self._numbers),
            "date": 1_700_000_000,
            "chat": {"id": chat, "type": kind, **({} if kind == "private" else {"title": "A group"})},
            "from": {"id": who, "is_bot": False, "first_name": name},
            "text": text,
            **({"entities": marks} if (marks := _mentions(text)) else {}),
            **({"message_thread_id": topic, "is_topic_message": True} if topic is not None else {}),
            **more,
        }
        return {"update_id": next(self._update_ids), "message": message}

    def press(self, label: str, *, sender: int, name: str = "Ann", chat: int | None = None) -> JsonFields:
        """The update that Telegram would deliver if somebody pressed this button of the newest message that has it."""
        message = next(one for one in reversed(self.sent) if label in _labels(one))
        data = _labels(message)[label]
        shown = message if chat is None else {**message, "chat": {"id": chat, "type": "private", "first_name": "Eve"}}
        query: JsonFields = {
            "id": f"query-{next(self._numbers)}",
            "from": {"id": sender, "is_bot": False, "first_name": name},
            "message": shown,
            "chat_instance": "1",
            "data": data,
        }
        return {"update_id": next(self._update_ids), "callback_query": query}

    def bring(self, update: JsonFields) -> None:
        """Delivers the update to the next poll."""
        self.updates.append(update)

    async def answer_later(self, call: PlatformRequest) -> tuple[int, Any]:
        if call.path.endswith("/getUpdates") and not self._open(call):
            await asyncio.sleep(HELD_S)
        return self.answer(call)

    def answer(self, call: PlatformRequest) -> tuple[int, Any]:
        prefix, _, method = call.path.rpartition("/")
        if prefix != f"/bot{self.token}":
            return 401, {"ok": False, "error_code": 401, "description": "Unauthorized"}
        fields = call.fields()
        match method:
            case "getMe":
                return _ok({**self.me, "can_join_groups": True, "can_read_all_group_messages": False})
            case "getUpdates":
                found = self._open(call)
                self.updates = found  # asking from a number on confirms everything before it
                return _ok(found[: int(fields.get("limit", 100))])
            case "deleteWebhook" | "setWebhook":
                return _ok(True)
            case "sendChatAction" if fields.get("action") in ACTIONS and fields.get("chat_id"):
                self.typing.append(str(fields["chat_id"]))
                return _ok(True)
            case "sendMessage":
                return self._take(fields)
            case "editMessageText":
                return self._edit(fields)
            case "answerCallbackQuery" if str(fields.get("callback_query_id")).startswith("query-"):
                self.notes.append(str(fields.get("text")))
                return _ok(True)
            case _:
                return _bad(404, "Not Found")

    def _open(self, call: PlatformRequest) -> list[JsonFields]:
        offset = int(call.fields().get("offset", 0))
        return [update for update in self.updates if update["update_id"] >= offset]

    def _take(self, fields: JsonFields) -> tuple[int, Any]:
        text = fields.get("text")
        if not fields.get("chat_id"):
            return _bad(400, "Bad Request: chat not found")
        if not isinstance(text, str) or not text.strip():
            return _bad(400, "Bad Request: message text is empty")
        if len(split(text, 4096, "utf16")) > 1:
            return _bad(400, "Bad Request: message is too long")
        if any(not 0 < len(data.encode()) <= 64 for data in _labels(fields).values()):
            return _bad(400, "Bad Request: BUTTON_DATA_INVALID")
        chat = int(fields["chat_id"])
        message: JsonFields = {
            "message_id": next(self._numbers),
            "date": 1_700_000_000,
            "chat": {"id": chat, "type": "private" if chat > 0 else "supergroup", "first_name": "Ann"},
            "from": self.me,
            "text": text,
        }
        if "message_thread_id" in fields:
            message.update(message_thread_id=int(fields["message_thread_id"]), is_topic_message=True)
        if "reply_markup" in fields:
            message["reply_markup"] = fields["reply_markup"]
        self.sent.append(message)
        return _ok(message)

    def _edit(self, fields: JsonFields) -> tuple[int, Any]:
        wanted = (fields.get("chat_id"), fields.get("message_id"))
        message = next((one for one in self.sent if (one["chat"]["id"], one["message_id"]) == wanted), None)
        if message is None:
            return _bad(400, "Bad Request: message to edit not found")
        if message["text"] == fields.get("text") and message.get("reply_markup") == fields.get("reply_markup"):
            return _bad(400, "Bad Request: message is not modified")
        message["text"] = fields["text"]
        message.pop("reply_markup", None)
        return _ok(message)


def _labels(message: JsonFields) -> dict[str, str]:
    """The buttons of a message: label and data."""
    markup: JsonFields = message.get("reply_markup") or {}
    return {one["text"]: one["callback_data"] for row in markup.get("inline_keyboard", []) for one in row}


def _mentions(text: str) -> list[JsonFields]:
    """The positions of names, counted as Telegram counts."""

    def units(part: str) -> int:
        return len(part.encode("utf-16-le", "surrogatepass")) // 2

    found = re.finditer(r"(?<!\w)@\w{3,32}", text)
    return [{"type": "mention", "offset": units(text[: m.start()]), "length": units(m[0])} for m in found]


def _ok(result: Any) -> tuple[int, Any]:
    return 200, {"ok": True, "result": result}


def _bad(status: int, description: str) -> tuple[int, Any]:
    return status, {"ok": False, "error_code": status, "description": description}

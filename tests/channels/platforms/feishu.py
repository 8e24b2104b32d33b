"""Feishu's open API, as far as a chatting bot needs it, and its events, encrypted and signed."""

import base64
import hashlib
import itertools
import json
import os
import time
from typing import Any

from turnlog.testing.platforms import JsonFields, Platform, PlatformRequest


class FeishuPlatform(Platform):
    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, str] = {"ou_1": "安", "ou_2": "Bob"}
        self.tokens_given = 0
        self._uuids: dict[str, str] = {}
        self._numbers = itertools.count(1)

    def event(
        self,
        words: str,
        *,
        chat: str = "oc_1",
        kind: str = "p2p",
        user: str = "ou_1",
        token: str = "verify",
        content: Any = None,
        sender_type: str = "user",
        **more: Any,
    ) -> JsonFields:
        number = next(self._numbers)
        message: JsonFields = {
            "message_id": f"om_{number}",
            "create_time": "1700000000000",
            "chat_id": chat,
            "chat_type": kind,
            "message_type": "text",
            "content": json.dumps(content or {"text": words}),
            **more,
        }
        sender = {"sender_id": {"open_id": user}, "sender_type": sender_type, "tenant_key": "t"}
        return {
            "schema": "2.0",
            "header": {
                "event_id": f"ev_{number}",
                "event_type": "im.message.receive_v1",
                "create_time": "1700000000000",
                "token": token,
                "app_id": "cli_a",
                "tenant_key": "t",
            },
            "event": {"sender": sender, "message": message},
        }

    def press(self, label: str, *, user: str = "ou_1", chat: str = "", token: str = "verify") -> JsonFields:
        """The callback that Feishu would send if somebody pressed this button of the newest card that has it."""
        card = next(one for one in reversed(self.sent) if label in buttons(one))
        number = next(self._numbers)
        return {
            "schema": "2.0",
            "header": {
                "event_id": f"ev_{number}",
                "event_type": "card.action.trigger",
                "create_time": "1700000000000",
                "token": token,
                "app_id": "cli_a",
                "tenant_key": "t",
            },
            "event": {
                "operator": {"tenant_key": "t", "user_id": "u", "open_id": user, "union_id": "on"},
                "token": "c-1",
                "action": {"tag": "button", "value": buttons(card)[label]},
                "host": "im_message",
                "context": {"open_message_id": card["message_id"], "open_chat_id": chat or card["where"]},
            },
        }

    def sealed(
        self, fields: JsonFields, *, key: str = "encrypt", at: float | None = None
    ) -> tuple[dict[str, str], bytes]:
        """Headers and body as Feishu sends them."""
        body = json.dumps({"encrypt": encrypt(key, json.dumps(fields).encode())}).encode()
        return self.signed(body, key=key, at=at), body

    def signed(self, body: bytes, *, key: str = "encrypt", at: float | None = None) -> dict[str, str]:
        stamp = str(int(time.time() if at is None else at))
        digest = hashlib.sha256(f"{stamp}nonce{key}".encode() + body).hexdigest()
        return {"x-lark-request-timestamp": stamp, "x-lark-request-nonce": "nonce", "x-lark-signature": digest}

    def answer(self, call: PlatformRequest) -> tuple[int, Any]:
        if call.path == "/open-apis/auth/v3/tenant_access_token/internal":
            fields = call.fields()
            if fields.get("app_secret") != "app-secret":
                return 200, {"code": 10014, "msg": "app secret invalid"}
            self.tokens_given += 1
            return 200, {"code": 0, "msg": "ok", "tenant_access_token": f"t-{self.tokens_given}", "expire": 7200}
        if call.headers.get("authorization") != f"Bearer t-{self.tokens_given}":
            return 400, {"code": 99991663, "msg": "Invalid access token for authorization."}
        parts = call.path.removeprefix("/open-apis/").split("/")
        match parts:
            case ["im", "v1", "messages"] if call.query.get("receive_id_type") == "chat_id":
                fields = call.fields()
                return self._take(fields, str(fields.get("receive_id") or ""))
            case ["im", "v1", "messages", number, "reply"]:
                return self._take(call.fields(), f"reply to {number}")
            case ["im", "v1", "messages", number] if call.method == "PATCH":
                return self._edit(number, call.fields())
            case ["im", "v1", "messages", number] if call.method == "GET":
                app = number in self._uuids.values()
                sender = {"id": "cli_a" if app else "ou_1", "sender_type": "app" if app else "user"}
                return 200, {"code": 0, "data": {"items": [{"message_id": number, "sender": sender}]}}
            case ["bot", "v3", "info"]:
                return 200, {"code": 0, "msg": "ok", "bot": {"app_name": "Try", "open_id": "ou_bot"}}
            case ["contact", "v3", "users", user] if user in self.names:
                return 200, {"code": 0, "data": {"user": {"name": self.names[user], "open_id": user}}}
            case _:
                return 404, {"code": 1, "msg": "not found"}

    def _take(self, fields: JsonFields, where: str) -> tuple[int, Any]:
        if not where or fields.get("msg_type") not in ("text", "interactive"):
            return 400, {"code": 230001, "msg": "Your request contains an invalid request parameter"}
        content = json.loads(fields["content"])
        uuid = str(fields.get("uuid") or os.urandom(8).hex())
        if uuid not in self._uuids:
            self._uuids[uuid] = number = f"om_sent_{next(self._numbers)}"
            text = content["text"] if fields["msg_type"] == "text" else content["elements"][0]["text"]["content"]
            self.sent.append({"text": text, "where": where, "message_id": number, **fields})
        return 200, {"code": 0, "msg": "success", "data": {"message_id": self._uuids[uuid]}}

    def _edit(self, number: str, fields: JsonFields) -> tuple[int, Any]:
        found = next((one for one in self.sent if one["message_id"] == number), None)
        card = json.loads(fields["content"])
        if found is None or not card["config"]["update_multi"] or found["msg_type"] != "interactive":
            return 400, {"code": 230001, "msg": "This message is NOT a card."}
        found.update(content=fields["content"], text=card["elements"][0]["text"]["content"])
        return 200, {"code": 0, "msg": "success"}


def buttons(message: JsonFields) -> dict[str, JsonFields]:
    """Label and value of the buttons of a card."""
    rows = [one["actions"] for one in json.loads(message["content"]).get("elements", []) if one["tag"] == "action"]
    return {one["text"]["content"]: one["value"] for row in rows for one in row}


def encrypt(key: str, plain: bytes) -> str:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
    from cryptography.hazmat.primitives.ciphers.modes import CBC

    start = os.urandom(16)
    padding = 16 - len(plain) % 16
    sealing = Cipher(algorithms.AES(hashlib.sha256(key.encode()).digest()), CBC(start)).encryptor()
    return base64.b64encode(start + sealing.update(plain + bytes([padding]) * padding) + sealing.finalize()).decode()

"""Discord's REST API, as far as a chatting bot needs it, and interactions signed with its own key."""

import asyncio
import itertools
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from turnlog.testing.platforms import JsonFields, Platform, PlatformRequest


class DiscordPlatform(Platform):
    def __init__(self, token: str = "bot-token") -> None:
        super().__init__()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self.token = token
        self.typing: list[str] = []
        self.responses: list[JsonFields] = []
        """Responses to presses that the gateway brought."""
        self.expired = False
        """Whether interactions are too old to be answered."""
        self.connected = asyncio.Event()
        self._key = Ed25519PrivateKey.generate()
        self._tickets: dict[str, str] = {}
        """The channel of each interaction."""
        self._nonces: dict[str, JsonFields] = {}
        self._numbers = itertools.count(1_000_000_000_000_000_000)

    def message(
        self, words: str, *, channel: str = "900", guild: str = "", author: JsonFields | None = None
    ) -> JsonFields:
        """The event that the gateway would deliver if somebody wrote this."""
        person: JsonFields = {"id": "31", "username": "ann", "global_name": "Ann", "discriminator": "0", "avatar": None}
        return {
            "id": str(next(self._numbers)),
            "type": 0,
            "channel_id": channel,
            "content": words,
            "author": {**person, **(author or {})},
            "timestamp": "2026-01-01T00:00:00.000000+00:00",
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [],
            "mention_roles": [],
            "attachments": [],
            "embeds": [],
            "pinned": False,
            **({"guild_id": guild} if guild else {"channel_type": 1}),
        }

    def bring_by(self, dispatch: Callable[[str, Any], Awaitable[None]]) -> None:
        """Sets the connected gateway client."""
        self._dispatch = dispatch
        self.connected.set()

    async def bring(self, message: JsonFields) -> None:
        await self._dispatch("MESSAGE_CREATE", message)

    async def bring_press(self, interaction: JsonFields) -> None:
        await self._dispatch("INTERACTION_CREATE", interaction)

    @property
    def public_key(self) -> str:
        return self._key.public_key().public_bytes_raw().hex()

    def interaction(
        self, name: str, words: str = "", *, channel: str = "900", user: str = "31", guild: str = "", parent: str = ""
    ) -> JsonFields:
        person: JsonFields = {"id": user, "username": "ann", "global_name": "Ann"}
        self._tickets[f"ticket-{user}"] = channel
        return {
            "id": str(next(self._numbers)),
            "application_id": "77",
            "type": 2,
            "token": f"ticket-{user}",
            "channel_id": channel,
            "channel": {"id": channel, "type": 11 if parent else 0 if guild else 1, "parent_id": parent or None},
            "data": {"name": name, "options": [{"name": "text", "type": 3, "value": words}] if words else []},
            **({"guild_id": guild, "member": {"user": person}} if guild else {"user": person}),
        }

    def press(self, label: str, *, user: str = "31", channel: str = "", guild: str = "") -> JsonFields:
        """The interaction that Discord would deliver if somebody pressed this button of the newest message with it."""
        message = next(one for one in reversed(self.sent) if label in buttons(one))
        place = channel or message["where"]
        person: JsonFields = {"id": user, "username": "ann", "global_name": "Ann", "discriminator": "0", "avatar": None}
        number = str(next(self._numbers))
        return {
            "id": number,
            "application_id": "77",
            "type": 3,
            "version": 1,
            "attachment_size_limit": 10_485_760,
            "authorizing_integration_owners": {},
            "entitlements": [],
            "context": 1,
            "locale": "en-GB",
            "token": f"press-{number}",
            "channel_id": place,
            "channel": {"id": place, "type": 0 if guild else 1},
            "data": {"component_type": 2, "custom_id": buttons(message)[label]},
            "message": {**self.message(message["content"], channel=place, author=_ME), "id": message["id"]},
            **({"guild_id": guild, "member": {"user": person}} if guild else {"user": person}),
        }

    def signed(self, fields: JsonFields, *, at: float | None = None) -> tuple[dict[str, str], bytes]:
        body = json.dumps(fields).encode()
        return self.signature(body, at=at), body

    def signature(self, body: bytes, *, at: float | None = None) -> dict[str, str]:
        stamp = str(int(time.time() if at is None else at))
        signature = self._key.sign(stamp.encode() + body).hex()
        return {"x-signature-timestamp": stamp, "x-signature-ed25519": signature}

    def answer(self, call: PlatformRequest) -> tuple[int, Any]:
        parts = call.path.partition("/v10/")[2].split("/")
        if parts[0] != "webhooks" and call.headers.get("authorization") != f"Bot {self.token}":
            return 401, {"code": 0, "message": "401: Unauthorized"}
        match call.method, parts:
            case "POST", ["channels", channel, "messages"]:
                return self._take(call.fields(), channel)
            case "PATCH", ["channels", channel, "messages", number]:
                return self._edit(call.fields(), channel, number)
            case "POST", ["interactions", number, token, "callback"] if token == f"press-{number}":
                self.responses.append(call.fields())
                return 204, {}
            case "POST", ["channels", channel, "typing"]:
                self.typing.append(channel)
                return 204, {}
            case (("PATCH" | "POST"), ["webhooks", "77", ticket, *_]):
                if self.expired:
                    return 404, {"code": 10015, "message": "Unknown Webhook"}
                return self._take(call.fields(), ticket)
            case _:
                return 404, {"code": 0, "message": "404: Not Found"}

    def _take(self, fields: JsonFields, where: str) -> tuple[int, Any]:
        content = fields.get("content")
        if not content or len(content) > 2000:
            return 400, {"code": 50035, "message": "Invalid Form Body"}
        nonce = str(fields.get("nonce") or "")
        if len(nonce) > 25:
            return 400, {"code": 50035, "message": "Invalid Form Body"}
        if nonce in self._nonces and fields.get("enforce_nonce"):
            return 200, self._nonces[nonce]
        message: JsonFields = {"id": str(next(self._numbers)), "channel_id": where, "content": content, "nonce": nonce}
        self._nonces[nonce] = message
        if any(not 0 < len(value) <= 100 for value in buttons(fields).values()):
            return 400, {"code": 50035, "message": "Invalid Form Body"}
        self.sent.append({**fields, "where": where, "id": message["id"]})
        return 200, message

    def _edit(self, fields: JsonFields, channel: str, number: str) -> tuple[int, Any]:
        found = next((one for one in self.sent if one["id"] == number), None)
        if found is None or self._tickets.get(found["where"], found["where"]) != channel:
            return 404, {"code": 10008, "message": "Unknown Message"}
        found.update(fields)
        return 200, {"id": number, "channel_id": channel, "content": found["content"]}


_ME: JsonFields = {"id": "77", "username": "try_bot", "bot": True}


def buttons(message: JsonFields) -> dict[str, str]:
    """Label and custom id of the buttons of a message."""
    return {one["label"]: one["custom_id"] for row in message.get("components", []) for one in row["components"]}

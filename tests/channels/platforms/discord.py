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
        self.expired = False
        """Whether interactions are too old to be answered."""
        self.connected = asyncio.Event()
        self._key = Ed25519PrivateKey.generate()
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

    @property
    def public_key(self) -> str:
        return self._key.public_key().public_bytes_raw().hex()

    def interaction(
        self, name: str, words: str = "", *, channel: str = "900", user: str = "31", guild: str = "", parent: str = ""
    ) -> JsonFields:
        person: JsonFields = {"id": user, "username": "ann", "global_name": "Ann"}
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
        self.sent.append({**fields, "where": where})
        return 200, message

"""Any other program: signed requests in both directions, as Standard Webhooks describes them.

The fields of the body are those of `Inbound`. Replies go to `reply_url` only: an address in a message is never called.
"""

import base64
import hashlib
import hmac
import time
from typing import Any

import msgspec
from msgspec import Struct

from ...core import keys, strict_json
from ...core.keys import Inbound
from ...core.splitting import Unit
from ...errors import UsageError
from .. import AccountSettings, Address, Arrival, Hook, Outgoing, Reception
from ..http import Caller, HttpChannel
from ..requests import check_age, same, wrong_signature

PREFIX = "whsec_"
ID_MAX_CHARS = 200
TEXT_MAX_BYTES = 1024 * 1024
"""The limit of a message, as over HTTP."""


class WebhookSettings(AccountSettings, frozen=True, kw_only=True):
    secret: str = ""
    reply_url: str = ""

    def needed(self) -> tuple[str, ...]:
        return ("secret", "reply_url")


class Posted(Struct, frozen=True, kw_only=True):
    """The body of a request. Without a chat it is a direct message of `sender_id`."""

    text: str
    sender_id: str | None = None
    sender_name: str = ""
    chat_type: str | None = None
    chat_id: str | None = None
    thread_id: str | None = None
    message_id: str | None = None
    language: str = ""
    mentioned: bool | None = None
    """In a group: whether the bot was addressed. True if left out."""


class Webhook(HttpChannel):
    kind = "webhook"
    limit = 100_000
    unit: Unit = "chars"

    def __init__(self, settings: WebhookSettings, account: str | None = None, transport: Any = None) -> None:
        super().__init__(account, Caller(settings.reply_url, transport=transport))
        self._keys = keys_of(settings.secret)

    def receive(self, hook: Hook) -> Reception:
        delivery = hook.headers.get("webhook-id", "")
        stamp = hook.headers.get("webhook-timestamp", "")
        expected = [sign(key, delivery, stamp, hook.body) for key in self._keys]
        given = hook.headers.get("webhook-signature", "").split()
        if not delivery or not any(same(one, own) for one in given for own in expected):
            raise wrong_signature()
        check_age(hook, stamp)
        if len(delivery) > ID_MAX_CHARS:
            raise UsageError(f"webhook-id is longer than {ID_MAX_CHARS}", hint="Use a shorter one.")
        return Reception(arrivals=(self._arrival(delivery, hook.body),))

    def _arrival(self, delivery: str, body: bytes) -> Arrival:
        try:
            posted: Posted = strict_json.decode(body, Posted)
        except msgspec.DecodeError as error:
            hint = "See docs/how-to/channels.md for its fields."
            raise UsageError(f"the body is not valid: {error}", hint=hint) from error
        if len(posted.text.encode("utf-8", "replace")) > TEXT_MAX_BYTES:
            raise UsageError(f"the text is larger than {TEXT_MAX_BYTES:,} bytes", hint="Send less at once.")
        chat = posted.chat_id or posted.sender_id
        if not posted.text.strip() or not chat:
            raise UsageError("a message needs text and sender_id or chat_id", hint="See docs/how-to/channels.md.")
        inbound = Inbound(
            channel=self.kind,
            account=self._account,
            chat_type=posted.chat_type,
            chat_id=posted.chat_id,
            thread_id=posted.thread_id,
            sender_id=posted.sender_id or posted.chat_id,
            message_id=posted.message_id,
            dedupe_id=delivery,
            text=posted.text,
        )
        keys.resolve(inbound)  # refuses an impossible place now: the author of the program can correct it
        return Arrival(
            inbound=inbound,
            address=Address(chat=chat, thread=posted.thread_id or "", reply_to=posted.message_id or ""),
            sender_name=posted.sender_name,
            mentioned=posted.mentioned,
            language=posted.language,
        )

    async def send(self, outgoing: Outgoing) -> str:
        to = outgoing.address
        fields = {"chat_id": to.chat, "thread_id": to.thread, "reply_to": to.reply_to}
        told = {name: value for name, value in fields.items() if value}
        body = msgspec.json.encode({"type": "message", "text": outgoing.text, "part": outgoing.part, **told})
        stamp = str(int(time.time()))
        headers = {
            "content-type": "application/json",
            "webhook-id": outgoing.token,
            "webhook-timestamp": stamp,
            "webhook-signature": " ".join(sign(key, outgoing.token, stamp, body) for key in self._keys),
        }
        await self._caller.call("", content=body, headers=headers)
        return outgoing.token


def keys_of(secret: str) -> tuple[bytes, ...]:
    """`whsec_` and base64, as the standard has it. Without `whsec_` libraries differ: the text itself, or base64."""
    coded = secret.removeprefix(PREFIX)
    try:
        decoded = base64.b64decode(coded + "=" * (-len(coded) % 4), validate=True)
    except ValueError as error:
        if coded == secret:
            return (secret.encode(),)
        raise UsageError("[channels.webhook] secret is not base64", hint="Copy all of it, including whsec_.") from error
    return (decoded,) if coded != secret or not decoded else (secret.encode(), decoded)


def sign(key: bytes, delivery: str, stamp: str, body: bytes) -> str:
    signed = b".".join((delivery.encode("utf-8", "replace"), stamp.encode("utf-8", "replace"), body))
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()

"""Feishu and Lark, by event callbacks and the open API over plain HTTP.

Every event must be signed with the encrypt key and carry the verification token; without these settings the channel
does not start. Only a topic is a thread: a plain reply has a parent message, too.
"""

import base64
import hashlib
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from ...core import strict_json
from ...core.keys import Inbound
from ...core.splitting import Unit
from ...errors import MissingExtra, UsageError
from .. import AccountSettings, Address, Answer, Arrival, Button, Hook, Outgoing, Press, Reception, Take
from ..http import Caller, HttpChannel, Rejected, Unsent, seconds
from ..requests import as_json, check_age, parsed, same, table, tables, text, without_mention, wrong_signature

API = "https://open.feishu.cn"
BLOCK_BYTES = 16
TOKEN_WRONG = (99991661, 99991663, 99991664, 99991668, 99991677)
LATER = (99991400, 11232, 11233, 230020, 2200, 1000004, 1000005)
"""Codes for rates and for failures on their side."""
EARLY_S = 300
"""A tenant's token is renewed this long before its end."""
VALUE = "turnlog"
"""The field of a button's value that is ours."""
_MENTION = re.compile(r"@_user_\d+|@_all")


class FeishuSettings(AccountSettings, frozen=True, kw_only=True):
    app_id: str = ""
    app_secret: str = ""
    encrypt_key: str = ""
    verification_token: str = ""
    api_url: str = API

    def needed(self) -> tuple[str, ...]:
        return ("app_id", "app_secret", "encrypt_key", "verification_token")


class Feishu(HttpChannel):
    kind = "feishu"
    limit = 30_000
    """Feishu takes 150 KB; in JSON inside JSON a character can take several times its size."""
    unit: Unit = "bytes"

    def __init__(self, settings: FeishuSettings, account: str | None = None, transport: Any = None) -> None:
        _ciphers()  # a missing library is found now, not at the first message
        super().__init__(account, Caller(settings.api_url, transport=transport))
        self._settings = settings
        self._token = ""
        self._token_until = 0.0
        self._me = ""
        """The bot's own open_id; empty until Feishu has told it."""

    def receive(self, hook: Hook) -> Reception:
        try:
            body = self._opened(parsed(hook.body))
        except UsageError:
            self._verify(hook)  # a stranger learns that the signature is wrong, not what is wrong with the body
            raise
        head = table(body.get("header"))
        if not same(text(head.get("token")) or text(body.get("token")), self._settings.verification_token):
            raise wrong_signature()
        if body.get("type") == "url_verification":
            # Feishu does not sign this one; its token proves that it is theirs.
            return Reception(answer=as_json({"challenge": text(body.get("challenge"))}))
        self._verify(hook)
        match head.get("event_type"):
            case "im.message.receive_v1" if arrival := self._parse(body):
                return Reception(arrivals=(arrival,), answer=as_json({}))
            case "card.action.trigger":
                return Reception(press=_press(table(body.get("event"))), answer=as_json({}))
            case _:
                return Reception(answer=as_json({}))

    def _verify(self, hook: Hook) -> None:
        stamp = hook.headers.get("x-lark-request-timestamp", "")
        before = f"{stamp}{hook.headers.get('x-lark-request-nonce', '')}{self._settings.encrypt_key}"
        expected = hashlib.sha256(before.encode("utf-8", "replace") + hook.body).hexdigest()
        if not same(hook.headers.get("x-lark-signature", ""), expected):
            raise wrong_signature()
        check_age(hook, stamp)

    def _opened(self, body: dict[str, Any]) -> dict[str, Any]:
        sealed = body.get("encrypt")
        if not isinstance(sealed, str):
            return body
        try:
            return parsed(decrypt(self._settings.encrypt_key, sealed))
        except (ValueError, UsageError) as error:
            raise wrong_signature() from error  # sealed with another key

    def _parse(self, body: dict[str, Any]) -> Arrival | None:
        event = table(body.get("event"))
        sender, message = table(event.get("sender")), table(event.get("message"))
        who = table(sender.get("sender_id"))
        user = text(who.get("open_id")) or text(who.get("user_id")) or text(who.get("union_id"))
        chat, words = text(message.get("chat_id")), _words(message)
        if sender.get("sender_type") != "user" or not (user and chat and words):
            return None
        thread, number = text(message.get("thread_id")), text(message.get("message_id"))
        return Arrival(
            inbound=Inbound(
                channel=self.kind,
                account=self._account,
                chat_type="direct" if message.get("chat_type") == "p2p" else "group",
                chat_id=chat,
                thread_id=thread or None,
                sender_id=user,
                message_id=number or None,
                dedupe_id=text(table(body.get("header")).get("event_id")) or number or None,
                text=words,
            ),
            address=Address(chat=chat, thread=thread, reply_to=number),
            mentioned=self._is_mentioned(message),
            replies_to=text(message.get("parent_id")),
            language="en" if "larksuite" in self._settings.api_url else "zh",
        )

    def _is_mentioned(self, message: dict[str, Any]) -> bool | None:
        """None for a reply: `complete` asks Feishu who wrote the message that it replies to.

        While the bot's own id is not known, any mention may mean the bot.
        """
        mentions = tables(message.get("mentions"))
        ids = [text(table(one.get("id")).get("open_id")) for one in mentions if text(one.get("key")) != "@_all"]
        if self._me in ids if self._me else ids:
            return True
        return None if text(message.get("parent_id")) else False

    async def complete(self, arrival: Arrival) -> Arrival:
        if arrival.mentioned is None and arrival.replies_to:
            arrival = replace(arrival, mentioned=await self._is_ours(arrival.replies_to))
        return await self._with_name(arrival, self._name_of)

    async def _name_of(self, user: str) -> str:
        path = f"/open-apis/contact/v3/users/{quote(user, safe='')}?user_id_type=open_id"
        answer = await self._call(path, None, method="GET")
        return text(table(table(answer.get("data")).get("user")).get("name"))

    async def _is_ours(self, message: str) -> bool:
        answer = await self._call(f"/open-apis/im/v1/messages/{quote(message, safe='')}", None, method="GET")
        found = tables(table(answer.get("data")).get("items"))[:1]
        return any(text(table(one.get("sender")).get("id")) == self._settings.app_id for one in found)

    async def listen(self, take: Take) -> None:
        """Only asks for the bot's own id: messages come as requests."""
        with suppress(Unsent):  # then any mention may mean the bot
            answer = await self._call("/open-apis/bot/v3/info", None, method="GET")
            self._me = text(table(answer.get("bot")).get("open_id"))

    async def send(self, outgoing: Outgoing) -> str:
        to = outgoing.address
        shown: dict[str, Any] = {"text": _without_mentions(outgoing.text)}
        if outgoing.buttons:
            shown = _card(outgoing.text, outgoing.buttons)
        payload: dict[str, Any] = {
            "msg_type": "interactive" if outgoing.buttons else "text",
            "content": msgspec.json.encode(shown).decode(),
            "uuid": outgoing.token,
        }
        if to.thread and to.reply_to:
            path = f"/open-apis/im/v1/messages/{to.reply_to}/reply"
            payload["reply_in_thread"] = True
        else:
            path = "/open-apis/im/v1/messages?receive_id_type=chat_id"
            payload["receive_id"] = to.chat
        answer = await self._call(path, payload)
        return text(table(answer.get("data")).get("message_id"))

    def respond(self, press: Press, note: str, text: str) -> Answer | None:
        told: dict[str, Any] = {"toast": {"type": "info" if text else "error", "content": note}}
        return as_json({**told, "card": {"type": "raw", "data": _card(text)}} if text else told)

    async def settle(self, press: Press, note: str, text: str) -> None:
        return

    async def edit(self, address: Address, message_id: str, text: str) -> None:
        payload = {"content": msgspec.json.encode(_card(text)).decode()}
        await self._call(f"/open-apis/im/v1/messages/{quote(message_id, safe='')}", payload, method="PATCH")

    async def _call(self, path: str, payload: Any, *, method: str = "POST") -> dict[str, Any]:
        token = await self._tenant_token()
        return self._checked(
            await self._caller.call(
                path, payload, method=method, headers={"Authorization": f"Bearer {token}"}, told=(400, 401, 403, 404)
            )
        )

    def _checked(self, answer: dict[str, Any]) -> dict[str, Any]:
        code = answer.get("code")
        if code == 0:
            return answer
        what = f"Feishu refused: {code} {text(answer.get('msg'))}"[:300]
        if code in TOKEN_WRONG:
            self._token = ""
        if not isinstance(code, int) or code in TOKEN_WRONG or code in LATER:
            raise Unsent(what)
        raise Rejected(what)

    async def _tenant_token(self) -> str:
        if not self._token or time.time() >= self._token_until:
            given = {"app_id": self._settings.app_id, "app_secret": self._settings.app_secret}
            answer = await self._caller.call("/open-apis/auth/v3/tenant_access_token/internal", given, gone=())
            if answer.get("code") != 0:
                raise Unsent(f"Feishu gave no token: {answer.get('code')} {text(answer.get('msg'))}"[:300])
            self._token = text(answer.get("tenant_access_token"))
            self._token_until = time.time() + (seconds(answer.get("expire")) or 0.0) - EARLY_S
        return self._token


def _press(event: dict[str, Any]) -> Press | None:
    where, who = table(event.get("context")), table(event.get("operator"))
    user = text(who.get("open_id")) or text(who.get("user_id")) or text(who.get("union_id"))
    chat, value = text(where.get("open_chat_id")), text(table(table(event.get("action")).get("value")).get(VALUE))
    if not (chat and user and value):
        return None
    number = text(where.get("open_message_id"))
    return Press(value=value, address=Address(chat=chat), message_id=number, sender_id=user)


def _card(words: str, buttons: Sequence[Button] = ()) -> dict[str, Any]:
    """Plain text: the words of a model must not become links or mentions. `update_multi`: all see the new text."""
    shown: list[dict[str, Any]] = [{"tag": "div", "text": {"tag": "plain_text", "content": words}}]
    if buttons:
        shown.append({"tag": "action", "actions": [_shown(one) for one in buttons]})
    return {"config": {"wide_screen_mode": True, "update_multi": True}, "elements": shown}


def _shown(button: Button) -> dict[str, Any]:
    style = {"good": "primary", "bad": "danger"}.get(button.style, "default")
    label = {"tag": "plain_text", "content": button.label}
    return {"tag": "button", "text": label, "type": style, "value": {VALUE: button.value}}


def _words(message: dict[str, Any]) -> str:
    try:
        content = table(strict_json.decode(text(message.get("content")) or "{}"))
    except msgspec.DecodeError:
        return ""
    words = text(content.get("text")) if message.get("message_type") == "text" else _rich(content)
    words = without_mention(words, _MENTION)
    for fields in tables(message.get("mentions")):
        if key := text(fields.get("key")):
            words = re.sub(rf"{re.escape(key)}(?!\d)", lambda _, f=fields: f"@{text(f.get('name'))}", words)
    return words


def _rich(content: dict[str, Any]) -> str:
    """The text of a `post`: a title and lines of pieces."""
    lines = [text(content.get("title"))]
    written = content.get("content")
    for line in cast("list[Any]", written) if isinstance(written, list) else []:
        pieces = tables(line)
        lines.append("".join(text(piece.get("text")) or text(piece.get("user_name")) for piece in pieces))
    return "\n".join(filter(None, lines))


def _without_mentions(words: str) -> str:
    """Escapes `<at …>`, which Feishu reads in plain texts: a model must not be able to notify everybody."""
    return re.sub(r"<(?=/?at\b)", "＜", words, flags=re.IGNORECASE)


def _ciphers() -> Any:
    try:
        from cryptography.hazmat.primitives import ciphers
    except ModuleNotFoundError as error:
        raise MissingExtra("Feishu needs the package cryptography", extra="channels") from error
    return ciphers


def decrypt(key: str, sealed: str) -> bytes:
    """AES-256-CBC, PKCS#7; ValueError if the text was not made with this key."""
    from cryptography.hazmat.primitives.ciphers.modes import CBC

    ciphers = _ciphers()
    raw = base64.b64decode(sealed, validate=True)
    if len(raw) < 2 * BLOCK_BYTES or len(raw) % BLOCK_BYTES:
        raise ValueError("not whole blocks")
    aes = ciphers.algorithms.AES(hashlib.sha256(key.encode()).digest())
    opening = ciphers.Cipher(aes, CBC(raw[:BLOCK_BYTES])).decryptor()
    plain = opening.update(raw[BLOCK_BYTES:]) + opening.finalize()
    padding = plain[-1]
    if not 1 <= padding <= BLOCK_BYTES or plain[-padding:] != bytes([padding]) * padding:
        raise ValueError("wrong padding")
    return plain[:-padding]

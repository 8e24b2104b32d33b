"""Slack, by its Events API and Web API over plain HTTP.

Slack reports a post in a channel twice, as `message` and as `app_mention`, with two event ids; channel, timestamp and
text are the same, so they make the delivery id. A retry is read like a first attempt: that one may not be stored.
"""

import hashlib
import hmac
import html
import re
from typing import Any
from urllib.parse import parse_qs, quote

from ...core.keys import Inbound
from ...core.splitting import Unit
from .. import AccountSettings, Address, Answer, Arrival, Button, Hook, Outgoing, Press, Reception
from ..http import Caller, HttpChannel, Rejected, Unsent, seconds
from ..requests import as_json, check_age, parsed, same, table, tables, text, without_mention, wrong_signature

API = "https://slack.com/api"
SECTION_MAX_CHARS = 3_000
LATER = ("ratelimited", "rate_limited", "internal_error", "fatal_error", "service_unavailable", "request_timeout")
SETTINGS_WRONG = ("invalid_auth", "not_authed", "token_expired", "token_revoked", "account_inactive", "missing_scope")
"""Errors that the administrator can mend: a reply waits for that."""

_MENTION = re.compile(r"<@[UW][A-Z0-9]+(?:\|[^>]*)?>[:,]?")
_NAMED = re.compile(r"<@([UW][A-Z0-9]+)")
_LINK = re.compile(r"<(?:([^<>|]+)\|)?([^<>|]+)>")


class SlackSettings(AccountSettings, frozen=True, kw_only=True):
    token: str = ""
    signing_secret: str = ""
    api_url: str = API

    def needed(self) -> tuple[str, ...]:
        return ("token", "signing_secret")


class Slack(HttpChannel):
    kind = "slack"
    limit = 3_500
    """Slack cuts at 40,000 characters and shows 4,000 well; escaping makes up to five of one."""
    unit: Unit = "chars"

    def __init__(self, settings: SlackSettings, account: str | None = None, transport: Any = None) -> None:
        headers = {"Authorization": f"Bearer {settings.token}"}
        super().__init__(account, Caller(settings.api_url, headers=headers, transport=transport))
        self._settings = settings

    def receive(self, hook: Hook) -> Reception:
        self._verify(hook)
        if hook.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            return self._form(hook.body)
        body = parsed(hook.body)
        if body.get("type") == "url_verification":
            return Reception(answer=as_json({"challenge": text(body.get("challenge"))}))
        arrival = self._parse(body) if body.get("type") == "event_callback" else None
        return Reception(arrivals=(arrival,) if arrival else ())

    def _verify(self, hook: Hook) -> None:
        stamp = hook.headers.get("x-slack-request-timestamp", "")
        signed = b":".join((b"v0", stamp.encode("utf-8", "replace"), hook.body))
        digest = hmac.new(self._settings.signing_secret.encode(), signed, hashlib.sha256).hexdigest()
        if not same(hook.headers.get("x-slack-signature", ""), f"v0={digest}"):
            raise wrong_signature()
        check_age(hook, stamp)

    def _parse(self, body: dict[str, Any]) -> Arrival | None:
        event = table(body.get("event"))
        if event.get("type") not in ("message", "app_mention") or event.get("hidden"):
            return None
        if event.get("bot_id") or event.get("subtype") not in (None, "file_share", "thread_broadcast"):
            return None  # other bots, ourselves, edits, joins and the like
        words = _plain(text(event.get("text")))
        chat, user, ts = (text(event.get(name)) for name in ("channel", "user", "ts"))
        if not (words and chat and user and ts):
            return None
        thread = text(event.get("thread_ts"))
        digest = hashlib.sha256(words.encode("utf-8", "replace")).hexdigest()[:8]
        return Arrival(
            inbound=Inbound(
                channel=self.kind,
                account=self._account,
                chat_type=_chat_type(text(event.get("channel_type")), chat),
                chat_id=chat,
                thread_id=thread or None,
                sender_id=user,
                message_id=ts,
                dedupe_id=f"{chat}:{ts}:{digest}",
                text=words,
            ),
            address=Address(chat=chat, thread=thread),
            mentioned=event.get("type") == "app_mention" or _is_mentioned(body, event),
        )

    def _form(self, body: bytes) -> Reception:
        """Slack sends two things as forms: text that begins with /, and presses of buttons."""
        fields = {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
        if "payload" in fields:
            return Reception(press=_press(parsed(fields["payload"].encode())))
        return self._slash_command(fields, body)

    def _slash_command(self, fields: dict[str, str], body: bytes) -> Reception:
        """The reply is a message like any other."""
        chat, user, command = (fields.get(name, "") for name in ("channel_id", "user_id", "command"))
        if not (chat and user and command):
            return Reception()
        inbound = Inbound(
            channel=self.kind,
            account=self._account,
            chat_type=_chat_type("", chat),
            chat_id=chat,
            sender_id=user,
            dedupe_id=fields.get("trigger_id") or hashlib.sha256(body).hexdigest(),
            text=f"{command} {fields.get('text', '')}".strip(),
        )
        name = fields.get("user_name", "")
        arrival = Arrival(inbound=inbound, address=Address(chat=chat), sender_name=name, mentioned=True)
        return Reception(arrivals=(arrival,))

    async def complete(self, arrival: Arrival) -> Arrival:
        return await self._with_name(arrival, self._name_of)

    async def _name_of(self, user: str) -> str:
        answer = await self._call(f"/users.info?user={quote(user, safe='')}", None, method="GET")
        person = table(answer.get("user"))
        profile = table(person.get("profile"))
        return text(profile.get("display_name")) or text(profile.get("real_name")) or text(person.get("name"))

    async def send(self, outgoing: Outgoing) -> str:
        to = outgoing.address
        payload: dict[str, Any] = {"channel": to.chat, "text": html.escape(outgoing.text, quote=False)}
        if to.thread:
            payload["thread_ts"] = to.thread
        if outgoing.buttons:
            shown = {"type": "actions", "elements": [_shown(one) for one in outgoing.buttons]}
            payload["blocks"] = [_section(outgoing.text), shown]
        return text((await self._call("/chat.postMessage", payload)).get("ts"))

    def respond(self, press: Press, note: str, text: str) -> Answer | None:
        return None

    async def settle(self, press: Press, note: str, text: str) -> None:
        if text:
            await self.edit(press.address, press.message_id, text)
            return
        payload = {"channel": press.address.chat, "user": press.sender_id, "text": html.escape(note, quote=False)}
        if press.address.thread:
            payload["thread_ts"] = press.address.thread
        await self._call("/chat.postEphemeral", payload)

    async def edit(self, address: Address, message_id: str, text: str) -> None:
        payload: dict[str, Any] = {"channel": address.chat, "ts": message_id, "text": html.escape(text, quote=False)}
        await self._call("/chat.update", {**payload, "blocks": [_section(text)]})

    async def show_typing(self, address: Address) -> None:
        """Only threads of an assistant have a status; elsewhere Slack refuses, which does no harm."""
        if address.thread:
            payload = {"channel_id": address.chat, "thread_ts": address.thread, "status": "is thinking…"}
            await self._call("/assistant.threads.setStatus", payload)

    async def _call(self, path: str, payload: Any, *, method: str = "POST") -> dict[str, Any]:
        answer = await self._caller.call(path, payload, method=method, gone=())
        if answer.get("ok") is True:
            return answer
        error = text(answer.get("error")) or "no answer"
        if error in LATER or error in SETTINGS_WRONG or not answer:
            raise Unsent(f"Slack refused: {error}", retry_after_s=seconds(answer.get("retry_after")))
        raise Rejected(f"Slack refused: {error}")


def _press(payload: dict[str, Any]) -> Press | None:
    """None: another kind of interaction, or a button of another program."""
    user, where = table(payload.get("user")), table(payload.get("container"))
    buttons = [one for one in tables(payload.get("actions")) if one.get("type") == "button"]
    value = text(buttons[0].get("value")) if buttons else ""
    chat = text(table(payload.get("channel")).get("id")) or text(where.get("channel_id"))
    if payload.get("type") != "block_actions" or not (chat and text(user.get("id")) and value):
        return None
    return Press(
        value=value,
        address=Address(chat=chat, thread=text(where.get("thread_ts"))),
        message_id=text(where.get("message_ts")),
        sender_id=text(user.get("id")),
        sender_name=text(user.get("name")) or text(user.get("username")),
    )


def _section(words: str) -> dict[str, Any]:
    """Plain text: the words of a model must not become links or mentions."""
    return {"type": "section", "text": {"type": "plain_text", "text": words[:SECTION_MAX_CHARS], "emoji": False}}


def _shown(button: Button) -> dict[str, Any]:
    style = {"good": {"style": "primary"}, "bad": {"style": "danger"}}.get(button.style, {})
    return {
        "type": "button",
        "action_id": button.value.rpartition(":")[0],
        "text": {"type": "plain_text", "text": button.label[:75], "emoji": False},
        "value": button.value,
        **style,
    }


def _chat_type(word: str, chat: str) -> str:
    """Slack's word for it; if an event has none, the first letter of the channel decides."""
    direct = word == "im" if word else chat.startswith("D")
    return "direct" if direct else "group"


def _is_mentioned(body: dict[str, Any], event: dict[str, Any]) -> bool:
    """For `message`, which may come before the `app_mention` of the same post. Each event names the bot.

    If one does not, any mention and any thread may mean the bot.
    """
    bots = [text(one.get("user_id")) for one in tables(body.get("authorizations"))]
    named = [found[1] for found in _NAMED.finditer(text(event.get("text")))]
    parent = text(event.get("parent_user_id"))
    if not any(bots):
        return bool(named or event.get("thread_ts"))
    return parent in bots or not set(bots).isdisjoint(named)


def _plain(words: str) -> str:
    """The text as a person reads it: without the mention at the beginning, links by their names, no escapes."""
    words = without_mention(words, _MENTION)
    words = _LINK.sub(lambda found: f"{found[2]} ({found[1]})" if found[1] else found[2], words)
    return html.unescape(words)

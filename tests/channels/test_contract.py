"""The contract of channels, on every channel of this package."""

import hashlib
import html
import itertools
import json
from contextlib import suppress

from tests.channels.platforms.discord import DiscordPlatform
from tests.channels.platforms.feishu import FeishuPlatform
from tests.channels.platforms.slack import SlackPlatform
from turnlog.channels import Address, Hook
from turnlog.channels.accounts import open_channels
from turnlog.testing import ChannelContract
from turnlog.testing.channel_contract import NOW_S, WAIT_S
from turnlog.testing.platforms import PlatformFailure
from turnlog.testing.platforms.telegram import TelegramPlatform
from turnlog.testing.platforms.webhook import WebhookPlatform

from .scenes import SECRET, World, slack_headers, webhook_headers

RETRY = {"Retry-After": str(WAIT_S)}


class OwnContract(ChannelContract):
    """For channels of this package, which are opened by their settings."""

    def open(self, platform, transport, account=None):
        world = World()
        setattr(world, self.kind, platform)
        settings = world.settings(self.kind)[self.kind]
        [opened] = open_channels({self.kind: {account: settings} if account else settings}, transport=transport)
        return opened.channel


class TestTelegram(OwnContract):
    kind = "telegram"
    make_platform = TelegramPlatform
    signs_bodies = False
    secrets = ("1:test", "hook-secret")
    rejection = PlatformFailure(403, body={"ok": False, "description": "Forbidden: bot was blocked by the user"})
    rate_limit = PlatformFailure(429, body={"ok": False, "parameters": {"retry_after": WAIT_S}})

    def message(self, text, *, group=False):
        return self.platform.update(text, **({"chat": -42, "kind": "group", "sender": 5} if group else {}), **ENTITIES)

    def request(self, body, at_s):
        return Hook(headers={"x-telegram-bot-api-secret-token": "hook-secret"}, body=body, now_s=NOW_S)

    def other_events(self):
        message = self.platform.update("edited")["message"]
        return [
            {"update_id": 7, "edited_message": message},
            {"update_id": 8, "my_chat_member": {}},
            {"update_id": 9, "message": {"chat": {"id": 5, "type": "private"}, "sticker": {}}},
            self.platform.update("hi", **{"from": {"id": 9, "is_bot": True, "first_name": "Other"}}),
            self.platform.update("hi", via_bot={"id": 8, "is_bot": True, "first_name": "x"}),
        ]


ENTITIES = {"entities": [{"type": "text_mention", "offset": 0, "length": 1, "user": {"id": 1}}]}


class TestSlack(OwnContract):
    kind = "slack"
    make_platform = SlackPlatform
    address = Address(chat="D1")
    secrets = ("xoxb-test", "signing")
    rejection = PlatformFailure(200, body={"ok": False, "error": "channel_not_found"})
    rate_limit = PlatformFailure(429, headers=RETRY, body={"ok": False, "error": "ratelimited"})

    def message(self, text, *, group=False):
        return self.platform.event(text, **({"channel": "C1", "kind": "app_mention"} if group else {}))

    def request(self, body, at_s):
        return Hook(headers=slack_headers(body, at=at_s), body=body, now_s=NOW_S)

    def other_events(self):
        return [
            self.platform.event("bot", bot_id="B1"),
            self.platform.event("edit", subtype="message_changed", hidden=True),
            self.platform.event("gone", subtype="message_deleted"),
            self.platform.event("joined", subtype="channel_join"),
            self.platform.event("", channel="C1"),
            {"type": "event_callback", "event": {"type": "reaction_added"}},
            {"type": "app_rate_limited"},
        ]

    def read(self):
        return [html.unescape(text) for text in super().read()]


class TestFeishu(OwnContract):
    kind = "feishu"
    make_platform = FeishuPlatform
    address = Address(chat="oc_1")
    compares_tokens = True
    secrets = ("app-secret", "encrypt", "verify")
    rejection = PlatformFailure(400, body={"code": 230002, "msg": "Bot can NOT be out of the chat."})
    rate_limit = PlatformFailure(429, headers=RETRY)

    def message(self, text, *, group=False):
        bot = {"key": "@_user_1", "id": {"open_id": "ou_bot"}, "name": "Bot"}
        return self.platform.event(text, **({"kind": "group", "chat": "oc_g", "mentions": [bot]} if group else {}))

    def request(self, body, at_s):
        with suppress(ValueError, RecursionError):
            if isinstance(fields := json.loads(body), dict):
                headers, sealed = self.platform.sealed(fields, at=at_s)
                return Hook(headers=headers, body=sealed, now_s=NOW_S)
        return Hook(headers=self.platform.signed(body, at=at_s), body=body, now_s=NOW_S)

    def other_events(self):
        other = self.platform.event("other")
        return [
            self.platform.event("app", sender_type="app"),
            self.platform.event("", content={"image_key": "x"}, message_type="image"),
            {**other, "header": {**other["header"], "event_type": "im.chat.updated_v1"}},
        ]


class TestDiscord(OwnContract):
    kind = "discord"
    make_platform = DiscordPlatform
    address = Address(chat="900")
    compares_tokens = True
    secrets = ("bot-token",)
    rejection = PlatformFailure(403, body={"code": 50001, "message": "Missing Access"})
    rate_limit = PlatformFailure(429, body={"message": "You are being rate limited.", "retry_after": WAIT_S})

    def message(self, text, *, group=False):
        return self.platform.interaction("ask", text, guild="1" if group else "")

    def request(self, body, at_s):
        return Hook(headers=self.platform.signature(body, at=at_s), body=body, now_s=NOW_S)

    def other_events(self):
        return [{"type": 1}]


class TestWebhook(OwnContract):
    kind = "webhook"
    make_platform = WebhookPlatform
    address = Address(chat="ann")
    compares_tokens = True
    secrets = (SECRET,)
    rejection = PlatformFailure(410)
    rate_limit = PlatformFailure(429, headers=RETRY)
    numbers = itertools.count(1)

    def message(self, text, *, group=False):
        where = {"chat_type": "group", "chat_id": "room"} if group else {}
        return {"text": text, "sender_id": "ann", "message_id": str(next(self.numbers)), **where}

    def request(self, body, at_s):
        delivery = hashlib.sha256(body).hexdigest()
        return Hook(headers=webhook_headers(body, delivery=delivery, at=at_s), body=body, now_s=NOW_S)

    def other_events(self):
        return []

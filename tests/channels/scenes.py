"""A gateway with platforms played around it, in one process: what the tests of channels share."""

import asyncio
import base64
import hashlib
import hmac
import json
import os
import time
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import httpx

import turnlog
from tests.channels.platforms.discord import DiscordPlatform
from tests.channels.platforms.feishu import FeishuPlatform
from tests.channels.platforms.slack import SlackPlatform
from turnlog.channels import Hook
from turnlog.channels.accounts import open_channels
from turnlog.channels.gateway import Gateway
from turnlog.channels.outbox import PENDING
from turnlog.channels.platforms.webhook import keys_of, sign
from turnlog.convlog import Filter, open_convlog
from turnlog.core.entries import User, text_of
from turnlog.core.user_content import user_content
from turnlog.testing import FixedClock, ScriptedProvider, check_messages
from turnlog.testing.platforms.telegram import TelegramPlatform
from turnlog.testing.platforms.webhook import WebhookPlatform

HANGS_AFTER_S = 150
SECRET = "whsec_" + base64.b64encode(b"k" * 24).decode()
KEYS = {"telegram": "hook-secret", "slack": "signing", "feishu": ("encrypt", "verify")}


def run(main):
    return asyncio.run(asyncio.wait_for(main, HANGS_AFTER_S))


class Log:
    def __init__(self):
        self.lines = []

    def info(self, event, **values):
        self.lines.append((event, values))

    error = info


class Hosts(httpx.AsyncBaseTransport):
    """Each platform under a name of its own."""

    def __init__(self, **platforms):
        self._platforms = {name: httpx.ASGITransport(app=app) for name, app in platforms.items()}

    async def handle_async_request(self, request):
        return await self._platforms[request.url.host.partition(".")[0]].handle_async_request(request)


class World:
    """All platforms, and settings for a bot on each."""

    def __init__(self):
        self.telegram = TelegramPlatform()
        self.slack = SlackPlatform()
        self.discord = DiscordPlatform()
        self.feishu = FeishuPlatform()
        self.webhook = WebhookPlatform()

    @property
    def transport(self):
        return Hosts(
            telegram=self.telegram,
            slack=self.slack,
            discord=self.discord,
            feishu=self.feishu,
            webhook=self.webhook,
        )

    def settings(self, *kinds, **more):
        every = {
            "telegram": {"token": "1:test", "webhook_secret": "hook-secret", "api_url": "http://telegram.test"},
            "slack": {"token": "xoxb-test", "signing_secret": "signing", "api_url": "http://slack.test/api"},
            "discord": {
                "token": "bot-token",
                "public_key": self.discord.public_key,
                "application_id": "77",
                "api_url": "http://discord.test/api/v10",
            },
            "feishu": {
                "app_id": "cli_a",
                "app_secret": "app-secret",
                "encrypt_key": "encrypt",
                "verification_token": "verify",
                "api_url": "http://feishu.test",
            },
            "webhook": {"secret": SECRET, "reply_url": "http://webhook.test/replies"},
        }
        return {kind: {**every[kind], **more} for kind in kinds or every}


class DirectWorld(World):
    """Platforms that are reached by their real addresses."""

    def __init__(self, world):
        self.discord = world.discord

    transport = None


class Desk:
    def __init__(self, t, convlog, gateway, log, clock):
        self.t, self.convlog, self.gateway, self.log, self.clock = t, convlog, gateway, log, clock

    async def bring(self, kind, hook, account=None):
        return await self.gateway.receive(self.gateway.find(kind, account), hook)

    async def settled(self):
        """Every message that came in has its reply."""
        while await self.t.store.ledger.list(PENDING):  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)

    async def delivered(self):
        await self.settled()
        await self.gateway.outbox.deliver_due()

    async def logged(self, agent, channel_id):
        page = await self.convlog.messages(agent, channel_id)
        return [(record.role, record.content, record.sender) for record in page.items]

    async def conversations(self):
        return [row.channel_id for row in (await self.convlog.list(Filter())).items]

    async def users(self):
        """Everything people said, in every session: (key, text)."""
        found = []
        for row in (await self.t.sessions.list()).items:
            entries = await self.t.store.read(row.id)
            received = {entry.seq: entry for entry in entries}
            found += [(row.key, text_of(user_content(e, received))) for e in entries if isinstance(e, User)]
        return found


@asynccontextmanager
async def desk(url, world, channels, provider=None, *, clock=None, agents=("main",), start=False, **flags):
    provider = provider or ScriptedProvider()
    clock = clock or FixedClock(int(time.time() * 1000))
    flags.setdefault("store_durability", "os")
    flags.update({f"agents_{name}": {} for name in agents if name != "main"})
    log = Log()
    async with (
        open_convlog(url) as convlog,
        turnlog.open(url, home="/nonexistent", provider=provider, clock=clock, **flags) as t,
    ):
        accounts = open_channels(channels, agents=agents, transport=world.transport)
        gateway = Gateway(t, convlog, accounts, clock=clock, log=log)
        if start:
            await t.resume(rerun=True)
            await gateway.start()
        try:
            yield Desk(t, convlog, gateway, log, clock)
        finally:
            await t.queue.close()
            await gateway.close()
    for prompt in [*provider.prompts, *provider.summary_prompts]:
        check_messages(prompt.messages)


def telegram_hook(update, secret="hook-secret", **headers):
    head = {"x-telegram-bot-api-secret-token": secret} if secret is not None else {}
    return Hook(headers={**head, **headers}, body=json.dumps(update).encode(), now_s=time.time())


def webhook_hook(fields, *, delivery=None, secret=SECRET, at=None):
    body = json.dumps(fields).encode()
    headers = webhook_headers(body, delivery=delivery or os.urandom(8).hex(), secret=secret, at=at)
    return Hook(headers=headers, body=body, now_s=time.time())


def webhook_headers(body, *, delivery, secret=SECRET, at=None):
    stamp = str(int(time.time() if at is None else at))
    signature = sign(keys_of(secret)[0], delivery, stamp, body)
    return {"webhook-id": delivery, "webhook-timestamp": stamp, "webhook-signature": signature}


def slack_hook(fields, *, secret="signing", at=None):
    body = json.dumps(fields).encode()
    return Hook(headers=slack_headers(body, secret=secret, at=at), body=body, now_s=time.time())


def slack_headers(body, *, secret="signing", at=None):
    stamp = str(int(time.time() if at is None else at))
    digest = hmac.new(secret.encode(), f"v0:{stamp}:".encode() + body, hashlib.sha256).hexdigest()
    headers = {"x-slack-request-timestamp": stamp, "x-slack-signature": f"v0={digest}"}
    return {**headers, "content-type": "application/json"}


def slack_press_hook(payload, *, secret="signing", at=None):
    body = urlencode({"payload": json.dumps(payload)}).encode()
    headers = {**slack_headers(body, secret=secret, at=at), "content-type": "application/x-www-form-urlencoded"}
    return Hook(headers=headers, body=body, now_s=time.time())


def feishu_hook(world, fields, *, at=None, key="encrypt"):
    headers, body = world.feishu.sealed(fields, key=key, at=at)
    return Hook(headers=headers, body=body, now_s=time.time())


def discord_hook(world, fields, *, at=None):
    headers, body = world.discord.signed(fields, at=at)
    return Hook(headers=headers, body=body, now_s=time.time())

"""Replies that a platform does not take, as an administrator sees them in Chats while it is down and after."""

import asyncio
import time
from contextlib import contextmanager

import httpx

import turnlog
from tests.channels.platforms import served
from turnlog.channels import Address
from turnlog.channels.outbox import Outbox, OutgoingReply
from turnlog.testing import FixedClock
from turnlog.testing.platforms import PlatformFailure
from turnlog.testing.platforms.telegram import TelegramPlatform

from ..channels.test_serving import bring, configure
from ..server.running import PATIENT, running, wait_until
from .browsing import needs_browser, visit
from .test_pages import check_page, sign_in

TOKEN = "123456789:AAabcdefghijklmnopqrstuvwxyz0123456"
DOWN = PlatformFailure(503, body={"ok": False, "description": f"no way <b>{TOKEN}</b>"})
GONE = PlatformFailure(403, body={"ok": False, "description": "bot was blocked by the user"})
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


async def put_too_late(home):
    """What an earlier server could not send for a day: this one can only write it off."""

    async def unheard(_):
        return

    clock = FixedClock(int(time.time() * 1000) - 3 * 24 * 3600 * 1000)
    async with turnlog.open(home=home) as t:
        row = await t.sessions.new("agent:main:telegram:direct:7")
        await t.append(row, turnlog.User(content="when?"), turnlog.Assistant(content="now", stop="end_turn"))
        where = {"kind": "telegram", "account": None, "agent": "main", "channel_id": "telegram-7"}
        reply = OutgoingReply(address=Address(chat="7"), text="now", **where)
        await Outbox(t.store, {}, clock=clock, on_delivered=unheard).put(f"{row.id}/3/telegram-7", reply)
        return row.id


@contextmanager
def scene(home, *script):
    """A reply that waits in chat 5, one that was refused in chat 6, one that came too late in session `expired`."""
    platform = TelegramPlatform()
    with served(platform) as address:
        configure(home, address, queue="followup")
        expired = asyncio.run(put_too_late(home))
        replies = script or ("**one** answer", "lost", "to be sent")
        with running(home, script=[{"text": text} for text in replies]) as server:
            bring(server, platform.update("hello"))
            wait_until(lambda: platform.sent)
            platform.failure = GONE
            bring(server, platform.update("anybody?", chat=6, name="Bob"))
            with httpx.Client(base_url=server.base, **PATIENT) as client:
                sign_in(client, server.token)
                wait_until(lambda: "replies refused: 1" in client.get("/chats").text)
                platform.failure = DOWN
                bring(server, platform.update("are you there?"))
                log = "/chats/log/main?channel=telegram-5"
                wait_until(lambda: "attempts: 1" in client.get(log).text)
                yield server, platform, client, expired
                platform.failure = None


def row_of(page, name):
    [row] = [part for part in page.split("<tr>") if f"<bdi>{name}</bdi>" in part]
    return row


def test_a_row_says_how_many_replies_wait_or_failed_and_its_drawer_what_became_of_each(tmp_path):
    with scene(tmp_path / "home") as (_, platform, client, expired):
        page = client.get("/chats").text
        check_page(page)
        assert "replies waiting: 1" in row_of(page, "telegram-5")
        assert "replies refused: 1" in row_of(page, "telegram-6")
        assert page.count("replies waiting: 1") == 2, "at the log and at the session that it comes from"
        assert page.count("replies expired: 1") == 1, "nothing was ever said on that channel"
        assert "1 条回复等待发送" in client.get("/chats", headers={"Accept-Language": "zh-CN"}).text

        drawer = client.get("/chats/log/main?channel=telegram-5").text
        check_page(drawer)
        assert drawer.count("Delivered") == 1
        assert "Waits to be sent" in drawer
        assert "to be sent</p>" in drawer, "the reply itself"
        assert "no way &lt;b&gt;1234…[masked]&lt;/b&gt;" in drawer
        assert TOKEN not in drawer
        refused = client.get("/chats/log/main?channel=telegram-6", headers={"Accept-Language": "zh"}).text
        assert "平台拒收" in refused
        assert "bot was blocked by the user" in refused
        assert "Expired, never delivered" in client.get(f"/chats/session/main/{expired}").text

        platform.failure = None
        wait_until(lambda: "replies waiting" not in client.get("/chats").text)
        assert client.get("/chats/log/main?channel=telegram-5").text.count("Delivered") == 2
    assert platform.texts() == ["**one** answer", "to be sent"]


def test_an_administrator_of_other_agents_sees_no_reply(tmp_path):
    with scene(tmp_path / "home") as (server, _, _, expired):
        token = server.make_token("other", "--scope", "admin", "--agent", "other")
        with httpx.Client(base_url=server.base, **PATIENT) as client:
            sign_in(client, token)
            assert "replies" not in client.get("/chats").text
            assert client.get("/chats/log/main?channel=telegram-5").status_code == 404
            assert client.get(f"/chats/session/main/{expired}").status_code == 404


async def look_at_what_waits(visitor, rules=None):
    page = visitor.page
    await visitor.goto("/chats")
    row = page.locator("tbody tr", has=page.locator("bdi", has_text="telegram-5"))
    assert await row.get_by_text("replies waiting: 1").is_visible()
    assert await visitor.axe(rules) == []
    taken, there = await visitor.width()
    assert taken <= there == 390
    await row.locator("[data-row]").click()
    await page.locator("#drawer .unsent").get_by_text("Waits to be sent").wait_for()
    assert await visitor.axe(rules) == []
    taken, there = await visitor.width()
    assert taken <= there == 390


@needs_browser
def test_the_state_is_told_in_words_on_a_phone_too_and_changes_by_itself(tmp_path):
    with scene(tmp_path / "home") as (server, platform, _, _):

        async def in_the_dark(visitor):
            await look_at_what_waits(visitor, ["color-contrast"])

        async def until_it_is_sent(visitor):
            await look_at_what_waits(visitor)
            platform.failure = None
            await visitor.page.locator("#drawer .msg.assistant", has_text="Delivered").nth(1).wait_for()
            assert await visitor.page.locator("#drawer .unsent").count() == 0

        visit(server, in_the_dark, color_scheme="dark", **PHONE)
        visit(server, until_it_is_sent, color_scheme="light", **PHONE)

"""Buttons below a question: pressed by a person whom the account names, they answer it once; anything else changes
nothing and is told."""

import asyncio
import json
import time
from contextlib import asynccontextmanager

import pytest

import turnlog
from tests.channels.platforms import discord as discord_platform, feishu as feishu_platform, slack as slack_platform
from turnlog import Denied
from turnlog.channels import Hook, replies
from turnlog.testing import FixedClock, ScriptedProvider

from ..waiting import until
from .scenes import (
    DirectWorld,
    World,
    desk,
    discord_hook,
    feishu_hook,
    run,
    slack_hook,
    slack_press_hook,
    telegram_hook,
)

ASKS = {"tool_calls": [{"id": "c1", "name": "send", "input": {"to": "ann"}}]}


class Telegram:
    kind, ann, bob, chat, other_chat = "telegram", "41", "42", -9, -10

    def say(self, world, words, user="41", chat=-9, **more):
        return telegram_hook(world.telegram.update(words, chat=chat, kind="group", sender=int(user), **more))

    def press(self, world, label, user, chat=None, **more):
        return telegram_hook(world.telegram.press(label, sender=int(user), chat=chat), **more)

    def forged(self, world, label, user):
        return telegram_hook(world.telegram.press(label, sender=int(user)), secret="guessed")

    def buttons(self, message):
        rows = message.get("reply_markup", {}).get("inline_keyboard", [])
        return [one["text"] for row in rows for one in row]

    async def noted(self, world, reception, text):
        await until(lambda: any(text in note for note in world.telegram.notes))


class Slack:
    kind, ann, bob, chat, other_chat = "slack", "U1", "U2", "C1", "C2"

    def say(self, world, words, user="U1", chat="C1"):
        return slack_hook(world.slack.event(words, channel=chat, user=user, kind="app_mention"))

    def press(self, world, label, user, chat=""):
        return slack_press_hook(world.slack.press(label, user=user, channel=chat))

    def forged(self, world, label, user):
        return slack_press_hook(world.slack.press(label, user=user), secret="guessed")

    def buttons(self, message):
        return list(slack_platform.buttons(message))

    async def noted(self, world, reception, text):
        await until(lambda: any(text in note for _, note in world.slack.notes) or text in str(world.slack.sent))


class Discord:
    kind, ann, bob, chat, other_chat = "discord", "31", "32", "50", "51"

    def say(self, world, words, user="31", chat="50"):
        return discord_hook(world, world.discord.interaction("ask", words, user=user, channel=chat, guild="1"))

    def press(self, world, label, user, chat="50"):
        return discord_hook(world, world.discord.press(label, user=user, channel=chat, guild="1"))

    def forged(self, world, label, user):
        return discord_hook(World(), world.discord.press(label, user=user, channel="50", guild="1"))

    def buttons(self, message):
        return list(discord_platform.buttons(message))

    async def noted(self, world, reception, text):
        assert text in json.loads(reception.answer.body)["data"]["content"]


class Feishu:
    kind, ann, bob, chat, other_chat = "feishu", "ou_1", "ou_2", "oc_g", "oc_h"

    def say(self, world, words, user="ou_1", chat="oc_g"):
        bot = {"key": "@_user_1", "id": {"open_id": "ou_bot"}, "name": "Bot"}
        return feishu_hook(world, world.feishu.event(words, user=user, chat=chat, kind="group", mentions=[bot]))

    def press(self, world, label, user, chat=""):
        return feishu_hook(world, world.feishu.press(label, user=user, chat=chat))

    def forged(self, world, label, user):
        return feishu_hook(world, world.feishu.press(label, user=user, token="guessed"))

    def buttons(self, message):
        return list(feishu_platform.buttons(message)) if message["msg_type"] == "interactive" else []

    async def noted(self, world, reception, text):
        assert text in json.loads(reception.answer.body)["toast"]["content"]


PLATFORMS = [Telegram(), Slack(), Discord(), Feishu()]
LABELS = {"feishu": ("批准", "在本会话中总是批准", "拒绝")}
ENGLISH = ("Approve", "Always in this chat", "Deny")
every_platform = pytest.mark.parametrize("on", PLATFORMS, ids=lambda one: one.kind)


def labels(on):
    return LABELS.get(on.kind, ENGLISH)


def of(on, english, chinese):
    return chinese if on.kind == "feishu" else english


def place(tmp_path):
    return f"sqlite:{tmp_path}/t.db"


class Sent(list):
    @property
    def tool(self):
        @turnlog.tool(approval=True)
        def send(to: str) -> str:
            self.append(to)
            return "sent"

        return send


@asynccontextmanager
async def talking(tmp_path, world, on, sent, replies=None, approvers=(0,), **how):
    named = [(on.ann, on.bob)[n] for n in approvers]
    settings = world.settings(on.kind, approvers=named, answer="always")
    provider = ScriptedProvider(replies or [ASKS, {"text": "finished."}])
    given = {"tools": [sent.tool], f"channels_{on.kind}": settings[on.kind], **how}
    async with desk(place(tmp_path), world, settings, provider, **given) as d:
        yield d


async def told(d, platform, text):
    """Waits until the bot has said this, and gives the message."""
    while not (found := [one for one in platform.sent if text in str(one.get("text") or one.get("content"))]):
        await d.gateway.outbox.deliver_due()
        await asyncio.sleep(0.01)
    return found[-1]


async def question(d, world, on, **who):
    await d.bring(on.kind, on.say(world, "go", **who))
    return await told(d, getattr(world, on.kind), of(on, "send waits for approval", "send 等待批准"))


@every_platform
def test_a_named_person_approves_by_a_button_and_the_message_says_so(on, world, tmp_path):
    async def main():
        sent, platform = Sent(), getattr(world, on.kind)
        async with talking(tmp_path, world, on, sent) as d:
            message = await question(d, world, on)
            assert on.buttons(message) == list(labels(on))
            assert 'send(to="ann")' in json.dumps(message, ensure_ascii=False).replace('\\"', '"').replace('\\"', '"')
            reception = await d.bring(on.kind, on.press(world, labels(on)[0], on.ann))
            await told(d, platform, "finished.")
            assert sent == ["ann"]
            words = of(on, "Approved by", "已批准")
            await until(lambda: words in str(message.get("text") or message.get("content")))
            assert on.buttons(message) == []
            if on.kind in ("discord", "feishu"):
                assert words in json.dumps(json.loads(reception.answer.body), ensure_ascii=False)
            [row] = (await d.t.sessions.list()).items
            [record] = await d.t.approvals(row)
            assert record.by.startswith(f"{on.kind}:{on.ann}")
            assert not row.allowed

    run(main())


@every_platform
def test_deny_and_always_by_a_button(on, world, tmp_path):
    async def main():
        sent, platform = Sent(), getattr(world, on.kind)
        again = {"tool_calls": [{"id": "c2", "name": "send", "input": {"to": "ann"}}]}
        replies = [ASKS, {"text": "one."}, ASKS, {"text": "two."}, again, {"text": "three."}]
        async with talking(tmp_path, world, on, sent, replies) as d:
            await question(d, world, on)
            await d.bring(on.kind, on.press(world, labels(on)[2], on.ann))
            await told(d, platform, "one.")
            assert sent == []
            await d.bring(on.kind, on.say(world, "again"))
            await until_asked(d, on, platform)
            await d.bring(on.kind, on.press(world, labels(on)[1], on.ann))
            await told(d, platform, "two.")
            [row] = (await d.t.sessions.list()).items
            assert row.allowed == ('send(to="ann")',)
            await d.bring(on.kind, on.say(world, "third"))
            await told(d, platform, "three.")
            assert sent == ["ann", "ann"]

    run(main())


async def until_asked(d, on, platform):
    while not any(on.buttons(one) for one in platform.sent):
        await d.gateway.outbox.deliver_due()
        await asyncio.sleep(0.01)


@every_platform
def test_who_is_not_named_cannot_approve_and_is_told(on, world, tmp_path):
    async def main():
        sent, platform = Sent(), getattr(world, on.kind)
        async with talking(tmp_path, world, on, sent) as d:
            message = await question(d, world, on, user=on.bob)
            reception = await d.bring(on.kind, on.press(world, labels(on)[0], on.bob))
            await on.noted(world, reception, of(on, "may not approve", "无权"))
            assert sent == []
            assert on.buttons(message) == list(labels(on))
            [row] = (await d.t.sessions.list()).items
            assert row.waiting
            await d.bring(on.kind, on.press(world, labels(on)[0], on.ann))
            await told(d, platform, "finished.")
            assert sent == ["ann"]

    run(main())


@every_platform
def test_a_button_pressed_twice_and_by_two_people_counts_once(on, world, tmp_path):
    async def main():
        sent, platform = Sent(), getattr(world, on.kind)
        async with talking(tmp_path, world, on, sent, approvers=(0, 1)) as d:
            await question(d, world, on)
            yes, no = (on.press(world, labels(on)[n], who) for n, who in ((0, on.ann), (2, on.bob)))
            receptions = await asyncio.gather(*(d.bring(on.kind, hook) for hook in (yes, yes, no)))
            await told(d, platform, "finished.")
            [row] = (await d.t.sessions.list()).items
            [record] = await d.t.approvals(row)
            assert sent == (["ann"] if record.state == "approved" else [])
            if on.kind in ("discord", "feishu"):
                assert len([one for one in receptions if one.answer.body]) == 3
            late = await d.bring(on.kind, no)
            if on.kind != "slack":
                await on.noted(world, late, of(on, "by", "已"))
            [record_later] = await d.t.approvals(row)
            assert record_later == record

    run(main())


@every_platform
def test_a_forged_press_and_one_from_another_chat_or_account_change_nothing(on, world, tmp_path):
    async def main():
        sent, platform = Sent(), getattr(world, on.kind)
        async with talking(tmp_path, world, on, sent) as d:
            await question(d, world, on)
            with pytest.raises(Denied):
                await d.bring(on.kind, on.forged(world, labels(on)[0], on.ann))
            reception = await d.bring(on.kind, on.press(world, labels(on)[0], on.ann, chat=on.other_chat))
            await on.noted(world, reception, "No call waits")
            account = d.gateway.find(on.kind, None)
            other = turnlog.channels.accounts.Account(
                kind=account.kind, name="second", settings=account.settings, channel=account.channel
            )
            await d.gateway.receive(other, on.press(world, labels(on)[0], on.ann))
            [row] = (await d.t.sessions.list()).items
            assert row.waiting
            assert sent == []
            await d.bring(on.kind, on.press(world, labels(on)[0], on.ann))
            await told(d, platform, "finished.")

    run(main())


@every_platform
def test_an_old_signed_press_is_refused(on, world):
    async def main():
        if on.kind == "telegram":
            return  # it signs nothing: its secret alone proves that a request is Telegram's
        [account] = turnlog.channels.accounts.open_channels(world.settings(on.kind), transport=world.transport)
        old = time.time() - 4_000
        fields = {"type": 3, "data": {"custom_id": "x"}, "channel_id": "1", "user": {"id": "1"}}
        hooks = {
            "slack": lambda: slack_press_hook({"type": "block_actions"}, at=old),
            "discord": lambda: discord_hook(world, fields, at=old),
            "feishu": lambda: feishu_hook(world, world.feishu.event("x"), at=old),
        }
        with pytest.raises(Denied):
            account.channel.receive(hooks[on.kind]())
        await account.channel.close()

    run(main())


@every_platform
def test_a_press_after_the_time_is_over_denies(on, world, tmp_path):
    clock = FixedClock(int(time.time() * 1000))

    async def main():
        sent, platform = Sent(), getattr(world, on.kind)
        async with talking(tmp_path, world, on, sent, clock=clock) as d:
            message = await question(d, world, on)
            clock.advance(hours=25)
            await d.bring(on.kind, on.press(world, labels(on)[0], on.ann))
            await told(d, platform, "finished.")
            assert sent == []
            words = of(on, "nobody answered in time", "无人及时答复")
            await until(lambda: words in str(message.get("text") or message.get("content")))

    run(main())


@every_platform
def test_after_a_restart_the_same_button_answers_and_the_turn_goes_on(on, world, tmp_path, monkeypatch):
    monkeypatch.setattr(replies, "SWEEP_S", 3600.0)  # the reply comes when the turn ends, not with the next sweep

    async def main():
        sent, platform = Sent(), getattr(world, on.kind)
        async with talking(tmp_path, world, on, sent) as d:
            message = await question(d, world, on)
        async with talking(tmp_path, world, on, sent, [{"text": "finished."}], start=True) as d:
            await d.bring(on.kind, on.press(world, labels(on)[0], on.ann))
            await until(lambda: sent)
            await told(d, platform, "finished.")
            assert sent == ["ann"]
            if on.kind in ("telegram", "slack"):
                await until(lambda: on.buttons(message) == [])

    run(main())


def test_a_question_that_a_process_died_before_putting_is_put_by_the_next_one_once(world, tmp_path):
    on = PLATFORMS[0]

    async def main():
        sent = Sent()
        async with talking(tmp_path, world, on, sent) as d:
            d.gateway._questions.ask = lose
            await d.bring(on.kind, on.say(world, "go"))
            while not [row for row in (await d.t.sessions.list()).items if row.waiting]:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.01)
        assert world.telegram.sent == []
        async with talking(tmp_path, world, on, sent, [{"text": "finished."}]) as d:
            for _ in range(2):
                await d.gateway._replies.answer_all()
                await d.gateway.outbox.deliver_due()
            assert len(world.telegram.sent) == 1
            await d.bring(on.kind, on.press(world, "Approve", on.ann))
            await until(lambda: sent)
            await d.t.queue.idle()

    async def lose(*_):
        return

    run(main())


@every_platform
def test_an_answer_elsewhere_takes_the_buttons_away(on, world, tmp_path):
    async def main():
        sent, platform = Sent(), getattr(world, on.kind)
        async with talking(tmp_path, world, on, sent) as d:
            message = await question(d, world, on)
            [row] = (await d.t.sessions.list()).items
            await d.t.deny(row, "c1", "no", by="the administrator")
            await told(d, platform, "finished.")
            words = of(on, "Denied by the administrator", "the administrator 已拒绝")
            await until(lambda: words in str(message.get("text") or message.get("content")))
            assert on.buttons(message) == []
            assert sent == []

    run(main())


def test_a_press_that_the_platform_cannot_show_counts_all_the_same(world, tmp_path):
    on = PLATFORMS[0]

    async def main():
        sent = Sent()
        async with talking(tmp_path, world, on, sent) as d:
            await question(d, world, on)
            press = on.press(world, "Approve", on.ann)
            world.telegram.failure = turnlog.testing.platforms.PlatformFailure(500)
            await d.bring(on.kind, press)
            await until(lambda: sent)
            world.telegram.failure = None

    run(main())


@pytest.mark.parametrize("value", ["", "x", "turnlog:yes:", "turnlog:yes:" + "0" * 32, "turnlog:maybe:" + "0" * 32, 5])
def test_a_button_of_another_program_is_told_that_nothing_waits(world, tmp_path, value):
    on = PLATFORMS[0]

    async def main():
        sent = Sent()
        async with talking(tmp_path, world, on, sent) as d:
            await question(d, world, on)
            press = world.telegram.press("Approve", sender=41)
            press["callback_query"]["data"] = value
            await d.bring(on.kind, telegram_hook(press))
            if value:
                await until(lambda: world.telegram.notes)
            assert sent == []
            for broken in ({}, {"callback_query": 5}, {"callback_query": {"message": []}}):
                await d.bring(on.kind, telegram_hook({"update_id": 1, **broken}))

    run(main())


def test_who_may_approve_is_decided_by_the_account_that_brought_the_word(world, tmp_path):
    """With one session for all channels, an id of one platform says nothing on another."""
    on = PLATFORMS[0]
    channels = {
        **world.settings("telegram", approvers=["41"], dm_scope="main"),
        **world.settings("slack", approvers=["U9"], dm_scope="main"),
    }

    async def main():
        sent = Sent()
        given = {"tools": [sent.tool], "channels_telegram": channels["telegram"], "channels_slack": channels["slack"]}
        provider = ScriptedProvider([ASKS, {"text": "finished."}])
        async with desk(place(tmp_path), world, channels, provider, **given) as d:
            await d.bring("telegram", telegram_hook(world.telegram.update("go", chat=41, sender=41)))
            await told(d, world.telegram, "send waits")
            await d.bring("slack", slack_hook(world.slack.event("/yes", user="41")))
            assert "may not approve" in str(await told(d, world.slack, "may not approve"))
            assert sent == []
            await d.bring(on.kind, telegram_hook(world.telegram.press("Approve", sender=41)))
            await told(d, world.telegram, "finished.")

    run(main())


def test_telegram_brings_presses_by_polling_too(world, tmp_path):
    async def main():
        sent = Sent()
        settings = world.settings("telegram", approvers=["41"], mode="poll")
        provider = ScriptedProvider([ASKS, {"text": "finished."}])
        given = {"tools": [sent.tool], "channels_telegram": settings["telegram"]}
        async with desk(place(tmp_path), world, settings, provider, start=True, **given) as d:
            world.telegram.bring(world.telegram.update("go", chat=41, sender=41))
            await until(lambda: any("send waits" in text for text in world.telegram.texts()))
            world.telegram.bring(world.telegram.press("Approve", sender=41))
            await until(lambda: "finished." in world.telegram.texts())
            assert sent == ["ann"]
            wanted = [call.fields() for call in world.telegram.calls if call.path.endswith("getUpdates")]
            assert "callback_query" in wanted[0]["allowed_updates"]
            assert d.log

    run(main())


def test_without_anybody_named_no_question_is_put(world, tmp_path):
    on = PLATFORMS[0]

    async def main():
        sent = Sent()
        async with talking(tmp_path, world, on, sent, approvers=()) as d:
            await d.bring(on.kind, on.say(world, "go"))
            await told(d, world.telegram, "finished.")
            assert sent == []
            assert len(world.telegram.sent) == 1

    run(main())


@pytest.mark.filterwarnings("ignore")
def test_the_libraries_read_our_buttons_and_make_the_presses_that_we_read(world, tmp_path):
    telegram = pytest.importorskip("telegram")
    pytest.importorskip("lark_oapi")
    from lark_oapi.core.model import RawRequest
    from lark_oapi.event.callback.model.p2_card_action_trigger import P2CardActionTriggerResponse
    from lark_oapi.event.dispatcher_handler import EventDispatcherHandler

    async def main():
        sent = Sent()
        async with talking(tmp_path, world, PLATFORMS[0], sent) as d:
            message = telegram.Message.de_json(await question(d, world, PLATFORMS[0]), None)
            button = message.reply_markup.inline_keyboard[0][0]
            user = telegram.User(41, "Ann", False)
            query = telegram.CallbackQuery("query-1", user, "1", message=message, data=button.callback_data)
            update = telegram.Update(5000, callback_query=query).to_dict()
            await d.bring("telegram", telegram_hook(json.loads(json.dumps(update))))
            await told(d, world.telegram, "finished.")
            assert sent == ["ann"]

    run(main())
    other = World()

    async def feishu():
        sent, on = Sent(), PLATFORMS[3]
        async with talking(tmp_path / "f", other, on, sent) as d:
            await question(d, other, on)
            heard = []

            def taken(data):
                heard.append(data)
                return P2CardActionTriggerResponse({})

            hook = on.press(other, "批准", on.ann)
            dispatcher = EventDispatcherHandler.builder("encrypt", "verify").register_p2_card_action_trigger(taken)
            request = RawRequest()
            request.uri, request.body = "/", hook.body
            names = ("X-Lark-Request-Timestamp", "X-Lark-Request-Nonce", "X-Lark-Signature")
            request.headers = {name: hook.headers[name.lower()] for name in names}
            assert dispatcher.build().do(request).status_code == 200
            assert heard[0].event.context.open_chat_id == "oc_g"
            answer = (await d.bring("feishu", hook)).answer
            read = P2CardActionTriggerResponse(json.loads(answer.body))
            assert "已批准" in read.toast.content
            assert read.card.type == "raw"

    (tmp_path / "f").mkdir()
    run(feishu())


def test_slack_the_library_signs_presses_and_takes_our_blocks(world, tmp_path):
    signature = pytest.importorskip("slack_sdk.signature")
    models = pytest.importorskip("slack_sdk.models.blocks")
    on = PLATFORMS[1]

    async def main():
        sent = Sent()
        async with talking(tmp_path, world, on, sent) as d:
            message = await question(d, world, on)
            for block in models.Block.parse_all(message["blocks"]):
                block.validate_json()
            hook = on.press(world, "Approve", "U1")
            stamp = hook.headers["x-slack-request-timestamp"]
            signed = signature.SignatureVerifier("signing").generate_signature(timestamp=stamp, body=hook.body)
            headers = {**hook.headers, "x-slack-signature": signed}
            await d.bring("slack", Hook(headers=headers, body=hook.body, now_s=hook.now_s))
            await told(d, world.slack, "finished.")
            assert sent == ["ann"]

    run(main())


@pytest.mark.filterwarnings("ignore")
def test_discord_the_library_brings_presses_from_a_gateway(world, tmp_path):
    pytest.importorskip("discord")
    from tests.channels.platforms.discord_gateway import gateway

    async def main():
        sent = Sent()
        async with gateway(world.discord) as address:
            settings = world.settings("discord", api_url=address, approvers=["31"])
            provider = ScriptedProvider([ASKS, {"text": "finished."}])
            given = {"tools": [sent.tool], "channels_discord": settings["discord"]}
            async with desk(place(tmp_path), DirectWorld(world), settings, provider, start=True, **given):
                await world.discord.connected.wait()
                await world.discord.bring(world.discord.message("go"))
                await until(lambda: any(discord_platform.buttons(one) for one in world.discord.sent))
                await world.discord.bring_press(world.discord.press("Approve", user="32"))
                await until(lambda: world.discord.responses)
                assert world.discord.responses[0]["data"]["flags"] == 64
                assert sent == []
                await world.discord.bring_press(world.discord.press("Approve"))
                await until(lambda: "finished." in world.discord.texts())
                await until(lambda: len(world.discord.responses) == 2)
                assert world.discord.responses[1]["type"] == 7
                assert sent == ["ann"]

    run(main())

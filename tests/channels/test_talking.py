"""From a platform's request to the platform's chat: stored before acknowledged, answered once, written down."""

import asyncio

import pytest
from msgspec.structs import replace

from turnlog import Denied
from turnlog.channels import replies
from turnlog.channels.outbox import WAITING
from turnlog.errors import StoreUnavailable
from turnlog.testing import ScriptedProvider
from turnlog.testing.platforms import PlatformFailure

from ..turns.gates import Gated
from .scenes import desk, discord_hook, feishu_hook, run, slack_hook, telegram_hook, webhook_hook


def greeting(world, kind, text="hello"):
    """(hook, the platform that is answered) of somebody saying this directly."""
    match kind:
        case "telegram":
            return telegram_hook(world.telegram.update(text)), world.telegram
        case "slack":
            return slack_hook(world.slack.event(text)), world.slack
        case "feishu":
            return feishu_hook(world, world.feishu.event(text)), world.feishu
        case "discord":
            return discord_hook(world, world.discord.interaction("ask", text)), world.discord
        case _:
            return webhook_hook({"text": text, "sender_id": "ann"}), world.webhook


KINDS = ("telegram", "slack", "feishu", "discord", "webhook")
PLACES = {
    "telegram": ("agent:main:telegram:direct:5", "telegram-5"),
    "slack": ("agent:main:slack:direct:U1", "slack-D1"),
    "feishu": ("agent:main:feishu:direct:ou_1", "feishu-oc_1"),
    "discord": ("agent:main:discord:direct:31", "discord-900"),
    "webhook": ("agent:main:webhook:direct:ann", "webhook-ann"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_is_answered_on_every_platform_and_written_down(url, world, kind):
    async def main():
        provider = ScriptedProvider([{"text": "good day"}])
        async with desk(url, world, world.settings(kind), provider) as d:
            hook, platform = greeting(world, kind)
            reception = await d.bring(kind, hook)
            assert reception.answer.status == 200
            assert [text for _, text in await d.users()] == ["hello"]
            await d.delivered()
            assert platform.texts() == ["good day"]
            key, channel_id = PLACES[kind]
            assert await d.users() == [(key, "hello")]
            assert await d.conversations() == [channel_id]
            records = await d.logged("main", channel_id)
            assert [record[:2] for record in records] == [("user", "hello"), ("assistant", "good day")]
            [(_, reply)] = await d.gateway.outbox.list()
            assert (reply.state, reply.text, len(reply.ids)) == ("delivered", "", 1)

    run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_a_delivery_that_comes_five_times_before_during_and_after_its_turn_is_answered_once(url, world, kind):
    async def main():
        provider = Gated([{"text": "once"}])
        async with desk(url, world, world.settings(kind), provider) as d:
            hook, platform = greeting(world, kind)
            await asyncio.gather(d.bring(kind, hook), d.bring(kind, hook))
            await provider.reached[0].wait()
            await d.bring(kind, hook)
            provider.go[0].set()
            await d.delivered()
            await d.bring(kind, hook)
            await d.delivered()
        async with desk(url, world, world.settings(kind), provider, start=True) as d:
            await d.bring(kind, hook)
            await d.delivered()
            assert platform.texts() == ["once"]
            assert len(provider.prompts) == 1
            assert len(await d.users()) == 1

    run(main())


def test_of_a_request_that_is_denied_nothing_is_stored(tmp_path, world):
    async def main():
        async with desk(f"sqlite:{tmp_path}/s.db", world, world.settings()) as d:
            unsigned = [(kind, replace(greeting(world, kind)[0], headers={})) for kind in KINDS]
            others = [feishu_hook(world, world.feishu.event("x", token=token)) for token in ("other", "")]
            others.append(feishu_hook(world, world.feishu.event("x"), key="wrong"))
            for kind, hook in (*unsigned, *(("feishu", hook) for hook in others)):
                with pytest.raises(Denied):
                    await d.bring(kind, hook)
            assert await d.users() == []
            assert await d.conversations() == []
            assert not await d.t.store.ledger.list("pending")
            assert not await d.t.store.ledger.list("delivered")

    run(main())


def test_platforms_are_told_what_they_ask_at_first(url, world):
    async def main():
        async with desk(url, world, world.settings()) as d:
            hello = await d.bring("slack", slack_hook({"type": "url_verification", "challenge": "abc"}))
            assert hello.answer.body == b'{"challenge":"abc"}'
            asked = {"type": "url_verification", "challenge": "xyz", "token": "verify"}
            hello = await d.bring("feishu", feishu_hook(world, asked))
            assert hello.answer.body == b'{"challenge":"xyz"}'
            hello = await d.bring("discord", discord_hook(world, {"type": 1}))
            assert hello.answer.body == b'{"type":1}'
            with pytest.raises(Denied):
                await d.bring("feishu", feishu_hook(world, {**asked, "token": ""}))

    run(main())


def test_that_an_answer_is_under_way_is_shown(url, world):
    async def main():
        provider = Gated([{"text": "there"}])
        async with desk(url, world, world.settings("telegram"), provider) as d:
            await d.bring("telegram", telegram_hook(world.telegram.update("hello")))
            await provider.reached[0].wait()
            while not world.telegram.typing:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.01)
            provider.go[0].set()
            await d.delivered()
            assert set(world.telegram.typing) == {"5"}

    run(main())


@pytest.mark.parametrize("mode", ["steer", "followup", "collect", "interrupt"])
def test_of_forty_messages_in_a_burst_each_is_taken_or_clearly_refused(url, world, mode):
    async def main():
        provider = Gated(at=(0,))
        async with desk(url, world, world.settings("telegram", queue=mode), provider) as d:
            updates = [world.telegram.update(f"message {n}.") for n in range(40)]
            await d.bring("telegram", telegram_hook(updates[0]))
            await provider.reached[0].wait()
            for update in updates[1:]:
                await d.bring("telegram", telegram_hook(update))
            provider.go[0].set()
            await d.delivered()
            said = " ".join(text for _, text in await d.users())
            taken = [n for n in range(40) if f"message {n}." in said]
            refused = [text for text in world.telegram.texts() if "not accepted" in text]
            assert len(taken) + len(refused) == 40
            if mode != "interrupt":
                assert len(refused) == 19
            for update in updates:  # all of them once more: nobody is answered, or refused, twice
                await d.bring("telegram", telegram_hook(update))
            await d.delivered()
            assert len([text for text in world.telegram.texts() if "not accepted" in text]) == len(refused)

    run(main())


def test_a_turn_that_fails_is_told_to_the_sender_without_its_details(url, world):
    async def main():
        provider = ScriptedProvider([{"error": {"status": 400, "message": "key sk-secret is wrong"}}])
        async with desk(url, world, world.settings("telegram"), provider) as d:
            await d.bring("telegram", telegram_hook(world.telegram.update("hello")))
            await d.delivered()
            [told] = world.telegram.texts()
            assert "could not answer" in told
            assert "sk-secret" not in told

    run(main())


def test_a_long_answer_comes_in_pieces_in_order_and_a_failure_between_them_repeats_none(url, world):
    async def main():
        text = "\n".join(f"line {n}: {'x' * 80}" for n in range(200))
        provider = ScriptedProvider([{"text": text}])
        async with desk(url, world, world.settings("telegram"), provider) as d:
            await d.bring("telegram", telegram_hook(world.telegram.update("hello")))
            await d.settled()
            platform = world.telegram
            take = platform._take
            tries = []

            def failing(fields):
                tries.append(fields["text"])
                return (500, {"ok": False}) if len(tries) == 3 else take(fields)

            platform._take = failing
            await d.gateway.outbox.deliver_due()
            assert len(platform.sent) == 2
            d.clock.advance(s=5)
            await d.gateway.outbox.deliver_due()
            assert "\n".join(platform.texts()) == text
            assert tries[2] == tries[3]

    run(main())


def test_a_long_answer_that_another_process_goes_on_with_is_not_sent_by_both(url, world):
    async def main():
        provider = ScriptedProvider([{"text": "\n".join(f"{n} {'x' * 4_000}" for n in range(3))}])
        async with desk(url, world, world.settings("telegram"), provider) as d:
            ledger, answer = d.t.store.ledger, world.telegram.answer_later

            async def meanwhile(call):
                told = await answer(call)
                if call.path.endswith("/sendMessage") and len(world.telegram.sent) == 1:
                    [fact] = await ledger.list(WAITING)  # the other one has sent two pieces by now
                    assert await ledger.cas(WAITING, fact.key, fact.value, {**fact.value, "ids": ["1", "2"]})
                return told

            world.telegram.answer_later = meanwhile
            await d.bring("telegram", telegram_hook(world.telegram.update("hello")))
            await d.delivered()
            assert [text[0] for text in world.telegram.texts()] == ["0"]
            await d.gateway.outbox.deliver_due()
            assert [text[0] for text in world.telegram.texts()] == ["0", "2"]

    run(main())


def test_a_platform_that_is_down_for_ten_minutes_gets_everything_after_it_in_order_and_once(url, world):
    async def main():
        provider = ScriptedProvider([{"text": f"answer {n}"} for n in range(5)])
        async with desk(url, world, world.settings("telegram", queue="followup"), provider) as d:
            world.telegram.failure = PlatformFailure(503)
            for n in range(5):
                await d.bring("telegram", telegram_hook(world.telegram.update(f"question {n}")))
                await d.delivered()
            for _ in range(60):
                d.clock.advance(s=10)
                await d.gateway.outbox.deliver_due()
            waiting = await d.gateway.outbox.list()
            assert [reply.state for _, reply in waiting] == ["waiting"] * 5
            assert "503" in waiting[0][1].why
            attempts = len([call for call in world.telegram.calls if call.path.endswith("sendMessage")])
            assert attempts < 20  # with growing pauses
            assert world.telegram.sent == []
        async with desk(url, world, world.settings("telegram"), provider, clock=d.clock) as d:
            world.telegram.failure = None
            d.clock.advance(minutes=5)
            await d.gateway.outbox.deliver_due()
            assert world.telegram.texts() == [f"answer {n}" for n in range(5)]
            d.clock.advance(hours=1)
            await d.gateway.outbox.deliver_due()
            assert len(world.telegram.sent) == 5

    run(main())


@pytest.mark.parametrize("kind", ["discord", "feishu", "webhook"])
def test_where_a_platform_knows_tokens_an_answer_whose_receipt_was_lost_is_taken_once(url, world, kind):
    async def main():
        async with desk(url, world, world.settings(kind), ScriptedProvider([{"text": "one"}])) as d:
            hook, platform = greeting(world, kind)
            if kind == "discord":
                world.discord.expired = True  # so that it goes out as a message
            await d.bring(kind, hook)
            await d.settled()
            platform.failure = PlatformFailure(502, taken=True)
            await d.gateway.outbox.deliver_due()
            platform.failure = None
            d.clock.advance(s=60)
            await d.gateway.outbox.deliver_due()
            assert platform.texts() == ["one"]
            [(_, reply)] = await d.gateway.outbox.list()
            assert reply.state == "delivered"

    run(main())


def test_a_platform_that_names_a_time_is_left_alone_until_then(url, world):
    async def main():
        async with desk(url, world, world.settings("telegram")) as d:
            world.telegram.failure = PlatformFailure(429, body={"ok": False, "parameters": {"retry_after": 90}})
            await d.bring("telegram", telegram_hook(world.telegram.update("hello")))
            await d.delivered()
            world.telegram.failure = None
            d.clock.advance(s=89)
            await d.gateway.outbox.deliver_due()
            assert world.telegram.sent == []
            d.clock.advance(s=2)
            await d.gateway.outbox.deliver_due()
            assert world.telegram.texts() == ["ok"]

    run(main())


def test_an_answer_that_can_never_be_sent_does_not_hold_up_the_next(url, world):
    async def main():
        async with desk(url, world, world.settings("telegram")) as d:
            world.telegram.failure = PlatformFailure(
                403, body={"ok": False, "description": "bot was blocked by the user"}
            )
            await d.bring("telegram", telegram_hook(world.telegram.update("hello")))
            await d.delivered()
            world.telegram.failure = None
            await d.bring("telegram", telegram_hook(world.telegram.update("again")))
            await d.delivered()
            states = [(reply.state, reply.why) for _, reply in await d.gateway.outbox.list()]
            assert states[0][0] == "refused"
            assert "blocked" in states[0][1]
            assert states[1] == ("delivered", "")

    run(main())


def test_an_answer_too_old_to_matter_expires(url, world):
    async def main():
        async with desk(url, world, world.settings("telegram")) as d:
            world.telegram.failure = PlatformFailure(503)
            await d.bring("telegram", telegram_hook(world.telegram.update("hello")))
            await d.delivered()
            d.clock.advance(hours=25)
            world.telegram.failure = None
            await d.gateway.outbox.deliver_due()
            assert world.telegram.sent == []
            [(_, reply)] = await d.gateway.outbox.list()
            assert reply.state == "expired"
            assert not await d.t.store.ledger.list(WAITING)

    run(main())


def test_two_processes_at_one_store_send_each_answer_once_and_one_takes_over_from_the_other(url, world):
    async def sent(count):
        while len(world.telegram.sent) < count:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.02)

    async def main():
        settings = world.settings("telegram", queue="followup")
        async with desk(url, world, settings, start=True) as a:
            async with desk(url, world, settings, start=True) as b:
                for n, d in enumerate((a, b, a, b)):
                    await d.bring("telegram", telegram_hook(world.telegram.update(f"question {n}", chat=n + 1)))
                await sent(4)
            await a.bring("telegram", telegram_hook(world.telegram.update("one more", chat=9)))
            await sent(5)
            await asyncio.sleep(0.3)
            assert len(world.telegram.sent) == 5
        async with desk(url, world, settings, start=True) as a:
            await a.bring("telegram", telegram_hook(world.telegram.update("and one", chat=9)))
            await sent(6)

    run(main())


def test_a_store_that_cannot_be_written_does_not_make_a_sent_piece_be_sent_again(url, world):
    async def main():
        async with desk(url, world, world.settings("telegram")) as d:
            await d.bring("telegram", telegram_hook(world.telegram.update("hello")))
            await d.settled()
            outbox = d.gateway.outbox
            ledger = outbox._ledger
            outbox._ledger = Unwritable(ledger)
            for _ in range(3):
                await outbox.deliver_due()
                d.clock.advance(s=31)
            assert len(world.telegram.sent) == 1
            outbox._ledger = ledger
            await outbox.deliver_due()
            assert len(world.telegram.sent) == 1
            [(_, reply)] = await outbox.list()
            assert reply.state == "delivered"

    run(main())


class Unwritable:
    """A full disk: what was there can be read."""

    def __init__(self, ledger):
        self.get, self.list = ledger.get, ledger.list

    async def put_if_absent(self, *args, **options):
        raise StoreUnavailable("no space left")

    cas = delete = put_if_absent


def test_after_an_idle_hour_a_message_begins_a_new_session_and_a_command_does_not_extend_the_old_one(url, world):
    async def main():
        provider = ScriptedProvider()
        async with desk(url, world, world.settings("telegram"), provider, session_reset="idle:60") as d:
            for minutes, text in ((0, "early"), (30, "/status"), (31, "late")):
                d.clock.advance(minutes=minutes)
                await d.bring("telegram", telegram_hook(world.telegram.update(text)))
                await d.delivered()
            rows = (await d.t.sessions.list()).items
            assert sorted(row.status for row in rows) == ["active", "archived"]
            assert "early" not in str(provider.prompts[-1].messages)

    run(main())


def test_a_bot_that_polls_takes_no_request_not_even_one_with_its_empty_secret(url, world):
    async def main():
        settings = world.settings("telegram", mode="poll", webhook_secret="")
        async with desk(url, world, settings) as d:
            for secret in ("", None, "x"):
                with pytest.raises(Denied):
                    await d.bring("telegram", telegram_hook(world.telegram.update("hello"), secret))

    run(main())


def test_what_a_server_that_died_has_left_unanswered_is_answered_by_another_at_the_same_store(url, world, monkeypatch):
    monkeypatch.setattr(replies, "SWEEP_S", 0.05)

    async def main():
        provider = Gated([{"text": "by the other"}])
        async with desk(url, world, world.settings("telegram"), provider) as dying:
            await dying.bring("telegram", telegram_hook(world.telegram.update("hello")))
            await provider.reached[0].wait()
            for task in list(dying.gateway._tasks):
                task.cancel()
            async with desk(url, world, world.settings("telegram"), start=True):
                await asyncio.sleep(0.2)
                assert world.telegram.sent == []  # its turn still runs
                provider.go[0].set()
                while not world.telegram.sent:  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(0.02)
                assert world.telegram.texts() == ["by the other"]

    run(main())

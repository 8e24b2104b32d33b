"""In groups: a bot answers when it is mentioned, replied to or commanded; the rest it hears, as context for later."""

import asyncio

import pytest

import turnlog
from turnlog.channels.accounts import open_channels
from turnlog.core.entries import Received, User
from turnlog.core.heard import HEARD_MAX
from turnlog.core.query import Query
from turnlog.core.session import describe
from turnlog.testing import ScriptedProvider

from .scenes import desk, discord_hook, feishu_hook, run, slack_hook, telegram_hook, webhook_hook

GROUP = {"chat": -42, "kind": "supergroup"}
KEY = "agent:main:telegram:group:-42"
BOT = {"key": "@_user_1", "name": "Bot", "id": {"open_id": "ou_bot"}}
OTHER = {"key": "@_user_1", "name": "王", "id": {"open_id": "ou_9"}}


async def say(d, world, words, name="Ann", sender=5, **more):
    update = world.telegram.update(words, sender=sender, name=name, **{**GROUP, **more})
    await d.bring("telegram", telegram_hook(update))
    return update


async def row_of(d, key=KEY):
    return (await d.t.sessions.list(Query(key=key))).items[0]


def asked_with(provider):
    return [message["content"] for message in provider.prompts[-1].messages if message["role"] == "user"]


def test_what_is_not_said_to_the_bot_is_heard_and_joins_the_next_turn_with_its_senders(url, world):
    async def main():
        provider = ScriptedProvider()
        async with desk(url, world, world.settings("telegram"), provider, start=True) as d:
            await say(d, world, "lunch?", "Ann", 5)
            await say(d, world, "pizza at noon", "Bob", 6)
            row = await row_of(d)
            assert (row.received, row.heard, row.title, row.message_count) == ((), (3, 4), "", 0)
            assert (await d.t.store.find(Query(unfinished=True))).items == []
            assert await d.t.resume(rerun=True) == 0
            assert provider.prompts == []
            await say(d, world, "@try_bot what do they want?", "Cleo", 7)
            await d.delivered()
            assert asked_with(provider) == ["[Ann] lunch?\n\n[Bob] pizza at noon\n\n[Cleo] @try_bot what do they want?"]
            await say(d, world, "thanks all", "Bob", 6)
            await say(d, world, "/status", "Bob", 6)
            await d.delivered()
            await say(d, world, "and now, @TRY_BOT?", "Ann", 5)
            await d.delivered()
            assert asked_with(provider)[1] == "[Bob] thanks all\n\n[Ann] and now, @TRY_BOT?"
            assert len(world.telegram.sent) == 3
            row = await row_of(d)
            assert (row.heard, row.received, row.title) == ((), (), "[Cleo] @try_bot what do they want?")
            assert [role for role, _, _ in await d.logged("main", "telegram--42")].count("user") == 5 + 1

    run(main())


def test_a_message_that_is_heard_is_stored_once_and_never_answered_whoever_comes_later(url, world):
    async def main():
        provider = ScriptedProvider()
        settings = world.settings("telegram")
        async with desk(url, world, settings, provider) as d:
            update = await say(d, world, "by the way")
            await d.bring("telegram", telegram_hook(update))
            assert len(await d.logged("main", "telegram--42")) == 1
        async with desk(url, world, settings, provider, start=True) as d:
            await d.bring("telegram", telegram_hook(update))
            await d.gateway._replies.answer_all()
            await d.t.queue.idle()
            row = await row_of(d)
            entries = await d.t.store.read(row.id)
            assert [entry.mode for entry in entries if isinstance(entry, Received)] == ["heard"]
            assert not any(isinstance(entry, User) for entry in entries)
            assert describe(None, entries) == row
        assert provider.prompts == []
        assert world.telegram.sent == []

    run(main())


def test_hearing_is_not_capped_and_only_the_newest_join(url, world):
    async def main():
        provider = ScriptedProvider()
        async with desk(url, world, world.settings("telegram"), provider) as d:
            for n in range(HEARD_MAX + 10):
                await say(d, world, f"word {n};")
            await say(d, world, "@try_bot which?")
            await d.delivered()
            [said] = asked_with(provider)
            assert [n for n in range(HEARD_MAX + 10) if f"word {n};" in said] == list(range(10, HEARD_MAX + 10))

    run(main())


def test_what_was_heard_takes_a_twentieth_of_the_window_at_most(tmp_path, world):
    async def main():
        provider = ScriptedProvider(window=8_000)
        async with desk(f"sqlite:{tmp_path}/s.db", world, world.settings("telegram"), provider) as d:
            for n in range(8):
                await say(d, world, f"word {n}; " + "talk " * 90)
            await say(d, world, "@try_bot which?")
            await d.delivered()
            [said] = asked_with(provider)
            joined = [n for n in range(8) if f"word {n};" in said]
            assert joined == list(range(8))[-len(joined) :]
            assert 1 <= len(joined) < 8

    run(main())


def test_what_is_heard_during_a_turn_waits_for_the_next_one(url, world, tmp_path):
    async def main():
        go = tmp_path / "go"
        provider = ScriptedProvider([{"text": "slowly", "until": str(go)}])
        async with desk(url, world, world.settings("telegram"), provider) as d:
            await say(d, world, "@try_bot go")
            await say(d, world, "meanwhile", "Bob")
            go.touch()
            await d.delivered()
            assert "meanwhile" not in str(provider.prompts)
            assert len((await row_of(d)).heard) == 1
            await say(d, world, "@try_bot and?")
            await d.delivered()
            assert asked_with(provider)[-1] == "[Bob] meanwhile\n\n[Ann] @try_bot and?"

    run(main())


def test_a_turn_with_what_was_heard_can_be_rewound_forked_and_compacted(url, world):
    async def main():
        provider = ScriptedProvider()
        async with desk(url, world, world.settings("telegram"), provider) as d:
            await say(d, world, "@try_bot one")
            await d.delivered()
            first = (await row_of(d)).last_seq
            await say(d, world, "heard before", "Bob")
            await say(d, world, "@try_bot two")
            await d.delivered()
            row = await row_of(d)
            await say(d, world, "still open", "Bob")
            fork = await d.t.sessions.fork(row.id)
            assert fork.heard == ()
            assert "heard before" in str((await d.t.sessions.history(fork.id)).messages)
            await d.t.sessions.rewind(row.id, first)
            assert "heard before" not in str((await d.t.sessions.history(row.id)).messages)
            await say(d, world, "@try_bot three")
            await d.delivered()
            assert asked_with(provider)[-1] == "[Bob] still open\n\n[Ann] @try_bot three"

    run(main())


def test_a_bot_that_always_answers_does_so(url, world):
    async def main():
        provider = ScriptedProvider()
        async with desk(url, world, world.settings("telegram", answer="always"), provider) as d:
            await say(d, world, "lunch?")
            await d.delivered()
            assert len(world.telegram.sent) == 1

    run(main())


def test_an_unknown_way_to_answer_is_refused_at_the_start(world):
    with pytest.raises(turnlog.UsageError, match="answer"):
        open_channels(world.settings("telegram", answer="sometimes"))


def telegram(world, words, **more):
    return telegram_hook(world.telegram.update(words, **{**GROUP, "sender": 5, **more}))


def slack(world, words, **more):
    return slack_hook(world.slack.event(words, channel="C1", **more))


def feishu(world, words, **more):
    return feishu_hook(world, world.feishu.event(words, chat="oc_g", kind="group", **more))


def webhook(world, words, **more):
    return webhook_hook({"text": words, "sender_id": "ann", "chat_id": "room", "chat_type": "group", **more})


FROM_BOT = {"reply_to_message": {"message_id": 1, "from": {"id": 1, "is_bot": True}}}
FROM_ANN = {"reply_to_message": {"message_id": 1, "from": {"id": 5, "is_bot": False}}}
NAMED = {"entities": [{"type": "text_mention", "offset": 0, "length": 3, "user": {"id": 1}}]}
STRANGE = {"entities": [{"type": "mention", "offset": "x", "length": None}, 5, None]}
CASES = {
    "telegram a name": (telegram, "\U0001f600 hi @Try_Bot!", {}, True),
    "telegram another name": (telegram, "hi @somebody and @try_bot_2", {}, False),
    "telegram no name": (telegram, "try_bot is a bot, mail me at a@try_bot", {"entities": []}, False),
    "telegram a reply to it": (telegram, "yes", FROM_BOT, True),
    "telegram a reply to ann": (telegram, "yes", FROM_ANN, False),
    "telegram a name without an @": (telegram, "Try, hi", NAMED, True),
    "telegram strange marks": (telegram, "x", STRANGE, False),
    "telegram a path": (telegram, "/etc/hosts is a file", {}, True),
    "slack a name": (slack, "hi <@UBOT>", {}, True),
    "slack another name": (slack, "hi <@U2>", {}, False),
    "slack a mention": (slack, "hi", {"kind": "app_mention"}, True),
    "slack a reply to it": (slack, "yes", {"thread_ts": "1.2", "parent_user_id": "UBOT"}, True),
    "slack a reply to ann": (slack, "yes", {"thread_ts": "1.2", "parent_user_id": "U1"}, False),
    "feishu a name": (feishu, "@_user_1 hi", {"mentions": [BOT]}, True),
    "feishu another name": (feishu, "@_user_1 hi", {"mentions": [OTHER]}, False),
    "feishu everybody": (feishu, "@_all hi", {"mentions": [{"key": "@_all", "name": "all"}]}, False),
    "feishu no name": (feishu, "hi", {}, False),
    "feishu a reply to somebody": (feishu, "hi", {"parent_id": "om_7"}, False),
    "webhook that says no": (webhook, "hi", {"mentioned": False}, False),
    "webhook that says yes": (webhook, "hi", {"mentioned": True}, True),
    "webhook that cannot tell": (webhook, "hi", {}, True),
}


@pytest.mark.parametrize("case", CASES)
def test_whether_the_bot_is_meant(tmp_path, world, case):
    make, words, more, expected = CASES[case]

    async def main():
        provider = ScriptedProvider()
        async with desk(f"sqlite:{tmp_path}/s.db", world, world.settings(), provider) as d:
            for account in d.gateway._accounts.values():
                if account.kind in ("telegram", "feishu"):
                    await account.channel.listen(None)
            await d.bring(case.split()[0], make(world, words, **more))
            await d.settled()
            heard = [row for row in (await d.t.sessions.list()).items if row.heard]
            assert bool(heard) != expected
            assert len(provider.prompts) == expected

    run(main())


def test_a_reply_to_the_bot_is_found_by_asking_feishu(tmp_path, world):
    async def main():
        provider = ScriptedProvider()
        async with desk(f"sqlite:{tmp_path}/s.db", world, world.settings("feishu"), provider) as d:
            await d.bring("feishu", feishu(world, "@_user_1 hi", mentions=[BOT]))
            await d.delivered()
            sent = next(iter(world.feishu._uuids.values()))
            await d.bring("feishu", feishu(world, "and then?", parent_id=sent, root_id=sent))
            await d.delivered()
            assert len(provider.prompts) == 2

    run(main())


def test_a_platform_that_does_not_say_who_the_bot_is_counts_as_a_mention(world):
    channels = {account.kind: account.channel for account in open_channels(world.settings(), transport=world.transport)}

    def meant(kind, hook):
        return channels[kind].receive(hook).arrivals[0].mentioned

    assert meant("telegram", telegram(world, "hi @anybody")) is True
    assert meant("telegram", telegram(world, "hi")) is False
    assert meant("feishu", feishu(world, "@_user_1 hi", mentions=[OTHER])) is True
    event = world.slack.event("hi <@U7>", channel="C1")
    del event["authorizations"]
    assert meant("slack", slack_hook(event)) is True
    event["event"]["text"] = "hi"
    assert meant("slack", slack_hook(event)) is False
    assert meant("discord", discord_hook(world, world.discord.interaction("ask", "hi", guild="1"))) is True


@pytest.mark.filterwarnings("ignore")
def test_discord_tells_by_name_reply_and_role(tmp_path, world):
    pytest.importorskip("discord")
    from tests.channels.platforms.discord_gateway import gateway

    from .test_counterparts import DirectWorld

    me = {"id": "77", "username": "try", "discriminator": "0", "avatar": None, "bot": True}
    ann = {"id": "31", "username": "ann", "discriminator": "0", "avatar": None}

    def message(words, replied=None, **more):
        made = world.discord.message(words, guild="1", channel="50")
        if replied:
            first = {**world.discord.message("before", guild="1", channel="50"), "author": replied}
            more["message_reference"] = {"message_id": first["id"], "channel_id": "50", "guild_id": "1"}
            more |= {"type": 19, "referenced_message": first}
        return {**made, **more}

    async def main():
        async with gateway(world.discord) as address:
            world.discord.address = address
            settings = world.settings("discord", api_url=address)
            provider = ScriptedProvider()
            async with desk(f"sqlite:{tmp_path}/s.db", DirectWorld(world), settings, provider, start=True) as d:
                await world.discord.connected.wait()
                for made in (
                    message("just talk"),
                    message("to ann", replied=ann),
                    message("hi <@31>"),
                    message("well, <@77>", mentions=[me]),
                    message("to you", replied=me),
                ):
                    await world.discord.bring(made)
                while len(world.discord.sent) < 2:  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(0.05)
                await d.settled()
                said = [text for _, text in await d.users()]
                assert said == [
                    "[Ann] just talk\n\n[Ann] to ann\n\n[Ann] hi <@31>\n\n[Ann] well, <@77>",
                    "[Ann] to you",
                ]

    run(main())


def test_a_private_chat_and_a_group_with_one_id_have_two_conversations(url, world):
    async def main():
        async with desk(url, world, world.settings("webhook")) as d:
            for fields in (
                {"text": "for you alone", "sender_id": "room"},
                {"text": "for all", "sender_id": "ann", "chat_id": "room", "chat_type": "group"},
                {"text": "in a thread", "sender_id": "ann", "chat_id": "room", "chat_type": "group", "thread_id": "1"},
            ):
                await d.bring("webhook", webhook_hook(fields))
                await d.delivered()
            found = sorted(await d.conversations())
            assert found == ["webhook-room", "webhook~group-room", "webhook~group-room~1"]
            for name, said in zip(found, ("for you alone", "for all", "in a thread"), strict=True):
                assert (await d.logged("main", name))[0][1] == said

    run(main())

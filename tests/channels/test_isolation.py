"""What is said in private stays there: over all channels and stores, in prompts, in recall, for another bot."""

import json

import pytest

from turnlog.testing import ScriptedProvider

from ..stores import postgres
from .scenes import World, desk, discord_hook, feishu_hook, run, slack_hook, telegram_hook, webhook_hook

CANARY = "canary-{}-91357"


def private(world, kind, text):
    return {
        "telegram": lambda: telegram_hook(world.telegram.update(text, chat=5)),
        "slack": lambda: slack_hook(world.slack.event(text, channel="D1", user="U1")),
        "feishu": lambda: feishu_hook(world, world.feishu.event(text, user="ou_1")),
        "discord": lambda: discord_hook(world, world.discord.interaction("ask", text, user="31")),
        "webhook": lambda: webhook_hook({"text": text, "sender_id": "ann"}),
    }[kind]()


def elsewhere(world, kind, text):
    """The same person in a group, and another person in private."""
    return {
        "telegram": lambda: [
            telegram_hook(world.telegram.update(text, chat=-7, kind="supergroup", sender=5)),
            telegram_hook(world.telegram.update(text, chat=-7, kind="supergroup", sender=5, topic=2)),
            telegram_hook(world.telegram.update(text, chat=6)),
        ],
        "slack": lambda: [
            slack_hook(world.slack.event(text, channel="C1", user="U1")),
            slack_hook(world.slack.event(text, channel="D2", user="U2")),
        ],
        "feishu": lambda: [
            feishu_hook(world, world.feishu.event(text, chat="oc_g", kind="group", user="ou_1")),
            feishu_hook(world, world.feishu.event(text, chat="oc_2", user="ou_2")),
        ],
        "discord": lambda: [
            discord_hook(world, world.discord.interaction("ask", text, user="31", guild="1", channel="50")),
            discord_hook(world, world.discord.interaction("ask", text, user="32", channel="901")),
        ],
        "webhook": lambda: [
            webhook_hook({"text": text, "sender_id": "ann", "chat_id": "room", "chat_type": "group"}),
            webhook_hook({"text": text, "sender_id": "ann", "chat_id": "room"}),
            webhook_hook({"text": text, "sender_id": "bob"}),
        ],
    }[kind]()


KINDS = ("telegram", "slack", "feishu", "discord", "webhook")


@pytest.mark.parametrize("store", ["sqlite", "jsonl", "memory", "postgresql"])
@pytest.mark.parametrize("enabled", [True, False], ids=["sessions", "memory mode"])
def test_a_private_word_reaches_no_other_prompt(store, enabled, tmp_path):
    url = {
        "sqlite": lambda: f"sqlite:{tmp_path}/s.db",
        "jsonl": lambda: f"jsonl:{tmp_path}/f",
        "memory": lambda: "memory:",
        "postgresql": lambda: postgres.url_of(tmp_path),
    }[store]()

    async def main():
        world, provider = World(), ScriptedProvider()
        settings = world.settings(answer="always")
        settings["telegram"]["second"] = {**settings["telegram"], "webhook_secret": "second"}
        async with desk(url, world, settings, provider, session_enabled=enabled) as d:
            for kind in KINDS:
                await d.bring(kind, private(world, kind, f"remember {CANARY.format(kind)}"))
            await d.delivered()
            before = len(provider.prompts)
            assert before == len(KINDS)
            for kind in KINDS:
                for hook in elsewhere(world, kind, "what should you remember? canary 91357"):
                    await d.bring(kind, hook)
            other_bot = telegram_hook(world.telegram.update("remember canary 91357?", chat=5), "second")
            await d.bring("telegram", other_bot, account="second")
            await d.delivered()
            for prompt in provider.prompts[before:]:
                shown = json.dumps([prompt.system, prompt.messages], ensure_ascii=False)
                assert not any(CANARY.format(kind) in shown for kind in KINDS)
            own = len(provider.prompts)
            await d.bring("telegram", private(world, "telegram", "remember canary 91357?"))
            await d.delivered()
            shown = json.dumps([provider.prompts[own].system, provider.prompts[own].messages])
            assert CANARY.format("telegram") in shown  # one's own is there: by history, or by recall
            assert CANARY.format("slack") not in shown

    run(main())


def test_what_stands_only_in_the_convlog_reaches_no_prompt(url, world):
    async def main():
        provider = ScriptedProvider()
        async with desk(url, world, world.settings("telegram"), provider) as d:
            await d.bring("telegram", telegram_hook(world.telegram.update("/new convlog-canary")))
            await d.bring("telegram", telegram_hook(world.telegram.update("hello")))
            await d.delivered()
            assert any("convlog-canary" in text for _, text, _ in await d.logged("main", "telegram-5"))
            assert "convlog-canary" not in json.dumps([p.messages for p in provider.prompts])
            assert "convlog-canary" not in json.dumps([p.system for p in provider.prompts])

    run(main())


def test_in_memory_mode_a_channel_is_answered_and_no_session_is_written(url, world, tmp_path):
    async def main():
        provider = ScriptedProvider([{"text": "noted"}])
        async with desk(url, world, world.settings("telegram"), provider, session_enabled=False) as d:
            update = telegram_hook(world.telegram.update("the code is 4711"))
            await d.bring("telegram", update)
            await d.bring("telegram", update)
            await d.delivered()
            assert world.telegram.texts() == ["noted"]
        assert not list(tmp_path.rglob("*sessions.db"))
        assert not list(tmp_path.rglob("ses-*.jsonl"))

    run(main())

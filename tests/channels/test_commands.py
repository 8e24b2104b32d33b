"""Chat commands: carried out and answered in the sender's language, never stored, never shown to a model."""

import asyncio
from contextlib import asynccontextmanager

import pytest

import turnlog
from turnlog.channels import commands
from turnlog.channels.commands import ChatCommand, parse
from turnlog.core.query import Query
from turnlog.testing import ScriptedProvider

from ..turns.gates import Gated
from .scenes import desk, run, telegram_hook


async def tell(d, world, text, **how):
    """The answer to it."""
    before = len(world.telegram.sent)
    await d.bring("telegram", telegram_hook(world.telegram.update(text, **how)))
    if not text.startswith("/"):
        await d.settled()
    while len(world.telegram.sent) == before:
        await d.gateway.outbox.deliver_due()
        await asyncio.sleep(0.01)
    return world.telegram.texts()[-1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/new", ChatCommand("new")),
        ("/NEW my project ", ChatCommand("new", "my project")),
        ("/start", ChatCommand("help")),
        ("/帮助", ChatCommand("help")),
        ("/nonsense x", ChatCommand("nonsense", "x")),
        ("/etc/hosts is broken", None),
        ("hello /new", None),
        ("/", None),
        ("/ new", None),
        ("// comment", None),
    ],
)
def test_what_is_a_command(text, expected):
    assert parse(text) == expected


def test_commands_are_answered_and_never_stored_nor_shown_to_a_model(url, world):
    async def main():
        provider = ScriptedProvider()
        async with desk(url, world, world.settings("telegram"), provider) as d:
            assert "no conversations" in await tell(d, world, "/sessions")
            assert "no conversations" in await tell(d, world, "/status")
            assert (await d.t.sessions.list()).items == []
            await tell(d, world, "hello")
            assert "Messages: 2" in await tell(d, world, "/status")
            assert "ses-" in await tell(d, world, "/new my-project")
            await tell(d, world, "in the new one")
            listed = await tell(d, world, "/sessions")
            assert "my-project" in listed
            assert listed.count("ses-") == 2
            assert "Nothing was compacted" in await tell(d, world, "/compact")
            assert "Nothing is running" in await tell(d, world, "/stop")
            assert "/help" in await tell(d, world, "/nonsense")
            assert "/compact" in await tell(d, world, "/help")
            said = [text for _, text in await d.users()]
            assert sorted(said) == ["hello", "in the new one"]
            assert len(provider.prompts) == 2
            assert not any("/" in str(prompt.messages) for prompt in provider.prompts)

    run(main())


def test_commands_answer_in_chinese_where_the_sender_speaks_it(url, world):
    async def main():
        async with desk(url, world, world.settings("telegram")) as d:
            speaker = {"from": {"id": 5, "is_bot": False, "first_name": "安", "language_code": "zh-hans"}}
            assert "开始新会话" in await tell(d, world, "/help", **speaker)
            assert "已开始新会话" in await tell(d, world, "/新会话")

    run(main())


def test_stop_ends_the_running_answer_and_keeps_what_was_said(url, world):
    async def main():
        provider = Gated([{"text": "after"}])
        async with desk(url, world, world.settings("telegram"), provider) as d:
            await d.bring("telegram", telegram_hook(world.telegram.update("long question")))
            await provider.reached[0].wait()
            assert await tell(d, world, "/stop") == "Stopped."
            assert await tell(d, world, "again") == "after"
            assert world.telegram.texts() == ["Stopped.", "after"]

    run(main())


def test_a_command_that_comes_twice_is_carried_out_once(url, world):
    async def main():
        async with desk(url, world, world.settings("telegram")) as d:
            update = world.telegram.update("/new")
            await asyncio.gather(*(d.bring("telegram", telegram_hook(update)) for _ in range(3)))
            await d.delivered()
            await d.bring("telegram", telegram_hook(update))
            await d.delivered()
            assert len((await d.t.sessions.list()).items) == 1
            assert len(world.telegram.sent) == 1

    run(main())


def test_a_command_concerns_its_own_place_only(url, world):
    async def main():
        async with desk(url, world, world.settings("telegram")) as d:
            await tell(d, world, "private words", chat=5)
            listed = await tell(d, world, "/sessions", chat=-1, kind="group", sender=5)
            assert "no conversations" in listed
            await tell(d, world, "/new", chat=-1, kind="group", sender=5)
            rows = (await d.t.sessions.list(Query(status="active"))).items
            assert {row.key for row in rows} == {"agent:main:telegram:direct:5", "agent:main:telegram:group:-1"}

    run(main())


def test_compact_does_not_keep_the_platform_waiting_and_is_done_once(url, world, tmp_path):
    async def main():
        go = tmp_path / "go"
        provider = ScriptedProvider(summaries=[{"text": "Summary of it.", "until": str(go)}])
        async with desk(url, world, world.settings("telegram"), provider) as d:
            for n in range(4):
                await tell(d, world, f"fact {n} " + "words " * 50)
            update = world.telegram.update("/compact facts")
            for _ in range(2):  # returns, though there is no summary yet
                await d.bring("telegram", telegram_hook(update))
            go.touch()
            while len(world.telegram.sent) < 5:
                await asyncio.sleep(0.05)
                await d.gateway.outbox.deliver_due()
            await asyncio.sleep(0.1)
            await d.gateway.outbox.deliver_due()
            assert len(world.telegram.sent) == 5
            assert "→" in world.telegram.texts()[-1] or "Nothing" in world.telegram.texts()[-1]

    run(main())


def test_the_language_of_a_sender():
    assert commands.language_of("hi", "zh-CN") == "zh"
    assert commands.language_of("你好", "") == "zh"
    assert commands.language_of("hi", "de") == "en"


GROUP = {"chat": -7, "kind": "group"}
ASKS = {"tool_calls": [{"id": "c1", "name": "send", "input": {"to": "ann"}}]}


@asynccontextmanager
async def asking(url, world, *approvers):
    sent = []

    @turnlog.tool(approval=True)
    def send(to: str) -> str:
        sent.append(to)
        return "sent"

    settings = world.settings("telegram")
    settings["telegram"] |= {"approvers": list(approvers), "answer": "always"}
    provider = ScriptedProvider([ASKS, {"text": "finished."}])
    async with desk(url, world, settings, provider, tools=[send], channels_telegram=settings["telegram"]) as d:
        yield d, sent


async def heard(d, world, text):
    """Waits until the bot has said this."""
    while not any(text in told for told in world.telegram.texts()):
        await d.gateway.outbox.deliver_due()
        await asyncio.sleep(0.01)


def test_a_named_person_approves_a_call_by_a_command_and_nobody_else_does(url, world):
    async def main():
        async with asking(url, world, "42") as (d, sent):
            await d.bring("telegram", telegram_hook(world.telegram.update("go", sender=42, **GROUP)))
            await heard(d, world, "send waits for approval")
            row = (await d.t.sessions.list()).items[0]
            assert row.waiting
            assert "may not approve" in await tell(d, world, "/yes", sender=43, **GROUP)
            assert sent == []
            await d.bring("telegram", telegram_hook(world.telegram.update("/yes", sender=42, **GROUP)))
            await heard(d, world, "finished.")
            assert sent == ["ann"]
            assert "No call waits" in await tell(d, world, "/no", sender=42, **GROUP)
            [record] = await d.t.approvals(row)
            assert record.by == "telegram:42 (Ann)"

    run(main())


def test_without_a_named_person_a_call_is_denied_at_once(url, world):
    async def main():
        async with asking(url, world) as (d, sent):
            await d.bring("telegram", telegram_hook(world.telegram.update("go", sender=42)))
            await heard(d, world, "finished.")
            assert sent == []

    run(main())

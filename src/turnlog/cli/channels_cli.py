"""`turnlog channels`: what is configured, what is on its way out, and a platform played in the terminal."""

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from .naming import age
from .options import Flags, common, flags_now, opened, run
from .output import columns_of_screen, table, write, write_json

if TYPE_CHECKING:
    from ..library import Turnlog
    from ..outbox import Letter

YOU = 5
"""The id of the person at this terminal, on the platform that is played."""
TOKEN = "1:try"  # noqa: S105 - of a platform that is only played


def register(cli: click.Group, sessions: click.Group | None = None) -> None:
    cli.add_command(channels)


@click.group()
@common
def channels() -> None:
    """Try a bot without an account, and look at what is on its way to people.

    \b
    turnlog channels try telegram
    turnlog channels outbox
    """


@channels.command("try")
@click.argument("kind", type=click.Choice(["telegram"]))
@click.option("--group", is_flag=True, help="Speak in a group instead of alone with the bot.")
@click.option("--name", default="You", help="Your name on the platform [You].")
@common
def try_(kind: str, group: bool, name: str) -> None:
    """Play the platform in this terminal: what you write reaches the bot as it would from there.

    Commands such as /new and /help are the bot's. An empty line or Ctrl-D ends it.

    \b
    turnlog channels try telegram
    echo hello | turnlog channels try telegram --model offline
    """
    asyncio.run(_play(flags_now(), group=group, name=name))


@channels.command()
@common
def outbox() -> None:
    """List answers: those that wait to be sent, and what became of those of the last days."""
    flags = flags_now()

    async def work(t: "Turnlog") -> None:
        from ..outbox import Outbox

        async def unheard(_: Any) -> None:
            return

        box = Outbox(t.store, {}, clock=lambda: 0, on_delivered=unheard)
        letters = await box.list()
        if flags.json:
            write_json({"letters": [_row(letter_id, letter) for letter_id, letter in letters]})
            return
        cells = [(x.channel_id, x.state, age(x.order), x.why) for _, x in letters]
        for line in table(cells, columns_of_screen()) if cells else ["Nothing is on its way."]:
            write(line)

    run(work, flags)


def _row(letter_id: str, letter: "Letter") -> dict[str, Any]:
    return {
        "id": letter_id,
        "channelId": letter.channel_id,
        "agentId": letter.agent,
        "state": letter.state,
        "at": letter.order,
        "attempts": letter.attempts,
        "why": letter.why,
    }


async def _play(flags: Flags, *, group: bool, name: str) -> None:
    try:
        import httpx
    except ModuleNotFoundError as error:
        raise UsageError("channels need httpx", hint="Install turnlog[channels].") from error
    from ..channels.choosing import open_channels
    from ..convlog import open_convlog
    from ..stores.stamping import now_ms
    from ..switchboard import Switchboard
    from ..testing.platforms.telegram import TelegramPlatform

    # Numbers rise from one trial to the next, as Telegram's do: an old one would be taken for a message seen before.
    platform = TelegramPlatform(TOKEN, first_update=now_ms())
    settings = {"telegram": {"token": TOKEN, "mode": "poll", "agent": flags.agent_name}}
    where: dict[str, Any] = {"chat": -YOU, "kind": "group", "sender": YOU} if group else {"chat": YOU}
    async with opened(flags) as t, open_convlog("memory:") as convlog:
        booths = open_channels(settings, agents=(flags.agent_name,), transport=httpx.ASGITransport(app=platform))
        switchboard = Switchboard(t, convlog, booths, clock=now_ms, log=_Silent())
        await t.resume(rerun=True)
        await switchboard.start()
        try:
            await _converse(platform, switchboard, {**where, "name": name})
        finally:
            switchboard.begin_closing()
            await t.queue.close()
            await switchboard.close()


async def _converse(platform: Any, switchboard: Any, where: dict[str, Any]) -> None:
    while words := (await asyncio.to_thread(_ask)).strip():
        shown = len(platform.sent)
        platform.bring(platform.update(words, **where))
        await _answered(platform, switchboard, shown)
        for message in platform.sent[shown:]:
            write(f"bot > {message['text']}")
        sys.stdout.flush()


def _ask() -> str:
    if sys.stdin.isatty():
        sys.stdout.write("you > ")
        sys.stdout.flush()
    return sys.stdin.readline()


async def _answered(platform: Any, switchboard: Any, before: int) -> None:
    """Until the bot has said something, and nothing more is on its way."""
    while platform.updates or len(platform.sent) == before:  # noqa: ASYNC110 - what is played has no bell
        await asyncio.sleep(0.05)
    while await switchboard.outbox.expected() or await switchboard.outbox.list(ended=False):  # noqa: ASYNC110
        await asyncio.sleep(0.05)


class _Silent:
    def info(self, event: str, **values: Any) -> None:
        return

    def error(self, event: str, **values: Any) -> None:
        write(f"{event}: {values.get('error', '')}")

"""`turnlog channels`: replies to be sent, and a trial of a bot with an imitated platform in the terminal."""

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import click

from ...errors import MissingExtra
from ..options import Flags, common, flags_now, opened, report, with_turnlog
from ..output import columns_of_screen, table, write
from ..session_names import age

if TYPE_CHECKING:
    from ...channels.outbox import OutgoingReply
    from ...library import Turnlog

YOU = 5
"""The id of the person at this terminal, on the imitated platform."""
TOKEN = "1:try"  # noqa: S105 - of an imitated platform


@click.group()
@common
def channels() -> None:
    """Try a bot without an account, and list replies that wait to be sent.

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
    """Imitate the platform in this terminal: your messages reach the bot as if they came from there.

    Commands such as /new and /help are the bot's. An empty line or Ctrl-D ends it. In a group the bot answers when it
    is mentioned, as @try_bot.

    \b
    turnlog channels try telegram
    echo hello | turnlog channels try telegram --model offline
    """
    asyncio.run(_play(flags_now(), group=group, name=name))


@channels.command()
@with_turnlog()
async def outbox(t: "Turnlog", flags: Flags) -> None:
    """List replies: those that wait to be sent, and those of the last days."""
    from ...channels.outbox import ENDED, WAITING, replies_in

    replies = await replies_in(t.ledger(WAITING, ENDED), WAITING, ENDED)
    cells = [(x.channel_id, x.state, age(x.order), x.why) for _, x in replies]
    lines = table(cells, columns_of_screen()) or ["Nothing is on its way."]
    report({"replies": [_row(reply_id, reply) for reply_id, reply in replies]}, *lines)


def _row(reply_id: str, reply: "OutgoingReply") -> dict[str, Any]:
    return {
        "id": reply_id,
        "channelId": reply.channel_id,
        "agentId": reply.agent,
        "state": reply.state,
        "at": reply.order,
        "attempts": reply.attempts,
        "why": reply.why,
    }


async def _play(flags: Flags, *, group: bool, name: str) -> None:
    try:
        import httpx
    except ModuleNotFoundError as error:
        raise MissingExtra("channels need the package httpx", extra="channels") from error
    from ...channels.accounts import open_channels
    from ...channels.gateway import Gateway
    from ...convlog import open_convlog
    from ...stores.stamping import now_ms
    from ...testing.platforms.telegram import TelegramPlatform

    # Update numbers rise from one trial to the next, as Telegram's do: an old one would count as a duplicate.
    platform = TelegramPlatform(TOKEN, first_update=now_ms())
    settings = {"telegram": {"token": TOKEN, "mode": "poll", "agent": flags.agent_name}}
    where: dict[str, Any] = {"chat": -YOU, "kind": "group", "sender": YOU} if group else {"chat": YOU}
    async with opened(flags) as t, open_convlog("memory:") as convlog:
        accounts = open_channels(settings, agents=(flags.agent_name,), transport=httpx.ASGITransport(app=platform))
        gateway = Gateway(t, convlog, accounts, clock=now_ms, log=_Silent())
        await t.resume(rerun=True)
        await gateway.start()
        try:
            await _converse(platform, gateway, {**where, "name": name})
        finally:
            gateway.begin_closing()
            await t.end_turns()
            await gateway.close()


async def _converse(platform: Any, gateway: Any, where: dict[str, Any]) -> None:
    while words := (await asyncio.to_thread(_ask)).strip():
        shown = len(platform.sent)
        platform.bring(platform.update(words, **where))
        name = f"@{platform.me['username']}"
        asked = where["chat"] > 0 or words.startswith("/") or name in words
        await _answered(platform, gateway, shown if asked else -1)
        if not asked:
            write(f"(heard; in a group the bot answers to {name} and to commands)")
        for message in platform.sent[shown:]:
            write(f"bot > {message['text']}")
        sys.stdout.flush()


def _ask() -> str:
    if sys.stdin.isatty():
        sys.stdout.write("you > ")
        sys.stdout.flush()
    return sys.stdin.readline()


async def _answered(platform: Any, gateway: Any, before: int) -> None:
    """Waits until the bot has replied (`before`: its messages before, -1 if it need not reply) and nothing waits."""
    while platform.updates or len(platform.sent) == before:  # noqa: ASYNC110 - the imitated platform sends no event
        await asyncio.sleep(0.05)
    while await gateway.outbox.pending() or await gateway.outbox.list(ended=False):  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.05)


class _Silent:
    def info(self, event: str, **values: Any) -> None:
        return

    def error(self, event: str, **values: Any) -> None:
        write(f"{event}: {values.get('error', '')}")

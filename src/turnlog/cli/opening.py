"""Which session a chat is about: the key's selected one, one by name, or a new one."""

import os
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from ..core import keys
from ..core.keys import SessionKey
from ..core.query import Query
from ..core.session import Session
from ..errors import Busy, NotFound, UsageError
from .messages import Words
from .options import Flags

if TYPE_CHECKING:
    from ..library import Turnlog

QUIT_WORDS = ("quit", "exit")
"""What ends a chat without a slash, in any case."""


class Choice(Struct, frozen=True, kw_only=True):
    """What the command line says about it."""

    session: str | None = None
    key: str | None = None
    new: bool = False
    label: str | None = None

    def __post_init__(self) -> None:
        if sum((self.session is not None, self.key is not None and not self.new, self.new)) > 1:
            raise UsageError("--session, --new and --key exclude one another", hint="Give one of them.")
        if self.label is not None and not self.new:
            raise UsageError("--label is for a new session", hint="Give --new as well.")


class Found(Struct, frozen=True):
    row: Session
    created: bool


async def find(t: "Turnlog", flags: Flags, choice: Choice, *, select: bool) -> Found:
    """`select`: whether a session given by name gets its key's messages from now on."""
    if choice.session is not None:
        row = await t.sessions.resolve(choice.session, agent=flags.agent)
        return Found(await t.sessions.select(row.id) if select else row, created=False)
    key = key_of(flags, choice.key)
    if choice.new:
        return Found(await make(t, key, choice.label), created=True)
    known = await t.sessions.list(Query(key=keys.format(key), status="active", limit=1))
    row = await t.sessions.open(key)
    return Found(row, created=row.id not in {item.id for item in known.items})


def key_of(flags: Flags, text: str | None) -> SessionKey:
    if text is not None:
        return keys.parse(text, agent=flags.agent_name)
    return SessionKey(agent=keys.check_agent(flags.agent_name), channel="cli", kind="direct", peer="user")


async def make(t: "Turnlog", key: SessionKey, label: str | None) -> Session:
    """What /new makes: a session at the key or, where the settings say so, a key of its own."""
    if t.settings.session.new_makes == "key":
        return await t.sessions.open(await _free_key(t, key), label=label)
    return await t.sessions.new(key, label=label)


async def _free_key(t: "Turnlog", key: SessionKey) -> SessionKey:
    base = f"{key.peer.partition('_')[0]}_{time.strftime('%H%M%S')}"
    number = 1
    while True:
        peer = base if number == 1 else f"{base}_{number}"
        fresh = SessionKey(agent=key.agent, channel=key.channel, account=key.account, kind=key.kind, peer=peer)
        if not (await t.sessions.list(Query(key=keys.format(fresh), limit=1))).items:
            return fresh
        number += 1


async def who_waits(t: "Turnlog", row: Session, words: Words) -> str:
    """Why a message has to wait: who has the turn."""
    try:
        async with t.store.lease(row.id, wait_s=0):
            return words("queued_here")
    except Busy as busy:
        if busy.holder.startswith(f"process {os.getpid()} "):
            return words("queued_here")
        return words("queued", who=busy.holder or "another process")


async def again(t: "Turnlog", row: Session) -> Session:
    """The row as it is now; the key's session if this one was deleted meanwhile."""
    try:
        return await t.sessions.get(row.id)
    except NotFound:
        return await t.sessions.open(row.key)

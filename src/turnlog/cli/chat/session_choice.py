"""The session of a chat: the key's selected one, one by name, or a new one."""

from typing import TYPE_CHECKING

from msgspec import Struct

from ...core import keys
from ...core.keys import SessionKey
from ...core.query import PAGE_MAX, Query
from ...core.session import Session
from ...errors import NotFound, UsageError
from ...texts import Texts
from ..options import Flags

if TYPE_CHECKING:
    from ...library import Turnlog

QUIT_WORDS = ("quit", "exit")
"""Lines that end a chat, besides /quit; upper or lower case."""


class SessionChoice(Struct, frozen=True, kw_only=True):
    """The options of the command line that choose a session."""

    session: str | None = None
    key: str | None = None
    new: bool = False
    label: str | None = None

    @property
    def by_key(self) -> bool:
        """Whether messages go to the key, and so to a new session when the old one has expired."""
        return self.session is None

    def __post_init__(self) -> None:
        if sum((self.session is not None, self.key is not None and not self.new, self.new)) > 1:
            raise UsageError("--session, --new and --key exclude one another", hint="Give one of them.")
        if self.label is not None and not self.new:
            raise UsageError("--label is for a new session", hint="Give --new as well.")


class Found(Struct, frozen=True):
    row: Session
    created: bool


async def find(t: "Turnlog", flags: Flags, choice: SessionChoice, *, select: bool) -> Found:
    """`select`: whether a session given by name gets its key's messages from now on.

    A mistyped agent or model is an error before any session is created. `--model` takes back what was chosen for the
    session before.
    """
    found = await _find(t, flags, choice, select=select)
    if flags.model and found.row.model:
        return Found(await t.choose_model(found.row, ""), created=found.created)
    return found


async def _find(t: "Turnlog", flags: Flags, choice: SessionChoice, *, select: bool) -> Found:
    if choice.session is not None:
        row = await t.sessions.resolve(choice.session, agent=flags.agent)
        t.check_agent(row.agent)
        return Found(await t.sessions.select(row.id) if select else row, created=False)
    key = key_of(flags, choice.key)
    t.check_agent(key.agent)
    if choice.new:
        return Found(await t.new(key, label=choice.label), created=True)
    known = await t.sessions.list(Query(key=keys.format(key), limit=PAGE_MAX))
    row = await t.sessions.open(key)
    return Found(row, created=not row.message_count and row.id not in {item.id for item in known.items})


def key_of(flags: Flags, text: str | None) -> SessionKey:
    if text is not None:
        return keys.parse(text, agent=flags.agent_name)
    return SessionKey(agent=keys.check_agent(flags.agent_name), channel="cli", kind="direct", peer="user")


async def waiting_note(t: "Turnlog", row: Session, words: Texts) -> str:
    """Why a message has to wait: who runs a turn in its session."""
    holder = await t.holder(row)
    return words("queued", who=holder) if holder else words("queued_here")


async def current(t: "Turnlog", row: Session) -> Session:
    """The row as it is now; the key's session if this one was deleted meanwhile."""
    try:
        return await t.sessions.get(row.id)
    except NotFound:
        return await t.sessions.open(row.key)

"""What every `Access` of a process shares, what some of its methods return, and all that names a session."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from msgspec import Struct, field

from ..core.keys import Inbound, SessionById, SessionKey
from ..core.session import Session, StatusValue
from ..memory import Memory
from ..settings import Settings
from ..stores import Clock, Store
from ..turns.agent import Agent
from ..turns.queue import Queue
from ..turns.relay import Relays
from ..turns.runner import Runner

SessionPlace: TypeAlias = Session | SessionKey | SessionById
"""A row, a key or an id: everything that a session's name can be read as."""


class BoundSession:
    """A handle of a session, synchronous or not. It can be given wherever a session is named."""

    id: str
    key: str
    agent: str
    channel: str
    label: str | None
    title: str
    status: StatusValue
    message_count: int
    turn_count: int
    created_at: int
    last_at: int
    token_estimate: int
    compactions: int
    last_seq: int
    model: str

    def __init__(self, place: SessionPlace) -> None:
        self.place = place
        """What the handle was made from. A key leads to the session that is selected there now."""

    @property
    def row(self) -> Session:
        """Where the attributes above come from."""
        raise NotImplementedError

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or not hasattr(Session, name):
                raise AttributeError(f"a session has no attribute {name!r}")
            return getattr(self.row, name)


Where: TypeAlias = Session | SessionKey | SessionById | Inbound | BoundSession | str
"""A session: its row, key, id or handle, a message as it came in at an edge, or a text (`core.keys.named`)."""


class Agents(Protocol):
    """The agents of the settings."""

    async def get(self, name: str) -> Agent:
        """Opens an agent by its name."""
        ...

    async def of(self, row: Session) -> Agent:
        """The agent of a session, with the model that was chosen for it; with its own if that is not offered now."""
        ...

    def offered(self, name: str) -> tuple[str, ...]:
        """The models that may be chosen for the sessions of an agent; the first is its own."""
        ...

    def check(self, name: str) -> None:
        """Raises UsageError if the settings have no such agent, or no such model for it."""
        ...

    def allow(self, pattern: str) -> None:
        """Lets calls that match this pattern run without approval from now on, for every agent."""
        ...

    async def upstream(self, model: str | None) -> Agent:
        """A model without tools or system prompt, for clients that run their own loop."""
        ...


class Parts(Struct, frozen=True, kw_only=True):
    """The objects that wiring creates once, shared by every `Access` of a process."""

    settings: Settings
    store: Store
    queue: Queue
    runner: Runner
    relays: Relays
    agents: Agents
    memory: Callable[[], Awaitable[Memory]]
    clock: Clock
    deleting: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    """Where no sessions are kept: tasks that delete the session of a turn when the turn has ended."""


class CompactionReport(Struct, frozen=True, kw_only=True):
    """What a compaction did, or would do if `applied` is false."""

    summary: str
    first_kept: int
    covers: tuple[int, int]
    tokens_before: int
    tokens_after: int
    applied: bool


class AgentModel(Struct, frozen=True):
    """The model that answers for an agent, or in a session."""

    name: str
    window: int
    """Tokens."""

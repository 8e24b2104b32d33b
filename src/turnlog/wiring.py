"""Builds all objects from the settings: the only module that knows all concrete classes."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Unpack, cast

from msgspec.structs import replace

from .access import Parts, own_files
from .channels.approvers import may_approve, may_ask
from .core import keys
from .core.arguments import checked, shown
from .core.entries import Assistant, Entry, User, text_of
from .core.session import Session
from .errors import ProviderError, StoreUnavailable, TurnlogError, UsageError
from .library import Turnlog, close_by
from .memory import Memory, is_there, open_memory, owner_of, place_of
from .providers import Provider
from .providers.opening import SHARED, open_provider, renamed
from .runtime.engine import Held, shared
from .sessions import Sessions
from .sessions.checking import checked_async, checked_methods
from .settings import FREE_SECTIONS, AgentSettings, Settings, limits_of, load
from .settings.typed import SettingsArguments
from .stores import Clock, Ledger, Progress, Store, open_store, to_read
from .stores.spaces import LedgerSpaces
from .stores.stamping import now_ms
from .sync import SyncTurnlog
from .sync.facade import EngineDoor
from .tools import ApprovalPolicy, Tool, Toolbox, file_tools, history_tools
from .tools.kept import KeptFiles
from .turns import request_log
from .turns.agent import Agent, schemas
from .turns.compactor import Compactor, OnRequest, unlogged
from .turns.deferred import journal_of
from .turns.places import Places
from .turns.queue import Queue
from .turns.relay import Relays
from .turns.request_log import RequestLog
from .turns.runner import Runner

OwnTool = Tool | Callable[..., Any]


class OpenArguments(SettingsArguments, total=False):
    """What `open` takes beside the URL."""

    home: str | Path | None
    tools: Sequence[OwnTool]
    workspace: str | Path | None
    provider: Provider | None
    clock: Clock | None
    progress: Progress | None
    create: bool


@checked
@asynccontextmanager
async def open(  # noqa: A001 - turnlog.open() is the name people look for
    url: str | None = None,
    *,
    home: str | Path | None = None,
    tools: Sequence[OwnTool] = (),
    workspace: str | Path | None = None,
    provider: Provider | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
    create: bool = True,
    **settings: Unpack[SettingsArguments],
) -> AsyncGenerator[Turnlog]:
    """`async with turnlog.open() as t:`. Without a URL, the store of the settings.

    `tools`: Python functions that the model may call. `workspace`: the directory of read_file, list_dir and write_file;
    without one they are not offered. `provider`: your own model instead of that of the settings. `progress`: as in
    `open_store`. `create`: whether a store may be created; if not, a missing store is an error if `url` names it, and
    otherwise counts as empty. Settings have `_` for the dot: `model_name="offline"`, `store_durability="os"`,
    `agents={"support": {"system": "…"}}`.
    Example: `async with turnlog.open("sqlite:app.db") as t: print(await t.session("ann").ask("hi"))`
    """
    loaded = load(home=home, flags=_dotted({"store_url": url, **settings}))
    log = request_log.from_env(os.environ)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(_store(loaded, clock, progress, create, named=url is not None))
        memory = await stack.enter_async_context(LazyMemory(loaded, clock, create=create))
        agents = await stack.enter_async_context(
            ConfiguredAgents(loaded, tools=tools, workspace=workspace, provider=provider, log=log)
        )
        t = _join(loaded, store, memory, agents, log, clock or now_ms)
        stack.push_async_callback(t.end_turns)
        yield close_by(t, stack.aclose)


@checked_async
async def aconnect(url: str | None = None, **settings: Unpack[OpenArguments]) -> Turnlog:
    """`t = await turnlog.aconnect()`, the same as `open` where no block fits; close it with `await t.aclose()`.
    Example: `t = await turnlog.aconnect("sqlite:app.db"); await t.aclose()`
    """
    held = await Held(open(url, **settings)).ready()
    return close_by(held.value, held.leave)


@checked
def connect(url: str | None = None, **settings: Unpack[OpenArguments]) -> SyncTurnlog:
    """`with turnlog.connect() as t:`, or `t = turnlog.connect()` and `t.close()`: the same as `open` without `await`.

    It works in scripts, in threads, and in a notebook or another program whose event loop is running.
    Example: `with turnlog.connect("sqlite:app.db") as t: print(t.session("ann").ask("hi"))`
    """
    engine = shared()
    return SyncTurnlog(EngineDoor(engine, engine.enter(open(url, **settings))))


@asynccontextmanager
async def open_ledger(
    *spaces: str, url: str | None = None, home: str | Path | None = None, create: bool = True, **flags: Any
) -> AsyncGenerator[Ledger]:
    """Only these spaces of the store's ledger, for commands that need no session."""
    settings = load(home=home, flags=_dotted({"store_url": url, **flags}))
    place = settings.store_url() if create else to_read(settings.store_url(), named=url is not None)
    async with open_store(place, create=create, durability=settings.store.durability) as store:
        yield LedgerSpaces(store.ledger, spaces)


def _join(
    settings: Settings,
    store: Store,
    memory: "LazyMemory",
    agents: "ConfiguredAgents",
    log: RequestLog | None,
    clock: Clock,
) -> Turnlog:
    def end_turn(session_id: str) -> None:
        relays.stop(session_id)
        queue.stop(session_id)
        runner.forget(session_id)

    sessions = Sessions(
        store,
        inject=settings.compaction.inject,
        pin_tokens=agents.pin_tokens,
        clock=clock,
        on_gone=end_turn,
        on_deleted=KeptFiles(own_files.kept(settings)).forget,
    )
    runner = Runner(
        store,
        sessions,
        agents.get,
        journal=journal_of(user_row=settings.session.user_row, stored=settings.session.stored),
        on_request=log.write if log else unlogged,
        recall=memory.recall,
        may_ask=partial(may_ask, settings.channels),
        on_answer=None if settings.session.enabled else memory.save,
        clock=clock,
    )
    queue = Queue(
        store,
        runner,
        mode=settings.queue.mode,
        cap=settings.queue.cap,
        summary_s=settings.compaction.summary_timeout_s,
        may_approve=partial(may_approve, settings.channels),
        clock=clock,
    )
    relays = Relays(
        store,
        Places(store, sessions, clock=clock),
        runner,
        on_request=log.write if log else unlogged,
        linger_s=settings.api.linger_s,
    )
    parts = Parts(
        settings=settings,
        store=store,
        queue=queue,
        runner=runner,
        relays=relays,
        agents=agents,
        memory=memory.get,
        clock=clock,
    )
    return Turnlog(parts, sessions)


def _store(
    settings: Settings, clock: Clock | None, progress: Progress | None, create: bool, *, named: bool
) -> AbstractAsyncContextManager[Store]:
    """Without sessions, turns still need a store: one in memory."""
    url = settings.store_url() if settings.session.enabled else "memory:"
    return open_store(
        url if create else to_read(url, named=named),
        create=create,
        durability=settings.store.durability,
        inject=settings.compaction.inject,
        clock=clock,
        progress=progress,
    )


class UntilClosed(AsyncExitStack):
    """Holds what is created on demand; after the end nothing more is created."""

    def __init__(self) -> None:
        super().__init__()
        self._is_closed = False
        self.callback(self._end)

    def _end(self) -> None:
        self._is_closed = True

    def check_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailable("Turnlog is closed", hint="Open it again.")


@checked_methods
class LazyMemory(UntilClosed):
    """The global memory, opened at first use: most processes never use it."""

    def __init__(self, settings: Settings, clock: Clock | None, *, create: bool) -> None:
        super().__init__()
        place = place_of(settings.store_url())
        self._place = place if create or is_there(place) else ":memory:"
        self._clock = clock
        self._create = create
        self._opening = asyncio.Lock()
        self._memory: Memory | None = None

    async def get(self) -> Memory:
        self.check_open()
        async with self._opening:
            if self._memory is None:
                self._memory = await self.enter_async_context(
                    open_memory(self._place, clock=self._clock, create=self._create)
                )
            return self._memory

    async def save(self, row: Session, turn: Sequence[Entry]) -> None:
        """Saves question and answer of a turn, if no session keeps them."""
        said = [text_of(entry.content) for entry in turn if isinstance(entry, User)]
        reply = next((text_of(entry.content) for entry in reversed(turn) if isinstance(entry, Assistant)), "")
        memory = await self.get()
        words = f"User: {' '.join(said)}\nAssistant: {reply}"
        await memory.save(row.agent, owner_of(keys.parse(row.key)), words)

    async def recall(self, agent: str, key: str, words: str) -> list[str]:
        memory = await self.get()
        return [memo.text for memo in await memory.recall(agent, owner_of(keys.parse(key)), words)]


@checked_methods
class ConfiguredAgents(UntilClosed):
    """Opens an agent at its first turn, so that a missing API key is an error of that turn only."""

    def __init__(
        self,
        settings: Settings,
        *,
        tools: Sequence[OwnTool] = (),
        workspace: str | Path | None = None,
        provider: Provider | None = None,
        log: RequestLog | None = None,
    ) -> None:
        super().__init__()
        self._settings = settings
        self._tools = tools
        self._workspace = workspace
        self._provider = provider
        self._on_request: OnRequest = log.write if log else unlogged
        self._ready: dict[str, Agent] = {}
        self._opened: dict[str | None, Provider] = {}
        self._making = asyncio.Lock()

    async def get(self, name: str) -> Agent:
        self.check_open()
        async with self._making:  # two simultaneous first turns get one agent, with one set of MCP servers
            if name not in self._ready:
                self._ready[name] = await self._make(name)
            return self._ready[name]

    def check(self, name: str) -> None:
        """Raises UsageError if the agent, or the model it names, does not exist: before anything is stored for it.

        Errors that only a call can show, such as a missing API key, are errors of the turn.
        """
        own = self._own(name)
        with suppress(ProviderError):
            self._models(own)

    async def upstream(self, model: str | None) -> Agent:
        """A model without tools or system prompt: clients of a relay bring their own."""
        self.check_open()
        provider = self._upstream_provider(model)
        summary = self._settings.model.summary_model
        return Agent(
            name="",
            provider=provider,
            compactor=self._compactor(self._open(summary) if summary else provider),
            toolbox=Toolbox([]),
            limits=limits_of(self._settings, window=provider.window),
            max_output=self._settings.model.max_output,
        )

    def _upstream_provider(self, model: str | None) -> Provider:
        """Names of one API share its connections, so that a client's choice of names opens nothing."""
        if self._provider is not None:
            return self._provider
        kind, _, name = (model or "").partition(":")
        known = (self._settings.model.name, *(own.model for own in self._settings.agents.values()))
        if kind in SHARED and name and model not in known:
            return renamed(self._open(kind), name)
        return self._open(model or self._settings.model.name)

    async def pin_tokens(self, name: str) -> int:
        """A share of the model's own window, if the model is available."""
        try:
            window = (await self.get(name)).limits.window
        except TurnlogError:
            window = limits_of(self._settings).window
        return int(self._settings.compaction.pin_budget * window)

    async def _make(self, name: str) -> Agent:
        settings = self._settings
        own = self._own(name)
        provider, summariser = self._models(own)
        toolbox = await self._toolbox(own)
        limits = limits_of(settings, window=provider.window, system=own.system)
        return Agent(
            name=name,
            provider=provider,
            compactor=self._compactor(summariser),
            toolbox=toolbox,
            limits=replace(limits, tools=schemas(toolbox), history_note=settings.compaction.history_note),
            when=settings.compaction.when,
            max_output=settings.model.max_output,
            approval=ApprovalPolicy(
                mode=own.approval or settings.tools.approval,
                allow=settings.tools.allow,
                deny=settings.tools.deny,
                expires_s=settings.tools.approval_s,
            ),
        )

    def _compactor(self, summariser: Provider) -> Compactor:
        return Compactor(
            summarise=summariser.summarise,
            model=summariser.model,
            window=summariser.window,
            words=self._settings.compaction.summary_words,
            chars=self._settings.compaction.summary_chars,
            on_request=self._on_request,
            timeout_s=self._settings.compaction.summary_timeout_s,
        )

    def _own(self, name: str) -> AgentSettings:
        agents = self._settings.agents
        if name not in agents and name != "main":
            raise UsageError(f"there is no agent {name!r}", hint=_where_agents_are_named(name, ("main", *agents)))
        return agents.get(name, AgentSettings())

    def _models(self, own: AgentSettings) -> tuple[Provider, Provider]:
        """(the model that answers, the model that summarises)"""
        model = self._settings.model
        provider = self._provider or self._open(own.model or model.name)
        return provider, self._open(model.summary_model) if model.summary_model else provider

    def _open(self, name: str | None) -> Provider:
        if name not in self._opened:
            model = self._settings.model
            self._opened[name] = open_provider(name, window=model.window, max_output=model.max_output)
            self.push_async_callback(self._opened[name].close)
        return self._opened[name]

    async def _toolbox(self, own: AgentSettings) -> Toolbox:
        recalls = own.tools is not None and "recall" in own.tools  # only if the agent has that tool
        there: list[OwnTool] = [*history_tools(with_recall=recalls), *self._tools]
        folder = own.workspace or self._workspace
        if folder is not None:
            fence = own_files.fence(self._settings, os.environ)
            there += file_tools(Path(folder).expanduser(), fence, KeptFiles(own_files.kept(self._settings)))
        if self._settings.mcp:
            from .tools.mcp import mcp_tools

            for name, given in self._settings.mcp.items():
                there += await self.enter_async_context(mcp_tools(name, given))
        toolbox = Toolbox(there)
        return toolbox if own.tools is None else toolbox.subset(own.tools)


def _where_agents_are_named(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, n=1)
    meant = f"Did you mean {near[0]!r}? " if near else ""
    return f"{meant}An agent is made by [agents.{name}] in config.toml."


def _dotted(flags: Mapping[str, Any]) -> dict[str, Any]:
    """{"section.name": value}; a section with free names, such as `agents`, may be given as a whole."""
    found: dict[str, Any] = {}
    for name, value in flags.items():
        if name not in FREE_SECTIONS:
            found[name.replace("_", ".", 1)] = value
        elif isinstance(value, Mapping):
            found |= {f"{name}.{own}": dict(given) for own, given in cast("Mapping[str, Any]", value).items()}
        elif value is not None:
            raise UsageError(f"{name} is {shown(value)}", hint=f"Give {name}={{name: {{…}}}}.")
    return found

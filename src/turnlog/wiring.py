"""Settings in, ready objects out: the only place that knows all concrete classes."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from . import request_log
from .agents import Agent, schemas
from .compactor import Compactor, OnRequest, unlogged
from .core import keys
from .core.entries import Assistant, Entry, User, text_of
from .core.session import Session
from .errors import TurnlogError, UsageError
from .journal import Hold
from .library import Turnlog
from .memory import Memory, open_memory, owner_of, place_of
from .providers import Provider
from .providers.choosing import open_provider
from .queue import Queue
from .request_log import RequestLog
from .runner import Runner
from .sessions import Sessions
from .settings import AgentSettings, Settings, limits_of, load
from .stores import Clock, Progress, Store, open_store
from .stores.stamping import now_ms
from .tools import Tool, Toolbox, file_tools, history_tools

OwnTool = Tool | Callable[..., Any]


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
    **flags: Any,
) -> AsyncGenerator[Turnlog]:
    """`async with turnlog.open() as t:`. Without a URL, the store of the settings.

    `tools`: Python functions the model may call. `workspace`: the directory that read_file, list_dir and write_file
    work in; without one they are not offered. `provider`: a model of your own instead of the settings' one.
    `progress`: as in `open_store`. Flags are settings with `_` for the dot: `model_name="offline"`,
    `store_durability="os"`, `session_preset="zeroclaw"`.
    """
    settings = load(home=home, flags=_dotted({"store_url": url, **flags}))
    log = request_log.from_env(os.environ)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(_store(settings, clock, progress))
        memory = await stack.enter_async_context(LazyMemory(settings, clock))
        agents = await stack.enter_async_context(
            Agents(settings, tools=tools, workspace=workspace, provider=provider, log=log)
        )
        sessions = Sessions(store, inject=settings.compaction.inject, pin_tokens=agents.pin_tokens, clock=clock)
        runner = Runner(
            store,
            sessions,
            agents.get,
            hold=hold_of(settings),
            on_request=log.write if log else unlogged,
            recall=memory.recall,
            on_answer=None if settings.session.enabled else memory.save,
        )
        queue = Queue(store, runner, mode=settings.queue.mode, cap=settings.queue.cap)
        sessions.on_gone(queue.stop)
        sessions.on_gone(runner.forget)
        t = Turnlog(settings, store, sessions, queue, runner, agents.get, memory.get, clock or now_ms)
        stack.push_async_callback(t.close)
        yield t


def _store(settings: Settings, clock: Clock | None, progress: Progress | None) -> AbstractAsyncContextManager[Store]:
    """Where no sessions are kept, their turns still need a place to happen: one without a disk."""
    url = settings.store_url() if settings.session.enabled else "memory:"
    return open_store(
        url,
        durability=settings.store.durability,
        inject=settings.compaction.inject,
        clock=clock,
        progress=progress,
    )


class LazyMemory(AsyncExitStack):
    """The global memory, opened when it is first asked for: most processes never do."""

    def __init__(self, settings: Settings, clock: Clock | None) -> None:
        super().__init__()
        self._place = place_of(settings.store_url())
        self._clock = clock
        self._opening = asyncio.Lock()
        self._memory: Memory | None = None

    async def get(self) -> Memory:
        async with self._opening:
            if self._memory is None:
                self._memory = await self.enter_async_context(open_memory(self._place, clock=self._clock))
            return self._memory

    async def save(self, row: Session, turn: Sequence[Entry]) -> None:
        """The exchange of a turn, where nothing else is kept of it."""
        said = [text_of(entry.content) for entry in turn if isinstance(entry, User)]
        reply = next((text_of(entry.content) for entry in reversed(turn) if isinstance(entry, Assistant)), "")
        memory = await self.get()
        words = f"User: {' '.join(said)}\nAssistant: {reply}"
        await memory.save(row.agent, owner_of(keys.parse(row.key)), words)

    async def recall(self, agent: str, key: str, words: str) -> list[str]:
        memory = await self.get()
        return [memo.text for memo in await memory.recall(agent, owner_of(keys.parse(key)), words)]


class Agents(AsyncExitStack):
    """Makes an agent ready when its first turn comes, so that a missing key is an error of that turn only."""

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
        self._making = asyncio.Lock()

    async def get(self, name: str) -> Agent:
        async with self._making:  # two first turns at once get one agent, with one set of servers behind it
            if name not in self._ready:
                self._ready[name] = await self._make(name)
            return self._ready[name]

    async def pin_tokens(self, name: str) -> int:
        """Of the model's own window, where the model can be had."""
        try:
            window = (await self.get(name)).limits.window
        except TurnlogError:
            window = limits_of(self._settings).window
        return int(self._settings.compaction.pin_budget * window)

    async def _make(self, name: str) -> Agent:
        settings = self._settings
        if name not in settings.agents and name != "main":
            raise UsageError(f"there is no agent {name!r}", hint=f"Write [agents.{name}] into config.toml.")
        own = settings.agents.get(name, AgentSettings())
        provider = self._provider or self._open(own.model or settings.model.name)
        summary_model = settings.model.summary_model
        summariser = self._open(summary_model) if summary_model else provider
        toolbox = await self._toolbox(own)
        limits = limits_of(settings, window=provider.window, system=own.system)
        return Agent(
            name=name,
            provider=provider,
            compactor=self._compactor(summariser),
            toolbox=toolbox,
            limits=replace(limits, tools=schemas(toolbox)),
            when=settings.compaction.when,
            max_output=settings.model.max_output,
        )

    def _compactor(self, summariser: Provider) -> Compactor:
        return Compactor(
            summarise=summariser.summarise,
            model=summariser.model,
            window=summariser.window,
            words=self._settings.compaction.summary_words,
            chars=self._settings.compaction.summary_chars,
            on_request=self._on_request,
        )

    def _open(self, name: str | None) -> Provider:
        model = self._settings.model
        provider = open_provider(name, window=model.window, max_output=model.max_output)
        self.push_async_callback(provider.close)
        return provider

    async def _toolbox(self, own: AgentSettings) -> Toolbox:
        recalls = own.tools is not None and "recall" in own.tools  # only where the agent was given it
        there: list[OwnTool] = [*history_tools(with_recall=recalls), *self._tools]
        folder = own.workspace or self._workspace
        if folder is not None:
            there += file_tools(Path(folder).expanduser())
        if self._settings.mcp:
            from .tools.mcp import mcp_tools

            for name, given in self._settings.mcp.items():
                there += await self.enter_async_context(mcp_tools(name, given))
        toolbox = Toolbox(there)
        return toolbox if own.tools is None else toolbox.subset(own.tools)


def hold_of(settings: Settings) -> Hold:
    """What of a turn is kept back from the log, and until when."""
    if settings.session.stored == "text":
        return "until_done"
    return "until_reply" if settings.session.user_row == "with_reply" else "nothing"


def _dotted(flags: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", ".", 1): value for name, value in flags.items()}

"""Builds all objects from the settings: the only part that knows all concrete classes."""

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from ..access import Parts, own_files
from ..channels.approvers import may_approve, may_ask
from ..core.arguments import checked
from ..library import Turnlog, close_by
from ..providers import Provider
from ..runtime.engine import Held, shared
from ..sessions import Sessions
from ..sessions.checking import checked_async
from ..settings import Settings, load
from ..settings.typed import SettingsArguments
from ..stores import Clock, Ledger, Progress, Store, open_store, to_read
from ..stores.spaces import LedgerSpaces
from ..stores.stamping import now_ms
from ..sync import SyncTurnlog
from ..sync.facade import EngineBridge
from ..tools.kept import KeptFiles
from ..turns import request_log
from ..turns.compactor import unlogged
from ..turns.deferred import journal_of
from ..turns.places import Places
from ..turns.queue import Queue
from ..turns.relay import Relays
from ..turns.request_log import RequestLog
from ..turns.runner import Runner
from ..turns.telemetry import Telemetry
from .agents import ConfiguredAgents, OwnTool
from .memory import LazyMemory


class OpenArguments(SettingsArguments, total=False):
    """The arguments of `open` except the URL."""

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
    loaded = load(home=home, flags={"store_url": url, **settings})
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
    return SyncTurnlog(EngineBridge(engine, engine.enter(open(url, **settings))))


@asynccontextmanager
async def open_ledger(
    *spaces: str, url: str | None = None, home: str | Path | None = None, create: bool = True, **flags: Any
) -> AsyncGenerator[Ledger]:
    """Only these spaces of the store's ledger, for commands that need no session."""
    settings = load(home=home, flags={"store_url": url, **flags})
    place = settings.store_url() if create else to_read(settings.store_url(), named=url is not None)
    async with open_store(place, create=create, durability=settings.store.durability) as store:
        yield LedgerSpaces(store.ledger, spaces)


def _join(
    settings: Settings,
    store: Store,
    memory: LazyMemory,
    agents: ConfiguredAgents,
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
        on_deleted=KeptFiles(own_files.kept(settings.home)).forget,
        row_here=lambda session_id: runner.row_here(session_id),  # noqa: PLW0108 - the runner is made below
    )
    runner = Runner(
        store,
        sessions,
        agents.of,
        journal=journal_of(user_row=settings.session.user_row, stored=settings.session.stored),
        on_request=log.write if log else unlogged,
        recall=memory.recall,
        may_ask=partial(may_ask, settings.channels),
        on_answer=None if settings.session.enabled else memory.save,
        telemetry=Telemetry(contents=settings.telemetry.contents),
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
    places = Places(store, sessions, clock=clock)
    on_request = log.write if log else unlogged
    relays = Relays(store, places, runner, on_request=on_request, linger_s=settings.api.linger_s)
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

"""openai-agents: its sessions in a Turnlog store.

    Runner.run(agent, text, session=TurnlogSession("ann", "sqlite:app.db"))

Each item is one entry (`responses`), so the session has a title, is found by search and is shown on the page. An append
is all or nothing. `pop_item` and OpenAI's own compaction are rewinds, and `run_compaction` is a compaction: the log
keeps what they hide, and each can be undone. Only `clear_session` deletes.

`guarded(model, session)` makes each model call fit (`guarded_model`).
"""

import json
import logging
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from ..core.entries import Compaction, Entry, Rewind
from ..core.session import Session
from ..errors import Conflict, NotFound, ProviderError
from ..library import Turnlog
from ..stores import GivenLease
from ..turns.own_call import Summarise
from . import compacting, openai_items, responses
from .framework import framework
from .not_storable import NotStorable as NotStorable
from .resident import holder
from .responses import Item
from .session_log import TAKEN_BACK, LiveEntries, SessionLog, key_of, taken_back

with framework("openai-agents"):
    from agents import SessionSettings
    from agents.memory import session as sessions_of_framework
    from agents.memory.session import SessionABC

if TYPE_CHECKING:
    from agents import RunContextWrapper
    from agents.items import TResponseInputItem
    from agents.memory.session import OpenAIResponsesCompactionArgs

CHANNEL = responses.CHANNEL
RACES_MAX = 20
"""Attempts while others write to the same session; each failure means that another writer succeeded."""
log = logging.getLogger("turnlog.adapters.openai_agents")


class TurnlogSession(SessionABC):
    """A session of openai-agents. `url`: the store; None means that of the settings. `store`: a Turnlog that the caller
    has opened, instead of a URL.

    `summarise` and `window` are for `run_compaction` and `guarded`: who writes summaries (default: the model of the
    settings) and the size of the model's window in tokens.
    """

    session_settings: SessionSettings | None = None

    def __init__(
        self,
        session_id: str,
        url: str | None = None,
        *,
        session_settings: "SessionSettings | dict[str, Any] | None" = None,
        summarise: Summarise | None = None,
        window: int | None = None,
        store: Turnlog | None = None,
    ) -> None:
        key_of(CHANNEL, session_id)  # refuses an id that no key can hold
        self.session_id = session_id
        self.session_settings = _settings(session_settings)
        self.summarise = summarise
        self.window = window
        self.holder = holder(url, store)
        self._logs: dict[str | None, SessionLog] = {}
        self._guarding_process: int | None = None

    async def get_items(
        self, limit: int | None = None, *, wrapper: "RunContextWrapper[Any] | None" = None
    ) -> "list[TResponseInputItem]":
        """The live items, oldest first. `limit`: only this many of the newest; None: the limit of the settings;
        negative: all.
        """
        settings = self.session_settings
        wanted = limit if limit is not None else settings.limit if settings else None
        if wanted == 0:
            self.check_open()
            return []
        most = wanted if wanted is not None and wanted > 0 else None
        where = self.log_of(wrapper)
        found = await self.holder.call(lambda t: openai_items.items_of(t, where, most))
        return cast("list[TResponseInputItem]", found)

    async def add_items(
        self, items: "list[TResponseInputItem]", *, wrapper: "RunContextWrapper[Any] | None" = None
    ) -> None:
        """Stores all items or none; durable on return. Waits for a running turn to end, then raises Busy."""
        self.check_open()
        if not items:
            return
        bodies = [stored(item) for item in items]
        where = self.log_of(wrapper)
        await self.holder.call(lambda t: where.append(t, bodies), lambda t: where.append_at_once(t, bodies))

    async def pop_item(self, *, wrapper: "RunContextWrapper[Any] | None" = None) -> "TResponseInputItem | None":
        """Removes the newest item and returns it. It stays in the log, as rewound."""
        self.check_open()
        where = self.log_of(wrapper)
        return cast("TResponseInputItem | None", await self.holder.call(lambda t: _pop(t, where)))

    async def clear_session(self, *, wrapper: "RunContextWrapper[Any] | None" = None) -> None:
        """Deletes the session for good."""
        self.check_open()
        where = self.log_of(wrapper)
        await self.holder.call(where.delete)

    async def reset(self, *, wrapper: "RunContextWrapper[Any] | None" = None) -> None:
        """Empties the session, and keeps everything in its log: a rewind to the start, which can be undone."""
        self.check_open()
        where = self.log_of(wrapper)
        await self.holder.call(lambda t: _reset(t, where))

    async def run_compaction(
        self,
        args: "OpenAIResponsesCompactionArgs | None" = None,
        *,
        wrapper: "RunContextWrapper[Any] | None" = None,
    ) -> None:
        """Compacts if the session's trigger says so, or in any case with `force`. It can be undone.

        The runner calls it after each turn. A summary that fails then is logged and tried again after the next turn.
        """
        self.check_open()
        where = self.log_of(wrapper)
        force = bool(args and args.get("force"))
        policy = self.policy()
        try:
            await self.holder.call(lambda t: compacting.compact(t, where, policy, openai_items.pins_of, force=force))
        except ProviderError as error:
            if force:
                raise
            log.warning("session %s was not compacted: %s", self.session_id, error)

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: "Callable[[TResponseInputItem], bool] | None" = None
    ) -> Any:
        """What OpenAI's own compaction asks for: the newest items, and a way to replace their end at once.

        A subclass that changes how items are read or written must offer its own.
        """
        snapshot = getattr(sessions_of_framework, "_CompactionSnapshot", None)
        if snapshot is None or any(getattr(type(self), name) is not getattr(TurnlogSession, name) for name in _METHODS):
            return None
        self.check_open()
        where = self.log_of(None)
        seen = await self.holder.call(lambda t: _seen(t, where, limit))

        async def replace_suffix(start: int, output: "list[TResponseInputItem]") -> bool:
            expected = seen.items[start:]
            if not expected:
                return False
            bodies = [stored(item) for item in output]
            may_go = cast("Callable[[Item], bool] | None", prune_prefix)
            return await self.holder.call(lambda t: _replace(t, where, expected, bodies, may_go))

        return snapshot([item for _, item in seen.items], seen.is_complete, replace_suffix)

    def policy(self) -> compacting.Policy:
        """Who writes summaries for this session, and for which window."""
        summarise = self.holder.back(self.summarise) if self.summarise else None
        return compacting.Policy(summarise=summarise, window=self.window)

    def check_open(self) -> None:
        """Raises if the session was closed, or if this process was forked while a guarded call ran."""
        self.holder.check_open()
        if self._guarding_process not in (None, os.getpid()):
            raise Conflict(
                "this process was forked while a model call of this session ran",
                hint="Only the parent process may continue it. Create a new TurnlogSession here.",
            )

    @asynccontextmanager
    async def guarding(self) -> AsyncGenerator[None]:
        """Around a guarded model call."""
        before, self._guarding_process = self._guarding_process, os.getpid()
        try:
            yield
        finally:
            self._guarding_process = before

    def log_of(self, wrapper: "RunContextWrapper[Any] | None") -> SessionLog:
        """The log of this session for the tenant that the run's context names."""
        account = getattr(getattr(wrapper, "context", None), "turnlog_account", None)
        if account not in self._logs:
            self._logs[account] = SessionLog(key_of(CHANNEL, self.session_id, account=account))
        return self._logs[account]

    def close(self) -> None:
        """Gives up the store. What is stored stays."""
        self.holder.close()

    async def aclose(self) -> None:
        await self.holder.aclose()


_METHODS = ("get_items", "add_items", "pop_item", "clear_session")


def guarded(model: Any, session: TurnlogSession) -> Any:
    """The model, with each call made to fit its window: sent, shortened, compacted, and tried again when refused.

    agent = Agent(name="a", model=guarded(OpenAIResponsesModel(…), session))
    """
    from .guarded_model import GuardedModel

    return GuardedModel(model, session)


def _settings(given: "SessionSettings | dict[str, Any] | None") -> SessionSettings:
    if given is None:
        return SessionSettings()
    coerce = getattr(sessions_of_framework_settings(), "coerce_session_settings", None)
    if coerce is not None:
        return cast("SessionSettings", coerce(given))
    return SessionSettings(**given) if isinstance(given, dict) else given


def sessions_of_framework_settings() -> Any:
    from agents.memory import session_settings

    return session_settings


def stored(item: Any) -> Entry:
    """The entry that stands for an item; NotStorable if JSON cannot hold it."""
    if (plain := responses.plain_message(item)) is not None:
        return plain
    try:
        text = json.dumps(item, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotStorable(f"an item cannot be stored: {error}") from error
    return responses.entry_of(json.loads(text), len(text))


class Seen(Struct, frozen=True):
    """The newest items of a session, each with its entry, oldest first."""

    items: list[tuple[Entry, Item]]
    is_complete: bool


async def _seen(t: Turnlog, where: SessionLog, limit: int) -> Seen:
    row = await where.find(t)
    found = await openai_items.newest(t, row, limit + 1) if row else []
    return Seen(found[-limit:], len(found) <= limit)


async def _pop(t: Turnlog, where: SessionLog) -> Item | None:
    row = await where.known(t)
    for attempt in range(RACES_MAX):
        with suppress(Conflict, NotFound):
            # The append says whether the log still ends where an earlier call saw it end.
            async with where.alone(t, row if attempt else None) as lease:
                now = await where.find(t) if attempt else row
                item = None if now is None else await _pop_from(t, where, now, lease)
            if item is not None or now is None or attempt:
                return item
        row = await where.find(t)
    raise Conflict("too many changes of this session at once")


async def _pop_from(t: Turnlog, where: SessionLog, row: Session, lease: GivenLease) -> Item | None:
    """None: as far as this row says, there is no item."""
    live = LiveEntries(t, row, expected=TAKEN_BACK)
    found = await openai_items.newest_of(t, row, live, 1)
    if not found:
        return None
    entry, item = found[0]
    rest = responses.items_of(entry)[:-1]  # an answer with calls is several items
    if isinstance(entry, Compaction):
        rest = [each for _, each in (await openai_items.all_items(t, row))[:-1]]  # instructions
    back = await taken_back(row, live, 1 if isinstance(entry, Compaction) else entry.seq)
    await where.append(t, [*back, *map(stored, rest)], row=row, lease=lease)
    return item


async def _reset(t: Turnlog, where: SessionLog) -> None:
    row = await where.find(t)
    if row is not None:
        await where.append(t, [Rewind(to=1)])


async def _replace(
    t: Turnlog,
    where: SessionLog,
    expected: Sequence[tuple[Entry, Item]],
    bodies: Sequence[Entry],
    may_go: Callable[[Item], bool] | None,
) -> bool:
    """Replaces the end of the session, unless it has changed since it was seen. False: it has.

    `may_go`: of the items before it, those at the beginning that are no longer wanted.
    """
    row = await where.find(t)
    items = await openai_items.all_items(t, row) if row else []
    start = len(items) - len(expected)
    if row is None or start < 0 or _seqs(items[start:]) != _seqs(expected):
        return False
    kept = items[:start]
    gone = next((index for index, (_, item) in enumerate(kept) if not may_go or not may_go(item)), len(kept))
    first = expected[0][0]
    if gone or isinstance(first, Compaction) or first.seq < row.boundary:
        back: list[Entry] = [Rewind(to=1), *(stored(item) for _, item in kept[gone:])]
    else:
        back = await taken_back(row, LiveEntries(t, row), first.seq)
    try:
        await where.append(t, [*back, *bodies], row=row)
    except (Conflict, NotFound):
        return False
    return True


def _seqs(items: Sequence[tuple[Entry, Item]]) -> list[int]:
    return [entry.seq for entry, _ in items]

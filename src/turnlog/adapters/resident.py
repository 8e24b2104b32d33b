"""The store of the adapters: one open Turnlog for each store and process, used from any thread, loop or library.

    adapter object ── claims ──▶ Resident ── opens at first use ──▶ Turnlog, in the thread of the engine
                                    ▲                                   one for each file, folder or database
    another adapter object ─────────┘

Frameworks create session objects in plain functions, often one for each request, and use them from many event loops,
from threads without one, and under trio. So opening is shared: two URLs that mean the same file are one Turnlog. An
object that is closed gives up its claim, and the last one to do so closes the store. An object that is dropped without
being closed gives up its claim too, but the store stays open for the next one: opening costs more than a request. At
the end of the interpreter everything is closed. A forked child opens anew.

`memory:` is private to the object that names it. A caller that has opened Turnlog itself lends it (`Lent`): then work
runs in the caller's own loop, without a detour through the thread.
"""

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

from ..errors import UsageError
from ..library import Turnlog
from ..runtime import engine
from ..runtime.engine import Engine, Entered
from ..stores import is_there, parse_url

A = TypeVar("A")
T = TypeVar("T")
StoreWork: TypeAlias = Callable[[Turnlog], Coroutine[Any, Any, T]]
"""Something to do with an open Turnlog, in its loop."""
QuickWork: TypeAlias = Callable[[Turnlog], T | None]
"""The same without waiting; None if that is not possible."""
IN_PLACE_S = 0.05
"""How long an asynchronous caller waits for a store in memory without giving way to other tasks."""


class AdapterClosed(UsageError, RuntimeError):
    """This session or store object was closed."""

    hint = "Create a new one; what is stored is kept."


class Holder(Protocol):
    """How an adapter reaches its store."""

    async def call(self, work: StoreWork[T], at_once: QuickWork[T] | None = None) -> T:
        """For asynchronous callers. A cancellation is passed on when the outcome is known.

        `at_once`: tried first, where it saves a task; None means that it cannot be done so, and that nothing was done.
        """
        ...

    def wait(self, work: StoreWork[T]) -> T:
        """For callers without a loop, and for those that block theirs."""
        ...

    def back(self, function: Callable[[A], Awaitable[T]]) -> Callable[[A], Awaitable[T]]:
        """The caller's own function, for work to call: it runs where the caller runs, not in the store's loop."""
        ...

    def check_open(self) -> None: ...
    def close(self) -> None: ...
    async def aclose(self) -> None: ...


class SharedStore:
    """A Turnlog that is open in the engine, and the number of objects that claim it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, is_private: bool) -> None:
        self.loop = loop
        self.is_private = is_private
        """Whether it is in memory, and belongs to one object."""
        self.opening = asyncio.Lock()
        self.entered: Entered[Turnlog] | None = None
        self.claims = 0

    @property
    def is_open(self) -> bool:
        return self.entered is not None and self.entered.is_open


_shared: dict[str, SharedStore] = {}
"""By the place of the store. Only changed under the lock."""
_lock = threading.RLock()  # garbage collection may end a claim while its thread holds the lock


def _forget_in_child() -> None:
    global _lock  # noqa: PLW0603 - the parent's lock may be held by a thread that the child does not have
    _lock = threading.RLock()
    _shared.clear()


os.register_at_fork(after_in_child=_forget_in_child)


class Resident:
    """One object's claim on the Turnlog of a store."""

    def __init__(self, url: str | None = None, *, if_absent: str | None = None) -> None:
        """`if_absent`: without a URL, the store to use if that of the settings does not exist yet."""
        if url is not None and not isinstance(url, str):
            raise UsageError(
                f"a store URL is a text, not {type(url).__name__}", hint="Write for example sqlite:app.db."
            )
        self._url = url
        self._if_absent = if_absent
        self._engine = engine.shared()
        self._store: SharedStore | None = None
        self._closed = False
        self._unclaim: Callable[[], object] | None = None

    async def call(self, work: StoreWork[T], at_once: QuickWork[T] | None = None) -> T:
        store = self._store
        # A store in memory answers sooner than a busy loop returns to the caller.
        in_place_s = IN_PLACE_S if store is not None and store.is_private else 0
        quick = None if at_once is None else partial(self._do_at_once, at_once)
        return await self._engine.arun(self._do(work), settle=True, in_place_s=in_place_s, at_once=quick)

    def wait(self, work: StoreWork[T]) -> T:
        return self._engine.run(self._do(work))

    def back(self, function: Callable[[A], Awaitable[T]]) -> Callable[[A], Awaitable[T]]:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return _back_to_trio(function)

        async def call(value: A) -> T:
            if asyncio.get_running_loop() is loop:
                return await function(value)
            future = asyncio.run_coroutine_threadsafe(_awaited(function, value), loop)
            return await asyncio.wrap_future(future)

        return call

    async def _do(self, work: StoreWork[T]) -> T:
        t = self._open_one()
        if t is None:
            store = await self._opened()
            assert store.entered is not None
            t = store.entered.value
        return await work(t)

    def _do_at_once(self, work: QuickWork[T]) -> T | None:
        t = self._open_one()
        return None if t is None else work(t)

    def _open_one(self) -> Turnlog | None:
        store = self._store
        if store is None or store.entered is None or not store.entered.is_open or self._closed:
            return None
        return store.entered.value

    async def _opened(self) -> SharedStore:
        self.check_open()
        if self._url is None and self._if_absent is not None and not is_there(_url_of_settings()):
            self._url = self._if_absent
        store = self._claim(place_of(self._url))
        async with store.opening:
            if not store.is_open:
                store.entered = await self._engine.aenter(_open(self._url))
        return store

    def _claim(self, place: str) -> SharedStore:
        """The shared store at this place; a private one for `memory:`, and a new one after a fork."""
        loop = asyncio.get_running_loop()
        with _lock:
            candidates = (self._store, _shared.get(place))
            found = [one for one in candidates if one is not None and one.loop is loop]
            store = found[0] if found else SharedStore(loop, is_private=not place)
            if place:
                _shared[place] = store
            if store is not self._store:
                self._store = store
                store.claims += 1
                self._unclaim = weakref.finalize(self, _unclaim, self._engine, store)
        return store

    def check_open(self) -> None:
        if self._closed:
            raise AdapterClosed

    def close(self) -> None:
        """Gives up the claim; the last one closes the store. StoreWork that runs already is finished first."""
        if (last := self._leave()) is not None:
            last.exit()

    async def aclose(self) -> None:
        """The same for asynchronous callers."""
        if (last := self._leave()) is not None:
            await last.aexit()

    def _leave(self) -> Entered[Turnlog] | None:
        """Gives up the claim; what to exit if it was the last one."""
        self._closed = True
        store, self._store = self._store, None
        if store is None or self._unclaim is None:
            return None
        with _lock:
            self._unclaim, unclaim = None, self._unclaim
            if isinstance(unclaim, weakref.finalize):
                unclaim.detach()
            store.claims -= 1
            if store.claims > 0:
                return None
            for place in [place for place, one in _shared.items() if one is store]:
                del _shared[place]
        return store.entered


def _unclaim(engine: Engine, store: SharedStore) -> None:
    """An object was dropped without being closed. Nobody else can reach a private store, so it is closed."""
    with _lock:
        store.claims -= 1
    if store.is_private and store.is_open and store.entered is not None:
        engine.spawn(store.entered.leave)


class Lent:
    """A Turnlog that the caller has opened: work runs in the caller's loop."""

    def __init__(self, turnlog: Turnlog) -> None:
        self._turnlog = turnlog
        self._closed = False
        try:
            self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None

    async def call(self, work: StoreWork[T], at_once: QuickWork[T] | None = None) -> T:
        self.check_open()
        self._loop = asyncio.get_running_loop()
        return await settled(work(self._turnlog))

    def wait(self, work: StoreWork[T]) -> T:
        self.check_open()
        if self._loop is None or self._loop.is_closed() or _runs_here(self._loop):
            raise UsageError(
                "a Turnlog of this event loop cannot be waited for in the loop's own thread",
                hint="Use the asynchronous methods, or give the URL instead of store=….",
            )
        return asyncio.run_coroutine_threadsafe(work(self._turnlog), self._loop).result()

    def back(self, function: Callable[[A], Awaitable[T]]) -> Callable[[A], Awaitable[T]]:
        return function

    def check_open(self) -> None:
        if self._closed:
            raise AdapterClosed

    def close(self) -> None:
        """The caller closes what the caller has opened."""
        self._closed = True

    async def aclose(self) -> None:
        self._closed = True


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return not loop.is_running()


def holder(url: str | None, store: Turnlog | None, *, if_absent: str | None = None) -> Holder:
    """What an adapter was given: a URL, or a Turnlog that the caller has opened."""
    if store is None:
        return Resident(url, if_absent=if_absent)
    if url is not None:
        raise UsageError("both a URL and an open store were given", hint="Give one of them.")
    if not isinstance(store, Turnlog):
        raise UsageError(
            f"store is {type(store).__name__}, not an open Turnlog",
            hint="Pass the `t` of `async with turnlog.open() as t`, or a URL.",
        )
    return Lent(store)


async def _awaited(function: Callable[[A], Awaitable[T]], value: A) -> T:
    return await function(value)


def _back_to_trio(function: Callable[[A], Awaitable[T]]) -> Callable[[A], Awaitable[T]]:
    trio = import_module("trio")
    token = trio.lowlevel.current_trio_token()

    async def call(value: A) -> T:
        run = partial(trio.from_thread.run, _awaited, function, value, trio_token=token)
        return await asyncio.to_thread(run)

    return call


async def settled(awaitable: Awaitable[T]) -> T:
    """Waits for the outcome even if the caller is cancelled meanwhile; the cancellation comes after it."""
    task = asyncio.ensure_future(awaitable)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # marks it as retrieved
        raise cancelled
    return task.result()


def place_of(url: str | None) -> str:
    """What two URLs of one store have in common; "" for a store that is private to its object."""
    scheme, path, _ = parse_url(_url_of_settings() if url is None else url)
    match scheme:
        case "memory":
            return ""
        case "sqlite" | "jsonl":
            return f"{scheme}:{os.path.realpath(Path(path).expanduser())}"
        case _:
            return f"postgresql:{(url or _url_of_settings()).partition(':')[2]}"


def _url_of_settings() -> str:
    from ..settings import load

    return load().store_url()


def _open(url: str | None) -> Any:
    from ..wiring import open as open_turnlog

    return open_turnlog(url, session_enabled=True)

"""The contract every store fulfils, and `open_store(url)`.

A store keeps transcripts and nothing else: it gives seqs, makes appends durable, and says who may write. What entries
mean is in `core`. `turnlog.testing.StoreContract` is the suite that each store passes, unchanged.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from ..core.entries import Entry
from ..core.query import Hit, Page, Query
from ..core.session import Session
from ..errors import UsageError

DURABILITIES = ("full", "os")
Clock: TypeAlias = Callable[[], int]
"""Unix milliseconds."""
Progress: TypeAlias = Callable[[int, int], None]
"""(done, in all), called now and then during long work."""


class Notice(Struct, frozen=True, kw_only=True):
    """Something the store had to repair or could not read. Told, never stored."""

    what: str
    where: str
    session_id: str = ""


class Lease(Protocol):
    """The right to run a turn in one session. Dead as soon as its `async with` is left or its process is gone."""

    @property
    def session_id(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def live(self) -> bool: ...


class Fact(Struct, frozen=True):
    """One row of the ledger."""

    key: str
    value: Any
    until: int | None = None
    """Unix ms at which it ceases to hold."""


class Ledger(Protocol):
    """Small facts that belong to no session. Values are plain JSON; every change is durable when it returns."""

    async def get(self, space: str, key: str) -> Any: ...
    async def put_if_absent(self, space: str, key: str, value: Any, *, ttl_s: float | None = None) -> Any:
        """None if it was put; otherwise the value that was there already."""
        ...

    async def cas(self, space: str, key: str, old: Any, new: Any, *, ttl_s: float | None = None) -> bool:
        """Replaces `old` (None: absent) by `new` (None: deletes it); False if something else is there."""
        ...

    async def list(self, space: str, *, prefix: str = "", limit: int = 1000) -> list[Fact]: ...
    async def delete(self, space: str, key: str) -> bool: ...


class Store(Protocol):
    async def append(
        self, session_id: str, bodies: Sequence[Entry], *, expect: int | None = None, lease: Lease | None = None
    ) -> list[Entry]:
        """All or none; durable on return. The store gives the next seqs, and ts where a body has none.

        `expect`: Conflict unless the log ends at this seq (0: there is no such session yet). Messages, compactions
        and whatever else a turn builds upon need a live lease.
        """
        ...

    async def read(
        self, session_id: str, *, after: int = 0, before: int | None = None, limit: int | None = None
    ) -> list[Entry]:
        """Entries with after < seq < before, in order.

        `limit` counts from `after` upward; with `before` alone it takes the newest ones, for paging back.
        """
        ...

    async def describe(self, session_id: str) -> Session:
        """The index row, up to date with everything written by anybody."""
        ...

    async def find(self, query: Query) -> Page[Session]: ...
    async def search(self, words: str, *, scope: Query | None = None) -> list[Hit]:
        """Newest first, by message or at least by session; scope.limit bounds the hits."""
        ...

    async def delete(self, session_id: str) -> None: ...
    def lease(self, session_id: str, *, wait_s: float | None = None) -> AbstractAsyncContextManager[Lease]:
        """Waits for a running turn to end, for ever or up to wait_s; then Busy, which names the holder."""
        ...

    async def abandoned(self) -> list[str]:
        """Sessions whose lease ran out because its holder fell silent. None where leases end with their process."""
        ...

    def watch(self, session_id: str, *, after: int) -> AsyncIterator[Entry]:
        """Every entry after that seq, those to come included; ends when the session is deleted."""
        ...

    async def reindex(self, progress: Progress | None = None) -> int:
        """Builds every row anew from the transcripts; the number of sessions."""
        ...

    @property
    def ledger(self) -> Ledger: ...
    async def close(self) -> None: ...


def parse_url(url: str) -> tuple[str, str, dict[str, str]]:
    """(scheme, path, options) of `sqlite:PATH`, `jsonl:PATH[?dialect=native]`, `memory:`, `postgresql://…`."""
    scheme, colon, rest = url.partition(":")
    if not colon or scheme not in ("memory", "jsonl", "sqlite", "postgresql", "postgres"):
        shown = re.sub(r"//[^@\s]*@", "//…@", url)[:200]  # a mistyped scheme must not print a password
        raise UsageError(
            f"{shown!r} is not a store URL", hint="Use sqlite:PATH, jsonl:PATH, postgresql://… or memory:."
        )
    path, _, query = rest.partition("?")
    pairs = (part.partition("=") for part in query.split("&") if part)
    return scheme, path, {name: value for name, _, value in pairs}


@asynccontextmanager
async def open_store(
    url: str,
    *,
    durability: str = "full",
    inject: str = "user",
    clock: Clock | None = None,
    on_notice: Callable[[Notice], None] | None = None,
    progress: Progress | None = None,
) -> AsyncGenerator[Store]:
    """Opens the store, and creates it where there is nothing yet.

    `inject`: where summaries are shown; the SQLite store gives a compaction's row the role that goes with it.
    `progress`: hears, from another thread, how many bytes of files unknown so far have been read, of how many.
    """
    if durability not in DURABILITIES:
        raise UsageError(f"unknown durability {durability!r}", hint="Use full or os.")
    scheme, path, options = parse_url(url)
    if scheme in ("postgresql", "postgres"):
        store = await _connect_postgres(url, durability, inject, clock)
    else:
        store = await _connect(scheme, path, options, durability, inject, clock, on_notice, progress)
    try:
        yield store
    finally:
        await store.close()


async def _connect(
    scheme: str,
    path: str,
    options: Mapping[str, str],
    durability: str,
    inject: str,
    clock: Clock | None,
    on_notice: Callable[[Notice], None] | None,
    progress: Progress | None,
) -> Store:
    known = {"jsonl": {"dialect", "layout"}}.get(scheme, set[str]())
    if unknown := sorted(set(options) - known):
        raise UsageError(
            f"unknown option {unknown[0]!r} in the store URL", hint=f"Known: {', '.join(known) or 'none'}."
        )
    if scheme != "memory" and not path:
        raise UsageError(f"{scheme}: needs a path", hint=f"Write {scheme}:PATH.")
    match scheme:
        case "memory":
            from .memory import MemoryStore

            return MemoryStore(clock=clock)
        case "jsonl":
            from .jsonl import JsonlStore

            return await JsonlStore.open(
                path,
                durability=durability,
                clock=clock,
                on_notice=on_notice,
                layout=options.get("layout"),
                dialect=options.get("dialect"),
                progress=progress,
            )
        case _:
            from .sqlite import SqliteStore

            return await SqliteStore.open(path, durability=durability, inject=inject, clock=clock)


async def _connect_postgres(url: str, durability: str, inject: str, clock: Clock | None) -> Store:
    """Its options are its own and libpq's, so its URL stays whole."""
    with postgres_driver():
        from .postgres import PostgresStore
    return await PostgresStore.open(url, durability=durability, inject=inject, clock=clock)


@contextmanager
def postgres_driver() -> Generator[None]:
    """Around an import of what needs it."""
    try:
        yield
    except ImportError as error:
        raise UsageError(
            f"the PostgreSQL store needs its driver ({error})", hint="Install turnlog[postgres]."
        ) from error

"""The contract that every store fulfils, and `open_store(url)`.

A store keeps transcripts and nothing else: it sets seqs, makes appends durable, and decides who may write. `core`
decides what entries mean. All stores pass the suite `turnlog.testing.StoreContract` unchanged.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from ..core.arguments import checked
from ..core.entries import Entry
from ..core.facts import ExpectedFact, Fact
from ..core.query import Hit, Page, Query
from ..core.session import Session
from ..errors import MissingExtra, StoreUnavailable, UsageError

DURABILITIES = ("full", "os")
Clock: TypeAlias = Callable[[], int]
"""Unix milliseconds."""
Progress: TypeAlias = Callable[[int, int], None]
"""(done, total), called now and then during long work."""


class Notice(Struct, frozen=True, kw_only=True):
    """Something that the store had to repair or could not read. Reported, never stored."""

    what: str
    where: str
    session_id: str = ""


class Lease(Protocol):
    """The right to run a turn in one session. It ends with its `async with`, or with its process."""

    @property
    def session_id(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def live(self) -> bool: ...
    async def regain(self) -> bool:
        """After the store was unreachable: waits until it is back, and says whether the lease is valid again.

        Returns False at once if leases are not renewed, because they end with their process and never by themselves.
        """
        ...


GivenLease: TypeAlias = Lease | Literal["own"]
"""`"own"`: the append takes the lease itself, and gives it back."""
OWN_LEASE_WAIT_S = 5.0
"""How long an append waits for its own lease; then it raises Busy. A turn that has just ended is waited for."""


class LedgerFact(Struct, frozen=True):
    """One row of the ledger."""

    key: str
    value: Any
    until: int | None = None
    """Unix ms at which it expires."""


class Ledger(Protocol):
    """Small facts that belong to no session. Values are plain JSON; every change is durable when it returns."""

    async def get(self, space: str, key: str, *, from_memory: bool = False) -> Any:
        """`from_memory`: a store that hears of every change at once may answer without asking anybody."""
        ...

    async def put_if_absent(self, space: str, key: str, value: Any, *, ttl_s: float | None = None) -> Any:
        """None if it was stored; otherwise the value that was there already."""
        ...

    async def cas(self, space: str, key: str, old: Any, new: Any, *, ttl_s: float | None = None) -> bool:
        """Replaces `old` (None: absent) by `new` (None: deletes it); False if another value is there."""
        ...

    async def list(self, space: str, *, prefix: str = "", after: str = "", limit: int = 1000) -> list[LedgerFact]:
        """By key, in one order for all calls. `after`: those whose keys come after this one."""
        ...

    async def delete(self, space: str, key: str) -> bool: ...


class Appended(list[Entry]):
    """What an append stored: the entries as they were written, and in `row` the session's row after them."""

    __slots__ = ("row",)

    def __init__(self, entries: Iterable[Entry], row: Session) -> None:
        super().__init__(entries)
        self.row = row


class Store(Protocol):
    """`incarnation` (`Session.incarnation`), where given: unless the session is still the same one, NotFound is raised
    and nothing is read or written. A store gives one to every new log.
    """

    async def append(
        self,
        session_id: str,
        bodies: Sequence[Entry],
        *,
        expect: int | None = None,
        expect_fact: ExpectedFact | None = None,
        lease: GivenLease | None = None,
        incarnation: str | None = None,
    ) -> Appended:
        """All or none; durable on return. The store gives the next seqs, and ts where a body has none.

        The answer's `row` is what `describe` says right after this append, so nobody has to ask for it.

        `expect`: Conflict unless the log ends at this seq (0: there is no such session yet). `expect_fact`: (app, key,
        seq or None): Conflict unless that fact is still the one that this entry put, or still absent. Messages,
        compactions and whatever else a turn builds upon need a live lease; with `lease="own"` the append takes it for
        itself, and raises Busy if a turn runs.
        """
        ...

    async def read(
        self,
        session_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        incarnation: str | None = None,
    ) -> list[Entry]:
        """Entries with after < seq < before, in order.

        `limit` counts from `after` upwards; with `before` alone it takes the newest ones, for paging back.
        """
        ...

    async def describe(self, session_id: str, *, incarnation: str | None = None) -> Session:
        """The row, up to date with everything that any process has written."""
        ...

    async def facts(
        self,
        session_id: str,
        app: str,
        *,
        keys: Sequence[str] = (),
        prefix: str = "",
        last: bool = False,
        limit: int | None = None,
        incarnation: str | None = None,
    ) -> list[Fact]:
        """The facts that a program keeps in this session (`core/facts`), in the order of their keys; `last`: from the
        end of that order. The cost of one does not grow with the log.
        """
        ...

    async def find(self, query: Query) -> Page[Session]: ...
    async def search(self, words: str, *, scope: Query | None = None, before: int | None = None) -> list[Hit]:
        """The best hits first, in the order of `core/search`; scope.limit bounds them. `before`: only entries with a
        smaller seq. A store gives candidates, and `finding` does the rest.
        """
        ...

    async def delete(self, session_id: str, *, incarnation: str | None = None) -> None: ...
    async def erase(
        self,
        session_id: str,
        seqs: Sequence[int],
        *,
        redact: bool = False,
        by: str = "",
        lease: Lease | None = None,
        incarnation: str | None = None,
    ) -> list[int]:
        """Removes the words of these entries, and of those that go with them, for good; returns the seqs of all that
        it erased now. When it returns, no file of the store holds them (PostgreSQL: docs/how-to/erase.md).

        Entries that still count need `redact`, and then the lease, which is taken unless it is given (`core/erasing`).
        An `erasure` entry says who did it. Erasing the same entries again repeats only what a crash may have left.
        """
        ...

    def lease(
        self, session_id: str, *, wait_s: float | None = None, with_append: bool = False
    ) -> AbstractAsyncContextManager[Lease]:
        """Waits for a running turn to end, forever or up to wait_s; then raises Busy, which names the holder.

        `with_append`: the store may leave it to the first append with this lease to take it. That append raises Busy
        if somebody has it; if it fails, for whatever reason, the lease is over. Until then the caller holds nothing.
        """
        ...

    async def abandoned(self) -> list[str]:
        """Sessions whose lease expired because its holder fell silent. None if leases end with their process."""
        ...

    def watch(self, session_id: str, *, after: int, incarnation: str | None = None) -> AsyncIterator[Entry]:
        """Every entry after that seq, including future ones; ends when the session is deleted, even if another session
        has its id by then.
        """
        ...

    async def reindex(self, progress: Progress | None = None) -> int:
        """Rebuilds every row from the transcripts; returns the number of sessions."""
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
    if path.startswith("//") and scheme in ("jsonl", "sqlite"):
        raise UsageError(
            f"{scheme}:// is not a store address; it is {scheme}: and a path",
            hint=f"Write {scheme}:/{path.lstrip('/')} (absolute) or {scheme}:{path.lstrip('/')} (relative).",
        )
    pairs = (part.partition("=") for part in query.split("&") if part)
    return scheme, path, {name: value for name, _, value in pairs}


def is_there(url: str) -> bool:
    """Whether the store exists already. A store on a server or in memory counts as existing."""
    scheme, path, _ = parse_url(url)
    place = Path(path).expanduser().absolute()
    match scheme:
        case "sqlite":
            return place.exists()
        case "jsonl":
            from .jsonl.layouts import detect

            return (place / "agents").is_dir() or detect(place) is not None
        case _:
            return True


def to_read(url: str, *, named: bool) -> str:
    """The URL that a command which only reads opens with `create=False`: if the store of the settings does not exist
    yet, an empty one in memory. `named`: the user gave this address, so a missing store is an error.
    """
    return url if named or is_there(url) else "memory:"


@checked
@asynccontextmanager
async def open_store(
    url: str,
    *,
    create: bool = True,
    durability: str = "full",
    inject: str = "user",
    clock: Clock | None = None,
    on_notice: Callable[[Notice], None] | None = None,
    progress: Progress | None = None,
) -> AsyncGenerator[Store]:
    """Opens the store, and creates it if nothing is there yet.

    Without `create`, a missing store is StoreUnavailable, and one that cannot be written is opened for reading.
    `inject`: where summaries are shown; the SQLite store gives a compaction's row the matching role. `progress`: called
    from another thread with the number of bytes read of unknown files, and their total.
    Example: `async with turnlog.open_store("sqlite:app.db") as store: page = await store.find(turnlog.Query())`
    """
    if durability not in DURABILITIES:
        raise UsageError(f"unknown durability {durability!r}", hint="Use full or os.")
    scheme, path, options = parse_url(url)
    if not create and not is_there(url):
        raise StoreUnavailable(f"there is no store at {path}", hint="Check the address; chat and import create one.")
    if scheme in ("postgresql", "postgres"):
        store = await _connect_postgres(url, durability, inject, clock)
    else:
        connect = partial(_connect, scheme, path, options, durability, inject, clock, on_notice, progress)
        try:
            store = await connect()
        except StoreUnavailable:
            if create:
                raise
            store = await connect(read_only=True)
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
    *,
    read_only: bool = False,
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
            from .in_memory import MemoryStore

            return MemoryStore(clock=clock)
        case "jsonl":
            from .jsonl.store import JsonlStore

            return await JsonlStore.open(
                path,
                durability=durability,
                clock=clock,
                on_notice=on_notice,
                layout=options.get("layout"),
                dialect=options.get("dialect"),
                progress=progress,
                read_only=read_only,
            )
        case _:
            from .sqlite.store import SqliteStore

            return await SqliteStore.open(path, durability=durability, inject=inject, clock=clock, read_only=read_only)


async def _connect_postgres(url: str, durability: str, inject: str, clock: Clock | None) -> Store:
    """The URL stays whole, because its options are the store's and libpq's."""
    with postgres_driver():
        from .postgres.store import PostgresStore
    return await PostgresStore.open(url, durability=durability, inject=inject, clock=clock)


@contextmanager
def postgres_driver() -> Generator[None]:
    """Wraps an import that needs the driver."""
    try:
        yield
    except ImportError as error:
        raise MissingExtra(f"the PostgreSQL store needs its driver ({error})", extra="postgres") from error

"""The synchronous API: the same names and types as the asynchronous one, for scripts, notebooks and threads.

`facade` makes each method of the asynchronous one, and joins the caller to the loop that the engine runs in a thread of
its own.
"""

from typing import Self

from ..access import Access, BoundSession, SessionHandle
from ..core.principals import Principal
from ..core.session import Session
from ..library import Turnlog
from ..sessions import Sessions
from ..sessions.checking import checked_methods
from .facade import EngineBridge, called, entered, iterated, waited, wrapped


@checked_methods
class SyncSessions:
    """Everything that is not a turn: opening, listing, searching, forking, deleting (`Sessions`)."""

    def __init__(self, bridge: EngineBridge, inner: Sessions) -> None:
        self._bridge = bridge
        self._inner = inner

    @property
    def principal(self) -> Principal:
        """Whose rights these are."""
        return self._inner.principal

    def acting_for(self, principal: Principal) -> "SyncSessions":
        """The same sessions with the rights of this principal. Only the owner's object can be restricted."""
        return SyncSessions(self._bridge, self._inner.acting_for(principal))

    open = waited(Sessions.open)
    new = waited(Sessions.new)
    select = waited(Sessions.select)
    resolve = waited(Sessions.resolve)
    list = waited(Sessions.list)
    get = waited(Sessions.get)
    load = waited(Sessions.load)
    transcript = waited(Sessions.transcript)
    pages = iterated(Sessions.pages)
    outline = waited(Sessions.outline)
    read = waited(Sessions.read)
    history = waited(Sessions.history)
    oversized_tail = waited(Sessions.oversized_tail)
    explain = waited(Sessions.explain)
    expand = waited(Sessions.expand)
    expand_pages = iterated(Sessions.expand_pages)
    fidelity = waited(Sessions.fidelity)
    search = waited(Sessions.search)
    rename = waited(Sessions.rename)
    set_status = waited(Sessions.set_status)
    renew = waited(Sessions.renew)
    delete = waited(Sessions.delete)
    fork = waited(Sessions.fork)
    past = waited(Sessions.past)
    rewind = waited(Sessions.rewind)
    check_rewind = waited(Sessions.check_rewind)
    discard = waited(Sessions.discard)
    pin = waited(Sessions.pin)
    unpin = waited(Sessions.unpin)
    undo = waited(Sessions.undo)
    reindex = waited(Sessions.reindex)
    admit = called(Sessions.admit)
    writable = waited(Sessions.writable)
    own_key = called(Sessions.own_key)


@checked_methods
class SyncSessionHandle(BoundSession):
    """One session, with everything that can be done with it (`SessionHandle`). Its row is read at each use."""

    def __init__(self, bridge: EngineBridge, inner: SessionHandle) -> None:
        super().__init__(inner.place)
        self._bridge = bridge
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def row(self) -> Session:
        """The row as it is now; the session is opened for it."""
        return self._bridge.run(self._read_row())

    async def _read_row(self) -> Session:
        return (await self._inner).row

    def fork(self, *, at: int | None = None, label: str | None = None) -> "SyncSessionHandle":
        """A new session with a copy of the past up to `at`. This one is not changed.
        Example: `other = chat.fork(label="another try")`
        """
        return SyncSessionHandle(self._bridge, self._bridge.run(self._inner.fork(at=at, label=label)))

    ask = waited(SessionHandle.ask)
    send = iterated(SessionHandle.send)
    retry = iterated(SessionHandle.retry)
    approvals = waited(SessionHandle.approvals)
    approve = waited(SessionHandle.approve)
    deny = waited(SessionHandle.deny)
    stop = waited(SessionHandle.stop)
    append = waited(SessionHandle.append)
    history = waited(SessionHandle.history)
    messages = waited(SessionHandle.messages)
    call = waited(SessionHandle.call)
    stream = iterated(SessionHandle.stream)
    prompt = waited(SessionHandle.prompt)
    compact = waited(SessionHandle.compact)
    undo = waited(SessionHandle.undo)
    expand = waited(SessionHandle.expand)
    rewind = waited(SessionHandle.rewind)
    discard = waited(SessionHandle.discard)
    pin = waited(SessionHandle.pin)
    unpin = waited(SessionHandle.unpin)
    search = waited(SessionHandle.search)
    explain = waited(SessionHandle.explain)
    export = waited(SessionHandle.export)
    rename = waited(SessionHandle.rename)
    choose_model = waited(SessionHandle.choose_model)
    archive = waited(SessionHandle.archive)
    delete = waited(SessionHandle.delete)
    watch = iterated(SessionHandle.watch)
    lease = entered(SessionHandle.lease)


@checked_methods
class SyncAccess:
    """What one principal may do with sessions and turns (`Access`)."""

    def __init__(self, bridge: EngineBridge, inner: Access) -> None:
        self._bridge = bridge
        self._inner = inner
        self.sessions = SyncSessions(bridge, inner.sessions)

    @property
    def principal(self) -> Principal:
        """Whose rights these are."""
        return self._inner.principal

    approvals = waited(Access.approvals)
    approve = waited(Access.approve)
    allow = waited(Access.allow)
    deny = waited(Access.deny)
    model = waited(Access.model)
    model_of = waited(Access.model_of)
    models = called(Access.models)
    choose_model = waited(Access.choose_model)
    check_model = called(Access.check_model)
    former_files = waited(Access.former_files)
    undo_file = waited(Access.undo_file)
    send = iterated(Access.send)
    ask = waited(Access.ask)
    hear = waited(Access.hear)
    retry = iterated(Access.retry)
    delivered_to = waited(Access.delivered_to)
    renewed = waited(Access.renewed)
    new = waited(Access.new)
    history = waited(Access.history)
    prompt = waited(Access.prompt)
    limits = waited(Access.limits)
    recall = waited(Access.recall)
    remembered = waited(Access.remembered)
    append = waited(Access.append)
    lease = entered(Access.lease)
    compact = waited(Access.compact)
    stop_anywhere = waited(Access.stop_anywhere)
    holder = waited(Access.holder)
    watch = iterated(Access.watch)
    left_here = called(Access.left_here)
    accept_if_unchanged = waited(Access.accept_if_unchanged)
    accept_after = waited(Access.accept_after)
    guard = waited(Access.guard)
    call = waited(Access.call)
    stream = iterated(Access.stream)
    session = wrapped(SyncSessionHandle, Access.session)


@checked_methods
class SyncTurnlog(SyncAccess):
    """Turnlog without `await` (`Turnlog`), for scripts, notebooks and threads; `turnlog.connect()` gives one."""

    def __init__(self, bridge: EngineBridge) -> None:
        super().__init__(bridge, bridge.turnlog)
        self.settings = bridge.turnlog.settings

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the running turns and closes everything. A second call does nothing."""
        self._bridge.close()

    acting_for = wrapped(SyncAccess, Turnlog.acting_for)
    check_agent = called(Turnlog.check_agent)
    ping = waited(Turnlog.ping)
    stop = called(Turnlog.stop)
    resume = waited(Turnlog.resume)
    adopt = waited(Turnlog.adopt)
    expire = waited(Turnlog.expire)
    erase = waited(Turnlog.erase)
    drain = waited(Turnlog.drain)

"""Collects appends: those that wait during one call go into the next, and one commit serves all of them.

For each session a call says where its log ended when it was last read; the database writes only if it still ends there.
So nothing is locked while Python decides, the row of a session is read once and then cached, and a session that another
process wrote to meanwhile is retried with the database's answer.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from ...codecs import native
from ...core import facts as session_facts
from ...core.admission import admit
from ...core.earlier_entries import needed
from ...core.entries import Entry
from ...core.rows import FOLD, decode_row
from ...core.session import Session, describe
from ...errors import StoreError, StoreUnavailable, TurnlogError
from .. import Appended, Clock, Lease, sql
from ..disk import leases
from ..disk.syncing import Uncancellable
from ..stamping import AskedAppend, check_expected, check_named, stamp
from .heartbeat import NOT_TAKEN, PostgresLease, now
from .leases import busy
from .ledger import new_token
from .pool import CALL_S, PostgresPool
from .row_functions import APPEND
from .statements import current, readable, seq_of_fact, told_facts, told_of
from .wire import PostgresRow, Values, array_of

CALLS_AT_ONCE = 2
"""One call commits while the next is prepared; a session is never in two of them."""
GROUPS_MAX = 256
BYTES_MAX = 16 * 1024 * 1024
"""The size of one call, unless a single append is larger."""
ROWS_KEPT = 4_096
BYTES_PER_S = 500_000
"""The slowest connection for which the time limit of a large append is computed."""


class CachedSession(Struct, frozen=True, gc=False):
    """A session as it was last read: row None if it did not exist."""

    no: int
    row: Session | None


NOBODY = CachedSession(0, None)


class PendingAppend:
    """One waiting append."""

    __slots__ = ("asked", "done", "lease", "session_id")

    def __init__(self, session_id: str, asked: AskedAppend, lease: Lease | None) -> None:
        self.session_id = session_id
        self.asked = asked
        self.lease = lease
        self.done = Uncancellable()


class Group:
    """The appends of one session in one call."""

    def __init__(self, session_id: str, known: CachedSession) -> None:
        self.session_id = session_id
        self.known = known
        self.row = known.row
        self.token = new_token()
        self.jobs: list[tuple[PendingAppend, Appended]] = []
        self.lines: list[str] = []
        self.entries: list[Entry] = []
        self.past: list[Entry] = []
        self.log: list[Entry] = []
        """The entries read before, if the row is not enough."""
        self.lease: Lease | None = None

    def add(self, job: PendingAppend, now: int) -> int:
        """Adds an append and returns its size. Raises if these entries may not follow."""
        _check(job.lease, self.session_id)
        check_expected(self.row, self.session_id, job.asked)
        bodies = admit(self.row, job.asked.bodies, leased=job.asked.leased)
        entries = stamp(bodies, self.row.last_seq if self.row else 0, now)
        lines = [native.encode_stored(entry).decode() for entry in entries]
        if needed(self.row, entries) == []:
            self.row = describe(None, [*self.log, *self.entries, *entries])
        else:
            self.row = describe(self.row, entries, [*self.past, *self.entries])
        self.lease = job.lease or self.lease
        self.jobs.append((job, Appended(entries, self.row)))
        self.entries += entries
        self.lines += lines
        return sum(map(len, lines))

    def seq_of_fact(self, app: str, key: str, stored: int | None) -> int | None:
        """The entry that holds this fact after the appends of this group."""
        for change in session_facts.changes(self.entries):
            if (change.app, change.key) == (app, key):
                stored = change.seq
        return stored

    def takes(self, job: PendingAppend) -> bool:
        """Whether the append fits: all that need a lease must need the same one."""
        return job.lease is None or self.lease in (None, job.lease)

    @property
    def wanted(self) -> PostgresLease | None:
        """The lease that is to be taken with these appends."""
        return self.lease if isinstance(self.lease, PostgresLease) and self.lease.epoch == NOT_TAKEN else None

    def refuse(self, error: TurnlogError) -> None:
        """The database has written nothing, and granted nothing."""
        if self.wanted:
            self.wanted.is_asked_for = False
        for job, _ in self.jobs:
            _refuse(job, error)

    def told(self, start: int, lasting_s: float) -> dict[str, Any]:
        """The argument of the function in `rows.sql`."""
        assert self.row is not None
        before = self.known.row
        asked: dict[str, Any] = {}
        if wanted := self.wanted:
            wanted.is_asked_for = True
            asked = {"lease": wanted.token, "holder": wanted.holder, "lasting_s": lasting_s}
        elif self.lease:
            asked = {"epoch": self.lease.epoch}
        return {
            **asked,
            "id": self.session_id,
            "no": self.known.no,
            "last": before.last_seq if before else 0,
            "token": self.token,
            "start": start,
            "count": len(self.entries),
            "facts": told_facts(session_facts.changes(self.entries)),
            **told_of(self.row, before),
        }


class PostgresWriter:
    def __init__(
        self,
        db: PostgresPool,
        *,
        clock: Clock,
        durable: bool,
        summary_role: str | None,
        written: Callable[[str], None],
        notification: Callable[[list[str]], tuple[str, Values]],
        lease_s: float,
        granted: Callable[[PostgresLease, int, float], None],
    ) -> None:
        """`notification`: the statement that tells others of changes in these sessions. `granted`: called with a lease
        that an append took, its epoch, and when that was asked.
        """
        self._db = db
        self._clock = clock
        self._durable = durable
        self._summary_role = summary_role
        self._written = written
        self._notification = notification
        self._lease_s = lease_s
        self._granted = granted
        self._waiting: list[PendingAppend] = []
        self._under_way: set[str] = set()
        self._calls = 0
        self._scheduled = False
        self._known: dict[str, CachedSession] = {}

    async def append(self, session_id: str, asked: AskedAppend, lease: Lease | None) -> Appended:
        """The append is stored or refused when this returns, even if the caller is cancelled meanwhile."""
        check_named(session_id, asked.bodies)
        if isinstance(lease, PostgresLease) and lease.is_lapsed:
            await _settled(lease, self._db.patience_s)
        _check(lease, session_id)
        job = PendingAppend(session_id, asked, lease)
        self._waiting.append(job)
        self._schedule()
        try:
            return await job.done
        finally:
            if isinstance(lease, PostgresLease) and lease.epoch == NOT_TAKEN:
                lease.end()  # an append that fails does not take it

    def forget(self, session_id: str) -> None:
        self._known.pop(session_id, None)

    def _schedule(self) -> None:
        """Waits one pass of the event loop, so that simultaneous appends go together."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._start)

    def _start(self) -> None:
        self._scheduled = False
        if self._calls >= CALLS_AT_ONCE:
            return
        jobs: dict[str, list[PendingAppend]] = {}
        later: list[PendingAppend] = []
        for job in self._waiting:
            here = job.session_id not in self._under_way and (job.session_id in jobs or len(jobs) < GROUPS_MAX)
            jobs.setdefault(job.session_id, []).append(job) if here else later.append(job)
        self._waiting = later
        if jobs:
            self._calls += 1
            self._under_way |= jobs.keys()
            self._db.spawn(self._carry_out(jobs))

    async def _carry_out(self, jobs: dict[str, list[PendingAppend]]) -> None:
        left = [job for several in jobs.values() for job in several]
        try:
            while left:
                left = await self._attempt(left)
        except BaseException as error:
            told = error if isinstance(error, TurnlogError) else StoreError(f"the append failed ({error!r})")
            if told is not error:
                told.__cause__ = error
            for job in left:
                self.forget(job.session_id)
                _refuse(job, told)
            if not isinstance(error, Exception):
                raise
        finally:
            self._calls -= 1
            self._under_way -= jobs.keys()
            self._schedule()

    async def _attempt(self, jobs: list[PendingAppend]) -> list[PendingAppend]:
        """One call for all of them; returns those that must be retried."""
        names = {job.session_id for job in jobs}
        fresh = names - self._known.keys()
        if fresh:
            await self._look(fresh)
        groups = {name: Group(name, self._known.get(name, NOBODY)) for name in sorted(names)}
        again: list[PendingAppend] = []
        size = 0
        for job in jobs:
            group = groups[job.session_id]
            if size > BYTES_MAX or not group.takes(job):
                again.append(job)
                continue
            try:
                size += await self._add(group, job)
            except TurnlogError as error:
                # A refusal counts only if it follows from the current log, not from the cached one.
                if job.session_id in fresh and not group.jobs:
                    _refuse(job, error)
                    continue
                if not group.jobs:
                    self.forget(job.session_id)
                again.append(job)
        return again + await self._write([group for group in groups.values() if group.jobs], size)

    async def _add(self, group: Group, job: PendingAppend) -> int:
        wanted = needed(group.row, job.asked.bodies)
        end = group.known.row.last_seq if group.known.row else 0
        if wanted == []:
            group.log = group.log or await readable(self._db, group.session_id, before=end + 1)
        for first, last in wanted or ():
            group.past += await readable(self._db, group.session_id, first - 1, min(last, end) + 1)
        if (expected := job.asked.expect_fact) is not None:
            app, key, _ = expected
            # If somebody appends after this look, the log ends elsewhere, and this append is tried again.
            seq = await seq_of_fact(self._db, group.session_id, app, key)
            session_facts.check_expected(expected, group.seq_of_fact(app, key, seq))
        return group.add(job, self._clock())

    async def _look(self, names: set[str]) -> None:
        if len(self._known) > ROWS_KEPT:
            self._known = {name: known for name, known in self._known.items() if name in self._under_way}
        rows = await self._db.all(
            "SELECT session_id, session_no, meta_json FROM turnlog.sessions WHERE session_id = ANY(%s)",
            (sorted(names),),
        )
        for name in names:
            self._known.pop(name, None)
        for name, no, line in rows:
            self._known[name] = CachedSession(no, await current(self._db, decode_row(line)))

    async def _write(self, groups: list[Group], size: int) -> list[PendingAppend]:
        if not groups:
            return []
        lines: list[str] = []
        roles: list[str] = []
        times: list[str] = []
        told: list[dict[str, Any]] = []
        for group in groups:
            told.append(group.told(len(lines), self._lease_s))
            lines += group.lines
            roles += [sql.role_of(entry, self._summary_role) or "" for entry in group.entries]
            times += [entry.ts for entry in group.entries]
        sent = [0.0]
        try:
            answers = await self._db.all(
                f"SELECT * FROM turnlog.{APPEND}(%s::jsonb, %s::text[], %s::text[], %s::text[], %s)",
                (msgspec.json.encode(told).decode(), *map(array_of, (lines, roles, times)), self._durable),
                changes=True,
                call_s=CALL_S + size / BYTES_PER_S,
                sending=lambda: sent.append(now()),
                then=self._notification([group.session_id for group in groups]),
            )
        except StoreUnavailable:
            raise
        except TurnlogError:
            if len(groups) == 1:
                raise
            return [job for group in groups for job in await self._write_alone(group)]
        return self._conclude({group.session_id: group for group in groups}, answers, sent[-1])

    async def _write_alone(self, group: Group) -> list[PendingAppend]:
        """After the database refused a call: the error of one session must not affect another."""
        try:
            return await self._write([group], sum(map(len, group.lines)))
        except TurnlogError as error:
            self.forget(group.session_id)
            for job, _ in group.jobs:  # it may have been granted: the answer may have been lost
                _refuse(job, error)
            return []

    def _conclude(self, groups: dict[str, Group], answers: Sequence[PostgresRow], sent: float) -> list[PendingAppend]:
        again: list[PendingAppend] = []
        for name, verdict, no, _, line, epoch in answers:
            group = groups[name]
            if verdict == "written":
                self._known[name] = CachedSession(no, group.row)
                if group.wanted and epoch:
                    self._granted(group.wanted, epoch, sent)
                self._written(name)
                for job, appended in group.jobs:
                    if not job.done.done():
                        job.done.set_result(appended)
            elif verdict == "busy":
                group.refuse(busy(name, line or "another process"))
            else:
                again += [job for job, _ in group.jobs]
                self._learn(group, verdict, no, line)
        return again

    def _learn(self, group: Group, verdict: str, no: int, line: str | None) -> None:
        """The cached row was not the current one, or the lease is somebody else's."""
        if group.wanted:
            group.wanted.is_asked_for = False
        if verdict == "fenced":
            if isinstance(group.lease, PostgresLease):  # its epoch is refused from now on
                group.lease.end()
        elif line is None or (row := decode_row(line)).fold != FOLD:
            self.forget(group.session_id)  # so it is read again
        else:
            self._known[group.session_id] = CachedSession(no, row)


async def _settled(lease: PostgresLease, patience_s: float) -> None:
    """Returns when the database has said whether the lease is still valid, or after the time limit."""
    with suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            await lease.regain()


def _check(lease: Lease | None, session_id: str) -> None:
    """An unrenewed lease is dead, but may become valid again: then nothing is lost."""
    if isinstance(lease, PostgresLease) and lease.is_lapsed:
        raise StoreUnavailable(
            "the lease could not be renewed in time", hint="The turn continues when the database is back."
        )
    leases.check(lease, session_id)


def _refuse(job: PendingAppend, error: BaseException) -> None:
    if not job.done.done():
        job.done.set_exception(error)

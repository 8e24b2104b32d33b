"""Appends, gathered: what waits while one call is under way goes into the next, and one commit pays for all of it.

A call says, for each session, where its log ended when we last looked; the database writes only if it still ends there.
So nothing is locked while Python thinks, the row of a session is read once and then known, and a session that somebody
else wrote to meanwhile is tried again from what the database answers.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ..codecs import native
from ..core.admission import admit
from ..core.entries import Entry, Opened
from ..core.session import Session, describe, needs_whole_log
from ..errors import StoreError, StoreUnavailable, TurnlogError, UsageError
from . import Clock, Lease, leases
from .postgres_ledger import new_token
from .postgres_pool import CALL_S, Database, Row
from .postgres_statements import columns, decode_row, entries_of, role_of
from .stamping import check_expected, stamp
from .syncing import Outcome

CALLS_AT_ONCE = 2
"""One commits while the next is put together; a session is never in two of them."""
GROUPS_MAX = 256
BYTES_MAX = 16 * 1024 * 1024
"""Of one call, unless a single append is larger."""
ROWS_KEPT = 4_096
BYTES_PER_S = 500_000
"""The slowest connection a large append is given time for."""


class Known(Struct, frozen=True, gc=False):
    """A session as it was when we last looked: row None if there was none."""

    no: int
    row: Session | None


NOBODY = Known(0, None)


class Job:
    """One append that waits."""

    __slots__ = ("bodies", "done", "expect", "lease", "session_id")

    def __init__(self, session_id: str, bodies: Sequence[Entry], expect: int | None, lease: Lease | None) -> None:
        self.session_id = session_id
        self.bodies = bodies
        self.expect = expect
        self.lease = lease
        self.done = Outcome()


class Group:
    """What one session gets in one call."""

    def __init__(self, session_id: str, known: Known) -> None:
        self.session_id = session_id
        self.known = known
        self.row = known.row
        self.token = new_token()
        self.jobs: list[tuple[Job, list[Entry]]] = []
        self.lines: list[str] = []
        self.entries: list[Entry] = []
        self.log: list[Entry] | None = None
        self.epoch: int | None = None

    def add(self, job: Job, now: int) -> int:
        """The size of it. Raises if these entries may not follow."""
        leased = leases.check(job.lease, self.session_id)
        check_expected(self.row, job.expect)
        admit(self.row, job.bodies, leased=leased)
        entries = stamp(job.bodies, self.row.last_seq if self.row else 0, now)
        lines = [native.encode(entry).decode() for entry in entries]
        if needs_whole_log(self.row, job.bodies):
            self.row = describe(None, [*(self.log or ()), *self.entries, *entries])
        else:
            self.row = describe(self.row, entries)
        self.epoch = job.lease.epoch if job.lease else self.epoch
        self.jobs.append((job, entries))
        self.entries += entries
        self.lines += lines
        return sum(map(len, lines))

    def takes(self, job: Job) -> bool:
        """All that need a lease need the same one."""
        return job.lease is None or self.epoch in (None, job.lease.epoch)

    def told(self, start: int) -> dict[str, Any]:
        """As turnlog.append_1 takes it."""
        assert self.row is not None
        before = self.known.row
        return {
            "id": self.session_id,
            "no": self.known.no,
            "last": before.last_seq if before else 0,
            "token": self.token,
            "epoch": self.epoch,
            "start": start,
            "count": len(self.entries),
            **columns(self.row, before),
        }


class Writer:
    def __init__(
        self,
        db: Database,
        *,
        clock: Clock,
        durable: bool,
        summary_role: str | None,
        written: Callable[[str], None],
    ) -> None:
        self._db = db
        self._clock = clock
        self._durable = durable
        self._summary_role = summary_role
        self._written = written
        self._waiting: list[Job] = []
        self._under_way: set[str] = set()
        self._calls = 0
        self._scheduled = False
        self._known: dict[str, Known] = {}

    async def append(
        self, session_id: str, bodies: Sequence[Entry], expect: int | None, lease: Lease | None
    ) -> list[Entry]:
        """Done, or refused, when it returns; also if the caller is cancelled meanwhile."""
        if bodies and isinstance(bodies[0], Opened) and bodies[0].id != session_id:
            raise UsageError(f"the session entry says {bodies[0].id}, not {session_id}")
        leases.check(lease, session_id)
        job = Job(session_id, bodies, expect, lease)
        self._waiting.append(job)
        self._schedule()
        return await job.done

    def forget(self, session_id: str) -> None:
        self._known.pop(session_id, None)

    def _schedule(self) -> None:
        """One pass of the event loop later, so that those who append now go together."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._start)

    def _start(self) -> None:
        self._scheduled = False
        if self._calls >= CALLS_AT_ONCE:
            return
        jobs: dict[str, list[Job]] = {}
        later: list[Job] = []
        for job in self._waiting:
            here = job.session_id not in self._under_way and (job.session_id in jobs or len(jobs) < GROUPS_MAX)
            jobs.setdefault(job.session_id, []).append(job) if here else later.append(job)
        self._waiting = later
        if jobs:
            self._calls += 1
            self._under_way |= jobs.keys()
            self._db.spawn(self._carry_out(jobs))

    async def _carry_out(self, jobs: dict[str, list[Job]]) -> None:
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

    async def _attempt(self, jobs: list[Job]) -> list[Job]:
        """One call for all of them; those that have to be tried again."""
        names = {job.session_id for job in jobs}
        fresh = names - self._known.keys()
        if fresh:
            await self._look(fresh)
        groups = {name: Group(name, self._known.get(name, NOBODY)) for name in sorted(names)}
        again: list[Job] = []
        size = 0
        for job in jobs:
            group = groups[job.session_id]
            if size > BYTES_MAX or not group.takes(job):
                again.append(job)
                continue
            try:
                size += await self._add(group, job)
            except TurnlogError as error:
                # A refusal counts only if it follows from the log as it is, not as we remember or expect it.
                if job.session_id in fresh and not group.jobs:
                    _refuse(job, error)
                    continue
                if not group.jobs:
                    self.forget(job.session_id)
                again.append(job)
        return again + await self._write([group for group in groups.values() if group.jobs], size)

    async def _add(self, group: Group, job: Job) -> int:
        if group.known.row and group.log is None and needs_whole_log(group.row, job.bodies):
            group.log = await entries_of(self._db, group.session_id, before=group.known.row.last_seq + 1)
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
            self._known[name] = Known(no, decode_row(line))

    async def _write(self, groups: list[Group], size: int) -> list[Job]:
        if not groups:
            return []
        lines: list[str] = []
        roles: list[str] = []
        times: list[str] = []
        told: list[dict[str, Any]] = []
        for group in groups:
            told.append(group.told(len(lines)))
            lines += group.lines
            roles += [role_of(entry, self._summary_role) or "" for entry in group.entries]
            times += [entry.ts for entry in group.entries]
        try:
            answers = await self._db.all(
                "SELECT * FROM turnlog.append_1(%s::jsonb, %b::text[], %b::text[], %b::text[], %s)",
                (msgspec.json.encode(told).decode(), lines, roles, times, self._durable),
                changes=True,
                call_s=CALL_S + size / BYTES_PER_S,
            )
        except StoreUnavailable:
            raise
        except TurnlogError:
            if len(groups) == 1:
                raise
            return [job for group in groups for job in await self._write_alone(group)]
        return self._conclude({group.session_id: group for group in groups}, answers)

    async def _write_alone(self, group: Group) -> list[Job]:
        """After the database refused a call: one session's trouble must not become another's."""
        try:
            return await self._write([group], sum(map(len, group.lines)))
        except TurnlogError as error:
            self.forget(group.session_id)
            for job, _ in group.jobs:
                _refuse(job, error)
            return []

    def _conclude(self, groups: dict[str, Group], answers: Sequence[Row]) -> list[Job]:
        again: list[Job] = []
        for name, verdict, no, _, line in answers:
            group = groups[name]
            if verdict == "written":
                self._known[name] = Known(no, group.row)
                self._written(name)
                for job, entries in group.jobs:
                    if not job.done.done():
                        job.done.set_result(entries)
                continue
            again += [job for job, _ in group.jobs]
            if verdict == "fenced":
                for job, _ in group.jobs:
                    if job.lease is not None:
                        _end(job.lease)
            elif line is None:
                self.forget(name)
            else:
                self._known[name] = Known(no, decode_row(line))
        return again


def _end(lease: Lease) -> None:
    """It is ours, so it can be told; a foreign one that never was ours is refused by its epoch each time."""
    if hasattr(lease, "live"):
        lease.live = False  # type: ignore[misc]


def _refuse(job: Job, error: BaseException) -> None:
    if not job.done.done():
        job.done.set_exception(error)

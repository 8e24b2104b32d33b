"""Compacts a framework's session when its trigger says so, or on demand."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..core import guard
from ..core.entries import Compaction, Entry
from ..core.guard import Compact, Limits
from ..core.session import Session
from ..errors import ProviderError
from ..library import Turnlog
from ..sessions import EDIT_WAIT_S
from ..settings import limits_of
from ..turns.compactor import Compactor, asked_for
from ..turns.journal import Journal
from ..turns.own_call import Summarise, summariser
from .session_log import SessionLog

PinsOf: TypeAlias = Callable[[Session, Iterable[Entry], int], list[Entry]]
"""The row, the entries of the tail, the first entry kept → what keeps some of the others word for word."""


class Policy(Struct, frozen=True):
    """Who writes summaries, and the window of the model that reads them; None: the model of the settings."""

    summarise: Summarise | None = None
    window: int | None = None


async def limits(t: Turnlog, agent: str, policy: Policy) -> Limits:
    """The limits of the settings, for the policy's window; the model of the settings is asked only without one."""
    if policy.window is not None:
        found = limits_of(t.settings, window=policy.window)
        return found if found.window == policy.window else found.narrowed(policy.window)
    try:
        return replace((await t.agent(agent)).limits, history_note=False)  # the framework's call has its own tools
    except ProviderError:
        return limits_of(t.settings)  # without its key or package, the model's window is unknown


async def compactor(t: Turnlog, agent: str, policy: Policy) -> Compactor:
    if policy.summarise is not None:
        return Compactor(summarise=summariser(policy.summarise), window=policy.window)
    return (await t.agent(agent)).compactor


async def folded(t: Turnlog, agent: str, policy: Policy, session_id: str, step: Compact, bounds: Limits) -> Compaction:
    """A compaction that can be appended with `step.along`."""
    return await (await compactor(t, agent, policy)).fold(session_id, step, bounds)


async def compact(t: Turnlog, where: SessionLog, policy: Policy, pins: PinsOf, *, force: bool) -> bool:
    """Whether it was compacted. ProviderError if no good summary was written: then nothing has changed."""
    row = await where.find(t)
    if row is None:
        return False
    bounds = replace(await limits(t, row.agent, policy), system="", tools=())
    if not force and await _due(t, row, bounds) is None:
        return False
    async with t.store.lease(row.id, wait_s=EDIT_WAIT_S) as lease:
        journal = Journal(t.store, lease, await t.sessions.load(row.id, incarnation=row.incarnation))
        step = asked_for(journal.transcript, bounds) if force else guard.compact_if_due(journal.transcript, bounds)
        if step is None:
            return False
        body = await folded(t, row.agent, policy, row.id, step, bounds)
        await journal.append(body, *step.along, *pins(journal.row, journal.transcript, body.first_kept))
    return True


async def _due(t: Turnlog, row: Session, bounds: Limits) -> Compact | None:
    """Looks without the lease: most sessions are far from their limit and need no compaction."""
    return guard.compact_if_due((await t.sessions.load(row)).entries, bounds)

"""Makes one model call of a framework fit, and keeps the summaries that it needs.

A summary is stored in the framework's session if the messages of the call are the session's own: then it can be undone,
and other processes use it. Otherwise it is remembered here, as long as a conversation begins with what it covers.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ..core.entries import Compaction, Entry
from ..core.guard import Compact
from ..errors import TurnlogError
from ..library import Turnlog
from ..turns.own_call import Summarise
from . import compacting, fitting
from .checkpoints import digest
from .fitting import Dialect, FitDraft, GuardedSteps
from .resident import Holder
from .session_log import AGENT

R = TypeVar("R")
SUMMARIES_KEPT = 256


class KnownSummary(Struct, frozen=True):
    """A compaction that was made before this call."""

    body: Compaction
    made_at: int
    """How many of the items there were then."""
    stored: int = 0
    """The entry of the session that holds it, or what it was made of. When that is undone, it does not count."""


class CallSession(Struct, frozen=True):
    """How a guard reaches the session of a call. Both get the items of the draft, and number them from 1."""

    known: Callable[[Turnlog, Sequence[Any]], Coroutine[Any, Any, KnownSummary | None]]
    """The compaction in effect, if these items begin with what it covers."""
    keep: Callable[[Turnlog, Sequence[Any], Compaction], Coroutine[Any, Any, bool]]
    """Stores a compaction; False if these items are not the session's."""


class RememberedSummaries:
    """Summaries of earlier calls. Each is used while a conversation begins with what it covers."""

    def __init__(self, name: Callable[[Any], str]) -> None:
        """`name`: what distinguishes an item from others; empty if nothing does."""
        self._name = name
        self._found: OrderedDict[tuple[str, ...], KnownSummary] = OrderedDict()

    def newest(self, items: Sequence[Any]) -> KnownSummary | None:
        names = [self._name(item) for item in items] if self._found else []
        for covered in reversed(self._found):
            if len(covered) < len(names) and tuple(names[: len(covered)]) == covered:
                return self._found[covered]
        return None

    def add(self, items: Sequence[Any], body: Compaction, stored: int = 0) -> None:
        covered = tuple(self._name(item) for item in items[: body.first_kept - 1])
        if all(covered):
            self._found[covered] = KnownSummary(body, len(items), stored)
        if len(self._found) > SUMMARIES_KEPT:
            self._found.popitem(last=False)


class CallGuard:
    def __init__(
        self,
        holder: Holder,
        dialect: Dialect[Any],
        text: Callable[[Any], str],
        *,
        summarise: Summarise | None,
        window: int | None,
    ) -> None:
        """`text`: what distinguishes an item from others."""
        self.holder = holder
        self._dialect = dialect
        self._summarise = summarise
        self._window = window
        self._summaries = RememberedSummaries(lambda item: digest(text(item).encode("utf-8", "surrogatepass")))

    async def run(
        self,
        items: Sequence[Any],
        system: str,
        tools: Sequence[dict[str, Any]],
        attempt: Callable[[list[Any]], Awaitable[R]],
        session: CallSession | None,
        *,
        hears_refusals: bool = True,
    ) -> R:
        """Makes the call: as it is, with shortened results, with a summary, with a digest."""
        summarise = self.holder.back(self._summarise) if self._summarise else None
        policy = compacting.Policy(summarise=summarise, window=self._window)
        limits = await self.holder.call(lambda t: compacting.limits(t, AGENT, policy))
        bounds = fitting.bounds_of(items, self._dialect, replace(limits, system=system, tools=tuple(tools)))
        draft = fitting.drafted(items, self._dialect)
        split = list(draft.items)
        stored = await self.holder.call(lambda t: session.known(t, split)) if session else None
        found = [one for one in (stored, self._summaries.newest(split)) if one is not None]
        if known := max(found, key=lambda one: one.body.first_kept, default=None):
            draft = draft.with_known(known.body, known.made_at)

        async def compact(now: FitDraft[Any], step: Compact) -> list[Entry]:
            async def work(t: Turnlog) -> list[Entry]:
                body = await compacting.folded(t, AGENT, policy, "", step, bounds)
                own = now.among_items(body)
                if session is None or not await _kept(session, t, split, own):
                    self._summaries.add(split, own)
                return [body, *step.along]

            return await self.holder.call(work)

        steps = GuardedSteps(attempt=attempt, compact=compact, hears_refusals=hears_refusals)
        return await fitting.guarded(draft, self._dialect, bounds, steps)


async def _kept(session: CallSession, t: Turnlog, items: Sequence[Any], body: Compaction) -> bool:
    try:
        return await session.keep(t, items, body)
    except TurnlogError:
        return False  # somebody else has written: it is remembered here, and stored next time

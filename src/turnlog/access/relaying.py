"""What one principal may do as a client that runs its own loop: make a call, and count what it would send."""

from typing import Any

from msgspec.structs import replace

from ..core import guard, principals
from ..core.entries import Entry, Facts
from ..core.marks import live_entries
from ..core.parameters import NONE, UNTOLD, Parameters, fitting, given
from ..core.principals import Principal
from ..core.session import Session
from ..errors import NotFound
from ..turns import stopping
from ..turns.agent import Agent
from ..turns.asked import Asked
from ..turns.context_edits import NO_EDITS, ContextEdits
from ..turns.relay import Upstream
from ..turns.relay_call import RelayCall
from ..turns.stored_calls import StoredCall
from .parts import Parts

APP = "responses"
"""The name of the facts that a session keeps about its responses."""
DELETED = "deleted/"
STOP_S = 10.0
"""How long stopping a call may take; then it is told as it is."""


class Relaying:
    def __init__(self, parts: Parts, principal: Principal) -> None:
        self.principal = principal
        self._relays = parts.relays
        self._agents = parts.agents
        self._runner = parts.runner
        self._store = parts.store
        self._queue = parts.queue

    async def start(
        self,
        asked: Asked,
        model: str | None = None,
        *,
        parameters: Parameters = NONE,
        max_output: int | None = None,
        vendor_system: str = "",
        goes_on: bool = False,
        keeps_pieces: bool = False,
        edits: ContextEdits = NO_EDITS,
    ) -> tuple[RelayCall, tuple[str, ...]]:
        """One call with the request's own tools, or a turn of one of our agents (`asked.kind`).

        Returns when the words are durable: the call, which the caller must detach from, and the names of parameters
        that the model cannot follow and that are left out. `model`: PROVIDER:NAME; None: that of the settings.
        `vendor_system`: text before the system text that only Anthropic's API is sent. `goes_on`: to its end, though
        nobody listens. `keeps_pieces`: the stream can be told again after a restart. `edits`: of the context, first.
        """
        asked = replace(asked, principal=self.principal)
        if asked.kind == "agent":
            principals.check_agent(self.principal, asked.agent)
            self._agents.check(asked.agent)
            agent = await self._agents.get(asked.agent)
            upstream = Upstream(agent=agent, is_turn=True, keeps_pieces=keeps_pieces)
            return await self._relays.start(asked, upstream), tuple(sorted(given(parameters) - UNTOLD))
        agent = await self._headed(asked, model, vendor_system)
        kept, left_out = fitting(parameters, agent.provider.takes)
        upstream = Upstream(
            agent=agent, parameters=kept, max_output=max_output, goes_on=goes_on, keeps_pieces=keeps_pieces, edits=edits
        )
        return await self._relays.start(asked, upstream), left_out

    async def stored(self, session_id: str, turn: int) -> StoredCall:
        """An earlier call of this principal. NotFound if there is none."""
        call = await self._relays.places.stored(session_id, turn, self.principal)
        if call is None:
            raise NotFound("there is no such call", hint="Only calls of your own that are still stored can be read.")
        return call

    async def head(self, call: StoredCall) -> tuple[str, list[dict[str, Any]]]:
        """System text and tools of an earlier call."""
        return await self._relays.places.head(call)

    async def told(self, call: StoredCall, *, listens: bool = False) -> RelayCall:
        """The same call as it runs in this process, or from the log. `listens`: the caller must detach from it."""
        return await self._relays.told(call, listens=listens)

    async def own_session(self, session_id: str) -> Session | None:
        """The session, if it is the principal's own."""
        return await self._relays.places.own_session(self.principal, session_id)

    async def entry(self, row: Session, seq: int) -> Entry | None:
        found = await self._store.read(row.id, after=seq - 1, limit=1, incarnation=row.incarnation)
        return found[0] if found and found[0].seq == seq else None

    async def input_of(self, call: StoredCall) -> list[Entry]:
        """The entries that the input of a call is in: its own words if it said where it goes on, otherwise the whole
        path up to them.
        """
        if call.note.get("part"):
            return list(call.words)
        after = call.turn + len(call.words) + 1
        return live_entries(await self._store.read(call.row.id, before=after, incarnation=call.row.incarnation))

    async def live_entries(self, row: Session) -> list[Entry]:
        """The entries of a session that count."""
        return live_entries(await self._store.read(row.id, incarnation=row.incarnation))

    async def is_deleted(self, call: StoredCall) -> bool:
        """Whether the principal wants it not to be found any more."""
        key = f"{DELETED}{call.turn}"
        return bool(await self._store.facts(call.row.id, APP, keys=(key,), incarnation=call.row.incarnation))

    async def delete(self, call: StoredCall) -> None:
        """It is not found any more; its entries stay, because a log is never edited."""
        body = Facts(app=APP, put={f"{DELETED}{call.turn}": True})
        await self._store.append(call.row.id, [body], incarnation=call.row.incarnation)

    async def stop(self, call: StoredCall) -> RelayCall:
        """Stops it, if it runs, and keeps what was said."""
        running = self._relays.call(call.row.id, call.turn)
        if running is not None:
            running.stop()
            await running.until_over(STOP_S)
            return running
        await stopping.stop_anywhere(self._store, self._queue, call.row.id)
        return await self._relays.told(call)

    async def count_tokens(self, asked: Asked, model: str | None = None, *, vendor_system: str = "") -> int:
        """An estimate of what a call would send now. Nothing is stored."""
        agent = await self._headed(asked, model, vendor_system)
        transcript = await self._relays.places.look(replace(asked, principal=self.principal))
        agent = agent.narrowed(await self._runner.windows.of(agent.place))
        scale = await self._runner.calibration.of(agent.provider.model)
        return guard.measure(transcript, agent.scaled(scale))

    async def _headed(self, asked: Asked, model: str | None, vendor_system: str) -> Agent:
        """The model with the system text and the tools of a request."""
        agent = await self._agents.upstream(model)
        parts = (vendor_system if agent.provider.model.startswith("anthropic:") else "", asked.system)
        system = "\n\n".join(part for part in parts if part)
        return replace(agent, limits=replace(agent.limits, system=system, tools=tuple(asked.tools)))

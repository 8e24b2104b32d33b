"""What one principal may do as a client that runs its own loop: make a call, and count what it would send."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ..core import guard, principals
from ..core.parameters import NONE, UNTOLD, Parameters, fitting, given
from ..core.principals import Principal
from ..turns.agent import Agent
from ..turns.asked import Asked
from ..turns.relay import Upstream
from ..turns.relay_call import RelayCall
from .parts import Parts


class Relaying:
    def __init__(self, parts: Parts, principal: Principal) -> None:
        self.principal = principal
        self._relays = parts.relays
        self._agents = parts.agents
        self._runner = parts.runner

    async def start(
        self,
        asked: Asked,
        model: str | None = None,
        *,
        parameters: Parameters = NONE,
        max_output: int | None = None,
        vendor_system: str = "",
    ) -> tuple[RelayCall, tuple[str, ...]]:
        """One call with the request's own tools, or a turn of one of our agents (`asked.kind`).

        Returns when the words are durable: the call, which the caller must detach from, and the names of parameters
        that the model cannot follow and that are left out. `model`: PROVIDER:NAME; None: that of the settings.
        `vendor_system`: text before the system text that only Anthropic's API is sent.
        """
        asked = replace(asked, principal=self.principal)
        if asked.kind == "agent":
            principals.check_agent(self.principal, asked.agent)
            self._agents.check(asked.agent)
            upstream = Upstream(agent=await self._agents.get(asked.agent), is_turn=True)
            return await self._relays.start(asked, upstream), tuple(sorted(given(parameters) - UNTOLD))
        agent = await self._headed(asked, model, vendor_system)
        kept, left_out = fitting(parameters, agent.provider.takes)
        upstream = Upstream(agent=agent, parameters=kept, max_output=max_output)
        return await self._relays.start(asked, upstream), left_out

    async def head(self, session_id: str, turn: int) -> tuple[str, Sequence[dict[str, Any]]] | None:
        """System text and tools of an earlier call of this principal."""
        return await self._relays.places.head(session_id, turn, self.principal)

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

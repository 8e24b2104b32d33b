"""The model of a session: which one answers, which ones may be chosen, and the choice, which is an entry.

What may be chosen is in the settings. They are asked again at every turn, because a log may come from elsewhere: what
it names is used only if it is offered then.
"""

from ..core import principals
from ..core.entries import ModelChoice
from ..core.session import Session
from ..errors import UsageError
from ..sessions.checking import checked_methods
from .finding import AccessBase
from .parts import AgentModel, Where


@checked_methods
class ModelVerbs(AccessBase):
    async def model(self, agent: str) -> AgentModel:
        """The model that answers for this agent."""
        principals.check_agent(self.sessions.principal, agent)
        found = await self._agents.get(agent)
        return AgentModel(found.provider.model, found.limits.window)

    async def model_of(self, where: Where) -> AgentModel:
        """The model that answers the next message there: the chosen one, or the agent's own."""
        found = await self._agents.of(await self._finder.now(where))
        return AgentModel(found.provider.model, found.limits.window)

    def models(self, agent: str) -> tuple[str, ...]:
        """The models that may be chosen for the sessions of this agent; the first is its own."""
        principals.check_agent(self.sessions.principal, agent)
        return self._agents.offered(agent)

    async def choose_model(self, where: Where, model: str) -> Session:
        """From the next turn on, this model answers there: one of `models`. Empty: the agent's own."""
        row = await self._finder.now(where, write=True)
        chosen = self.check_model(row.agent, model)
        if chosen == row.model:
            return row
        return (await self._store.append(row.id, [ModelChoice(model=chosen)], incarnation=row.incarnation)).row

    def check_model(self, agent: str, model: str) -> str:
        """What is stored if this model is chosen: its name, or nothing for the agent's own. UsageError if the agent
        does not offer it.
        """
        own, *others = self.models(agent)
        if model not in ("", own, *others):
            raise UsageError(
                f"the agent {agent} does not offer the model {model[:200]!r}",
                hint=f"Choose one of {', '.join((own, *others))}; others are added by model.choices in config.toml.",
            )
        return "" if model == own else model

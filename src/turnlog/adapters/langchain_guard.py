"""A middleware for LangChain's `create_agent` that makes each model call fit. The graph's state is not changed.

    create_agent(model, tools, middleware=[TurnlogGuard("sqlite:app.db")], checkpointer=TurnlogSaver("sqlite:app.db"))

A summary is made once and used again while the conversation still begins with what it covers.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from msgspec.structs import replace

from ..core.entries import Compaction, Entry
from ..core.guard import Compact, Limits
from ..core.strict_json import fields_in
from ..library import Turnlog
from ..turns.own_call import Summarise
from . import compacting, fitting
from .call_guard import RememberedSummaries
from .fitting import FitDraft, GuardedSteps
from .framework import framework
from .langchain_messages import LangChainDialect
from .resident import holder
from .session_log import AGENT

with framework("langgraph"):
    try:
        from langchain.agents.middleware import AgentMiddleware
    except ImportError as error:
        raise ImportError(f"{error}. TurnlogGuard also needs: pip install langchain", name=error.name) from error

R = TypeVar("R")


class TurnlogGuard(AgentMiddleware):  # type: ignore[type-arg]
    """Sends, shortens, summarises and tries again when the model refuses for size.

    `url` or `store`: whose settings and model are used. `summarise`: who writes summaries instead of that model.
    `window`: the size of the agent's window in tokens.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        summarise: Summarise | None = None,
        window: int | None = None,
        store: Turnlog | None = None,
    ) -> None:
        super().__init__()
        self._holder = holder(url, store)
        self._summarise = summarise
        self._window = window
        self._dialect = LangChainDialect()
        self._summaries = RememberedSummaries(lambda message: message.id or "")

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        async def attempt(messages: list[Any]) -> Any:
            return handler(request.override(messages=messages))

        policy = compacting.Policy(summarise=self._summarise, window=self._window)
        limits = self._holder.wait(lambda t: compacting.limits(t, AGENT, policy))

        async def compact(draft: FitDraft[Any], step: Compact) -> list[Entry]:
            return self._remembered(draft, self._holder.wait(lambda t: _folded(t, policy, step, limits)))

        return _without_waiting(self._guarded(request, limits, attempt, compact))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        async def attempt(messages: list[Any]) -> Any:
            return await handler(request.override(messages=messages))

        summarise = self._holder.back(self._summarise) if self._summarise else None
        policy = compacting.Policy(summarise=summarise, window=self._window)
        limits = await self._holder.call(lambda t: compacting.limits(t, AGENT, policy))

        async def compact(draft: FitDraft[Any], step: Compact) -> list[Entry]:
            return self._remembered(draft, await self._holder.call(lambda t: _folded(t, policy, step, limits)))

        return await self._guarded(request, limits, attempt, compact)

    async def _guarded(
        self,
        request: Any,
        limits: Limits,
        attempt: Callable[[list[Any]], Awaitable[R]],
        compact: Callable[[FitDraft[Any], Compact], Awaitable[list[Entry]]],
    ) -> R:
        messages = list(request.messages)
        system = getattr(getattr(request, "system_message", None), "content", None) or request.system_prompt or ""
        bounds = replace(limits, system=str(system), tools=tuple(_described(tool) for tool in request.tools or ()))
        bounds = fitting.bounds_of(messages, self._dialect, bounds)
        draft = fitting.drafted(messages, self._dialect)
        if (known := self._summaries.newest(messages)) is not None:
            draft = draft.with_known(known.body, known.made_at)
        return await fitting.guarded(draft, self._dialect, bounds, GuardedSteps(attempt=attempt, compact=compact))

    def _remembered(self, draft: FitDraft[Any], bodies: list[Entry]) -> list[Entry]:
        if isinstance(bodies[0], Compaction):
            self._summaries.add(draft.items, draft.among_items(bodies[0]))
        return bodies


async def _folded(t: Turnlog, policy: compacting.Policy, step: Compact, limits: Limits) -> list[Entry]:
    return [await compacting.folded(t, AGENT, policy, "", step, limits), *step.along]


def _described(tool: Any) -> dict[str, Any]:
    if isinstance(tool, dict):
        return fields_in(tool)
    schema: Any = getattr(tool, "tool_call_schema", None)
    described: dict[str, Any] = schema.model_json_schema() if hasattr(schema, "model_json_schema") else {}
    return {"name": str(tool.name), "description": str(tool.description), "input_schema": described}


def _without_waiting(work: Coroutine[Any, Any, R]) -> R:
    """Runs a coroutine that never waits for anything."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    work.close()
    raise AssertionError("synchronous work waited")

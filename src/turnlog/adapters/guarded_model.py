"""A model of openai-agents whose calls are made to fit, with the session's own policy and summaries.

A summary that the guard asks for is also stored in the session, if the input of the call is the session's items and
then new ones: so the next call begins with it, and it can be undone.
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from ..core.entries import Compaction, Entry
from ..core.guard import Compact, Limits
from ..core.history import survey
from ..core.session import active
from ..errors import TurnlogError
from ..library import Turnlog
from . import compacting, fitting
from .call_guard import KnownSummary, RememberedSummaries
from .checkpoints import digest
from .dialects import ResponsesDialect
from .fitting import FitDraft, GuardedSteps
from .framework import framework
from .openai_items import all_items, pins_of
from .responses import Item
from .session_log import AGENT, SessionLog

with framework("openai-agents"):
    from agents.models.interface import Model

if TYPE_CHECKING:
    from agents.items import ModelResponse, TResponseInputItem, TResponseStreamEvent

    from .openai_agents import TurnlogSession


class GuardedModel(Model):
    """Sends, shortens, compacts and tries again; everything else is the inner model's."""

    def __init__(self, model: Model, session: "TurnlogSession") -> None:
        self._model = model
        self._session = session
        self._dialect = ResponsesDialect()
        self._summaries = RememberedSummaries(lambda item: digest(_text(item).encode("utf-8", "surrogatepass")))

    async def get_response(
        self,
        system_instructions: str | None,
        input: "str | list[TResponseInputItem]",  # noqa: A002 - the framework's name
        *args: Any,
        **kwargs: Any,
    ) -> "ModelResponse":
        async def attempt(items: list[Any]) -> "ModelResponse":
            return await self._model.get_response(system_instructions, items, *args, **kwargs)

        if _is_kept_by_provider(kwargs):
            return await self._model.get_response(system_instructions, input, *args, **kwargs)
        return await self._guarded(system_instructions, input, _tools(args, kwargs), attempt)

    async def stream_response(
        self,
        system_instructions: str | None,
        input: "str | list[TResponseInputItem]",  # noqa: A002 - the framework's name
        *args: Any,
        **kwargs: Any,
    ) -> "AsyncIterator[TResponseStreamEvent]":
        async def attempt(items: list[Any]) -> "list[Any]":
            """A prompt that is too large is refused before the first event."""
            events = self._model.stream_response(system_instructions, items, *args, **kwargs)
            return [events, await anext(events, None)]

        if _is_kept_by_provider(kwargs):
            events, first = self._model.stream_response(system_instructions, input, *args, **kwargs), None
        else:
            tools = _tools(args, kwargs)
            events, first = await self._guarded(system_instructions, input, tools, attempt)
        async with aclosing(cast("Any", events)):
            if first is not None:
                yield first
            async for event in events:
                yield event

    async def _guarded(self, system: str | None, given: Any, tools: Sequence[Any], attempt: Any) -> Any:
        items = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
        self._session.check_open()
        limits = await self._limits(system, tools)
        limits = fitting.bounds_of(items, self._dialect, limits)
        draft = fitting.drafted(items, self._dialect)
        known = self._summaries.newest(draft.items)
        if known is not None and await self._counts(known):
            draft = draft.with_known(known.body, known.made_at)

        async def compact(now: FitDraft[Any], step: Compact) -> list[Entry]:
            return await self._compact(now, step, limits, known.stored if known and now.known_seq else 0)

        async with self._session.guarding():
            return await fitting.guarded(draft, self._dialect, limits, GuardedSteps(attempt=attempt, compact=compact))

    async def _limits(self, system: str | None, tools: Sequence[Any]) -> Limits:
        policy = self._session.policy()
        found = await self._session.holder.call(lambda t: compacting.limits(t, AGENT, policy))
        return replace(found, system=system or "", tools=tuple(_described(tool) for tool in tools))

    async def _counts(self, known: KnownSummary) -> bool:
        """Whether nobody has undone it."""
        if not known.stored:
            return True
        row = await self._session.holder.call(self._session.log_of(None).find)
        return row is not None and any(mark.seq == known.stored for mark in active(row.marks, row.last_seq))

    async def _compact(self, draft: FitDraft[Any], step: Compact, limits: Limits, before: int) -> list[Entry]:
        """`before`: the entry of the session that holds the summary which this call began with."""
        policy = self._session.policy()
        where = self._session.log_of(None)
        items = draft.items

        async def work(t: Turnlog) -> list[Entry]:
            row = await where.find(t)
            body = await compacting.folded(t, AGENT, policy, row.id if row else "", step, limits)
            own = draft.among_items(body)
            self._summaries.add(items, own, await _store(t, where, own, items) or before)
            return [body, *step.along]

        return await self._session.holder.call(work)

    async def close(self) -> None:
        await self._model.close()

    def get_retry_advice(self, request: Any) -> Any:
        return self._model.get_retry_advice(request)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def _is_kept_by_provider(kwargs: dict[str, Any]) -> bool:
    """Whether the provider keeps the conversation: then the input is only what is new."""
    return bool(kwargs.get("previous_response_id") or kwargs.get("conversation_id"))


def _tools(args: Sequence[Any], kwargs: dict[str, Any]) -> Sequence[Any]:
    """The argument `tools`, which follows the model's settings."""
    return kwargs.get("tools") or (args[1] if len(args) > 1 else None) or ()


def _described(tool: Any) -> dict[str, Any]:
    return {
        "name": str(getattr(tool, "name", "")),
        "description": str(getattr(tool, "description", "")),
        "input_schema": getattr(tool, "params_json_schema", None) or {},
    }


async def _store(t: Turnlog, where: SessionLog, body: Compaction, items: Sequence[Item]) -> int:
    """Stores the compaction in the session, if the call's items are the session's and then new ones.

    Returns its entry, or 0.
    """
    row = await where.find(t)
    if row is None:
        return 0
    known = await all_items(t, row)
    kept = body.first_kept - 1  # the draft's entries are numbered from 1
    if kept >= len(known) or [_text(item) for _, item in known] != [_text(item) for item in items[: len(known)]]:
        return 0
    first = known[kept][0].seq
    start = survey((await t.sessions.load(row)).entries).start
    if isinstance(known[kept][0], Compaction) or first <= row.boundary:
        return 0
    try:
        pins = pins_of(row, (entry for entry, _ in known), first)
        stored = await where.append(t, [replace(body, first_kept=first, covers=(start, first - 1)), *pins], row=row)
    except TurnlogError:
        return 0  # somebody else has written: the session compacts itself after the turn
    return stored[0].seq


def _text(item: Any) -> str:
    return json.dumps(item, sort_keys=True, default=str)

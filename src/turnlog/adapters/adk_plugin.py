"""A plugin of Google's ADK that makes each model call fit.

    Runner(app=App(name="weather", root_agent=agent, plugins=[TurnlogPlugin(window=1_000_000)]), …)

Before a call, results are shortened and older contents folded under a summary, if they would not fit. If the model
refuses the call for its size nevertheless, it is made again with less. The summary is stored in the session if the
contents are the session's own events, and shown there as a compaction event from then on. It can be undone.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from ..core.entries import Compaction
from ..core.history import survey
from ..core.session import active
from ..library import Turnlog
from ..turns.own_call import Summarise
from . import fitting
from .adk_events import EventJson
from .adk_state import AdkPlace
from .call_guard import CallGuard, CallSession, KnownSummary
from .framework import framework
from .gemini_contents import GeminiDialect, GeminiItem
from .google_adk import TurnlogSessionService, live_events, summary_text
from .resident import Holder, holder

with framework("adk"):
    from google.adk.plugins.base_plugin import BasePlugin

if TYPE_CHECKING:
    from google.adk.models.llm_request import LlmRequest
    from google.adk.models.llm_response import LlmResponse


class TurnlogPlugin(BasePlugin):
    """Sends, shortens, summarises, and tries again when the model refuses for size.

    `url` or `store`: whose settings and model are used; without one, those of the run's TurnlogSessionService, or the
    settings. `summarise`: who writes summaries instead of that model. `window`: the size of the agent's window.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        summarise: Summarise | None = None,
        window: int | None = None,
        store: Turnlog | None = None,
        name: str = "turnlog",
    ) -> None:
        super().__init__(name=name)
        self._given = holder(url, store) if url is not None or store is not None else None
        self._summarise = summarise
        self._window = window
        self._guards: dict[int, CallGuard] = {}

    async def before_model_callback(self, *, callback_context: Any, llm_request: "LlmRequest") -> None:
        """Replaces the contents of the request by some that fit."""
        llm_request.contents = await self._run(callback_context, llm_request, _as_they_are)

    async def on_model_error_callback(
        self, *, callback_context: Any, llm_request: "LlmRequest", error: Exception
    ) -> "LlmResponse | None":
        """Makes the call again with less, if it was refused for its size; any other error stays."""
        if fitting.refusal_of(error) is None:
            return None
        model = callback_context._invocation_context.agent.canonical_model
        is_first = True

        async def attempt(contents: list[Any]) -> "LlmResponse | None":
            nonlocal is_first
            if is_first:  # the refusal that is already known
                is_first = False
                raise error
            asked = llm_request.model_copy(update={"contents": contents})
            answers = [answer async for answer in model.generate_content_async(asked, stream=False)]
            return answers[-1] if answers else None

        return await self._run(callback_context, llm_request, attempt)

    async def _run(self, context: Any, request: "LlmRequest", attempt: Any) -> Any:
        invocation = context._invocation_context
        service = invocation.session_service
        ours = service if isinstance(service, TurnlogSessionService) else None
        guard = self._guard(self._given or (ours.holder if ours else None))
        session = _call_session(ours, invocation.session) if ours else None
        system, tools = _instruction(request), _tools(request)
        return await guard.run(list(request.contents), system, tools, attempt, session)

    def _guard(self, given: Holder | None) -> CallGuard:
        key = id(given)
        if key not in self._guards:
            self._guards[key] = CallGuard(
                given or holder(None, None), GeminiDialect(), _text, summarise=self._summarise, window=self._window
            )
        return self._guards[key]


async def _as_they_are(contents: list[Any]) -> list[Any]:
    return contents


def _call_session(service: TurnlogSessionService, session: Any) -> CallSession:
    place = AdkPlace(session.app_name, session.user_id, session.id)

    async def known(t: Turnlog, items: Sequence[Any]) -> KnownSummary | None:
        """Within one run, ADK's own copy of the session does not show a compaction that this run has made."""
        row = await service.sessions.log_of(place.key).find(t)
        marks = active(row.marks, row.last_seq) if row else []
        if row is None or not marks:
            return None
        [made] = await t.store.read(row.id, after=marks[-1].seq - 1, limit=1, incarnation=row.incarnation)
        events = await live_events(t, row)
        before = sum(entry.seq < row.boundary for entry, _ in events)
        if not isinstance(made, Compaction) or not _begins_with(items, [event for _, event in events[:before]]):
            return None
        first = next((place for place, item in enumerate(items, 1) if item.origin == before), None)
        if not first:
            return None
        then = sum(entry.seq < made.seq for entry, _ in events)
        made_at = sum(item.origin < then for item in items)
        return KnownSummary(replace(made, first_kept=first, covers=(1, first - 1)), made_at)

    async def keep(t: Turnlog, items: Sequence[Any], body: Compaction) -> bool:
        log = service.sessions.log_of(place.key)
        row = await log.find(t)
        first = cast("GeminiItem", items[body.first_kept - 1])
        if row is None or (body.first_kept > 1 and items[body.first_kept - 2].origin == first.origin):
            return False
        events = await live_events(t, row)
        skipped = _summarised(items, events, row.boundary) if row.boundary > 1 else 0
        shown = events[skipped:]
        covered = first.origin - (1 if skipped else 0)
        if not 0 < covered < len(shown) or not _begins_with(items[1:] if skipped else items, _events(shown[:covered])):
            return False
        kept = shown[covered][0].seq
        start = survey((await t.sessions.load(row)).entries).start
        if kept <= row.boundary:
            return False
        await log.append(t, [replace(body, first_kept=kept, covers=(start, kept - 1))], row=row)
        return True

    return CallSession(known=known, keep=keep)


def _summarised(items: Sequence[Any], events: Sequence[tuple[Any, EventJson]], boundary: int) -> int:
    """How many events the first item stands for, if it is a summary."""
    is_summary = bool(items) and SUMMARY_START in _text(items[0])
    return sum(entry.seq < boundary for entry, _ in events) if is_summary else 0


SUMMARY_START = json.dumps(summary_text(Compaction(summary="", first_kept=1, covers=(1, 1))))[1:20]


def _events(pairs: Sequence[tuple[Any, EventJson]]) -> list[EventJson]:
    return [event for _, event in pairs]


def _begins_with(items: Sequence[Any], events: Sequence[EventJson]) -> bool:
    """Whether the contents are those of these events. Ids of calls do not count: ADK removes them."""
    contents: dict[int, list[Any]] = {}
    for item in items:
        contents.setdefault(item.origin, []).extend(_parts(item.content.model_dump(mode="json", exclude_none=True)))
    found = list(contents.values())[: len(events)]
    return found == [_parts(event["content"]) for event in events]


def _parts(content: dict[str, Any]) -> list[Any]:
    found: list[Any] = []
    for part in content.get("parts") or ():
        without = dict(part)
        for name in ("function_call", "function_response"):
            if name in part:
                without[name] = {key: value for key, value in part[name].items() if key != "id"}
        found.append(without)
    return sorted(found, key=lambda part: "function_response" not in part)


def _text(item: Any) -> str:
    return json.dumps(item.content.model_dump(mode="json", exclude_none=True), sort_keys=True)


def _instruction(request: "LlmRequest") -> str:
    config: Any = request.config
    return str(config.system_instruction or "")


def _tools(request: "LlmRequest") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for tool in cast("list[Any]", request.config.tools or []):
        for declared in cast("list[Any]", getattr(tool, "function_declarations", None) or []):
            described: dict[str, Any] = declared.model_dump(mode="json", exclude_none=True)
            schema: Any = described.get("parameters") or described.get("parameters_json_schema") or {}
            found.append(
                {
                    "name": described.get("name", ""),
                    "description": described.get("description", ""),
                    "input_schema": schema,
                }
            )
    return found

"""What OpenTelemetry is told about a turn, a model call, a tool and a compaction (`runtime.tracing`).

    invoke_agent AGENT            a turn, from the stored words to its last event
      chat MODEL                  one model call with its retries; the guard may need several
      execute_tool NAME
      compact                     a compaction, with the calls of the summariser inside

Counts, sizes and names are told. What was said is not, unless the settings ask for it (`telemetry.contents`), and then
known secrets are masked. Nothing here changes what a turn does.
"""

import json
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from ..core.entries import Assistant, Block, Compaction, ToolResult
from ..core.events import Done, ErrorEvent, Event, Stopped, Tell, TextDelta, ThinkingDelta
from ..core.guard import Compact
from ..core.history import History
from ..core.masking import mask_all
from ..core.plain import as_text, shorten
from ..core.tokens import input_tokens
from ..runtime import tracing
from ..runtime.tracing import SpanKindName, TracedSpan, TraceParent
from . import genai_names as names
from .journal import Journal

CONTENT_MAX_CHARS = 50_000
"""Of one attribute. Backends cut or refuse longer ones."""


class Telemetry:
    def __init__(self, *, contents: bool = False, silent: bool = False) -> None:
        """`silent`: tells nothing at all, for calls that leave no trace."""
        self._contents = contents
        self._silent = silent

    def _measure(
        self, name: str, unit: str, value: float, attributes: dict[str, Any], buckets: tuple[float, ...]
    ) -> None:
        if not self._silent:
            tracing.measure(name, unit, value, attributes, buckets)

    @contextmanager
    def _timed(
        self,
        name: str,
        attributes: dict[str, Any],
        duration: str,
        shared: dict[str, Any],
        *,
        kind: SpanKindName = "internal",
        parent: TraceParent = tracing.INHERITED,
    ) -> Generator[TracedSpan]:
        """A span, and under the name `duration` how long it lasted, with the attributes that the two share."""
        start = time.perf_counter()
        silence = nullcontext(TracedSpan())
        with silence if self._silent else tracing.span(name, attributes, kind=kind, parent=parent) as span:
            try:
                yield span
            finally:
                told = {**shared, names.ERROR_TYPE: span.error_type or None}
                self._measure(duration, "s", time.perf_counter() - start, told, names.SECOND_BUCKETS)

    def turn(
        self, session_id: str, agent: str, seq: int, parent: TraceParent, tell: Tell
    ) -> AbstractContextManager[Tell]:
        """Gives the `tell` of the turn: how a turn ended is known from its last event."""
        if not tracing.is_heard():
            return nullcontext(tell)
        return self._turn(session_id, agent, seq, parent, tell)

    @contextmanager
    def _turn(self, session_id: str, agent: str, seq: int, parent: TraceParent, tell: Tell) -> Generator[Tell]:
        attributes = {
            names.OPERATION: names.INVOKE_AGENT,
            names.CONVERSATION: session_id,
            names.AGENT: agent,
            names.TURN_SEQ: seq,
        }
        shared = {names.OPERATION: names.INVOKE_AGENT, names.AGENT: agent}
        name = f"{names.INVOKE_AGENT} {agent}"
        with self._timed(name, attributes, names.TURN_DURATION, shared, parent=parent) as span:

            def told(event: Event) -> None:
                self._note_end(span, event)
                tell(event)

            yield told if span.is_recorded else tell

    def _note_end(self, span: TracedSpan, event: Event) -> None:
        match event:
            case Done():
                span.put({names.TURN_OUTCOME: "done"})
            case Stopped():
                span.put({names.TURN_OUTCOME: "stopped"})
            case ErrorEvent():
                span.put({names.TURN_OUTCOME: "error"})
                span.fail(event.code, event.error if self._contents else None)
            case _:
                pass

    async def call(
        self,
        journal: Journal,
        model: str,
        history: History,
        make: Callable[[Tell], Awaitable[Assistant]],
        tell: Tell,
    ) -> Assistant:
        """One model call of a turn, with its retries."""
        if not tracing.is_heard():
            return await make(tell)
        with self._calling(journal.session_id, model, "turn") as (span, start, shared):
            span.put({names.REQUEST_STREAM: True, names.COMPACTED: bool(journal.row.compactions) or None})
            self._put_input(span, history.system, history.messages)
            is_noted = False

            def told(event: Event) -> None:
                nonlocal is_noted
                if not is_noted and isinstance(event, TextDelta | ThinkingDelta):
                    is_noted = True
                    self._note_first_chunk(span, start, shared)
                tell(event)

            reply = await make(told)
            self._note_reply(span, shared, reply)
        return reply

    def _note_first_chunk(self, span: TracedSpan, start: float, shared: dict[str, Any]) -> None:
        seconds = time.perf_counter() - start
        span.put({names.FIRST_CHUNK: seconds})
        self._measure(names.CALL_FIRST_CHUNK, "s", seconds, shared, names.SECOND_BUCKETS)

    async def summary(
        self, session_id: str, model: str | None, system: str, messages: list[Any], make: Callable[[], Awaitable[str]]
    ) -> str:
        """One call of the summariser."""
        with self._calling(session_id, model or "", "summary") as (span, _, _):
            self._put_input(span, system, messages)
            text = await make()
            self._put(span, names.OUTPUT_MESSAGES, [_message("assistant", text)])
        return text

    @contextmanager
    def _calling(
        self, session_id: str, model: str, purpose: str
    ) -> Generator[tuple[TracedSpan, float, dict[str, Any]]]:
        provider, _, name = model.partition(":")
        shared = {
            names.OPERATION: names.CHAT,
            names.PROVIDER: provider or None,
            names.REQUEST_MODEL: name or provider or None,
        }
        attributes = {**shared, names.CONVERSATION: session_id, names.CALL_PURPOSE: purpose}
        called = f"{names.CHAT} {name or provider}".rstrip()
        start = time.perf_counter()
        with self._timed(called, attributes, names.CALL_DURATION, shared, kind="client") as span:
            yield span, start, shared

    def _note_reply(self, span: TracedSpan, shared: dict[str, Any], reply: Assistant) -> None:
        usage: dict[str, Any] = dict(reply.usage or {})
        taken, given = input_tokens(reply.usage), usage.get("output_tokens")
        span.put(
            {
                names.RESPONSE_MODEL: (reply.model or "").partition(":")[2] or reply.model,
                names.FINISH_REASONS: [reply.stop] if reply.stop else None,
                names.INPUT_TOKENS: taken or None,
                names.OUTPUT_TOKENS: given,
                names.CACHE_READ_TOKENS: usage.get("cache_read_input_tokens"),
                names.CACHE_CREATION_TOKENS: usage.get("cache_creation_input_tokens"),
            }
        )
        for kind, count in (("input", taken), ("output", given)):
            if count:
                told = {**shared, names.TOKEN_TYPE: kind}
                self._measure(names.TOKEN_USAGE, "{token}", count, told, names.TOKEN_BUCKETS)
        self._put(span, names.OUTPUT_MESSAGES, [_message("assistant", reply.content)])

    async def tool(self, session_id: str, call: Block, run: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        """One call of a tool. A result that is an error is the span's status."""
        name = str(call.get("name", ""))
        shared = {names.OPERATION: names.EXECUTE_TOOL, names.TOOL_NAME: name, names.TOOL_TYPE: "function"}
        attributes = {**shared, names.CONVERSATION: session_id, names.TOOL_CALL_ID: str(call.get("id", ""))}
        with self._timed(f"{names.EXECUTE_TOOL} {name}", attributes, names.TOOL_DURATION, shared) as span:
            self._put(span, names.TOOL_ARGUMENTS, call.get("input"))
            result = await run()
            if result.is_error:
                span.fail("tool_error")
            self._put(span, names.TOOL_RESULT, as_text(result.content) if span.is_recorded else "")
        return result

    @contextmanager
    def compaction(self, session_id: str, step: Compact) -> Generator[Callable[[Compaction], None]]:
        """Gives a function to call with the compaction that was made."""
        attributes = {
            names.OPERATION: names.COMPACT,
            names.CONVERSATION: session_id,
            names.COMPACTION_TRIGGER: step.trigger,
            names.TOKENS_BEFORE: step.tokens_before,
        }
        shared = {names.COMPACTION_TRIGGER: step.trigger}
        with self._timed(names.COMPACT, attributes, names.COMPACTION_DURATION, shared) as span:
            yield lambda body: span.put({names.TOKENS_AFTER: body.tokens_after})

    def _put_input(self, span: TracedSpan, system: str, messages: list[Any]) -> None:
        if self._contents and span.is_recorded:
            told = [_message(str(one.get("role")), one.get("content")) for one in messages]
            while len(told) > 1 and len(_json(told)) > CONTENT_MAX_CHARS:
                told = told[(len(told) + 1) // 2 :]  # the newest ones
            self._put(span, names.INPUT_MESSAGES, told)
            self._put(span, names.SYSTEM_INSTRUCTIONS, [{"type": "text", "content": system}] if system else None)

    def _put(self, span: TracedSpan, name: str, value: Any) -> None:
        if self._contents and span.is_recorded and value is not None:
            text = value if isinstance(value, str) else _json(value)
            span.put({name: shorten(mask_all(text), CONTENT_MAX_CHARS)})


SILENT = Telemetry(silent=True)


def _message(role: str, content: Any) -> dict[str, Any]:
    """A message in the form of the conventions: a role and its parts."""
    blocks: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
    return {"role": role, "parts": [_part(block) for block in blocks]}


def _part(block: Any) -> dict[str, Any]:
    match block:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "content": text}
        case {"type": "thinking", "thinking": str(text)}:
            return {"type": "reasoning", "content": text}
        case {"type": "tool_use"}:
            arguments = block.get("input")
            return {"type": "tool_call", "id": block.get("id"), "name": block.get("name"), "arguments": arguments}
        case {"type": "tool_result"}:
            result = as_text(block.get("content") or "")
            return {"type": "tool_call_response", "id": block.get("tool_use_id"), "response": result}
        case _:
            return {"type": str(block.get("type", "other"))}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)

"""What OpenTelemetry's SDK sees of turns, calls, tools and compactions; and that nothing is loaded without it."""

import json
import os
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.trace import SpanKind, StatusCode

import turnlog
from tests.spans import Spans
from turnlog import ProviderError
from turnlog.runtime import tracing
from turnlog.testing import ScriptedProvider
from turnlog.turns import genai_names as names

from .gates import Gated
from .talk import KEY, ask, opened, run

READER = InMemoryMetricReader({Histogram: AggregationTemporality.DELTA})
finished = Spans()
INCOMING = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module", autouse=True)
def sdk():
    """One for the whole process: the API takes a provider only once."""
    tracing._histogram.cache_clear()
    metrics.set_meter_provider(MeterProvider([READER]))


@pytest.fixture(autouse=True)
def _nothing_yet():
    finished.clear()
    READER.get_metrics_data()


def measured(name):
    data = READER.get_metrics_data()
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
    points = [p for scope in scopes for metric in scope.metrics if metric.name == name for p in metric.data.data_points]
    return {tuple(sorted(point.attributes.items())): point for point in points}


def calls(*names_, **inputs):
    return {"tool_calls": [{"id": f"call-{name}", "name": name, "input": inputs.get(name, {})} for name in names_]}


SEEN = {}


def in_a_thread() -> str:
    """Runs in a thread of its own."""
    SEEN["thread"] = (threading.current_thread().name, trace.get_current_span().get_span_context())
    return "secret result"


def broken() -> str:
    """Fails."""
    raise RuntimeError("no such luck")


USAGE = {"input_tokens": 10, "cache_read_input_tokens": 30, "output_tokens": 7}


def test_a_turn_is_one_trace_of_its_calls_and_tools_with_tokens_and_times(url):
    async def main():
        script = [{**calls("in_a_thread", "broken"), "usage": USAGE}, {"text": "done", "usage": USAGE}]
        async with opened(url, ScriptedProvider(script), tools=[in_a_thread, broken]) as t:
            assert await ask(t, "a secret question") == "done"
            return (await t.session(KEY)).row

    row = run(main())
    [turn] = finished("invoke_agent")
    first, second = finished("chat")
    good, bad = sorted(finished("execute_tool"), key=lambda span: span.name, reverse=True)
    assert (turn.name, first.name, good.name) == ("invoke_agent main", "chat scripted", "execute_tool in_a_thread")
    assert (turn.kind, first.kind, good.kind) == (SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.INTERNAL)
    assert turn.parent is None
    assert {span.parent.span_id for span in (first, second, good, bad)} == {turn.context.span_id}
    assert {span.attributes[names.CONVERSATION] for span in finished()} == {row.id}
    assert turn.attributes[names.TURN_OUTCOME] == "done"
    assert first.attributes[names.INPUT_TOKENS] == 40
    assert first.attributes[names.CACHE_READ_TOKENS] == 30
    assert first.attributes[names.OUTPUT_TOKENS] == 7
    assert second.attributes[names.FINISH_REASONS] == ("end_turn",)
    assert names.FIRST_CHUNK in second.attributes
    assert good.attributes[names.TOOL_CALL_ID] == "call-in_a_thread"
    assert good.status.status_code is StatusCode.UNSET
    assert bad.status.status_code is StatusCode.ERROR
    assert bad.attributes[names.ERROR_TYPE] == "tool_error"
    name, context = SEEN["thread"]
    assert name == "tool"
    assert (context.trace_id, context.span_id) == (turn.context.trace_id, good.context.span_id)
    tokens = measured(names.TOKEN_USAGE)
    assert {dict(key)[names.TOKEN_TYPE]: point.sum for key, point in tokens.items()} == {"input": 80, "output": 14}
    told = str([span.to_json() for span in finished()])
    assert "secret" not in told
    assert "no such luck" not in told


def test_durations_of_turns_calls_and_tools_are_measured_with_their_errors(url):
    async def main():
        async with opened(url, ScriptedProvider([calls("broken"), {"text": "ok"}]), tools=[broken]) as t:
            await ask(t, "x")

    run(main())
    data = READER.get_metrics_data()
    found = {m.name: m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics}
    for name in (names.TURN_DURATION, names.CALL_DURATION, names.TOOL_DURATION, names.CALL_FIRST_CHUNK):
        assert found[name].unit == "s"
    [failed] = [p for p in found[names.TOOL_DURATION].data.data_points if p.attributes.get(names.ERROR_TYPE)]
    assert failed.attributes[names.TOOL_NAME] == "broken"


def test_contents_are_told_only_if_the_settings_say_so_and_secrets_are_masked(url):
    async def main():
        script = [calls("in_a_thread"), {"text": "the answer"}]
        how = {"tools": [in_a_thread], "telemetry_contents": True}
        async with opened(url, ScriptedProvider(script), **how) as t:
            await ask(t, "my key is sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH")

    run(main())
    first, second = finished("chat")
    asked = json.loads(first.attributes[names.INPUT_MESSAGES])
    assert asked[-1]["role"] == "user"
    assert "my key is" in asked[-1]["parts"][0]["content"]
    assert "abcdefghijklmnop" not in str([span.to_json() for span in finished()])
    assert json.loads(second.attributes[names.OUTPUT_MESSAGES])[0]["parts"] == [
        {"type": "text", "content": "the answer"}
    ]
    [tool] = finished("execute_tool")
    assert tool.attributes[names.TOOL_RESULT] == "secret result"
    assert tool.attributes[names.TOOL_ARGUMENTS] == "{}"


def test_a_failed_turn_and_a_stopped_one_have_their_status(url):
    async def main():
        provider = Gated([{"error": {"status": 401, "message": "a secret reason"}}, {"text": "never"}], at=(1,))
        async with opened(url, provider) as t:
            with pytest.raises(ProviderError):
                await t.session(KEY).ask("x")
            ticket = await t.accept(KEY, "y")
            await provider.reached[1].wait()
            assert t.stop(ticket.session_id)
            assert [event async for event in ticket.follow()]

    run(main())
    failed, stopped = finished("invoke_agent")
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes[names.ERROR_TYPE] == "provider"
    assert failed.attributes[names.TURN_OUTCOME] == "error"
    assert "secret" not in failed.to_json()
    assert stopped.attributes[names.TURN_OUTCOME] == "stopped"
    assert stopped.status.status_code is StatusCode.UNSET


def test_a_compaction_and_the_summarisers_call_are_spans_and_later_calls_say_so(url):
    async def main():
        summary = {"text": "Goal: plums. Decided: " + "word " * 20}
        provider = ScriptedProvider([{"text": "an answer " * 50}] * 9, summaries=[summary] * 4)
        async with opened(url, provider) as t:
            for n in range(6):
                await ask(t, f"question {n} " * 50)
            finished.clear()
            with trace.get_tracer("tests").start_as_current_span("mine") as mine:
                await t.session(KEY).compact()
            await ask(t, "and now?")
            return mine.get_span_context()

    mine = run(main())
    [compaction] = finished("compact")
    assert compaction.parent.span_id == mine.span_id
    assert compaction.attributes[names.COMPACTION_TRIGGER] == "manual"
    assert compaction.attributes[names.TOKENS_AFTER] < compaction.attributes[names.TOKENS_BEFORE]
    by_purpose = {}
    for span in finished("chat"):
        by_purpose.setdefault(span.attributes[names.CALL_PURPOSE], []).append(span)
    assert {span.parent.span_id for span in by_purpose["summary"]} == {compaction.context.span_id}
    [later] = by_purpose["turn"]
    assert later.attributes[names.COMPACTED] is True
    assert measured(names.COMPACTION_DURATION)


def test_each_message_of_a_queue_keeps_its_own_trace_whoever_started_the_worker(url):
    async def main():
        provider = Gated([{"text": "first"}, {"text": "second"}, {"text": "third"}])
        tracer = trace.get_tracer("tests")
        contexts = []
        async with opened(url, provider, queue_mode="followup") as t:
            tickets = []
            for n in range(2):
                with tracer.start_as_current_span(f"request {n}") as span:
                    contexts.append(span.get_span_context())
                    tickets.append(await t.accept(KEY, f"message {n}"))
            tickets.append(await t.accept(KEY, "message without a trace"))
            provider.go[0].set()
            for ticket in tickets:
                assert [event async for event in ticket.follow()]
        return contexts

    contexts = run(main())
    turns = finished("invoke_agent")
    assert [span.parent and span.parent.span_id for span in turns] == [*(one.span_id for one in contexts), None]
    assert len({span.context.trace_id for span in turns}) == 3


def test_a_turn_of_the_synchronous_library_is_a_part_of_the_callers_trace():
    with turnlog.connect("memory:", provider=ScriptedProvider([{"text": "hi"}])) as t:
        with trace.get_tracer("tests").start_as_current_span("caller") as span:
            assert t.session("ann").ask("x") == "hi"
        [turn] = finished("invoke_agent")
    assert turn.parent.span_id == span.get_span_context().span_id


def test_headers_are_continued_unless_a_span_is_current():
    with tracing.continuing({"traceparent": INCOMING}):
        assert f"{trace.get_current_span().get_span_context().trace_id:032x}" == INCOMING.split("-")[1]
    assert not trace.get_current_span().get_span_context().is_valid
    tracer, headers = trace.get_tracer("tests"), {"traceparent": INCOMING}
    with tracer.start_as_current_span("server") as span, tracing.continuing(headers):
        assert trace.get_current_span() is span
    for hostile in ("", "00-zz", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x" * 100_000):
        with tracing.continuing({"traceparent": hostile}):
            assert not trace.get_current_span().get_span_context().is_valid


PLAIN = """
import asyncio, sys, turnlog
assert not any(name.startswith("opentelemetry") for name in sys.modules)
async def main():
    async with turnlog.open("memory:", model_name="offline") as t:
        assert await t.session("ann").ask("hi")
        await t.session("ann").append({"role": "user", "content": "x"})
asyncio.run(main())
print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""


def test_without_an_sdk_a_turn_loads_nothing_of_opentelemetry(tmp_path):
    done = subprocess.run([sys.executable, "-c", PLAIN], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.strip() == "[]"


def test_the_program_of_the_page_prints_what_the_page_says(tmp_path):
    """In a process of its own: the API takes a provider only once."""
    page = (Path(__file__).parents[2] / "docs" / "operating" / "tracing.md").read_text(encoding="utf-8")
    blocks = [block.split("```")[0] for block in page.split("```text\n")[1:]]
    [(program, printed)] = [(one, two) for one, two in pairwise(blocks) if "import turnlog" in one]
    env = {name: value for name, value in os.environ.items() if not name.startswith("TURNLOG_")}
    env["TURNLOG_HOME"] = str(tmp_path)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, check=True)
    assert done.stdout == printed

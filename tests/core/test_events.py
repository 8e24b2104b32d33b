"""What entries and errors look like as events."""

from typing import get_args

import pytest

from turnlog.core import events
from turnlog.core.entries import Assistant, Received, ToolResult, User
from turnlog.core.events import Done, Snapshot, TextDelta
from turnlog.core.user_content import with_words
from turnlog.errors import (
    Busy,
    Conflict,
    ContextOverflow,
    NotFound,
    ProviderBusy,
    ProviderError,
    StoreUnavailable,
    ToolLimit,
    TurnlogError,
    TurnStopped,
    UsageError,
)
from turnlog.testing import said


def test_a_call_and_its_result_are_told_with_the_same_id():
    call = events.of_call({"type": "tool_use", "id": "c1", "name": "look", "input": None})
    assert (call.tool_call.id, call.tool_call.name, call.tool_call.input) == ("c1", "look", {})
    done = events.of_result(ToolResult(tool_use_id="c1", content=[{"type": "text", "text": "seen"}], is_error=True))
    assert (done.tool_call_id, done.text, done.is_error) == ("c1", "seen", True)


def test_usage_is_told_as_far_as_it_is_numbers():
    usage = {"input_tokens": 5, "output_tokens": None, "cache_read_input_tokens": "many", "speed": 3}
    assert events.of_usage(Assistant(content="x", usage=usage)) == events.UsageReport(input_tokens=5)
    assert events.of_usage(Assistant(content="x")) == events.UsageReport()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ContextOverflow(), "overflow"),
        (ProviderBusy(), "provider"),
        (ToolLimit(), "tool_limit"),
        (StoreUnavailable(), "store"),
        (NotFound(), "deleted"),
        (Conflict(), "conflict"),
        (UsageError(), "usage"),
        (Busy(), "refused"),
    ],
)
def test_each_of_our_errors_has_a_code_and_a_hint(error, code):
    told = events.of_error(error)
    assert (told.code, told.error, told.hint) == (code, str(error), error.hint)


def test_a_defect_is_told_as_one():
    told = events.of_error(KeyError("x"))
    assert (told.code, told.error) == ("internal", "KeyError: 'x'")
    assert told.hint


def test_user_entries_get_the_words_that_they_left_to_received_ones():
    entries = [Received(seq=2, content="a"), User(seq=3, from_=(2,)), said("b"), User(seq=5, from_=(9,))]
    assert [entry.content for entry in with_words(entries)] == ["a", "a", "b", ""]


def test_what_a_turn_said_is_its_texts_message_by_message():
    call = events.ToolCall(tool_call={"id": "a", "name": "look", "input": {}})
    told = [events.TextDelta(text="let me "), events.TextDelta(text="look "), call, call, events.TextDelta(text="done")]
    assert events.spoken(told) == "let me look\n\ndone"
    assert events.spoken([call, events.Stopped()]) == ""


@pytest.mark.parametrize("kind", get_args(events.Event))
def test_the_type_of_an_event_is_the_one_on_the_wire(kind):
    assert kind.type == kind.__struct_config__.tag


def test_the_answer_of_a_turn_is_its_last_message():
    call = events.ToolCall(tool_call=events.Call(id="c", name="look", input={}))
    done = Done(session_id="s", token_estimate=1)
    said = [TextDelta(text="Let me look."), call, TextDelta(text="It is "), TextDelta(text="7."), done]
    assert events.answer_of(said) == "It is 7."
    assert events.answer_of([TextDelta(text="half"), Snapshot(text=""), TextDelta(text="whole"), done]) == "whole"
    with pytest.raises(TurnStopped) as stopped:
        events.answer_of([TextDelta(text="half"), events.Stopped()])
    assert stopped.value.text == "half"


@pytest.mark.parametrize(
    "error",
    [ContextOverflow("a"), ProviderError("b"), StoreUnavailable("c"), UsageError("d"), TurnlogError("e", hint="f")],
)
def test_the_error_of_an_event_has_the_code_and_hint_of_the_event(error):
    told = events.of_error(error)
    with pytest.raises(type(error)) as raised:
        events.answer_of([told])
    assert (str(raised.value), events.code_of(raised.value), raised.value.hint) == (str(error), told.code, error.hint)


def test_an_error_event_of_an_unknown_code_is_an_error_with_a_hint():
    assert events.error_of(events.ErrorEvent(error="x", code="interrupted")).hint


def test_an_answer_has_its_text_and_its_calls():
    call = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    answer = Assistant(content=[{"type": "text", "text": "Let me look."}, call])
    assert (answer.text, answer.calls) == ("Let me look.", [call])
    assert Assistant(content="hi").calls == []

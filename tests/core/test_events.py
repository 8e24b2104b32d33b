"""What entries and errors look like as events."""

import pytest

from turnlog.core import events
from turnlog.core.entries import Assistant, Received, ToolResult, User, with_words
from turnlog.errors import (
    Busy,
    Conflict,
    ContextOverflow,
    NotFound,
    ProviderBusy,
    StoreUnavailable,
    ToolLimit,
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

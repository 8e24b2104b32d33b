"""The small rules of the gateway."""

import pytest

from turnlog.channels import Address, Arrival
from turnlog.channels.delivery import text_for_model
from turnlog.channels.replies import answer_text, of_live
from turnlog.core.events import Call, Done, ErrorEvent, Stopped, TextDelta, ToolCall
from turnlog.core.keys import Inbound, resolve
from turnlog.core.turns import Outcome
from turnlog.turns.stream import TurnStream


def said(*events):
    live = TurnStream("s")
    for event in events:
        live.add(event)
    return live


def test_what_a_turn_said_is_told_from_its_events_where_there_is_no_log():
    call = ToolCall(tool_call=Call(id="c", name="f", input={}))
    done = Done(session_id="s", token_estimate=1)
    assert of_live(said(TextDelta(text="let me "), TextDelta(text="look"), call, TextDelta(text="found"), done)) == (
        Outcome(0, "done"),
        "let me look\n\nfound",
    )
    assert of_live(said(TextDelta(text="x"), ErrorEvent(error="e", code="provider"))) == (
        Outcome(0, "failed", "provider"),
        "",
    )
    assert of_live(said(TextDelta(text="x"), ErrorEvent(error="e", code="deleted"))) == (Outcome(0, "stopped"), "")
    assert of_live(said(TextDelta(text="x"), Stopped())) == (Outcome(0, "stopped"), "")
    assert of_live(None) == (Outcome(0, "stopped"), "")


@pytest.mark.parametrize(
    ("outcome", "text", "told"),
    [
        (Outcome(1, "done"), "hi", "hi"),
        (Outcome(1, "done"), "", ""),
        (Outcome(1, "stopped"), "half", "half"),
        (Outcome(1, "stopped"), "", ""),
        (Outcome(1, "cut", "interrupted"), "half", "restart"),
        (Outcome(1, "failed", "provider"), "half", "could not answer"),
        (Outcome(1, "failed", "overflow"), "", "too long"),
    ],
)
def test_what_the_sender_is_told(outcome, text, told):
    assert told in answer_text(outcome, text, "en")
    assert bool(answer_text(outcome, text, "zh")) is bool(told)


def test_a_turn_that_the_server_stopped_is_told_of():
    assert "restart" in answer_text(Outcome(1, "stopped"), "", "en", stopped_by_us=True)


def test_in_private_words_stay_as_they_are():
    inbound = Inbound(channel="x", chat_type="private", sender_id="1", text="[Ann] hi")
    arrival = Arrival(inbound=inbound, address=Address(chat="1"), sender_name="Bob")
    assert text_for_model(arrival, resolve(inbound)) == "[Ann] hi"

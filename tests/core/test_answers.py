"""What became of a message, read from the log alone."""

from turnlog.core.answers import outcome_of, said_in_turn, told_as_one
from turnlog.core.turns import Outcome
from turnlog.testing import entry

CALL = [{"type": "text", "text": "looking"}, {"type": "tool_use", "id": "c", "name": "f", "input": {}}]


def log(*fields):
    return [entry(seq=n, ts="2026-01-01T00:00:00.000Z", **each) for n, each in enumerate(fields, 1)]


def user(delivery=None, **more):
    return {"type": "user", "content": "hi", "dedupe_id": delivery, **more}


def received(delivery):
    return {"type": "received", "content": "hi", "dedupe_id": delivery}


def reply(text="answer", **more):
    return {"type": "assistant", "content": [{"type": "text", "text": text}], "stop": "end_turn", **more}


def failed(code):
    return {"type": "failed", "code": code}


CALLED = {"type": "assistant", "content": CALL, "stop": "tool_use"}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "found"}


def test_a_message_nobody_took_has_no_outcome():
    assert outcome_of([], "d") is None
    assert outcome_of(log(user("other"), reply()), "d") is None
    assert outcome_of(log(received("d"), user("x")), "d") is None
    assert outcome_of(log(user("d"), CALLED, RESULT), "d") is None


def test_a_turn_ends_with_its_last_answer():
    assert outcome_of(log(user("d"), CALLED, RESULT, reply()), "d") == Outcome(4, "done")
    assert outcome_of(log(received("d"), {"type": "user", "from": [1]}, reply()), "d") == Outcome(3, "done")


def test_a_turn_that_was_stopped_or_failed_says_so():
    assert outcome_of(log(user("d"), reply(stop="interrupted")), "d") == Outcome(2, "stopped")
    assert outcome_of(log(user("d"), failed("stopped")), "d") == Outcome(2, "stopped")
    assert outcome_of(log(user("d"), reply(stop="error"), failed("provider")), "d") == Outcome(3, "failed", "provider")


def test_a_turn_cut_by_a_crash_may_be_begun_again():
    assert outcome_of(log(user("d"), failed("interrupted")), "d") == Outcome(2, "cut", "interrupted")
    assert outcome_of(log(user("d"), failed("interrupted"), reply()), "d") == Outcome(3, "done")
    later = log(user("d"), failed("interrupted"), user("e"), reply())
    assert outcome_of(later, "d") == Outcome(2, "cut", "interrupted")


def test_everything_a_turn_said_is_its_text():
    assert said_in_turn(log(user(), reply("old"), user(), CALLED, RESULT, reply("new"))) == "looking\n\nnew"
    steered = log(user(), CALLED, RESULT, user("s"), reply("both"))
    assert said_in_turn(steered) == "looking\n\nboth"
    assert said_in_turn(log(user(), reply("half", stop="error"), failed("provider"))) == ""
    assert said_in_turn(log(reply("alone"))) == "alone"
    assert said_in_turn([]) == ""


def test_a_turn_with_tools_is_told_as_one_answer_with_the_usage_of_all_its_calls():
    first = {"type": "assistant", "content": CALL, "usage": {"input_tokens": 10, "output_tokens": 2, "note": "x"}}
    last = {"type": "assistant", "content": [{"type": "text", "text": "found"}], "usage": {"input_tokens": 14}}
    told = told_as_one(log(first, {"type": "assistant", "content": " "}, last))
    assert told.content == [{"type": "text", "text": "looking"}, {"type": "text", "text": "found"}]
    assert told.usage == {"input_tokens": 24, "output_tokens": 2}
    assert told_as_one(log({"type": "assistant", "content": "hi"})).usage is None

"""Refused content, without IO: what is left out, what a second refusal leads to, what a retry takes back."""

import pytest
from msgspec.structs import replace

from turnlog.core import compaction, guard, history, turns
from turnlog.core.entries import Assistant, Compaction, Failed, Rewind, Shortened, ToolResult, Undo, User
from turnlog.core.guard import Limits, Send, Shorten
from turnlog.core.turns import end_of
from turnlog.errors import ContentRefused, ContextOverflow
from turnlog.testing import answered, check_messages, opened, said

REFUSED = Failed(code="refused_content")
LIMITS = Limits(window=100_000)
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "eA=="}}
PAPER = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "eA=="}}
LETTER = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "dear Ann"}}


def log(*bodies):
    return [replace(body, seq=n) for n, body in enumerate((opened("s"), *bodies), 1)]


def drive(transcript, *answers):
    """Stages that were tried, and the log afterwards; each answer is an error, or None for success."""
    steps = guard.protect(transcript, LIMITS)
    stages, given = [], iter(answers)
    step = next(steps)
    while True:
        if isinstance(step, Send):
            check_messages(step.history.messages)
            stages.append(step.stage)
            if (error := next(given)) is None:
                return stages, transcript
            step = steps.throw(error)
        else:
            assert isinstance(step, Shorten)
            transcript = [*transcript, *(replace(b, seq=transcript[-1].seq + 1) for b in step.bodies)]
            step = steps.send(transcript)


def past():
    return User(content=[{"type": "text", "text": "look"}, PICTURE, PAPER, LETTER]), answered("nice")


def test_the_plain_form_names_pictures_and_papers_and_keeps_texts():
    mark = Shortened(targets=(3,), limit=0, plain=True)
    assert history.build(log(*past(), said("and?"), mark)).messages == [
        {"role": "user", "content": "look\n\n[image]\n\n[document]\n\ndear Ann"},
        {"role": "assistant", "content": [{"type": "text", "text": "nice"}]},
        {"role": "user", "content": "and?"},
    ]


def test_the_unfinished_answer_of_a_failed_call_is_not_in_the_plain_form():
    partial = Assistant(content="hal", stop="error")
    mark = Shortened(targets=(4,), limit=0, plain=True)
    assert "hal" not in str(history.build(log(said("a"), partial, Failed(code="provider"), mark, said("b"))).messages)


def test_a_plain_past_outlives_a_compaction_that_keeps_a_part_of_it():
    talk = [*past(), *past(), said("now")]
    mark = Shortened(targets=(5,), limit=0, plain=True)
    fold = Compaction(summary="S", first_kept=4, covers=(2, 3))
    assert "image" in str(history.build(log(*talk, fold)).messages)
    assert "base64" not in str(history.build(log(*talk, mark, fold)).messages)


def test_only_a_second_refusal_in_a_row_is_met_with_a_plain_past():
    first = log(*past(), said("one"))
    with pytest.raises(ContentRefused):
        drive(first, ContentRefused())
    second = log(*past(), said("one"), REFUSED, said("two"))
    stages, after = drive(second, ContentRefused(), None)
    assert stages == ["as_is", "plain"]
    assert after[-1] == Shortened(seq=after[-1].seq, targets=(3,), limit=0, plain=True)
    answered_since = log(*past(), said("one"), REFUSED, said("two"), answered("ok"), said("three"))
    with pytest.raises(ContentRefused):
        drive(answered_since, ContentRefused())


def test_a_plain_past_that_is_refused_too_is_undone_and_the_hint_says_how_to_go_back():
    transcript = log(*past(), said("one"), REFUSED, said("two"))
    with pytest.raises(ContentRefused, match="again") as caught:
        drive(transcript, ContentRefused(), ContentRefused("again"))
    assert "rewind" in caught.value.hint


def test_a_plain_past_that_does_not_fit_is_given_up_as_too_large():
    with pytest.raises(ContextOverflow):
        drive(log(*past(), said("one"), REFUSED, said("two")), ContentRefused(), ContextOverflow(), ContextOverflow())


def test_without_a_past_or_a_message_there_is_nothing_to_make_plain():
    with pytest.raises(ContentRefused):
        drive(log(said("one"), REFUSED, said("two")), ContentRefused())
    with pytest.raises(ContentRefused):
        drive(log(answered("hi")), ContentRefused())


def test_a_past_that_is_plain_anyway_is_not_sent_again():
    with pytest.raises(ContentRefused) as caught:
        drive(log(said("hi"), answered("hello"), said("one"), REFUSED, said("two")), ContentRefused())
    assert "rewind" in caught.value.hint


def test_the_guard_ends_with_a_plain_request_that_went_through():
    transcript = log(*past(), said("one"), REFUSED, said("two"))
    steps = guard.protect(transcript, LIMITS)
    next(steps)
    [body] = steps.throw(ContentRefused()).bodies
    assert steps.send([*transcript, replace(body, seq=8)]).stage == "plain"
    with pytest.raises(StopIteration):
        steps.send(None)


def test_a_driver_that_cannot_store_the_plain_form_gets_the_refusal():
    steps = guard.protect(log(*past(), said("one"), REFUSED, said("two")), LIMITS)
    next(steps)
    assert isinstance(steps.throw(ContentRefused("no")), Shorten)
    with pytest.raises(ContentRefused, match="no"):
        steps.send(None)


def test_an_undone_plain_form_does_not_count():
    mark = Shortened(targets=(3,), limit=0, plain=True)
    transcript = log(*past(), said("and?"), mark)
    assert history.survey(transcript).plain_to == 3
    assert history.survey([*transcript, Undo(seq=6, target=5)]).plain_to == 0


def test_explain_names_the_failure_that_left_a_message_out():
    use = [{"type": "tool_use", "id": "c", "name": "look", "input": {}}]
    transcript = log(
        said("a"), REFUSED, said("b"), Assistant(content=use), ToolResult(tool_use_id="c", content="R"), REFUSED
    )
    states = {row.seq: (row.state, row.by) for row in compaction.explain(transcript)}
    assert states[2] == ("left_out", 3)
    assert states[4] == states[5] == ("tail", None)
    assert states[6] == ("left_out", 7)


def test_the_newest_turn_is_unanswered_only_if_it_failed():
    assert turns.unanswered([]) is None
    assert turns.unanswered(log(said("a"))) is None
    assert turns.unanswered(log(said("a"), answered("b"))) is None
    assert turns.unanswered(log(Failed(code="provider"))) is None
    partial = Assistant(content="hal", stop="error")
    found = turns.unanswered(log(said("a"), answered("b"), said("c"), partial, REFUSED))
    assert (found.start, found.last, found.failed) == (4, 4, 6)
    discarded = log(said("a"), answered("b"), said("c"), REFUSED, Rewind(to=3))
    assert turns.unanswered(discarded) is None


def test_a_turn_that_was_retried_ended_as_its_last_attempt_did():
    tried = log(said("a"), REFUSED, Rewind(to=2), answered("b"))
    assert end_of(tried[2:]).end == "done"
    assert end_of(tried[2:4]) is None
    discarded = log(said("a"), answered("b"), said("c"), REFUSED, Rewind(to=3), said("d"))
    assert end_of(discarded[4:]).code == "refused_content"

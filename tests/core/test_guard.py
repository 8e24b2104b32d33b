"""The guard: what is tried, in which order, and when to give up. Driven here as the runner drives it."""

import json
from itertools import pairwise

import pytest
from msgspec.structs import replace

from turnlog.core import admission, compaction, guard, history, session
from turnlog.core.compaction import Keep, parse_keep, parse_trigger
from turnlog.core.entries import (
    Assistant,
    Compaction,
    Failed,
    Pin,
    Received,
    Rewind,
    Shortened,
    ToolResult,
    Undo,
    User,
)
from turnlog.core.guard import Compact, Limits, Rescue, Send, Shorten
from turnlog.errors import ContextOverflow
from turnlog.testing import answered, check_messages, opened, said


def log(*bodies):
    return [replace(body, seq=seq) for seq, body in enumerate(bodies, 1)]


def extended(transcript, *bodies):
    return [*transcript, *(replace(body, seq=transcript[-1].seq + n) for n, body in enumerate(bodies, 1))]


def turn(n=1):
    return said(f"question {n} " + "words " * 40), answered(f"answer {n} " + "words " * 40)


def small(n=1):
    return said(f"q{n}"), answered(f"a{n}")


def calls(*ids, **fields):
    return Assistant(content=[{"type": "tool_use", "id": i, "name": "read", "input": {}} for i in ids], **fields)


def result(call_id, words="out"):
    return ToolResult(tool_use_id=call_id, content=words)


def folded(first_kept, first=2, **fields):
    return Compaction(**{"summary": "s", "first_kept": first_kept, "covers": (first, first_kept - 1), **fields})


def usage(tokens):
    return {"input_tokens": tokens, "output_tokens": 0}


def limits(window=180_000, *, keep="fraction:0.5", triggers=(), inject="pair", estimator="chars4", **more):
    """The claw0 preset, unless said otherwise."""
    return Limits(
        window=window,
        keep=parse_keep(keep),
        triggers=tuple(map(parse_trigger, triggers)),
        inject=inject,
        estimator=estimator,
        **more,
    )


def default(window=8_000, *, keep="from_last_user", triggers=("window:16384",), **more):
    return limits(window, keep=keep, triggers=triggers, inject="user", estimator="calibrated", **more)


class Drive:
    """Carries out the steps; `fits` says of the messages of a request whether the provider takes it."""

    def __init__(self, transcript, numbers, fits, *, summary="SUMMARY", error=None, **options):
        self.log = list(transcript)
        self.steps, self.requests, self.stages = [], [], []
        self.gave_up = None
        steps = guard.protect(self.log, numbers, **options)
        try:
            step = next(steps)
            while not self.carry_out(step, fits):
                step = (
                    steps.throw(error or ContextOverflow(tokens=200_001, window=200_000))
                    if isinstance(step, Send)
                    else steps.send(self.next(step, summary))
                )
        except ContextOverflow as overflow:
            self.gave_up = overflow
        steps.close()

    def carry_out(self, step, fits):
        self.steps.append(type(step).__name__)
        if not isinstance(step, Send):
            return False
        check_messages(step.history.messages)
        assert step.tokens >= 0
        self.requests.append(step.history.messages)
        self.stages.append(step.stage)
        return fits(step.history.messages, len(self.requests))

    def next(self, step, summary):
        if isinstance(step, Compact):
            if not summary:
                return None
            body = compaction.complete(step.plan, summary, trigger=step.trigger, tokens_before=9, tokens_after=1)
            bodies = [body, *step.along]
        else:
            bodies = step.bodies
        admission.admit(session.describe(None, self.log), bodies, leased=True)
        self.log = extended(self.log, *bodies)
        return self.log


def never(_messages, _n):
    return False


def after(n):
    return lambda _messages, count: count > n


def size(messages):
    return len(json.dumps(messages))


def talk_with_a_long_result(turns=3, at=0, chars=300_000):
    """Four messages a turn, one of the results oversized, and a new question."""
    bodies = []
    for n in range(turns):
        long = "x" * chars if n == at else "small"
        bodies += [said(f"question {n} " * 9), calls(f"c{n}"), result(f"c{n}", long), answered(f"answer {n} " * 9)]
    return log(opened("s"), *bodies, said("now"))


# The order of the steps


def test_what_fits_is_sent_as_it_is():
    run = Drive(talk_with_a_long_result(), limits(), after(0))
    assert run.steps == ["Send"]
    assert run.requests[0] == history.build(talk_with_a_long_result(), inject="pair").messages


@pytest.mark.parametrize("at", [0, 1, 2])
def test_on_overflow_oversized_results_are_shortened_first(at):
    """C1."""
    run = Drive(talk_with_a_long_result(at=at), limits(), after(1))
    assert run.steps == ["Send", "Shorten", "Send"]
    shown = run.requests[1][at * 4 + 2]["content"][0]["content"]
    assert len(shown) <= 50_000
    assert "300000" in shown
    assert run.log[at * 4 + 3].content == "x" * 300_000
    shown_chars = shown.count("x")
    assert str(shown_chars) in shown


@pytest.mark.parametrize("at", [0, 1, 2])
def test_then_the_talk_is_compacted_and_stays_so(at):
    """C2."""
    run = Drive(talk_with_a_long_result(at=at), limits(), after(2))
    assert run.steps == ["Send", "Shorten", "Send", "Compact", "Send"]
    assert size(run.requests[2]) < size(run.requests[1]) < size(run.requests[0])
    assert history.build(list(run.log), inject="pair").messages == run.requests[2]


@pytest.mark.parametrize(
    "at",
    [0, 1, 2],
)
def test_then_it_is_rescued_and_only_then_given_up(at):
    """C3."""
    run = Drive(talk_with_a_long_result(at=at), limits(), never)
    assert run.steps == ["Send", "Shorten", "Send", "Compact", "Send", "Rescue", "Send"]
    assert run.stages == ["as_is", "shortened", "compacted", "rescued"]
    assert all(one != other for n, one in enumerate(run.requests) for other in run.requests[n + 1 :])
    assert run.gave_up is not None
    assert run.gave_up.hint
    assert run.gave_up.window == 180_000
    assert run.gave_up.tokens > 0
    rescue = run.log[-1] if isinstance(run.log[-1], Compaction) else run.log[-2]
    assert (rescue.trigger, rescue.model) == ("rescue", None)


def short_talk_with_a_long_result(at):
    bodies = []
    for n in range(3):
        long = "x" * 300_000 if n == at else "ok"
        bodies += [said(f"message {n}"), calls(f"c{n}"), result(f"c{n}", long), answered(f"answer {n}")]
    return log(opened("s"), *bodies, said("now"))


@pytest.mark.parametrize(
    "at",
    [0, 1, 2],
)
def test_the_guard_takes_all_its_steps_for_short_messages_too(at):
    """C3, with messages so short that a coarse estimator counts them as next to nothing."""
    run = Drive(short_talk_with_a_long_result(at), limits(), never)
    assert run.stages == ["as_is", "shortened", "compacted", "rescued"]
    assert [size(m) for m in run.requests] == sorted((size(m) for m in run.requests), reverse=True)


def test_what_the_policy_keeps_is_kept_on_overflow_even_if_it_holds_an_oversized_result():
    run = Drive(talk_with_a_long_result(at=2), limits(), after(2))
    assert "answer 2" in str(run.requests[2])


def test_only_kept_results_are_shortened_anew_along_with_a_compaction():
    transcript = log(
        opened("s"),
        *(b for n in range(2) for b in (said("q"), calls(f"c{n}"), result(f"c{n}", "z" * 900), answered("a"))),
        Shortened(targets=(4,), limit=300),
        Shortened(targets=(8,), limit=200),
    )
    assert guard.again_shortened(compaction.plan(transcript, Keep("turns", 1))) == [Shortened(targets=(8,), limit=200)]
    assert guard.again_shortened(compaction.plan(transcript[:-1], Keep("turns", 1))) == []
    both = [*transcript[:-2], Shortened(seq=10, targets=(4, 8), limit=300)]
    assert guard.again_shortened(compaction.plan(both, Keep("turns", 1))) == [Shortened(targets=(8,), limit=300)]


def test_after_giving_up_the_next_message_works_and_the_words_are_kept():
    run = Drive(talk_with_a_long_result(), limits(), never)
    later = extended(run.log, Failed(code="overflow"), said("shorter"))
    again = Drive(later, limits(), after(0))
    assert "now" in str(again.requests[0][-1])
    assert "shorter" in str(again.requests[0][-1])


def test_shortening_is_skipped_where_no_result_is_over_the_limit():
    run = Drive(talk_with_a_long_result(chars=50_000), limits(), never)
    assert "Shorten" not in run.steps
    assert run.stages == ["as_is", "compacted", "rescued"]


def test_a_result_already_shortened_is_not_shortened_again():
    transcript = extended(talk_with_a_long_result(), Shortened(targets=(4,), limit=50_000))
    assert "Shorten" not in Drive(transcript, limits(), never).steps
    loose = extended(talk_with_a_long_result(), Shortened(targets=(4,), limit=90_000))
    assert "Shorten" in Drive(loose, limits(), never).steps


def test_a_refused_summary_leads_on_to_the_rescue():
    run = Drive(talk_with_a_long_result(), limits(), never, summary=None)
    assert run.steps == ["Send", "Shorten", "Send", "Compact", "Rescue", "Send"]
    assert run.stages == ["as_is", "shortened", "rescued"]


def test_a_single_message_that_does_not_fit_is_given_up_at_once():
    run = Drive(log(opened("s"), said("x" * 10_000)), limits(), never)
    assert run.steps == ["Send"]
    assert run.gave_up is not None


def test_the_overflow_of_the_provider_is_the_cause_of_ours():
    error = ContextOverflow("prompt is too long: 213462 tokens > 200000 maximum")
    run = Drive(log(opened("s"), said("x")), limits(), never, error=error)
    assert run.gave_up.__cause__ is error


@pytest.mark.parametrize("window", [0, 1_000])
def test_an_overflow_by_the_system_prompt_is_not_blamed_on_the_message(window):
    talk = log(opened("s"), said("x"))
    run = Drive(talk, limits(system="be kind " * 1_000_000), never, error=ContextOverflow(window=window))
    assert "the system prompt and the tools alone take about" in str(run.gave_up)
    assert "system prompt" in run.gave_up.hint
    assert "system prompt" not in str(Drive(talk, limits(), never).gave_up)


def test_any_other_error_passes_through():
    steps = guard.protect(talk_with_a_long_result(), limits())
    next(steps)
    with pytest.raises(ValueError, match="boom"):
        steps.throw(ValueError("boom"))


def test_a_driver_that_closes_after_success_ends_the_guard():
    steps = guard.protect(talk_with_a_long_result(), limits())
    next(steps)
    steps.close()


def steps_of(transcript, numbers, fails, carry_out):
    """Drives to the end without ever closing: after `fails` refusals each request goes through."""
    steps = guard.protect(transcript, numbers)
    sends, step = [], next(steps)
    try:
        while True:
            if isinstance(step, Send):
                sends.append(step.history.messages)
                step = steps.throw(ContextOverflow()) if len(sends) <= fails else steps.send(None)
            else:
                transcript = carry_out(transcript, step)
                step = steps.send(transcript)
    except StopIteration:
        return sends


def carried_out(transcript, step):
    if isinstance(step, Compact):
        body = compaction.complete(step.plan, "S", trigger="overflow", tokens_before=2, tokens_after=1)
        return extended(transcript, body)
    return extended(transcript, *step.bodies)


@pytest.mark.parametrize("fails", range(4))
def test_the_guard_ends_with_the_first_request_that_went_through(fails):
    assert len(steps_of(talk_with_a_long_result(), limits(), fails, carried_out)) == fails + 1


def test_no_request_is_made_twice_even_if_no_step_changed_anything():
    """D-21."""
    steps = guard.protect(talk_with_a_long_result(), limits())
    kinds = [
        type(next(steps)),
        type(steps.throw(ContextOverflow())),
        type(steps.send(None)),
        type(steps.send(None)),
    ]
    assert kinds == [Send, Shorten, Compact, Rescue]
    with pytest.raises(ContextOverflow):
        steps.send(None)


# Before the call


def test_a_trigger_that_holds_compacts_before_the_call():
    """D3."""
    bodies = [body for n in range(3) for body in (said("w" * 12_000), answered("ok"))]
    numbers = limits(keep="from_last_user", triggers=("tokens:12000",), inject="assistant", estimator="chars16")
    transcript = log(opened("s"), *bodies, said("four " * 2_400))
    run = Drive(transcript, numbers, after(0))
    assert run.steps == ["Compact", "Send"]
    assert [m["role"] for m in run.requests[0]] == ["user", "assistant", "user"]
    assert run.requests[0][1]["content"][0]["text"] == "[Session Compaction Summary]\nSUMMARY"
    assert run.log[-1].covers == (2, 7)
    assert run.log[-1].trigger == "tokens"
    assert Drive(log(opened("s"), *bodies), numbers, after(0)).steps == ["Send"]


def test_compacting_first_can_be_left_out():
    transcript = log(opened("s"), *turn(1), *turn(2), said("now"))
    numbers = limits(keep="turns:1", triggers=("messages:2",))
    assert Drive(transcript, numbers, after(0)).steps == ["Compact", "Send"]
    assert Drive(transcript, numbers, after(0), compact_first=False).steps == ["Send"]


def test_a_trigger_that_holds_where_nothing_can_shrink_is_passed_over():
    transcript = log(opened("s"), *small(1), *small(2), said("now"))
    assert Drive(transcript, limits(keep="turns:1", triggers=("messages:2",)), after(0)).steps == ["Send"]


def test_at_most_one_compaction_is_made_in_one_call():
    transcript = log(opened("s"), *turn(1), *turn(2), *turn(3), said("now"))
    numbers = limits(keep="turns:2", triggers=("messages:2",))
    run = Drive(transcript, numbers, never)
    assert run.steps == ["Compact", "Send", "Rescue", "Send"]


def test_at_most_one_compaction_is_made_in_one_call_in_the_middle_of_a_turn():
    rounds = [b for n in range(20) for b in (calls(f"c{n}"), result(f"c{n}", "words " * 100))]
    transcript = log(opened("s"), *turn(1), said("q"), *rounds)
    run = Drive(transcript, default(keep="fraction:0.5", triggers=("tokens:100",)), never)
    assert run.steps.count("Compact") == 1
    assert run.steps[0] == "Compact"
    assert not any(isinstance(e, User) for e in history.survey(run.log).tail)


def test_a_summary_refused_before_the_call_does_not_stop_it():
    transcript = log(opened("s"), *turn(1), *turn(2), said("now"))
    numbers = limits(keep="turns:1", triggers=("messages:2",))
    run = Drive(transcript, numbers, after(0), summary=None)
    assert run.steps == ["Compact", "Send"]
    assert run.requests[0] == history.build(transcript, inject="pair").messages


def test_a_summary_refused_before_the_call_is_asked_for_again_on_overflow():
    """Then any summary that shrinks the prompt counts."""
    transcript = log(opened("s"), *turn(1), *turn(2), said("now"))
    run = Drive(transcript, limits(keep="turns:1", triggers=("messages:2",)), never, summary=None)
    assert run.steps[:3] == ["Compact", "Send", "Compact"]
    assert run.steps.count("Compact") == 2


def test_on_overflow_the_same_turn_is_not_compacted_again_without_growth():
    transcript = log(
        opened("s"), *turn(1), said("q"), calls("x"), result("x", "small"), folded(4), calls("y"), result("y")
    )
    run = Drive(transcript, limits(), never)
    assert "Compact" not in run.steps
    assert "Rescue" in run.steps


def test_an_undo_does_not_hold_back_the_compaction_that_an_overflow_needs():
    transcript = log(opened("s"), *turn(1), *turn(2), *turn(3), folded(4), Undo(target=8), said("now"))
    numbers = limits(keep="turns:1", triggers=("messages:2",))
    run = Drive(transcript, numbers, never)
    assert run.steps[:2] == ["Send", "Compact"]


def test_where_the_policy_keeps_everything_an_overflow_keeps_less():
    run = Drive(log(opened("s"), *turn(1), *turn(2), said("now")), limits(keep="turns:20"), after(1))
    assert run.steps == ["Send", "Compact", "Send"]
    assert "question 1" not in str(run.requests[1])
    assert "now" in str(run.requests[1])


def test_a_call_that_waits_for_approval_is_never_folded_not_even_by_a_rescue():
    transcript = log(opened("s"), *turn(1), said("q"), calls("x"), said("r"), answered("a"), said("now"))
    run = Drive(transcript, limits(keep="turns:1", waiting=frozenset({"x"})), never)
    assert all(m in str(run.requests[-1]) for m in ("tool_use", "'x'"))


# Nothing that cannot shrink


def test_a_compaction_that_cannot_shrink_is_not_asked_for():
    transcript = log(opened("s"), said("a"), answered("b"), said("c"))
    assert guard.worthwhile(transcript, default()) is None
    assert "Compact" not in Drive(transcript, default(), never).steps


def test_a_compaction_that_shrinks_is_asked_for():
    transcript = log(opened("s"), said("word " * 500), answered("b"), said("c"))
    plan = guard.worthwhile(transcript, default())
    assert plan.first_kept == 4
    assert guard.floor(plan, default()) < guard.measure(transcript, default())


def test_the_floor_counts_system_and_tools():
    transcript = log(opened("s"), said("word " * 500), answered("b"), said("c"))
    plan = compaction.plan(transcript, Keep("from_last_user"))
    bare = guard.floor(plan, default())
    assert guard.floor(plan, default(system="word " * 300)) > bare + 250
    tool = {"name": "n", "description": "word " * 300, "input_schema": {}}
    assert guard.floor(plan, default(tools=(tool,))) > bare + 250


@pytest.mark.parametrize("already", [True, False])
def test_the_floor_counts_pins(already):
    rule = "word " * 500
    bodies = [said(rule), answered("b"), Pin(target=2), *turn(2)]
    if already:
        bodies += [folded(5), *turn(3)]
    plan = compaction.plan(log(opened("s"), *bodies, said("now")), Keep("from_last_user"))
    assert guard.floor(plan, default()) > 450


def test_folding_nothing_but_a_pinned_text_cannot_shrink():
    transcript = log(opened("s"), said("word " * 3_000), answered("ok"), Pin(target=2), said("now"))
    assert guard.worthwhile(transcript, default()) is None


def test_the_floor_counts_kept_messages_that_waited():
    bodies = (*turn(1), *turn(2), Received(content="word " * 500), User(from_=(6,)))
    plan = compaction.plan(log(opened("s"), *bodies), Keep("from_last_user"))
    assert guard.floor(plan, default()) > 450


def test_a_text_that_failed_does_not_keep_the_talk_from_being_compacted():
    bodies = (said("word " * 4_000), answered("ok"), said("word " * 100_000), Failed(code="overflow"), said("now"))
    transcript = log(opened("s"), *bodies)
    numbers = default(20_000, keep="messages:2")
    assert guard.worthwhile(transcript, numbers) is not None


def test_a_large_report_does_not_make_folding_two_words_worthwhile():
    bodies = (said("hi"), replace(answered("ok"), usage=usage(190_000)), said("again"))
    transcript = log(opened("s"), *bodies)
    assert Drive(transcript, default(200_000), after(0)).steps == ["Send"]


def test_a_rescue_that_cannot_shrink_is_not_made():
    transcript = log(opened("s"), *small(1), said("now"))
    run = Drive(transcript, default(), never)
    assert run.steps == ["Send"]


# Sizes


def test_the_limit_of_a_result_is_30_percent_of_the_window_and_at_most_50000_characters():
    assert limits(180_000).result_limit() == 50_000
    assert limits(8_000).result_limit() == 9_600
    assert limits(8_000, result_chars=123).result_limit() == 123
    assert limits(8_000).summary_limit() == 1_600
    assert limits(8_000, summary_tokens=99).summary_limit() == 99


def test_results_are_oversized_by_the_characters_of_their_text():
    blocks = [{"type": "text", "text": "x" * 60}, {"type": "text", "text": "y" * 60}]
    transcript = log(opened("s"), said("q"), calls("a", "b", "c"), result("a", "z" * 101), result("b", "z" * 100))
    transcript = extended(transcript, ToolResult(tool_use_id="c", content=blocks), said("q" * 500))
    assert guard.oversized_results(transcript, 100) == [4, 6]


def test_results_under_a_summary_are_not_shortened():
    transcript = log(opened("s"), said("q"), calls("a"), result("a", "z" * 500), answered("a"), said("r"), folded(6))
    assert guard.oversized_results(transcript, 100) == []


def test_a_summary_takes_up_messages_by_its_placement():
    assert [guard.added_messages(inject) for inject in ("system", "pair", "user", "assistant")] == [0, 2, 1, 1]


def test_the_size_is_anchored_on_the_last_report():
    bodies = (said("q"), replace(answered("a"), usage=usage(5_000)), said("word " * 100))
    measured = guard.measure(log(opened("s"), *bodies), default())
    assert 5_090 < measured < 5_150
    assert guard.measure(log(opened("s"), *bodies[:2]), default()) == 5_000


def test_the_newest_report_counts():
    bodies = (
        said("q"),
        replace(answered("a"), usage=usage(5_000)),
        said("r"),
        replace(answered("b"), usage=usage(7_000)),
    )
    assert guard.measure(log(opened("s"), *bodies), default()) == 7_000


def test_an_answer_without_a_report_is_estimated_after_the_last_one():
    bodies = (said("q"), replace(answered("a"), usage=usage(5_000)), said("r"), answered("word " * 100))
    assert 5_090 < guard.measure(log(opened("s"), *bodies), default()) < 5_150


def test_a_report_from_before_a_compaction_a_shortening_or_an_undo_says_nothing():
    bodies = [*small(1), said("q"), replace(answered("a"), usage=usage(50_000))]
    for shaping in ([folded(4)], [Shortened(targets=(3,), limit=9)], [folded(4), Undo(target=6)]):
        assert guard.measure(log(opened("s"), *bodies, *shaping), default()) < 1_000


def test_a_report_of_a_rewound_answer_says_nothing():
    bodies = (
        said("q"),
        replace(answered("a"), usage=usage(70)),
        said("r"),
        replace(answered("b"), usage=usage(50_000)),
    )
    assert guard.measure(log(opened("s"), *bodies, Rewind(to=3)), default()) == 70


def test_compatible_estimators_are_never_anchored():
    bodies = (said("x" * 4_000), replace(answered("a"), usage=usage(50_000)))
    assert guard.measure(log(opened("s"), *bodies), limits()) == 1_000


def test_what_was_received_counts():
    bodies = (said("q"), replace(answered("a"), usage=usage(5_000)), Received(content="word " * 100), User(from_=(4,)))
    assert 5_090 < guard.measure(log(opened("s"), *bodies), default()) < 5_150


def test_a_text_that_failed_counts_as_it_is_shown():
    bodies = (
        said("q"),
        replace(answered("a"), usage=usage(100)),
        said("word " * 100_000),
        Failed(code="overflow"),
        said("now"),
    )
    assert guard.measure(log(opened("s"), *bodies), default()) < 2_000


def test_a_kept_tail_of_so_many_tokens_counts_what_was_received():
    bodies = [*turn(1), Received(content="word " * 5_000), User(from_=(4,)), answered("ok"), said("now")]
    plan = guard.worthwhile(log(opened("s"), *bodies), default(keep="tokens:1000"))
    assert plan is not None
    assert plan.first_kept > 5


def test_the_size_of_one_message_depends_on_the_estimator():
    entry = User(seq=1, content="x" * 400)
    assert guard.entry_size(limits(), history.survey([entry]))(entry) == 100
    assert guard.entry_size(limits(estimator="chars16"), history.survey([entry]))(entry) == 104


# Rescue


SILENT = ContextOverflow("too large")


def grown_talk(turns=60):
    bodies = [body for n in range(turns) for body in (said(f"question {n} " * 60), answered(f"answer {n} " * 60))]
    return log(opened("s"), *bodies, said("now"))


def test_without_numbers_rescues_halve_until_one_fits_at_a_sixteenth_of_the_believed_window():
    transcript = grown_talk()
    numbers = default(40_000, triggers=())
    whole = size(history.build(transcript).messages)
    run = Drive(transcript, numbers, lambda m, _: size(m) <= whole / 16, summary=None, error=SILENT)
    assert run.gave_up is None
    assert run.stages == ["as_is", "rescued", "rescued", "rescued", "rescued"]
    sizes = [size(messages) for messages in run.requests]
    assert all(later < earlier for earlier, later in pairwise(sizes))
    row = session.describe(None, run.log)
    assert row.compactions == 1
    assert history.build(run.log).messages == run.requests[-1]
    assert "question 59" in str(run.requests[-1])


def test_at_most_five_rescued_requests_are_made_and_no_two_alike():
    run = Drive(grown_talk(), default(40_000, triggers=()), never, summary=None, error=SILENT)
    assert run.stages == ["as_is", *["rescued"] * 5]
    assert all(one != other for n, one in enumerate(run.requests) for other in run.requests[n + 1 :])
    assert run.gave_up is not None


def test_a_refusal_with_numbers_is_rescued_once():
    told = ContextOverflow(tokens=40_000, window=2_500)
    run = Drive(grown_talk(), default(40_000, triggers=()), never, summary=None, error=told)
    assert run.stages == ["as_is", "rescued"]


def test_a_rescue_that_cannot_become_smaller_is_not_tried_again():
    run = Drive(
        log(opened("s"), said("a " * 800), answered("b"), said("now")), default(), never, error=SILENT, summary=None
    )
    assert len(run.requests) == len({str(messages) for messages in run.requests})
    assert run.stages.count("rescued") < 5


def test_a_rescue_that_goes_through_teaches_the_window_and_nothing_else_does():
    numbers = default(40_000, triggers=())
    steps = guard.protect(grown_talk(), numbers)
    first = next(steps)
    step = steps.throw(SILENT)
    while not isinstance(step, Send):
        step = steps.send(None) if isinstance(step, Compact) else steps.send(extended(grown_talk(), *step.bodies))
    assert first.window == 0
    assert step.stage == "rescued"
    assert step.tokens <= step.window < numbers.window
    told = guard.protect(grown_talk(), numbers)
    next(told)
    step = told.throw(ContextOverflow(tokens=40_000, window=2_500))
    while not isinstance(step, Send):
        step = told.send(None) if isinstance(step, Compact) else told.send(extended(grown_talk(), *step.bodies))
    assert step.window == 0


def rescued(transcript, numbers, refused=None):
    bodies = guard.rescue(transcript, numbers, refused)
    admission.admit(session.describe(None, transcript), bodies, leased=True)
    return bodies, extended(transcript, *bodies)


def long_talk(turns=40, words=200):
    bodies = [
        body for n in range(turns) for body in (said(f"q{n} " + "word " * words), answered(f"a{n} " + "word " * words))
    ]
    return log(opened("s"), *bodies, said("now"))


def test_a_rescued_prompt_is_at_most_half_and_fits_the_window():
    transcript = long_talk()
    bodies, done = rescued(transcript, default(16_000))
    before = guard.of_history(history.build(transcript), default(16_000))
    now = guard.of_history(history.build(done), default(16_000))
    assert now <= before / 2
    assert now <= 12_000
    assert now > 3_000
    (body,) = bodies
    assert body.trigger == "rescue"
    assert body.model is None
    assert body.tokens_before == before
    assert body.tokens_after >= now * 0.8
    assert body.covers[0] == 2


def test_a_rescue_keeps_the_largest_tail_that_fits():
    (body,), done = rescued(long_talk(), default(16_000))
    view = history.survey(done)
    assert len(view.tail) > 10
    assert view.tail[-1].content == "now"
    larger = guard.of_history(history.build(done), default(16_000)) + 2 * 210
    assert larger > 12_000 - 16_000 * 0.1 or body.first_kept == view.tail[0].seq


def test_a_refusal_that_tells_numbers_shrinks_accordingly():
    transcript = long_talk()
    (mild,), _ = rescued(transcript, default(20_000))
    (hard,), _ = rescued(transcript, default(20_000), ContextOverflow(tokens=40_000, window=20_000))
    (same,), _ = rescued(transcript, default(20_000), ContextOverflow(tokens=20_001, window=20_000))
    (none,), _ = rescued(transcript, default(20_000), ContextOverflow(tokens=5, window=10))
    assert hard.first_kept > mild.first_kept == same.first_kept == none.first_kept


def test_results_in_a_rescued_tail_are_stubs_until_the_next_compaction():
    transcript = log(
        opened("s"), *turn(1), said("q"), calls("x"), result("x", "word " * 3_000), answered("a"), said("now")
    )
    bodies, done = rescued(transcript, default(8_000, keep="turns:1"))
    shown = str(history.build(done).messages)
    assert len(shown) < 8_000
    if len(bodies) > 1:
        assert bodies[1].limit == 960


def test_a_result_in_the_running_turn_is_stubbed_and_its_call_kept():
    transcript = log(
        opened("s"), said("q"), *(b for n in range(3) for b in (calls(f"c{n}"), result(f"c{n}", "word " * 2_000)))
    )
    bodies, done = rescued(transcript, default(8_000))
    messages = history.build(done).messages
    check_messages(messages)
    assert isinstance(bodies[1], Shortened)
    assert bodies[1].targets == (4, 6, 8)
    assert guard.of_history(history.build(done), default(8_000)) < 6_000


def test_a_stub_is_a_tenth_of_the_limit_of_a_result_and_at_least_200_characters():
    transcript = log(opened("s"), *turn(1), said("q"), calls("x"), result("x", "word " * 3_000))
    assert guard.rescue(transcript, default(8_000), None)[1].limit == 960
    assert guard.rescue(transcript, default(8_000, result_chars=500), None)[1].limit == 200


def test_short_results_are_not_stubbed():
    transcript = log(opened("s"), said("word " * 3_000), calls("x"), result("x", "short"), answered("a"), said("now"))
    assert len(guard.rescue(transcript, default(8_000), None)) == 1


def test_nothing_to_fold_is_no_rescue():
    assert guard.rescue(log(opened("s"), said("now")), default(), None) is None
    assert guard.rescue(log(opened("s"), answered("a"), answered("b")), default(), None) is None


def test_a_rescue_can_be_undone():
    transcript = long_talk()
    _, done = rescued(transcript, default(16_000))
    back = extended(done, Undo(target=done[-1].seq))
    admission.admit(session.describe(None, done), [Undo(target=done[-1].seq)], leased=True)
    assert history.build(back).messages == history.build(transcript).messages


def test_pins_stay_in_a_rescued_prompt_and_count():
    transcript = log(
        opened("s"), said("Never on Fridays"), answered("ok"), Pin(target=2), *(b for n in range(20) for b in turn(n))
    )
    transcript = extended(transcript, said("word " * 2_000), answered("ok"), said("now"))
    _, done = rescued(transcript, default(8_000))
    assert "Never on Fridays" in str(history.build(done).messages)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "resource", "body": "z" * 200_000},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 200_000}},
    ],
)
def test_a_result_that_is_large_without_being_text_is_folded_by_a_rescue(block):
    """A session must not depend on the summariser to get rid of it."""
    large = ToolResult(tool_use_id="x", content=[block] * 5)
    transcript = log(opened("s"), said("q"), calls("x"), large, answered("a"), *small(2), said("now"))
    bodies = guard.rescue(transcript, default(8_000), None)
    assert bodies is not None
    assert bodies[0].tokens_after < 6_000


def test_a_rescue_counts_what_was_received():
    bodies = [b for n in range(2, 22, 3) for b in (Received(content="word " * 2_000), User(from_=(n,)), answered("ok"))]
    transcript = log(opened("s"), *bodies, said("now"))
    _, done = rescued(transcript, default(8_000))
    assert guard.of_history(history.build(done), default(8_000)) <= 6_000


@pytest.mark.parametrize("inject", history.INJECTS)
@pytest.mark.parametrize("estimator", ["calibrated", "chars4", "chars16", "bytes4"])
def test_every_step_of_the_guard_is_acceptable_for_every_policy(inject, estimator):
    numbers = limits(20_000, keep="turns:2", triggers=("messages:4",), inject=inject, estimator=estimator)
    run = Drive(talk_with_a_long_result(), numbers, never)
    assert run.gave_up is not None
    assert run.steps[0] == "Compact"
    assert run.stages[0] == "as_is"
    assert size(run.requests[-1]) < size(run.requests[0])


@pytest.mark.parametrize("refusals", [0, 1, 2, 3])
def test_a_driver_may_also_let_the_guard_end_by_itself(refusals):
    transcript = talk_with_a_long_result(at=1)
    steps = guard.protect(transcript, limits())
    step = next(steps)
    while True:
        if isinstance(step, Send):
            if not refusals:
                break
            refusals -= 1
            step = steps.throw(ContextOverflow())
            continue
        bodies = (
            step.bodies
            if not isinstance(step, Compact)
            else [
                compaction.complete(step.plan, "s", trigger="t", tokens_before=9, tokens_after=1),
                *step.along,
            ]
        )
        transcript = extended(transcript, *bodies)
        step = steps.send(transcript)
    with pytest.raises(StopIteration):
        next(steps)


def test_a_step_that_changed_nothing_is_not_sent_again():
    transcript = talk_with_a_long_result(at=1)
    steps = guard.protect(transcript, limits())
    next(steps)
    assert isinstance(steps.throw(ContextOverflow()), guard.Shorten)
    assert not isinstance(steps.send(transcript), Send)


def test_what_a_compaction_would_leave_is_measured_before_it_is_made():
    transcript = long_talk()
    plan = guard.worthwhile(transcript, default())
    short = Compaction(summary="short", first_kept=plan.first_kept, covers=plan.covers)
    long = Compaction(summary="word " * 20_000, first_kept=plan.first_kept, covers=plan.covers)
    assert guard.size_after(transcript, [short], default()) < guard.size_after(transcript, [long], default())
    assert guard.shrinks(transcript, [short], default())
    assert not guard.shrinks(transcript, [long], default())


def test_limits_for_a_smaller_window_keep_and_summarise_less():
    narrow = default(100_000, keep="tokens:20000", summary_tokens=2_048).narrowed(5_000)
    assert (narrow.window, narrow.believed) == (5_000, 100_000)
    assert narrow.keep == Keep("tokens", 2_000)
    assert narrow.summary_limit() == 1_000
    assert default(100_000).narrowed(5_000).keep == Keep("from_last_user")

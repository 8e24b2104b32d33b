"""Where a talk is cut, what is asked of the summariser, and whether its answer counts."""

import pytest
from msgspec.structs import replace

from turnlog.core import admission, compaction, history, session, summaries
from turnlog.core.compaction import Keep, Trigger, parse_keep, parse_trigger
from turnlog.core.entries import (
    Assistant,
    Compaction,
    Failed,
    Pin,
    Received,
    Rewind,
    Shortened,
    Title,
    ToolResult,
    Undo,
    User,
)
from turnlog.errors import UsageError
from turnlog.testing import answered, check_messages, opened, said


def log(*bodies):
    return [replace(body, seq=seq) for seq, body in enumerate(bodies, 1)]


def turn(n=1):
    return said(f"question {n}"), answered(f"answer {n}")


def talk(messages):
    """The header and that many plain messages, question and answer by turns."""
    bodies = [body for n in range(messages) for body in turn(n)][:messages]
    return log(opened("s"), *bodies)


def calls(*ids, **fields):
    return Assistant(content=[{"type": "tool_use", "id": i, "name": "read", "input": {}} for i in ids], **fields)


def result(call_id, words="out", **fields):
    return ToolResult(tool_use_id=call_id, content=words, **fields)


def folded(first_kept, first=2, **fields):
    return Compaction(**{"summary": "s", "first_kept": first_kept, "covers": (first, first_kept - 1), **fields})


def tool_turn(n):
    return said(f"question {n}"), calls(f"c{n}"), result(f"c{n}", f"result {n}"), answered(f"answer {n}")


def compacted(transcript, plan, summary="short"):
    body = compaction.complete(plan, summary, trigger="manual", tokens_before=100, tokens_after=10)
    admission.admit(session.describe(None, transcript), [body], leased=True)
    return [*transcript, replace(body, seq=transcript[-1].seq + 1)]


def first_kept(transcript, keep, **options):
    plan = compaction.plan(transcript, parse_keep(keep), **options)
    return plan and plan.first_kept


def one(_entry):
    return 1


# The words of the settings


@pytest.mark.parametrize("text", ["from_last_user", "turns:20", "messages:24", "fraction:0.5", "tokens:20000"])
def test_every_way_to_keep_is_read_and_written(text):
    assert str(parse_keep(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "all",
        "turns",
        "turns:",
        "turns:0",
        "turns:-1",
        "turns:1.5",
        "turns:x",
        "from_last_user:1",
        "fraction",
        "fraction:0",
        "fraction:1",
        "fraction:2",
        "fraction:x",
        "fraction:nan",
        "tokens:1e3",
        "messages: 4",
    ],
)
def test_any_other_way_to_keep_is_a_usage_error(text):
    with pytest.raises(UsageError) as caught:
        parse_keep(text)
    assert "from_last_user" in caught.value.hint


@pytest.mark.parametrize("text", ["tokens:80000", "messages:40", "window:16384", "overflow", "manual"])
def test_every_trigger_is_read_and_written(text):
    assert str(parse_trigger(text)) == text


@pytest.mark.parametrize(
    "text", ["", "sometimes", "tokens", "tokens:0", "messages:x", "overflow:1", "manual:2", "window:-5"]
)
def test_any_other_trigger_is_a_usage_error(text):
    with pytest.raises(UsageError) as caught:
        parse_trigger(text)
    assert "overflow" in caught.value.hint


# Where to cut


@pytest.mark.parametrize(
    ("n", "after"),
    [(1, None), (2, None), (4, None), (5, None), (6, None), (7, None), (8, 6), (10, 8), (11, 9), (40, 22)],
)
def test_claw0_keeps_half_and_never_shows_more_messages_than_before(n, after):
    """D1: T-40's formula, moved to a turn's start; the summary takes two messages."""
    transcript = talk(n)
    plan = compaction.plan(transcript, Keep("fraction", 0.5), added=2)
    if after is None:
        assert plan is None
        return
    assert isinstance(plan.kept[0], User)
    done = history.build(compacted(transcript, plan), inject="pair").messages
    check_messages(done)
    assert len(done) == after <= n
    assert history.build(list(compacted(transcript, plan)), inject="pair").messages == done


@pytest.mark.parametrize("n", [7, 11, 12, 13, 15, 19, 20, 21, 23, 40])
def test_claw0_never_parts_a_call_from_its_result(n):
    """D-3: cutting by count did, at exactly these lengths."""
    bodies = [body for k in range(n) for body in tool_turn(k)][:n]
    transcript = log(opened("s"), *bodies)
    plan = compaction.plan(transcript, Keep("fraction", 0.5), added=2)
    if plan is None:
        assert n <= 7
        return
    done = history.build(compacted(transcript, plan), inject="pair").messages
    check_messages(done)
    assert "not part of this history" not in str(done)
    assert "interrupted" not in str(done) or isinstance(transcript[-1], Assistant)


@pytest.mark.parametrize(("n", "kept"), [(8, 4), (10, 4), (20, 4), (40, 8), (60, 12)])
def test_however_small_the_fraction_four_messages_and_a_fifth_of_all_are_kept(n, kept):
    plan = compaction.plan(talk(n), Keep("fraction", 0.01), added=2)
    assert len(plan.kept) == kept


def test_from_the_last_user_message_on():
    """D3: everything before the message that just arrived is folded."""
    transcript = log(opened("s"), *turn(1), *turn(2), *turn(3), said("now"))
    plan = compaction.plan(transcript, Keep("from_last_user"))
    assert plan.first_kept == 8
    assert plan.covers == (2, 7)
    assert [e.seq for e in plan.fold] == [2, 3, 4, 5, 6, 7]
    assert [e.seq for e in plan.kept] == [8]
    assert plan.previous is None


def test_from_the_last_user_message_means_the_one_that_began_the_turn():
    transcript = log(opened("s"), *turn(1), said("q"), calls("x"), result("x"), said("hurry"), calls("y"), result("y"))
    assert first_kept(transcript, "from_last_user") == 4


def test_from_the_last_user_message_needs_one():
    assert first_kept(log(opened("s"), answered("hello"), answered("again")), "from_last_user") is None
    assert first_kept(talk(1), "from_last_user") is None


def test_a_message_after_a_turn_that_failed_in_its_tools_begins_a_turn():
    transcript = log(opened("s"), said("q"), calls("x"), result("x"), Failed(code="interrupted"), said("again"))
    assert session.describe(None, transcript).turn_count == 2
    assert first_kept(transcript, "from_last_user") == 6


def test_so_many_turns():
    transcript = talk(10)
    assert first_kept(transcript, "turns:1") == 10
    assert first_kept(transcript, "turns:3") == 6
    assert first_kept(transcript, "turns:4") == 4
    assert first_kept(transcript, "turns:5") is None
    assert first_kept(transcript, "turns:99") is None


def test_so_many_messages_moved_outward_to_a_turn():
    transcript = talk(20)
    assert first_kept(transcript, "messages:6") == 16
    assert first_kept(transcript, "messages:5") == 16
    assert first_kept(transcript, "messages:20") is None
    assert first_kept(transcript, "messages:19") is None


def test_a_turns_start_is_not_worth_it_where_it_would_fold_less_than_half():
    long = [body for n in range(6) for body in (calls(f"c{n}"), result(f"c{n}"))]
    transcript = log(opened("s"), *turn(1), said("q"), *long)
    plan = compaction.plan(transcript, Keep("messages", 4))
    assert plan.first_kept == 13
    assert isinstance(plan.kept[0], Assistant)


def test_the_longest_end_within_so_many_tokens():
    transcript = talk(10)
    assert first_kept(transcript, "tokens:4", size=one) == 8
    assert first_kept(transcript, "tokens:3", size=one) == 9
    assert first_kept(transcript, "tokens:8", size=one) == 4
    assert first_kept(transcript, "tokens:9", size=one, added=0) == 3
    assert first_kept(transcript, "tokens:10", size=one) is None


def test_the_last_message_stays_even_if_it_is_larger_than_the_budget():
    transcript = log(opened("s"), *turn(1), said("x" * 100_000))
    assert first_kept(transcript, "tokens:5") == 4


@pytest.mark.parametrize("keep", ["from_last_user", "turns:1", "messages:2", "fraction:0.5", "tokens:5"])
def test_an_empty_or_tiny_talk_cannot_be_compacted(keep):
    assert compaction.plan([], parse_keep(keep)) is None
    assert first_kept(talk(0), keep) is None
    assert first_kept(talk(1), keep) is None


def test_a_fold_that_is_not_larger_than_its_summary_is_no_gain():
    transcript = talk(4)
    assert first_kept(transcript, "turns:1") == 4
    assert first_kept(transcript, "turns:1", added=2) is None
    assert first_kept(log(opened("s"), said("a"), said("b")), "turns:1") is None
    assert first_kept(log(opened("s"), said("a"), said("b")), "turns:1", added=0) == 3


def test_with_a_summary_already_there_folding_one_more_message_is_a_gain():
    transcript = log(opened("s"), *turn(1), said("a"), folded(4), said("b"))
    assert first_kept(transcript, "turns:1", added=2) == 6


def test_a_cut_moves_outward_over_calls_and_results():
    transcript = log(opened("s"), *tool_turn(1), *tool_turn(2))
    assert first_kept(transcript, "tokens:1", size=one) == 9
    assert first_kept(transcript, "tokens:2", size=one) == 7
    assert first_kept(transcript, "tokens:3", size=one) == 7
    assert first_kept(transcript, "tokens:4", size=one) == 6


def test_a_result_far_from_its_call_moves_the_cut_before_the_call():
    transcript = log(
        opened("s"), *turn(1), calls("x"), said("meanwhile"), answered("b"), said("c"), result("x"), answered("d")
    )
    assert compaction.seams(transcript[1:]) == [1, 7]
    assert first_kept(transcript, "tokens:3", size=one, added=0) == 3


def test_a_result_before_its_call_moves_the_cut_before_the_result():
    tail = log(said("q"), answered("a"), said("r"), result("x"), said("s"), calls("x"), answered("b"), said("t"))
    assert compaction.seams(tail) == [1, 2, 7]


def test_answers_in_a_row_are_not_parted():
    """Thinking stays with the call it led to."""
    tail = log(said("q"), answered("thinking"), calls("x"), result("x"), answered("a"), said("r"))
    assert compaction.seams(tail) == [1, 4, 5]


def test_a_dangling_call_never_blocks():
    tail = log(said("q"), calls("x"), said("r"), answered("a"), said("s"))
    assert compaction.seams(tail) == [1, 2, 3, 4]


def test_a_call_that_waits_for_approval_is_never_folded():
    transcript = log(opened("s"), *turn(1), said("q"), calls("x"), *turn(2), *turn(3))
    assert compaction.seams(transcript[1:], ["x"]) == [1, 2, 3]
    assert first_kept(transcript, "turns:1", waiting=["x"]) == 5
    assert first_kept(transcript, "turns:1") == 8
    assert compaction.plan(log(opened("s"), calls("x"), *turn(1)), Keep("turns", 1), waiting=["x"]) is None


def test_a_waiting_call_is_known_by_its_own_id_and_by_the_one_it_was_shown_with():
    tail = log(said("q"), calls("x"), result("x"), answered("a"), said("r"), calls("x"), said("s"), answered("b"))
    assert compaction.seams(tail, ["x_2"])[-1] == 5
    assert compaction.seams(tail, ["x"])[-1] == 1
    assert compaction.seams(tail, ["other"])[-1] == 7


def test_the_next_plan_starts_from_the_previous_first_kept():
    transcript = log(opened("s"), *turn(1), *turn(2), *turn(3), folded(4, summary="one"), *turn(4))
    plan = compaction.plan(transcript, Keep("turns", 1))
    assert plan.covers == (4, 8)
    assert [e.seq for e in plan.fold] == [4, 5, 6, 7]
    assert plan.previous.summary == "one"


def test_compaction_twice_leaves_nothing_between():
    """D6: what the first summary stands for reaches the second summariser."""
    transcript = log(opened("s"), said("A=1"), answered("ok"), *turn(2), *turn(3))
    transcript = compacted(transcript, compaction.plan(transcript, Keep("turns", 1)), "fact A=1")
    transcript += [
        replace(b, seq=transcript[-1].seq + n) for n, b in enumerate((said("B=2"), *turn(5)[1:], *turn(6)), 1)
    ]
    plan = compaction.plan(transcript, Keep("turns", 1))
    asked = summaries.ask(plan.fold, plan.view, previous=plan.previous.summary)
    assert "fact A=1" in asked.text
    assert "B=2" in asked.text
    states = {c.seq: c.state for c in compaction.explain(compacted(transcript, plan, "A=1 B=2"))}
    assert {state for seq, state in states.items() if transcript[seq - 2]} <= {"compacted", "tail", "none"}


def test_a_plan_after_a_rewind_folds_only_what_is_live():
    transcript = log(opened("s"), *turn(1), said("REWOUND"), answered("b"), Rewind(to=3), *turn(2), *turn(3))
    plan = compaction.plan(transcript, Keep("turns", 1))
    assert plan.covers == (2, 8)
    assert [e.seq for e in plan.fold] == [2, 3, 7, 8]
    compacted(transcript, plan)


def test_a_plan_after_a_rewind_to_the_beginning_covers_the_rewound_start():
    transcript = log(opened("s"), *turn(1), Rewind(to=1), *turn(2), *turn(3))
    plan = compaction.plan(transcript, Keep("turns", 1))
    assert plan.covers == (2, 6)
    assert [e.seq for e in plan.fold] == [5, 6]
    compacted(transcript, plan)


def test_a_plan_after_a_rewind_over_a_compaction_starts_from_the_boundary_before():
    transcript = log(opened("s"), *turn(1), *turn(2), folded(4), *turn(3), Rewind(to=5), *turn(4))
    plan = compaction.plan(transcript, Keep("turns", 1))
    assert plan.covers == (2, 9)
    assert [e.seq for e in plan.fold] == [2, 3, 4, 5]
    compacted(transcript, plan)


def test_a_plan_after_an_undo_starts_from_the_boundary_before():
    transcript = log(opened("s"), *turn(1), *turn(2), folded(4), *turn(3), folded(7, 4), Undo(target=9), *turn(4))
    plan = compaction.plan(transcript, Keep("turns", 1))
    assert plan.covers == (4, 10)
    compacted(transcript, plan)


@pytest.mark.parametrize("keep", ["from_last_user", "turns:2", "messages:3", "fraction:0.5", "tokens:9"])
def test_every_plan_is_one_the_store_admits(keep):
    transcript = log(
        opened("s"), Title(title="t"), *tool_turn(1), Failed(code="x"), *tool_turn(2), *tool_turn(3), *turn(4)
    )
    plan = compaction.plan(transcript, parse_keep(keep), size=one)
    check_messages(history.build(compacted(transcript, plan)).messages)


# When


def due(transcript, *triggers, tokens=10_000, window=100_000):
    return compaction.due(transcript, [parse_trigger(t) for t in triggers], tokens_now=tokens, window=window)


def test_each_trigger_holds_above_its_number():
    transcript = talk(10)
    assert str(due(transcript, "tokens:9999")) == "tokens:9999"
    assert due(transcript, "tokens:10000") is None
    assert str(due(transcript, "messages:9")) == "messages:9"
    assert due(transcript, "messages:10") is None
    assert due(transcript, "window:16384", tokens=83_616) is None
    assert str(due(transcript, "window:16384", tokens=83_617)) == "window:16384"
    assert due(transcript, "overflow", "manual", tokens=10**9) is None
    assert str(due(transcript, "manual", "messages:99", "tokens:1")) == "tokens:1"


def test_the_reserve_is_at_most_a_quarter_of_the_window():
    assert compaction.reserve(16_384, 200_000) == 16_384
    assert compaction.reserve(16_384, 8_000) == 2_000
    assert due(talk(4), "window:16384", tokens=6_001, window=8_000)
    assert due(talk(4), "window:16384", tokens=6_000, window=8_000) is None


def test_messages_are_counted_after_the_boundary():
    transcript = [*talk(10), folded(8, seq=12), User(seq=13, content="now")]
    assert due(transcript, "messages:5") is None
    assert due(transcript, "messages:4") is not None


def grown(words):
    """About that many tokens of talk."""
    return said("word " * words)


def test_another_compaction_in_the_same_turn_needs_growth():
    bodies = [*turn(1), said("q"), calls("x"), result("x"), folded(4)]
    assert due(log(opened("s"), *bodies), "tokens:1", window=1_000) is None
    little = [*bodies, calls("y"), result("y", "word " * 50)]
    assert due(log(opened("s"), *little), "tokens:1", window=1_000) is None
    much = [*bodies, calls("y"), result("y", "word " * 150)]
    assert due(log(opened("s"), *much), "tokens:1", window=1_000) is not None


def test_another_compaction_in_the_same_turn_needs_growth_even_if_its_beginning_is_folded():
    bodies = [*turn(1), said("q"), calls("x"), result("x"), calls("y"), result("y"), folded(7)]
    assert due(log(opened("s"), *bodies), "tokens:1", window=1_000) is None


def test_in_the_next_turn_no_growth_is_needed():
    bodies = [*turn(1), said("q"), answered("a"), folded(4), said("r")]
    assert due(log(opened("s"), *bodies), "tokens:1", window=1_000) is not None


def test_after_an_undo_automatic_triggers_pause_until_the_tail_has_grown():
    bodies = [*turn(1), *turn(2), folded(4), Undo(target=6), said("r")]
    assert due(log(opened("s"), *bodies), "tokens:1", window=1_000) is None
    assert due(log(opened("s"), *bodies, grown(150)), "tokens:1", window=1_000) is not None


def test_growth_counts_from_the_undo_on_and_a_tenth_of_the_window_is_enough():
    bodies = log(opened("s"), *turn(1), *turn(2), folded(4), Undo(target=6))
    for extra, allowed in ((99, False), (100, True)):
        transcript = [*bodies, User(seq=8, content="x")]
        view = history.survey(transcript)
        answer = compaction.may_compact(transcript, view, window=1_000, size=lambda _, n=extra: n, asked=False)
        assert answer is allowed


def test_what_is_asked_for_is_not_held_back_by_an_undo():
    transcript = log(opened("s"), *turn(1), *turn(2), folded(4), Undo(target=6), said("r"))
    view = history.survey(transcript)
    assert compaction.may_compact(transcript, view, window=1_000, size=one, asked=True)
    assert not compaction.may_compact(transcript, view, window=1_000, size=one, asked=False)


def test_undoing_a_shortening_holds_nothing_back():
    bodies = [
        said("q"),
        calls("x"),
        result("x"),
        answered("a"),
        Shortened(targets=(4,), limit=9),
        Undo(target=6),
        said("r"),
    ]
    assert due(log(opened("s"), *bodies), "tokens:1", window=1_000) is not None


def test_a_newer_compaction_ends_the_pause():
    bodies = [*turn(1), *turn(2), folded(4), Undo(target=6), *turn(3), folded(8), said("r")]
    assert due(log(opened("s"), *bodies), "tokens:1", window=1_000) is not None


def test_an_undo_that_was_rewound_holds_nothing_back():
    bodies = [*turn(1), *turn(2), folded(4), Undo(target=6), Rewind(to=5), said("r")]
    assert due(log(opened("s"), *bodies), "tokens:1", window=1_000) is not None


# What is asked


def test_the_record_is_role_labelled_and_fenced():
    bodies = (
        User(content="hi ``` there", sender="alice"),
        calls("x"),
        result("x", "bad", is_error=True),
        result("y"),
        said("r"),
    )
    transcript = log(opened("s"), *bodies, said("now"))
    plan = compaction.plan(transcript, Keep("from_last_user"))
    text = summaries.ask(plan.fold, plan.view).text
    record = summaries.record(plan.fold, plan.view)
    assert text.endswith(f"````\n{record}\n````")
    assert record == (
        "USER (alice): hi ``` there\n\nASSISTANT: [called read: {}]\n\nTOOL ERROR: bad\n\nTOOL RESULT: out\n\nUSER: r"
    )


def test_the_request_has_all_sections_and_says_that_the_record_is_data():
    plan = compaction.plan(talk(6), Keep("turns", 1))
    asked = summaries.ask(plan.fold, plan.view, words=321)
    for section in ("Goal", "Constraints", "Decisions", "blocked", "Next steps", "identifiers", "Open questions"):
        assert section in asked.text
    assert "321 words" in asked.text
    assert "do not follow" in asked.system
    assert "special attention" not in asked.text
    assert "summary so far" not in asked.text
    assert "part 1" not in asked.text


def test_the_request_carries_focus_part_and_previous_summary():
    plan = compaction.plan(talk(6), Keep("turns", 1))
    text = summaries.ask(plan.fold, plan.view, previous="old ``` facts", focus="prices\ud800", part=(2, 3)).text
    assert "prices?" in text
    assert "part 2 of 3" in text
    assert "````\nold ``` facts\n````" in text
    text.encode()


def test_what_was_received_is_in_the_record():
    transcript = log(opened("s"), Received(content="waited"), User(from_=(2,)), answered("a"), said("now"))
    plan = compaction.plan(transcript, Keep("from_last_user"))
    assert "USER: waited" in summaries.record(plan.fold, plan.view)


def test_a_senders_name_with_a_lone_surrogate_can_be_sent_to_the_summariser():
    transcript = log(opened("s"), User(content="a", sender="\ud800"), answered("b"), said("now"))
    plan = compaction.plan(transcript, Keep("from_last_user"))
    summaries.ask(plan.fold, plan.view).text.encode()


def test_lone_surrogates_in_the_record_are_replaced():
    transcript = log(opened("s"), said("\ud800"), answered("\udfff"), said("now"))
    plan = compaction.plan(transcript, Keep("from_last_user"))
    summaries.ask(plan.fold, plan.view, previous="\ud800").text.encode()


def test_chunks_hold_everything_in_order_each_within_the_budget():
    plan = plan_over(*talk(10)[1:])
    pieces = summaries.chunks(plan, one, 3)
    assert [len(piece) for piece in pieces] == [3, 3, 3, 1]
    assert [e for piece in pieces for e in piece] == plan.fold


def test_of_a_message_larger_than_the_budget_start_middle_and_end_all_reach_the_summariser():
    long = "start " + "word " * 100 + "middle " + "word " * 100 + "end"
    plan = plan_over(said("a"), answered("b"), said(long), answered("c"))
    pieces = summaries.chunks(plan, lambda e: len(history.as_text(e.content)) // 4 + 1, 100)
    assert len(pieces[0]) == 3
    assert len(pieces) == 3
    assert "".join(str(e.content) for piece in pieces for e in piece if e.seq == 4) == long


# Whether the answer counts


def plan_over(*bodies):
    return compaction.plan(log(opened("s"), *bodies, said("now")), Keep("from_last_user"))


@pytest.mark.parametrize("summary", ["", " ", "\n\t"])
def test_an_empty_summary_never_counts(summary):
    plan = plan_over(*turn(1))
    assert "empty" in summaries.refusal(plan, summary)
    assert "empty" in summaries.refusal(plan, summary, lenient=True)


def test_a_summary_of_up_to_500_tokens_is_never_too_long():
    plan = plan_over(*turn(1))
    assert summaries.refusal(plan, "word " * 400) == ""
    assert "no shorter" in summaries.refusal(plan, "word " * 600)


def test_a_long_summary_counts_if_it_replaces_more():
    assert summaries.refusal(plan_over(said("word " * 900), answered("ok")), "word " * 700) == ""
    assert "no shorter" in summaries.refusal(plan_over(said("word " * 500), answered("ok")), "word " * 700)


def test_the_previous_summary_counts_among_what_is_replaced():
    transcript = log(opened("s"), *turn(1), *turn(2), folded(4, summary="word " * 900), *turn(3))
    plan = compaction.plan(transcript, Keep("turns", 1))
    assert summaries.refusal(plan, "word " * 700) == ""


def test_what_was_received_counts_among_what_is_replaced():
    plan = plan_over(Received(content="word " * 900), User(from_=(2,)), answered("ok"))
    assert summaries.refusal(plan, "word " * 700) == ""


def test_a_summary_that_lacks_more_than_half_of_the_last_identifiers_does_not_count():
    plan = plan_over(
        said("see /etc/app/config.yml and https://x.test/a?b=1"), answered("ticket ABC-12345, build 20240501")
    )
    wanted = ["/etc/app/config.yml", "https://x.test/a?b=1", "ABC-12345", "20240501"]
    assert summaries.refusal(plan, " ".join(wanted)) == ""
    assert summaries.refusal(plan, " ".join(wanted[:2])) == ""
    reason = summaries.refusal(plan, wanted[0])
    assert "3 of 4" in reason
    assert summaries.refusal(plan, wanted[0], lenient=True) == ""


def test_only_the_last_four_folded_messages_are_looked_at():
    bodies = (said("q"), answered("old ticket OLD-99999"), *turn(2), *turn(3))
    assert summaries.refusal(plan_over(*bodies), "nothing of it") == ""
    assert "OLD-99999" in summaries.refusal(plan_over(*bodies[:5]), "nothing of it")


def test_on_overflow_a_summary_must_still_shrink_the_prompt():
    assert summaries.refusal(plan_over(*turn(1)), "word " * 2_000, lenient=True)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("plain words only, nothing else.", set()),
        ("/usr/local/bin and ~/a/b.txt", {"/usr/local/bin", "~/a/b.txt"}),
        ("see https://example.com/a/b?c=d.", {"https://example.com/a/b?c=d"}),
        ("(http://localhost:8600/x)", {"http://localhost:8600/x"}),
        ("order AB12345 shipped", {"AB12345"}),
        ("ab123 is short, abcdef has no digit", set()),
        ("ses-1700000000000-abc123", {"ses-1700000000000-abc123"}),
        ("README.md, main.py: 3 lines", {"README.md", "main.py"}),
        ("a.b e.g. i.e.", set()),
        ("d41d8cd98f00b204", {"d41d8cd98f00b204"}),
    ],
)
def test_identifiers_are_paths_urls_and_tokens_with_a_digit(text, found):
    assert summaries.identifiers(text) == found


@pytest.mark.parametrize(
    "text", ["我们在2024年讨论了这个方案", "请修改第3章节的全部内容", "今日は12月の会議について話しました"]
)
def test_chinese_or_japanese_prose_with_a_number_in_it_is_no_identifier(text):
    assert summaries.identifiers(text) == set()


def test_a_finished_compaction_says_all_that_the_entry_needs():
    plan = plan_over(*turn(1))
    body = compaction.complete(
        plan, " text \n", trigger="manual", tokens_before=9, tokens_after=3, model="m", focus="f"
    )
    assert body == Compaction(
        summary="text",
        first_kept=4,
        covers=(2, 3),
        tokens_before=9,
        tokens_after=3,
        trigger="manual",
        model="m",
        focus="f",
    )


# Without a model


def test_a_digest_says_who_said_what_and_only_names_results():
    plan = plan_over(said("please  read\nit"), calls("x"), result("x", "z" * 900), answered("done"))
    lines = summaries.digest(plan, 4_000).splitlines()
    assert "4 messages" in lines[0]
    assert lines[1:] == [
        "USER: please read it",
        "ASSISTANT: [called read: {}]",
        "TOOL RESULT: (900 characters)",
        "ASSISTANT: done",
    ]


def test_a_digest_keeps_the_previous_summary():
    transcript = log(opened("s"), *turn(1), *turn(2), folded(4, summary="A=1"), *turn(3))
    assert "Earlier summary: A=1" in summaries.digest(compaction.plan(transcript, Keep("turns", 1)), 4_000)
    long = log(opened("s"), *turn(1), *turn(2), folded(4, summary="A=1 " * 1_000), *turn(3))
    assert len(summaries.digest(compaction.plan(long, Keep("turns", 1)), 900)) < 1_100


def test_a_digest_of_a_long_talk_shows_its_start_and_its_end_and_counts_the_rest():
    plan = plan_over(*(body for n in range(500) for body in turn(n)))
    digest = summaries.digest(plan, 2_000)
    lines = digest.splitlines()
    assert len(digest) <= 2_000
    assert lines[1] == "USER: question 0"
    assert lines[-1] == "ASSISTANT: answer 499"
    skipped = int(lines[2].strip("(").split()[0])
    assert skipped + len(lines) - 2 == 1_000


def test_a_digest_of_long_messages_cuts_each():
    plan = plan_over(*(said("word " * 5_000) for _ in range(5)))
    digest = summaries.digest(plan, 4_000)
    assert len(digest) <= 4_100
    assert digest.count("USER: word word") >= 4
    assert digest.count("…") >= 4


def test_a_digest_of_one_or_two_messages_shows_them_whatever_the_room():
    digest = summaries.digest(plan_over(said("a" * 500), answered("b" * 500)), 10)
    assert "USER: aaaa" in digest
    assert "ASSISTANT: bbbb" in digest


# What became of each entry


def states(*bodies):
    return [(c.state, c.by) for c in compaction.explain(log(opened("s"), *bodies))]


def test_coverage_of_an_empty_log_is_empty():
    assert compaction.explain([]) == []


def test_every_entry_says_what_became_of_it():
    assert states(*turn(1), *turn(2), Pin(target=2), folded(4), *turn(3)) == [
        ("none", None),
        ("pinned", 7),
        ("compacted", 7),
        ("tail", None),
        ("tail", None),
        ("none", None),
        ("none", None),
        ("tail", None),
        ("tail", None),
    ]


def test_an_entry_is_covered_by_the_compaction_that_folded_it():
    by = [by for _, by in states(*turn(1), *turn(2), folded(4), *turn(3), folded(7, 4))]
    assert by == [None, 6, 6, 9, 9, None, None, None, None]


def test_an_undone_compaction_covers_nothing():
    assert {state for state, _ in states(*turn(1), *turn(2), folded(4), Undo(target=6))} == {"none", "tail"}


def test_rewound_entries_are_said_to_be():
    found = states(*turn(1), *turn(2), folded(4), Rewind(to=3), said("r"))
    assert [state for state, _ in found] == ["none", "tail", "tail", "rewound", "rewound", "rewound", "none", "tail"]


def test_an_undo_that_was_rewound_leaves_the_compaction_in_force():
    found = states(*turn(1), *turn(2), folded(4), Undo(target=6), Rewind(to=6))
    assert found[1] == ("compacted", 6)
    assert found[6] == ("rewound", None)


def test_coverage_names_the_types_of_the_format():
    assert [c.type for c in compaction.explain(log(opened("s"), said("a"), result("x")))] == [
        "session",
        "user",
        "tool_result",
    ]


def test_triggers_and_ways_to_keep_are_plain_values():
    assert Trigger("tokens", 5) == Trigger("tokens", 5)
    assert str(Keep("turns", 2.0)) == "turns:2"


def test_a_second_attempt_is_told_what_was_wrong_with_the_first():
    plan = plan_over(*turn(1))
    text = summaries.ask(plan.fold, plan.view, refused="the summary is empty").text
    assert "An earlier attempt did not count: the summary is empty." in text
    assert "earlier attempt" not in summaries.ask(plan.fold, plan.view).text

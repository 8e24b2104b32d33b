"""Where a turn begins, whether one is under way and how it ended: one rule, and all who ask get the same answer."""

import os

from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from turnlog.core import answers, compaction, history, session, turns
from turnlog.core.entries import Assistant, Failed, Received, Rewind, ToolResult, User
from turnlog.server.pages import plot as plots
from turnlog.testing import answered, opened, said

EXAMPLES = int(os.environ.get("EXAMPLES", "300"))
CALL = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "seen"}
WORDS = {"type": "text", "text": "and now?"}


def log(*bodies):
    return [
        replace(body, seq=seq, ts="2026-01-01T00:00:00.000Z") for seq, body in enumerate((opened("s1"), *bodies), 1)
    ]


def begun(*bodies):
    return turns.starts(log(*bodies))


def test_results_as_blocks_of_a_user_message_begin_no_turn_and_words_after_them_steer():
    """The turn that imports write: six readers used to disagree on it."""
    assert begun(said("go"), Assistant(content=[CALL]), User(content=[RESULT]), answered("done")) == [2]
    assert begun(said("go"), Assistant(content=[CALL]), User(content=[RESULT]), said("wait"), answered("done")) == [2]
    assert begun(said("go"), Assistant(content=[CALL]), User(content=[RESULT, WORDS]), answered("done")) == [2]
    assert begun(said("go"), Assistant(content=[CALL]), User(content=[RESULT, WORDS]), said("next")) == [2, 5]


def test_results_that_nobody_waits_for_change_nothing():
    stray = ToolResult(tool_use_id="c", content="late")
    assert begun(said("one"), answered("1"), stray, said("two")) == [2, 5]
    assert begun(User(content=[RESULT]), said("one"), answered("1"), User(content=[RESULT]), said("two")) == [3, 6]
    assert not session.describe(None, log(said("one"), answered("1"), stray)).under_way
    assert session.describe(None, log(said("one"), stray)).under_way


def test_what_remained_of_an_answer_that_failed_ends_its_turn():
    rest = Assistant(content=[{"type": "text", "text": "half"}, CALL], stop="error")
    assert session.describe(None, log(said("go"), rest)).last_role == "failed"
    assert answers.end_of(log(said("go"), rest)[2:]) == answers.Outcome(3, "failed", "provider")
    failed = Failed(code="overflow")
    assert answers.end_of(log(said("go"), rest, failed)[2:]) == answers.Outcome(4, "failed", "overflow")


def test_a_rewind_goes_back_to_what_had_been_said_there():
    steered = [said("go"), Assistant(content=[CALL]), ToolResult(tool_use_id="c", content="x")]
    assert begun(*steered, Rewind(to=1), said("anew")) == [2, 6]
    assert turns.live_starts(log(*steered, Rewind(to=1), said("anew"))) == [6]
    assert turns.last_role(log(*steered, Rewind(to=77))) == ""
    branch = replace(said("anew"), after=1)
    assert begun(*steered, branch) == [2, 5], "so does an entry of another program's tree that follows an older one"
    assert turns.live_starts(log(*steered, branch)) == [5]


def test_the_turn_of_a_message_that_waited_begins_where_it_was_taken():
    entries = log(said("one"), Received(content="two"), answered("1"), User(from_=(3,)), answered("2"), said("three"))
    assert [e.seq for e in turns.first(entries[2:])] == [5, 6]
    assert [e.seq for e in turns.first(entries[2:4])] == [3]
    assert [e.seq for e in turns.first(entries[1:])] == [2, 3, 4]
    assert turns.first([]) == []


def test_a_tail_that_begins_within_a_turn_has_that_turn():
    tail = log(said("go"), Assistant(content=[CALL]), ToolResult(tool_use_id="c", content="x"), said("wait"))[2:]
    assert [e.seq for e in turns.newest(tail)] == [5]
    assert [e.seq for e in turns.newest(tail[:2])] == [3, 4]
    assert turns.newest([]) == []
    assert turns.last_role([]) == ""


bodies = st.lists(
    st.sampled_from(
        [
            said("words"),
            User(content=[WORDS]),
            User(content=[]),
            User(content=[RESULT]),
            User(content=[RESULT, WORDS]),
            User(content=[{"type": "tool_result", "content": "no id"}]),
            Assistant(content=[CALL]),
            Assistant(content=[CALL, WORDS]),
            answered("done"),
            Assistant(content="cut", stop="interrupted"),
            Assistant(content=[WORDS], stop="error"),
            ToolResult(tool_use_id="c", content="seen"),
            Failed(code="interrupted"),
            Failed(code="provider"),
            Received(content="waits"),
            Rewind(to=0),
        ]
    ),
    max_size=25,
)


@settings(deadline=None, max_examples=EXAMPLES)
@given(bodies, st.randoms(use_true_random=False))
def test_all_who_read_turns_agree(made, random):
    entries = log(*made)
    for index, entry in enumerate(entries):
        if isinstance(entry, Rewind):
            to = random.choice(sorted(turns.ends(entries[:index])))
            entries[index] = replace(entry, to=to)
    row = session.describe(None, entries)
    starts, live = turns.starts(entries), turns.live_starts(entries)
    assert row.turn_count == len(starts)
    assert row.under_way == (row.last_seq not in turns.ends(entries))
    assert row.last_role == turns.last_role(entries)
    view = history.survey(entries)
    assert [view.tail[index].seq for index in compaction.turn_starts(view)] == live
    assert [step.seq for step in plots.steps(entries) if step.kind == "turn"] == starts
    if live:
        newest = turns.newest(entries)
        assert newest[0].seq == live[-1]
        assert (answers.end_of(newest[1:]) is None) == row.under_way
        assert turns.first(entries[live[-1] - 1 :])[0].seq == live[-1]
    if found := turns.unanswered(entries):
        assert found.start == live[-1]
        assert not row.under_way


@settings(deadline=None, max_examples=EXAMPLES)
@given(bodies)
def test_a_row_that_grows_entry_by_entry_counts_the_same_turns(made):
    entries = log(*(body for body in made if not isinstance(body, Rewind)))
    row = session.describe(None, entries[:1])
    for entry in entries[1:]:
        row = session.describe(row, [entry])
    assert row == session.describe(None, entries)

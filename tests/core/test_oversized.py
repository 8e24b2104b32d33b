"""A tail that is larger than any prompt is folded by its newest part alone."""

import pytest
from msgspec.structs import replace

from turnlog.core import admission, history, oversized, paging, session
from turnlog.core.entries import Assistant, Compaction, Received, Shortened, ToolResult, User
from turnlog.core.guard import Limits
from turnlog.core.oversized import OversizedTail
from turnlog.testing import answered, check_messages, opened, said

LIMITS = Limits(window=8_000)
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 40_000}}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(oversized, "LEFT_BYTES", 2_000)


def log(*bodies):
    return [replace(body, seq=seq) for seq, body in enumerate(bodies, 1)]


def talk(turns):
    pairs = [(said(f"question {n} " + "words " * 40), answered(f"answer {n} " + "words " * 40)) for n in range(turns)]
    return log(opened("s1"), *(one for pair in pairs for one in pair))


def folded(whole, known=None, *, first=1, previous=None):
    """The log after what `fold` gives, and what it gave."""
    row = session.describe(None, whole)
    bodies = oversized.fold(OversizedTail(row, known or whole[-20:], whole[first : first + 1], previous), LIMITS)
    stored = admission.admit(row, bodies, leased=True)
    return [*whole, *(replace(body, seq=row.last_seq + n) for n, body in enumerate(stored, 1))], bodies


def test_the_newest_turns_stay_and_everything_before_them_is_under_one_compaction():
    whole = talk(50)
    after, [body] = folded(whole)
    assert isinstance(body, Compaction)
    assert (body.trigger, body.model, body.covers) == ("rescue", None, (2, body.first_kept - 1))
    kept = [entry for entry in whole if entry.seq >= body.first_kept]
    assert isinstance(kept[0], User)
    assert 0 < sum(map(paging.weight, kept)) <= oversized.LEFT_BYTES
    assert "question 0 " in body.summary  # what it began with
    assert "80 entries before" in body.summary  # and how many are not shown
    shown = history.build(after)
    check_messages(shown.messages)
    # Built from the newest part alone, it is the same.
    assert history.build([entry for entry in after if entry.seq >= body.first_kept]).messages == shown.messages


def test_what_is_pinned_or_named_from_further_back_is_no_part_of_the_newest_entries():
    whole = talk(50)
    known = [whole[4], *whole[-20:]]
    assert folded(whole, known)[1] == folded(whole)[1]


def test_the_first_message_is_told_once_and_with_the_words_that_it_names():
    whole = log(opened("s1"), Received(content="what came first"), User(from_=(2,)), *talk(20)[1:])
    row = session.describe(None, whole)
    [body] = oversized.fold(OversizedTail(row, whole[-20:], whole[1:3], None), LIMITS)
    assert "USER: what came first" in body.summary
    [body] = oversized.fold(OversizedTail(row, whole[1:], whole[1:3], None), LIMITS)
    assert body.summary.count("what came first") == 1


def test_an_earlier_summary_is_carried_on():
    whole = talk(30)
    before = Compaction(seq=len(whole) + 1, summary="the old summary", first_kept=10, covers=(2, 9))
    whole = [*whole, before, *(replace(entry, seq=entry.seq + len(whole)) for entry in talk(10)[1:])]
    _, [body] = folded(whole, whole[-16:], first=9, previous=before)
    assert body.covers[0] == 10
    assert "the old summary" in body.summary


def test_a_long_turn_is_cut_inside_and_calls_keep_their_results():
    calls = [
        (
            Assistant(content=[{"type": "tool_use", "id": f"c{n}", "name": "read", "input": {}}]),
            ToolResult(tool_use_id=f"c{n}", content="out " * 200),
        )
        for n in range(12)
    ]
    whole = log(opened("s1"), said("go"), answered("yes"), said("now"), *(one for pair in calls for one in pair))
    shortened = Shortened(targets=(whole[-1].seq,), limit=100, seq=len(whole) + 1)
    after, [body, again] = folded([*whole, shortened], [*whole, shortened])
    assert isinstance(whole[body.first_kept - 1], Assistant)
    assert again.targets == shortened.targets  # a compaction would show it whole
    check_messages(history.build(after).messages)


def test_if_even_the_last_turn_is_longer_than_what_should_be_left_it_is_kept():
    whole = log(opened("s1"), said("a"), answered("b"), said("go " * 2_000))
    _, [body] = folded(whole, whole)
    assert body.first_kept == 4


def test_a_tail_without_a_place_to_cut_is_left_alone():
    whole = log(opened("s1"), said("a " * 3_000))
    tail = OversizedTail(session.describe(None, whole), whole, whole[1:], None)
    assert oversized.fold(tail, LIMITS) == oversized.after_fold(tail, LIMITS) == []


def test_what_history_needs_after_the_fold_is_the_known_part_and_the_compaction():
    whole = talk(50)
    after, bodies = folded(whole)
    tail = OversizedTail(session.describe(None, whole), whole[-20:], whole[1:2], None)
    needed = oversized.after_fold(tail, LIMITS)
    assert needed[-len(bodies) :] == after[-len(bodies) :]
    assert history.build(needed) == history.build(after)


def test_a_turn_must_begin_inside_the_part():
    whole = talk(3)
    assert oversized.begins_turn(whole)
    assert not oversized.begins_turn(whole[-2:])


def test_pictures_weigh_a_quarter():
    text = paging.weight(said("A" * 40_000))
    picture = paging.weight(User(content=[PICTURE]))
    assert paging.weight_after(talk(2), 4) == paging.weight(talk(2)[-1])
    assert paging.weight(said("\ud800" * 100)) == paging.weight(said("A" * 200))
    assert 40_000 < text < 41_000
    assert 10_000 < picture < 11_000

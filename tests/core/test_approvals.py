"""What follows from the log for calls that wait for a person, and patterns of calls."""

import pytest
from msgspec.structs import replace

from turnlog.core import approvals, call_patterns, compaction
from turnlog.core.admission import admit
from turnlog.core.compaction import Keep
from turnlog.core.entries import Approval, ApprovalAnswer, Assistant, Failed, Foreign, Rewind, ToolResult, User
from turnlog.core.events import of_answer, of_request
from turnlog.core.forks import inherited
from turnlog.core.session import ALLOWED_MAX, describe
from turnlog.errors import Conflict, NotFound, UsageError
from turnlog.testing import answered, opened, said

TS = "2026-01-02T03:04:05.678Z"


def log(*bodies):
    return [replace(body, seq=seq, ts=TS) for seq, body in enumerate(bodies, 1)]


def calls(*ids):
    return Assistant(content=[{"type": "tool_use", "id": name, "name": "send", "input": {"to": name}} for name in ids])


def request(call, **fields):
    return Approval(state="requested", call=call, tool="send", input={"to": call}, **fields)


def answer(call, word="approved", **fields):
    return ApprovalAnswer(call=call, word=word, by="ann", **fields)


RESUMED = Approval(state="resumed")
ASKED = (opened("s"), User(content="go"), calls("a", "b"), request("a"), request("b"))


def rows(*bodies):
    """The row after the whole log, and after each entry on its own: both must be the same."""
    entries = log(*bodies)
    row = describe(None, entries[:1])
    for entry in entries[1:]:
        row = describe(row, [entry])
    whole = describe(None, entries)
    assert row == whole
    return whole


def test_the_row_knows_which_calls_wait_and_which_have_an_answer():
    row = rows(*ASKED, answer("a"))
    assert row.waiting
    assert row.paused
    assert [(one.call, one.seq, one.answer) for one in row.approvals] == [("a", 4, 6), ("b", 5, 0)]


def test_a_turn_with_all_answers_is_paused_and_waits_for_nobody():
    row = rows(*ASKED, answer("a"), answer("b", "denied"), answer("b"))
    assert row.paused
    assert not row.waiting
    assert row.approvals[1].answer == 7


@pytest.mark.parametrize("last", [RESUMED, Failed(code="stopped"), User(content="x"), Assistant(content="x")])
def test_what_goes_on_or_ends_a_turn_ends_its_pause(last):
    row = rows(*ASKED, last)
    assert not row.waiting
    assert not row.paused
    assert approvals.asked(log(*ASKED, last)) == {}


def test_a_rewind_ends_the_pause():
    row = describe(None, log(opened("s"), said("q"), answered("r"), *ASKED[1:], Rewind(to=3)))
    assert not row.paused
    assert approvals.open_calls(log(*ASKED, Rewind(to=1))) == set()


def test_patterns_that_were_allowed_are_remembered_once_and_up_to_a_limit():
    more = [answer("a", always=f"t{n}") for n in range(ALLOWED_MAX)]
    row = rows(opened("s"), answer("a", always="x"), answer("a", always="x"), *more)
    assert row.allowed == tuple(f"t{n}" for n in range(ALLOWED_MAX))


def test_the_first_answer_counts_and_a_call_that_does_not_wait_has_none():
    row = describe(None, log(*ASKED, answer("a")))
    admit(row, [answer("b")], leased=False)
    with pytest.raises(Conflict, match="answered"):
        admit(row, [answer("a", "denied")], leased=False)
    with pytest.raises(Conflict):
        admit(row, [answer("b"), answer("b")], leased=False)
    with pytest.raises(NotFound):
        admit(row, [answer("c")], leased=False)
    admit(row, [replace(answer("c"), ts=TS)], leased=False)  # a copy of another log


def test_an_answer_to_an_earlier_question_does_not_count_for_a_later_one_with_the_same_id():
    row = describe(None, log(*ASKED, answer("a"), answer("b"), RESUMED, calls("a"), request("a")))
    with pytest.raises(NotFound):
        admit(row, [answer("a", request=4)], leased=False)
    admit(row, [answer("a", request=row.last_seq)], leased=False)
    assert of_request(log(*ASKED)[3]).seq == 4


def test_a_question_whose_turn_was_cut_short_has_no_part_in_a_later_one_with_the_same_id():
    result = ToolResult(tool_use_id="a", content="x")
    first, other, later = approvals.records(
        log(*ASKED, Failed(code="interrupted"), User(content="again"), calls("a"), request("a"), answer("a"), result)
    )
    assert (first.state, first.by, first.ran) == ("denied", "", False)
    assert other.state == "denied"
    assert (later.state, later.by, later.ran) == ("approved", "ann", True)


def test_only_the_holder_of_the_lease_asks_and_resumes():
    row = describe(None, log(*ASKED))
    for body in (request("c"), RESUMED):
        with pytest.raises(UsageError, match="lease"):
            admit(row, [body], leased=False)
    with pytest.raises(UsageError, match=r"Approval\.input"):
        admit(row, [replace(request("c"), input="x")], leased=True)


def test_what_was_asked_has_its_first_answer():
    found = approvals.asked(log(*ASKED, answer("a"), answer("a", "denied"), answer("x")))
    assert [(call, one.answer and one.answer.word) for call, one in found.items()] == [("a", "approved"), ("b", None)]
    assert [one.call for one in approvals.unanswered(found)] == ["b"]


def test_open_blocks_are_the_calls_without_a_result_in_the_newest_answer():
    turn = log(*ASKED[1:], ToolResult(tool_use_id="a", content="r"))
    assert [block["id"] for block in approvals.open_blocks(turn)] == ["b"]
    assert approvals.open_blocks([User(content="x")]) == []


def test_records_tell_who_said_what_and_what_ran():
    entries = log(
        *ASKED,
        answer("a", input={"to": "x"}, always="send"),
        answer("b", "denied", words="no"),
        RESUMED,
        ToolResult(tool_use_id="b", content="denied: no", is_error=True),
        ToolResult(tool_use_id="a", content="sent"),
        calls("a"),
        request("a"),
        calls("c"),
        request("c"),
        ToolResult(tool_use_id="c", content="interrupted", is_error=True),
    )
    told = [(r.call_id, r.state, r.ran, r.failed, r.by) for r in approvals.records(entries)]
    assert told == [
        ("a", "approved", True, False, "ann"),
        ("b", "denied", False, True, "ann"),
        ("a", "denied", False, False, ""),
        ("c", "denied", False, True, ""),
    ]
    assert approvals.records(log(*ASKED))[1].state == "waiting"


def test_a_call_that_waits_is_never_compacted():
    turns = [body for n in range(6) for body in (User(content=f"q{n}"), Assistant(content=f"a{n}"))]
    entries = log(opened("s"), *turns, *ASKED[1:])
    plan = compaction.plan(entries, Keep("messages", 1))
    assert plan is not None
    assert plan.first_kept <= 15


def test_expiry_and_denials():
    assert approvals.is_expired(request("a", expires=5), 5)
    assert not approvals.is_expired(request("a", expires=5), 4)
    assert not approvals.is_expired(request("a"), 10**15)
    assert (approvals.denial("no"), approvals.denial("")) == ("denied: no", "denied")


def test_events_of_a_request_and_an_answer():
    assert of_request(request("a", why="w", expires=3)).expires == 3
    assert of_request(replace(request("a"), input=None)).input == {}
    assert of_answer(answer("a", "denied", words="no")).words == "no"


def test_a_fork_takes_over_neither_questions_nor_answers():
    taken = inherited(log(*ASKED, answer("a"))[1:], ())
    assert [type(entry) for entry in taken[2:]] == [Foreign] * 3


@pytest.mark.parametrize(
    ("pattern", "given", "allows"),
    [
        ("write_file", {}, True),
        ("write_*", {"path": "x"}, True),
        ("read_*", {}, False),
        ('write_file(path="docs/**")', {"path": "docs/a/b.md"}, True),
        ('write_file(path="docs/*")', {"path": "docs/a/b.md"}, False),
        ('write_file(path="docs/?.md")', {"path": "docs/a.md", "content": "x"}, True),
        ('write_file(path="docs/**")', {"path": "docs/../secret"}, False),
        ('write_file(path="docs/**")', {"path": "docs\\..\\secret"}, False),
        ('write_file(path="../x")', {"path": "../x"}, True),
        ('write_file(path="docs/**")', {}, False),
        ('write_file(path="a\\*b")', {"path": "a*b"}, True),
        ('write_file(path="a\\*b")', {"path": "axb"}, False),
        ('write_file(n="3", say="a \\"b\\"")', {"n": 3, "say": 'a "b"'}, True),
        ('write_file(path="a\\\\")', {"path": "a\\"}, True),
    ],
)
def test_patterns_allow_what_they_say(pattern, given, allows):
    assert call_patterns.any_matches([pattern], "write_file", given, allowing=True) is allows


def test_a_deny_list_sees_through_other_spellings_of_a_path():
    for path in ("secret/x", "./secret/x", "docs/../secret/x", "secret//x", "SECRET/x", "secret\\x", "ｓecret/x"):
        assert call_patterns.any_matches(['t(path="secret/**")'], "t", {"path": path}, allowing=False)
    assert not call_patterns.any_matches(['t(path="secret/**")'], "t", {"path": "docs/x"}, allowing=False)


def test_a_deny_list_knows_both_forms_of_a_letter_and_an_allow_list_only_its_own():
    composed, apart = "caf\u00e9/x", "cafe\u0301/x"
    for pattern in (f't(path="{composed}")', f't(path="{apart}")'):
        for path in (composed, apart, composed.upper()):
            assert call_patterns.any_matches([pattern], "t", {"path": path}, allowing=False)
    assert not call_patterns.any_matches([f't(path="{composed}")'], "t", {"path": apart}, allowing=True)
    assert not call_patterns.any_matches(['t(path="docs/*")'], "t", {"path": "Docs/x"}, allowing=True)


@pytest.mark.parametrize("text", ["", "a b", "t(", "t()", "t(x)", 't(x="a"', 't(x="a" y="b")', "t" * 501, 't(x="a") '])
def test_what_is_no_pattern_is_refused(text):
    if text.endswith(" "):
        call_patterns.parse(text)
    else:
        with pytest.raises(UsageError, match="pattern"):
            call_patterns.parse(text)


@pytest.mark.parametrize(
    ("tool", "given", "offered"),
    [
        ("write_file", {"path": "docs/a.md", "content": "x"}, 'write_file(path="docs/*")'),
        ("write_file", {"path": "a*.md", "content": "x"}, 'write_file(path="a\\*.md")'),
        ("edit_file", {"path": "../a/b.md", "old": "x", "new": "y"}, 'edit_file(path="../a/b.md")'),
        ("send", {"to": "ann", "n": 3}, 'send(n="3", to="ann")'),
        ("stop", {}, "stop"),
        ("send", {"to": "x" * 600}, ""),
        ("send", {"1x": "y"}, ""),
    ],
)
def test_a_person_is_offered_a_narrow_pattern_that_allows_the_call(tool, given, offered):
    assert call_patterns.offered(tool, given) == offered
    if offered:
        assert call_patterns.any_matches([offered], tool, given, allowing=True)


def test_an_answer_is_described_in_one_line():
    from turnlog.core.approvals import describe

    plain = ApprovalAnswer(call="c", word="approved", ts="2026-01-01T00:00:00.000Z")
    assert describe(plain) == "approved by an unnamed person at 2026-01-01T00:00:00.000Z"
    full = ApprovalAnswer(call="c", word="denied", by="ann", ts="T", words="too late", input={}, always="f(x)")
    assert describe(full) == "denied by ann at T; too late; with other arguments; always: f(x)"

"""The index row as a fold over the log, and what may be appended to it."""

import contextlib
import signal

import msgspec
import pytest
from msgspec.structs import replace

from turnlog.codecs import native
from turnlog.core import admission, earlier_entries, names, session, turns
from turnlog.core.admission import admit
from turnlog.core.entries import (
    Approval,
    Assistant,
    Compaction,
    Failed,
    Foreign,
    ModelChoice,
    Opened,
    Origin,
    Pin,
    Received,
    Rewind,
    Selected,
    Shortened,
    Status,
    Title,
    ToolResult,
    Undo,
    Unpin,
    User,
)
from turnlog.core.forks import inherited, taken_in
from turnlog.core.marks import LOOKED_BACK, MARKS_KEPT
from turnlog.core.session import FOLD, Mark, Session, cut_title, describe, live_path, on_path
from turnlog.errors import Conflict, NotFound, UsageError
from turnlog.testing import FixedClock, answered, opened, said

TS = "2026-01-02T03:04:05.678Z"
TS_MS = 1_767_323_045_678


def log(*bodies):
    return [replace(body, seq=seq, ts=body.ts or TS) for seq, body in enumerate(bodies, 1)]


def row_of(*bodies):
    return describe(None, log(opened("s"), *bodies))


def described(row, entries, before):
    """As a store does it: with what the row asks for of the log before."""
    return earlier_entries.row_after(row, entries, reading(before), lambda: before)


def reading(transcript, counted=None):
    """`counted`: gets the number of entries that were read."""

    def read(wanted):
        found = [entry for first, last in wanted for entry in transcript[first - 1 : last]]
        if counted is not None:
            counted.append(len(found))
        return found

    return read


def stepwise(*bodies):
    """As a store does it: entry by entry, the whole log only where the row says so."""
    transcript = log(opened("s"), *bodies)
    row = None
    for at, stored in enumerate(transcript):
        row = described(row, [stored], transcript[:at])
    return row


def turn(n=1):
    return said(f"question {n}"), answered(f"answer {n}")


def calls(*ids):
    return Assistant(content=[{"type": "tool_use", "id": i, "name": "read", "input": {}} for i in ids])


def result(call_id, words="out"):
    return ToolResult(tool_use_id=call_id, content=words)


def folded(first_kept, first=2, **fields):
    return Compaction(**{"summary": "s", "first_kept": first_kept, "covers": (first, first_kept - 1), **fields})


# What the row says


def test_a_new_session_is_described_by_its_header():
    header = Opened(
        id="s", key="agent:a:cli:direct:u", agent="a", channel="cli", label="l", forked_from=Origin(id="t", seq=4)
    )
    row = describe(None, log(header))
    assert row == Session(
        id="s",
        key="agent:a:cli:direct:u",
        agent="a",
        channel="cli",
        fold=FOLD,
        label="l",
        peer="u",
        forked_from=Origin(id="t", seq=4),
        created_at=TS_MS,
        last_at=TS_MS,
        last_seq=1,
    )
    assert row.status == "inactive"
    assert row.boundary == row.read_from == 1


def test_a_log_without_a_header_is_a_usage_error():
    with pytest.raises(UsageError):
        describe(None, log(said("hi")))
    with pytest.raises(UsageError):
        describe(None, [])


def test_no_new_entries_change_nothing():
    row = row_of(*turn())
    assert describe(row, []) == row


def test_messages_and_turns_are_counted():
    row = row_of(said("q"), calls("x"), result("x"), answered("a"), *turn(2))
    assert (row.message_count, row.turn_count, row.last_seq) == (5, 2, 7)
    assert row.first_message == 2
    assert row.last_role == "assistant"


def test_the_count_of_messages_never_shrinks():
    """D-36: whatever is folded, undone or rewound."""
    before = row_of(*turn(1), *turn(2)).message_count
    for more in (folded(4), Rewind(to=3)):
        assert row_of(*turn(1), *turn(2), more).message_count == before


@pytest.mark.parametrize(
    ("bodies", "role"),
    [
        ((), ""),
        ((said("q"),), "user"),
        ((said("q"), answered("a")), "assistant"),
        ((said("q"), calls("x")), "call"),
        ((said("q"), calls("x"), result("x")), "tool"),
        ((said("q"), Failed(code="interrupted")), "failed"),
        ((said("q"), Title(title="t")), "user"),
    ],
)
def test_the_last_role_tells_whether_a_turn_is_open(bodies, role):
    assert row_of(*bodies).last_role == role
    assert row_of(*bodies).under_way is (role in ("user", "call", "tool"))


def test_copies_that_are_older_than_their_fork_do_not_set_its_time_back():
    fork = [replace(opened("s"), seq=1, ts=TS), User(seq=2, ts="2020-01-01T00:00:00.000Z", content="old")]
    assert describe(None, fork).last_at == TS_MS


def test_a_message_that_steers_a_turn_begins_no_new_one():
    assert row_of(said("q"), calls("x"), result("x"), said("hurry"), answered("a")).turn_count == 1


def test_a_message_after_a_turn_that_failed_in_its_tools_begins_a_new_one():
    assert row_of(said("q"), calls("x"), result("x"), Failed(code="interrupted"), said("again")).turn_count == 2


def test_times_are_those_of_the_entries_and_never_go_back():
    clock = FixedClock(TS_MS)
    clock.advance(minutes=-5)
    row = describe(row_of(), [User(seq=2, ts="2026-01-02T02:59:05.678Z", content="hi")])
    assert session.milliseconds("2026-01-02T02:59:05.678Z") == clock()
    assert row.last_at == TS_MS
    later = describe(row, [User(seq=3, ts="2026-01-02T03:04:06.000Z", content="hi")])
    assert later.last_at == TS_MS + 322
    assert later.created_at == TS_MS
    assert describe(later, [User(seq=4, content="no time yet")]).last_at == later.last_at


def test_moments_are_unix_milliseconds():
    assert session.milliseconds("1970-01-01T00:00:00.000Z") == 0
    assert session.milliseconds("1970-01-02T00:00:01.002Z") == 86_401_002
    assert session.milliseconds("2026-01-02T04:04:05.678+01:00") == TS_MS
    assert session.milliseconds("2026-01-02T03:04:05.678") == TS_MS
    assert session.milliseconds("1969-12-31T23:59:59.999Z") == -1
    assert session.milliseconds("yesterday") == session.milliseconds("") == 0


def test_selecting_makes_a_session_active_and_status_entries_say_otherwise():
    row = row_of(Selected(n=3))
    assert (row.status, row.selected_n) == ("active", 3)
    for value in ("archived", "trashed", "inactive", "active"):
        assert row_of(Selected(n=1), Status(value=value)).status == value
    assert row_of(Status(value="archived"), Selected(n=2)).status == "active"


def test_a_row_is_camel_case_json_and_comes_back():
    row = row_of(*turn(), Pin(target=2), folded(4), Received(content="w"))
    data = native.encode_plain(row)
    assert msgspec.json.decode(data, type=Session) == row
    assert {"agentId", "messageCount", "lastAt", "tokenEstimate"} <= set(msgspec.json.decode(data))


def test_entries_we_do_not_understand_change_nothing_but_the_place():
    before = row_of(*turn())
    after = row_of(*turn(), Foreign(raw={"type": "user", "content": "x"}))
    assert replace(after, last_seq=3) == before


# Titles


def test_the_first_words_are_the_title_until_somebody_gives_one():
    assert (row_of(*turn(1), *turn(2)).title, row_of(*turn(1)).title_by) == ("question 1", "first")
    assert row_of(*turn(1), Title(title="auto", by="auto")).title == "auto"
    assert row_of(*turn(1), Title(title="auto", by="auto"), Title(title="mine")).title == "mine"


def test_a_users_title_is_never_overwritten():
    row = row_of(Title(title="mine"), *turn(1), Title(title="auto", by="auto"))
    assert (row.title, row.title_by) == ("mine", "user")
    assert row_of(Title(title="mine"), Title(title="newer")).title == "newer"


def test_a_blank_message_or_an_image_gives_no_title():
    row = row_of(said("  \n"), User(content=[{"type": "image"}]), answered("a"), said("real words"))
    assert row.title == "real words"


def test_a_message_that_waited_gives_the_title():
    for describe_it in (row_of, stepwise):
        row = describe_it(Received(content="hello words"), User(from_=(2,)), answered("a"))
        assert row.title == "hello words"
        assert row.token_estimate > 0


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("", ""),
        (" \n\t", ""),
        ("short", "short"),
        ("  two \n  lines\t", "two lines"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 59 + "…"),
        ("漢" * 61, "漢" * 59 + "…"),
        ("word " * 30, ("word " * 12).rstrip()[:59] + "…"),
        ("a\ud800b", "a?b"),
        ("x" + " " * 1_000 + "y", "x…"),
    ],
)
def test_a_title_is_one_line_of_at_most_60_characters(text, title):
    assert cut_title(text) == title
    assert len(cut_title(text)) <= session.TITLE_MAX_CHARS


FAMILY = "👨\u200d👩\u200d👧\u200d👦"


@pytest.mark.parametrize("offset", range(52, 61))
@pytest.mark.parametrize(
    "whole",
    [
        "é́",
        "e\u0301",
        FAMILY,
        "👍🏽",
        "❤\ufe0f",
        "1\ufe0f\u20e3",
        "🇩🇪",
        "🇩🇪🇫🇷",
        "नि",
        "ก็",
        "கொ",
    ],
)
def test_a_title_is_never_cut_inside_a_character(whole, offset):
    text = "x" * offset + whole + "y" * 60
    cut = cut_title(text)
    assert cut.endswith("…")
    rest = text[len(cut) - 1 :]
    graphemes = {"🇩🇪🇫🇷": ["🇩🇪", "🇫🇷"]}.get(whole, [whole])
    ends = {offset + len("".join(graphemes[:n])) for n in range(len(graphemes) + 1)}
    place = len(text) - len(rest)
    assert place <= offset or place >= offset + len(whole) or place in ends
    assert len(cut) <= 60


@pytest.mark.parametrize(
    "whole", ["🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "\u1100\u1161\u11a8"]
)
def test_a_title_keeps_flags_of_regions_and_decomposed_hangul_whole(whole):
    for offset in range(52, 60):
        cut = cut_title("x" * offset + whole + "y" * 60)[:-1]
        assert whole in cut or not set(whole) & set(cut)


def test_a_title_of_flags_is_cut_between_two_of_them():
    assert cut_title("x" * 57 + "🇩🇪🇫🇷🇮🇹") == "x" * 57 + "🇩🇪…"
    assert cut_title("x" * 56 + "🇩🇪🇫🇷🇮🇹") == "x" * 56 + "🇩🇪…"
    assert cut_title("x" * 55 + "🇩🇪🇫🇷🇮🇹") == "x" * 55 + "🇩🇪🇫🇷…"


def test_a_character_longer_than_a_title_still_leaves_a_title():
    assert cut_title("a" + "\u0301" * 200) == "…"


def test_words_after_many_blanks_are_the_title():
    assert cut_title(" " * 500 + "hello") == "hello"


# Sizes


def test_the_estimate_is_anchored_on_what_the_provider_reported():
    usage = {"input_tokens": 1_000, "cache_read_input_tokens": 500, "output_tokens": 20}
    row = row_of(said("x" * 700), replace(answered("a"), usage=usage))
    assert row.token_estimate == 1_520
    assert row_of(said("q"), replace(answered("a"), usage=usage), said("x" * 700)).token_estimate == 1_720


def test_without_a_report_every_message_counts():
    row = row_of(said("x" * 70))
    assert row.token_estimate == 20
    more = describe(row, [replace(calls("x"), seq=3), replace(result("x", "y" * 35), seq=4)])
    assert more.token_estimate == 20 + 20 + 10


def test_a_compaction_sets_the_size_and_its_undo_gives_it_back():
    bodies = [said("x" * 7_000), answered("y" * 7_000), *turn(2)]
    before = row_of(*bodies).token_estimate
    fold = folded(4, tokens_before=before, tokens_after=50)
    assert row_of(*bodies, fold).token_estimate == 50
    for describe_it in (row_of, stepwise):
        assert describe_it(*bodies, fold, Undo(target=6)).token_estimate == before


def test_a_compaction_that_tells_no_sizes_leaves_the_estimate():
    bodies = [said("x" * 7_000), answered("y" * 7_000), *turn(2)]
    assert row_of(*bodies, folded(4)).token_estimate == row_of(*bodies).token_estimate
    saved = folded(4, tokens_before=100_000, tokens_after=0)
    assert row_of(*bodies, saved).token_estimate == 0


def test_a_rewind_gives_back_the_size_and_role_of_then():
    bodies = [*turn(1), said("x" * 7_000), calls("x"), result("x")]
    for describe_it in (row_of, stepwise):
        row = describe_it(*bodies, Rewind(to=3))
        then = row_of(*turn(1))
        assert (row.token_estimate, row.last_role) == (then.token_estimate, "assistant")


def test_a_message_after_a_rewind_out_of_a_tool_round_begins_a_turn():
    bodies = (*turn(1), said("q"), calls("x"), result("x"), Rewind(to=3), *turn(2))
    assert row_of(*bodies).turn_count == stepwise(*bodies).turn_count == 3


# Waiting messages


def test_messages_that_no_turn_has_taken_are_listed():
    bodies = [Received(content="a"), Received(content="b"), Received(content="c")]
    assert row_of(*bodies).received == (2, 3, 4)
    assert row_of(*bodies, User(from_=(2, 4))).received == (3,)
    assert row_of(*bodies, said("other")).received == (2, 3, 4)


# Boundary, stack, pins


def test_the_row_knows_where_the_tail_begins():
    row = row_of(*turn(1), *turn(2), folded(4))
    assert (row.boundary, row.read_from, row.compactions) == (4, 4, 1)
    row = row_of(*turn(1), *turn(2), folded(4), *turn(3), folded(7, 4))
    assert (row.boundary, row.read_from, row.compactions) == (7, 7, 2)


def test_undo_goes_back_one_compaction_at_a_time():
    bodies = [*turn(1), *turn(2), folded(4), *turn(3), folded(7, 4), *turn(4)]
    once = row_of(*bodies, Undo(target=9))
    assert (once.boundary, once.compactions) == (4, 1)
    twice = row_of(*bodies, Undo(target=9), Undo(target=6))
    assert (twice.boundary, twice.read_from, twice.compactions) == (1, 1, 0)


def test_a_compaction_after_the_place_rewound_to_is_not_active():
    row = row_of(*turn(1), *turn(2), folded(4), *turn(3), folded(7, 4), Rewind(to=8))
    assert (row.boundary, row.compactions) == (4, 1)
    row = row_of(*turn(1), *turn(2), folded(4), Rewind(to=3))
    assert (row.boundary, row.compactions) == (1, 0)


def test_an_undo_that_was_rewound_did_not_happen():
    row = row_of(*turn(1), *turn(2), folded(4), Undo(target=6), Rewind(to=6))
    assert (row.boundary, row.compactions) == (4, 1)


def test_a_rewind_forward_brings_a_compaction_back():
    row = row_of(*turn(1), *turn(2), folded(4), Rewind(to=3), *turn(3), Rewind(to=6))
    assert (row.boundary, row.compactions) == (4, 1)


def test_the_row_lists_the_pins_that_hold():
    assert row_of(*turn(1), Pin(target=3), Pin(target=2)).pins == ((4, 3), (5, 2))
    assert row_of(*turn(1), Pin(target=3), Pin(target=2), Unpin(target=3)).pins == ((5, 2),)
    assert row_of(*turn(1), Unpin(target=3)).pins == ()
    assert row_of(*turn(1), Pin(target=2), Pin(target=2)).pins == ((5, 2),)
    assert row_of(*turn(1), *turn(2), Pin(target=2), Rewind(to=5)).pins == ()
    assert row_of(*turn(1), Pin(target=2), Unpin(target=2), Rewind(to=4)).pins == ((4, 2),)


def test_the_live_path_jumps_at_each_rewind():
    assert live_path([], 0) == []
    assert live_path([], 5) == [(1, 5)]
    marks = [Mark("rewind", 6, 3), Mark("pin", 7, 2), Mark("rewind", 10, 4)]
    assert live_path(marks, 5) == [(1, 5)]
    assert live_path(marks, 6) == [(6, 6), (1, 3)]
    assert live_path(marks, 12) == [(10, 12), (1, 4)]
    assert live_path([*marks, Mark("rewind", 13, 8)], 14) == [(13, 14), (6, 8), (1, 3)]
    path = live_path([*marks, Mark("rewind", 13, 8)], 14)
    assert [seq for seq in range(1, 15) if on_path(seq, path)] == [1, 2, 3, 6, 7, 8, 13, 14]
    assert live_path([Mark("rewind", 3, 0)], 4) == [(3, 4)]


@contextlib.contextmanager
def within(seconds):
    """Of processor time: other work on the machine does not count."""

    def give_up(*_):
        raise AssertionError("it does not end")

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize("to", [4, 9])
def test_a_damaged_rewind_that_names_itself_or_a_later_entry_does_not_hang(to):
    with within(5):
        row = row_of(*turn(1), Rewind(to=to), said("r"))
    assert row.last_seq == 5


BRANCHY = [
    (*turn(1), *turn(2), folded(4, tokens_before=50, tokens_after=9), *turn(3), Undo(target=6), *turn(4)),
    (*turn(1), *turn(2), Rewind(to=3), *turn(3), folded(7, tokens_before=50, tokens_after=9), Rewind(to=5), *turn(4)),
    (*turn(1), Pin(target=2), *turn(2), Unpin(target=2), Rewind(to=6), *turn(3), Rewind(to=7), Pin(target=3)),
    (*turn(1), Received(content="w"), said("q"), calls("x"), result("x"), Rewind(to=3), User(from_=(4,)), *turn(2)),
    (*turn(1), said("q"), Failed(code="overflow"), *turn(2), Shortened(targets=(3,), limit=9), Undo(target=8)),
    (Title(title="t", by="auto"), *turn(1), Status(value="archived"), Selected(n=2), Title(title="u"), *turn(2)),
    (*turn(1), *turn(2), folded(4), *turn(3), Rewind(to=8), *turn(4)),
]


@pytest.mark.parametrize("bodies", BRANCHY)
def test_the_row_kept_step_by_step_is_the_row_folded_at_once(bodies):
    for end in range(len(bodies) + 1):
        assert stepwise(*bodies[:end]) == row_of(*bodies[:end])


def compacted_often(times, lag):
    """A log with many compactions whose boundary stays `lag` entries behind."""
    transcript = log(opened("s"), *turn(0), Pin(target=2))
    boundary = 2
    for n in range(times):
        for body in (*turn(n), *turn(n)):
            transcript.append(replace(body, seq=len(transcript) + 1))
        first_kept = max(boundary + 1, len(transcript) + 1 - lag)
        fold = folded(first_kept, boundary, tokens_before=9, tokens_after=5)
        transcript.append(replace(fold, seq=len(transcript) + 1))
        boundary = first_kept
    return transcript


def kept_row(transcript):
    row = describe(None, transcript[:1])
    for stored in transcript[1:]:
        row = describe(row, [stored])
    return row


def assert_says_the_same(kept, whole):
    for name in ("boundary", "read_from", "compactions", "pins", "message_count", "token_estimate", "last_seq"):
        assert getattr(kept, name) == getattr(whole, name), name


def test_a_row_forgets_old_marks_and_still_says_the_same():
    transcript = compacted_often(MARKS_KEPT + 40, lag=1)
    row = kept_row(transcript)
    assert len(row.marks) <= MARKS_KEPT
    assert row.pruned_to > 0
    assert row.compactions == MARKS_KEPT + 40
    assert row.pins == ((4, 2),)
    assert_says_the_same(row, describe(None, transcript))


def test_a_row_below_the_limit_forgets_nothing():
    transcript = compacted_often(MARKS_KEPT - 1, lag=1)
    assert len(kept_row(transcript).marks) == MARKS_KEPT
    assert kept_row(transcript).pruned_to == 0


@pytest.mark.parametrize("lag", [8, 30])
def test_a_row_that_forgot_marks_counts_each_compaction_once(lag):
    times = MARKS_KEPT + 40
    transcript = compacted_often(times, lag)
    assert kept_row(transcript).compactions == times


def test_undoing_further_than_a_row_remembers_asks_for_the_whole_log():
    transcript = compacted_often(MARKS_KEPT + 10, lag=1)
    row = kept_row(transcript)
    asked = 0
    for undone in range(MARKS_KEPT):
        stack = session.active(row.marks, row.last_seq)
        body = Undo(seq=row.last_seq + 1, target=stack[-1].seq)
        admit(row, [body], leased=True)
        transcript.append(body)
        if earlier_entries.needed(row, [body]) == []:
            asked += 1
            row = describe(None, transcript)
        else:
            row = describe(row, [body])
        assert row.compactions == MARKS_KEPT + 10 - undone - 1
        assert row.boundary > 1
    assert asked > 0
    assert_says_the_same(row, describe(None, transcript))


def test_only_rewinds_need_the_past_and_only_deep_undos_all_of_it():
    row = row_of(*turn(1), folded(4))
    assert earlier_entries.needed(row, [said("x"), Rewind(to=3)]) == [(1, 4)]
    assert earlier_entries.needed(row, [said("x"), Undo(target=4), Pin(target=2)]) is None
    assert earlier_entries.needed(None, [opened("s"), Undo(target=4)]) is None
    many = replace(row, pruned_compactions=1, marks=(*row.marks, Mark("compaction", 9, 8)), last_seq=9)
    assert earlier_entries.needed(many, [Undo(target=9)]) is None
    assert earlier_entries.needed(many, [Undo(target=9), Undo(target=4)]) == []
    assert earlier_entries.needed(replace(row, pruned_compactions=1), [Undo(target=4)]) == []


def long_talk(turns):
    return log(opened("s"), *(body for n in range(turns) for body in turn(n)))


@pytest.mark.parametrize("length", [200, 2_000])
def test_a_rewind_needs_what_it_skips_and_a_little_more_however_long_the_log_is(length):
    row = describe(None, long_talk(length))
    for skipped in (0, 10, 100):
        to = row.last_seq - skipped
        for body in (Rewind(to=to), replace(said("instead"), after=to)):
            assert earlier_entries.needed(row, [body]) == [(to - LOOKED_BACK + 1, row.last_seq)]


def test_a_rewind_reads_two_entries_before_its_target_if_they_say_whose_turn_it_is():
    transcript = long_talk(500)
    row = describe(None, transcript)
    opaque = [Foreign(seq=row.last_seq + n, raw={}) for n in (1, 2, 3)]
    for before, target, expected in (
        (transcript, row.last_seq - 1, [3]),  # a user's message; what is skipped is read too
        (transcript, row.last_seq, [2]),
        ([*transcript, *opaque], row.last_seq + 3, [2, LOOKED_BACK]),  # only entries that are no messages
        ([*transcript, *opaque], row.last_seq + 2, [3, LOOKED_BACK + 1]),
    ):
        counted = []
        back = [Rewind(seq=len(before) + 1, to=target)]
        known = describe(None, before)
        found = earlier_entries.row_after(known, back, reading(before, counted), list)
        assert found == describe(None, [*before, *back])
        assert counted == expected


def test_two_rewinds_at_once_and_one_to_what_was_rewound_read_what_they_need():
    transcript = long_talk(100)
    away = Rewind(seq=202, to=151)
    row = described(describe(None, transcript), [away], transcript)
    for bodies in ([Rewind(to=201)], [Rewind(to=101), Rewind(to=201)], [replace(said("x"), after=200)]):
        entries = [replace(body, seq=202 + n) for n, body in enumerate(bodies, 1)]
        counted = []
        found = earlier_entries.row_after(row, entries, reading([*transcript, away], counted), list)
        assert found == describe(None, [*transcript, away, *entries])
        assert len(counted) == 2


def test_coming_back_from_a_rewind_needs_what_comes_back():
    transcript = long_talk(500)
    row = describe(None, transcript)
    away, back = Rewind(seq=1002, to=901), Rewind(seq=1003, to=1001)
    row = described(row, [away], transcript)
    assert earlier_entries.needed(row, [back]) == [(852, 1002)]
    row = described(row, [back], [*transcript, away])
    assert row == describe(None, [*transcript, away, back])
    assert row.token_estimate == describe(None, transcript).token_estimate
    assert live_path(row.marks, row.last_seq) == [(1003, 1003), (1, 1001)]


@pytest.mark.parametrize("talk", [0, 1])
def test_thousands_of_rewinds_leave_a_small_row_and_cost_the_same_each(talk):
    """To one place again and again; or each to the end of a turn, after another that is given up."""
    transcript = long_talk(100)
    row = describe(None, transcript)
    for n in range(4_000):
        bodies = [*turn(n), Rewind(to=row.last_seq)] if talk and n % 2 else [Rewind(to=101), *turn(n)][: 1 + 2 * talk]
        entries = [replace(body, seq=row.last_seq + k) for k, body in enumerate(bodies, 1)]
        admit(row, entries, leased=True)
        assert sum(last - first + 1 for first, last in earlier_entries.needed(row, entries)) <= 100 + 2 * LOOKED_BACK
        row = described(row, entries, transcript)
        transcript += entries
    assert len(row.marks) <= MARKS_KEPT
    admit(row, [Rewind(to=101), said("talk goes on")], leased=True)
    assert row == describe(None, transcript)


def test_a_rewind_to_where_the_marks_do_not_reach_needs_the_whole_log():
    """Each rewind stays in force, so that the live path has more jumps than a row remembers."""
    transcript = long_talk(3)
    for n in range(2 * MARKS_KEPT):
        end = transcript[-1].seq
        for body in (*turn(n), Rewind(to=end), *turn(n)):
            transcript.append(replace(body, seq=len(transcript) + 1))
    row = describe(None, transcript)
    assert row.pruned_to > 0
    assert len(row.marks) <= MARKS_KEPT
    assert earlier_entries.needed(row, [Rewind(to=3)]) == []
    assert earlier_entries.needed(row, [Rewind(to=row.last_seq - 20)])
    whole = live_path(session.marks_of(transcript), row.last_seq)
    rewound = [e.seq for e in transcript if not on_path(e.seq, whole)]
    assert earlier_entries.needed(row, [Rewind(to=rewound[0])]) == []
    path = live_path(row.marks, row.last_seq)
    assert [seq for seq in rewound if seq > row.pruned_to and on_path(seq, path)] == []


def test_a_rewind_onto_a_branch_whose_marks_were_forgotten_needs_the_whole_log():
    transcript = log(opened("s"), *turn(1), *turn(2), *(Rewind(to=3) for _ in range(MARKS_KEPT + 1)))
    row = describe(None, transcript)
    assert (len(row.marks), row.pruned_to) == (MARKS_KEPT // 2, 0)
    assert earlier_entries.needed(row, [Rewind(to=3)]) is not None
    assert earlier_entries.needed(row, [Rewind(to=5)]) == []


def test_a_row_that_is_not_given_what_it_asks_for_still_takes_the_rewind():
    row = replace(row_of(*turn(1)), pruned_to=3)
    assert earlier_entries.needed(row, [Rewind(to=2)]) == []
    after = describe(row, [Rewind(seq=4, to=2)])
    assert (after.last_seq, after.token_estimate) == (4, row.token_estimate)


def test_the_path_that_led_to_an_entry_is_known_where_the_marks_reach():
    row = row_of(*turn(1), *turn(2), Rewind(to=3), *turn(3))
    assert row.shape.path_to(8, row.last_seq) == [(6, 8), (1, 3)]
    assert row.shape.path_to(5, row.last_seq) == [(4, 5), (1, 3)]
    assert row.shape.path_to(2, row.last_seq) == [(1, 2)]
    assert replace(row, pruned_to=6).shape.path_to(2, row.last_seq) is None
    path = [(1, 120)]
    assert list(turns.looked_at(path)) == [(71, 120), (21, 70), (1, 20)]
    assert turns.is_over_after(log(*turn(1))) is True
    assert turns.is_over_after(log(said("x"))) is False
    assert turns.is_over_after(log(Pin(target=1))) is None
    turns.check_end(log(opened("s"), *turn(1)), 3)
    with pytest.raises(UsageError, match="entry 2 does not end a turn") as caught:
        turns.check_end(log(opened("s"), *turn(1)), 2)
    assert caught.value.hint == "Turns end at entries 1, 3."


def test_a_session_is_told_from_another_of_its_id_by_what_its_log_says_or_by_its_creation():
    old, new = row_of(), describe(None, log(replace(opened("s"), incarnation="ab")))
    assert old.incarnation == str(old.created_at)
    assert new.incarnation == "ab"


def test_an_entry_that_a_session_does_not_have_is_refused():
    row = row_of(*turn(1))
    session.check_entry(row, 3)
    for wrong in (0, -1, 4):
        with pytest.raises(UsageError, match=f"no entry {wrong}"):
            session.check_entry(row, wrong)


def test_a_fork_takes_over_what_does_not_concern_its_source_alone():
    past = log(opened("s"), Selected(n=1), Received(content="a"), Received(content="b"), User(from_=(3,)), *turn(1))
    taken = inherited(past[1:], taken_in(past))
    assert [type(e).__name__ for e in taken] == ["Foreign", "Received", "Foreign", "User", "User", "Assistant"]
    assert taken[0].raw["n"] == 1


# What may be appended


def refused(row, *bodies, leased=True):
    with pytest.raises(UsageError) as caught:
        admit(row, bodies, leased=leased)
    return caught.value


def test_nothing_to_append_is_a_usage_error():
    refused(row_of())


def test_a_session_begins_with_its_header_and_only_once():
    admit(None, [opened("s")], leased=False)
    with pytest.raises(NotFound):
        admit(None, [said("hi")], leased=True)
    with pytest.raises(Conflict):
        admit(row_of(), [opened("s")], leased=True)
    refused(None, opened("s"), said("a"), opened("s"))
    refused(row_of(), said("a"), opened("s"))


def test_a_header_of_a_newer_format_is_refused():
    assert "Upgrade" in refused(None, replace(opened("s"), version=2)).hint


@pytest.mark.parametrize(
    "body",
    [
        said("a"),
        answered("a"),
        result("x"),
        folded(4),
        Shortened(targets=(2,), limit=1),
        Undo(target=6),
        Rewind(to=3),
        Failed(code="x"),
    ],
)
def test_what_a_turn_builds_upon_needs_the_lease(body):
    row = row_of(*turn(1), *turn(2), folded(4))
    assert "lease" in str(refused(row, body, leased=False))


@pytest.mark.parametrize(
    "body",
    [Pin(target=2), Unpin(target=2), Title(title="t"), Status(value="archived"), Selected(n=1), Received(content="w")],
)
def test_what_a_turn_does_not_build_upon_needs_no_lease(body):
    admit(row_of(*turn(1)), [body], leased=False)
    admit(row_of(*turn(1)), [body, Foreign(raw=1)], leased=False)


@pytest.mark.parametrize("make", [lambda t: Rewind(to=t), lambda t: Pin(target=t), lambda t: Unpin(target=t)])
def test_a_target_must_be_an_entry_before(make):
    row = row_of(*turn(1))
    for target in (1, 2, 3):
        admit(row, [make(target)], leased=True)
    for target in (-1, 0, 4, 99):
        refused(row, make(target))
    admit(row, [said("q"), make(4)], leased=True)


def test_every_target_of_a_shortening_must_be_an_entry_before():
    row = row_of(said("q"), calls("x"), result("x"))
    admit(row, [Shortened(targets=(4,), limit=9)], leased=True)
    refused(row, Shortened(targets=(4, 5), limit=9))
    refused(row, Shortened(targets=(0,), limit=9))


def test_a_compaction_must_reach_from_the_old_boundary_to_the_new_one():
    row = row_of(Selected(n=1), *turn(1), *turn(2))
    admit(row, [folded(5, 3)], leased=True)
    admit(row, [folded(5, 1)], leased=True)
    admit(row, [folded(7, 3)], leased=True)
    refused(row, folded(5, 4))
    refused(row, folded(8, 3))
    refused(row, folded(1, 1))
    refused(row, folded(5, 3, covers=(3, 3)))
    refused(row, folded(5, 3, covers=(3, 5)))
    refused(row, folded(5, 3, summary=" \n"))


def test_the_next_compaction_starts_from_the_previous_first_kept_and_not_from_its_entry():
    """D-9."""
    row = row_of(*turn(1), *turn(2), *turn(3), folded(4), *turn(4))
    admit(row, [folded(6, 4)], leased=True)
    refused(row, folded(9, 8))
    refused(row, folded(9, 5))
    refused(row, folded(4, 2))
    refused(row, folded(3, 2))


def test_after_an_undo_a_compaction_starts_from_the_boundary_before():
    row = row_of(*turn(1), *turn(2), folded(4), *turn(3), folded(7, 4), Undo(target=9))
    refused(row, folded(7, 7))
    admit(row, [folded(7, 4)], leased=True)


def test_only_the_newest_active_compaction_can_be_undone():
    bodies = [*turn(1), *turn(2), folded(4), *turn(3), folded(7, 4)]
    row = row_of(*bodies)
    admit(row, [Undo(target=9)], leased=True)
    assert "entry 9" in refused(row, Undo(target=6)).hint
    for target in (0, 2, 7, 99):
        refused(row, Undo(target=target))
    after = row_of(*bodies, Undo(target=9))
    refused(after, Undo(target=9))
    admit(after, [Undo(target=6)], leased=True)
    assert "No compaction" in refused(row_of(*turn(1)), Undo(target=2)).hint


def test_a_compaction_that_was_rewound_cannot_be_undone():
    refused(row_of(*turn(1), *turn(2), folded(4), Rewind(to=5)), Undo(target=6))


def test_a_shortening_can_be_undone_once():
    bodies = [said("q"), calls("x"), result("x"), Shortened(targets=(4,), limit=9)]
    admit(row_of(*bodies), [Undo(target=5)], leased=True)
    refused(row_of(*bodies, Undo(target=5)), Undo(target=5))
    refused(row_of(*bodies, Rewind(to=4)), Undo(target=5))


def test_a_session_without_entries_has_nothing_to_undo_or_to_compact():
    refused(None, opened("s"), Undo(target=1))
    refused(None, opened("s"), folded(3, 2))


@pytest.mark.parametrize(
    "bodies",
    [
        (*turn(1), *turn(2), folded(4), *turn(3)),
        (*turn(1), *turn(2), folded(4), *turn(3), folded(7, 4)),
        (*turn(1), *turn(2), folded(4), Undo(target=6), *turn(3)),
    ],
)
def test_a_whole_log_that_was_admitted_entry_by_entry_is_admitted_at_once(bodies):
    """A fork is one append of the header and all of its past."""
    transcript = log(opened("s"), *bodies)
    row = None
    for stored in transcript:
        admit(row, [stored], leased=True)
        row = describe(row, [stored])
    admit(None, transcript, leased=True)


def test_entries_of_one_append_are_admitted_one_after_the_other():
    row = row_of(*turn(1), *turn(2), folded(4), *turn(3), folded(7, 4))
    admit(row, [Undo(target=9), Undo(target=6)], leased=True)
    refused(row, Undo(target=9), Undo(target=9))


def test_the_newest_choice_of_a_model_counts_and_a_rewind_does_not_touch_it():
    chosen = (*turn(1), ModelChoice(model="a:b"), *turn(2))
    assert row_of(*chosen).model == "a:b"
    assert row_of(*chosen, Rewind(to=3)).model == "a:b"
    assert row_of(*chosen, ModelChoice()).model == ""
    assert describe(row_of(*turn(1)), log(opened("s"), *chosen)[3:4]).model == "a:b"


def test_a_row_holds_no_long_name_and_nothing_that_a_database_refuses():
    assert len(row_of(ModelChoice(model="m" * 100_000)).model) == names.ROW_TEXT_MAX_CHARS
    assert row_of(ModelChoice(model="\x00\ud800")).model == "\ufffd?"


def test_a_row_tells_whether_a_call_ever_needed_approval():
    asked = Approval(state="requested", call="c1")
    assert not row_of(*turn(1)).needed_approval
    assert row_of(*turn(1), asked, Failed(code="stopped"), *turn(2)).needed_approval


def test_pins_have_a_limit():
    row = replace(row_of(*turn(1)), pins=tuple((3, 2) for _ in range(admission.PINS_MAX)))
    assert "10,000" in str(refused(row, Pin(target=2)))
    admit(replace(row, pins=row.pins[:-1]), [Pin(target=2)], leased=True)
    admit(row, [said("talk goes on"), Rewind(to=3)], leased=True)


def test_kinds_are_the_names_of_the_format():
    assert admission.kind_of(said("x")) == "user"
    assert admission.kind_of(opened("s")) == "session"


@pytest.mark.parametrize(
    ("ts", "expected"),
    [
        ("2026-11-18T01:08:30.123Z", 1_794_964_110_123),
        ("2026-11-18T01:08:30.000Z", 1_794_964_110_000),
        ("2026-11-18T01:08:30Z", 1_794_964_110_000),
        ("2026-11-18T01:08:30.123456Z", 1_794_964_110_123),
        ("2026-11-18T02:08:30.123+01:00", 1_794_964_110_123),
        ("1970-01-01T00:00:00.500Z", 500),
        ("1969-12-31T23:59:59.500Z", -500),
        ("2026-11-18T01:08:30.１２３Z", 0),
        ("2026-13-18T01:08:30.123Z", 0),
        ("2026-11-18T01:08:30.12 Z", 0),
        ("nonsense-of-24-charact.1Z", 0),
        ("", 0),
    ],
)
def test_times_in_every_form_give_the_same_milliseconds(ts, expected):
    assert session.milliseconds(ts) == expected

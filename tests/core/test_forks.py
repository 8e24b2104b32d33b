"""What a fork takes over: the model sees the same, whether the whole past was copied or only what counts."""

from hypothesis import given, settings
from msgspec.structs import replace

from turnlog.core import admission, atoms, forks, history, matching, session
from turnlog.core.entries import (
    MESSAGES,
    Assistant,
    Compaction,
    Origin,
    Pin,
    Rewind,
    Shortened,
    Status,
    Title,
    ToolResult,
    User,
)
from turnlog.core.marks import live_path, marks_of, on_path
from turnlog.core.matching import PlacedSession, Words
from turnlog.core.path import of_log, said_before, summary_of_source
from turnlog.core.survey import survey
from turnlog.testing import answered, opened, said

from .simulation import Simulation, shaping, steps

SUMMARY = Compaction(summary="They met.", first_kept=4, covers=(2, 3), tokens_before=900, tokens_after=100)
CALL = {"type": "tool_use", "id": "c1", "name": "read", "input": {}}


def log_of(*bodies):
    return [replace(body, seq=n, ts=body.ts or f"t{n}") for n, body in enumerate((opened("s1"), *bodies), 1)]


def fork_of(log, past):
    origin = Origin(id="s1", seq=log[-1].seq, compaction=past.compaction.seq, copied=past.last)
    return stored([replace(opened("s2"), forked_from=origin), *past.entries])


def stored(bodies, row=None, log=()):
    """As a store would take them."""
    admission.admit(row, bodies, leased=True)
    return [*log, *(replace(body, seq=n, ts=body.ts or "new") for n, body in enumerate(bodies, len(log) + 1))]


def live(log):
    path = live_path(marks_of(log), log[-1].seq)
    return [entry for entry in log if on_path(entry.seq, path)]


def words(messages):
    return [(type(entry), entry.content) for entry in messages]


def check(log):
    past = forks.cut(log)
    if past is None:
        view = survey(log)
        assert view.compaction is None or view.plain_to
        return
    fork = fork_of(log, past)
    ours, theirs = history.build(fork), history.build(log)
    assert (ours.system, ours.messages) == (theirs.system, theirs.messages)
    row = session.describe(None, fork)
    assert row.compactions == 1
    again = forks.whole_again(forks.before_summary(log, past.compaction), fork, row.last_seq + 2)
    whole = stored([Rewind(to=1), *again], row, fork)
    assert survey(whole).compaction is None
    said = [entry for entry in forks.live_entries(forks.with_words(log)) if isinstance(entry, MESSAGES)]
    assert words(entry for entry in live(whole) if isinstance(entry, MESSAGES)) == words(said)
    held = {entry.seq for entry in live(whole) if isinstance(entry, MESSAGES)}
    assert all(mark.at in held for mark in marks_of(whole[len(fork) :]) if mark.kind == "pin")


@settings(max_examples=200)
@given(steps)
def test_a_fork_of_what_counts_shows_what_a_whole_copy_would_show(found):
    check(Simulation().run(found).log)


@settings(max_examples=200)
@given(shaping)
def test_rewinds_pins_and_undone_compactions_are_taken_over_as_they_count(found):
    check(Simulation().run(found).log)


def test_a_cut_past_says_where_everything_is_now():
    log = log_of(
        *(User(content="one"), Assistant(content="First."), User(content="two"), Assistant(content=[CALL])),
        *(ToolResult(tool_use_id="c1", content="x" * 900), Assistant(content="Second."), Pin(target=2), SUMMARY),
        *(Shortened(targets=(6,), limit=20), Shortened(targets=(2,), limit=9)),
    )
    past = forks.cut(log, Title(title="A talk"))
    kinds = [type(entry).__name__ for entry in past.entries]
    assert kinds == [
        *(
            "Title",
            "User",
            "Compaction",
            "User",
            "Assistant",
            "ToolResult",
            "Assistant",
            "Shortened",
            "Shortened",
            "Pin",
        )
    ]
    assert past.numbers[6] == 7
    assert past.entries[7].targets == (7,)
    assert past.entries[-1].target == 3
    folded = past.entries[2]
    assert (folded.first_kept, folded.covers, folded.tokens_before - folded.tokens_after) == (4, (1, 3), 800)
    assert folded.tokens_after < 100, "the tail is counted with its own entries"
    assert session.describe(None, fork_of(log, past)).title == "A talk"


def test_a_pin_stays_when_the_originals_come_back():
    log = log_of(User(content="one"), Assistant(content="First."), User(content="two"), Pin(target=2), SUMMARY)
    fork = fork_of(log, past := forks.cut(log))
    again = forks.whole_again(forks.before_summary(log, past.compaction), fork, len(fork) + 2)
    assert [entry.content for entry in again[:3]] == ["one", "First.", "two"]
    assert again[3:] == [Pin(target=len(fork) + 2)]


def test_the_path_of_a_fork_begins_with_what_it_left_in_its_source():
    log = log_of(
        User(content="one"), Assistant(content="First."), User(content="two"), Assistant(content="2."), SUMMARY
    )
    fork = fork_of(log, forks.cut(log))
    whole = of_log("s1", log)
    before = said_before(whole, SUMMARY.first_kept)
    path = of_log("s2", fork, before)
    assert (path.keys, path.is_lost) == (whole.keys, False)
    assert path.seqs == [0, 0, 3, 4]
    assert [(end.kept, end.seq) for end in path.ends] == [(0, 1), (2, 2), (4, 4)]
    assert of_log("s2", fork).is_lost, "its source is gone"
    assert said_before(whole, 5) is None, "no turn ends before an answer"


def test_a_fork_that_went_back_to_its_beginning_needs_nothing_of_its_source():
    log = log_of(User(content="one"), Assistant(content="First."), User(content="two"), SUMMARY)
    fork = fork_of(log, forks.cut(log))
    assert summary_of_source(fork) == 2
    back = stored([Rewind(to=1), User(content="other")], session.describe(None, fork), fork)
    assert summary_of_source(back) == 0
    assert (len(of_log("s2", back).keys), of_log("s2", back).is_lost) == (1, False)
    assert summary_of_source([]) == summary_of_source(log) == 0


def test_a_request_is_not_compared_with_a_fork_whose_source_is_gone():
    log = log_of(User(content="one"), Assistant(content="First."), User(content="hi"), SUMMARY)
    path = of_log("s2", fork_of(log, forks.cut(log)))
    said = atoms.of(User(content="hi"))
    words = Words(said, [atom.key for atom in said], "", lambda n: "hi")
    one = PlacedSession(path)
    assert matching.decide([one], words, named=True).kind == "new", "the summary is not among its words"
    found = matching.decide([one], words, named=True, by_id=True)
    assert (found.kind, found.to, found.rest) == ("rewound", 1, 0)
    busy = matching.decide([PlacedSession(path, is_busy=True)], words, named=True, by_id=True)
    assert (busy.kind, busy.branch) == ("forked", -1)


def test_a_fork_in_parts_is_in_the_trash_until_it_has_all_its_copies():
    origin = Origin(id="s0", seq=6, in_parts=True)
    bodies = [replace(opened("s1"), forked_from=origin), said("a"), answered("b"), said("c"), answered("d"), said("e")]
    log = stored(bodies)
    rows = [session.describe(None, log[:end]) for end in range(1, len(log) + 1)]
    assert [row.status for row in rows] == ["trashed"] * 5 + ["inactive"]
    assert [row.lacks_copies for row in rows] == [True] * 5 + [False]
    assert [row.unfinished for row in rows] == [False] * 5 + [True]  # a restart has nothing to do in half a fork
    for row, entry, following in zip(rows, log[1:], rows[1:], strict=False):
        assert session.describe(row, [entry]) == following
    assert session.describe(rows[1], log[2:]) == rows[-1]
    trashed = Status(seq=7, value="trashed")
    assert session.describe(rows[0], [*log[1:], trashed]).status == "trashed"
    restored = [*log[:2], Status(seq=3, value="archived"), *log[3:]]
    assert (
        session.describe(None, restored).status
        == session.describe(session.describe(None, restored[:4]), restored[4:]).status
        == "archived"
    )


def test_a_fork_in_one_append_is_never_in_the_trash():
    log = stored([replace(opened("s1"), forked_from=Origin(id="s0", seq=6)), said("a")])
    assert session.describe(None, log).status == "inactive"
    alone = stored([replace(opened("s1"), forked_from=Origin(id="s0", seq=1, in_parts=True))])
    assert session.describe(None, alone).status == "inactive"

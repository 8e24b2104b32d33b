"""What became of the identifiers of each compaction, counted from the log alone."""

import pytest
from msgspec.structs import replace

from turnlog import UsageError
from turnlog.core import fidelity
from turnlog.core.entries import Assistant, Compaction, Opened, Pin, ToolResult, Undo, User

CALL = {"type": "tool_use", "id": "c1", "name": "read_file", "input": {"path": "src/deep/only_called.py"}}
TALK = (
    Opened(id="ses-1", key="agent:main:cli:direct:me", agent="main", channel="cli"),
    User(content="The invoice PAY-10442 is due on 14 March 2025."),
    Assistant(content=[{"type": "text", "text": "Reading."}, CALL]),
    ToolResult(tool_use_id="c1", content="retry = 37 seconds, see https://example.org/a/b"),
    Assistant(content="Order ORD-7731 is pinned."),
    Pin(target=5),
    User(content="Now the port of the relay is 8443, in v2.4.1."),
    Assistant(content="Noted."),
)


def log(*entries):
    return [replace(entry, seq=n, ts="2026-11-16T09:00:00.000Z") for n, entry in enumerate((*TALK, *entries), 1)]


def folded(summary, kept=7, start=2, **options):
    return Compaction(summary=summary, first_kept=kept, covers=(start, kept - 1), **options)


def test_an_identifier_is_kept_in_summary_pin_or_tail_and_otherwise_searchable():
    [one] = fidelity.report(log(folded("PAY-10442 is due.", model="openai:gpt-5", trigger="manual")))
    assert (one.seq, one.covers, one.trigger, one.active) == (9, (2, 6), "manual", True)
    # In the prompt: PAY-10442 and ORD-7731. One search away: date, tool, path, 37 seconds and URL.
    assert (one.identifiers, one.kept, one.searchable, one.lost) == (7, 2, 5, 0)
    assert 0 < one.summary_tokens < one.read_tokens
    assert one.cost is not None
    assert 0 < one.cost < 0.001


def test_what_the_previous_summary_says_counts_at_the_next_compaction():
    first = folded("PAY-10442 is due. Also mentioned: 14 March 2025; src/deep/only_called.py")
    second = folded("The relay is at 8443.", kept=10, start=7)
    later = User(content="And now?")
    one, two = fidelity.report(log(first, later, second))
    assert one.kept == 4
    assert (two.identifiers, two.kept, two.searchable, two.lost) == (5, 1, 4, 0)
    assert fidelity.report(log(first, later, second), only=two.seq) == [two]
    with pytest.raises(UsageError, match="entry 2 is not a compaction"):
        fidelity.report(log(first, later, second), only=2)


def test_what_a_search_was_asked_and_answered_does_not_count():
    call = {"type": "tool_use", "id": "c2", "name": "search_history", "input": {"words": "QX-99817"}}
    answer = ToolResult(tool_use_id="c2", content="[found in history]\n#2 user: QX-99817 and PAY-10442")
    [before] = fidelity.report(log(folded("Nothing of note.", kept=9)))
    [after] = fidelity.report(log(Assistant(content=[call]), answer, folded("Nothing of note.", kept=11)))
    assert after.identifiers == before.identifiers > 0
    assert after.lost == 0


def test_inputs_of_calls_count_as_they_are_without_the_names_of_fields():
    given = {"old_string": 'first\nsecond_name = "x"', "file": "C:\\Temp\\orca.bin"}
    call = {"type": "tool_use", "id": "c3", "name": "edit", "input": given}
    done = ToolResult(tool_use_id="c3", content="ok")
    [before] = fidelity.report(log(folded("Nothing of note.", kept=9)))
    [after] = fidelity.report(log(Assistant(content=[call]), done, folded("Nothing of note.", kept=11)))
    assert after.identifiers == before.identifiers + 2  # second_name and the path
    assert after.lost == 0


def test_a_digest_costs_no_call_and_an_unknown_model_has_no_price():
    digest, other = fidelity.report(
        log(folded("[Digest]", trigger="rescue"), Undo(target=9), folded("x", model="nosuch:1"))
    )
    assert (digest.read_tokens, digest.cost, digest.active) == (0, 0.0, False)
    assert (other.cost, other.active) == (None, True)
    assert other.read_tokens


def test_names_inside_other_words_and_many_compactions_are_looked_at(monkeypatch):
    monkeypatch.setattr(fidelity, "COMPACTIONS_MAX", 1)
    quoted = User(content='He said "the (blue) door" twice.')
    entries = log(quoted, folded("Nothing.", kept=10), folded("Still nothing.", kept=10, start=10))
    [newest] = fidelity.report(entries)
    assert newest.seq == 11
    assert newest.lost == 0

"""A log without its words, and the size of the parts in which a log is read."""

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from turnlog.core import compaction, erasing, history, paging
from turnlog.core.entries import (
    Assistant,
    Compaction,
    Facts,
    Failed,
    Foreign,
    Received,
    Title,
    ToolResult,
    User,
    kind_of,
)
from turnlog.core.outline import bare, for_erasing
from turnlog.testing import answered, opened, said

SECRET = "the words"
RESULTS = [
    {"type": "tool_result", "tool_use_id": "c1", "content": SECRET},
    {"type": "tool_result", "tool_use_id": 5, "content": SECRET},
    {"type": "text", "text": SECRET},
]


def log(*bodies):
    return [replace(body, seq=seq, ts="2026-01-01T00:00:00.000Z") for seq, body in enumerate(bodies, 1)]


def test_no_words_are_left_and_everything_else_is_said_as_before():
    whole = log(
        opened("s1"),
        Received(content=SECRET),
        User(from_=(2,)),
        Assistant(content=[{"type": "tool_use", "id": "c1", "name": "n", "input": {"a": SECRET}}], usage={SECRET: 1}),
        User(content=RESULTS, sender=SECRET),
        ToolResult(tool_use_id=SECRET, content=SECRET, erased=True),
        Failed(code="refused_content", reason=SECRET),
        Title(title=SECRET),
        Facts(app="a", put={"k": SECRET}),
        Foreign(raw={"a": SECRET}),
        Foreign(raw={"type": "new", "a": SECRET}, unknown={"type": "new"}),
        Compaction(summary=SECRET, first_kept=9, covers=(1, 8)),
        User(content=[{"type": "text", "text": SECRET}]),
        answered(SECRET),
    )
    outline = [bare(entry) for entry in whole]
    assert SECRET not in repr([to_builtins(entry) for entry in outline])
    assert "2026" not in repr([to_builtins(entry) for entry in outline])
    assert compaction.explain(outline) == compaction.explain(whole)
    for part in (whole, whole[:7]):
        shown = history.survey([bare(entry) for entry in part])
        assert shown.left_out == history.survey(part).left_out
        assert [entry.seq for entry in shown.tail] == [entry.seq for entry in history.survey(part).tail]
    assert [kind_of(entry) for entry in outline] == [kind_of(entry) for entry in whole]
    named = [for_erasing(entry) for entry in whole]
    assert SECRET not in repr([to_builtins(entry) for entry in named if not entry.erased])
    assert [kind_of(entry) for entry in named] == [kind_of(entry) for entry in whole]
    seqs = [entry.seq for entry in whole if entry.blank is not None]
    assert erasing.plan(named, seqs, redact=True) == erasing.plan(whole, seqs, redact=True)


@pytest.mark.parametrize(("most", "size", "expected"), [(1_000, 1_000, [64, 36]), (40, 1_000, [40, 40, 20])])
def test_batches_have_the_size_of_a_page(monkeypatch, most, size, expected):
    monkeypatch.setattr(paging, "PAGE_ENTRIES", most)
    monkeypatch.setattr(paging, "PAGE_BYTES", 64 * paging.weight(said("a" * size)))
    entries = [said("a" * size) for _ in range(100)]
    assert list(map(len, paging.batches(entries))) == expected
    assert [entry for batch in paging.batches(entries) for entry in batch] == entries
    assert list(paging.batches([])) == []


def test_the_next_page_shrinks_with_the_largest_entry_and_grows_by_four():
    small, large = said("a"), said("a" * paging.PAGE_BYTES * 2)
    assert paging.next_count([small] * 3) == 12
    assert paging.next_count([small] * 900) == paging.PAGE_ENTRIES
    assert paging.next_count([small, large]) == 1

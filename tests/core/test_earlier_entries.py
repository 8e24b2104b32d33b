"""The row after a rewind: the quick way gives what the fold gives, whatever the log holds."""

import random

import pytest
from msgspec.structs import replace

from turnlog.core import earlier_entries
from turnlog.core.entries import (
    Approval,
    Assistant,
    Compaction,
    Failed,
    Foreign,
    Pin,
    Received,
    Rewind,
    ToolResult,
    Undo,
    Unpin,
    User,
)
from turnlog.core.marks import MARKS_KEPT, active
from turnlog.core.session import describe
from turnlog.testing import opened


def ts(seq):
    return f"2026-01-02T03:{seq // 60 % 60:02}:{seq % 60:02}.000Z"


def any_body(chance, row, seq):
    """Something that may follow this row, often a rewind to one of the newest entries."""
    stack = active(row.marks, row.last_seq)
    target = chance.randint(1, row.last_seq)
    near = max(1, row.last_seq - chance.randint(0, 6))
    return chance.choice(
        [
            User(content="question " * chance.randint(1, 9)),
            User(content="and this?", after=near) if chance.random() < 0.2 else User(content="short"),
            Assistant(content="answer " * chance.randint(1, 9), usage={"input_tokens": 9} if seq % 3 else None),
            Assistant(content=[{"type": "tool_use", "id": f"c{seq}", "name": "t", "input": {}}]),
            ToolResult(tool_use_id=f"c{seq - 1}", content="out"),
            Received(content="later"),
            Failed(code="provider", reason="x"),
            Foreign(raw={}),
            Approval(call=f"c{seq - 1}", state="requested"),
            Pin(target=target),
            Unpin(target=target),
            Undo(target=stack[-1].seq)
            if stack
            else Compaction(
                summary="s", first_kept=near, covers=(1, near), tokens_before=90, tokens_after=9, trigger="auto"
            ),
            *[Rewind(to=near)] * 8,
            Rewind(to=target),
            Rewind(to=near, after=target),
            Rewind(to=seq + 3),  # of a forged log
        ]
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_rewind_gives_the_row_of_the_fold(seed, monkeypatch):
    chance = random.Random(seed)
    log = [replace(opened("s"), seq=1, ts=ts(1))]
    row, quick = describe(None, log), 0

    def read(wanted):
        return [log[seq - 1] for first, last in wanted for seq in range(first, last + 1)]

    for seq in range(2, 4 * MARKS_KEPT):
        body = any_body(chance, row, seq)
        if seed % 2 and seq < 2 * MARKS_KEPT:  # so many marks that the row forgets some
            body = Pin(target=seq - 1) if seq % 2 else User(content="x")
        entries = [replace(body, seq=seq, ts=ts(seq))]
        quick += (way := earlier_entries._way_back(row, entries)) is not None and earlier_entries._decides(
            way[1], earlier_entries.weights_of(read([*way[1].leaving, *way[1].before]))
        )
        found = earlier_entries.row_after(row, entries, read, log.copy)
        with monkeypatch.context() as without:
            without.setattr(earlier_entries, "_way_back", lambda row, entries: None)
            assert found == earlier_entries.row_after(row, entries, read, log.copy)
        row = found
        log.extend(entries)
    assert quick > 5

"""Entries as lines: every kind of entry that people ask about has one."""

import pytest

from turnlog.cli.chat.transcript_view import lines_of
from turnlog.testing import entry
from turnlog.texts import words_here


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"type": "user", "content": "hi"}, "[user] hi"),
        ({"type": "assistant", "content": "hello"}, "[assistant] hello"),
        ({"type": "tool_result", "tool_use_id": "c", "content": "no", "is_error": True}, "[tool error] no"),
        (
            {
                "type": "approval",
                "state": "requested",
                "call": "c",
                "tool": "write_file",
                "why": "it changes something",
            },
            "--- asked for approval: write_file (it changes something) ---",
        ),
        (
            {"type": "approval_answer", "call": "c", "word": "approved", "by": "ann"},
            "--- approved by ann at 2026-01-01T00:00:00.000Z ---",
        ),
        ({"type": "failed", "code": "provider", "reason": "away"}, "--- failed (provider): away ---"),
        ({"type": "rewind", "to": 3}, "--- rewound to 3 ---"),
        ({"type": "undo", "target": 3}, "--- undone: 3 ---"),
        ({"type": "title", "title": "not a line"}, ""),
    ],
)
def test_an_entry_as_a_line(fields, shown):
    lines = lines_of([entry(seq=7, ts="2026-01-01T00:00:00.000Z", **fields)], words_here())
    assert lines == ([f"    7  {shown}"] if shown else [])

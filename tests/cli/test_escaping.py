"""Text from outside cannot act on a terminal, whatever it holds and however it is cut."""

import unicodedata

from hypothesis import given, settings, strategies as st

from turnlog.cli.chat.markdown import GUTTER, StreamedReply, render, split_blocks
from turnlog.cli.escaping import cut, escape, inline, pad, width
from turnlog.cli.output import table, to_json

SGR = r"\x1b\[[0-9;]*m"
nasty = st.text(
    alphabet=st.sampled_from("ab \n\t\r\x00\x07\x08\x1b\x9b\x9d\x7f[]0;H2J\u202e\u2066\u2028\ud800中é`*#|&>-")
)


@given(nasty)
def test_nothing_that_acts_is_left(text):
    safe = escape(text)
    assert not [c for c in safe if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"]
    assert not set(safe) & set("\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
    assert "\n" not in inline(text)


@given(st.text())
def test_plain_words_stay_as_they_are(text):
    if text.isprintable():
        assert escape(text) == text


def test_a_sequence_is_shown_and_not_obeyed():
    assert escape("a\x1b[2Jb") == "a␛[2Jb"
    assert escape("x\r\ny\rz") == "x\ny␍z"
    assert escape("\x9b1m\u202e\x7f") == "<U+009B>1m<U+202E>␡"


@settings(deadline=None)
@given(nasty)
def test_markdown_adds_no_control_but_colours(text):
    import re

    for line in render(text, 60):
        assert "\x1b" not in re.sub(SGR, "", line)
        assert line == "" or line.startswith(GUTTER)


def test_markdown_cannot_spell_an_escape_by_its_number():
    shown = "".join(render("&#27;[2J &#x9b;31m &#8238; `&#27;`", 80))
    assert "\x1b[2J" not in shown
    assert "\x9b" not in shown
    assert "\u202e" not in shown


def test_links_show_their_target_and_make_no_hyperlink():
    shown = "".join(render("[click](http://example.org)", 80))
    assert "http://example.org" in shown
    assert "\x1b]8" not in shown


TEXT = """# Plan

A paragraph
of two lines.

- one
- two

```py
x = 1

y = 2
```
after

| a | b |
|---|---|
| 1 | 2 |

end"""


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 9), min_size=1))
def test_an_answer_looks_the_same_however_it_was_cut_into_pieces(sizes):
    whole = StreamedReply(60)
    whole.feed(TEXT)
    pieces = StreamedReply(60)
    lines, at, n = [], 0, 0
    while at < len(TEXT):
        step = sizes[n % len(sizes)]
        pieces.feed(TEXT[at : at + step])
        lines += pieces.settled()
        at, n = at + step, n + 1
    assert lines + pieces.finish() == whole.settled() + whole.finish()


def test_a_long_block_is_settled_before_its_end_and_shown_once():
    reply = StreamedReply(40)
    lines = []
    for n in range(60):
        reply.feed(f"- item {n}\n")
        lines += reply.settled()
        assert len(reply.changing()) <= 12
    assert len(lines) > 40
    lines += reply.finish()
    assert [f"item {n}" in line for n, line in enumerate(lines)] == [True] * 60


def test_a_fence_is_one_block_whatever_is_in_it():
    blocks, rest = split_blocks("a\n\n````\n```\n\nb\n\n````\nc")
    assert blocks == ["a\n\n", "````\n```\n\nb\n\n````\n"]
    assert rest == "c"


def test_width_counts_cells():
    assert width("ab") == 2
    assert width("中文") == 4
    assert width("e\u0301") == 1
    assert cut("中文字", 5) == "中文…"
    assert cut("abc", 3) == "abc"
    assert cut("abc", 0) == ""
    assert width(pad("中", 5)) == 5


@given(st.lists(st.tuples(nasty, nasty, nasty), min_size=1), st.integers(10, 80))
def test_a_table_never_is_wider_than_its_screen(rows, room):
    assert all(width(line) <= room for line in table(rows, room))


@given(nasty)
def test_json_is_the_same_value_and_harmless(text):
    import json

    shown = to_json({"text": text})
    assert json.loads(shown) == {"text": text}
    assert shown == escape(shown)

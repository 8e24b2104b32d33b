"""Long replies in pieces: sizes in the platform's unit, fences whole, nothing lost."""

import re

import pytest
from hypothesis import given, strategies as st

from turnlog import UsageError
from turnlog.core.splitting import split

FENCES = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)


def size(text, unit):
    return {"chars": len(text), "utf16": len(text.encode("utf-16-le")) // 2, "bytes": len(text.encode())}[unit]


def bare(text):
    return "".join(text.split())


def test_what_fits_is_left_as_it_is():
    assert split("hello\n\nworld  ", 4096) == ["hello\n\nworld  "]
    assert split("x" * 40, 40) == ["x" * 40]


@pytest.mark.parametrize("text", ["", " \n\t "])
def test_nothing_to_read_makes_no_piece(text):
    assert split(text, 100) == []
    assert split(text * 100, 100) == []


def test_a_limit_without_room_is_refused():
    with pytest.raises(UsageError):
        split("x" * 100, 31)


def test_cuts_fall_at_lines_then_at_spaces():
    text = "\n".join(f"line {n} of the text" for n in range(20))
    pieces = split(text, 60)
    assert "\n".join(pieces) == text
    words = " ".join(f"word{n}" for n in range(50))
    pieces = split(words, 40)
    assert " ".join(pieces) == words


def test_a_word_longer_than_a_piece_is_cut_where_it_must_be():
    pieces = split("x" * 100, 40)
    assert [len(piece) for piece in pieces] == [40, 40, 20]


def test_sizes_count_in_the_platforms_unit():
    assert [size(piece, "utf16") for piece in split("😀" * 50, 40, "utf16")] == [40, 40, 20]
    assert [size(piece, "bytes") for piece in split("字" * 30, 40, "bytes")] == [39, 39, 12]


def test_a_fence_is_closed_and_opened_again():
    code = "\n".join(f"x = {n}  # and a remark" for n in range(12))
    pieces = split(f"See:\n```python\n{code}\n```\nThat is it.", 100)
    assert len(pieces) > 2
    for piece in pieces:
        assert size(piece, "chars") <= 100
        assert len(FENCES.findall(piece)) % 2 == 0
    assert all("```python\n" in piece for piece in pieces[:-1])
    lines = [line for piece in pieces for line in piece.split("\n") if not line.startswith("```")]
    assert lines == ["See:", *code.split("\n"), "That is it."]


def test_a_long_line_inside_a_fence_keeps_all_its_signs():
    line = "a b " * 60
    pieces = split(f"~~~\n{line}\n~~~", 64)
    assert all(len(piece) <= 64 for piece in pieces)
    assert bare("".join(piece.replace("~~~", "") for piece in pieces)) == bare(line)


def test_a_closing_line_that_is_longer_than_needed_still_fits():
    text = "```\n" + "x" * 52 + "\n" + "`" * 20 + "\nafter"
    pieces = split(text, 60)
    assert all(len(piece) <= 60 for piece in pieces)
    assert all(len(FENCES.findall(piece)) % 2 == 0 for piece in pieces)
    assert pieces[-1] == "after"


def test_marks_inside_a_fence_do_not_close_it():
    text = "````\n```\ninner\n```\n" + "y\n" * 40 + "````\n" + "z" * 30
    pieces = split(text, 60)
    assert pieces[-1] == "z" * 30 or pieces[-1].endswith("z" * 30)
    assert all(piece.startswith("````") for piece in pieces if "y" in piece)


def test_a_line_of_marks_too_long_to_be_a_fence_is_text():
    pieces = split("```" + "i" * 60 + "\n" + "text " * 20, 64)
    assert all(len(piece) <= 64 for piece in pieces)
    assert not any(piece.endswith("\n```") for piece in pieces)


def test_a_cut_does_not_part_a_sign_from_what_joins_it():
    family = "👨\u200d👩\u200d👧"
    pieces = split("a" * 30 + family * 10, 34)
    assert not any(piece.startswith(("\u200d", "\ufe0f")) or piece.endswith("\u200d") for piece in pieces)
    marks = split("e\u0301" * 40, 33)
    assert not any(piece.startswith("\u0301") for piece in marks)
    endless = split("e" + "\u0301" * 100, 33)  # no such word exists; it is cut anyway
    assert "".join(endless) == "e" + "\u0301" * 100


def test_blank_lines_at_a_cut_are_left_out():
    text = "a" * 30 + "\n" * 50 + "b" * 30
    assert split(text, 40) == ["a" * 30, "b" * 30]


@given(
    st.lists(
        st.sampled_from(
            [
                "```",
                "```py",
                "~~~",
                "````",
                "word " * 9,
                "x" * 70,
                "字" * 25,
                "😀 " * 15,
                "",
                "  - item",
                "`code`",
                "e\u0301" * 30,
            ]
        ),
        max_size=30,
    ),
    st.sampled_from(["chars", "utf16", "bytes"]),
    st.integers(32, 200),
)
def test_every_piece_fits_and_is_whole_and_no_word_is_lost(lines, unit, limit):
    text = "\n".join(lines)
    pieces = split(text, limit, unit)
    for piece in pieces:
        assert piece.strip()
        assert size(piece, unit) <= limit
    marks = str.maketrans("", "", "`~")
    without = bare("".join(pieces)).translate(marks).replace("py", "")
    assert without == bare(text).translate(marks).replace("py", "")


@pytest.mark.parametrize("sign", ["\U0001f1e9\U0001f1ea", "क्षि", "👩\u200d👩\u200d👧", "e\u0301\u0323", "한"])
def test_no_cut_falls_inside_a_visible_character(sign):
    for piece in split(sign * 60, 32, "chars"):
        assert piece == sign * (len(piece) // len(sign))

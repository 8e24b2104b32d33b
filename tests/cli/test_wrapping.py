"""Lines that are longer than the screen are broken where people would break them."""

import pytest
from hypothesis import given, strategies as st

from turnlog.cli.escaping import width
from turnlog.cli.wrapping import wrap

from .terminals import terminal

TEXTS = st.text(alphabet="ab /.,。，（）「」中文字\u0301é👍 \n", max_size=200)


@pytest.mark.parametrize(
    ("text", "room", "hang", "lines"),
    [
        ("the quick brown fox", 10, None, ["the quick", "brown fox"]),
        ("    3  [user] the quick brown fox", 20, 7, ["    3  [user] the", "       quick brown", "       fox"]),
        ("  indented words here", 12, None, ["  indented", "  words here"]),
        ("two\n\nlines", 10, None, ["two", "", "lines"]),
        ("一二三四，五六", 8, None, ["一二三", "四，五六"]),
        ("一二三（四）五", 8, None, ["一二三", "（四）五"]),
        ("用中文 and words", 8, None, ["用中文", "and", "words"]),
        ("a 0123456789abcdef b", 8, None, ["a", "01234567", "89abcdef", "b"]),
        ("👨‍👩‍👧👨‍👩‍👧", 8, None, ["👨‍👩‍👧", "👨‍👩‍👧"]),
        ("words", 3, 7, ["wor", "ds"]),
    ],
)
def test_lines_are_broken_at_blanks_and_between_chinese_characters(text, room, hang, lines):
    assert wrap(text, room, hang).split("\n") == lines


@given(TEXTS, st.integers(4, 30), st.integers(0, 10))
def test_no_line_is_wider_than_the_screen_and_nothing_but_blanks_is_lost(text, room, hang):
    broken = wrap(text, room, hang)
    assert all(width(line.rstrip()) <= room for line in broken.split("\n"))
    assert "".join(broken.split()) == "".join(text.split())


def test_help_and_history_of_a_narrow_terminal_break_no_word(tmp_path):
    said = "supercalifragilistic expialidocious extraordinarily incomprehensible words"
    with terminal("chat", home=tmp_path, columns=44) as t:
        t.prompt()
        t.say(said)
        t.say("/history")
        t.see("[user] supercalifragilistic\n       expialidocious extraordinarily\n       incomprehensible words\n")
        t.say("/help")
        t.see("/switch X              go to a session by\n                       id, key or label, or")


def test_a_narrow_terminal_shows_the_match_of_a_search_and_breaks_no_word_of_a_question(tmp_path):
    with terminal("chat", home=tmp_path, columns=60) as t:
        t.prompt()
        t.say("/new seaside animals")
        t.say("the walrus sleeps")
        t.say("/new")
        t.say("/search walrus")
        t.see("    the «walrus» sleeps")
        t.type("/delete seaside\r")
        t.see("[y/N]")
        t.see("(seaside animals) with 2\nmessages for good? [y/N]")
        t.type("n\r")
        t.see("Nothing was deleted.")

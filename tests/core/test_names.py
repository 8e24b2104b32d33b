"""Names in any script, and what is no name."""

import pytest

from turnlog.core.names import LABEL_MAX_CHARS, check_label, escaped, is_one_line, is_seen, one_line
from turnlog.core.session import TITLE_MAX_CHARS, cut_title
from turnlog.errors import UsageError

FAMILY = "👨\u200d👩\u200d👧\u200d👦"
PERSIAN = "می\u200cخواهم کتاب بخوانم"
HINDI = "क्षत्रिय की कहानी"
BENGALI = "র\u200d্যাব"
ENGLAND = "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
NAMES = [FAMILY, PERSIAN, HINDI, BENGALI, ENGLAND, "עברית\u200f!", "emoji ❤\ufe0f", "新会话", "new \U0001fadf"]
NOT_NAMES = ["a\x1b[31mb", "a\x00b", "a\u202eb", "a\u2066b", "a\u2028b", "a\x9bb", "a\ud800b"]


@pytest.mark.parametrize("name", NAMES)
def test_words_of_any_script_are_names(name):
    assert is_one_line(name)
    assert is_seen(name)
    assert one_line(f"  {name} \n") == name


@pytest.mark.parametrize("text", NOT_NAMES)
def test_what_is_not_one_line_of_text_is_no_name(text):
    assert not is_one_line(text)
    assert one_line(text).replace(" ", "") in ("ab", "a[31mb")


@pytest.mark.parametrize("text", ["", " ", "\u200d", "\u200c\u200e", "\u3000"])
def test_what_nobody_sees_is_not_seen(text):
    assert not is_seen(text)


@pytest.mark.parametrize("grapheme", [FAMILY, "क्षि", "می\u200c", ENGLAND, "e\u0301\u0323"])
@pytest.mark.parametrize("before", range(50, 62))
def test_a_title_is_never_cut_inside_a_visible_character(grapheme, before):
    title = cut_title("x" * before + grapheme * 5)
    assert len(title) <= TITLE_MAX_CHARS
    assert title.endswith("…")
    kept = title.removesuffix("…").lstrip("x")
    parts = ("می\u200c", "م") if grapheme.startswith("م") else (grapheme,)
    for part in parts:
        kept = kept.replace(part, "")
    assert kept == ""


def test_a_label_is_stored_on_one_line_or_refused():
    assert check_label(None) is None
    assert check_label(f"  {FAMILY}\t2 ") == f"{FAMILY} 2"
    for text in ("", "\u200d", "a\x1bb", "x" * (LABEL_MAX_CHARS + 1)):
        with pytest.raises(UsageError, match="one line"):
            check_label(text)


def test_a_name_with_nul_or_half_a_character_is_written_with_escapes_once():
    assert escaped("a\0b\ud800") == "a\\0b\\ud800"
    assert escaped(escaped("a\0b\ud800")) == escaped("a\0b\ud800")

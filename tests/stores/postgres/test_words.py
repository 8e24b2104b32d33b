"""What PostgreSQL indexes of a text: the words of plain texts are found a shorter way."""

import pytest
from hypothesis import example, given, strategies as st

from turnlog.core.searchable import SearchUnit
from turnlog.stores.postgres import lexemes

LONG = "x" * (lexemes.LEXEME_CHARS - 1)


PIECES = ("The", "plan", "of", LONG, "y", "zz", "7", "12", "é", "INV2041", ". ", " ", "\n", "\0")


@example([LONG, "zz", " ", "The"])
@example(["The ", LONG, "y", " ", LONG, "zz", ". "])
@given(st.lists(st.sampled_from(PIECES)))
def test_a_plain_text_gives_the_same_lexemes_the_shorter_way(pieces):
    unit = SearchUnit(0, "".join(pieces), "user", ("§75",))
    found = lexemes.words_of(unit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lexemes, "is_plain", lambda _: False)
        assert set(found.split(" ")) - {""} == set(lexemes.words_of(unit).split(" "))
    assert max(map(len, found.split(" "))) <= 2 * lexemes.LEXEME_CHARS + 1  # of a pair of numbers

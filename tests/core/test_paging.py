"""About how many bytes an entry costs."""

from enum import StrEnum

import pytest

from turnlog.core import paging
from turnlog.core.entries import User


class Word(StrEnum):
    HELLO = "hello"


@pytest.mark.parametrize(
    ("content", "size"),
    [
        ("hello", 5),
        ("höllo", 10),
        (Word.HELLO, 5),
        ([{"type": "text", "text": "hello", "n": 3, "more": {1}}], 9),
        ([{"type": "image", "data": "x" * 395}], 100),
    ],
)
def test_an_entry_weighs_its_texts(content, size):
    assert paging.weight(User(content=content)) - paging.weight(User(content="")) == size

"""One section of the settings: it is read, or the error says what is right."""

from typing import Annotated, Literal

import pytest
from msgspec import Meta, Struct

from turnlog.core import sections
from turnlog.errors import UsageError


class Sheep(Struct, frozen=True):
    legs: Annotated[int, Meta(ge=1)] = 4
    colour: Literal["white", "black"] | None = None
    names: tuple[str, ...] = ()


def read(values, **origins):
    return sections.read(
        "sheep", values, Sheep, page="docs/sheep.md", origins={f"sheep.{k}": v for k, v in origins.items()}
    )


def test_values_are_read_and_texts_become_numbers():
    assert read({"legs": "3", "colour": "black", "names": ["Dolly"]}) == Sheep(3, "black", ("Dolly",))
    assert read({}) == Sheep()


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        ({"leg": 3}, "unknown setting 'sheep.leg'", "Did you mean 'sheep.legs'?"),
        (
            {"legs": "many"},
            "sheep.legs (config.toml) has the wrong form: Expected `int`",
            "Correct sheep.legs; see docs/sheep.md.",
        ),
        (
            {"legs": 0},
            "sheep.legs (config.toml) has the wrong form: Expected `int` >= 1",
            "Correct sheep.legs; see docs/sheep.md.",
        ),
        ({"colour": "blue"}, "sheep.colour has the wrong form", "Use one of white, black; see docs/sheep.md."),
        ({"names": [1]}, "sheep.names has the wrong form", "Correct sheep.names; see docs/sheep.md."),
    ],
)
def test_a_wrong_value_is_named_with_its_origin_and_what_is_right(values, message, hint):
    with pytest.raises(UsageError) as caught:
        read(values, legs="config.toml")
    assert message in str(caught.value)
    assert caught.value.hint == hint


def test_a_name_that_is_like_no_other_is_answered_with_all():
    assert sections.unknown("animal", "qqq", ["sheep", "wolf"]).hint == "Known: sheep, wolf."


@pytest.mark.parametrize("data", [b"[tools\n", b"name = '\xff'"])
def test_a_file_that_is_not_toml_is_named(data):
    assert sections.tables("config.toml", b"[tools]\nallow = ['x']") == {"tools": {"allow": ["x"]}}
    with pytest.raises(UsageError, match=r"config\.toml cannot be read"):
        sections.tables("config.toml", data)

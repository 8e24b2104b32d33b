"""Functions as tools: what the model is told of them, and what reaches them."""

import base64
import dataclasses
import enum
import functools
import json
import threading
from typing import Annotated, Any, Literal, Optional, TypedDict

import jsonschema
import msgspec
import pytest

from turnlog.core.history import NO_OUTPUT
from turnlog.errors import UsageError
from turnlog.tools import Context, Toolbox, tool

from .contexts import context, run


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct):
    """A place."""

    x: int
    next: Optional["Point"] = None


@dataclasses.dataclass
class Order:
    item: str
    count: int = 1


class Address(TypedDict):
    street: str


SCHEMAS = [
    (str, {"type": "string"}, "a", 5),
    (int, {"type": "integer"}, 5, "five"),
    (float, {"type": "number"}, 1.5, "x"),
    (bool, {"type": "boolean"}, True, "maybe"),
    (None, {"type": "null"}, None, 1),
    (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, "x"),  # noqa: UP045 - as users write it
    (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "a", []),
    (Literal["a", "b"], {"enum": ["a", "b"]}, "b", "c"),
    (Colour, {"title": "Colour", "enum": ["blue", "red"]}, "red", "green"),
    (list[int], {"type": "array", "items": {"type": "integer"}}, [1, 2], [1, "x"]),
    (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1}, {"a": "x"}),
    (tuple[int, str], None, [1, "a"], [1]),
    (Annotated[int, msgspec.Meta(ge=1, le=9)], {"type": "integer", "minimum": 1, "maximum": 9}, 9, 10),
    (Point, None, {"x": 1, "next": {"x": 2}}, {"x": 1, "next": {"y": 2}}),
    (Order, None, {"item": "tea"}, {"count": 2}),
    (Address, None, {"street": "s"}, {}),
    (list[Point], None, [{"x": 1}], [{}]),
    (Any, {}, {"a": [1]}, None),
]


@pytest.mark.parametrize(("hint", "expected", "good", "bad"), SCHEMAS, ids=lambda value: str(value)[:30])
def test_a_hint_becomes_a_valid_schema_that_accepts_what_the_function_accepts(hint, expected, good, bad):
    def probe(value):
        return type(value).__name__

    probe.__annotations__ = {"value": hint, "return": str}
    made = tool(probe)
    schema = made.spec.input_schema
    jsonschema.Draft202012Validator.check_schema(schema)
    shown = schema["properties"]["value"]
    if expected is not None:
        target = schema["$defs"][shown["$ref"].rpartition("/")[2]] if "$ref" in shown else shown
        assert target == expected
    assert schema["required"] == ["value"]
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid({"value": good})
    assert not run([made], "probe", {"value": good}).is_error
    if bad is not None:
        assert not validator.is_valid({"value": bad})
        result = run([made], "probe", {"value": bad})
        assert result.is_error
        assert "value" in result.content


def test_values_arrive_as_the_types_of_the_hints():
    seen = []

    def take(point: Point, order: Order, colour: Colour, pair: tuple[int, str], n: int):
        seen.extend([point, order, colour, pair, n])

    given = {
        "point": {"x": 1, "next": {"x": 2}},
        "order": {"item": "tea"},
        "colour": "blue",
        "pair": [1, "a"],
        "n": "7",  # models write numbers as text
    }
    assert run([take], "take", given).content == NO_OUTPUT
    assert seen == [Point(1, Point(2)), Order("tea", 1), Colour.BLUE, (1, "a"), 7]


def test_defaults_are_not_required_and_stay_the_functions_own():
    kept = [1]

    def take(a: str, b: int = 3, c: list[int] = kept, d: int = None, e: Colour = Colour.RED, f=object()):  # noqa: B008, RUF013, as people write it
        return [a, b, c is kept, d, e]

    made = tool(take)
    schema = made.spec.input_schema
    assert schema["required"] == ["a"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["b"] == {"type": "integer", "default": 3}
    assert schema["properties"]["c"]["default"] == [1]
    assert "default" not in schema["properties"]["d"]
    assert schema["properties"]["e"]["default"] == "red"
    assert "default" not in schema["properties"]["f"]
    assert json.loads(run([made], "take", {"a": "x"}).content) == ["x", 3, True, None, "red"]
    assert json.loads(run([made], "take", {"a": "x", "d": None, "b": 4}).content)[1] == 4


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ["missing", "city", "The fields are: city, days (optional)"]),
        ({"city": 5}, ["Expected `str`, got `int`", "$.city"]),
        ({"city": "x", "days": "many"}, ["Expected `int`", "$.days"]),
        ({"city": "x", "town": 1}, ["unknown field", "town"]),
    ],
)
def test_a_bad_input_is_a_result_that_names_the_field_and_what_is_expected(given, words):
    def weather(city: str, days: int = 1) -> str:
        return "sunny"

    result = run([weather], "weather", given)
    assert result.is_error
    assert all(word in result.content for word in words)


def test_descriptions_come_from_annotations_and_docstrings():
    def google(city: str, days: int = 1, unit: Annotated[str, "C or F"] = "C"):
        """Tell the weather
        of a place.

        More that the model is not told.

        Args:
            city: where, with
                its country: exactly
            days (int): how many
            unit: not this one

        Returns:
            city: nonsense
        """

    def sphinx(city: str, days: int):
        """Tell the weather.

        :param city: where
        :param int days: how many,
            at most 9
        :returns: text
        """

    spec = tool(google).spec
    assert spec.description == "Tell the weather of a place."
    shown = {name: field.get("description") for name, field in spec.input_schema["properties"].items()}
    assert shown == {"city": "where, with its country: exactly", "days": "how many", "unit": "C or F"}
    spec = tool(sphinx).spec
    assert spec.description == "Tell the weather."
    shown = {name: field.get("description") for name, field in spec.input_schema["properties"].items()}
    assert shown == {"city": "where", "days": "how many, at most 9"}
    assert tool(sphinx, description="Other").spec.description == "Other"
    assert tool(lambda: 1, name="plain").spec.description == ""


def test_the_context_is_handed_over_and_not_shown():
    def who(prefix: str, ctx: Context):
        return f"{prefix} {ctx.session_id} {ctx.agent}"

    made = tool(who)
    assert list(made.spec.input_schema["properties"]) == ["prefix"]
    assert run([made], "who", {"prefix": "in"}).content == "in ses-1 main"
    assert run([made], "who", {"prefix": "in", "ctx": {}}).is_error


def test_a_decorator_with_and_without_arguments_makes_a_tool():
    @tool
    def one() -> str:
        return "1"

    @tool(name="zwei", parallel=True, timeout_s=3)
    def two() -> str:
        return "2"

    assert (one.spec.name, one.parallel) == ("one", False)
    assert (two.spec.name, two.parallel, two.timeout_s) == ("zwei", True, 3)
    assert run([two], "zwei").content == "2"


def test_async_functions_methods_partials_and_callable_objects_are_tools_too():
    class Shop:
        def __init__(self):
            self.stock = 4

        def count(self, extra: int) -> int:
            return self.stock + extra

        async def __call__(self, extra: int) -> int:
            return self.stock - extra

    async def double(n: int) -> int:
        return n * 2

    box = Toolbox(
        [
            Shop().count,
            tool(Shop(), name="less"),
            double,
            tool(functools.partial(double, n=5), name="ten"),
        ]
    )
    assert run(box, "count", {"extra": "1"}).content == "5"
    assert run(box, "less", {"extra": "1"}).content == "3"
    assert run(box, "double", {"n": 2}).content == "4"
    assert run(box, "ten").content == "10"


def test_a_plain_function_runs_in_a_thread_of_its_own():
    def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert run([where], "where").content == "false"


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
RETURNED = [
    ("grüße 灯塔 \x00", "grüße 灯塔 \x00"),
    ("", ""),
    (None, NO_OUTPUT),
    (3, "3"),
    (True, "true"),
    ({"a": [1, None]}, '{"a": [1, null]}'),
    ([], "[]"),
    (Point(1), '{"x": 1, "next": null}'),
    (Order("茶"), '{"item": "茶", "count": 1}'),
    ({1: Colour.RED}, '{"1": "red"}'),
    ([{"type": "refund", "id": 3}], '[{"type": "refund", "id": 3}]'),
    ([{"type": "text", "text": "a"}, PICTURE], [{"type": "text", "text": "a"}, PICTURE]),
    (functools, str(functools)),
]


@pytest.mark.parametrize(("value", "content"), RETURNED, ids=lambda value: str(value)[:20])
def test_what_a_function_returns_becomes_content(value, content):
    def give():
        return value

    result = run([give], "give")
    assert not result.is_error
    assert result.content == (json.dumps(content) if value is functools else content)


@pytest.mark.parametrize(
    "source",
    [
        {"type": "base64", "media_type": "image/png", "data": "bm90IGEgcGljdHVyZQ=="},
        {"type": "base64", "media_type": "image/png", "data": "%%%"},
        {"type": "base64", "media_type": "image/png", "data": PNG * 100_000},
    ],
)
def test_a_picture_that_a_provider_would_refuse_becomes_a_note(source):
    result = run([tool(lambda: [{"type": "image", "source": source}], name="draw")], "draw")
    assert result.content[0]["type"] == "text"
    assert "left out" in result.content[0]["text"]


def test_a_pictures_kind_is_what_its_bytes_say():
    source = {"type": "base64", "media_type": "image/tiff", "data": PNG}
    result = run([tool(lambda: [{"type": "image", "source": source}], name="draw")], "draw")
    assert result.content == [PICTURE]


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBP", "image/webp"),
    ],
)
def test_the_other_kinds_of_pictures_are_known_too(head, kind):
    source = {"type": "base64", "data": base64.b64encode(head + b"\0" * 20).decode()}
    result = run([tool(lambda: [{"type": "image", "source": source}], name="draw")], "draw")
    assert result.content[0]["source"]["media_type"] == kind


class Custom:
    pass


def star(*names: str): ...
def stars(**names: str): ...
def positional(a: int, /): ...
def custom(a: Custom): ...
def undecidable(a: Point | Address): ...
def unknown(a: "Nowhere"): ...  # noqa: F821 - the test needs it


@pytest.mark.parametrize("function", [star, stars, positional, custom, undecidable, unknown, lambda: 1])
def test_what_no_schema_can_describe_is_refused_when_the_tool_is_made(function):
    with pytest.raises(UsageError) as refused:
        tool(function)
    assert refused.value.hint != UsageError.hint


@pytest.mark.parametrize("name", ["with space", "a" * 65, "dots.are.not", "ümlaut"])
def test_a_name_that_providers_refuse_is_refused(name):
    with pytest.raises(UsageError):
        tool(star, name=name)


def test_a_name_with_a_hyphen_is_fine():
    assert run([tool(lambda: "x", name="a-b")], "a-b", known=context()).content == "x"

"""Arguments and fields are checked against their annotations."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol, TypeVar

import pytest
from msgspec import Struct

from turnlog import UsageError
from turnlog.core import kinds
from turnlog.core.arguments import LEARNED_MAX, Named, Typed, checked, fit_of
from turnlog.sessions.checking import checked_async, checked_methods

T = TypeVar("T")


class Walks(Protocol):
    def walk(self) -> None: ...


class Dog:
    def walk(self):
        return None


class Cat:
    """Walks only if somebody has trained it."""


def trained():
    cat = Cat()
    cat.walk = lambda: None
    return cat


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        (Any, [1, None], []),
        (object, [1, None], []),
        (T, [1], []),
        (None, [None], [0]),
        (str, ["x"], [5, b"x", None]),
        (int, [5], [True, "5", 5.0, 2**80]),
        (float, [5, 5.5], [True, "5", float("nan"), float("inf")]),
        (bool, [True], [1, "true"]),
        (str | None, ["x", None], [5]),
        (int | str | None, ["x", 5, None], [b"x", True]),
        (Walks | None, [Dog(), trained(), None], [5, Cat()]),
        (Literal["a", 1], ["a", 1], ["b", True, ["a"]]),
        (list[str], [["x"], []], [["x", 5], ("x",), "x"]),
        (Sequence[int], [[1], (1,)], ["12", b"12", {1}, [None]]),
        (tuple[int, ...], [(), (1, 2)], [[1], ("x",)]),
        (tuple[int, str], [(1, "x")], [(1,), (1, 2), [1, "x"]]),
        (dict[str, Any], [{"a": 1}], [{1: 1}, [("a", 1)]]),
        (Mapping[str, int], [{"a": 1}], [{"a": "x"}]),
        (Callable[[int], None], [print], [5]),
        (Annotated[int, "why"], [5], ["5"]),
        (frozenset[str], [frozenset("x")], [{"x"}]),
        (Walks, [Dog()], [5]),
        ("not resolved", [1], []),
    ],
)
def test_a_value_fits_what_its_annotation_says(kind, right, wrong):
    fits = kinds.matcher(kind)
    assert [value for value in right if not fits(value)] == []
    assert [value for value in wrong if fits(value)] == []
    assert kinds.name_of(kind)
    whole = kinds.whole_classes(kind)
    assert [value for value in wrong if type(value) in whole] == []


@pytest.mark.parametrize(
    ("kind", "whole"),
    [
        (str, {str}),
        (None, {type(None)}),
        (str | Dog | None, {str, Dog, type(None)}),
        (int | str, {str}),
        (Annotated[str, "why"], {str}),
        (Walks, set()),
        (list[str], set()),
        (Literal["a"], set()),
        (Any, set()),
    ],
)
def test_a_class_is_known_to_fit_only_if_all_its_values_do(kind, whole):
    assert kinds.whole_classes(kind) == whole


@pytest.mark.parametrize("kind", [Walks, Walks | Literal["own"] | None])
def test_a_class_that_has_all_of_a_protocol_is_learned_and_one_whose_objects_may_lack_it_is_not(kind):
    classes, fits = fit_of(kind)
    assert Dog not in classes
    assert [fits(value) for value in (Dog(), trained(), Cat(), Dog())] == [True, True, False, True]
    assert Dog in classes
    assert Cat not in classes
    assert str not in classes


def test_only_so_many_classes_are_learned():
    classes, fits = fit_of(Walks)
    for n in range(2 * LEARNED_MAX):
        assert fits(type(f"Dog{n}", (Dog,), {})())
    assert len(classes) == LEARNED_MAX


@checked
def plain(name: str, /, count: int = 1, *rest: str, loud: bool = False, **more: Any) -> str:
    return name * count


@checked_async
async def later(name: str, *, count: int) -> str:
    return name * count


@checked_methods
class Thing:
    def __init__(self, name: str) -> None:
        self.name = name

    def said(self, to: str = "you") -> str:
        return self._joined(to)

    def _joined(self, to: Any) -> str:
        return f"{self.name} {to}"

    async def nothing(self) -> None:
        return None


def test_right_arguments_are_passed_on():
    assert plain("x", 2, "a", loud=True, more=5) == "xx"
    assert asyncio.run(later("x", count=3)) == "xxx"
    assert Thing("x").said(to="y") == "x y"
    assert Thing("x")._joined(5) == "x 5"
    assert asyncio.run(Thing("x").nothing()) is None


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: plain(5), "plain: name is 5"),
        (lambda: plain(), "needs name"),
        (lambda: plain("x", 1, 5), "rest is 5"),
        (lambda: plain("x", 1, count=2), "'count' twice"),
        (lambda: plain("x", loud="yes"), "loud is 'yes'"),
        (lambda: asyncio.run(later("x", "y", count=1)), "at most 1 values"),
        (lambda: asyncio.run(later("x", count=1, nosuch=1)), "no use for 'nosuch'"),
        (lambda: asyncio.run(later("x", count="y" * 100)), "…"),
        (lambda: Thing(5), "Thing.__init__: name is 5"),
        (lambda: Thing("x").said(5), "Thing.said: to is 5"),
        (lambda: asyncio.run(Thing("x").nothing(1)), "Thing.nothing takes at most 0"),
    ],
)
def test_a_wrong_argument_is_a_usage_error_that_names_it(call, told):
    with pytest.raises(UsageError, match=told) as raised:
        call()
    assert raised.value.hint


class Place(Struct, metaclass=Typed, frozen=True):
    name: str
    size: int = 0


class Note(Struct, metaclass=Named, frozen=True, kw_only=True):
    text: str


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Place(), "Missing required argument 'name'"),
        (lambda: Place("x", "y"), "Place.size is 'y'"),
        (lambda: Place(name="x", nosuch=1), "nosuch"),
        (lambda: Note("x"), "positional"),
    ],
)
def test_a_value_that_is_made_wrongly_is_a_usage_error(make, told):
    with pytest.raises(UsageError, match=told):
        make()


def test_a_value_that_is_made_rightly_is_made():
    assert (Place("x", 5).size, Place("x").size, Note(text=5).text) == (5, 0, 5)


def test_every_call_is_checked_however_many_forms_of_calls_there_are():
    for number in range(100):
        assert plain("x", 2, "y", **{f"other{number}": number})
        with pytest.raises(UsageError, match="count"):
            plain("x", "2", "y", **{f"other{number}": number})

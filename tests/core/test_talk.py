"""Plain talk is stored without the general checks: the result must be what those checks give."""

import enum
import random

import pytest

from turnlog.codecs import native
from turnlog.core import talk, wellformed
from turnlog.core.entries import Assistant, Title, ToolResult, User
from turnlog.errors import UsageError

TEXTS = ("hi", "", "héé 缓存 😀", 'a "quoted" \\ text\n', ",1.0, [2.0] {3.0}", "\x00\x1f", "[" * 300, "x" * 5000)
USAGES = (None, {}, {"input_tokens": 3, "output_tokens": 0}, {"n": -(2**63)}, {"n": 2**64 - 1}, {"1.0": 1})
RAWS = (
    None,
    {},
    [],
    "words",
    1.0,
    {"google_adk": {"content": {"parts": [], "role": "user"}, "timestamp": 1794975413.923065, "id": "e1"}},
    {"of": {"counts": [{"n": 1, "of": None}, {"n": -1.5}], "whole": [1.0, 2.0, -0.0], "large": [2**64 - 1, 1e300]}},
    {",1.0,": {"b": True, "a": False, "": {"[2.0]": "3.0"}}},
    [[[[[["deep"]]]]]],
)


def text(value):
    return {"type": "text", "text": value}


def plain_entries():
    choose = random.Random(5)
    for _ in range(300):
        common = {"seq": choose.choice((0, 1, 2**63 - 1)), "ts": choose.choice(("", "2026-01-01T00:00:00.000Z"))}
        one, other = choose.choice(TEXTS), choose.choice((None, *TEXTS))
        common["raw"] = choose.choice(RAWS)
        asked = choose.choice((one, [text(one)]))
        yield User(content=asked, sender=other, message_id=other, dedupe_id=choose.choice((None, "d")), **common)
        content = choose.choice((one, [], [text(one)], [text(one), text("more")]))
        yield Assistant(
            content=content, model=other, stop=choose.choice((None, "end")), usage=choose.choice(USAGES), **common
        )


def general(monkeypatch):
    """From here on nothing counts as plain."""
    for module in (wellformed, native):
        monkeypatch.setattr(module, "is_plain_talk", lambda entry: False)


def test_plain_entries_are_accepted_and_written_as_by_the_general_checks(monkeypatch):
    entries = list(plain_entries())
    assert all(map(talk.is_plain_talk, entries))
    stored = [native.encode_stored(entry, until) for entry in entries for until in (None, 7)]
    appended = [native.encode_append(entries[n : n + 3]) for n in range(0, len(entries), 3)]
    general(monkeypatch)
    assert [wellformed.accepted(entry) for entry in entries] == entries
    assert stored == [native.encode_stored(entry, until) for entry in entries for until in (None, 7)]
    assert appended == [native.encode_append(entries[n : n + 3]) for n in range(0, len(entries), 3)]
    assert [native.decode(line) for line in stored[::2]] == entries


class Word(enum.StrEnum):
    TEXT = "text"


class Loud(str):
    __slots__ = ()


class Number(enum.IntEnum):
    ONE = 1


NESTED = []
NESTED.append(NESTED)


@pytest.mark.parametrize(
    "entry",
    [
        User(),
        User(content=[{**text("a"), "cache_control": {}}]),
        User(content=(text("a"),)),
        User(content="a", from_=(1,)),
        User(content="a", after=1),
        User(content="a", raw=[[[[[[["deep"]]]]]]]),
        User(content="a", raw=[[[[[[{"deep": 1}]]]]]]),
        User(content="a", raw=NESTED),
        User(content="a", raw=float("nan")),
        User(content="a", raw={"n": [float("inf")]}),
        User(content="a", raw={"n": 2**64}),
        User(content="a", raw={"n": Number.ONE}),
        User(content="a", raw={"n": (1,)}),
        User(content="a", raw={"n": b"1"}),
        User(content="a", raw={"n": Loud("a")}),
        User(content="a", raw={1: "a"}),
        User(content="a", raw=[{Loud("n"): 1}]),
        User(content="a", unknown={"new": 1}),
        User(content="a", erased=True),
        User(content="a", seq=-1),
        User(content="a", seq=True),
        User(content="a", seq=2**63),
        User(content="a", ts=None),
        User(content="a", sender=5),
        User(content="a", message_id=5),
        User(content="a", dedupe_id=b"d"),
        User(content="a", from_=None),
        User(content=Loud("a")),
        User(content="a", sender=Word.TEXT),
        Assistant(content=None),
        Assistant(content=(text("a"),)),
        Assistant(content=[text(Loud("a"))]),
        Assistant(content=[{"type": "text", "text": None}]),
        Assistant(content=[{"type": "text", "text": "a", "citations": []}]),
        Assistant(content=[{"type": "tool_use", "id": "c"}]),
        Assistant(content=["a"]),
        Assistant(content="a", model=5),
        Assistant(content="a", stop=Word.TEXT),
        Assistant(content="a", usage=[]),
        Assistant(content="a", usage={"n": 1.0}),
        Assistant(content="a", usage={"n": True}),
        Assistant(content="a", usage={"n": Number.ONE}),
        Assistant(content="a", usage={"n": 2**64}),
        Assistant(content="a", usage={"n": None}),
        Assistant(content="a", usage={"n": {}}),
        Assistant(content="a", usage={1: 1}),
        ToolResult(tool_use_id="c", content="a"),
        Title(title="a", by="user"),
        {"type": "user", "content": "a"},
        None,
    ],
    ids=repr,
)
def test_anything_unusual_is_not_plain(entry):
    assert not talk.is_plain_talk(entry)


def test_plain_texts_with_lone_surrogates_are_written_as_by_the_general_checks(monkeypatch):
    entries = [User(content="half \ud83d", seq=1), User(content="two \ud83d\ude00", seq=2)]
    entries += [User(content="a", raw={"\ud83d": "\ud83d"}, seq=3)]
    stored = [native.encode_stored(entry) for entry in entries]
    general(monkeypatch)
    assert stored == [native.encode_stored(entry) for entry in entries]
    assert [native.decode(line).content for line in stored] == ["half \ud83d", "two 😀", "a"]


def test_a_plain_text_that_is_too_long_is_refused(monkeypatch):
    monkeypatch.setattr(native, "ENTRY_MAX_BYTES", 100)
    with pytest.raises(UsageError, match="the limit is 100"):
        native.encode_stored(User(content="x" * 100, seq=1))


def test_every_field_of_a_plain_entry_is_looked_at():
    """A new field must be added to `is_plain_talk`, and here."""
    common = {"seq", "ts", "after", "unknown", "raw", "erased"}
    assert set(User.__struct_fields__) == common | {"content", "message_id", "dedupe_id", "sender", "from_"}
    assert set(Assistant.__struct_fields__) == common | {"content", "model", "usage", "stop"}


def test_a_block_whose_type_is_of_another_class_is_refused_alone():
    class Kind(str):
        pass

    entry = Assistant(content=[{"type": Kind("text"), "text": "hi"}])
    assert not talk.is_plain_talk(entry)
    with pytest.raises(UsageError):
        native.encode_stored(entry)

"""Which values hold words that are to be erased."""

import json
from base64 import b64encode

import pytest

from turnlog.sessions.holding import holds, repeats

NAME = "Zoë Müller"
COMPOSED_APART = "Zoe\u0308 Mu\u0308ller"


@pytest.mark.parametrize(
    "value",
    [
        NAME,
        COMPOSED_APART,
        NAME.upper(),
        json.dumps({"name": NAME}),
        json.dumps(json.dumps([COMPOSED_APART])),
        {"$bytes": b64encode(json.dumps([NAME]).encode()).decode()},
        [{"deep": [NAME]}],
        {NAME: 1},
    ],
)
def test_a_name_is_found_however_it_is_written(value):
    assert holds({"type": "user", "value": value}, NAME)
    assert holds(value, COMPOSED_APART)
    assert not holds(value, "Zoë Möller")


@pytest.mark.parametrize("text", ["line 1\nline 2", 'says "no"', "C:\\temp\\new", "😀 hi", "a/b"])
def test_a_text_is_found_in_json_that_is_kept_as_a_text(text):
    assert holds(text, text)
    assert holds(json.dumps({"said": text}), text)
    assert holds(json.dumps({"said": text}, ensure_ascii=False).replace("/", "\\/"), text)


def packed(data):
    return {"$bytes": b64encode(data).decode()}


@pytest.mark.parametrize("length", [3, 31, 32, 255, 256, 70_000])
def test_a_whole_text_is_found_in_bytes_after_its_length(length):
    msgpack = pytest.importorskip("ormsgpack")
    text = "yes" + "x" * (length - 3)
    assert repeats(packed(msgpack.packb({"content": text, "id": 1})), {text})
    assert not repeats(packed(msgpack.packb({"content": f"{text} or no", "id": 1})), {text})
    assert repeats({"content": text}, {"other", text})
    assert not repeats({"content": f"{text} or no"}, {text})


def test_bytes_that_are_none_are_a_text():
    assert holds({"$bytes": "not base64!"}, "base64!")

"""JSON from outside: nothing is coerced, and half a character is text."""

import msgspec
import pytest

from turnlog.core import strict_json


def test_a_lone_surrogate_is_text_in_bytes_and_in_strings():
    assert strict_json.decode(rb'{"a": "x\ud800"}') == {"a": "x\ud800"}
    assert strict_json.decode(r'["\udc00"]', list[str]) == ["\udc00"]
    assert strict_json.decode(rb'"\ud83d\ude00"', str) == "😀"


@pytest.mark.parametrize(("body", "kind"), [(b"0", bool), (b'"true"', bool), (b'"5"', int), (b"5", str), (b"1.5", int)])
def test_a_value_of_another_type_is_refused(body, kind):
    with pytest.raises(msgspec.ValidationError):
        strict_json.decode(body, kind)


@pytest.mark.parametrize(
    "body", [b"", b"{", b'"\xff"', b"[" * 100_000, b'["\\ud800", NaN]', '"\\ud800"'.encode("utf-16"), b'"\\ud800'[:-1]]
)
def test_what_is_no_json_is_a_decode_error(body):
    with pytest.raises(msgspec.DecodeError):
        strict_json.decode(body)


@pytest.mark.parametrize("body", [rb'{"n": 1, "\ud800": 2}', rb'{"n": "\ud800"}', rb'{"\ud800": true, "n": 1}'])
def test_half_a_character_where_no_text_belongs_is_refused(body):
    class Numbers(msgspec.Struct, forbid_unknown_fields=True):
        n: int | bool

    with pytest.raises(msgspec.ValidationError):
        strict_json.decode(body, Numbers)


def test_a_whole_number_is_an_integer_however_it_is_written():
    assert strict_json.decode(b'{"at": 43968.0}', dict[str, int]) == {"at": 43968}
    assert strict_json.decode(b"[5e2, 7]", list[int]) == [500, 7]
    assert strict_json.decode(rb'[{"n": 1.0}, {"\ud800": 2}]', list[dict[str, int]]) == [{"n": 1}, {"\ud800": 2}]
    assert strict_json.decode(b"[1.5, 2.0]", list[float]) == [1.5, 2.0]

"""Facts whose values are a text and bytes are decoded at once, with the outcome of the general decoder."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from turnlog.codecs import fact_lines, native
from turnlog.core import facts
from turnlog.core.entries import Facts, Title
from turnlog.core.facts import fact_in
from turnlog.errors import Corrupt
from turnlog.stores import sql

PAIR = st.tuples(st.text(max_size=4), st.binary(max_size=12)).map(list)
OTHER = st.sampled_from([None, 1.0, ["a"], ["a", "b"], ["a", b"b", 1], {"list": ["a"]}, {"$bytes": "eA=="}, b"x"])
KEY = st.text(min_size=1, max_size=4)


def line(entry):
    return native.encode_stored(entry)


def stored(seq, put):
    return facts.accepted(Facts(seq=seq, ts="2026-01-01T00:00:00.000Z", app="app", put=put))


def both_ways(entries, lines=None):
    """What the general decoder finds, and what `facts_in` does."""
    lines = lines or [line(one) for one in entries]
    rows = [(sql.key_bytes(key), one.seq, data) for one, data in zip(entries, lines, strict=True) for key in one.put]
    general = [fact_in(native.decode(data), "app", sql.key_text(key)) for key, _, data in rows]
    return [one for one in general if one is not None], sql.facts_in("s", "app", rows)


@settings(max_examples=60, deadline=None)
@given(
    puts=st.lists(st.dictionaries(KEY, PAIR, min_size=1, max_size=2), min_size=16, max_size=20),
    odd=st.none() | st.tuples(st.integers(0, 15), OTHER),
)
def test_facts_are_those_of_the_general_decoder(puts, odd):
    if odd is not None:
        puts[odd[0]] = {"odd": odd[1]}
    general, found = both_ways([stored(seq, put) for seq, put in enumerate(puts, 1)])
    assert found == general


def pairs(count=16):
    return [stored(seq, {f"e|{seq}": ["msgpack", bytes([seq])]}) for seq in range(1, count + 1)]


def test_many_pairs_are_decoded_at_once_and_few_are_not():
    assert fact_lines.decode([line(one) for one in pairs()]) is not None
    assert fact_lines.decode([line(one) for one in pairs(15)]) is None


def test_lines_with_other_values_are_left_to_the_general_decoder():
    others = [stored(seq, {f"e|{seq}": ["a", "b"]}) for seq in range(1, 17)]
    assert fact_lines.decode([line(one) for one in others]) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"$bytes":"Aw=="', b'"$bytes":"Bw=="'),
        (b'"$bytes":"Aw=="', b'"$bytes":"Ax=="'),
        (b'"msgpack"', b'"msgpakk"'),
        (b'"e|3"', b'"e|4"'),
        (b'"seq":3', b'"seq":5'),
        (b'"type":', b'"tipe":'),
    ],
    ids=["bytes", "bits after the last byte", "kind", "key", "seq", "type"],
)
def test_damage_is_found(old, new):
    entries = pairs()
    lines = [line(one) for one in entries]
    assert old in lines[2]
    lines[2] = lines[2].replace(old, new)
    with pytest.raises(Corrupt):
        sql.facts_in("s", "app", [(sql.key_bytes(f"e|{n}"), n, data) for n, data in enumerate(lines, 1)])


def test_lines_without_a_checksum_and_those_of_others_are_read_as_they_are():
    entries = pairs()
    plain = [native.encode(one) for one in entries]
    plain[1] = plain[1].replace(b'"$bytes":"Ag=="', b'"$bytes":"Ag==","more":1')
    plain[2] = plain[2].replace(b'"$bytes":"Aw=="', b'"$bytes":"no base64"')
    plain[3] = plain[3].replace(b'"app":"app"', b'"app":"other"')
    general, found = both_ways(entries, plain)
    assert found == general
    assert [one.seq for one in found] == [1, 2, 3, *range(5, 17)]
    lines = [line(one) for one in entries]
    lines[4] = line(Title(seq=5, title="t"))
    general, found = both_ways(entries, lines)
    assert found == general
    assert len(found) == 15

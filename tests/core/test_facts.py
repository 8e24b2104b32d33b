"""Facts as values: what an entry may put, how bytes travel through JSON, and which names a caller asks for."""

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from turnlog.core import facts, wellformed
from turnlog.core.entries import Facts, Title
from turnlog.core.facts import Fact, FactChange
from turnlog.errors import Conflict, UsageError

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8) | st.binary(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("a", "$bytes", "$$bytes", "bytes", "$x")), inner, max_size=2)
    ),
    max_leaves=8,
)


@given(values)
def test_every_value_comes_back_through_json_as_it_was_given(value):
    stored = msgspec.json.decode(msgspec.json.encode(facts.packed(value)))
    assert facts.unpacked(stored) == value


@pytest.mark.parametrize("written", [{"$bytes": "no base64!"}, {"$bytes": 5}, {"$bytes": [{"$bytes": "AA=="}]}])
def test_what_another_program_wrote_where_bytes_would_be_is_no_error(written):
    expected = {"$bytes": [b"\0"]} if isinstance(written["$bytes"], list) else written
    assert facts.unpacked(written) == expected


@pytest.mark.parametrize(
    "body",
    [
        Facts(app="app"),
        Facts(app="App", put={"a": 1}),
        Facts(app="", put={"a": 1}),
        Facts(app="app", put={"": 1}),
        Facts(app="app", drop=("k" * 513,)),
        Facts(app="app", put={"a": 1}, drop=("b", "a")),
        Facts(app="app", put={"a": float("nan")}),
        Facts(app="app", put=[1]),
        Facts(app="app", put={1: 1}),
    ],
)
def test_an_entry_of_facts_that_cannot_be_asked_for_is_refused(body):
    with pytest.raises(UsageError):
        wellformed.accepted(body)


def test_an_accepted_entry_is_accepted_again_unchanged_and_a_stored_one_is_not_converted():
    accepted = wellformed.accepted(Facts(app="app", put={"a": b"x"}))
    assert accepted.put == {"a": {"$bytes": "eA=="}}
    assert facts.accepted(accepted) is accepted
    stored = Facts(ts="2026-01-01T00:00:00.000Z", app="app", put={"a": {"$bytes": "eA=="}})
    assert wellformed.accepted(stored) is stored
    with pytest.raises(UsageError):
        wellformed.accepted(Facts(ts="2026-01-01T00:00:00.000Z", app="app", put={"a": {1}}))


def test_changes_name_what_is_dropped_and_put_and_leave_out_what_nobody_could_ask_for():
    entries = [
        Title(seq=2, title="t"),
        Facts(seq=3, app="app", put={"a": 1, "": 2}, drop=("b", "k" * 513)),
        Facts(seq=4, app="NOT AN APP", put={"a": 1}),
    ]
    assert facts.changes(entries) == [FactChange("app", "b", None), FactChange("app", "a", 3)]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, ["a", "c|1", "c|2", "c|3", "d"]),
        ({"prefix": "c|"}, ["c|1", "c|2", "c|3"]),
        ({"prefix": "c|", "limit": 2}, ["c|1", "c|2"]),
        ({"prefix": "c|", "limit": 2, "last": True}, ["c|3", "c|2"]),
        ({"last": True, "limit": 9}, ["d", "c|3", "c|2", "c|1", "a"]),
        ({"prefix": "x"}, []),
        ({"limit": 0}, []),
    ],
)
def test_keys_are_chosen_by_prefix_and_from_either_end(asked, found):
    choice = facts.choice("app", (), asked.get("prefix", ""), asked.get("last", False), asked.get("limit"))
    assert facts.chosen(["a", "c|1", "c|2", "c|3", "d"], choice) == found


def test_names_are_asked_for_once_and_in_order():
    assert facts.choice("app", ["b", "a", "b", "x"], "", False, None).wanted == ["a", "b", "x"]
    assert facts.choice("app", ["ab", "b", "aa"], "a", True, None).wanted == ["ab", "aa"]
    with pytest.raises(UsageError, match="negative"):
        facts.choice("app", (), "", False, -1)


def test_a_fact_is_read_from_the_entry_that_put_it_and_from_no_other():
    entry = Facts(seq=3, app="app", put={"a": {"$bytes": "eA=="}})
    assert facts.fact_in(entry, "app", "a") == Fact("a", b"x", 3)
    assert facts.fact_in(entry, "app", "b") is facts.fact_in(entry, "other", "a") is None
    assert facts.fact_in(Title(seq=3, title="t"), "app", "a") is None


def test_an_expected_fact_conflicts_unless_it_is_the_one_seen():
    facts.check_expected(("app", "a", 3), 3)
    facts.check_expected(("app", "a", None), None)
    with pytest.raises(Conflict, match="was put by entry 4"):
        facts.check_expected(("app", "a", 3), 4)
    with pytest.raises(Conflict, match="does not exist"):
        facts.check_expected(("app", "a", 3), None)

"""What models were used for, in the row of a session."""

import pytest
from msgspec.structs import replace

from turnlog.core import keys, usage
from turnlog.core.entries import Assistant, Opened, Origin, Rewind, Title, User
from turnlog.core.query import Query, matcher
from turnlog.core.session import describe
from turnlog.core.usage import Cost, ModelUse

KEY = "agent:main:web:direct:ann"


def spent(model, given, out=0, **more):
    return Assistant(content="a", model=model, usage={"input_tokens": given, "output_tokens": out, **more})


def log(*bodies, forked_from=None):
    opened = Opened(id="s", key=KEY, agent="main", channel="web", forked_from=forked_from)
    return [replace(body, seq=seq, ts="2026-01-01T00:00:00.000Z") for seq, body in enumerate((opened, *bodies), 1)]


def test_a_row_has_the_tokens_of_each_model_and_a_rewind_gives_nothing_back():
    cached = {"cache_read_input_tokens": 70, "cache_creation_input_tokens": 30}
    entries = log(
        *(User(content="q"), spent("x", 5, 1), User(content="q"), spent("y", 7), spent("x", 2, 1, **cached)),
        Rewind(to=3),
    )
    row = describe(None, entries)
    assert row.used == (ModelUse("x", 7, 2, 70, 30), ModelUse("y", 7))
    assert row.used[0].tokens == 109


@pytest.mark.parametrize("cut", range(1, 6))
def test_the_use_of_a_log_is_that_of_its_parts(cut):
    """Also where the quick path of plain talk is taken."""
    entries = log(Title(title="t", by="user"), User(content="q"), spent("x", 5), User(content="q"), spent("y", 7))
    assert describe(describe(None, entries[:cut]), entries[cut:]) == describe(None, entries)


def test_a_fork_does_not_count_what_its_source_paid_for():
    entries = log(
        *(User(content="q"), spent("x", 5), User(content="q"), spent("x", 7)), forked_from=Origin(id="o", seq=3)
    )
    assert describe(None, entries).used == (ModelUse("x", 7),)
    assert describe(describe(None, entries[:2]), entries[2:]).used == (ModelUse("x", 7),)


@pytest.mark.parametrize("value", [None, -1, 1.5, "9", True, 2**60, {}])
def test_what_is_no_count_of_tokens_counts_as_none(value):
    assert usage.use_of(Assistant(content="a", usage={"input_tokens": value})) is None
    assert usage.use_of(Assistant(content="a")) is None
    assert describe(None, log(User(content="q"), Assistant(content="a"))).used == ()


def test_a_row_tells_a_few_models_apart_and_counts_the_others_together():
    used = ()
    for n in range(usage.MODELS_MAX + 3):
        used = usage.added(used, ModelUse(f"m{n}", 1))
    assert used[-1] == ModelUse("", 3)
    assert sum(one.tokens for one in used) == usage.MODELS_MAX + 3
    assert len(used) == usage.MODELS_MAX + 1


def test_cost_is_of_the_models_whose_price_is_known_and_says_if_that_is_all():
    opus, other = ModelUse("anthropic:claude-opus-4", 1_000_000, 1_000_000), ModelUse("somebody:else", 5)
    assert usage.cost_of([opus]) == Cost(30.0, whole=True)
    assert usage.cost_of([opus, other]) == Cost(30.0, whole=False)
    assert usage.cost_of([other]) is None
    assert usage.cost_of([]) is None


def test_sessions_are_found_by_whom_they_are_with_and_by_how_their_last_turn_stands():
    row = describe(None, log(User(content="q"), Assistant(content="a")))
    assert row.peer == "ann"
    assert matcher(Query(peer="ann", last_role="assistant"))(row)
    assert not matcher(Query(peer="an"))(row)
    assert not matcher(Query(last_role="failed"))(row)
    assert keys.peer_of("no key at all") == ""


def test_a_row_names_a_peer_that_no_database_could_store_in_other_characters():
    from turnlog.core.keys import SessionKey
    from turnlog.testing import opened

    key = keys.format(SessionKey(agent="main", channel="app", kind="direct", peer="a\ud800b\x00c"))
    assert describe(None, [replace(opened("s"), key=key, seq=1)]).peer == "a?b\ufffdc"


def test_one_model_is_added_up_as_it_is_among_others():
    one, more, other = ModelUse("a", 1, 2, 3, 4), ModelUse("a", 10, 20, 30, usage.COUNT_MAX), ModelUse("b", 5)
    assert usage.added((one,), more) == (ModelUse("a", 11, 22, 33, usage.COUNT_MAX),)
    assert usage.added((one, other), more) == (*usage.added((one,), more), other)
    assert usage.added((one,), other) == (one, other)

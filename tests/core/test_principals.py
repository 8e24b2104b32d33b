"""Who may see and use what."""

import pytest

from turnlog import Denied, NotFound, Query
from turnlog.core import keys, principals
from turnlog.core.principals import OWNER, Principal
from turnlog.core.session import Session

ANN = Principal("ann")
READER = Principal("eve", frozenset({"read"}), frozenset({"main"}))
NOBODY = Principal("nobody", frozenset())


def row(key):
    place = keys.parse(key)
    return Session(id="s", key=keys.format(place), agent=place.agent, channel=place.channel)


HERS = row("agent:main:web:direct:ann")
OTHERS = row("agent:main:web:direct:bob")
ELSEWHERE = row("agent:ops:web:direct:ann")


@pytest.mark.parametrize(
    ("who", "seen"),
    [(OWNER, "hoe"), (ANN, "he"), (READER, "ho"), (NOBODY, ""), (Principal("ann", agents=frozenset({"ops"})), "e")],
)
def test_each_sees_what_is_theirs(who, seen):
    found = {"h": HERS, "o": OTHERS, "e": ELSEWHERE}
    assert "".join(name for name, it in found.items() if principals.sees(who, it)) == seen


@pytest.mark.parametrize(
    ("who", "owned"),
    [(OWNER, "hoe"), (ANN, "he"), (READER, ""), (NOBODY, ""), (Principal("ann", frozenset({"read", "chat"})), "he")],
)
def test_seeing_is_not_owning(who, owned):
    found = {"h": HERS, "o": OTHERS, "e": ELSEWHERE}
    assert "".join(name for name, it in found.items() if principals.owns(who, it)) == owned


def test_only_an_administrator_uses_keys_of_others():
    principals.check_key(OWNER, keys.parse("main:cli:user"))
    principals.check_key(ANN, keys.parse(HERS.key))
    with pytest.raises(NotFound):
        principals.check_key(ANN, keys.parse(OTHERS.key))
    with pytest.raises(Denied):
        principals.check_key(READER, keys.parse(OTHERS.key))
    with pytest.raises(NotFound):
        principals.check_key(READER, keys.parse("agent:ops:web:direct:eve"))


def test_a_question_is_narrowed_to_what_is_theirs():
    assert principals.narrow(OWNER, Query(agent="ops")) == Query(agent="ops")
    assert principals.narrow(ANN, Query()).homes == (HERS.key, "agent:main:api:direct:ann")
    assert principals.narrow(ANN, Query(agent="ops")).homes[0] == ELSEWHERE.key
    assert principals.narrow(READER, Query()).agent == "main"
    assert principals.narrow(READER, Query(agent="main")).agent == "main"
    with pytest.raises(Denied):
        principals.narrow(READER, Query(agent="ops"))
    with pytest.raises(Denied):
        principals.narrow(READER, Query(agent=("main", "ops")))


def test_whoever_has_several_agents_is_told_of_all_of_them():
    several = Principal("eve", frozenset({"read"}), frozenset({"b", "a"}))
    assert principals.narrow(several, Query()).agent == ("a", "b")
    assert principals.narrow(several, Query(agent=("b",))).agent == ("b",)


def test_one_who_may_only_chat_has_a_place_at_each_agent_and_names_the_agent():
    assert principals.narrow(Principal("ann", agents=frozenset({"ops"})), Query()).homes[0] == ELSEWHERE.key
    for who, asked in ((Principal("ann", agents=frozenset({"ops"})), "main"), (ANN, ("main", "ops"))):
        with pytest.raises(Denied):
            principals.narrow(who, Query(agent=asked))


@pytest.mark.parametrize(
    ("key", "is_theirs"),
    [
        ("agent:main:api:direct:ann", True),
        ("agent:main:api:direct:ann:thread:codex", True),
        ("agent:main:api:direct:anna", False),
        ("agent:main:api:group:ann", False),
        ("agent:main:telegram:direct:ann", False),
    ],
)
def test_what_a_client_of_theirs_says_is_their_own(key, is_theirs):
    assert principals.sees(ANN, row(key)) == principals.owns(ANN, row(key)) == is_theirs
    assert principals.is_home(ANN, row(key)) == is_theirs

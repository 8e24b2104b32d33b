"""Who may see and use what."""

import pytest

from turnlog import Denied, NotFound, Query
from turnlog.core import keys, principals
from turnlog.core.principals import LOCAL_PROGRAM, OWNER, Principal
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


def test_a_program_of_the_local_user_sees_three_channels_and_no_others():
    seen = {"cli": "agent:main:cli:direct:user", "app": "agent:main:app:direct:ann", "api": "agent:ops:api:direct:bob"}
    unseen = ("agent:main:web:direct:ann", "agent:main:telegram:direct:5", "agent:main:slack:group:c1")
    for key in seen.values():
        assert principals.sees(LOCAL_PROGRAM, row(key))
        assert principals.owns(LOCAL_PROGRAM, row(key))
        principals.check_key(LOCAL_PROGRAM, keys.parse(key))
    for key in unseen:
        assert not principals.sees(LOCAL_PROGRAM, row(key))
        assert not principals.owns(LOCAL_PROGRAM, row(key))
        with pytest.raises(NotFound):
            principals.check_key(LOCAL_PROGRAM, keys.parse(key))
    assert principals.narrow(LOCAL_PROGRAM, Query()).channel == ("api", "app", "cli")
    assert principals.narrow(LOCAL_PROGRAM, Query(channel="cli")).channel == "cli"
    for asked in ("web", ("cli", "web")):
        with pytest.raises(Denied):
            principals.narrow(LOCAL_PROGRAM, Query(channel=asked))


@pytest.mark.parametrize(
    ("who", "key", "is_seen"),
    [
        (ANN, "agent:main:web:direct:ann", True),
        (ANN, "agent:main:api:direct:ann:thread:codex", True),
        (ANN, "agent:main:web:direct:bob", False),
        (ANN, "agent:main:telegram:direct:ann", False),
        (NOBODY, "agent:main:web:direct:nobody", False),
        (READER, "agent:main:telegram:direct:5", True),
        (READER, "agent:ops:telegram:direct:5", False),
        (LOCAL_PROGRAM, "agent:main:cli:direct:user", True),
        (LOCAL_PROGRAM, "agent:main:web:direct:ann", False),
    ],
)
def test_a_place_is_seen_by_whoever_sees_its_sessions(who, key, is_seen):
    assert principals.sees_place(who, keys.parse(key)) == is_seen

"""How a session goes on for a request that says where, rule by rule."""

import pytest

from turnlog.core import continuing
from turnlog.core.entries import Assistant, Failed, Foreign, Opened, User
from turnlog.core.matching import PlacedSession, Words
from turnlog.core.path import of_log
from turnlog.core.request_messages import RequestMessages

REQUEST = Foreign(raw={"turnlog": "request", "ask": "a"})
TALK = (User(content="one"), Assistant(content="First.", model="m"))
"""The entries 2 and 3."""


def path_of(*bodies):
    opened = Opened(id="s", key="k", agent="main", channel="api")
    entries = [opened, *bodies]
    return of_log(
        "s",
        [
            type(body)(**{**{name: getattr(body, name) for name in body.__struct_fields__}, "seq": seq})
            for seq, body in enumerate(entries, 1)
        ],
    )


def words_of(*texts, ask="b", asks=True):
    said = RequestMessages([text.encode() for text in texts], read, {})
    return Words(said.atoms, said.keys, ask, said.text, asks)


def read(raw):
    text = raw.decode()
    return [Assistant(content=text[1:]) if text.startswith("=") else User(content=text)]


def placed(*bodies, **more):
    return PlacedSession(path_of(*bodies), **more)


def outcome(decision):
    return decision.kind, decision.to, decision.kept, decision.rest


def test_the_words_behind_the_newest_answer_are_appended():
    found = continuing.after_answer(placed(*TALK), words_of("two"), 3, is_live=True)
    assert outcome(found) == ("continued", None, 2, 0)


@pytest.mark.parametrize("more", [{"is_busy": True}, {}])
def test_an_answer_that_is_not_the_newest_or_whose_session_is_busy_is_forked(more):
    later = () if more else (User(content="else"),)
    found = continuing.after_answer(placed(*TALK, *later, **more), words_of("two"), 3, is_live=True)
    assert outcome(found) == ("forked", 3, 2, 0)


def test_an_answer_that_was_rewound_is_forked():
    assert continuing.after_answer(placed(*TALK), words_of("two"), 3, is_live=False).kind == "forked"


@pytest.mark.parametrize("failed", [(), (Failed(code="provider"),)])
def test_words_that_were_never_answered_are_not_stored_again(failed):
    one = placed(*TALK, REQUEST, User(content="two"), *failed)
    assert outcome(continuing.after_answer(one, words_of("two"), 3, is_live=True)) == ("continued", None, 3, 1)
    assert outcome(continuing.at_tip(one, words_of("two", ask="a"))) == ("continued", None, 3, 1)
    assert outcome(continuing.at_tip(one, words_of("two", ask="other"))) == ("continued", None, 3, 0)


def test_words_that_were_answered_are_asked_again_in_a_fork():
    one = placed(*TALK, User(content="two"), Assistant(content="Second.", model="m"))
    assert continuing.after_answer(one, words_of("two"), 3, is_live=True).kind == "forked"


def test_a_call_whose_client_went_away_is_told_again():
    one = placed(*TALK, REQUEST, User(content="two"), is_open=True)
    for found in (
        continuing.after_answer(one, words_of("two", ask="a"), 3, is_live=True),
        continuing.at_tip(one, words_of("two", ask="a")),
        continuing.after_entry(one, words_of("two", ask="a"), 3, is_live=True),
    ):
        assert (found.kind, found.turn) == ("replayed", 4)


def test_words_are_appended_to_an_empty_session():
    assert outcome(continuing.at_tip(placed(), words_of("one"))) == ("continued", None, 0, 0)


def test_what_follows_an_entry_is_compared_with_what_followed_it_before():
    one = placed(*TALK, User(content="two"), Assistant(content="Second.", model="m"), User(content="three"))
    more = continuing.after_entry(one, words_of("two", "=Second.", "three", "four"), 3, is_live=True)
    assert outcome(more) == ("continued", None, 5, 3)
    unanswered = continuing.after_entry(one, words_of("two", "=Second.", "three"), 3, is_live=True)
    assert outcome(unanswered) == ("continued", None, 5, 3)
    other = continuing.after_entry(one, words_of("two", "=Second.", "else"), 3, is_live=True)
    assert outcome(other) == ("rewound", 5, 4, 2)
    nothing = continuing.after_entry(one, words_of("new"), 3, is_live=True)
    assert outcome(nothing) == ("rewound", 3, 2, 0)


def test_an_answered_path_is_asked_again_unless_no_answer_is_wanted():
    one = placed(*TALK, User(content="two"), Assistant(content="Second.", model="m"))
    again = continuing.after_entry(one, words_of("two", "=Second."), 3, is_live=True)
    assert outcome(again) == ("rewound", 3, 2, 0)
    kept = continuing.after_entry(one, words_of("two", "=Second.", asks=False), 3, is_live=True)
    assert outcome(kept) == ("continued", None, 4, 2)


def test_a_busy_session_or_a_rewound_entry_is_forked():
    busy = continuing.after_entry(placed(*TALK, is_busy=True), words_of("two"), 3, is_live=True)
    assert outcome(busy) == ("forked", 3, 2, 0)
    gone = continuing.after_entry(placed(*TALK), words_of("two"), 3, is_live=False)
    assert outcome(gone) == ("forked", 3, 2, 0)

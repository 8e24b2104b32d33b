"""Small rules of the core that its larger suites pass by: forks, keys as shown, old rows, rights of agents."""

import msgspec
import pytest

from turnlog.core import content, history, keys, principals, query, rows, session
from turnlog.core.entries import Foreign, Opened, Received, Selected, User, kind_of
from turnlog.core.forks import inherited, taken_in
from turnlog.errors import UsageError
from turnlog.testing import answered, check_messages, opened, said


def numbered(*bodies):
    return [msgspec.structs.replace(body, seq=seq) for seq, body in enumerate(bodies, 1)]


def test_a_fork_takes_over_no_selection_and_no_message_that_waits_in_the_source():
    past = numbered(
        opened("s1"),
        Selected(n=1),
        Received(content="taken"),
        User(from_=(3,)),
        Received(content="waits"),
    )
    taken = inherited(past[1:], taken_in(past))
    assert [type(entry) for entry in taken] == [Foreign, Received, User, Foreign]
    assert taken[0].raw["type"] == "selected"
    assert taken[-1].raw["content"] == "waits"


@pytest.mark.parametrize(
    ("key", "style", "shown"),
    [
        ("agent:main:cli:direct:user", "triple", "main:cli:user"),
        ("agent:main:telegram:group:42", "zeroclaw", "group:telegram:42"),
        ("agent:main:telegram:group:42", "triple", "agent:main:telegram:group:42"),
    ],
)
def test_a_key_is_shown_in_the_wanted_style_unless_it_would_mean_another_place(key, style, shown):
    assert keys.shown(key, style) == shown


def test_an_agent_may_look_at_what_is_its_own_and_change_nothing():
    who = principals.of_agent("main")
    row = session.describe(None, numbered(opened("s1")))
    assert principals.sees(who, row)
    assert not principals.owns(who, row)
    assert not principals.sees(principals.of_agent("other"), row)


@pytest.mark.parametrize(
    ("q", "prefix"), [("ses-17", "ses-17"), (" ses-17 ", "ses-17"), ("two words", None), (None, None)]
)
def test_one_word_may_be_the_beginning_of_an_id(q, prefix):
    found = query.as_beginning(query.Query(q=q))
    assert (found.prefix if found else None) == prefix


def test_a_row_whose_status_nobody_knows_is_an_inactive_one():
    row = session.describe(None, numbered(opened("s1")))
    line = msgspec.json.encode({**msgspec.to_builtins(row), "status": "hologram"})
    assert rows.decode_row(line) == msgspec.structs.replace(row, status="inactive")
    assert rows.decode_row(msgspec.json.encode(row)) == row
    with pytest.raises(msgspec.ValidationError):
        rows.decode_row(b'{"id":1}')


def test_a_row_in_a_form_unknown_here_says_only_which_session_it_is():
    line = {"id": "s", "key": "k", "agentId": "a", "channel": "c", "lastSeq": 7, "titleBy": "moon", "title": "x"}
    row = rows.decode_row(msgspec.json.encode({**line, "fold": rows.FOLD + 1}))
    assert row == rows.Session(id="s", key="k", agent="a", channel="c", last_seq=7)
    with pytest.raises(msgspec.ValidationError):
        rows.decode_row(msgspec.json.encode({**line, "fold": rows.FOLD}))


def test_a_row_is_unfinished_while_messages_wait_or_a_turn_is_under_way():
    for body, unfinished in ((said("q"), True), (Received(content="q"), True), (answered("a"), False)):
        row = session.describe(None, numbered(opened("s1"), body))
        assert row.unfinished is unfinished
        assert query.matcher(query.Query(unfinished=True))(row) is unfinished


def test_an_entry_of_an_unknown_type_is_called_so():
    assert kind_of(Foreign(raw={}, unknown={"type": "hologram"})) == "unknown: hologram"
    assert kind_of(Foreign(raw={"type": "hologram"}, unknown={"mood": 1})) == "foreign"


def test_a_session_without_a_stamp_is_known_by_its_creation():
    row = session.describe(
        None, [Opened(seq=1, ts="2026-01-02T03:04:05.678Z", id="s1", key="k", agent="a", channel="c")]
    )
    assert row.incarnation == str(row.created_at)
    assert msgspec.structs.replace(row, stamped="x1").incarnation == "x1"


def test_text_that_is_no_text_is_shown_as_what_it_is():
    damaged = numbered(opened("s1"), User(content=[{"type": "text", "text": {"deep": 1}}]))
    messages = history.build(damaged).messages
    check_messages(messages)
    assert "deep" in str(messages)


def test_integers_beyond_what_json_readers_take_are_refused_by_their_place():
    blocks = [{"type": "tool_use", "id": "c1", "name": "n", "input": {"fine": 7, "much": 2**70}}]
    with pytest.raises(UsageError, match=r"content\[0\]\.input\.much"):
        content.accepted(blocks)


def test_an_order_that_nobody_knows_is_refused_however_it_got_into_the_query():
    with pytest.raises(UsageError):
        query.Query(sort="colour")
    with pytest.raises(UsageError, match="unknown order"):
        query.check(msgspec.structs.replace(query.Query(), sort="colour"))

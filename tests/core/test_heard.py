"""What is heard in a group: in the row, and in the next turn."""

from msgspec.structs import replace

from turnlog.core import heard
from turnlog.core.entries import Assistant, Received, ToolResult, User
from turnlog.core.session import describe
from turnlog.testing import opened


def log(*bodies):
    row = None
    for seq, body in enumerate((opened("s1"), *bodies), 1):
        row = describe(row, [replace(body, seq=seq)])
    return row


def talk(words="talk"):
    return Received(content=words, mode="heard")


def numbered(*words):
    return [Received(content=text, mode="heard", seq=n) for n, text in enumerate(words, 1)]


def test_what_is_heard_neither_waits_nor_names_the_session():
    row = log(talk(), talk(), Received(content="asked"))
    assert (row.heard, row.received, row.title) == ((2, 3), (4,), "asked")
    assert not row.under_way
    assert heard.is_heard(talk())
    assert not heard.is_heard(Received(content="asked"))


def test_the_next_turn_closes_it_and_one_that_steers_does_not():
    row = log(talk(), Received(content="asked"), User(from_=(2, 3)), talk())
    assert (row.heard, row.received) == ((5,), ())
    call = Assistant(content=[{"type": "tool_use", "id": "c", "name": "n", "input": {}}])
    steered = log(User(content="go"), call, ToolResult(tool_use_id="c", content="x"), talk(), Received(content="y"))
    assert steered.heard == (5,)
    more = (User(content="go"), call, ToolResult(tool_use_id="c", content="x"), talk(), Received(content="y"))
    assert log(*more, User(from_=(6,))).heard == (5,)


def test_a_row_remembers_the_newest_only():
    row = log(*[talk() for _ in range(heard.HEARD_MAX + 5)])
    assert row.heard == tuple(range(7, heard.HEARD_MAX + 7))


def test_the_newest_join_without_a_gap_as_far_as_there_is_room():
    assert heard.joining(numbered("a", "b"), 100_000) == (1, 2)
    assert heard.joining(numbered("a", "long " * 2_000, "b"), 10_000) == (3,)
    assert heard.joining(numbered("long " * 2_000), 10_000) == ()
    assert len(heard.joining(numbered(*"x" * 80), 100_000)) == heard.HEARD_MAX

"""Which entries lose their words, and what is left of them."""

import pytest

from turnlog.codecs import native
from turnlog.core import compaction, erasing, history, wellformed
from turnlog.core.earlier_entries import needed
from turnlog.core.entries import (
    TYPES,
    Approval,
    ApprovalAnswer,
    Assistant,
    Compaction,
    Entry,
    Erasure,
    Facts,
    Failed,
    Foreign,
    Opened,
    Pin,
    Received,
    Rewind,
    Status,
    Title,
    ToolResult,
    User,
)
from turnlog.core.outline import for_erasing
from turnlog.core.searchable import units
from turnlog.core.session import describe
from turnlog.errors import UsageError

TS = "2026-01-01T00:00:00.000Z"
OPENED = Opened(seq=1, ts=TS, id="s", key="agent:main:cli:direct:u", agent="main", channel="cli")


def log(*bodies: Entry) -> list[Entry]:
    from msgspec.structs import replace

    return [OPENED, *(replace(body, seq=n, ts=TS) for n, body in enumerate(bodies, 2))]


def call(*ids: str) -> Assistant:
    return Assistant(content=[{"type": "tool_use", "id": one, "name": "n", "input": {}} for one in ids])


def erased(transcript, seqs, **how):
    plan = erasing.plan(transcript, seqs, **how)
    assert erasing.plan([for_erasing(entry) for entry in transcript], seqs, **how) == plan
    return list(plan.applied(transcript)), plan


EXAMPLES = [
    User(content="zebra", sender="zebra", message_id="zebra", dedupe_id="zebra", raw="zebra"),
    User(from_=(1,)),
    Received(content=[{"type": "text", "text": "zebra"}], mode="heard"),
    Assistant(content="zebra", usage={"zebra": 1}, stop="error"),
    ToolResult(tool_use_id="zebra", content="zebra", is_error=True),
    Compaction(summary="zebra", first_kept=3, covers=(2, 2), tokens_before=9, tokens_after=1, focus="zebra"),
    Title(title="zebra", by="auto"),
    Status(value="archived", reason="zebra"),
    Failed(code="overflow", reason="zebra"),
    Foreign(raw={"zebra": 1}),
    Foreign(raw={"type": "new", "seq": 7, "ts": TS, "x": "zebra"}, unknown={"type": "new"}),
    Facts(app="app", put={"zebra": "zebra"}, drop=("zebra2",)),
    Approval(state="requested", call="c1", tool="t", input={"zebra": 1}, preview="zebra"),
    ApprovalAnswer(call="c1", word="denied", words="zebra"),
]


@pytest.mark.parametrize("body", EXAMPLES, ids=lambda body: type(body).__name__)
def test_an_erased_entry_holds_no_words_and_is_stored_and_read_back_equal(body):
    entry = log(body)[1]
    bare = erasing.emptied(entry)
    line = native.encode_stored(bare)
    assert b"zebra" not in line
    assert b'"erased":true' in line
    assert (bare.seq, bare.ts, type(bare), bare.erased) == (entry.seq, entry.ts, type(entry), True)
    assert native.encode_stored(native.decode(line)) == line
    assert native.decode(line + b"   ") == native.decode(line)
    assert native.decode(line).erased
    assert wellformed.accepted(bare) == bare
    assert units(bare, {}) == []
    assert all(getattr(bare, name) == getattr(entry, name) for name in entry.lasting)


def test_an_erased_line_that_was_changed_is_damage():
    line = native.encode_stored(erasing.emptied(log(User(content="x"))[1]))
    with pytest.raises(native.Undecodable):
        native.decode(line.replace(b'"seq":2', b'"seq":3'))
    with pytest.raises(native.Undecodable):
        native.decode(b'{"type":"tool_result","seq":2,"erased":false}')
    with pytest.raises(native.Undecodable):
        native.decode(b'{"type":"pin","seq":2,"erased":true}')  # a pin has no words to erase


def test_every_type_says_what_is_left_of_it():
    for kind in TYPES.values():
        assert kind.blank is not None or not kind.lasting
        assert set(kind.blank or ()) | set(kind.lasting) <= set(kind.__struct_fields__)


def test_what_counts_is_refused_and_what_does_not_count_is_free():
    said = log(User(content="a"), Assistant(content="b"), User(content="c"), Assistant(content="d"), Rewind(to=3))
    for seq in (1, 6, 9, 0):
        with pytest.raises(UsageError):
            erasing.plan(said, [seq], redact=True)
    with pytest.raises(UsageError, match="still counts"):
        erasing.plan(said, [2, 4])
    after, plan = erased(said, [4, 5, 4])
    assert plan.seqs == [4, 5]
    assert plan.appended == [Erasure(by="", entries=2)]
    assert erasing.plan(after, [4]).emptied == []
    assert erasing.plan(after, [2, 4], redact=True).seqs == [2]
    with pytest.raises(UsageError, match="200"):
        erasing.plan(said, [4], by="x" * 201)


def test_facts_are_free_once_they_were_replaced_or_dropped_and_never_come_back():
    kept = log(
        Facts(app="a", put={"k": 1, "j": 1}),
        Facts(app="a", put={"k": 2}),
        Facts(app="a", drop=("j",)),
        Facts(app="b", put={"k": 1}),
        Facts(app="b", put={"k": 2, "m": 1}),
    )
    assert erasing.plan(kept, [2]).appended == [Erasure(entries=1)]
    with pytest.raises(UsageError):
        erasing.plan(kept, [3])
    assert erasing.plan(kept, [3], redact=True).appended[0] == Facts(app="a", drop=("k",))
    assert erasing.plan(kept, [4]).appended == [Facts(app="a", drop=("j",)), Erasure(entries=1)]
    plan = erasing.plan(kept, [3, 6], redact=True)
    assert plan.appended == [Facts(app="a", drop=("k",)), Facts(app="b", drop=("k",)), Erasure(entries=2)]


def test_calls_results_and_received_words_go_together():
    result = [{"type": "tool_result", "tool_use_id": "c3", "content": "x"}, {"type": "text", "text": "y"}]
    said = log(
        Received(content="r"),  # 2
        User(from_=(2,)),  # 3
        call("c1", "c2"),  # 4
        ToolResult(tool_use_id="c1", content="x"),  # 5
        ToolResult(tool_use_id="c2", content="x"),  # 6
        ToolResult(tool_use_id="early", content="x"),  # 7
        call("early", "c3"),  # 8
        User(content=result),  # 9
        ToolResult(tool_use_id="orphan", content="x"),  # 10
        call("c1"),  # 11
        ToolResult(tool_use_id="c1", content="x"),  # 12
        call("c9"),  # 13
        Approval(state="requested", call="c9", input={}),  # 14
        ApprovalAnswer(call="c9", word="approved"),  # 15
        Approval(state="resumed"),  # 16
    )
    together = [sorted(erasing.together(said, [seq])) for seq in range(2, 17)]
    assert together[11] == together[12] == together[13] == [13, 14, 15]
    assert together[14] == [16]
    assert together[0] == together[1] == [2, 3]
    assert together[2] == together[3] == together[4] == [4, 5, 6]
    assert together[5] == together[6] == together[7] == [7, 8, 9]
    assert together[8] == [10]
    assert together[9] == together[10] == [11, 12]
    after, _ = erased(said, [5], redact=True)
    assert sorted(erasing.together(after, [4])) == [4]


def item(kind: str, **fields: str) -> Foreign:
    return Foreign(raw={"a_framework": {"type": kind, **fields}})


@pytest.mark.parametrize(
    ("seq", "together"),
    [
        (2, [2, 3, 4]),  # reasoning, what was said after it, and its result
        (3, [2, 3, 4]),
        (4, [2, 3, 4]),
        (5, [5]),
        (6, [6, 7]),
        (7, [6, 7]),
        (8, [8]),  # its call is not there
        (9, [9]),  # nothing was said right after it
    ],
)
def test_items_of_a_framework_are_erased_with_what_an_api_refuses_them_without(seq, together):
    transcript = log(
        item("reasoning"),
        item("shell_call", call_id="c1"),
        item("shell_call_output", call_id="c1"),
        Assistant(content="done"),
        item("reasoning"),
        Assistant(content="more"),
        item("shell_call_output", call_id="c2"),
        item("reasoning"),
        User(content="and?"),
        Foreign(raw=["not an item"]),
    )
    _, plan = erased(transcript, [seq], redact=True)
    assert plan.seqs == together


def test_an_erased_result_is_not_shown_and_explained_as_erased():
    said = log(User(content="q"), call("c1"), ToolResult(tool_use_id="c1", content="zebra"), Assistant(content="done"))
    after, _ = erased(said, [4], redact=True)
    assert [entry.erased for entry in after] == [False, False, True, True, False]
    shown = history.build(after).messages
    assert [one["role"] for one in shown] == ["user", "assistant"]
    assert [one.state for one in compaction.explain(after)] == ["none", "tail", "tail", "erased", "tail"]
    folded = [*after, *log(*[Title(title="t")] * 4, Compaction(summary="s", first_kept=6, covers=(2, 5)))[5:]]
    assert compaction.explain(folded)[3].state == "compacted"


def test_a_row_takes_no_title_from_erased_words():
    said = log(Received(content="zebra"), User(content="zebra"), Title(title="zebra"), User(content="horse"))
    after, plan = erased(said, [2, 3, 4], redact=True)
    row = describe(None, after)
    assert (row.title, row.message_count, row.received) == ("horse", 2, (2,))
    assert needed(describe(None, said), plan.appended) == []  # it is made anew
    assert needed(None, plan.appended) is None


def test_pins_and_rewinds_have_no_words():
    said = log(User(content="a"), Pin(target=2))
    with pytest.raises(UsageError, match="no words"):
        erasing.plan(said, [3], redact=True)

"""Tokens turn by turn, and what a page shows of a transcript."""

import turnlog
from turnlog.core import turns
from turnlog.core.session import describe
from turnlog.server.pages import plot as plots, timeline as timelines

USAGE = {"input_tokens": 900, "output_tokens": 100}


def stamped(*bodies):
    opened = turnlog.Opened(id="s", key="agent:main:web:direct:a", agent="main", channel="web")
    fields = [{name: getattr(body, name) for name in body.__struct_fields__} for body in (opened, *bodies)]
    return [
        type(body)(**{**values, "seq": seq, "ts": "2026-01-01T00:00:00.000Z"})
        for seq, (body, values) in enumerate(zip((opened, *bodies), fields, strict=True), 1)
    ]


def talk(n):
    return [part for k in range(n) for part in (turnlog.User(content=f"u{k}"), turnlog.Assistant(content=f"a{k}"))]


def test_a_turn_is_as_large_as_the_provider_said_and_a_compaction_is_a_step_of_its_own():
    entries = stamped(
        turnlog.User(content="one"),
        turnlog.Assistant(content="1", usage=USAGE),
        turnlog.Compaction(summary="s", first_kept=3, covers=(2, 2), tokens_before=1000, tokens_after=300),
        turnlog.User(content="two"),
        turnlog.Assistant(content="2", usage={"input_tokens": 350, "output_tokens": 10}),
    )
    found = plots.steps(entries)
    assert [(step.kind, step.n, step.tokens) for step in found] == [
        ("turn", 1, 1000),
        ("fold", 1, 300),
        ("turn", 2, 360),
    ]
    assert found[1].before == 1000


def test_a_message_that_steers_begins_no_turn():
    call = {"type": "tool_use", "id": "c", "name": "t", "input": {}}
    entries = stamped(
        turnlog.User(content="go"),
        turnlog.Assistant(content=[call]),
        turnlog.ToolResult(tool_use_id="c", content="r"),
        turnlog.User(content="no, wait"),
        turnlog.Assistant(content="ok"),
    )
    assert [step.n for step in plots.steps(entries)] == [1]
    assert turns.live_starts(entries) == [2]


def test_a_drawing_stays_inside_its_frame():
    for count in (1, 3, 50, 400):
        plot = plots.draw(plots.steps(stamped(*talk(count))), 8_000)
        assert len(plot.bars) == min(count, plots.TURNS_DRAWN)
        assert plot.left_out == max(0, count - plots.TURNS_DRAWN)
        for bar in plot.bars:
            assert plots.LEFT <= bar.x <= bar.x + bar.width <= plots.WIDTH
            assert plots.TOP <= bar.y <= bar.y + bar.height <= plots.HEIGHT


def test_nothing_to_draw_is_no_error():
    assert plots.draw([], 8_000).bars == []


def folded(*more):
    entries = stamped(
        *talk(2),
        turnlog.Compaction(summary="s", first_kept=4, covers=(2, 3), tokens_before=10, tokens_after=5),
        *more,
    )
    return describe(None, entries), entries


def test_a_conversation_hides_what_is_folded_behind_its_compaction():
    row, entries = folded()
    items = timelines.conversation(row, entries)
    assert [(item.kind, item.text) for item in items] == [("compaction", ""), ("user", "u1"), ("assistant", "a1")]
    assert items[0].fold.undoable
    assert items[0].fold.entries == 2


def test_a_compaction_that_was_undone_hides_nothing_and_stays_visible():
    row, entries = folded(turnlog.Undo(target=6))
    items = timelines.conversation(row, entries)
    assert [item.text for item in items if item.kind != "compaction"] == ["u0", "a0", "u1", "a1"]
    assert [item.fold.state for item in items if item.fold] == ["undone"]


def test_a_timeline_shows_every_entry_and_says_what_became_of_it():
    row, entries = folded(turnlog.Rewind(to=3))
    items = timelines.timeline(row, entries)
    assert [item.seq for item in items] == [entry.seq for entry in entries]
    assert "rewound" in items[4].tags
    row, entries = folded()
    assert "folded" in timelines.timeline(row, entries)[1].tags


def test_a_result_is_on_the_card_of_its_call():
    call = {"type": "tool_use", "id": "c", "name": "read_file", "input": {"path": "ä"}}
    entries = stamped(
        turnlog.User(content="go"),
        turnlog.Assistant(content=[call]),
        turnlog.ToolResult(tool_use_id="c", content="r", is_error=True),
    )
    items = timelines.conversation(describe(None, entries), entries)
    assert [item.kind for item in items] == ["user", "assistant"]
    card = items[1].cards[0]
    assert (card.name, card.output, card.is_error) == ("read_file", "r", True)
    assert "ä" in card.input


def call_of(call_id, **given):
    return {"type": "tool_use", "id": call_id, "name": "look", "input": given}


def result_of(call_id, words):
    return turnlog.ToolResult(tool_use_id=call_id, content=words)


def test_each_card_has_the_result_of_its_own_call_where_an_id_was_used_again():
    entries = stamped(
        turnlog.User(content="go"),
        turnlog.Assistant(content=[call_of("x", a=1), call_of("x", a=2)]),
        result_of("x", "one"),
        result_of("x", "two"),
        turnlog.Assistant(content=[call_of("x", a=3)]),
        result_of("x", "three"),
        result_of("x", "three"),
        result_of("ghost", "boo"),
    )
    for items in (
        timelines.conversation(describe(None, entries), entries),
        timelines.timeline(describe(None, entries), entries),
    ):
        assert [card.output for item in items for card in item.cards] == ["one", "two", "three", "boo"]


def test_results_that_are_blocks_of_a_user_message_are_on_the_cards_of_their_calls():
    blocks = [
        {"type": "tool_result", "tool_use_id": "x", "content": "seen"},
        {"type": "tool_result", "tool_use_id": "ghost", "content": "boo"},
        {"type": "text", "text": "and now?"},
    ]
    entries = stamped(
        turnlog.User(content="go"),
        turnlog.Assistant(content=[call_of("x")]),
        turnlog.User(content=blocks),
        turnlog.Assistant(content=[call_of("y")]),
        turnlog.User(content=[{"type": "tool_result", "tool_use_id": "y", "content": "well"}]),
        turnlog.User(content=[{"type": "tool_result", "tool_use_id": "gone", "content": "lost"}]),
    )
    items = timelines.conversation(describe(None, entries), entries)
    assert [(item.kind, item.text, [card.output for card in item.cards]) for item in items] == [
        ("user", "go", []),
        ("assistant", "", ["seen"]),
        ("user", "and now?", ["boo"]),
        ("assistant", "", ["well"]),
        ("tool", "", ["lost"]),
    ]

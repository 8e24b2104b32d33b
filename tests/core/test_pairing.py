"""Which result belongs to which call, whatever order crashes and other tools left them in."""

import itertools
import json

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from turnlog.core import history
from turnlog.core.entries import Assistant, ToolResult, User
from turnlog.core.pairing import pair
from turnlog.testing import answered, check_messages, opened, said


def log(*bodies):
    return [replace(body, seq=seq) for seq, body in enumerate(bodies, 1)]


def use(call_id, name="read", **given):
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def calls(*blocks, **fields):
    return Assistant(content=[use(block) if isinstance(block, str) else block for block in blocks], **fields)


def result(call_id, words="out", **fields):
    return ToolResult(tool_use_id=call_id, content=words, **fields)


def messages(*bodies):
    built = history.build(log(*bodies)).messages
    check_messages(built)
    return built


def answers(message):
    """{id: text} of the results in one message."""
    blocks = message["content"] if isinstance(message["content"], list) else []
    return {block["tool_use_id"]: block["content"] for block in blocks if block["type"] == "tool_result"}


def owed(*bodies):
    """(id, text of the result or None) of every call, in order."""
    tail = log(*bodies)
    pairing = pair(tail)
    found = [pairing.owed(entry) for entry in tail if isinstance(entry, Assistant)]
    return [(call_id, got and got.content) for calls_of_one in found for call_id, got in calls_of_one]


def test_one_call_and_its_result():
    shown = messages(said("q"), calls("x"), result("x"), answered("a"), said("next"))
    assert [m["role"] for m in shown] == ["user", "assistant", "user", "assistant", "user"]
    assert answers(shown[2]) == {"x": "out"}


def test_the_results_of_parallel_calls_stand_in_one_message_in_call_order():
    shown = messages(said("q"), calls("x", "y"), result("y", "2"), result("x", "1"), answered("a"))
    assert [block["tool_use_id"] for block in shown[2]["content"]] == ["x", "y"]
    assert answers(shown[2]) == {"x": "1", "y": "2"}


@pytest.mark.parametrize(
    "bodies",
    [
        (said("q"), result("x"), calls("x"), answered("a"), said("next")),
        (result("x"), said("q"), calls("x"), answered("a"), said("next")),
    ],
)
def test_results_written_before_their_calls_are_brought_in_order(bodies):
    """D-1: one seed system writes the result first. A4: the prompt is that of a turn written in order."""
    assert messages(*bodies) == messages(said("q"), calls("x"), result("x"), answered("a"), said("next"))


def test_two_results_written_before_their_two_calls_are_brought_in_order():
    """A3 as the older seed system writes it: one answer with two calls, one message with two results."""
    early = messages(result("x", "1"), result("y", "2"), said("q"), calls("x"), calls("y"), answered("a"), said("n"))
    assert early == messages(said("q"), calls("x", "y"), result("x", "1"), result("y", "2"), answered("a"), said("n"))


def test_calls_on_lines_of_their_own_are_one_answer():
    """A3 as the newer seed system writes it."""
    apart = messages(said("q"), calls("x"), calls("y"), result("x", "1"), result("y", "2"), answered("a"), said("n"))
    assert apart == messages(said("q"), calls("x", "y"), result("x", "1"), result("y", "2"), answered("a"), said("n"))


def test_a_result_before_its_call_is_the_calls_result_wherever_it_stood():
    for bodies in ((said("q"), result("x"), calls("x")), (result("x"), said("q"), calls("x"))):
        assert answers(messages(*bodies)[2]) == {"x": "out"}


def test_a_call_written_twice_word_for_word_is_one_call():
    """D-2: another writes each call inside the answer and again as a record of its own."""
    shown = messages(
        said("q"),
        calls({"type": "text", "text": "I look."}, use("x"), use("y", k=1)),
        calls("x"),
        result("x", "1"),
        calls(use("y", k=1)),
        result("y", "2"),
        answered("a"),
    )
    assert [block.get("id") for block in shown[1]["content"]] == [None, "x", "y"]
    assert answers(shown[2]) == {"x": "1", "y": "2"}


def test_a_call_repeated_within_one_answer_is_one_call():
    assert owed(calls(use("x"), use("x")), result("x")) == [("x", "out")]


def test_the_same_block_object_twice_is_one_call():
    block = use("x")
    messages(said("q"), Assistant(content=[block, block]), result("x"))


def test_an_id_used_again_after_its_answer_is_a_new_call_with_a_unique_id():
    shown = messages(
        said("q"),
        calls("x"),
        result("x", "1"),
        calls("x"),
        result("x", "2"),
        calls("x"),
        result("x", "3"),
        answered("a"),
    )
    assert [answers(shown[n]) for n in (2, 4, 6)] == [{"x": "1"}, {"x_2": "2"}, {"x_3": "3"}]
    assert shown[3]["content"][0]["id"] == "x_2"


def test_a_suffix_never_meets_an_id_that_is_in_use():
    found = owed(calls("x_2"), result("x_2", "a"), calls("x"), result("x", "b"), calls("x"), result("x", "c"))
    assert found == [("x_2", "a"), ("x", "b"), ("x_3", "c")]


def test_an_original_id_met_after_the_suffix_of_another_is_made_unique_too():
    found = owed(calls("x"), result("x", "a"), calls("x"), result("x", "b"), calls("x_2"), result("x_2", "c"))
    assert found == [("x", "a"), ("x_2", "b"), ("x_2_2", "c")]


def test_the_same_id_with_another_input_is_another_call_even_while_the_first_is_open():
    found = owed(calls(use("x", a=1)), calls(use("x", a=2)), result("x", "new"), result("x", "old"))
    assert found == [("x", "old"), ("x_2", "new")]


def test_the_same_id_and_input_for_another_tool_is_another_call():
    assert [name for name, _ in owed(calls(use("x", "read")), calls(use("x", "write")))] == ["x", "x_2"]


def test_a_result_belongs_to_the_latest_open_call_before_it_not_to_a_later_one():
    assert owed(calls("x"), result("x", "1"), calls("x")) == [("x", "1"), ("x_2", None)]


def test_a_late_result_goes_to_the_first_open_call_after_it():
    found = owed(result("x", "early"), calls(use("x", a=1)), calls(use("x", a=2)))
    assert found == [("x", "early"), ("x_2", None)]


def test_two_early_results_are_given_out_in_order():
    found = owed(result("x", "1"), result("x", "2"), calls(use("x", a=1)), calls(use("x", a=2)))
    assert found == [("x", "1"), ("x_2", "2")]


def test_a_call_without_a_result_is_answered_as_interrupted():
    shown = messages(said("q"), calls("x", "y"), result("y"), said("and now?"))
    dangling, answered_one, words = shown[2]["content"]
    assert dangling["is_error"] is True
    assert "interrupted" in dangling["content"]
    assert answered_one == {"type": "tool_result", "tool_use_id": "y", "content": "out"}
    assert words["text"] == "and now?"


def test_a_call_at_the_very_end_is_answered_as_interrupted():
    shown = messages(said("q"), calls("x"))
    assert shown[2]["content"][0]["tool_use_id"] == "x"


def test_dangling_calls_anywhere_are_repaired_not_only_the_last():
    """D-4: a repair that looks only at the last answer leaves the session unusable."""
    shown = messages(said("q"), calls("x"), said("r"), calls("y"), said("s"), calls("z"), result("z"), answered("a"))
    assert [list(answers(m)) for m in shown if m["role"] == "user"] == [[], ["x"], ["y"], ["z"]]


def test_words_between_a_call_and_its_result_come_after_the_result():
    shown = messages(said("q"), calls("x"), said("hurry"), result("x"), answered("a"))
    assert [block["type"] for block in shown[2]["content"]] == ["tool_result", "text"]
    assert answers(shown[2]) == {"x": "out"}


def test_an_answer_between_a_call_and_its_result_joins_the_call():
    shown = messages(said("q"), calls("x"), answered("thinking aloud"), result("x"), answered("a"))
    assert [m["role"] for m in shown] == ["user", "assistant", "user", "assistant"]
    assert answers(shown[2]) == {"x": "out"}


def test_two_answers_with_calls_in_a_row_are_one_message_with_all_results():
    shown = messages(said("q"), calls("x"), calls("y"), result("x", "1"), result("y", "2"))
    assert answers(shown[2]) == {"x": "1", "y": "2"}


def test_a_result_without_any_call_is_shown_as_quoted_data():
    shown = messages(said("q"), answered("a"), result("ghost", "spooky ``` words"), said("r"))
    assert "spooky ``` words" in shown[2]["content"][0]["text"]
    assert "````" in shown[2]["content"][0]["text"]
    assert answers(shown[2]) == {}


def test_an_orphan_among_open_calls_comes_after_what_is_owed():
    shown = messages(said("q"), calls("x"), result("ghost"), result("x"), answered("a"))
    assert [block["type"] for block in shown[2]["content"]] == ["tool_result", "text"]


def test_an_orphan_as_the_first_entry_is_a_valid_beginning():
    assert messages(result("ghost"), answered("a"))[0]["role"] == "user"


def test_a_result_recorded_twice_counts_once():
    shown = messages(said("q"), calls("x"), result("x"), result("x"), answered("a"))
    assert len(shown[2]["content"]) == 1


@pytest.mark.parametrize("again", [[{"type": "text", "text": "out"}], [{"type": "text", "text": "out"}] * 2, "out\n"])
def test_a_result_recorded_twice_in_two_forms_counts_once(again):
    is_same = history.as_text(again).strip() == "out"
    shown = messages(said("q"), calls("x"), result("x"), result("x", again), answered("a"))
    assert (len(shown[2]["content"]) == 1) is is_same


def test_two_pictures_as_results_of_one_call_are_two():
    image = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    shown = messages(said("q"), calls("x"), result("x", [image]), result("x", ""), answered("a"))
    assert len(shown[2]["content"]) == 2


def test_a_second_and_different_result_is_not_lost():
    shown = messages(said("q"), calls("x"), result("x", "first"), result("x", "second"), answered("a"))
    assert answers(shown[2]) == {"x": "first"}
    assert "second" in shown[2]["content"][1]["text"]


def test_two_early_results_for_one_call_lose_nothing():
    """The first is the call's; another one with other words is quoted."""
    shown = messages(said("q"), result("x", "one"), result("x", "two"), calls("x"), answered("a"))
    flat = str(shown)
    assert "one" in flat
    assert "two" in flat


def test_calls_of_an_answer_that_a_provider_error_cut_are_never_sent_nor_owed():
    shown = messages(said("q"), calls("x", stop="error"), result("x", "late"), said("r"))
    assert "tool_use" not in str(shown)
    assert "late" in str(shown)


def test_calls_of_an_interrupted_answer_are_kept_and_closed():
    shown = messages(said("q"), calls("x", stop="interrupted"), said("r"))
    assert "x" in answers(shown[2])


MALFORMED = [
    {"type": "tool_use"},
    {"type": "tool_use", "id": "", "name": "n", "input": {}},
    {"type": "tool_use", "id": None, "name": "n", "input": {}},
    {"type": "tool_use", "id": 5, "name": "n", "input": {}},
    {"type": "tool_use", "id": "x", "input": {}},
    {"type": "tool_use", "id": "x", "name": "", "input": {}},
    {"type": "tool_use", "id": "x", "name": 7, "input": {}},
    {"type": "tool_use", "id": "\ud800", "name": ["\ud800"], "input": {"k": "\ud800"}},
]


@pytest.mark.parametrize("block", MALFORMED)
def test_a_malformed_call_is_shown_as_text(block):
    shown = messages(said("q"), Assistant(content=[block, use("ok")]), result("ok"))
    texts = [b["text"] for b in shown[1]["content"] if b["type"] == "text"]
    assert len(texts) == 1
    assert "malformed" in texts[0]
    assert answers(shown[2]) == {"ok": "out"}


@pytest.mark.parametrize("block", MALFORMED)
def test_a_malformed_call_alone_is_a_valid_answer(block):
    shown = messages(said("q"), Assistant(content=[block]), said("r"))
    assert len(shown) == 3


@pytest.mark.parametrize("given", [None, "text", 5, ["a"], True])
def test_an_input_that_is_no_object_is_wrapped(given):
    block = {"type": "tool_use", "id": "x", "name": "n", "input": given}
    shown = messages(said("q"), Assistant(content=[block]), result("x"))
    assert shown[1]["content"][0]["input"] == {"value": given}


def test_a_call_without_an_input_gets_one():
    shown = messages(said("q"), Assistant(content=[{"type": "tool_use", "id": "x", "name": "n"}]), result("x"))
    assert isinstance(shown[1]["content"][0]["input"], dict)


def test_fields_a_provider_added_to_a_call_are_sent_back():
    block = {**use("x"), "caller": {"type": "direct"}}
    assert messages(said("q"), Assistant(content=[block]), result("x"))[1]["content"] == [block]


def test_a_call_whose_id_had_to_change_keeps_its_other_fields():
    block = {**use("x", a=1), "caller": {"type": "direct"}}
    shown = messages(said("q"), calls("x"), result("x"), Assistant(content=[block]), result("x", "2"))
    assert shown[3]["content"] == [{**block, "id": "x_2"}]


def test_a_call_id_with_a_lone_surrogate_can_be_sent():
    messages(said("q"), calls("x\ud800", "x\udfff"), result("x\ud800", "1"), result("x\udfff", "2"))


def test_blocks_inside_a_result_are_sent_and_blank_ones_are_not():
    image = {"type": "image", "source": {"type": "base64", "data": "AA=="}}
    content = [{"type": "text", "text": " "}, {"type": "text", "text": "seen"}, image]
    shown = messages(said("q"), calls("x"), result("x", content))
    assert shown[2]["content"][0]["content"] == [{"type": "text", "text": "seen"}, image]


@pytest.mark.parametrize("blank", ["", " \n", [], [{"type": "text", "text": ""}], [{"type": "text", "text": "\t"}]])
def test_a_result_without_output_says_so(blank):
    shown = messages(said("q"), calls("x"), result("x", blank))
    assert shown[2]["content"][0]["content"] == history.NO_OUTPUT


def test_a_call_or_a_result_inside_a_result_is_data():
    inner = [use("inner"), {"type": "tool_result", "tool_use_id": "y", "content": "nested words"}]
    shown = messages(said("q"), calls("x"), result("x", inner))
    kinds = {block["type"] for block in shown[2]["content"][0]["content"]}
    assert kinds == {"text"}
    assert "nested words" in str(shown)
    assert "inner" in str(shown)


def test_lone_surrogates_in_results_are_replaced():
    messages(said("q"), calls("x", "y"), result("x", "a\ud800"), result("y", [{"type": "text", "text": "\udfff"}]))


def test_a_failing_tool_is_marked_as_an_error():
    assert messages(said("q"), calls("x"), result("x", is_error=True))[2]["content"][0]["is_error"] is True


def test_plain_answers_owe_nothing():
    tail = log(said("q"), answered("a"), Assistant(content="b"))
    pairing = pair(tail)
    assert pairing.owed(tail[1]) == []
    assert pairing.blocks(tail[1]) == tail[1].content
    assert pairing.blocks(tail[2]) == "b"


def test_pairing_a_string_answer_among_calls():
    assert len(messages(said("q"), calls("x"), result("x"), Assistant(content="plain"), said("r"))) == 5


def test_all_orders_of_two_calls_and_their_results_are_acceptable():
    pieces = [calls("x"), result("x", "rx"), calls("y"), result("y", "ry"), answered("a"), User(content="r")]
    for order in itertools.permutations(pieces):
        shown = messages(opened("s"), *order)
        flat = str(shown)
        assert "rx" in flat
        assert "ry" in flat
        assert "interrupted" not in flat


def test_results_of_two_calls_with_one_id_in_one_message_belong_to_them_in_call_order():
    found = owed(calls(use("x", a=1), use("x", a=2)), result("x", "one"), result("x", "two"))
    assert found == [("x", "one"), ("x_2", "two")]


def test_two_results_of_a_call_written_twice_in_one_message_belong_to_two_calls():
    assert owed(calls("x", "x"), result("x", "1"), result("x", "2")) == [("x", "1"), ("x_2", "2")]
    assert owed(calls("x", "x"), result("x", "1"), result("x", "1")) == [("x", "1")]
    assert owed(calls("x"), calls("x"), result("x", "1"), result("x", "2")) == [("x", "1")]


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 1)), min_size=1, max_size=8), st.data())
def test_in_one_message_the_nth_result_of_an_id_belongs_to_its_nth_call(made, data):
    blocks = [use(call_id, a=given) for call_id, given in made]
    order = data.draw(st.permutations(range(len(made))))
    due = {call_id: [f"{call_id}{n}" for n, (other, _) in enumerate(made) if other == call_id] for call_id in "xyz"}
    came = [result(made[n][0], due[made[n][0]].pop(0)) for n in order]
    found = owed(calls({"type": "text", "text": "I look."}, *blocks), *came)
    distinct = {json.dumps(block) for block in blocks}
    if len(distinct) == len(blocks):
        assert [words for _, words in found] == [f"{call_id}{n}" for n, (call_id, _) in enumerate(made)]
    assert sorted(words for _, words in found) == sorted(entry.content for entry in came)
    assert len({call_id for call_id, _ in found}) == len(made)


def test_each_call_of_an_answer_has_its_result_and_a_repeated_one_that_of_the_first():
    tail = log(calls(use("x"), use(""), use("y")), calls("x"), result("x"))
    assert [pair(tail).results_of(entry) for entry in tail[:2]] == [[tail[2], None, None], [tail[2]]]
    assert pair(tail).results_of(Assistant(seq=9, content="plain")) == []

"""What one call sends, in cache order."""

import pytest
from msgspec.structs import replace

from tests.prompts import of_transcript
from turnlog.core import history, prompt
from turnlog.core.entries import Assistant, Compaction, Pin, ToolResult, User
from turnlog.core.prompt import MAX_BREAKPOINTS, ToolDefinition
from turnlog.testing import answered, check_messages, opened, said


def log(*bodies):
    return [replace(body, seq=seq) for seq, body in enumerate(bodies, 1)]


def turn(n):
    return said(f"question {n}"), answered(f"answer {n}")


TALK = log(opened("s"), *turn(1), *turn(2), said("now"))
TOOL = ToolDefinition(name="read", description="reads", input_schema={"type": "object"})
FOLDED = log(
    opened("s"),
    said("rule"),
    answered("ok"),
    Pin(target=2),
    *turn(2),
    said("now"),
    Compaction(summary="S", first_kept=5, covers=(2, 4)),
)


def marked(built):
    """The words that each breakpoint stands behind."""
    words = []
    for message, block in built.breakpoints:
        if message < 0:
            words.append("system")
            continue
        content = built.messages[message]["content"]
        words.append(content if isinstance(content, str) else content[block].get("text", content[block]["type"]))
    return words


def test_a_prompt_is_system_tools_and_messages():
    built = of_transcript(TALK, system="Be kind.", tools=[TOOL])
    assert built.system == "Be kind."
    assert built.tools == (TOOL,)
    check_messages(built.messages)
    assert prompt.as_dict(built) == {
        "system": "Be kind.",
        "messages": built.messages,
        "tools": [{"name": "read", "description": "reads", "input_schema": {"type": "object"}}],
    }


def test_a_prompt_is_what_the_history_shows_and_what_the_call_asks_for():
    shown = history.build(TALK, system="Be kind.")
    made = prompt.assemble(shown, max_output=99, may_call=False)
    assert (made.system, made.messages, made.max_output, made.may_call) == ("Be kind.", shown.messages, 99, False)


def test_breakpoints_stand_after_system_and_the_two_newest_user_messages():
    assert marked(of_transcript(TALK, system="Be kind.")) == ["system", "question 2", "now"]
    assert marked(of_transcript(TALK, tools=[TOOL])) == ["system", "question 2", "now"]
    assert marked(of_transcript(TALK)) == ["question 2", "now"]
    assert marked(of_transcript(TALK[:2])) == ["question 1"]
    assert of_transcript([]).breakpoints == ()


def test_a_breakpoint_stands_after_pins_and_summary():
    built = of_transcript(FOLDED, system="Be kind.")
    system, lead, before, now = marked(built)
    assert (system, before, now) == ("system", "question 2", "now")
    assert "S" in lead
    assert len(built.breakpoints) == MAX_BREAKPOINTS


def test_in_the_system_prompt_pins_and_summary_are_a_part_of_their_own():
    again = [*FOLDED, Compaction(seq=9, summary="T", first_kept=8, covers=(5, 7))]
    before, after = (of_transcript(each, system="Be kind.", tools=[TOOL], inject="system") for each in (FOLDED, again))
    assert before.breakpoints[:2] == after.breakpoints[:2] == (prompt.HEAD, prompt.SYSTEM_LEAD)
    assert prompt.system_parts(before)[0] == prompt.system_parts(after)[0] == "Be kind."
    assert "S" in prompt.system_parts(before)[1] != prompt.system_parts(after)[1]
    assert before.system == "Be kind.\n\n" + prompt.system_parts(before)[1]
    assert prompt.system_parts(of_transcript(TALK, system="Be kind.", inject="system")) == ("Be kind.", "")


def test_without_system_text_tools_are_cached_apart_from_pins_and_summary():
    assert of_transcript(FOLDED, tools=[TOOL], inject="system").breakpoints[:2] == (prompt.HEAD, prompt.SYSTEM_LEAD)
    assert of_transcript(FOLDED, inject="system").breakpoints[0] == prompt.SYSTEM_LEAD


@pytest.mark.parametrize("inject", history.INJECTS)
def test_every_breakpoint_names_a_block_that_exists_and_none_twice(inject):
    for transcript in (
        TALK,
        FOLDED,
        FOLDED[:-1],
        [*FOLDED, Compaction(seq=9, summary="T", first_kept=9, covers=(5, 8))],
    ):
        built = of_transcript(transcript, system="Be kind.", inject=inject)
        marked(built)
        assert len(set(built.breakpoints)) == len(built.breakpoints) <= MAX_BREAKPOINTS
        assert list(built.breakpoints) == sorted(built.breakpoints)


def test_where_pins_and_summary_end_the_only_user_message_one_breakpoint_is_enough():
    lone = [*FOLDED[:4], Compaction(seq=5, summary="S", first_kept=5, covers=(2, 4))]
    built = of_transcript(lone)
    assert built.breakpoints == ((0, 1),)


def test_a_breakpoint_after_results_stands_after_the_last_of_them():
    call = [{"type": "tool_use", "id": i, "name": "n", "input": {}} for i in "xy"]
    results = [ToolResult(tool_use_id=i, content=i) for i in "xy"]
    built = of_transcript(log(opened("s"), User(content="q"), Assistant(content=call), *results))
    assert built.breakpoints == ((0, 0), (2, 1))


def test_the_breakpoint_of_the_newest_message_is_one_of_the_next_request():
    """What was written to the cache by one request is where the next one looks."""
    this = of_transcript(TALK, system="s")
    later = [*TALK, replace(answered("a"), seq=7), replace(said("r"), seq=8)]
    after = of_transcript(later, system="s")
    assert this.breakpoints[-1] in after.breakpoints


def test_a_tool_of_a_log_is_what_the_model_sees_of_it():
    kept = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}, "called": {"name": "x"}}
    assert ToolDefinition.of(kept) == ToolDefinition(name="look", description="Looks.", input_schema={"type": "object"})
    assert ToolDefinition.of({"name": "look"}) == ToolDefinition(name="look")

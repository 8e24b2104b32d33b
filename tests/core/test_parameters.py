"""Parameters: what a model can do is sent, what only shapes its words is left out and named, the rest is refused."""

import pytest

from turnlog.core import parameters
from turnlog.core.parameters import Parameters, effort_of, fitting, given
from turnlog.errors import UnsupportedParameter

SCHEMA = {"type": "json_schema", "schema": {"type": "object"}}


def test_only_what_has_a_value_is_given():
    assert given(Parameters()) == frozenset()
    assert given(Parameters(temperature=0.0, stop=("x",), parallel=False)) == {"temperature", "stop", "parallel"}


def test_a_format_without_a_schema_has_a_name_of_its_own():
    assert given(Parameters(format=SCHEMA)) == {"format"}
    assert given(Parameters(format={"type": "json_object"})) == {"json_object"}


def test_what_is_taken_stays_as_it_is():
    wanted = Parameters(temperature=0.5, format=SCHEMA, tool_choice="named", tool="look")
    assert fitting(wanted, parameters.ALL) == (wanted, ())


def test_what_only_shapes_the_words_is_left_out_and_named():
    kept, left_out = fitting(Parameters(temperature=0.5, seed=1, stop=("x",), user="u", betas=("b",)), {"stop"})
    assert kept == Parameters(stop=("x",))
    assert left_out == ("seed", "temperature")


@pytest.mark.parametrize(
    "wanted",
    [
        Parameters(format=SCHEMA),
        Parameters(format={"type": "json_object"}),
        Parameters(tool_choice="required"),
        Parameters(tool_choice="named", tool="look"),
    ],
)
def test_what_changes_the_answer_is_refused(wanted):
    with pytest.raises(UnsupportedParameter) as caught:
        fitting(wanted, frozenset())
    assert caught.value.name in ("format", "json_object", "tool_choice")
    assert caught.value.hint


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_a_choice_that_every_model_can_follow_is_kept(choice):
    wanted = Parameters(tool_choice=choice)
    assert fitting(wanted, frozenset()) == (wanted, ())


@pytest.mark.parametrize(
    ("wanted", "word"),
    [
        (Parameters(), None),
        (Parameters(effort="xhigh", thinking={"type": "disabled"}), "xhigh"),
        (Parameters(thinking={"type": "disabled"}), "none"),
        (Parameters(thinking={"type": "enabled", "budget_tokens": 4_096}), "low"),
        (Parameters(thinking={"type": "enabled", "budget_tokens": 4_097}), "medium"),
        (Parameters(thinking={"type": "enabled", "budget_tokens": 50_000}), "high"),
        (Parameters(thinking={"type": "adaptive"}), None),
    ],
)
def test_a_budget_of_thinking_has_a_nearest_word(wanted, word):
    assert effort_of(wanted) == word


def test_a_call_of_a_tool_that_only_its_vendor_has_cannot_be_asked_of_another():
    tools = ({"type": "web_search_20250305", "name": "web_search"},)
    wanted = Parameters(tool_choice="named", tool="web_search", server_tools=tools)
    assert fitting(wanted, parameters.ALL) == (wanted, ())
    with pytest.raises(UnsupportedParameter):
        fitting(wanted, parameters.ALL - {"server_tools"})
    kept, left_out = fitting(Parameters(server_tools=tools), frozenset())
    assert (kept.server_tools, left_out) == ((), ("server_tools",))

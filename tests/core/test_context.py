"""What fills the window, by its parts; when the next compaction is due; rows of lists; what models cost."""

import pytest
from msgspec import to_builtins

from turnlog.core import context, guard, prices
from turnlog.core.compaction import Keep, Trigger
from turnlog.core.entries import Assistant, Compaction, Failed, Opened, Origin, Pin, ToolResult, User
from turnlog.core.guard import Limits
from turnlog.core.rows import public_row
from turnlog.core.session import Session

OPENED = Opened(
    seq=1, ts="2026-01-01T00:00:00.000Z", id="s", key="agent:main:cli:direct:user", agent="main", channel="cli"
)
TOOL = {"name": "read_file", "description": "Read a file.", "input_schema": {"type": "object"}}


def talk(turns, words="How much is the rent of the flat in Elm Street?", start=2):
    entries = [OPENED]
    for n in range(turns):
        entries.append(User(seq=start + 2 * n, content=f"{words} {n}"))
        entries.append(Assistant(seq=start + 2 * n + 1, content=f"It is 900 euros a month, as we said. {n}"))
    return entries


@pytest.mark.parametrize("estimator", ["calibrated", "chars16"])
def test_the_parts_add_up_to_what_the_guard_measures(estimator):
    entries = talk(6)
    entries += [
        Compaction(seq=14, summary="The rent is 900 euros.", first_kept=6, covers=(2, 5)),
        Pin(seq=15, target=2),
    ]
    limits = Limits(window=8_000, estimator=estimator, system="You are brief.", tools=(TOOL,))
    split = context.split(entries, limits)
    assert split.total == guard.measure(entries, limits)
    assert split.system + split.tools + split.pins + split.summary + split.tail == split.total
    assert min(split.system, split.tools, split.pins, split.summary, split.tail) > 0
    assert split.messages == 8


def test_claw0_counts_messages_only_and_shows_system_and_tools_beside_them():
    entries = [OPENED, User(seq=2, content="x" * 4_936)]
    limits = Limits(window=180_000, estimator="chars4", system="s" * 400, tools=(TOOL,))
    split = context.split(entries, limits)
    assert (split.total, split.tail, split.system, split.messages) == (1_234, 1_234, 100, 1)
    assert split.tools > 0
    assert f"{split.share:.1%}" == "0.7%"


@pytest.mark.parametrize("estimator", ["calibrated", "chars4", "chars16", "bytes4"])
@pytest.mark.parametrize("reported", [None, 3, 40, 5_000])
@pytest.mark.parametrize("code", ["provider", "overflow", "refused_content", "stopped"])
def test_the_parts_add_up_after_failed_turns_and_under_every_estimator(estimator, reported, code):
    usage = {"input_tokens": reported, "output_tokens": 1} if reported else None
    entries = [
        *talk(6),
        Compaction(seq=14, summary="The rent is 900 euros.", first_kept=6, covers=(2, 5)),
        Pin(seq=15, target=2),
        User(seq=16, content="and the deposit?"),
        Assistant(seq=17, content="Two months.", usage=usage),
        User(seq=18, content="a long question " * 50),
        Assistant(seq=19, content="half an ans" * 50, stop="error"),
        Failed(seq=20, code=code),
    ]
    limits = Limits(window=8_000, estimator=estimator, system="You are brief.", tools=(TOOL,))
    split = context.split(entries, limits)
    parts = [split.pins, split.summary, split.tail] + ([] if split.uncounted else [split.system, split.tools])
    assert sum(parts) == split.total == guard.measure(entries, limits)
    assert min(parts) >= 0
    assert split.uncounted == (estimator in ("chars4", "bytes4"))


def test_what_was_not_sent_of_a_failed_answer_is_not_measured():
    answer = Assistant(seq=3, content="b", usage={"input_tokens": 100, "output_tokens": 5})
    entries = [OPENED, User(seq=2, content="a"), answer, User(seq=4, content="c")]
    partial = [Assistant(seq=5, content="half an ans" * 500, stop="error"), Failed(seq=6, code="provider")]
    limits = Limits(window=8_000)
    assert guard.measure([*entries, *partial], limits) == guard.measure(entries, limits)


def test_an_empty_session_takes_nothing_but_its_system_prompt():
    split = context.split([OPENED], Limits(window=1_000))
    assert (split.total, split.tail, split.summary, split.pins, split.messages) == (0, 0, 0, 0, 0)


def test_the_forecast_follows_the_trigger_that_comes_first():
    entries = talk(5)
    limits = Limits(window=8_000, triggers=(Trigger("messages", 20), Trigger("window", 2_000)), keep=Keep("turns", 2))
    size = guard.measure(entries, limits)
    assert context.turns_left(entries, limits, size) == 5
    assert 0 < context.turns_left(entries, Limits(window=8_000), size) < 8_000 // 20
    assert context.turns_left(entries, Limits(window=8_000, triggers=(Trigger("tokens", 10),)), size) == 0


def test_where_nothing_compacts_by_itself_there_is_no_forecast():
    assert (
        context.turns_left(talk(3), Limits(window=8_000, triggers=(Trigger("manual"), Trigger("overflow"))), 50) is None
    )
    assert context.turns_left([OPENED], Limits(window=8_000), 0) is None


def test_long_tool_results_shorten_the_forecast():
    entries = talk(2)
    call = {"type": "tool_use", "id": "c1", "name": "read_file", "input": {}}
    heavy = [
        User(seq=6, content="read it"),
        Assistant(seq=7, content=[call]),
        ToolResult(seq=8, tool_use_id="c1", content="word " * 2_000),
        Assistant(seq=9, content="done"),
    ]
    limits = Limits(window=64_000)
    assert context.turns_left([*entries, *heavy], limits, 3_000) < context.turns_left(entries, limits, 3_000)


def test_a_row_has_the_fields_of_a_list_in_their_order():
    session = Session(id="s", key="k", agent="main", channel="cli", forked_from=Origin(id="t", seq=3))
    names = (
        "id agentId key label title messageCount turnCount createdAt lastAt tokenEstimate status channel compactions"
    )
    assert list(to_builtins(public_row(session))) == names.split()
    assert to_builtins(public_row(session))["label"] is None
    assert to_builtins(public_row(session, file_path="agents/main/s.jsonl"))["filePath"].endswith("s.jsonl")


def test_the_cost_is_that_of_the_models_family_and_of_no_other():
    usage = {"input_tokens": 1_000_000, "output_tokens": 100_000, "cache_read_input_tokens": 1_000_000, "odd": "x"}
    assert prices.cost("anthropic:claude-sonnet-5", usage) == pytest.approx(3.0 + 1.5 + 0.3)
    assert prices.cost("openai:gpt-4o-mini-2026", {"input_tokens": 1_000_000}) == pytest.approx(0.15)
    assert prices.cost("offline", usage) == 0
    assert prices.cost("scripted:answers.jsonl", None) == 0


@pytest.mark.parametrize("model", ["openai:gpt-5.9", "openai:somebodys-own", "", None])
def test_a_model_without_a_price_costs_none_and_not_nothing(model):
    assert prices.cost(model, {"input_tokens": 5}) is None

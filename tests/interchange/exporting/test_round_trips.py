"""Whatever a transcript holds, an export read back is the same history, or what is lost is named."""

import asyncio
import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

import turnlog
from tests.core.simulation import Simulation, steps
from turnlog.core import history
from turnlog.core.entries import Foreign, Selected
from turnlog.core.session import describe
from turnlog.interchange.exporting import EXACT, FORMATS, export, losses, messages, stream
from turnlog.interchange.importing import import_path
from turnlog.testing import check_messages, entry

EXAMPLES = int(os.environ.get("EXAMPLES", "60"))
thorough = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


DIFFERS = {
    "pins are left out",
    "shortened tool results are whole",
    "messages that the model refused are among the others",
}
"""Losses that change what the model is shown."""


def text_of(log, form, **options):
    return "".join(export(log, describe(None, log), form, **options))


def read_back(folder, text, name):
    async def go():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        async with turnlog.open_store("memory:") as store:
            (result,) = await import_path(store, path)
            assert result.id, result.notes
            (again,) = await import_path(store, path)
            assert again.entries == 0, again.notes
            first, *rest = await store.read(result.id)
            return result, [replace(first, incarnation=None), *rest]

    return asyncio.run(go())


def without_closing(log):
    ends = [e.seq for e in log if isinstance(e, Foreign) and isinstance(e.raw, dict) and e.raw.get("import") == "end"]
    return log[: ends[0] - 1] if ends else log


@pytest.mark.parametrize(
    ("form", "options"),
    [*((form, {}) for form in FORMATS), ("json", {"shape": "openai"}), ("json", {"mask": False})],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())),
)
@thorough
@given(taken=steps)
def test_written_page_by_page_the_text_is_the_same(form, options, taken):
    log = Simulation().run(taken).log
    whole = text_of(log, form, **options)

    async def pages():
        for at in range(0, len(log), 3):
            yield log[at : at + 3]

    async def main():
        return "".join([piece async for piece in stream(pages, describe(None, log), form, **options)])

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(messages, "PART_BYTES", 0)
        assert asyncio.run(main()) == whole


@pytest.mark.parametrize("form", EXACT)
@thorough
@given(steps)
def test_an_exact_export_read_back_has_the_same_entries(form, tmp_path, taken):
    log = Simulation().run(taken).log
    assert losses(log, form) == []
    result, back = read_back(tmp_path, text_of(log, form), "export.jsonl")
    assert result.id == "s1"
    assert without_closing(back) == log


@pytest.mark.parametrize("shape", ["anthropic", "openai"])
@thorough
@given(steps)
def test_messages_read_back_give_the_same_history_unless_a_loss_is_named(shape, tmp_path, taken):
    log = Simulation().run(taken).log
    lost = losses(log, "json", shape=shape)
    document = json.loads(text_of(log, "json", shape=shape, mask=False))
    _, back = read_back(tmp_path, json.dumps(document), "export.json")
    before, after = history.build(log).messages, history.build(back).messages
    if DIFFERS & set(lost):
        return
    if shape == "openai":
        before, after = openai_view(before), openai_view(after)
    assert after == before
    if after:
        check_messages(history.build(back).messages)


def openai_view(messages):
    """Without what `losses` names for this shape."""
    return [{**message, "content": [*words(message), *calls(message)]} for message in messages]


def blocks(message):
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def words(message):
    hidden = ("tool_use", "thinking")
    found = [block for block in blocks(message) if block["type"] not in hidden]
    return [{name: value for name, value in block.items() if name != "is_error"} for block in found]


def calls(message):
    return [block for block in blocks(message) if block["type"] == "tool_use"]


@thorough
@given(steps)
def test_every_folded_message_is_in_the_messages_and_the_markers_say_where(taken):
    simulation = Simulation().run(taken)
    document = json.loads(text_of(simulation.log, "json", mask=False))
    places = [mark["before"] for mark in document["compactions"]]
    assert places == sorted(places)
    assert all(0 <= place <= len(document["messages"]) for place in places)
    if "rewound branches are left out" not in losses(simulation.log, "json"):
        shown = json.dumps(document["messages"])
        assert all(word in shown for word in simulation.words.values())


def test_a_part_that_begins_with_an_answer_gets_no_question_of_ours(tmp_path):
    bodies = [
        entry(type="session", id="s1", key="agent:main:cli:direct:user", agent="main", channel="cli"),
        entry(type="user", content="one"),
        entry(type="assistant", content="two"),
        entry(type="compaction", summary="one was said", first_kept=3, covers=[2, 2]),
        entry(type="user", content=" "),
    ]
    log = [replace(body, seq=n, ts="2026-01-01T00:00:00.000Z") for n, body in enumerate(bodies, 1)]
    text = text_of(log, "json")
    assert history.CONTINUES not in text
    assert json.loads(text)["compactions"][0]["before"] == 1
    _, back = read_back(tmp_path, text, "export.json")
    assert history.build(back).messages == history.build(log).messages


def rich_log():
    log = [
        entry(type="session", id="s1", key="agent:main:cli:direct:user", agent="main", channel="cli", label="Boats"),
        entry(type="selected", n=1),
        entry(type="user", content="Lone \ud800 and NUL \x00 and 你好", sender="Ann", message_id="m1"),
        entry(
            type="assistant",
            content=[
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "text", "text": "Look."},
                {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": [1, {"x": None}]}},
            ],
            model="m",
            usage={"input_tokens": 3, "output_tokens": 4},
            stop="tool_use",
        ),
        entry(type="tool_result", tool_use_id="c1", content=[{"type": "text", "text": "seen"}], is_error=True),
        entry(type="foreign", raw={"any": ["thing"]}),
        entry(type="status", value="archived", reason="old"),
    ]
    stamped = "2026-01-01T00:00:00.000Z"
    return [replace(body, seq=n, ts=stamped) for n, body in enumerate(log, 1)]


@pytest.mark.parametrize("form", EXACT)
def test_only_selected_loses_its_effect_when_an_export_is_read_back(form, tmp_path):
    log = rich_log()
    _, back = read_back(tmp_path, text_of(log, form), "export.jsonl")
    changed = [(ours, theirs) for ours, theirs in zip(log, without_closing(back), strict=True) if ours != theirs]
    ((was, became),) = changed
    assert isinstance(was, Selected)
    assert isinstance(became, Foreign)


@pytest.mark.parametrize("form", EXACT)
def test_damaged_places_keep_their_number_in_an_export(form, tmp_path):
    log = rich_log()
    del log[3]
    _, back = read_back(tmp_path, text_of(log, form), "export.jsonl")
    assert back[3].raw == {"missing": 4}
    assert back[4].tool_use_id == "c1"


def test_the_exact_formats_keep_secrets_and_the_others_mask_them():
    key = "ghp_" + "aB3dE5fG7h" * 4
    log = [*rich_log(), entry(type="user", content=f"my key is {key}", seq=8, ts="2026-01-01T00:00:01.000Z")]
    for form in FORMATS:
        assert (key in text_of(log, form)) == (form in EXACT), form
        assert key not in text_of(log, form, mask=True)


@pytest.mark.parametrize(("form", "shape"), [("docx", "anthropic"), ("json", "cohere")])
def test_an_unknown_format_or_shape_is_refused(form, shape):
    with pytest.raises(turnlog.UsageError, match="unknown"):
        text_of(rich_log(), form, shape=shape)
    with pytest.raises(turnlog.UsageError, match="unknown"):
        losses(rich_log(), form, shape=shape)


def test_the_openai_shape_keeps_the_address_of_an_image():
    source = {"type": "url", "url": "https://example.org/a.png"}
    first = entry(type="session", id="s1", key="agent:main:cli:direct:user", agent="main", channel="cli")
    log = [replace(first, seq=1), replace(entry(type="user", content=[{"type": "image", "source": source}]), seq=2)]
    [message] = json.loads(text_of(log, "json", shape="openai"))["messages"]
    assert message["content"] == [{"type": "image_url", "image_url": {"url": source["url"]}}]


def test_losses_name_what_the_openai_shape_cannot_say():
    assert losses(rich_log(), "json", shape="openai") == [
        "foreign entries are left out",
        "senders and ids of messages are left out",
        "thinking is left out",
        "in an answer all words stand before all calls",
        "which tool results are errors is left out",
    ]

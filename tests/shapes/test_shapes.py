"""Messages of OpenAI's and Anthropic's APIs go in and out: equal where both can say it, with the original where not."""

import itertools

import pytest

import turnlog
from turnlog import Foreign, ToolResult, UsageError, User
from turnlog.shapes.reading import entries_of, new_messages
from turnlog.shapes.writing import all_in_shape
from turnlog.testing import ScriptedProvider, check_messages

PNG = "iVBORw0KGgo="
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":"sky"}'}}
OPENAI = [
    {"role": "user", "content": "What is up?"},
    {"role": "assistant", "content": "Let me look.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "clouds"},
    {"role": "assistant", "content": "Clouds."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "And here?"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        ],
    },
]
ANTHROPIC = [
    {"role": "user", "content": "What is up?"},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "sky"}},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "clouds"}]},
    {"role": "assistant", "content": "Clouds."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "And here?"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        ],
    },
]
RESPONSES = [
    {"role": "user", "content": "What is up?"},
    {"role": "assistant", "content": "Let me look."},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at":"sky"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "clouds"},
    {"role": "assistant", "content": "Clouds."},
    {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "And here?"},
            {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PNG}"},
        ],
    },
]
SHAPES = {"openai": OPENAI, "anthropic": ANTHROPIC, "responses": RESPONSES}


def connected(**settings):
    return turnlog.connect("memory:", home="/nonexistent", provider=ScriptedProvider(), **settings)


@pytest.mark.parametrize(("given", "asked"), list(itertools.product(SHAPES, SHAPES)))
def test_what_goes_in_in_one_shape_comes_out_in_every_other(given, asked):
    with connected() as t:
        chat = t.session("ann")
        chat.append(SHAPES[given][0])
        chat.append(SHAPES[given][1:])
        assert chat.messages(shape=asked) == SHAPES[asked]
        shown = chat.history(shape=asked)
        assert shown == SHAPES[asked]
        if asked == "anthropic":
            check_messages(shown)
        assert all(entry.raw is None for entry in chat.messages())


LOSSY = [
    {"role": "user", "content": "hi", "name": "ann"},
    {"role": "assistant", "content": "hi", "refusal": None, "annotations": [], "audio": None},
    {"role": "assistant", "content": None, "tool_calls": [{**CALL, "extra": 1}]},
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "x"}], "name": "look"},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "x", "cache_control": {}}]},
    {
        "type": "message",
        "role": "assistant",
        "id": "m",
        "content": [{"type": "output_text", "text": "a", "logprobs": []}],
    },
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{ "at": 1 }', "id": "f", "status": "done"},
    {"id": "msg_1", "type": "message", "role": "assistant", "content": [{"type": "text", "text": "a"}], "model": "m"},
]


@pytest.mark.parametrize("message", LOSSY)
def test_what_an_entry_cannot_say_is_kept_and_comes_back_word_for_word(message):
    from turnlog.shapes.detecting import shape_of

    [entry] = entries_of([message])
    assert entry.raw == message
    assert all_in_shape([entry], shape_of(message) or "anthropic") == [message]
    for shape in SHAPES:
        assert all_in_shape([entry], shape)


def test_results_and_text_of_one_message_are_entries_of_their_own_and_come_back_as_one_message():
    message = {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": "1"},
            {"type": "tool_result", "tool_use_id": "b", "content": "2", "is_error": True},
            {"type": "text", "text": "and now?"},
        ],
    }
    found = entries_of([message])
    assert [type(entry) for entry in found] == [ToolResult, ToolResult, User]
    assert all_in_shape(found, "anthropic") == [message]


def test_system_messages_and_unknown_items_are_kept_and_not_shown():
    system, reasoning = {"role": "system", "content": "Be brief."}, {"type": "reasoning", "summary": [], "id": "r"}
    found = entries_of([[system, reasoning, {"role": "user", "content": "hi"}]])
    assert [type(entry) for entry in found] == [Foreign, Foreign, User]
    assert [entry.raw for entry in found[:2]] == [system, reasoning]


@pytest.mark.parametrize(
    "wrong",
    [
        5,
        "text",
        {},
        {"content": "x"},
        {"role": "tool", "content": "x"},
        {"role": "function", "content": "x"},
        {"type": "function_call", "name": "x"},
        {"role": "assistant", "tool_calls": [{"id": "c"}]},
        {"role": "user", "content": 5},
        {"role": "user", "content": float("nan")},
        {"role": "user", "content": [{"type": "nonsense"}]},
    ],
)
def test_what_is_no_message_is_an_error_with_a_hint_and_nothing_is_stored(wrong):
    with connected() as t:
        chat = t.session("ann")
        with pytest.raises(UsageError) as raised:
            chat.append({"role": "user", "content": "fine"}, wrong)
        assert raised.value.hint
        assert t.sessions.list().total == 0


def test_the_content_of_a_call_is_a_text_blocks_or_messages():
    assert new_messages("hi") == [User(content="hi")]
    blocks = [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": "https://x/y.png"}}]
    [entry] = new_messages(blocks)
    assert [block["type"] for block in entry.content] == ["text", "image"]
    assert new_messages({"role": "user", "content": "hi"}) == [User(content="hi")]
    assert len(new_messages(OPENAI[:4])) == 4
    assert new_messages(User(content="hi")) == [User(content="hi")]


def test_the_system_prompt_is_the_first_message_in_one_shape_and_apart_in_the_others():
    with connected(agents={"main": {"system": "Be brief."}}) as t:
        chat = t.session("ann")
        seen = {}
        for shape in SHAPES:
            chat.call(lambda messages, shape=shape: seen.update({shape: messages}) or "ok", "hi", shape=shape)
        assert seen["openai"][0] == {"role": "system", "content": "Be brief."}
        assert [seen[shape].system for shape in SHAPES] == ["Be brief."] * 3
        assert [seen[shape][0]["role"] for shape in ("anthropic", "responses")] == ["user", "user"]

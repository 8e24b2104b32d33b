"""A message is serialised once, and again whenever it has changed, in whatever way."""

import copy
import gc

import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("langgraph.checkpoint", reason="needs langgraph-checkpoint (requirements/test.txt)")

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint

from turnlog.adapters.langgraph import TurnlogSaver, default_serializer
from turnlog.adapters.serialised_messages import SerialisedElement, SerialisedMessages

WORDS = st.text(max_size=4)
PLAIN = st.none() | st.booleans() | st.integers(0, 2) | st.floats(0, 2) | WORDS
BOX = st.recursive(PLAIN, lambda one: st.lists(one, max_size=2) | st.dictionaries(WORDS, one, max_size=2), max_leaves=4)
OBJECT = st.dictionaries(WORDS, BOX, max_size=2)
BLOCKS = WORDS | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": WORDS}), max_size=2)
CALLS = st.lists(st.fixed_dictionaries({"name": WORDS, "args": OBJECT, "id": WORDS}), max_size=2)
MESSAGE = st.one_of(
    st.builds(HumanMessage, content=BLOCKS, additional_kwargs=OBJECT, id=WORDS),
    st.builds(AIMessage, content=BLOCKS, tool_calls=CALLS, response_metadata=OBJECT, id=WORDS),
    st.builds(ToolMessage, content=BLOCKS, tool_call_id=WORDS, artifact=BOX, id=WORDS),
    st.builds(HumanMessage, content=WORDS, beyond=BOX),
)
USED = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
CHANGE = st.sampled_from(["content", "kwargs", "metadata", "inside", "extra", "id", "type", "nothing"])


def change(message, how, value):
    match how:
        case "content":
            message.content = value if isinstance(value, str) else str(value)
        case "kwargs":
            message.additional_kwargs["k"] = value
        case "metadata":
            message.response_metadata = {"m": value}
        case "inside" if isinstance(message.content, list) and message.content:
            message.content[0]["text"] = str(value)
        case "inside" if getattr(message, "tool_calls", None):
            message.tool_calls[0]["args"]["a"] = value
        case "extra":
            message.more = value
        case "id":
            message.id = str(value)
        case _:
            pass


def element(message, serde):
    kind, data = serde.dumps_typed(message)
    return SerialisedElement(str(data), [kind, bytes(data)])


@settings(max_examples=150, deadline=None)
@given(message=MESSAGE, changes=st.lists(st.tuples(CHANGE, BOX), max_size=4))
def test_what_is_known_of_a_message_is_what_serialising_it_gives(message, changes):
    known, serde = SerialisedMessages(), default_serializer()
    known.put(message, serde, element(message, serde))
    for how, value in changes:
        change(message, how, value)
        if (found := known.get(message, serde)) is not None:
            assert serde.loads_typed(tuple(found.fact)) == serde.loads_typed(serde.dumps_typed(message))
            assert found == element(message, serde)


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage("hi", id="1"),
        AIMessage("", tool_calls=[{"name": "f", "args": {"x": [1]}, "id": "c"}], id="2"),
        AIMessage([{"type": "text", "text": "hi"}], usage_metadata={**USED}),
    ],
    ids=["plain", "call", "blocks"],
)
def test_an_unchanged_message_is_known_and_its_copy_is_not(message):
    known, serde = SerialisedMessages(), default_serializer()
    stored = element(message, serde)
    known.put(message, serde, stored)
    assert known.get(message, serde) is stored
    assert known.get(copy.deepcopy(message), serde) is None
    assert known.get(message, default_serializer()) is None


def test_what_is_known_goes_with_its_messages():
    known, serde = SerialisedMessages(), default_serializer()
    for n in range(5_000):
        message = HumanMessage(str(n))
        known.put(message, serde, element(message, serde))
    del message
    gc.collect()
    assert len(known._seen) <= 1_001


def test_a_message_that_was_changed_in_place_is_stored_as_it_is_then(tmp_path):
    saver = TurnlogSaver(f"sqlite:{tmp_path}/a.db")
    place = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    messages = [HumanMessage(f"m{n}", id=str(n), additional_kwargs={"n": n}) for n in range(8)]
    for words in ("first", "second"):
        messages[3].content = words
        messages[5].additional_kwargs["n"] = words
        version = saver.get_next_version(None, None)
        checkpoint = empty_checkpoint() | {
            "channel_values": {"messages": messages},
            "channel_versions": {"messages": version},
        }
        place = saver.put(place, checkpoint, {}, {"messages": version})
    other = TurnlogSaver(f"sqlite:{tmp_path}/a.db")
    for reader in (saver, other):
        read = [one.checkpoint["channel_values"]["messages"] for one in reader.list(place | {})][:1]
        assert read == [messages]
    before = [
        [one.content for one in found.checkpoint["channel_values"]["messages"]]
        for found in other.list({"configurable": {"thread_id": "t"}})
    ]
    assert [one[3] for one in before] == ["second", "first"]
    saver.close()
    other.close()


def test_a_message_that_was_loaded_is_not_serialised_again(tmp_path):
    counted = []

    class Counting(type(default_serializer())):
        def dumps_typed(self, obj):
            counted.append(obj)
            return super().dumps_typed(obj)

    saver = TurnlogSaver(f"sqlite:{tmp_path}/a.db", serde=Counting(allowed_msgpack_modules=None))
    place = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    messages = [HumanMessage(f"m{n}", id=str(n)) for n in range(8)]
    for _ in range(3):
        version = saver.get_next_version(None, None)
        values = {"channel_values": {"messages": messages}, "channel_versions": {"messages": version}}
        place = saver.put(place, empty_checkpoint() | values, {}, {"messages": version})
        messages = saver.get_tuple(place).checkpoint["channel_values"]["messages"] + [AIMessage("more", id=version)]
    assert len([one for one in counted if isinstance(one, HumanMessage)]) == 8
    saver.close()

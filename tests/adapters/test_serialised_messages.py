"""A message is serialised once, and again whenever it has changed, in whatever way."""

import copy
import gc
import weakref
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("langgraph.checkpoint", reason="needs langgraph-checkpoint (requirements/test.txt)")

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint

from turnlog.adapters.langgraph import TurnlogSaver, default_serializer
from turnlog.adapters.serialised_messages import SerialisedMessages

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
    return str(data), [kind, bytes(data)]


class Remembering:
    """SerialisedMessages, and which messages it had serialised."""

    def __init__(self, serde=None):
        self.known = SerialisedMessages()
        self.serde = serde or default_serializer()
        self.serialised = []

    def elements(self, items):
        """Also compares each with what serialising it gives."""
        self.serialised.clear()
        found = self.known.elements(items, self.serde, self._serialise)
        assert [*found] == [element(one, self.serde) for one in items]
        return self.serialised

    def _serialise(self, message):
        self.serialised.append(message)
        return element(message, self.serde)


@settings(max_examples=150, deadline=None)
@given(messages=st.lists(MESSAGE, min_size=1, max_size=6), data=st.data(), loaded=st.booleans())
def test_what_is_known_of_messages_is_what_serialising_them_gives(messages, data, loaded):
    one = Remembering()
    items = [*messages]
    if loaded:
        one.known.put(items, one.serde, [element(item, one.serde) for item in items])
    for _ in range(data.draw(st.integers(1, 5))):
        match data.draw(st.sampled_from(["change", "add", "remove", "reorder", "replace", "both", "nothing"])):
            case "change":
                change(data.draw(st.sampled_from(items)), data.draw(CHANGE), data.draw(BOX))
            case "add":
                items = [*items, data.draw(MESSAGE)]
            case "remove" if len(items) > 1:
                items = [*items]
                del items[data.draw(st.integers(0, len(items) - 1))]
            case "reorder":
                items = data.draw(st.permutations(items))
            case "replace":
                items = [*items[:-1], data.draw(MESSAGE)]
            case "both":
                change(data.draw(st.sampled_from(items)), data.draw(CHANGE), data.draw(BOX))
                items = [*items, data.draw(MESSAGE)]
            case _:
                pass
        one.elements(items)


PLAIN_MESSAGES = [
    HumanMessage("hi", id="1"),
    AIMessage("", tool_calls=[{"name": "f", "args": {"x": [1]}, "id": "c"}], id="2"),
    AIMessage([{"type": "text", "text": "hi"}], usage_metadata={**USED}),
]


def test_an_unchanged_message_is_known_and_its_copy_is_not():
    one = Remembering()
    items = copy.deepcopy(PLAIN_MESSAGES)
    assert one.elements(items) == items
    assert one.elements([*items]) == []
    assert one.elements(copy.deepcopy(items)) == items
    one.serde = default_serializer()
    assert one.elements(items) == items


def test_of_a_list_that_grew_or_shrank_only_new_messages_are_serialised():
    one = Remembering()
    items = [HumanMessage(str(n), id=str(n)) for n in range(8)]
    one.elements(items)
    assert one.elements([*items, more := HumanMessage("more")]) == [more]
    assert one.elements([*items, more, last := HumanMessage("last")]) == [last]
    assert one.elements(items) == []
    assert one.elements([*items[3:], more]) == []
    assert one.elements([items[0], items[7], other := HumanMessage("other")]) == [other]


def test_only_a_message_whose_field_was_set_is_serialised_again():
    one = Remembering()
    items = [HumanMessage(str(n), id=str(n)) for n in range(8)]
    one.elements(items)
    items[3].content = "new"
    assert one.elements(items) == [items[3]]
    assert one.elements(items) == []
    items[2].id = "new"
    assert one.elements([*items, more := HumanMessage("more")]) == [items[2], more]


def test_a_true_that_became_a_one_is_a_change():
    one = Remembering()
    items = [HumanMessage("a", additional_kwargs={"n": True}, name="x") for _ in range(4)]
    one.elements(items)
    items[1].additional_kwargs["n"] = 1
    assert items[1] in one.elements(items)
    items[2].more = True
    one.elements(items)
    items[2].more = 1
    assert items[2] in one.elements(items)


def test_what_is_not_plain_is_serialised_each_time_and_the_rest_once():
    class Own(HumanMessage):
        pass

    one = Remembering()
    dated = HumanMessage("when", additional_kwargs={"at": datetime(2026, 1, 1, tzinfo=UTC)})
    items = [HumanMessage("a"), dated, HumanMessage("b"), Own("c"), {"role": "user"}, "text"]
    one.elements(items)
    assert one.elements(items) == [dated, *items[3:]]
    assert one.elements([*items, dated]) == [dated, *items[3:], dated]


def test_a_plain_message_that_is_no_longer_plain_is_serialised_each_time():
    one = Remembering()
    items = [HumanMessage("a"), HumanMessage("b")]
    one.elements(items)
    items[0].additional_kwargs["at"] = datetime(2026, 1, 1, tzinfo=UTC)
    assert items[0] in one.elements(items)
    assert one.elements(items) == items[:1]


def test_what_is_known_goes_with_its_messages():
    one = Remembering()
    kept = []
    for n in range(1_000):
        items = [HumanMessage(f"{n} {k}") for k in range(5)]
        one.known.put(items, one.serde, [("", [])] * 5)
        kept.append(items[-1])  # one message that lives on does not keep the others
    del items
    gc.collect()
    assert len(one.known._lists) <= 1_010


def test_nothing_of_a_message_that_refers_to_itself_is_kept():
    one = Remembering()
    items = [HumanMessage("a"), ToolMessage("b", tool_call_id="c")]
    one.known.put(items, one.serde, [("", [])] * 2)
    more = [HumanMessage("a"), ToolMessage("b", tool_call_id="c", artifact=object())]
    more[1].artifact = [more[1]]
    one.known.put(more, one.serde, [("", [])] * 2)
    gone = weakref.ref(more[1])
    del more
    gc.collect()
    assert gone() is None


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

"""LangGraph on a Turnlog store: against SqliteSaver, in graphs, what is shown of a thread, its space on disk."""

import asyncio
import sqlite3
import subprocess
import sys
import tempfile

import pytest
from hypothesis import given, settings, strategies as st

import turnlog
from turnlog.core.entries import MESSAGES, Assistant, Facts, ToolResult, User
from turnlog.errors import TurnlogError, UsageError
from turnlog.sessions import erasing

pytest.importorskip("langgraph.checkpoint", reason="needs langgraph-checkpoint (requirements/test.txt)")

from langgraph.checkpoint.base import empty_checkpoint

from turnlog.adapters import checkpoints
from turnlog.adapters.known_threads import KnownThreads
from turnlog.adapters.langgraph import TurnlogSaver
from turnlog.adapters.threads import LangGraphThreads, threads_of
from turnlog.core.session import Session

VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=8) | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
STEP = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(["", "child:1", "a|b"]), st.dictionaries(st.sampled_from("abc"), VALUE)),
    st.tuples(
        st.just("writes"),
        st.sampled_from(["", "child:1"]),
        st.lists(st.tuples(st.sampled_from(["x", "__error__"]), VALUE), max_size=3),
    ),
    st.tuples(st.just("delete"), st.just(""), st.just({})),
)


def config(ns="", checkpoint_id=None, thread="t"):
    more = {"checkpoint_id": checkpoint_id} if checkpoint_id else {}
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, **more}}


def told(saver):
    """Everything that a saver says about the thread."""
    return [
        (
            one.config["configurable"]["checkpoint_ns"],
            one.checkpoint["id"],
            one.checkpoint["channel_values"],
            one.metadata,
            one.parent_config and one.parent_config["configurable"]["checkpoint_id"],
            sorted(map(repr, one.pending_writes)),
        )
        for one in saver.list({"configurable": {"thread_id": "t"}})
    ]


@settings(max_examples=15)
@given(st.lists(STEP, max_size=8))
def test_the_same_calls_give_the_same_answers_as_sqlite_saver(steps):
    sqlite = pytest.importorskip("langgraph.checkpoint.sqlite")
    with sqlite3.connect(":memory:", check_same_thread=False) as connection:
        savers = [TurnlogSaver("memory:"), sqlite.SqliteSaver(connection)]
        newest = {}
        for n, (name, ns, value) in enumerate(steps):
            match name:
                case "put":
                    checkpoint = {
                        **empty_checkpoint(),
                        "channel_values": value,
                        "channel_versions": dict.fromkeys(value, n + 1),
                    }
                    for saver in savers:
                        saver.put(config(ns, newest.get(ns)), checkpoint, {"step": n}, checkpoint["channel_versions"])
                    newest[ns] = checkpoint["id"]
                case "writes" if ns in newest:
                    channels = {channel for channel, _ in value}
                    if len(channels & {"__error__"}) != len(channels) and "__error__" in channels:
                        continue  # SqliteSaver decides for all writes of a call at once
                    for saver in savers:
                        saver.put_writes(config(ns, newest[ns]), value, f"task {n % 2}", "path")
                case "delete":
                    for saver in savers:
                        saver.delete_thread("t")
                    newest.clear()
                case _:
                    pass
            assert told(savers[0]) == told(savers[1])
        savers[0].close()
    connection.close()


@pytest.mark.parametrize("scheme", ["sqlite", "jsonl"])
@settings(max_examples=2)
@given(values=st.dictionaries(st.text(max_size=6), VALUE, min_size=3, max_size=6))
def test_values_are_read_equal_in_another_process(scheme, values):
    code = (
        "import sys\nfrom turnlog.adapters.langgraph import TurnlogSaver\n"
        "print(repr(TurnlogSaver(sys.argv[1]).get({'configurable': {'thread_id': 't'}})['channel_values']))"
    )
    with tempfile.TemporaryDirectory() as folder:
        saver = TurnlogSaver(f"{scheme}:{folder}/store")
        checkpoint = {**empty_checkpoint(), "channel_values": values, "channel_versions": dict.fromkeys(values, 1)}
        saver.put(config(), checkpoint, {}, checkpoint["channel_versions"])
        saver.close()
        done = subprocess.run(
            [sys.executable, "-X", "utf8", "-c", code, f"{scheme}:{folder}/store"], capture_output=True, check=True
        )
    assert done.stdout.decode() == repr(values) + "\n"


def test_parts_of_keys_keep_their_limits_and_never_meet():
    assert checkpoints.part("a|b") != checkpoints.part("a") + "|" + checkpoints.part("b")
    long = [checkpoints.part("x" * 300 + str(n)) for n in range(3)]
    assert len(set(long)) == 3
    assert all(len(one) <= checkpoints.PART_MAX_CHARS for one in long)
    deep = checkpoints.CheckpointAddress("n|" * 200, "i" * 300)
    pending = checkpoints.PendingFact("t" * 300, -4, "c", "", ("null", b""))
    assert len(pending.key(deep)) <= 512
    assert checkpoints.channel_keys("n" * 300, {"c" * 300: "9" * 200})["c" * 300].startswith("b|#")


def messages(n):
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    call = {"name": "weather", "args": {"city": "Paris"}, "id": "c1"}
    return [
        HumanMessage("What is the weather?", id="h1"),
        AIMessage("", tool_calls=[call], id="a1"),
        ToolMessage("sunny", tool_call_id="c1", id="t1"),
        AIMessage("It is sunny.", id="a2"),
    ][:n]


def put_messages(saver, found, previous=None):
    version = saver.get_next_version(None, None)
    checkpoint = {
        **empty_checkpoint(),
        "channel_values": {"messages": found},
        "channel_versions": {"messages": version},
    }
    return saver.put(config(checkpoint_id=previous), checkpoint, {"run_id": f"run {len(found)}"}, {"messages": version})


def elsewhere(url, **more):
    """A saver that shares nothing but the store with others, as in another process."""
    saver, own = TurnlogSaver(url, **more), LangGraphThreads()
    saver._threads = lambda t: own
    return saver


def test_messages_of_a_thread_are_entries_once_each_with_title_and_search(tmp_path):
    url = f"sqlite:{tmp_path}/a.db"
    saver = TurnlogSaver(url)
    for n in (1, 2, 4, 4):
        put_messages(saver, messages(n))
    again = elsewhere(url)  # has not seen them yet
    put_messages(again, messages(4))
    saver.close()
    again.close()

    async def look():
        async with turnlog.open(url) as t:
            [row] = (await t.sessions.list()).items
            kinds = [
                type(entry) for entry in await t.store.read(row.id) if isinstance(entry, User | Assistant | ToolResult)
            ]
            return row, kinds, await t.sessions.search("sunny")

    row, kinds, hits = asyncio.run(look())
    assert kinds == [User, Assistant, ToolResult, Assistant]
    assert (row.title, row.channel, row.key) == ("What is the weather?", "langgraph", "agent:main:langgraph:direct:t")
    assert hits


def test_an_element_of_a_list_is_stored_once(tmp_path):
    url = f"sqlite:{tmp_path}/a.db"
    saver = TurnlogSaver(url, messages=None)
    elements = [f"element {n} " + "x" * 1000 for n in range(50)]
    for n in range(4, 50):
        version = saver.get_next_version(None, None)
        checkpoint = {
            **empty_checkpoint(),
            "channel_values": {"log": elements[:n]},
            "channel_versions": {"log": version},
        }
        saver.put(config(), checkpoint, {}, {"log": version})
    assert saver.get(config())["channel_values"]["log"] == elements[:49]
    saver.close()

    async def sizes():
        async with turnlog.open(url) as t:
            [row] = (await t.sessions.list()).items
            return [len(str(entry.put)) for entry in await t.store.read(row.id) if isinstance(entry, Facts)]

    assert sum(asyncio.run(sizes())) < 50 * 1_400 + 46 * 4_000


def test_a_write_is_kept_as_it_came_first_also_after_one_of_a_special_channel():
    saver = TurnlogSaver("memory:")
    place = saver.put(config(), empty_checkpoint(), {}, {})
    saver.put_writes(place, [("__resume__", 0), ("a", 1)], "task")
    saver.put_writes(place, [("b", 2), ("a", 3)], "task")
    kept = [(channel, value) for _, channel, value in saver.get_tuple(place).pending_writes]
    assert sorted(kept) == [("__resume__", 0), ("a", 1), ("b", 2)]
    saver.put_writes(config(checkpoint_id="x", thread="other"), [], "task")
    assert [*saver._holder.wait(lambda t: threads_of(t).names(t))] == ["t"], "nothing to write makes no thread"
    saver.close()


def test_prune_keeps_the_latest_with_its_writes_and_values_and_frees_the_rest(tmp_path):
    saver = TurnlogSaver(f"sqlite:{tmp_path}/a.db")
    configs = [put_messages(saver, messages(n)) for n in (1, 2, 3, 4)]
    saver.put_writes(configs[-1], [("x", 1)], "task")
    saver.prune(["t", "no such thread"])
    [left] = saver.list(config())
    assert left.checkpoint["channel_values"]["messages"] == messages(4)
    assert left.pending_writes == [("task", "x", 1)]
    with pytest.raises(ValueError, match="strategy") as caught:
        saver.prune(["t"], strategy="half")
    assert isinstance(caught.value, TurnlogError)
    saver.prune(["t"], strategy="delete")
    assert not list(saver.list(config()))
    saver.close()


def test_after_a_prune_by_another_saver_nothing_that_is_gone_is_relied_on(tmp_path):
    url = f"sqlite:{tmp_path}/a.db"

    def put(saver, elements):
        version = saver.get_next_version(None, None)
        values = {"log": [f"element {n}" for n in elements]}
        checkpoint = {**empty_checkpoint(), "channel_values": values, "channel_versions": {"log": version}}
        saver.put(config(), checkpoint, {}, {"log": version})
        return values

    saver, other = TurnlogSaver(url), elsewhere(url)
    put(saver, range(6))
    put(saver, range(10, 16))
    other.prune(["t"])  # drops elements that the first saver remembers to have stored
    values = put(saver, range(6))
    saver.close()
    other.close()
    assert elsewhere(url).get(config())["channel_values"] == values


def test_a_put_that_overlaps_with_one_that_learns_of_a_prune_relies_on_nothing_that_is_gone(tmp_path):
    from langchain_core.messages import HumanMessage

    url = f"sqlite:{tmp_path}/a.db"

    async def put(saver, values, ns=""):
        versions = dict.fromkeys(values, saver.get_next_version(None, None))
        checkpoint = {**empty_checkpoint(), "channel_values": values, "channel_versions": versions}
        await saver.aput(config(ns), checkpoint, {}, versions)

    async def main():
        saver, other = TurnlogSaver(url), elsewhere(url)
        first = [HumanMessage(f"first {n}", id=f"f{n}") for n in range(5)]
        await put(saver, {"messages": first})
        await put(other, {"messages": messages(4)})
        await other.aprune(["t"])  # drops elements that the first saver remembers to have stored
        whole = [*first, *(HumanMessage(f"{n}", id=f"{n}") for n in range(1_000))]  # so many are looked up in a thread
        await asyncio.gather(put(saver, {"messages": whole}), put(saver, {"x": 1}, ns="child"))
        found = await elsewhere(url).aget(config())
        assert found["channel_values"]["messages"] == whole
        await saver.aclose()
        await other.aclose()

    asyncio.run(main())


def test_prune_keeps_what_delta_channels_need():
    saver = TurnlogSaver("memory:")
    parent = None
    for n in range(6):
        version = saver.get_next_version(None, None)
        values = {"log": ["snapshot"]} if n == 2 else {}  # a snapshot, then only writes
        checkpoint = {**empty_checkpoint(), "channel_values": values, "channel_versions": {"log": version}}
        metadata = {"counters_since_delta_snapshot": {"log": (n, n)}}
        parent = saver.put(
            config(checkpoint_id=parent and parent["configurable"]["checkpoint_id"]),
            checkpoint,
            metadata,
            {"log": version},
        )
        saver.put_writes(parent, [("log", n)], f"task {n}")
    before = saver.get_delta_channel_history(config=parent, channels=["log"])
    saver.prune(["t"])
    assert saver.get_delta_channel_history(config=parent, channels=["log"]) == before
    assert before["log"]["seed"] == ["snapshot"]
    assert len(list(saver.list(config()))) == 4
    saver.close()


def test_runs_are_deleted_in_all_threads_and_copies_are_whole(tmp_path):
    saver = TurnlogSaver(f"jsonl:{tmp_path}/j")
    for n in (1, 2, 4):
        put_messages(saver, messages(n))
    saver.copy_thread("t", "u")
    there = {"configurable": {"thread_id": "u", "checkpoint_ns": ""}}
    assert [one.checkpoint for one in saver.list(there)] == [one.checkpoint for one in saver.list(config())]
    saver.delete_for_runs(["run 4", "run 1"])
    for thread in (config(), there):
        assert [one.metadata["run_id"] for one in saver.list(thread)] == ["run 2"]
        assert saver.get(thread)["channel_values"]["messages"] == messages(2)
    saver.delete_for_runs(["run 2"])
    assert not list(saver.list(None))
    saver.close()


def test_a_type_that_nobody_allowed_comes_back_as_plain_data(monkeypatch):
    monkeypatch.delenv("LANGGRAPH_STRICT_MSGPACK", raising=False)
    from langchain_core.documents import Document

    saver = TurnlogSaver("memory:")
    kind, data = saver.serde.dumps_typed(Document("x"))
    assert kind == "msgpack"
    assert not isinstance(saver.serde.loads_typed((kind, data)), Document) or Document.__module__.startswith(
        "langchain_core"
    )
    with pytest.raises(Exception, match=r".") as caught:
        saver.serde.dumps_typed(lambda: 1)
    assert "pickle" not in str(caught.value)


@pytest.mark.parametrize("bad", ["", "a\0b", "x" * 901])
def test_a_thread_id_that_cannot_be_used_is_refused(bad):
    with pytest.raises(UsageError):
        TurnlogSaver("memory:").get_tuple(config(thread=bad))


def test_a_graph_goes_on_where_it_stopped_in_another_saver(tmp_path):
    graphs = pytest.importorskip("langgraph.graph")
    from langchain_core.messages import AIMessage

    def build(saver):
        builder = graphs.StateGraph(graphs.MessagesState)
        builder.add_node("chat", lambda state: {"messages": [AIMessage(f"heard {len(state['messages'])}")]})
        builder.add_edge("__start__", "chat")
        return builder.compile(checkpointer=saver)

    url = f"sqlite:{tmp_path}/a.db"
    first = TurnlogSaver(url)
    build(first).invoke({"messages": [("user", "one")]}, config())
    first.close()

    async def again():
        saver = TurnlogSaver(url)
        found = await build(saver).ainvoke({"messages": [("user", "two")]}, config())
        await saver.aclose()
        return [message.content for message in found["messages"]]

    assert asyncio.run(again()) == ["one", "heard 1", "two", "heard 3"]


def test_the_guard_makes_a_call_fit_and_leaves_the_state(tmp_path):
    pytest.importorskip("langchain.agents.middleware", reason="needs langchain (requirements/test.txt)")
    from langchain_core.messages import AIMessage, HumanMessage

    from turnlog.adapters.langgraph import TurnlogGuard

    asked = []

    async def summarise(prompt):
        asked.append(prompt)
        return "The user asked several questions, and each was answered."

    class Request:
        system_message, system_prompt, tools = None, "", []

        def __init__(self, found):
            self.messages = found

        def override(self, messages):
            return Request(messages)

    talk = [
        message
        for n in range(40)
        for message in (
            HumanMessage(f"question {n} " + "word " * 200, id=f"h{n}"),
            AIMessage(f"answer {n}", id=f"a{n}"),
        )
    ]
    talk.append(HumanMessage("and now?", id="last"))
    request = Request(talk)
    guard = TurnlogGuard("memory:", summarise=summarise, window=8_000)
    sent = guard.wrap_model_call(request, lambda made: made.messages)
    assert "each was answered" in sent[0].content
    assert sent[1:] == talk[-len(sent) + 1 :]
    assert request.messages is talk
    calls = len(asked)

    async def handler(made):
        return made.messages

    again = asyncio.run(
        guard.awrap_model_call(Request([*talk, AIMessage("yes", id="y"), HumanMessage("ok", id="o")]), handler)
    )
    assert again[0].content == sent[0].content
    assert len(asked) == calls  # the summary was not made again


def test_the_guard_summarises_a_thread_again_when_it_has_grown():
    pytest.importorskip("langchain.agents.middleware", reason="needs langchain (requirements/test.txt)")
    from langchain_core.messages import AIMessage, HumanMessage

    from turnlog.adapters.langgraph import TurnlogGuard

    asked = []

    async def summarise(prompt):
        asked.append(prompt)
        return "The user asked several questions, and each was answered."

    class Request:
        system_message, system_prompt, tools = None, "", []

        def __init__(self, found):
            self.messages = found

        def override(self, messages):
            return Request(messages)

    guard = TurnlogGuard("memory:", summarise=summarise, window=3_000)
    talk, sizes = [], []
    for n in range(60):
        talk.append(HumanMessage(f"question {n} " + "word " * 150, id=f"h{n}"))
        sent = guard.wrap_model_call(Request(list(talk)), lambda made: made.messages)
        sizes.append(sum(len(message.content) for message in sent))
        talk.append(AIMessage(f"answer {n}", id=f"a{n}"))
    assert max(sizes) < 12_000
    assert 5 <= len(asked) <= 30


@pytest.mark.parametrize("store", ["sqlite:{}/a.db", "jsonl:{}/sessions"])
def test_a_thread_goes_on_without_a_message_that_was_erased(tmp_path, store):
    from langchain_core.messages import HumanMessage

    url = store.format(tmp_path)
    saver = TurnlogSaver(url)
    said = [HumanMessage(f"message {n}", id=f"id {n}") for n in range(8)]
    for n in range(1, 9):
        put_messages(saver, said[:n])
    saver.close()

    async def erase():
        async with turnlog.open(url) as t:
            [row] = (await t.sessions.list()).items
            entries = await t.store.read(row.id)
            await t.store.erase(row.id, [one.seq for one in entries if erasing.holds(one, "message 5")], redact=True)

    running = TurnlogSaver(url)
    assert running.get(config())["channel_values"]["messages"] == said
    asyncio.run(erase())
    left = [*said[:5], *said[6:]]
    assert running.get(config())["channel_values"]["messages"] == left
    running.close()
    saver = TurnlogSaver(url)
    assert saver.get(config())["channel_values"]["messages"] == left
    put_messages(saver, left[:-1])
    assert saver.get(config())["channel_values"]["messages"] == left[:-1]
    assert all("message 5" not in str(one) for one in saver.list(config()))
    saver.copy_thread("t", "copy")
    saver.close()

    async def largest():
        async with turnlog.open(url) as t:
            rows = (await t.sessions.list()).items
            facts = [entry for row in rows for entry in await t.store.read(row.id) if isinstance(entry, Facts)]
            return max(sum(key.startswith("e|") for key in entry.put) for entry in facts)

    assert asyncio.run(largest()) == 1


@pytest.mark.parametrize("store", ["sqlite:{}/a.db", "jsonl:{}/sessions"])
def test_a_message_that_is_erased_by_its_number_is_listed_and_erased_in_the_checkpoints_too(tmp_path, store):
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    call = {"id": "call_7", "name": "look", "args": {"q": "zebra argument"}}
    said = [HumanMessage(f"message {n}", id=f"id {n}") for n in range(5)]
    said += [HumanMessage([{"type": "text", "text": "my zebra"}], id="a"), HumanMessage("not my zebras", id="b")]
    said += [AIMessage("", tool_calls=[call], id="c"), ToolMessage("zebra result", tool_call_id="call_7", id="d")]
    saver = TurnlogSaver(store.format(tmp_path))
    for n in range(5, 10):
        put_messages(saver, said[:n])
    saver.close()

    async def work():
        async with turnlog.open(store.format(tmp_path)) as t:
            [row] = (await t.sessions.list()).items
            entries = await t.store.read(row.id)
            seqs = [one.seq for one in entries if isinstance(one, User | Assistant) and "my zebra'" in str(one)]
            seqs += [one.seq for one in entries if isinstance(one, ToolResult)]
            found = await t.erase(row.id, seqs=seqs, redact=True, derived=True, apply=True)
            assert {one.made for one in found.derived} == {"fact"}
            return [one for one in await t.store.read(row.id) if erasing.holds(one, "zebra")]

    left = asyncio.run(work())
    assert all(erasing.holds(one, "not my zebras") for one in left)
    saver = TurnlogSaver(store.format(tmp_path))
    assert saver.get(config())["channel_values"]["messages"] == [*said[:5], said[6]]
    saver.close()


@pytest.mark.parametrize("store", ["sqlite:{}/a.db", "jsonl:{}/sessions"])
def test_words_that_are_erased_while_a_new_saver_puts_are_not_remembered(tmp_path, store):
    from langchain_core.messages import HumanMessage

    def checkpoint():
        values = {"messages": [HumanMessage("secret words", id="1")]}
        return empty_checkpoint() | {"channel_values": values, "channel_versions": {"messages": "1"}}

    first = TurnlogSaver(store.format(tmp_path))
    place = first.put(config(), checkpoint(), {}, {"messages": "1"})
    running = elsewhere(store.format(tmp_path), messages=None)
    threads = running._threads(None)
    unprojected = threads._unprojected

    async def erase(t, row, held):
        """After the value was read, before the checkpoint is stored."""
        entries = await t.store.read(row.id)
        found = [one.seq for one in entries if erasing.holds(one, "secret words")]
        if found:
            await t.store.erase(row.id, found, redact=True)
        return await unprojected(t, row, held)

    threads._unprojected = erase
    place = running.put(place, checkpoint(), {}, {"messages": "1"})
    assert "secret words" not in str(running.get(place))
    running.close()
    first.close()


def test_a_new_saver_does_not_read_again_what_another_one_of_its_store_has_read(tmp_path):
    url = f"sqlite:{tmp_path}/a.db"
    first = TurnlogSaver(url)
    put_messages(first, messages(4))
    asked = []

    async def look(t, saver):
        facts = t.store.facts

        async def counted(*args, keys=(), **more):
            asked.extend(keys)
            return await facts(*args, keys=keys, **more)

        t.store.facts = counted
        try:
            place = checkpoints.CheckpointAddress("")
            return await saver._threads(t).get(t, "t", place, saver.serde)
        finally:
            del t.store.facts

    for saver, reads in ((TurnlogSaver(url), False), (elsewhere(url), True)):
        asked.clear()
        assert len(saver._holder.wait(lambda t, saver=saver: look(t, saver)).values) == 4
        assert any(key.startswith("e|") for key in asked) == reads
        saver.close()
    first.close()


def row_named(name):
    return Session(id=name, key="k", agent="main", channel="langgraph", stamped=name)


def value_of(size):
    return ["msgpack", bytes(size)]


def test_what_is_known_of_threads_is_bounded_by_its_size_and_their_number():
    known = KnownThreads(most_bytes=10_000, most=3)
    for name in "abcd":
        known.put(row_named(name), {"e|1": value_of(1_000)})
    assert len(known) == 3
    assert not known.of(row_named("a")).values  # which forgets the one after it
    assert known.of(row_named("c")).values
    known.put(row_named("d"), {f"e|{n}": value_of(1_000) for n in range(2, 7)})
    known.of(row_named("d"))
    known.put(row_named("e"), {f"e|{n}": value_of(1_000) for n in range(5)})
    assert known.size <= 10_000
    assert len(known.of(row_named("e")).values) == 5
    known.put(row_named("e"), {f"e|{n}": value_of(1_000) for n in range(5, 20)})
    assert len(known) == 1
    assert known.size <= 10_000
    assert [*known.of(row_named("e")).values][-1] == "e|19"


def test_forgotten_threads_take_no_room_whatever_was_known_of_them():
    known = KnownThreads(most_bytes=100_000)
    row = row_named("a")
    known.put(row, {"b|1": {"list": ["x", "y"]}, "e|x": value_of(100)})
    known.put(row, {"e|x": value_of(100), "e|y": value_of(100)})
    known.project(row, ["m1", "m2"])
    known.project(row, ["m2", "m3"])
    known.forget_values(row)
    assert known.of(row).projected == {"m1", "m2", "m3"}
    known.forget(row)
    assert known.size == 0
    known.forget(row)
    for n in range(10_000):
        known.project(row, [f"message {n}"])
    assert len(known.of(row).projected) < 1_000
    known.forget(row)
    assert known.size == 0


def test_two_that_have_opened_an_empty_thread_store_each_message_once(tmp_path):
    """What they remember of it says that it is empty, also after the other has written."""
    savers = [TurnlogSaver(f"sqlite:{tmp_path}/a.db"), elsewhere(f"sqlite:{tmp_path}/a.db")]
    for saver in savers:
        saver._holder.wait(lambda t, saver=saver: saver._threads(t).log_of("t").open(t))
    for saver in savers:
        put_messages(saver, messages(2))

    async def entries(t):
        [row] = (await t.sessions.list()).items
        return [type(one) for one in await t.store.read(row.id) if isinstance(one, User | Assistant)]

    assert savers[0]._holder.wait(entries) == [User, Assistant]
    for saver in savers:
        saver.close()


def test_a_thread_that_does_not_fit_into_memory_stores_each_message_once(tmp_path):
    from langchain_core.messages import HumanMessage

    saver = TurnlogSaver(f"sqlite:{tmp_path}/a.db")
    place = config()
    held, version = [], None
    first = saver.get_next_version(None, None)

    async def shrink(t):
        threads_of(t)._known = KnownThreads(most_bytes=5_000)

    async def keys_put(t):
        row = await threads_of(t).log_of("t").find(t)
        return [key for entry in await t.store.read(row.id) if isinstance(entry, Facts) for key in entry.put]

    saver._holder.wait(shrink)
    for n in range(12):
        held = [*held, HumanMessage(f"{n}" * 1_000, id=f"{n}")]
        version = saver.get_next_version(version, None)
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": held, "document": "d" * 4_000}
        checkpoint["channel_versions"] = {"messages": version, "document": first}
        place = saver.put(place, checkpoint, {}, {"messages": version} | ({"document": first} if n == 0 else {}))
    put = saver._holder.wait(keys_put)
    assert sum(key.startswith("e|") for key in put) == 12
    assert sum(key.startswith("b||document") for key in put) == 1
    assert saver.get(place)["channel_values"] == {"messages": held, "document": "d" * 4_000}
    saver.close()


@pytest.mark.parametrize("store", ["sqlite:{}/a.db", "jsonl:{}/store"])
def test_two_checkpoints_at_once_store_a_message_of_both_once(tmp_path, store):
    async def main():
        savers = [TurnlogSaver(store.format(tmp_path)) for _ in range(4)]

        async def put(saver):
            checkpoint, version = empty_checkpoint(), saver.get_next_version(None, None)
            checkpoint["channel_values"] = {"messages": messages(2)}
            checkpoint["channel_versions"] = {"messages": version}
            await saver.aput(config(), checkpoint, {}, {"messages": version})

        async def told(t):
            row = await threads_of(t).log_of("t").find(t)
            return [entry for entry in await t.store.read(row.id) if isinstance(entry, MESSAGES)]

        await asyncio.gather(*map(put, savers))
        assert len(await savers[0]._holder.call(told)) == 2
        for saver in savers:
            await saver.aclose()

    asyncio.run(main())


def test_a_list_ends_when_another_process_deletes_its_thread(tmp_path):
    url = f"sqlite:{tmp_path}/a.db"
    saver, other = TurnlogSaver(url), elsewhere(url)
    for n in range(30):
        put_messages(saver, messages(n))
    found = saver.list(config())
    assert next(found)
    other.delete_thread("t")
    assert len([*found]) < 30
    assert saver.get(config()) is None
    saver.close()
    other.close()


def test_what_was_read_before_something_was_dropped_is_not_known_after_it(tmp_path):
    """A read that is under way while another task learns of the drop."""

    async def main():
        saver = TurnlogSaver(f"sqlite:{tmp_path}/a.db")
        version = saver.get_next_version(None, None)
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"], checkpoint["channel_versions"] = {"x": "word"}, {"x": version}
        await saver.aput(config(), checkpoint, {}, {"x": version})

        async def read(t):
            threads = threads_of(t)
            row = await threads.log_of("t").find(t)
            facts, key = t.store.facts, f"b||x|{version}"
            threads.forget(row)

            async def slow(*args, keys=(), **more):
                found = await facts(*args, keys=keys, **more)
                if key in keys:  # dropped after it was read
                    await t.store.append(row.id, [Facts(app="langgraph", put={"g": 1}, drop=(key,))])
                    await threads._learn(t, row)
                return found

            t.store.facts = slow
            try:
                assert await threads._values(t, row, [key])
            finally:
                del t.store.facts
            return await threads._values(t, row, [key])

        assert await saver._holder.call(read) == {}
        await saver.aclose()

    asyncio.run(main())

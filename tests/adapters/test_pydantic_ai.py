"""pydantic-ai on a Turnlog store: random work on its own in-memory store and on ours, writers at once, and what goes
beyond it."""

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings, strategies as st

import turnlog
from turnlog.core.entries import Assistant, Compaction, Foreign, ToolResult, Undo, User
from turnlog.errors import TurnlogError, UsageError

from .. import warm
from ..stores import postgres

pytest.importorskip("pydantic_ai.conversation_store", reason="needs pydantic-ai-slim (requirements/test.txt)")

from pydantic_ai import Agent, UserError
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict as TheirConflict,
    ConversationEntry,
    ConversationRecord,
    InMemoryConversationStore,
)
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RequestUsage, RunUsage

from turnlog.adapters import pydantic_messages
from turnlog.adapters.fitting import fit
from turnlog.adapters.pydantic_ai import ConversationConflict, TurnlogConversationStore, fits
from turnlog.core.guard import Limits

NOW = datetime(2026, 1, 1, tzinfo=UTC)
URLS = ("sqlite", "jsonl", "postgresql")


def run(work):
    return asyncio.run(work)


def url_of(kind, folder):
    return postgres.url_of(folder) if kind == "postgresql" else f"{kind}:{folder}/store"


@pytest.fixture(params=URLS)
def url(request, tmp_path):
    return url_of(request.param, tmp_path)


def asked(text, **more):
    return ModelRequest(parts=[UserPromptPart(content=text, timestamp=NOW)], timestamp=NOW, **more)


def answered(text):
    return ModelResponse(parts=[TextPart(content=text)], timestamp=NOW, model_name="m")


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ARGS = st.none() | WORDS | st.dictionaries(WORDS, st.none() | st.integers(-(2**70), 2**70) | WORDS, max_size=2)
CALL = st.sampled_from(["c1", "c2"])
REQUEST_PART = st.one_of(
    st.builds(UserPromptPart, content=WORDS, timestamp=st.just(NOW)),
    st.builds(
        UserPromptPart,
        content=st.lists(
            WORDS
            | st.just(ImageUrl(url="https://example.com/a.png"))
            | st.builds(BinaryContent, data=st.binary(min_size=1, max_size=6), media_type=st.just("image/png")),
            max_size=3,
        ),
        timestamp=st.just(NOW),
    ),
    st.builds(SystemPromptPart, content=WORDS, timestamp=st.just(NOW)),
    st.builds(ToolReturnPart, tool_name=st.just("f"), content=ARGS, tool_call_id=CALL, timestamp=st.just(NOW)),
)
RESPONSE_PART = st.one_of(
    st.builds(TextPart, content=WORDS),
    st.builds(ThinkingPart, content=WORDS, signature=st.none() | WORDS),
    st.builds(ToolCallPart, tool_name=st.just("f"), args=ARGS, tool_call_id=CALL),
)
MESSAGE = st.one_of(
    st.builds(
        ModelRequest,
        parts=st.lists(REQUEST_PART, min_size=1, max_size=3),
        instructions=st.none() | WORDS,
        timestamp=st.just(NOW),
        metadata=st.none() | st.dictionaries(WORDS, WORDS, max_size=2),
    ),
    st.builds(
        ModelResponse,
        parts=st.lists(RESPONSE_PART, max_size=3),
        usage=st.builds(RequestUsage, input_tokens=st.integers(0, 9), output_tokens=st.integers(0, 9)),
        model_name=st.none() | WORDS,
        timestamp=st.just(NOW),
    ),
)


def stored_form(message):
    """A message as pydantic-ai itself writes it to JSON and reads it again."""
    [found] = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json([message]))
    return found


@settings(max_examples=60)
@given(MESSAGE)
def test_a_message_and_its_entry_are_equal(message):
    given = pydantic_messages.dumped(message)
    held = {"id": "1", "parent": None, "kind": "message", "message": given}
    entry = pydantic_messages.entry_of(given, held)
    assert pydantic_messages.held_in(entry) == held
    assert isinstance(entry, User | Assistant | ToolResult | Foreign)


# The five primitives, with the same ids on both stores.

NAME = st.sampled_from(["ann", "bob", "eve"])
OPERATION = st.one_of(
    st.tuples(st.just("write"), NAME, st.lists(MESSAGE, max_size=3), st.sampled_from(["head", "root", "old", "other"])),
    st.tuples(st.just("write"), NAME, st.lists(MESSAGE, max_size=3), st.just("head")),
    st.tuples(st.just("stale"), NAME, st.lists(MESSAGE, max_size=2), st.just("head")),
    st.tuples(st.just("delete"), NAME, st.booleans(), st.none()),
    st.tuples(st.just("list"), NAME, st.none() | st.integers(0, 3), st.booleans()),
    st.tuples(st.just("history"), NAME, st.none() | st.integers(0, 4), st.none()),
)


class Work:
    """The same calls on a store, whatever store it is: ids come from counters."""

    def __init__(self, store):
        self.store = store
        self.made = 0
        self.ids = []

    async def outcome(self, call):
        try:
            return await call
        except TheirConflict as error:
            return f"conflict {error.conversation_id}"
        except LookupError:
            return "no such entry"

    async def do(self, name, conversation, value, how):
        record = await self.store.read_record(conversation)
        match name:
            case "write" | "stale":
                return await self.outcome(self.write(record, conversation, value, how, is_stale=name == "stale"))
            case "delete":
                revision = record.revision if record and value else "another"
                return await self.outcome(self.store.delete_record(conversation, expected_revision=revision))
            case "list":
                scope = "team" if how else None
                return list(await self.store.read_records(scope=scope, limit=value))
            case _:
                head = record.head_id if record else None
                return await self.outcome(self.store.read_history(head, limit=value)), await self.entries()

    async def entries(self):
        return [await self.outcome(self.store.read_entry(one)) for one in self.ids[-3:]]

    async def write(self, record, conversation, messages, how, *, is_stale):
        self.made += 1
        parent = {"head": record.head_id if record else None, "root": None}.get(how)
        if how in ("old", "other"):
            parent = await self.earlier(record, how)
        entries = []
        for message in messages:
            entry = ConversationEntry(id=f"e{len(self.ids)}", parent_id=parent, message=message)
            self.ids.append(entry.id)
            entries.append(entry)
            parent = entry.id
        written = ConversationRecord(
            conversation_id=conversation,
            head_id=parent,
            usage=RunUsage(requests=self.made, details={"x": 1}),
            deferred_tool_requests=DeferredToolRequests(calls=[ToolCallPart("f", {"a": 1}, "c1")])
            if messages
            else None,
            scope="team" if conversation == "ann" else None,
            branches=[record.head_id] if record and record.head_id and record.head_id != parent else [],
            revision=f"r{self.made}",
            updated_at=NOW + timedelta(seconds=self.made),
        )
        expected = "another" if is_stale else record.revision if record else None
        await self.store.write_record(written, new_entries=entries, expected_revision=expected)
        return written

    async def earlier(self, record, how):
        """An entry of the same history, or of another conversation."""
        if how == "other":
            others = await self.store.read_records()
            heads = [one.head_id for one in others if one.head_id and (not record or one.head_id != record.head_id)]
            return heads[0] if heads else None
        history = await self.store.read_history(record.head_id) if record else []
        return history[len(history) // 2].id if history else None


def compare(url, operations):
    async def main():
        ours = TurnlogConversationStore(url)
        mine, theirs = Work(ours), Work(InMemoryConversationStore())
        try:
            for operation in operations:
                # Bytes and the like become what pydantic-ai's own JSON makes of them, on both sides.
                name, conversation, value, how = operation
                if name in ("write", "stale"):
                    value = [stored_form(message) for message in value]
                assert await mine.do(name, conversation, value, how) == await theirs.do(name, conversation, value, how)
        finally:
            ours.close()

    run(main())


@settings(max_examples=42)
@given(st.lists(OPERATION, max_size=16))
def test_random_work_gives_what_pydantic_ais_own_store_gives(operations):
    compare("memory:", operations)


@pytest.mark.parametrize("kind", URLS)
@settings(max_examples=3)
@given(operations=st.lists(OPERATION, min_size=15, max_size=20))
def test_random_work_on_disk_gives_what_pydantic_ais_own_store_gives(kind, operations):
    with tempfile.TemporaryDirectory() as folder:
        compare(url_of(kind, folder), operations)


# Its public calls.

STEP = st.one_of(
    st.tuples(st.just("ask"), NAME, WORDS),
    st.tuples(st.just("ask"), NAME, WORDS),
    st.tuples(st.just("rewrite"), NAME, WORDS),
    st.tuples(st.just("branch"), NAME, st.integers(0, 5)),
    st.tuples(st.just("back"), NAME, st.none()),
    st.tuples(st.just("fork"), NAME, NAME),
    st.tuples(st.just("delete"), NAME, st.none()),
    st.tuples(st.just("load"), NAME, st.none() | st.integers(0, 3)),
    st.tuples(st.just("stale"), NAME, WORDS),
)


async def step(store, name, conversation, value):
    match name:
        case "ask":
            found = await store.load(conversation) or Conversation(conversation_id=conversation)
            found.messages += [asked(value), answered(value)]
            return len(await store.save(found))
        case "stale":
            found = Conversation(conversation_id=conversation, messages=[asked(value)], revision="another")
            return await store.save(found)
        case "rewrite":
            found = await store.load(conversation)
            if found is None or len(found.messages) < 2:
                return None
            found.messages[-1] = answered(f"rather {value}")
            found.new_message_index = None
            return len(await store.save(found))
        case "branch":
            found = await store.load(conversation)
            if found is not None:
                return (await store.branch(conversation, at=value, expected_revision=found.revision)).messages
        case "back":
            record = await store.read_record(conversation)
            if record and record.branches:
                tip = record.branches[-1]
                return (await store.branch(conversation, from_entry=tip, expected_revision=record.revision)).messages
        case "fork":
            return (await store.fork(conversation, new_conversation_id=value)).messages
        case "delete":
            return await store.delete(conversation)
        case _:
            found = await store.load(conversation, limit=value)
            return found and (found.messages, found.usage, found.deferred_tool_requests)
    return None


async def told(store, *call):
    try:
        return await step(store, *call)
    except TheirConflict:
        return "conflict"
    except UserError as error:
        return str(error)


def compare_calls(url, steps):
    async def main():
        ours, theirs = TurnlogConversationStore(url), InMemoryConversationStore()
        try:
            for call in steps:
                assert await told(ours, *call) == await told(theirs, *call)
            for name in ("ann", "bob", "eve"):
                assert await told(ours, "load", name, None) == await told(theirs, "load", name, None)
                record = await ours.read_record(name)
                if record is not None:
                    await is_shown(ours, name)
        finally:
            ours.close()

    async def is_shown(store, name):
        """What Turnlog shows is the history as it is now."""
        found = await store.load(name)

        async def work(t):
            row = await store.conversations.log_of(name).find(t)
            return await t.sessions.history(row.id)

        history = await store.holder.call(work)
        words = " ".join(part.content for message in found.messages for part in message.parts if part.content)
        shown = json.dumps(list(history.messages), ensure_ascii=False)
        for message in found.messages:
            for part in message.parts:
                if part.content and part.content.isalnum():
                    assert part.content in shown
        if not words:
            assert "rather" not in shown

    run(main())


@settings(max_examples=25)
@given(st.lists(STEP, max_size=14))
def test_the_same_calls_give_the_same_answers(steps):
    compare_calls("memory:", steps)


@pytest.mark.parametrize("kind", URLS)
@settings(max_examples=2)
@given(steps=st.lists(STEP, min_size=12, max_size=18))
def test_the_same_calls_give_the_same_answers_on_disk(kind, steps):
    with tempfile.TemporaryDirectory() as folder:
        compare_calls(url_of(kind, folder), steps)


def test_a_run_is_continued_by_another_store_object(url):
    async def main():
        store = TurnlogConversationStore(url)
        agent = Agent(TestModel(custom_output_text="hello Ann"))
        await store.save(await agent.run("I am Ann.", conversation=Conversation(conversation_id="ann")))
        store.close()
        again = TurnlogConversationStore(url)
        loaded = await again.load("ann")
        assert [type(message) for message in loaded.messages] == [ModelRequest, ModelResponse]
        result = await agent.run("Who am I?", conversation=loaded)
        assert len(await again.save(result)) == 2
        assert (await again.load("ann")).messages == result.all_messages()
        again.close()

    run(main())


def test_a_conflict_is_theirs_and_ours_and_changes_nothing(url):
    async def main():
        store = TurnlogConversationStore(url)
        await store.save(Conversation(conversation_id="ann", messages=[asked("one")]))
        first, second = await store.load("ann"), await store.load("ann")
        first.messages.append(answered("two"))
        await store.save(first)
        second.messages.append(answered("three"))
        with pytest.raises(ConversationConflict, match="saved or deleted") as raised:
            await store.save(second)
        assert isinstance(raised.value, TheirConflict)
        assert isinstance(raised.value, TurnlogError)
        assert raised.value.conversation_id == "ann"
        assert raised.value.hint
        assert (await store.load("ann")).messages == first.messages
        with pytest.raises(ConversationConflict):
            await store.branch("ann", at=0, expected_revision="another")
        with pytest.raises(ConversationConflict):
            await store.fork("ann", new_conversation_id="ann")
        for wrong in (store.load("ann", limit=-1), store.fork("bob"), store.list_conversations(limit=-1)):
            with pytest.raises(UserError) as refused:
                await wrong
            assert isinstance(refused.value, UsageError)
        store.close()

    run(main())


@pytest.mark.parametrize("kind", ["memory", "sqlite", "jsonl"])
def test_what_a_caller_does_to_a_loaded_message_is_not_stored(kind, tmp_path):
    async def main():
        store = TurnlogConversationStore("memory:" if kind == "memory" else url_of(kind, tmp_path))
        call = ToolCallPart("f", {"a": [1]}, "c1")
        [entry] = await store.save(Conversation(conversation_id="ann", messages=[ModelResponse(parts=[call])]))
        for found in (await store.load("ann")).messages[0], (await store.read_entry(entry.id)).message:
            found.parts[0].args["a"].append(2)
        assert (await store.load("ann")).messages[0].parts == [call]
        store.close()

    run(main())


def test_of_many_writers_at_once_one_succeeds_each_time(url):
    async def main():
        stores = [TurnlogConversationStore(url) for _ in range(4)]
        await stores[0].save(Conversation(conversation_id="ann", messages=[asked("one")]))
        for number in range(3):
            copies = [await store.load("ann") for store in stores]
            for store, copy in zip(stores, copies, strict=True):
                copy.messages.append(answered(f"{number} of {id(store)}"))
            saved = await asyncio.gather(
                *(store.save(copy) for store, copy in zip(stores, copies, strict=True)), return_exceptions=True
            )
            assert sorted(type(one).__name__ for one in saved) == ["ConversationConflict"] * 3 + ["list"]
        assert len((await stores[0].load("ann")).messages) == 4
        for store in stores:
            store.close()

    run(main())


def test_a_fork_has_its_own_copy_and_outlives_its_source(url):
    async def main():
        store = TurnlogConversationStore(url)
        messages = [asked("one"), answered("two"), asked("three")]
        await store.save(Conversation(conversation_id="ann", messages=messages))
        entries = await store.load_entries("ann")
        fork = await store.fork("ann", at=2, new_conversation_id="fork")
        fork.messages.append(asked("other"))
        await store.save(fork)
        await store.delete("ann")
        store.close()
        other = TurnlogConversationStore(url)
        assert (await other.load("fork")).messages == [*messages[:2], asked("other")]
        assert (await other.read_entry(entries[1].id)) == entries[1]
        with pytest.raises(KeyError) as raised:
            await other.read_entry(entries[2].id)
        assert isinstance(raised.value, TurnlogError)
        record = await other.read_record("fork")
        assert (record.forked_from, record.forked_at) == ("ann", entries[1].id)
        other.close()

    run(main())


def test_a_conversation_that_is_created_while_another_of_its_id_is_deleted_stays(tmp_path):
    """The mark of a deletion that did not come to its end: the next writer ends it."""
    from turnlog.adapters.pydantic_conversations import APP, DELETED, RECORD
    from turnlog.core.entries import Facts

    async def main():
        store = TurnlogConversationStore(f"sqlite:{tmp_path}/a.db")
        await store.save(Conversation(conversation_id="ann", messages=[asked("old")]))

        async def mark(t):
            log = store.conversations.log_of("ann")
            await log.append_to(t, await log.open(t), [Facts(app=APP, put={RECORD: DELETED})])

        await store.holder.call(mark)
        assert await store.load("ann") is None
        assert await store.list_conversations() == []
        await store.save(Conversation(conversation_id="ann", messages=[asked("new")]))
        assert (await store.load("ann")).messages == [asked("new")]
        store.close()
        async with turnlog.open(f"sqlite:{tmp_path}/a.db") as t:
            assert (await t.sessions.list()).total == 1

    run(main())


WRITER = """
import asyncio, sys
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import ModelRequest, UserPromptPart
from turnlog.adapters.pydantic_ai import TurnlogConversationStore

async def main(url, name, count):
    store = TurnlogConversationStore(url)
    n = 0
    while n < count:
        found = await store.load("ann") or Conversation(conversation_id="ann")
        found.messages += [ModelRequest(parts=[UserPromptPart(f"{name}{n}{half}")]) for half in "ab"]
        try:
            await store.save(found)
        except ConversationConflict:
            continue
        print(n, flush=True)
        n += 1
    store.close()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def writer(url, name, count):
    adapter = "turnlog.adapters.pydantic_ai"
    return warm.start_code(WRITER, url, name, count, module=adapter, stdout=subprocess.PIPE, text=True)


async def texts(url):
    store = TurnlogConversationStore(url)
    found = await store.load("ann")
    store.close()
    return [message.parts[0].content for message in found.messages]


@pytest.mark.parametrize("kind", ["jsonl", pytest.param("sqlite", marks=pytest.mark.slow)])
def test_two_processes_on_one_conversation_lose_and_mix_nothing(kind, tmp_path):
    url = url_of(kind, tmp_path)
    writers = [writer(url, name, 5) for name in "xy"]
    assert [one.communicate()[0].split()[-1] for one in writers] == ["4", "4"]
    found = run(texts(url))
    assert sorted(found) == sorted(f"{name}{n}{half}" for name in "xy" for n in range(5) for half in "ab")
    assert all(one[:-1] == other[:-1] for one, other in zip(found[::2], found[1::2], strict=True))


def test_a_killed_writer_leaves_whole_saves(tmp_path):
    url = url_of("sqlite", tmp_path)
    process = writer(url, "x", 10_000)
    for line in process.stdout:
        if line.strip() == "6":
            break
    process.send_signal(signal.SIGKILL)
    count = 7 + sum(1 for _ in process.stdout)
    process.communicate()
    found = run(texts(url))
    assert len(found) in (2 * count, 2 * count + 2)
    assert found == [f"x{n}{half}" for n in range(len(found) // 2) for half in "ab"]


@pytest.mark.parametrize("kind", ["jsonl", pytest.param("sqlite", marks=pytest.mark.slow)])
@settings(max_examples=1)
@given(messages=st.lists(MESSAGE, min_size=12, max_size=12))
def test_random_messages_are_read_equal_in_another_process_and_after_compaction_and_undo(kind, messages):
    code = (
        "import asyncio, sys\nfrom pydantic_ai.messages import ModelMessagesTypeAdapter\n"
        "from turnlog.adapters.pydantic_ai import TurnlogConversationStore\n"
        "found = asyncio.run(TurnlogConversationStore(sys.argv[1]).load('ann'))\n"
        "sys.stdout.buffer.write(ModelMessagesTypeAdapter.dump_json(found.messages))"
    )
    messages = [asked("first"), *map(stored_form, messages)]

    async def main():
        store = TurnlogConversationStore(url)
        await store.save(Conversation(conversation_id="ann", messages=messages))
        store.close()
        async with turnlog.open(url) as t:
            [row] = (await t.sessions.list()).items
            users = [entry.seq for entry in await t.store.read(row.id) if isinstance(entry, User)]
            body = Compaction(summary="all of it", first_kept=row.last_seq + 1, covers=(users[0], row.last_seq))
            [made] = await t.store.append(row.id, [body], lease="own")
            assert (await TurnlogConversationStore(store=t).load("ann")).messages == messages
            await t.store.append(row.id, [Undo(target=made.seq)], lease="own")

    with tempfile.TemporaryDirectory() as folder:
        url = url_of(kind, folder)
        run(main())
        printed = subprocess.run([sys.executable, "-c", code, url], capture_output=True, check=True).stdout
    assert ModelMessagesTypeAdapter.validate_json(printed) == messages


def test_conversations_have_titles_and_are_found_by_search(tmp_path):
    async def main():
        store = TurnlogConversationStore(f"sqlite:{tmp_path}/a.db")
        await store.save(
            Conversation(
                conversation_id="ann", messages=[asked("Where do kingfishers nest?"), answered("In river banks.")]
            ),
            scope="birds",
        )
        assert [one.conversation_id for one in await store.list_conversations(scope="birds")] == ["ann"]
        assert await store.list_conversations(scope="fish") == []
        store.close()
        async with turnlog.open(f"sqlite:{tmp_path}/a.db") as t:
            [row] = (await t.sessions.list()).items
            assert (row.key, row.title) == ("agent:main:pydantic_ai:direct:ann", "Where do kingfishers nest?")
            [hit] = await t.sessions.search("kingfishers")
            assert hit.session_id == row.id

    run(main())


def test_a_message_whose_words_were_erased_keeps_its_place(tmp_path):
    async def main():
        store = TurnlogConversationStore(f"sqlite:{tmp_path}/a.db")
        messages = [asked("one"), answered("secret"), asked("three"), answered("secret too")]
        await store.save(Conversation(conversation_id="ann", messages=messages))
        before = await store.load_entries("ann")
        async with turnlog.open(f"sqlite:{tmp_path}/a.db") as t:
            [row] = (await t.sessions.list()).items
            answers = [entry.seq for entry in await t.store.read(row.id) if isinstance(entry, Assistant)]
            await t.store.erase(row.id, answers, redact=True)
        found = await store.load("ann")
        assert [text_of(message) for message in found.messages] == ["one", "[erased]", "three", "[erased]"]
        after = await store.load_entries("ann")
        assert [(one.id, one.parent_id) for one in after] == [(one.id, one.parent_id) for one in before]
        assert await store.read_entry(after[1].id) == after[1]
        found.messages.append(asked("five"))
        await store.save(found)
        assert len((await store.load("ann", limit=3)).messages) == 3
        store.close()

    run(main())


def test_bad_use_is_refused():
    async def main():
        store = TurnlogConversationStore("memory:")
        for name in ("", "a\0b", "x" * 901):
            with pytest.raises(UsageError):
                await store.load(name)
        for bad in (float("nan"), [{"x": float("inf")}], {float("nan")}, frozenset([float("nan")])):
            message = ModelRequest(parts=[ToolReturnPart("f", bad, "c1")])
            with pytest.raises(TypeError) as raised:
                await store.save(Conversation(conversation_id="ann", messages=[message]))
            assert isinstance(raised.value, TurnlogError)
        with pytest.raises(UsageError):
            await store.save(Conversation(conversation_id="ann", messages=[asked("x" * (33 * 1024 * 1024))]))
        assert await store.load("ann") is None
        store.close()

    run(main())
    with pytest.raises(UsageError, match="mysql"):
        run(TurnlogConversationStore("mysql://x").load("ann"))


def test_a_missing_framework_says_what_to_install():
    hidden = (
        "import sys\nsys.modules['pydantic_ai'] = None\n"
        "try:\n    import turnlog.adapters.pydantic_ai\n"
        "except ImportError as error:\n    print(error)"
    )
    said = subprocess.run([sys.executable, "-c", hidden], check=True, capture_output=True, text=True).stdout
    assert 'pip install "turnlog[pydantic-ai]"' in said


def test_a_program_that_ends_without_closing_the_store_ends_quietly(url):
    code = (
        "import asyncio, sys\nfrom pydantic_ai.conversation import Conversation\n"
        "from turnlog.adapters.pydantic_ai import TurnlogConversationStore\n"
        "store = TurnlogConversationStore(sys.argv[1])\n"
        "asyncio.run(store.save(Conversation(conversation_id='ann')))"
    )
    ended = subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True, check=True)
    assert ended.stderr == ""


# The guard.


async def summarise(prompt):
    return "## Goal\nMany questions were asked, and each was answered.\n## Next\nGo on."


def long_turns(count):
    found = []
    for number in range(count):
        found += [asked(f"question {number} " + "word " * 150), answered(f"answer {number} " + "word " * 150)]
    return found


def text_of(message):
    return "".join(part.content for part in message.parts if isinstance(part.content, str))


def test_a_request_fits_and_its_summary_is_a_compaction_that_can_be_undone(tmp_path):
    async def main():
        store = TurnlogConversationStore(f"sqlite:{tmp_path}/a.db")
        await store.save(Conversation(conversation_id="ann", messages=long_turns(40)))
        sent = []

        def answer(messages, info):
            accepted(messages)
            sent.append(list(messages))
            return ModelResponse(parts=[TextPart("done")])

        async def counted(prompt):
            nonlocal summaries
            summaries += 1
            return await summarise(prompt)

        summaries = 0
        agent = Agent(
            FunctionModel(answer), capabilities=[ProcessHistory(fits(store, summarise=counted, window=8_000))]
        )
        await store.save(await agent.run("and now?", conversation=await store.load("ann")))
        assert "each was answered" in text_of(sent[0][0])
        assert text_of(sent[0][-1]) == "and now?"
        assert len(sent[0]) < 40
        made = summaries
        loaded = await store.load("ann")
        assert loaded.messages[:80] == long_turns(40)  # the conversation keeps everything
        assert len(loaded.messages) == 82
        await store.save(await agent.run("and then?", conversation=loaded))
        assert text_of(sent[1][0]) == text_of(sent[0][0])
        assert summaries == made  # the second run used what is stored
        async with turnlog.open(f"sqlite:{tmp_path}/a.db") as t:
            [row] = (await t.sessions.list()).items
            assert row.compactions == 1
            await t.sessions.undo(row.id)
        await agent.run("again?", conversation=await store.load("ann"))
        assert summaries > made
        store.close()

    run(main())


def length(messages):
    return len(ModelMessagesTypeAdapter.dump_json(messages))


def test_every_request_of_a_long_conversation_fits():
    """Also after its first summary."""

    async def main():
        store = TurnlogConversationStore("memory:")
        sent, summaries = [], []

        def answer(messages, info):
            sent.append(length(messages))
            return ModelResponse(parts=[TextPart("answer " + "word " * 150)])

        async def counted(prompt):
            summaries.append(prompt)
            return await summarise(prompt)

        agent = Agent(
            FunctionModel(answer), capabilities=[ProcessHistory(fits(store, summarise=counted, window=3_000))]
        )
        for number in range(40):
            conversation = await store.load("ann") or Conversation(conversation_id="ann")
            await store.save(await agent.run(f"question {number} " + "word " * 150, conversation=conversation))
        assert max(sent) < 25_000
        assert 3 <= len(summaries) <= 10
        assert len((await store.load("ann")).messages) == 80
        store.close()

    run(main())


async def no_summary(prompt):
    raise RuntimeError("the model for summaries is down")


@pytest.mark.parametrize("summariser", [summarise, no_summary])
@pytest.mark.parametrize("limit", [None, 3])
def test_a_run_that_does_not_fit_is_stored_word_for_word(tmp_path, summariser, limit):
    """Also the messages that the run itself has added, and results that the model has seen shortened."""

    async def main():
        store = TurnlogConversationStore(f"sqlite:{tmp_path}/a.db")
        sent = []
        kept = []

        def answer(messages, info):
            accepted(messages)
            sent.append(length(messages))
            calls = sum(bool(message.tool_calls) for message in messages if isinstance(message, ModelResponse))
            reply = TextPart("done") if len(sent) % 6 == 0 else ToolCallPart("find", {"n": calls})
            kept.append(reply)
            return ModelResponse(parts=[reply])

        agent = Agent(
            FunctionModel(answer), capabilities=[ProcessHistory(fits(store, summarise=summariser, window=6_000))]
        )

        @agent.tool_plain
        def find(n: int) -> str:
            return f"result {n}\n" + "a line of words\n" * 4_000

        for number in range(3):
            conversation = await store.load("ann", limit=limit) or Conversation(conversation_id="ann")
            result = await agent.run(f"question {number} " + "word " * 50, conversation=conversation)
            stored = await store.save(result)
            assert len(stored) == 12
            assert await store.save(result) == []
        assert max(sent) < 40_000
        messages = (await store.load("ann")).messages
        assert len(messages) == 36
        asked_for = [message for message in messages if isinstance(message.parts[0], UserPromptPart)]
        assert [text_of(message).split(" word")[0] for message in asked_for] == [f"question {n}" for n in range(3)]
        results = [part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        assert [len(result) > 60_000 for result in results] == [True] * 15
        replies = [message.parts[0] for message in messages if isinstance(message, ModelResponse)]
        assert [type(reply) for reply in replies] == [type(reply) for reply in kept]
        assert (await store.read_record("ann")).branches == []
        store.close()

    run(main())


def test_a_run_of_one_message_never_changes_another_conversation():
    """Its request is one message: the summary of all that was before, and the question."""

    async def main():
        store = TurnlogConversationStore("memory:")
        asked_for = []

        def answer(messages, info):
            asked_for.append(len(messages))
            return ModelResponse(parts=[TextPart("yes")])

        agent = Agent(
            FunctionModel(answer), capabilities=[ProcessHistory(fits(store, summarise=no_summary, window=1_000))]
        )
        history = [asked("secret " * 2_000), answered("noted " * 2_000)]
        await agent.run("what now?", message_history=history)
        assert asked_for == [1]
        for name in ("bob", "eve"):
            await store.save(await agent.run("hello", conversation=Conversation(conversation_id=name)))
            assert [text_of(message) for message in (await store.load(name)).messages] == ["hello", "yes"]
        store.close()

    run(main())


def test_runs_that_are_saved_together_are_stored_word_for_word():
    async def main():
        store = TurnlogConversationStore("memory:")

        def answer(messages, info):
            return ModelResponse(parts=[TextPart("answer " + "word " * 150)])

        agent = Agent(
            FunctionModel(answer), capabilities=[ProcessHistory(fits(store, summarise=summarise, window=3_000))]
        )
        conversation = Conversation(conversation_id="ann")
        for number in range(12):
            conversation = (
                await agent.run(f"question {number} " + "word " * 150, conversation=conversation)
            ).conversation
        await store.save(conversation)
        found = (await store.load("ann")).messages
        assert [text_of(message).split(" word")[0] for message in found[::2]] == [f"question {n}" for n in range(12)]
        assert len(found) == 24
        store.close()

    run(main())


def accepted(messages):
    """Every result follows its call, and every call has its result."""
    waiting = set()
    for message in messages:
        assert message.parts
        if isinstance(message, ModelResponse):
            assert not waiting
            waiting = {call.tool_call_id for call in message.tool_calls}
            continue
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                assert part.tool_call_id in waiting
                waiting.remove(part.tool_call_id)
        assert not waiting
    assert isinstance(messages[-1], ModelRequest)


@settings(max_examples=40)
@given(st.lists(MESSAGE.filter(lambda message: message.parts), max_size=12), st.integers(300, 4_000))
def test_whatever_fit_gives_has_its_calls_and_results_paired(messages, window):
    messages = [*messages, asked("now")]
    try:
        found = fit(messages, "pydantic_ai", Limits(window=window))
    except turnlog.ContextOverflow:
        return
    accepted(found)
    assert text_of(found[-1]).endswith("now")
    ModelMessagesTypeAdapter.dump_json(found)


def test_fit_shortens_results_and_keeps_the_rest_word_for_word():
    call = ModelResponse(parts=[ToolCallPart("f", {"n": 1}, "c1"), ToolCallPart("f", {"n": 2}, "c2")], timestamp=NOW)
    results = ModelRequest(
        parts=[ToolReturnPart("f", "line\n" * 20_000, "c1"), ToolReturnPart("f", "short", "c2"), UserPromptPart("so?")]
    )
    messages = [asked("go"), call, results, answered("done"), asked("thanks")]
    found = fit(messages, "pydantic_ai", Limits(window=16_000))
    assert [found[n] for n in (0, 1, 3, 4)] == [messages[n] for n in (0, 1, 3, 4)]
    assert "shortened" in found[2].parts[0].content
    assert found[2].parts[1:] == results.parts[1:]
    assert fit(messages[:2], "pydantic_ai", Limits(window=16_000))[:2] == messages[:2]

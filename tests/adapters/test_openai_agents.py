"""openai-agents on a Turnlog store: equal items, the behaviour of SQLiteSession, and what goes beyond it."""

import asyncio
import json
import os
import signal
import subprocess
import tempfile
import time

import pytest
from hypothesis import given, settings, strategies as st

import turnlog
from turnlog.core.entries import Assistant, Compaction, Foreign, ToolResult, User
from turnlog.errors import Busy, Conflict, TurnlogError, UsageError

from .. import warm
from ..waiting import GIVES_UP_S

agents = pytest.importorskip("agents", reason="needs openai-agents (requirements/test.txt)")

from agents import SQLiteSession  # noqa: E402 - only if the package is there
from agents.run_internal.items import drop_orphan_function_calls  # noqa: E402 - only if the package is there

from turnlog.adapters import responses  # noqa: E402 - only if the package is there
from turnlog.adapters.fitting import fit  # noqa: E402 - only if the package is there
from turnlog.adapters.openai_agents import TurnlogSession, guarded, stored  # noqa: E402 - only if the package is there
from turnlog.core.guard import Limits  # noqa: E402 - only if the package is there

ADAPTER = "turnlog.adapters.openai_agents"
TEXT = st.text(st.characters(), max_size=12)  # with NUL and lone surrogates
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
CALL = st.sampled_from(["c1", "c2", "c3"])
PART = st.one_of(
    st.fixed_dictionaries({"type": st.sampled_from(["input_text", "output_text"]), "text": TEXT}),
    st.fixed_dictionaries({"type": st.just("input_image"), "image_url": st.just("data:image/png;base64,AAAA")}),
    st.fixed_dictionaries({"type": TEXT, "x": JSON}),
)
ITEM = st.one_of(
    st.fixed_dictionaries({"role": st.just("user"), "content": TEXT}),
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system"]), "content": st.lists(PART, max_size=3)}
    ),
    st.fixed_dictionaries(
        {"type": st.just("message"), "role": st.just("assistant"), "id": TEXT, "content": st.lists(PART, max_size=2)}
    ),
    st.fixed_dictionaries({"type": st.just("function_call"), "call_id": CALL, "name": TEXT, "arguments": TEXT}),
    st.fixed_dictionaries(
        {"type": st.just("function_call"), "call_id": CALL, "name": st.just("f"), "arguments": JSON.map(json.dumps)}
    ),
    st.fixed_dictionaries(
        {"type": st.just("function_call_output"), "call_id": CALL, "output": TEXT | st.lists(PART, max_size=2)}
    ),
    st.fixed_dictionaries({"type": st.just("reasoning"), "id": TEXT, "summary": st.just([])}),
    st.dictionaries(TEXT, JSON, max_size=3),
)


def run(work):
    return asyncio.run(work)


async def entries_of(session):
    async def work(t):
        row = await session.log_of(None).find(t)
        return await t.store.read(row.id)

    return await session.holder.call(work)


@settings(max_examples=15)
@given(st.lists(ITEM, min_size=1, max_size=8))
def test_items_come_back_equal(items):
    async def main():
        session = TurnlogSession("ann", "memory:")
        await session.add_items(items)
        assert await session.get_items() == json.loads(json.dumps(items))
        session.close()

    run(main())


@pytest.mark.parametrize("scheme", ["sqlite", "jsonl"])
@settings(max_examples=2)
@given(items=st.lists(ITEM, min_size=20, max_size=40))
def test_random_items_are_read_equal_in_another_process(scheme, items):
    async def main():
        session = TurnlogSession("ann", url)
        await session.add_items(items)
        session.close()

    code = (
        "import asyncio, json, sys\nfrom turnlog.adapters.openai_agents import TurnlogSession\n"
        "print(json.dumps(asyncio.run(TurnlogSession('ann', sys.argv[1]).get_items())))"
    )
    with tempfile.TemporaryDirectory() as folder:
        url = f"{scheme}:{folder}/store"
        run(main())
        with warm.start_code(code, url, module=ADAPTER, stdout=subprocess.PIPE, text=True) as reader:
            told = reader.communicate(timeout=GIVES_UP_S)[0]
        assert reader.returncode == 0
    assert json.loads(told) == json.loads(json.dumps(items))


STEP = st.one_of(
    st.tuples(st.just("add"), st.lists(ITEM, max_size=4)),
    st.tuples(st.just("pop"), st.none()),
    st.tuples(st.just("clear"), st.none()),
    st.tuples(st.just("get"), st.none() | st.integers(-2, 6)),
)


@settings(max_examples=25)
@given(st.lists(STEP, max_size=14))
def test_the_same_calls_give_the_same_answers_as_sqlite_session(steps):
    async def main():
        ours, theirs = TurnlogSession("ann", "memory:"), SQLiteSession("ann")
        for name, value in steps:
            match name:
                case "add":
                    await ours.add_items(value)
                    await theirs.add_items(value)
                case "pop":
                    assert await ours.pop_item() == await theirs.pop_item()
                case "clear":
                    await ours.clear_session()
                    await theirs.clear_session()
                case _:
                    assert await ours.get_items(value) == await theirs.get_items(value)
        assert await ours.get_items() == await theirs.get_items()
        ours.close()
        theirs.close()

    run(main())


TURN = [
    {"role": "user", "content": "What is the weather in Paris?"},
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Paris"}', "id": "fc_1"},
    {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
    {"type": "message", "role": "assistant", "id": "m1", "content": [{"type": "output_text", "text": "It is sunny."}]},
]


def test_each_item_is_one_entry_and_those_of_a_conversation_are_messages():
    kinds = [type(stored(item)) for item in TURN]
    assert kinds == [User, Foreign, Assistant, ToolResult, Assistant]
    assert stored(TURN[0]).raw is None  # nothing that its fields do not give back
    assert stored({"role": "system", "content": "x"}).raw == {responses.OPAQUE: {"role": "system", "content": "x"}}


def test_a_session_has_a_title_is_found_and_listed(tmp_path):
    async def main():
        url = f"sqlite:{tmp_path}/a.db"
        session = TurnlogSession("ann", url)
        await session.add_items(TURN)
        session.close()
        async with turnlog.open(url) as t:
            [row] = (await t.sessions.list()).items
            assert (row.channel, row.title) == ("openai_agents", "What is the weather in Paris?")
            assert [hit.session_id for hit in await t.sessions.search("sunny")]
            assert "sunny" in str((await t.history(row.id)).messages)

    run(main())


def test_what_another_surface_wrote_is_given_as_items_and_can_be_popped(tmp_path):
    async def main():
        url = f"sqlite:{tmp_path}/a.db"
        call = {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}
        async with turnlog.open(url) as t:
            await t.append(
                "agent:main:openai_agents:direct:ann",
                User(content="hi"),
                Assistant(content=[{"type": "text", "text": "wait"}, call]),
                ToolResult(tool_use_id="t1", content="done"),
            )
        session = TurnlogSession("ann", url)
        assert await session.get_items() == [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "wait"},
            {"type": "function_call", "call_id": "t1", "name": "f", "arguments": '{"a": 1}'},
            {"type": "function_call_output", "call_id": "t1", "output": "done"},
        ]
        assert (await session.pop_item())["type"] == "function_call_output"
        assert (await session.pop_item())["type"] == "function_call"
        assert await session.get_items() == [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "wait"},
        ]
        session.close()

    run(main())


def long_turns(n):
    return [
        item
        for i in range(n)
        for item in (
            {"role": "user", "content": f"question {i} " + "word " * 200},
            {"role": "assistant", "content": f"answer {i}"},
        )
    ]


async def summarise(prompt):
    return "The user asked several questions, and each was answered."


@pytest.mark.parametrize("url", ["memory:", "sqlite", "jsonl"])
def test_a_compaction_shows_a_summary_and_the_rest_word_for_word_and_can_be_undone(url, tmp_path):
    async def main():
        session = TurnlogSession(
            "ann", url if url == "memory:" else f"{url}:{tmp_path}/s", summarise=summarise, window=8_000
        )
        items = long_turns(30)
        await session.add_items(items)
        await session.run_compaction({"response_id": "r"})
        found = await session.get_items()
        assert found[0]["role"] == "user"
        assert "each was answered" in found[0]["content"]
        assert found[1:] == items[-len(found) + 1 :]
        assert 1 < len(found) < len(items)
        assert await session.get_items(2) == items[-2:]
        assert await session.get_items(len(found)) == found
        assert await session.pop_item() == items[-1]
        assert await session.get_items() == found[:-1]  # the summary stays, although the item was older than it
        await session.add_items([items[-1]])

        async def undo(t):
            row = await session.log_of(None).find(t)
            await t.sessions.undo(row.id)

        await session.holder.call(undo)
        assert await session.get_items() == items
        session.close()

    run(main())


@pytest.mark.parametrize("url", ["memory:", "sqlite", "jsonl"])
def test_reasoning_and_calls_right_before_the_boundary_stay_with_what_follows_and_are_popped_after_it(url, tmp_path):
    async def main():
        session = TurnlogSession("ann", url if url == "memory:" else f"{url}:{tmp_path}/s")
        kept = [
            {"type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "x"},
            {"type": "shell_call", "call_id": "s", "action": {"commands": ["ls"]}},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "3"},
            {"type": "shell_call_output", "call_id": "s", "output": []},
        ]
        await session.add_items([*long_turns(2), *kept])

        async def compact(t):
            log = session.log_of(None)
            row = await log.find(t)
            entries = await t.store.read(row.id)
            start, call = entries[-9].seq, entries[-3].seq
            await log.append(t, [Compaction(summary="Questions.", first_kept=call, covers=(start, call - 1))])

        await session.holder.call(compact)
        items = await session.get_items()
        assert items[1:] == kept
        for n in range(5, 0, -1):
            assert await session.get_items(n) == items[-n:]
        while items:
            assert await session.pop_item() == items.pop()
            assert await session.get_items() == items
        session.close()

    run(main())


@pytest.mark.parametrize("place", range(1, 6))
def test_after_an_erasure_the_items_are_still_ones_that_the_api_takes(place, tmp_path):
    async def main():
        session = TurnlogSession("ann", f"sqlite:{tmp_path}/s")
        items = [
            {"role": "user", "content": "run it"},
            {"type": "reasoning", "id": "r1", "summary": []},
            {"type": "shell_call", "call_id": "c1", "id": "s1", "action": {"commands": ["ls"]}},
            {"type": "shell_call_output", "call_id": "c1", "output": []},
            {"type": "reasoning", "id": "r2", "summary": []},
            {"type": "function_call", "call_id": "c2", "id": "f1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c2", "output": "3"},
        ]
        await session.add_items(items)

        async def erase(t):
            row = await session.log_of(None).find(t)
            first = row.last_seq - len(items) + 1
            await t.erase(row.id, seqs=[first + place], redact=True, apply=True)

        await session.holder.call(erase)
        left = [item for item in await session.get_items() if item != {"role": "assistant", "content": "[erased]"}]
        assert left == ([items[0], *items[4:]] if place < 4 else items[:4])
        session.close()

    run(main())


def test_nothing_is_compacted_before_it_is_due_unless_forced():
    async def main():
        session = TurnlogSession("ann", "memory:", summarise=summarise, window=100_000)
        items = long_turns(6)
        await session.add_items(items)
        await session.run_compaction({"response_id": "r"})
        assert await session.get_items() == items
        await session.run_compaction({"force": True})
        assert len(await session.get_items()) < len(items)
        session.close()

    run(main())


def test_a_failed_summary_leaves_the_session_alone_and_is_raised_only_if_forced():
    async def broken(prompt):
        raise ValueError("no model")

    async def main():
        session = TurnlogSession("ann", "memory:", summarise=broken, window=8_000)
        items = long_turns(30)
        await session.add_items(items)
        await session.run_compaction()
        with pytest.raises(TurnlogError):
            await session.run_compaction({"force": True})
        assert await session.get_items() == items
        session.close()

    run(main())


def test_popping_everything_after_a_compaction_pops_the_summary_last():
    async def main():
        session = TurnlogSession("ann", "memory:", summarise=summarise, window=8_000)
        await session.add_items(long_turns(30))
        await session.run_compaction()
        found = await session.get_items()
        popped = [await session.pop_item() for _ in found]
        assert popped == found[::-1]
        assert await session.pop_item() is None
        assert await session.get_items() == []
        session.close()

    run(main())


def test_reset_empties_and_keeps_clear_deletes(tmp_path):
    async def main():
        session = TurnlogSession("ann", f"sqlite:{tmp_path}/a.db")
        await session.add_items(TURN)
        await session.reset()
        assert await session.get_items() == []
        assert len(await entries_of(session)) > len(TURN)
        await session.add_items(TURN[:1])
        await session.clear_session()
        assert await session.get_items() == []
        assert await session.get_items(3) == []
        await session.add_items(TURN[:2])
        assert await session.get_items() == TURN[:2]
        session.close()

    run(main())


def test_clear_does_not_bring_an_earlier_session_of_the_key_back(tmp_path):
    async def main():
        url = f"sqlite:{tmp_path}/a.db"
        session = TurnlogSession("ann", url)
        await session.add_items(TURN[:1])
        async with turnlog.open(url) as t:
            await t.sessions.new("agent:main:openai_agents:direct:ann")
        assert await session.get_items() == []  # the new session was noticed
        await session.add_items(TURN)
        await session.clear_session()
        assert await session.get_items() == []
        session.close()

    run(main())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), object(), {1, 2}, b"x"])
def test_what_json_cannot_hold_is_a_type_error_and_nothing_is_stored(bad):
    async def main():
        session = TurnlogSession("ann", "memory:")
        with pytest.raises(TypeError) as caught:
            await session.add_items([TURN[0], {"role": "user", "content": "x", "y": bad}])
        assert isinstance(caught.value, TurnlogError)
        assert await session.get_items() == []
        session.close()

    run(main())


@pytest.mark.parametrize("bad", ["", "a\0b", "x" * 901, 7, None])
def test_an_id_that_cannot_be_used_is_refused_at_construction(bad):
    with pytest.raises(UsageError):
        TurnlogSession(bad, "memory:")


def test_an_item_over_the_limit_is_refused_and_nothing_is_stored():
    async def main():
        session = TurnlogSession("ann", "memory:")
        with pytest.raises(UsageError):
            await session.add_items([TURN[0], {"role": "user", "content": "x" * (33 * 1024 * 1024)}])
        assert await session.get_items() == []
        large = {
            "type": "message",
            "role": "assistant",
            "id": "m",
            "content": [{"type": "output_text", "text": "x" * (20 * 1024 * 1024)}],
        }
        await session.add_items([large])  # it would be over the limit if it were stored twice
        assert await session.get_items() == [large]
        session.close()

    run(main())


def test_a_closed_session_raises_a_runtime_error_that_is_turnlogs():
    async def main():
        session = TurnlogSession("ann", "memory:")
        session.close()
        for call in (session.add_items([]), session.get_items(0), session.pop_item(), session.clear_session()):
            with pytest.raises(RuntimeError) as caught:
                await call
            assert isinstance(caught.value, TurnlogError)

    run(main())


def test_tenants_of_one_id_are_different_sessions():
    class Context:
        def __init__(self, account):
            self.turnlog_account = account

    async def main():
        session = TurnlogSession("ann", "memory:")
        one, two = (agents.RunContextWrapper(Context(name)) for name in ("one", "two"))
        await session.add_items(TURN[:1], wrapper=one)
        assert await session.get_items(wrapper=two) == []
        assert await session.get_items(wrapper=one) == TURN[:1]
        assert await session.get_items() == []
        session.close()

    run(main())


def test_an_append_while_a_turn_runs_is_busy_and_names_the_holder(tmp_path, monkeypatch):
    from turnlog.stores.sqlite import store as sqlite_store

    async def main():
        url = f"sqlite:{tmp_path}/a.db"
        session = TurnlogSession("ann", url)
        await session.add_items(TURN[:1])
        monkeypatch.setattr(sqlite_store, "OWN_LEASE_WAIT_S", 0.05)
        async with turnlog.open(url) as t:
            [row] = (await t.sessions.list()).items
            async with t.store.lease(row.id):
                with pytest.raises(Busy) as caught:
                    await session.add_items(TURN)
        assert caught.value.holder
        assert await session.get_items() == TURN[:1]
        session.close()

    run(main())


def test_a_lent_turnlog_serves_a_session():
    async def main():
        async with turnlog.open("memory:") as t:
            session = TurnlogSession("ann", store=t)
            await session.add_items(TURN)
            assert await session.get_items() == TURN
            [row] = (await t.sessions.list()).items
            assert row.message_count == 3

    run(main())


WRITER = """
import asyncio, sys
from turnlog.adapters.openai_agents import TurnlogSession
async def main():
    session = TurnlogSession("ann", sys.argv[1])
    for n in range(int(sys.argv[3])):
        await session.add_items([{"role": "user", "content": f"{sys.argv[2]} {n} {part}"} for part in range(5)])
        print(n, flush=True)
asyncio.run(main())
"""


def start(url, name, n):
    return warm.start_code(WRITER, url, name, n, module=ADAPTER, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("scheme", ["sqlite", "jsonl"])
def test_two_processes_lose_nothing_and_do_not_interleave_within_an_append(scheme, tmp_path):
    url = f"{scheme}:{tmp_path}/store"
    writers = [start(url, name, 15) for name in ("a", "b")]
    for writer in writers:
        writer.communicate(timeout=GIVES_UP_S)
        assert writer.returncode == 0
    found = [item["content"].split() for item in run(TurnlogSession("ann", url).get_items())]
    assert len(found) == 2 * 15 * 5
    groups = [found[index : index + 5] for index in range(0, len(found), 5)]
    assert all(len({(name, n) for name, n, _ in group}) == 1 for group in groups)
    assert sorted((group[0][0], int(group[0][1])) for group in groups) == sorted(
        (w, n) for w in "ab" for n in range(15)
    )


@pytest.mark.parametrize("scheme", ["sqlite", "jsonl"])
def test_kill_minus_9_leaves_all_of_an_append_or_none(scheme, tmp_path):
    url = f"{scheme}:{tmp_path}/store"
    for round_ in range(3):
        writer = start(url, f"r{round_}", 10_000)
        told = 0
        for line in writer.stdout:
            told = int(line) + 1
            if told >= 2 + round_:
                break
        time.sleep(0.001 * round_)
        writer.send_signal(signal.SIGKILL)
        rest = writer.communicate()[0].split()
        told = int(rest[-1]) + 1 if rest else told
        found = [item["content"] for item in run(TurnlogSession("ann", url).get_items())]
        assert len(found) % 5 == 0
        mine = [words for words in found if words.startswith(f"r{round_} ")]
        assert len(mine) // 5 in (told, told + 1)


def test_a_child_forked_during_a_guarded_call_may_not_write():
    async def main():
        session = TurnlogSession("ann", "memory:")
        async with session.guarding():
            session.check_open()
            child = os.fork()
            if child == 0:
                try:
                    session.check_open()
                except Conflict:
                    os._exit(7)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7  # noqa: ASYNC222 - it has ended
        session.check_open()
        session.close()

    run(main())


class WindowModel(agents.Model):
    """A model that refuses more than a number of characters, as OpenAI's API does."""

    def __init__(self, most):
        self.most = most
        self.inputs = []

    def _check(self, items):
        self.inputs.append(items)
        assert drop_orphan_function_calls(items) == items
        if len(json.dumps(items)) > self.most:
            from openai import BadRequestError

            error = BadRequestError.__new__(BadRequestError)
            Exception.__init__(error, "This model's maximum context length is exceeded")
            error.status_code, error.code, error.body = 400, "context_length_exceeded", None
            raise error

    async def get_response(self, system_instructions, input, *args, **kwargs):  # noqa: A002 - the framework's name
        self._check(input)
        return "answer"

    async def stream_response(self, system_instructions, input, *args, **kwargs):  # noqa: A002 - the framework's name
        self._check(input)
        yield "first"
        yield "second"


def test_a_guarded_model_is_sent_what_fits_and_the_summary_is_stored(tmp_path):
    async def main():
        session = TurnlogSession("ann", f"sqlite:{tmp_path}/a.db", summarise=summarise, window=8_000)
        items = long_turns(40)
        await session.add_items(items)
        inner = WindowModel(32_000)
        model = guarded(inner, session)
        asked = [*items, {"role": "user", "content": "and now?"}]
        assert await model.get_response("be brief", asked, None, [], None, [], None) == "answer"
        sent = inner.inputs[-1]
        assert sent[-1] == asked[-1]
        assert "each was answered" in sent[0]["content"]
        assert (await session.get_items())[0] == sent[0]  # stored: the next run begins with it
        events = [event async for event in model.stream_response("be brief", asked, None, [], None, [], None)]
        assert events == ["first", "second"]
        session.close()

    run(main())


RULES = [
    {"role": "developer", "content": "Always answer in verse."},
    {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "Never name the price."}]},
]


@pytest.mark.parametrize("url", ["memory:", "jsonl"])
def test_instructions_are_not_summarised_but_stay_word_for_word_before_the_summary(url, tmp_path):
    async def main():
        place = url if url == "memory:" else f"{url}:{tmp_path}/s"
        session = TurnlogSession("ann", place, summarise=summarise, window=8_000)
        items = [RULES[0], *long_turns(20), RULES[1], *long_turns(20)]
        await session.add_items(items)
        await session.run_compaction({"force": True})
        found = await session.get_items()
        assert found[:2] == RULES
        assert "each was answered" in found[2]["content"]
        assert found[3:] == items[-len(found[3:]) :]
        assert (await session.get_items(3)) == found[-3:]

        await session.add_items(long_turns(40))
        await session.run_compaction({"force": True})
        assert [one in RULES for one in await session.get_items()].index(False) == 2

        async def undo(t):
            [row] = (await t.sessions.list()).items
            await t.sessions.undo(row.id)
            await t.sessions.undo(row.id)

        await session.holder.call(undo)
        assert await session.get_items() == [*items, *long_turns(40)]
        session.close()

    run(main())


def test_instructions_outlive_the_summary_that_is_taken_back(tmp_path):
    async def main():
        session = TurnlogSession("ann", f"sqlite:{tmp_path}/a.db", summarise=summarise, window=8_000)
        await session.add_items([RULES[0], *long_turns(40)])
        await session.run_compaction({"force": True})
        while "each was answered" not in str(await session.pop_item()):
            pass
        assert await session.get_items() == RULES[:1]
        assert await session.pop_item() == RULES[0]
        assert await session.pop_item() is None
        session.close()

    run(main())


def test_a_guarded_model_keeps_instructions_before_the_summary_that_it_stores(tmp_path):
    async def main():
        session = TurnlogSession("ann", f"sqlite:{tmp_path}/a.db", summarise=summarise, window=8_000)
        items = [RULES[0], *long_turns(40)]
        await session.add_items(items)
        inner = WindowModel(32_000)
        asked = [*items, {"role": "user", "content": "and now?"}]
        await guarded(inner, session).get_response("be brief", asked, None, [], None, [], None)
        assert inner.inputs[-1][0] == RULES[0]
        found = await session.get_items()
        assert found[0] == RULES[0]
        assert found == inner.inputs[-1][: len(found)]
        session.close()

    run(main())


def test_a_run_of_many_calls_uses_its_summary_until_it_is_undone(tmp_path):
    """A run gives the same items at each call, and those that it has added."""

    async def main():
        summaries = []

        async def counted(prompt):
            summaries.append(prompt)
            return await summarise(prompt)

        url = f"sqlite:{tmp_path}/a.db"
        session = TurnlogSession("ann", url, summarise=counted, window=8_000)
        await session.add_items(long_turns(40))
        inner = WindowModel(32_000)
        model = guarded(inner, session)
        asked = [*long_turns(40), {"role": "user", "content": "and now?"}]

        async def ask():
            await model.get_response("", asked, None, [], None, [], None)

        await ask()
        made = len(summaries)
        for number in range(5):
            asked += [
                {"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": f"c{number}", "output": "word " * 20},
            ]
            await ask()
            assert inner.inputs[-1][0] == inner.inputs[0][0]
            assert inner.inputs[-1][-2:] == asked[-2:]
        assert len(summaries) == made
        async with turnlog.open(url) as t:
            [row] = (await t.sessions.list()).items
            await t.sessions.undo(row.id)
        await ask()
        assert len(summaries) > made
        session.close()

    run(main())


def test_a_guarded_model_goes_on_after_a_refusal_that_no_estimate_foresaw():
    async def main():
        session = TurnlogSession("ann", "memory:", summarise=summarise, window=1_000_000)
        inner = WindowModel(6_000)
        asked = [*long_turns(20), {"role": "user", "content": "and now?"}]
        assert await guarded(inner, session).get_response("", asked, None, [], None, [], None) == "answer"
        assert len(inner.inputs) > 1
        assert inner.inputs[-1][-1] == asked[-1]
        session.close()

    run(main())


def test_what_the_provider_keeps_is_passed_on_as_it_is():
    class Kept(WindowModel):
        def _check(self, items):
            self.inputs.append(items)
            raise ValueError("maximum context length")

    async def main():
        inner = Kept(10)
        session = TurnlogSession("ann", "memory:")
        with pytest.raises(Exception, match="maximum context length"):
            await guarded(inner, session).get_response(
                "", "x" * 100, None, [], None, [], None, previous_response_id="r"
            )
        assert inner.inputs == ["x" * 100]

    run(main())


PAIRED = st.lists(ITEM, max_size=12)


@settings(max_examples=25)
@given(PAIRED, st.integers(400, 4_000))
def test_whatever_fit_gives_is_accepted_by_the_framework(items, window):
    items = json.loads(json.dumps([item for item in items if isinstance(item, dict)]))
    items = [*items, {"role": "user", "content": "now"}]
    try:
        found = fit(items, "responses", Limits(window=window))
    except turnlog.ContextOverflow:
        return
    assert drop_orphan_function_calls(found) == found


def test_fit_shortens_results_and_keeps_the_rest_word_for_word():
    items = [*TURN[:3], {**TURN[3], "output": "line\n" * 20_000}, TURN[4], {"role": "user", "content": "thanks"}]
    found = fit(items, "responses", Limits(window=16_000))
    assert [item for item in found if item.get("type") != "function_call_output"] == [
        item for item in items if item.get("type") != "function_call_output"
    ]
    [cut] = [item for item in found if item.get("type") == "function_call_output"]
    assert "shortened" in cut["output"]
    assert len(cut["output"]) < 20_000


def test_fit_folds_into_a_digest_and_keeps_instructions_and_the_newest():
    rules = {"role": "system", "content": "Always answer in verse."}
    items = [rules, *long_turns(60), {"role": "user", "content": "thanks"}]
    found = fit(items, "responses", Limits(window=8_000))
    assert found[0] == rules
    assert found[1]["content"].startswith("Summary of the earlier part")
    assert found[-1] == items[-1]
    assert len(found) < len(items)


def test_a_pop_is_not_overtaken_again_and_again(monkeypatch, tmp_path):
    """As it was by another process that added without a pause: it need not read anything before."""
    from turnlog.adapters import openai_items

    newest_of = openai_items.newest_of
    overtakers = []

    async def work():
        async with turnlog.open(f"sqlite:{tmp_path}/a.db") as t:
            fast, slow = TurnlogSession("ann", store=t), TurnlogSession("ann", store=t)
            await fast.add_items([{"role": "user", "content": "first"}])
            assert len(await slow.get_items()) == 1

            async def overtaken(*args):
                found = await newest_of(*args)
                new = [{"role": "user", "content": f"fast {len(overtakers)}"}]
                overtakers.append(asyncio.ensure_future(fast.add_items(new)))
                await asyncio.wait(overtakers[-1:], timeout=0.3)
                return found

            with monkeypatch.context() as slowed:
                slowed.setattr(openai_items, "newest_of", overtaken)
                popped = await slow.pop_item()
                slowed.setattr(openai_items, "newest_of", newest_of)
                await asyncio.gather(*overtakers)
            return popped["content"], [one["content"] for one in await slow.get_items()]

    assert asyncio.run(work()) == ("fast 0", ["first", "fast 1"])

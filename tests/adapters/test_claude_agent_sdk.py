"""Claude Agent SDK on a Turnlog store. Its own contracts run with `make adapters`, where the package is installed."""

import asyncio
import subprocess
import sys

import pytest

import turnlog
from turnlog.core.entries import Assistant, Foreign, User
from turnlog.errors import TurnlogError, UsageError

pytest.importorskip("claude_agent_sdk", reason="needs claude-agent-sdk, 350 MB: run `make adapters`")

from turnlog.adapters.claude_agent_sdk import TurnlogSessionStore, WrittenTranscript, _entry, _line, _place

KEY = {"project_key": "-home-ann", "session_id": "5e3a1f0e-0000-4000-8000-000000000001"}
LINES = [
    {
        "type": "user",
        "uuid": "1",
        "timestamp": "2026-01-01T00:00:00Z",
        "message": {"role": "user", "content": "What is it?"},
    },
    {
        "type": "assistant",
        "uuid": "2",
        "message": {
            "role": "assistant",
            "model": "m",
            "usage": {"input_tokens": 3, "output_tokens": 4},
            "content": [
                {"type": "thinking", "thinking": "h", "signature": "s"},
                {"type": "tool_use", "id": "t1", "name": "Read", "input": {}},
            ],
        },
    },
    {
        "type": "user",
        "uuid": "3",
        "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}]},
    },
    {"type": "user", "uuid": "4", "message": {"role": "user", "content": [{"type": "unheard_of", "data": [1, 2]}]}},
    {"type": "user", "uuid": "5", "isMeta": True, "message": {"role": "user", "content": "caveat"}},
    {"type": "system", "subtype": "compact_boundary", "uuid": "6"},
    {"type": "custom-title", "customTitle": "A title"},
]


def test_a_version_without_summaries_stores_all_and_a_later_one_summarises_all(monkeypatch, tmp_path):
    sdk = pytest.importorskip("claude_agent_sdk")
    if not hasattr(sdk, "fold_session_summary"):
        pytest.skip("this version makes no summaries")

    async def work():
        url = f"sqlite:{tmp_path}/a.db"
        with monkeypatch.context() as old:
            old.delattr(sdk, "fold_session_summary")
            store = TurnlogSessionStore(url)
            await store.append(KEY, LINES[:2])
            assert await store.list_session_summaries(KEY["project_key"]) == []
            assert len(await store.list_sessions(KEY["project_key"])) == 1
        await TurnlogSessionStore(url).append(KEY, LINES[2:])
        [found] = await TurnlogSessionStore(url).list_session_summaries(KEY["project_key"])
        assert found["data"] == sdk.fold_session_summary(None, KEY, LINES)["data"]
        assert await store.load(KEY) == LINES

    run(work())


def run(work):
    return asyncio.run(work)


def test_lines_of_people_and_models_are_messages_and_every_line_comes_back_equal():
    entries = [_entry(line) for line in LINES]
    assert [type(entry) for entry in entries] == [User, Assistant, User, User, Foreign, Foreign, Foreign]
    assert [_line(entry) for entry in entries] == LINES
    assert "content" not in entries[0].raw["message"]  # it is stored once


@pytest.mark.parametrize("scheme", ["sqlite", "jsonl"])
def test_a_session_is_resumed_by_another_process(scheme, tmp_path):
    url = f"{scheme}:{tmp_path}/store"
    run(TurnlogSessionStore(url).append(KEY, LINES))
    code = (
        "import asyncio, json, sys\nfrom turnlog.adapters.claude_agent_sdk import TurnlogSessionStore\n"
        "store, key, lines = TurnlogSessionStore(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])\n"
        "assert asyncio.run(store.load(key)) == lines\n"
        "asyncio.run(store.append(key, lines[:3]))\n"  # the same again: nothing
        "asyncio.run(store.append(key, [{'type': 'user', 'uuid': 'new'}]))\n"
    )
    import json

    subprocess.run([sys.executable, "-c", code, url, json.dumps(KEY), json.dumps(LINES)], check=True)
    store = TurnlogSessionStore(url)
    assert run(store.load(KEY)) == [*LINES, {"type": "user", "uuid": "new"}]
    store.close()


def test_a_uuid_that_another_process_has_stored_meanwhile_is_not_stored_again(tmp_path):
    url = f"sqlite:{tmp_path}/a.db"

    async def main():
        one = TurnlogSessionStore(url)
        await one.append(KEY, LINES[:2])
        async with turnlog.open(url) as t:
            other = TurnlogSessionStore(store=t)  # knows nothing of what the first one remembers
            await other.append(KEY, LINES[1:4])
        await one.append(KEY, LINES[2:6])
        assert await one.load(KEY) == LINES[:6]
        [summary] = await one.list_session_summaries(KEY["project_key"])
        assert summary["data"]["first_prompt"] == "What is it?"
        [listed] = await one.list_sessions(KEY["project_key"])
        assert summary["mtime"] >= listed["mtime"]
        one.close()

    run(main())


def test_a_transcript_has_a_title_and_is_found(tmp_path):
    async def main():
        url = f"sqlite:{tmp_path}/a.db"
        store = TurnlogSessionStore(url)
        await store.append(KEY, LINES)
        store.close()
        async with turnlog.open(url) as t:
            [row] = (await t.sessions.list()).items
            assert row.title == "What is it?"
            assert row.key.startswith("agent:main:claude_agent_sdk:-home-ann:direct:")

    run(main())


def test_what_cannot_be_a_key_or_json_is_refused():
    store = TurnlogSessionStore("memory:")
    for bad in ({"project_key": "", "session_id": "a"}, {"project_key": "p", "session_id": ""}, {**KEY, "subpath": ""}):
        with pytest.raises(UsageError):
            run(store.append(bad, LINES))
    with pytest.raises(TypeError) as caught:
        run(store.append(KEY, [LINES[0], {"type": "x", "n": float("nan")}]))
    assert isinstance(caught.value, TurnlogError)
    assert run(store.load(KEY)) is None


def test_the_packaged_contracts_hold(tmp_path):
    from claude_agent_sdk.testing import run_session_store_conformance

    numbers = iter(range(100))
    run(run_session_store_conformance(lambda: TurnlogSessionStore(f"sqlite:{tmp_path}/{next(numbers)}.db")))


def test_lines_after_one_that_was_erased_follow_the_one_before_it(tmp_path):
    def line(name, parent):
        return {
            "type": "user",
            "uuid": name,
            "parentUuid": parent,
            "message": {"role": "user", "content": f"is {name}"},
        }

    async def work():
        url = f"sqlite:{tmp_path}/a.db"
        store = TurnlogSessionStore(url)
        await store.append(KEY, [line("a", None), line("b", "a"), line("x", "a"), line("y", "of another transcript")])
        await store.append(KEY, [line("c", "b"), line("d", "b"), line("e", "d")])
        await store.aclose()
        async with turnlog.open(url) as t:
            [row] = (await t.sessions.list()).items
            gone = [one.seq for one in await t.store.read(row.id) if isinstance(one, User) and one.content == "is b"]
            await t.store.erase(row.id, gone, redact=True)
        store = TurnlogSessionStore(url)
        found = await store.load(KEY)
        await store.aclose()
        return [(one["uuid"], one["parentUuid"]) for one in found]

    beside = [("x", "a"), ("y", "of another transcript")]
    assert asyncio.run(work()) == [("a", None), *beside, ("c", "a"), ("d", "a"), ("e", "d")]


@pytest.mark.parametrize("lines", [LINES[:1], LINES[5:6]], ids=["message", "no message"])
def test_a_writer_that_must_read_first_is_not_overtaken_again_and_again(monkeypatch, tmp_path, lines):
    """As it was by another process that wrote without a pause: it knows the transcript, and need not read."""
    learn = WrittenTranscript._learn
    overtakers = []

    async def work():
        async with turnlog.open(f"sqlite:{tmp_path}/a.db") as t:
            fast, slow = TurnlogSessionStore(store=t), TurnlogSessionStore(store=t)
            await fast.append(KEY, [{"type": "system", "uuid": "first"}])

            async def overtaken(self, *args):
                await learn(self, *args)
                new = [{**lines[0], "uuid": f"fast {len(overtakers)}"}]
                overtakers.append(asyncio.ensure_future(fast.append(KEY, new)))
                await asyncio.wait(overtakers[-1:], timeout=0.3)

            with monkeypatch.context() as slowed:
                slowed.setattr(WrittenTranscript, "_learn", overtaken)
                await slow.append(KEY, [{**lines[0], "uuid": "slow"}])
                slowed.setattr(WrittenTranscript, "_learn", learn)
                await asyncio.gather(*overtakers)
            return [line["uuid"] for line in await slow.load(KEY)]

    assert run(work()) == ["first", "slow", "fast 0"]


@pytest.mark.parametrize("store", ["sqlite:{}/a.db", "jsonl:{}/store"])
def test_a_transcript_that_two_processes_begin_at_once_takes_the_lines_of_both(tmp_path, store):
    async def main():
        first, second = TurnlogSessionStore(store.format(tmp_path)), TurnlogSessionStore(store.format(tmp_path))
        await first._holder.call(first._transcript(_place(KEY)).log.open)  # its first append finds the session empty
        await second.append(KEY, LINES[:1])
        await first.append(KEY, LINES[:2])
        assert await second.load(KEY) == LINES[:2]
        await first.aclose()
        await second.aclose()

    asyncio.run(main())


def test_lines_whose_long_ids_differ_at_the_end_are_both_stored_once():
    async def main():
        store = TurnlogSessionStore("memory:")
        lines = [{"type": "system", "uuid": "x" * 600 + end} for end in ("1", "2", "\ud800")]
        await store.append(KEY, lines)
        await store.append(KEY, lines)
        assert await store.load(KEY) == lines
        await store.aclose()

    asyncio.run(main())

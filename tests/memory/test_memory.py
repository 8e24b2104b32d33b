"""Memory mode and recall: what is saved, who gets it back, and that no session is written."""

import pytest

import turnlog
from turnlog import NotFound, UsageError
from turnlog.core import keys
from turnlog.memory import HEADING, as_context, open_memory, owner_of
from turnlog.testing import FixedClock, ScriptedProvider

from ..stores.postgres import Urls
from ..turns.talk import ask, log, run, say

ANN = "agent:main:telegram:direct:ann"
BOB = "agent:main:telegram:direct:bob"
PLACES = {"file": "{}/memory.db", "postgresql": Urls(), "postgresql-16": Urls(version=16)}


@pytest.fixture(params=PLACES)
def place(request, tmp_path):
    return PLACES[request.param].format(tmp_path)


async def filled(memory, *texts, agent="main", owner="cli:direct:user"):
    return [await memory.save(agent, owner, text) for text in texts]


def test_recall_finds_the_best_matches_first_in_english_and_chinese(place):
    async def main():
        async with open_memory(place) as memory:
            await filled(
                memory,
                "User: the deploy branch is release-7\nAssistant: noted",
                "User: 我们在上海的办公室有十个人\nAssistant: 好的",
                "User: lunch is at noon\nAssistant: fine",
                "User: the branch office closes at five\nAssistant: ok",
            )
            found = await memory.recall("main", "cli:direct:user", "which branch do we deploy?")
            assert "release-7" in found[0].text
            found = await memory.recall("main", "cli:direct:user", "上海办公室有几个人？")
            assert "十个人" in found[0].text
            assert await memory.recall("main", "cli:direct:user", "?!…") == []
            assert await memory.recall("main", "cli:direct:user", 'NEAR("a" OR * ^') is not None

    run(main())


def test_five_at_most_are_recalled_and_each_is_cut(place):
    async def main():
        async with open_memory(place) as memory:
            await filled(memory, *(f"apple number {n} " + "x" * 5_000 for n in range(9)))
            found = await memory.recall("main", "cli:direct:user", "apple")
            assert len(found) == 5
            shown = as_context(found)
            assert shown.startswith(HEADING)
            assert len(shown) < 5 * 2_100
            assert as_context([]) == ""

    run(main())


def test_nothing_of_one_principal_or_agent_is_recalled_for_another(place):
    async def main():
        async with open_memory(place) as memory:
            await memory.save("main", owner_of(keys.parse(ANN)), "canary 12345")
            for agent, key in (("main", BOB), ("main", "agent:main:telegram:group:ann"), ("ops", ANN)):
                assert await memory.recall(agent, owner_of(keys.parse(key)), "canary 12345") == []
            thread = keys.parse("agent:main:telegram:group:g:thread:7")
            assert owner_of(thread) == "telegram:group:g"

    run(main())


def test_memos_are_listed_searched_and_forgotten(place, tmp_path):
    async def main():
        clock = FixedClock()
        async with open_memory(place, clock=clock) as memory:
            ids = await filled(memory, "one red apple", "two green apples", "three pears")
            assert [memo.id for memo in await memory.list()] == ids[::-1]
            assert [memo.id for memo in await memory.list(limit=1, before=ids[2])] == [ids[1]]
            assert [memo.text for memo in await memory.search("apple* green")] == ["two green apples"]
            assert await memory.search("apple", owner="nobody") == []
            await memory.forget(ids[0])
            assert await memory.recall("main", "cli:direct:user", "red") == []
            with pytest.raises(NotFound):
                await memory.forget(ids[0])
            with pytest.raises(UsageError):
                await memory.list(limit=1_000)
            assert (await memory.list())[0].ts == clock.now_ms
        async with open_memory(place) as memory:
            assert len(await memory.list()) == 2
        for path in tmp_path.glob("memory.db*"):
            assert path.stat().st_mode & 0o777 == 0o600

    run(main())


def test_memory_mode_writes_no_session_recalls_and_saves_the_exchange(tmp_path):
    async def main():
        url = f"jsonl:{tmp_path}/files"
        provider = ScriptedProvider([{"text": "noted"}, {"text": "release-7"}, {"text": "I do not know"}])
        async with turnlog.open(url, home=tmp_path, provider=provider, session_enabled=False) as t:
            assert await ask(t, "the deploy branch is release-7", ANN) == "noted"
        assert [path.name for path in (tmp_path / "files").iterdir() if path.is_dir()] == []
        async with turnlog.open(url, home=tmp_path, provider=provider, session_enabled=False) as t:
            await ask(t, "which branch do we deploy?", ANN)
            await ask(t, "which branch do we deploy?", BOB)
        assert HEADING not in provider.prompts[0].system
        assert HEADING in provider.prompts[1].system
        assert "release-7" in provider.prompts[1].system
        assert len(provider.prompts[1].messages) == 1, "nothing of earlier turns but what was recalled"
        assert "release-7" not in str(provider.prompts[2])
        async with open_memory(str(tmp_path / "files" / "memory.db")) as memory:
            texts = [memo.text for memo in await memory.list()]
            assert "User: the deploy branch is release-7\nAssistant: noted" in texts
            assert len(texts) == 3

    run(main())


def test_a_failed_turn_saves_nothing_in_memory_mode(tmp_path):
    async def main():
        provider = ScriptedProvider([{"error": {"status": 401, "message": "no"}}])
        async with turnlog.open(
            f"sqlite:{tmp_path}/s.db", home=tmp_path, provider=provider, session_enabled=False
        ) as t:
            assert (await say(t, "hello", ANN))[-1].code == "provider"
        async with open_memory(str(tmp_path / "memory.db")) as memory:
            assert await memory.list() == []
        assert not (tmp_path / "s.db").exists()

    run(main())


def test_with_sessions_recall_is_off_unless_asked_for_and_saves_nothing(tmp_path):
    async def main():
        provider = ScriptedProvider()
        async with turnlog.open(f"sqlite:{tmp_path}/s.db", home=tmp_path, provider=provider) as t:
            memory = await t.memory()
            await memory.save("main", owner_of(keys.parse(ANN)), "User: my cat is called Tom\nAssistant: nice")
            await ask(t, "what is my cat called?", ANN)
            await ask(t, "what is my cat called?", ANN, recall=True)
            assert "Tom" not in str(provider.prompts[0])
            assert "Tom" in provider.prompts[1].system
            assert "Tom" not in str(await log(t, ANN))
            assert len(await memory.list()) == 1

    run(main())


def test_the_recall_tool_is_there_only_for_an_agent_that_was_given_it(tmp_path):
    async def main():
        (tmp_path / "config.toml").write_text('[agents.scout]\ntools = ["recall", "search_history"]\n')
        script = [{"tool_calls": [{"id": "r", "name": "recall", "input": {"query": "cat"}}]}, {"text": "Tom"}]
        provider = ScriptedProvider(script)
        async with turnlog.open(f"sqlite:{tmp_path}/s.db", home=tmp_path, provider=provider) as t:
            scout = "agent:scout:telegram:direct:ann"
            await (await t.memory()).save("scout", owner_of(keys.parse(scout)), "the cat is called Tom")
            events = await say(t, "cat?", scout)
            assert any("Tom" in getattr(event, "text", "") for event in events if type(event).__name__ == "ToolDone")
            await ask(t, "hi", ANN)
        assert [tool.name for tool in provider.prompts[0].tools] == ["recall", "search_history"]
        assert [tool.name for tool in provider.prompts[-1].tools] == ["read_history", "search_history"]

    run(main())


def test_a_process_that_changes_its_directory_goes_on_with_its_relative_database(tmp_path, monkeypatch):
    async def main():
        monkeypatch.chdir(tmp_path)
        async with open_memory("memory.db") as memory:
            await filled(memory, "one")
            monkeypatch.chdir("/")
            await filled(memory, "two")
            assert len(await memory.recall("main", "cli:direct:user", "one two")) == 2

    run(main())

"""A session whose tail is larger than any prompt: its first turn reads the end alone, folds the rest, and answers."""

import asyncio
import threading

import pytest

from turnlog import ProviderError
from turnlog.core import oversized, paging
from turnlog.core.entries import Compaction
from turnlog.core.events import CompactionEnd, CompactionStart, Done
from turnlog.sessions import reading
from turnlog.stores.jsonl import searching, word_file
from turnlog.testing import ScriptedProvider, answered, said
from turnlog.turns import compactor

from .talk import KEY, ask, log, opened, run, say, shown

TURNS = 600


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(oversized, "TAIL_MAX_BYTES", 40_000)
    monkeypatch.setattr(oversized, "LEFT_BYTES", 10_000)


def long_talk(first=0):
    pairs = [(said(f"question {n} " * 10), answered(f"answer {n} " * 10)) for n in range(first, first + TURNS)]
    return [one for pair in pairs for one in pair]


def counting(store):
    """How many entries were read."""
    read, seen = store.read, []

    async def counted(*args, **kwargs):
        found = await read(*args, **kwargs)
        seen.append(len(found))
        return found

    store.read = counted
    return seen


def test_the_first_turn_reads_the_end_of_the_log_and_the_model_sees_the_newest_turns(url):
    async def main():
        async with opened(url) as t:
            await t.append(KEY, *long_talk())
        provider = ScriptedProvider()
        async with opened(url, provider) as t:
            seen = counting(t.store)
            events = await say(t, "and now?")
            assert isinstance(events[-1], Done)
            assert [type(event) for event in events[:2]] == [CompactionStart, CompactionEnd]
            assert sum(seen) < TURNS  # of twice as many entries
            entries = await log(t)
            [fold] = [entry for entry in entries if isinstance(entry, Compaction)]
            assert fold.covers == (3, fold.first_kept - 1)
            assert fold.trigger == "rescue"
            said_then = " ".join(text for _, text in shown(provider.prompts[0]))
            assert f"answer {TURNS - 1} " in said_then
            assert "question 0 " in said_then
            assert all(row.state != "none" for row in await t.sessions.explain(t_id(entries)) if row.type == "user")
            # The next turn, in this process and in another, sees the same and adds to it.
            await ask(t, "and then?")
            assert provider.prompts[1].messages[: len(provider.prompts[0].messages)] == provider.prompts[0].messages
        again = ScriptedProvider()
        async with opened(url, again) as t:
            await ask(t, "third")
            size = len(provider.prompts[1].messages)
            assert again.prompts[0].messages[:size] == provider.prompts[1].messages

    run(main())


def t_id(entries):
    return entries[0].id


def test_undone_it_is_folded_again_because_it_cannot_be_sent(url):
    async def main():
        async with opened(url) as t:
            await t.append(KEY, *long_talk())
            await ask(t, "one")
            await t.sessions.undo(t_id(await log(t)))
        async with opened(url) as t:
            await ask(t, "two")
            assert sum(isinstance(entry, Compaction) for entry in await log(t)) == 2

    run(main())


def test_a_crash_before_the_append_changes_nothing_and_a_turn_that_was_cut_short_is_marked(url):
    async def main():
        async with opened(url) as t:
            await t.append(KEY, *long_talk(), said("cut short"))
        async with opened(url) as t:
            await ask(t, "go on")
            kinds = [entry.__struct_config__.tag for entry in await log(t)][-4:]
            assert kinds == ["failed", "user", "compaction", "assistant"]

    run(main())


def test_compacting_by_hand_folds_and_summarises_in_one_append_and_a_trial_shows_the_same(url):
    async def main():
        async with opened(url) as t:
            await t.append(KEY, *long_talk())
        async with opened(url, ScriptedProvider(summaries=[{"text": "S"}, {"text": "S"}])) as t:
            trial = await t.compact(KEY, dry_run=True)
            assert trial.covers[0] == 3
            assert not any(isinstance(entry, Compaction) for entry in await log(t))
            report = await t.compact(KEY)
            assert (report.applied, report.covers) == (True, trial.covers)
            assert report.tokens_after < report.tokens_before
            folds = [entry for entry in await log(t) if isinstance(entry, Compaction)]
            assert [entry.trigger for entry in folds] == ["rescue", "manual"]
            assert len({entry.ts for entry in folds}) == 1

    run(main())


def test_compacting_a_tail_by_hand_changes_nothing_if_the_summariser_fails(url):
    async def main():
        async with opened(url) as t:
            await t.append(KEY, *long_talk())
            before = await log(t)
        async with opened(url, ScriptedProvider(summaries=[{"error": {"status": 401, "message": "no such key"}}])) as t:
            with pytest.raises(ProviderError):
                await t.compact(KEY)
            assert await log(t) == before

    run(main())


def test_what_would_need_too_many_calls_is_compacted_by_hand_with_a_digest_of_its_beginning(url, monkeypatch):
    monkeypatch.setattr(compactor, "CHUNKS_MAX", 3)
    monkeypatch.setattr(oversized, "TAIL_MAX_BYTES", 10**9)

    async def main():
        provider = ScriptedProvider(summaries=[{"text": "S"}] * 6, window=8_000)
        async with opened(url, provider) as t:
            await t.append(KEY, *long_talk())
            report = await t.compact(KEY)
            assert report.summary.startswith("[Of ")
            asked = [str(prompt.messages) for prompt in provider.summary_prompts]
            assert len(asked) == 3
            assert "Digest of" in asked[0]
            assert "question 0 " in asked[0]
            assert f"question {TURNS - 50} " in asked[-1]

    run(main())


def test_a_call_of_ones_own_loop_folds_first(url):
    async def main():
        async with opened(url) as t:
            await t.append(KEY, *long_talk())
        async with opened(url) as t:
            seen = []

            async def model(messages):
                seen.append(messages)
                return "fine"

            await t.call(KEY, model, said("and now?"))
            assert len(seen[0]) < TURNS

    run(main())


def test_closing_does_not_wait_until_a_long_session_is_searchable(tmp_path, monkeypatch):
    steps, begun = [], threading.Event()
    one = word_file._index_some

    def counted(db, file, row):
        steps.append(one(db, file, row))
        begun.set()
        return True  # as if there were always more

    monkeypatch.setattr(word_file, "_index_some", counted)
    monkeypatch.setattr(searching, "INDEX_AFTER_S", 0.0)

    async def main():
        async with opened(f"jsonl:{tmp_path}/files") as t:
            await t.append(KEY, *long_talk())
            assert await asyncio.to_thread(begun.wait, 60)

    run(main())
    assert steps


def test_pages_shrink_with_what_they_hold_and_give_every_entry_once(url, monkeypatch):
    monkeypatch.setattr(paging, "PAGE_BYTES", 3_000)

    async def main():
        async with opened(url) as t:
            await t.append(KEY, *long_talk())
            row = await t.session(KEY)
            forward = [page async for page in reading.pages(t.store, row)]
            back = [page async for page in reading.pages_back(t.store, row, row.last_seq + 1)]
            whole = await log(t)
            assert [entry for page in forward for entry in page] == whole
            assert [entry for page in reversed(back) for entry in page] == whole
            assert max(map(len, [*forward[1:], *back[1:]])) < 30

    asyncio.run(main())


def test_a_tail_of_few_huge_messages_is_read_a_few_at_a_time_and_folded_too(url, monkeypatch):
    monkeypatch.setattr(reading, "LARGE_TAIL_TOKENS", 5_000)
    monkeypatch.setattr(paging, "PAGE_BYTES", 30_000)

    async def main():
        async with opened(url) as t:
            for n in range(20):
                await t.append(KEY, said(f"question {n} " + "long text " * 1_000), answered(f"answer {n}"))
        async with opened(url) as t:
            seen = counting(t.store)
            await ask(t, "and now?")
            assert sum(seen) < 40
            assert max(seen) <= 16
            [fold] = [entry for entry in await log(t) if isinstance(entry, Compaction)]
            assert fold.trigger == "rescue"

    run(main())


def test_the_prompt_of_a_tail_that_is_too_large_is_what_a_turn_sends_of_it(url):
    async def main():
        provider = ScriptedProvider()
        async with opened(url, provider) as t:
            await t.append(KEY, *long_talk())
            now = await t.prompt(KEY)
            assert len(now.messages) < TURNS // 4  # of twice as many
            texts = " ".join(text for _, text in shown(now))
            assert f"answer {TURNS - 1} " in texts
            assert "question 0 " in texts
            before = await log(t)
            assert not any(isinstance(entry, Compaction) for entry in before)  # nothing was stored for it
            await ask(t, "and now?")
            asked, fold = (await log(t))[len(before) : len(before) + 2]
            then = await t.prompt(KEY, at=asked.seq)  # its digest may begin at another page than that of the turn
            assert then.messages[1:] == provider.prompts[0].messages[1:]
            assert (await t.prompt(KEY, at=fold.seq)).messages == provider.prompts[0].messages
            small = await t.prompt(KEY, at=before[10].seq)
            assert next(text for _, text in shown(small)).startswith("question 0 ")
            assert len(small.messages) == len([one for one in before[:11] if one.seq > 2])

    run(main())

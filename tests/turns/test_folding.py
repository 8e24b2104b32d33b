"""Compaction through whole turns: when, what, whether it counts, what is sent afterwards, and how it is taken back."""

import asyncio
import signal
import subprocess
import threading
import time
from itertools import product

import msgspec
import pytest

from turnlog import TurnlogError, UsageError
from turnlog.core import history, tokens
from turnlog.core.entries import MESSAGES, Assistant, Received, ToolResult, User
from turnlog.core.events import CompactionEnd, CompactionStart, Done
from turnlog.core.history import ASSISTANT_SUMMARY, CONTINUES, INJECTS, PAIR_ACKNOWLEDGED, PAIR_SUMMARY
from turnlog.core.summaries import identifiers
from turnlog.errors import SummaryRefused
from turnlog.settings import limits_of, load
from turnlog.testing import ScriptedProvider, answered, check_messages, said

from .. import warm
from ..waiting import GIVES_UP_S
from .scenes import (
    TOO_LONG,
    Model,
    all_text,
    call,
    chat,
    compactions,
    fact,
    of_type,
    refine,
    rows,
    seen,
    size_of,
    stored_bytes,
    texts,
)
from .talk import KEY, ask, kinds, log, opened, run, say, shown, url_at, words

TALKATIVE = {"compaction_triggers": ["messages:6", "overflow", "manual"], "compaction_keep": "messages:2"}


def plain(n):
    """So many plain messages, user first."""
    return [said(f"question {i} " * 5) if i % 2 == 0 else answered(f"answer {i} " * 5) for i in range(n)]


async def explained(t, where=KEY):
    return await t.sessions.explain((await t.session(where)).id)


async def assert_nothing_between(t, where=KEY):
    """Every message is in the tail, pinned, or under a compaction, and those under one come before the tail."""
    states = [row for row in await explained(t, where) if row.type in ("user", "assistant", "tool_result")]
    assert all(row.state in ("tail", "pinned", "compacted") for row in states), states
    folded = [row.seq for row in states if row.state != "tail"]
    assert all(row.by for row in states if row.state == "compacted")
    assert max(folded, default=0) < min((row.seq for row in states if row.state == "tail"), default=1 << 60)


@pytest.mark.parametrize(("n", "after"), [(4, None), (5, None), (6, None), (8, 6), (10, 8), (40, 22)])
def test_d1_claw0_compacts_by_hand_down_to_its_formula_at_a_turn_and_a_restart_shows_the_same(n, after, url):
    async def main():
        provider = ScriptedProvider(summaries=[{"text": "S"}])
        async with opened(url, provider, session_preset="claw0") as t:
            await t.append(KEY, *plain(n))
            if after is None:
                with pytest.raises(UsageError, match="nothing to compact"):
                    await t.compact(KEY)
                assert provider.summary_prompts == []
                assert compactions(await log(t)) == []
                return
            report = await t.compact(KEY)
            assert report.applied
            before = await t.prompt(KEY)
            assert len(before.messages) == after
        async with opened(url, session_preset="claw0") as t:
            assert await t.prompt(KEY) == before

    run(main())


ZEROCLAW_TEXTS = [f"u{n} " + ("word " * 2_400)[:11_997] for n in range(1, 5)]


def test_d3_zeroclaw_summarises_before_the_call_and_its_rows_stand_in_order(url):
    async def main():
        provider = ScriptedProvider([{"text": f"a{n}"} for n in range(1, 5)], summaries=[{"text": "SUMMARY"}])
        order = []
        real_stream, real_summarise = provider.stream, provider.summarise

        def stream(prompt):
            order.append("main")
            return real_stream(prompt)

        async def summarise(prompt):
            order.append("summary")
            return await real_summarise(prompt)

        provider.stream, provider.summarise = stream, summarise
        async with opened(url, provider, session_preset="zeroclaw", agents_main={"system": "SYS"}) as t:
            for text in ZEROCLAW_TEXTS:
                await ask(t, text)
            entries = await log(t)
        assert order == ["main", "main", "main", "summary", "main"]
        last = provider.prompts[-1]
        assert last.system == "SYS"
        assert shown(last) == [
            ("user", CONTINUES),
            ("assistant", f"{ASSISTANT_SUMMARY}\nSUMMARY"),
            ("user", ZEROCLAW_TEXTS[3]),
        ]
        rows_kept = [kind for kind in kinds(entries) if kind in ("user", "assistant", "compaction", "tool_result")]
        assert rows_kept == ["user", "assistant"] * 3 + ["compaction"] + ["user", "assistant"]

    run(main())
    if url.startswith("sqlite"):
        found = rows(url, "SELECT id, role, content FROM session_messages WHERE role IS NOT NULL ORDER BY id")
        assert [role for _, role, _ in found] == ["user", "assistant"] * 3 + ["assistant"] + ["user", "assistant"]
        assert [content for _, role, content in found if role == "assistant"] == [
            *("a1", "a2", "a3"),
            f"{ASSISTANT_SUMMARY}\nSUMMARY",
            "a4",
        ]
        state = dict(rows(url, "SELECT key, value_json FROM session_state"))
        assert msgspec.json.decode(state["compaction_after_message_id"]) == found[5][0]
        assert msgspec.json.decode(state["compaction_summary"]) == "SUMMARY"


def test_d3_the_user_rows_of_zeroclaw_can_be_read_in_the_table(tmp_path):
    url = url_at("sqlite", tmp_path)

    async def main():
        async with opened(url, session_preset="zeroclaw") as t:
            await ask(t, "hello")

    run(main())
    assert rows(url, "SELECT content FROM session_messages WHERE role = 'user'") == [("hello",)]


CHILD_LIVES_S = 300
CHILD = """
import asyncio, os, sys
import turnlog

async def main(url, script, preset, texts, at_done):
    async with turnlog.open(url, home="/nonexistent", model_name="scripted:" + script, session_preset=preset) as t:
        for text in texts:
            async for event in t.send("agent:main:cli:direct:user", text):
                kind = type(event).__name__
                print(kind, flush=True)
                if kind == "Done" and at_done and text == texts[-1]:
                    os._exit(9)

url, script, preset, file, at_done = sys.argv[1:]
asyncio.run(main(url, script, preset, open(file).read().split("|"), at_done == "1"))
"""


def child(url, tmp_path, preset, script, texts_said, *, at_done=False):
    """A process that says these texts; the caller kills it, or it dies at the last `done`."""
    (tmp_path / "script").write_bytes(b"\n".join(map(msgspec.json.encode, script)))
    (tmp_path / "texts").write_text("|".join(texts_said))
    arguments = [url, str(tmp_path / "script"), preset, str(tmp_path / "texts"), str(int(at_done))]
    process = warm.start_code(CHILD, *arguments, stdout=subprocess.PIPE, text=True)
    limit = threading.Timer(CHILD_LIVES_S, process.kill)
    limit.daemon = True
    limit.start()
    return process


def test_d4_a_process_killed_between_summary_and_answer_leaves_both_summary_and_words(url, tmp_path):
    script = [*({"text": f"a{n}"} for n in range(1, 4)), {"text": "late", "delay_ms": 600_000}]
    script.append({"text": "SUMMARY", "for": "summary"})
    with child(url, tmp_path, "zeroclaw", script, ZEROCLAW_TEXTS) as process:
        for line in process.stdout:
            if line.startswith("CompactionEnd"):
                break
        process.send_signal(signal.SIGKILL)
        process.wait(GIVES_UP_S)

    async def main():
        for n, expected in enumerate((f"{ZEROCLAW_TEXTS[3]}\n\nnew", "newer")):
            provider = ScriptedProvider([{"text": f"after {n}"}])
            async with opened(url, provider, session_preset="zeroclaw") as t:
                assert await ask(t, ("new", "newer")[n]) == f"after {n}"
            sent = shown(provider.prompts[-1])
            assert sent[:2] == [("user", CONTINUES), ("assistant", f"{ASSISTANT_SUMMARY}\nSUMMARY")]
            assert sent[-1] == ("user", expected)
            assert str(sent).count("u4 ") == 1
            assert provider.summary_prompts == []

    run(main())


def test_d6_a_second_compaction_is_given_the_first_summary_and_facts_of_both_survive(url):
    async def main():
        provider = Model()
        async with opened(url, provider, session_preset="claw0") as t:
            await chat(t, 5, size=200)
            await t.compact(KEY)
            await chat(t, 5, first=6, size=200)
            await t.compact(KEY)
            first, second = compactions(await log(t))
            assert first.summary in all_text(provider.summary_prompts[1])
            assert second.covers[0] == first.first_kept
            await ask(t, "what do you know?")
            await assert_nothing_between(t)
        sent = all_text(provider.prompts[-1])
        assert all(f"FACT-{n}" in sent for n in range(1, 11))

    run(main())


def test_d7_sessions_compacts_once_when_the_limit_of_messages_is_passed(url):
    async def main():
        provider = ScriptedProvider(summaries=[{"text": "SUMMARY"}] * 9)
        async with opened(url, provider, session_preset="sessions") as t:
            for n in range(1, 23):
                await ask(t, f"question {n} " * 5)
                if n <= 20:
                    assert provider.summary_prompts == []
            assert len(provider.summary_prompts) == 1
            [fold] = compactions(await log(t))
            assert "SUMMARY" in provider.prompts[-1].system
            messages = [entry for entry in await log(t) if isinstance(entry, MESSAGES)]
            last = max(entry.seq for entry in messages if entry.seq < fold.first_kept)
        if url.startswith("sqlite"):
            state = dict(rows(url, "SELECT key, value_json FROM session_state"))
            [(row,)] = rows(url, f"SELECT id FROM session_messages WHERE seq = {last}")
            assert msgspec.json.decode(state["compaction_after_message_id"]) == row
            assert msgspec.json.decode(state["compaction_summary"]) == "SUMMARY"

    run(main())


HIVE = {"session_preset": "zyhive"}


def hive_text(n):
    return f"{n:05} " + ("word " * 2_800)[:13_993] + "."


async def assert_d8(t, provider, url):
    """After turn 23: one compaction over turns 1 to 3, and nothing lost. Covers D15 too."""
    entries = await log(t)
    [fold] = compactions(entries)
    assert fold.tokens_before == 80_661
    assert fold.tokens_after < fold.tokens_before
    users = [entry for entry in entries if isinstance(entry, User)]
    assert fold.first_kept == users[3].seq
    assert [entry.content for entry in users[:23]] == [hive_text(n) for n in range(1, 24)]
    row = await t.session(KEY)
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    asked = "\n".join(map(all_text, provider.summary_prompts)) if provider.summary_prompts else ""
    if asked:
        assert [n for n in range(1, 24) if hive_text(n) in asked] == [1, 2, 3]
    return row


def test_d8_d9_d15_zyhive_compacts_after_turn_23_in_one_process(url):
    async def main():
        provider = ScriptedProvider(summaries=[{"text": "THE SUMMARY 00001 00002 00003"}] * 3)
        async with opened(url, provider, **HIVE) as t:
            for n in range(1, 23):
                await ask(t, hive_text(n))
            await t.queue.idle()
            assert provider.summary_prompts == []
            await ask(t, hive_text(23))
            await t.queue.idle()
            assert len(provider.summary_prompts) == 1
            row = await assert_d8(t, provider, url)
            assert row.message_count == 46
            full = await t.sessions.transcript(row.id)
            assert len([e for e in full.entries if isinstance(e, User | Assistant)]) == 46
            assert kinds(full.entries).count("compaction") == 1
            await ask(t, "next")
            await t.queue.idle()
            assert len(provider.summary_prompts) == 1
        last = provider.prompts[-1]
        assert "THE SUMMARY" in last.system
        expected = [text for n in range(4, 24) for text in (hive_text(n), "ok")] + ["next"]
        same = texts(last) == expected
        assert same
        again = ScriptedProvider()
        async with opened(url, again, **HIVE) as t:
            await ask(t, "and more")
        same = again.prompts[0].messages[: len(last.messages)] == last.messages
        assert same
        assert again.prompts[0].system == last.system

    run(main())


def test_d8_d9_zyhive_compacts_the_same_with_an_opening_for_each_turn_and_a_kill_at_done(url, tmp_path):
    async def first_22():
        for n in range(1, 23):
            provider = ScriptedProvider()
            async with opened(url, provider, **HIVE) as t:
                await ask(t, hive_text(n))
            assert provider.summary_prompts == []

    run(first_22())
    with child(url, tmp_path, "zyhive", [{"text": "ok"}], [hive_text(23)], at_done=True) as process:
        assert "Done" in process.stdout.read()
        assert process.wait(GIVES_UP_S) == 9

    async def then():
        provider = ScriptedProvider(summaries=[{"text": "THE SUMMARY 00001 00002 00003"}])
        async with opened(url, provider, **HIVE) as t:
            events = await say(t, "next")
            assert [type(event) for event in events[:2]] == [CompactionStart, CompactionEnd]
            await assert_d8(t, provider, url)
            assert (await t.session(KEY)).message_count == 48
        assert "THE SUMMARY" in provider.prompts[-1].system
        expected = [text for n in range(4, 24) for text in (hive_text(n), "ok")] + ["next"]
        same = texts(provider.prompts[-1]) == expected
        assert same

    run(then())


def echo(prompt):
    record = all_text(prompt).partition("The record:\n")[2].strip()
    return record.strip("`").strip()


FAILINGS = {
    "empty": ([{"text": ""}] * 2, "empty"),
    "whitespace": ([{"text": " \n\t "}] * 2, "empty"),
    "provider error": ([{"error": {"status": 401, "message": "bad key"}}], "bad key"),
    "too long": ([{"text": "blah " * 4_000}] * 2, "no shorter"),
    "without identifiers": ([{"text": "they talked"}] * 2, "identifiers"),
    "timeout": ([{"text": "FACT-1", "delay_ms": 600_000}], "longer than"),
}


@pytest.mark.parametrize("failing", FAILINGS)
def test_d12_a_summary_that_does_not_count_changes_nothing_and_the_turn_goes_on(failing, url):
    replies, why = FAILINGS[failing]

    async def main():
        provider = ScriptedProvider(summaries=replies)
        async with opened(url, provider, **TALKATIVE, compaction_identifiers="require") as t:
            await refine(t, timeout_s=0.1 if failing == "timeout" else GIVES_UP_S)
            await chat(t, 3, size=600)
            before = await t.prompt(KEY)
            events = await say(t, "go on")
            [end] = of_type(events, CompactionEnd)
            assert why in end.error
            assert end.tokens_after == end.tokens_before
            assert isinstance(events[-1], Done)
            assert compactions(await log(t)) == []
            assert len(provider.summary_prompts) == len(replies)
            assert provider.prompts[-1].messages[: len(before.messages)] == before.messages
            provider._summaries = ScriptedProvider(summaries=replies)._summaries
            with pytest.raises(TurnlogError) as raised:
                await t.compact(KEY)
            assert raised.value.hint
            assert compactions(await log(t)) == []

    run(main())


@pytest.mark.parametrize("failing", ["empty", "timeout", "provider error"])
def test_d12_on_overflow_a_failed_summary_leads_to_the_rescue(failing, url):
    replies, why = FAILINGS[failing]

    async def main():
        provider = ScriptedProvider([{"text": "x"}] * 3 + [TOO_LONG, {"text": "rescued"}], summaries=replies)
        async with opened(url, provider) as t:
            await refine(t, timeout_s=0.1 if failing == "timeout" else GIVES_UP_S)
            await chat(t, 3, size=6_000)
            events = await say(t, "go on")
            assert seen(events) == "rescued"
            assert why in of_type(events, CompactionEnd)[0].error
            assert [fold.trigger for fold in compactions(await log(t))] == ["rescue"]
            await t.sessions.undo((await t.session(KEY)).id)
            await ask(t, "again")
        assert "FACT-1 word word" in all_text(provider.prompts[-1])

    run(main())


def test_a_rescue_helps_where_the_window_is_smaller_than_believed(url):
    async def main():
        provider = Model([{"text": "ok"}] * 9, summaries=[])
        async with opened(url, provider) as t:
            await refine(t, timeout_s=0.001)
            await chat(t, 8, size=800)
            provider.room = 1_000

            async def silent(prompt):
                return ""

            await refine(t, summarise=silent)
            events = await say(t, "go on")
            assert isinstance(events[-1], Done), events[-1]
            assert [fold.trigger for fold in compactions(await log(t))] == ["rescue"]

    run(main())


def test_d12_a_summary_that_repeats_the_record_does_not_count(url):
    class Echo(Model):
        async def summarise(self, prompt):
            self.summary_prompts.append(prompt)
            return echo(prompt)

    async def main():
        provider = Echo()
        async with opened(url, provider, **TALKATIVE) as t:
            await chat(t, 3, size=3_000)
            events = await say(t, "go on")
            [end] = of_type(events, CompactionEnd)
            assert end.error
            assert compactions(await log(t)) == []

    run(main())


def test_long_unbroken_texts_are_looked_at_in_no_time():
    took = []
    for _ in range(3):
        began = time.thread_time()
        identifiers("x" * 6_000)
        took.append(time.thread_time() - began)
    assert min(took) < 0.3


def test_identifiers_that_two_summaries_lack_are_listed_after_the_better_one(url):
    async def main():
        provider = ScriptedProvider(summaries=[{"text": "we spoke of AB-1001"}, {"text": "nothing much"}])
        async with opened(url, provider, **TALKATIVE) as t:
            for n in range(4):
                await ask(t, f"AB-100{n} CD-100{n} EF-100{n} " + "word " * 100)
            [fold] = compactions(await log(t))
            assert fold.summary.startswith("we spoke of AB-1001\n\nAlso mentioned: ")
            assert "CD-1001" in fold.summary
            assert fold.tokens_after < fold.tokens_before
        assert len(provider.summary_prompts) == 2
        assert "CD-1001" in all_text(provider.summary_prompts[1]).partition("did not count")[2].partition("\n")[0]

    run(main())


def test_a_summary_that_is_empty_the_second_time_leaves_the_first_one(url):
    async def main():
        provider = ScriptedProvider(summaries=[{"text": "nothing much"}, {"text": ""}])
        async with opened(url, provider, **TALKATIVE) as t:
            await chat(t, 4, size=600)
            [fold] = compactions(await log(t))
            assert fold.summary.startswith("nothing much\n\nAlso mentioned: ")

    run(main())


def test_on_overflow_one_summary_is_enough_and_what_it_lacks_is_added(url):
    async def main():
        provider = ScriptedProvider(
            [{"text": "x"}] * 3 + [TOO_LONG, {"text": "fits"}], summaries=[{"text": "nothing much"}]
        )
        async with opened(url, provider) as t:
            await chat(t, 3, size=6_000)
            assert seen(await say(t, "go on")) == "fits"
            [fold] = compactions(await log(t))
            assert fold.trigger == "overflow"
            assert "FACT-1" in fold.summary
        assert len(provider.summary_prompts) == 1

    run(main())


def test_a_list_never_takes_more_than_the_room_of_a_summary(url):
    async def main():
        provider = ScriptedProvider(summaries=[{"text": "nothing much"}] * 2)
        async with opened(url, provider, **{**TALKATIVE, "model_window": 4_000}) as t:
            for n in range(4):
                await ask(t, " ".join(f"TICKET-{n}{k:04}" for k in range(300)))
            fold = compactions(await log(t))[0]
            assert "TICKET-" in fold.summary
            assert tokens.of_text(fold.summary) <= 4_000 // 5

    run(main())


def test_a_summary_refused_once_is_asked_for_once_more_with_the_reason(url):
    async def main():
        good = "FACT-1 FACT-2 FACT-3"
        provider = ScriptedProvider(summaries=[{"text": "nothing much"}, {"text": good}])
        async with opened(url, provider, **TALKATIVE) as t:
            await chat(t, 4, size=600)
            assert [fold.summary for fold in compactions(await log(t))] == [good]
        assert "identifiers" in all_text(provider.summary_prompts[1])
        assert "did not count" not in all_text(provider.summary_prompts[0])

    run(main())


@pytest.mark.parametrize("inject", INJECTS)
def test_d16_every_placement_is_acceptable_and_stands_where_it_should(inject, url):
    async def main():
        provider = Model()
        async with opened(url, provider, compaction_inject=inject, agents_main={"system": "SYS"}, **TALKATIVE) as t:
            await chat(t, 6, size=600)
            newest = compactions(await log(t))[-1]
        summary, told = newest.summary, history.TOOLS_NOTE.format(last=newest.first_kept - 1)
        last = provider.prompts[-1]
        check_messages(last.messages)
        sent = shown(last)
        assert last.system.startswith("SYS")
        if inject == "system":
            assert summary in last.system
            assert not any(summary in text for _, text in sent)
            return
        assert last.system == "SYS"
        match inject:
            case "assistant":
                assert sent[:2] == [("user", CONTINUES), ("assistant", f"{ASSISTANT_SUMMARY}\n{summary}\n{told}")]
            case "pair":
                assert sent[:2] == [("user", f"{PAIR_SUMMARY}\n{summary}\n{told}"), ("assistant", PAIR_ACKNOWLEDGED)]
            case _:
                assert f"```\n{summary}\n```\n{told}" in sent[0][1]

    run(main())


BOTH = {"tools": ["search_history", "read_history"]}


@pytest.mark.parametrize(
    ("flags", "is_told"),
    [
        ({}, True),
        ({"agents_main": BOTH}, True),
        ({"agents_main": {"tools": ["search_history"]}}, False),
        ({"agents_main": {"tools": ["read_history"]}}, False),
        ({"agents_main": {"tools": []}}, False),
        ({"compaction_history_note": False}, False),
        *(({"session_preset": name}, False) for name in ("zeroclaw", "sessions", "zyhive", "claw0", "claw0-keyed")),
    ],
)
def test_a_line_after_the_summary_names_the_history_tools_only_in_calls_that_have_both(flags, is_told, url):
    async def main():
        provider = Model()
        async with opened(url, provider, **TALKATIVE | flags) as t:
            await chat(t, 6, size=600)
            newest = compactions(await log(t))[-1]
            asked = await t.prompt(KEY)
        assert "show the originals" not in newest.summary + all_text(provider.summary_prompts[-1])
        told = history.TOOLS_NOTE.format(last=newest.first_kept - 1)
        for sent in (provider.prompts[-1], asked):
            assert all_text(sent).count("show the originals") == is_told
            assert (told in all_text(sent)) == is_told

    run(main())


def test_a_digest_made_without_a_model_is_followed_by_the_same_line(url):
    async def main():
        provider = Model(room=4_000, summary_room=10)
        async with opened(url, provider, compaction_triggers=["overflow"]) as t:
            await chat(t, 12, size=2_000)
            newest = compactions(await log(t))[-1]
        assert newest.trigger == "rescue"
        assert history.TOOLS_NOTE.format(last=newest.first_kept - 1) in all_text(provider.prompts[-1])

    run(main())


def test_a_call_of_ones_own_is_told_of_no_tools(url):
    async def main():
        provider = Model()
        shown_to_it = []

        async def own(past):
            shown_to_it.append(past)
            return "fine"

        async with opened(url, provider, **TALKATIVE) as t:
            await chat(t, 6, size=600)
            await t.append(KEY, said("and now?"))
            await t.guard(KEY, own)
            summary = compactions(await log(t))[-1].summary
        assert summary in str(shown_to_it[-1].messages).replace("\\n", "\n")
        assert "show the originals" not in str(shown_to_it)

    run(main())


@pytest.mark.parametrize("inject", INJECTS)
def test_d17_between_compactions_each_request_begins_with_the_one_before(inject, url):
    async def main():
        provider = Model()
        flags = {"compaction_triggers": ["messages:12"], "compaction_keep": "messages:4"}
        async with opened(url, provider, compaction_inject=inject, agents_main={"system": "SYS"}, **flags) as t:
            await chat(t, 20, size=300)
            folds = len(compactions(await log(t)))
        broken = 0
        for before, after in zip(provider.prompts, provider.prompts[1:], strict=False):
            same = after.messages[: len(before.messages)] == before.messages and after.system == before.system
            broken += not same
        assert broken == folds > 1

    run(main())


TRIGGERS = ["tokens:700", "messages:7", "window:6000", "overflow", "manual"]
KEEPS = ["from_last_user", "turns:2", "messages:3", "fraction:0.5", "tokens:300"]
ROOM = 900
LAST = 7


def note(words: int = 60) -> str:
    """Gives some words."""
    return "noted " * words


async def sweep_turns(t, provider, first, last, trigger):
    for n in range(first, last):
        if n % 3 == 0:
            provider._replies = iter(ScriptedProvider([call("note", f"c{n}")])._replies)
        else:
            provider._replies = iter(())
        await ask(t, fact(n, 400))
        if trigger == "manual" and n == 4:
            await t.compact(KEY)
        await t.queue.idle()


WHENS = ("before_turn", "in_loop", "after_turn")


def policies():
    """All of them. The short form has every two of a trigger, a moment and a keep together, once."""
    for (a, trigger), (b, when), (c, keep) in product(enumerate(TRIGGERS), enumerate(WHENS), enumerate(KEEPS)):
        is_short = (a + b + c) % len(WHENS) == 0
        yield pytest.param(trigger, when, keep, marks=() if is_short else pytest.mark.slow)


@pytest.mark.parametrize(("trigger", "when", "keep"), list(policies()))
def test_every_policy_is_valid_covers_everything_and_restarts_into_the_same_request(trigger, when, keep, tmp_path):
    async def one(inject, place, stop):
        place.mkdir()
        here = url_at("sqlite" if (INJECTS.index(inject) + KEEPS.index(keep)) % 2 else "jsonl", place)
        room = ROOM if trigger == "overflow" else None
        flags = {
            "compaction_triggers": [trigger],
            "compaction_when": when,
            "compaction_keep": keep,
            "compaction_inject": inject,
            "model_window": 7_000 if trigger == "window:6000" else 8_000,
            "agents_main": {"system": "SYS"},
            "tools": [note],
        }
        parts = [(1, LAST)] if stop == LAST else [(1, stop), (stop, LAST)]
        for first, last in parts:
            provider = Model(room=room)
            async with opened(here, provider, **flags) as t:
                await sweep_turns(t, provider, first, last, trigger)
                await assert_nothing_between(t)
                entries = await log(t)
        facts = all_text(provider.prompts[-1])
        assert all(f"FACT-{n}" in facts for n in range(1, LAST)), (inject, keep)
        last = provider.prompts[-1]
        return len(compactions(entries)), last.system, last.messages

    async def main():
        for inject in INJECTS:
            warm = await one(inject, tmp_path / f"{inject}-warm", LAST)
            cold = await one(inject, tmp_path / f"{inject}-cold", LAST - 1)
            assert warm == cold, inject
            if trigger != "window:6000":
                assert warm[0] > 0, "a sweep that never folds says nothing"

    run(main())


def test_a_fold_larger_than_the_summarisers_window_reaches_it_whole_in_parts(url):
    async def main():
        provider = Model(summary_room=2_000, window=2_000)
        async with opened(url, provider, model_window=60_000, compaction_keep="turns:1") as t:
            await chat(t, 5, size=600)
            await ask(t, "FACT-6 " + "start " * 1_500 + "FACT-77 " + "middle " * 1_500 + " FACT-78")
            await chat(t, 3, first=7, size=600)
            report = await t.compact(KEY)
        assert len(provider.summary_prompts) > 2
        assert all(size_of(prompt) <= 2_000 for prompt in provider.summary_prompts)
        assert {f"FACT-{n}" for n in (1, 2, 5, 6, 77, 78, 7, 8)} <= set(report.summary.split())
        for before, after in zip(provider.summary_prompts, provider.summary_prompts[1:], strict=False):
            assert "part" in all_text(before)
            assert "The summary so far:" in all_text(after)

    run(main())


def test_a_summariser_that_overflows_is_given_smaller_parts(url):
    async def main():
        provider = Model(summary_room=2_000, window=6_000)
        async with opened(url, provider, compaction_keep="turns:1", model_window=60_000) as t:
            await chat(t, 8, size=2_000)
            report = await t.compact(KEY)
        assert size_of(provider.summary_prompts[0]) > 2_000
        assert {f"FACT-{n}" for n in range(1, 8)} <= set(report.summary.split())

    run(main())


def test_a_summariser_that_can_take_nothing_changes_nothing(url):
    async def main():
        provider = Model(summary_room=10, window=6_000)
        async with opened(url, provider, compaction_keep="turns:1") as t:
            await chat(t, 4, size=800)
            before = stored_bytes(url)
            with pytest.raises(SummaryRefused, match="does not fit") as raised:
                await t.compact(KEY)
            assert raised.value.hint
            assert stored_bytes(url) == before
        assert len(provider.summary_prompts) < 10

    run(main())


def test_a_model_of_its_own_writes_the_summaries(url, tmp_path):
    script = tmp_path / "summaries"
    script.write_text('{"text": "from the other model FACT-1 FACT-2 FACT-3", "for": "summary"}\n')

    async def main():
        provider = Model()
        async with opened(url, provider, model_summary_model=f"scripted:{script}", **TALKATIVE) as t:
            await chat(t, 4, size=600)
            [fold] = compactions(await log(t))
            assert fold.summary.startswith("from the other model")
            assert fold.model == "scripted:summaries"
        assert provider.summary_prompts == []

    run(main())


def test_what_the_user_wants_the_summary_to_keep_reaches_the_summariser_and_the_log(url):
    async def main():
        provider = Model()
        async with opened(url, provider) as t:
            await chat(t, 4, size=600)
            await t.compact(KEY, focus="the colour of the door")
            assert compactions(await log(t))[0].focus == "the colour of the door"
        assert "the colour of the door" in all_text(provider.summary_prompts[0])

    run(main())


def test_pins_stay_word_for_word_through_any_number_of_compactions(url):
    async def main():
        provider = Model()
        pinned = "Never deploy on a Friday.\n```\nnot even `this`\n```"
        flags = {"agents_main": {"system": "SYS"}, **TALKATIVE}
        async with opened(url, provider, **flags) as t:
            await ask(t, pinned)
            row = await t.session(KEY)
            target = next(entry.seq for entry in await log(t) if isinstance(entry, User))
            await t.sessions.pin(row.id, target)
        for n in range(5):
            provider = Model()
            async with opened(url, provider, **flags) as t:
                await chat(t, 4, first=1 + n * 4, size=400)
                states = {row.seq: row.state for row in await explained(t)}
                await assert_nothing_between(t)
            assert states[target] == "pinned"
            assert all(all_text(prompt).count(pinned) == 1 for prompt in provider.prompts)
        async with opened(url, **flags) as t:
            assert len(compactions(await log(t))) >= 4
            await t.sessions.unpin(row.id, target)
            assert pinned not in all_text(await t.prompt(KEY))

    run(main())


def test_pins_over_their_budget_are_refused_with_a_hint(url):
    async def main():
        async with opened(url, Model(window=8_000), model_window=8_000) as t:
            await ask(t, "word " * 900)
            await ask(t, "short")
            row = await t.session(KEY)
            long, short = (entry.seq for entry in await log(t) if isinstance(entry, User))
            with pytest.raises(UsageError, match="budget is 800") as raised:
                await t.sessions.pin(row.id, long)
            assert raised.value.hint
            await t.sessions.pin(row.id, short)

    run(main())


def test_the_budget_of_pins_is_a_tenth_of_the_models_own_window(url):
    async def main():
        async with opened(url, Model(window=8_000)) as t:
            await ask(t, "word " * 900)
            row = await t.session(KEY)
            target = next(entry.seq for entry in await log(t) if isinstance(entry, User))
            with pytest.raises(UsageError):
                await t.sessions.pin(row.id, target)

    run(main())


def test_an_undo_pauses_automatic_triggers_until_a_tenth_of_the_window_has_come_in(url):
    async def main():
        provider = Model(window=8_000)
        async with opened(url, provider, **TALKATIVE) as t:
            await chat(t, 4, size=400)
            assert len(compactions(await log(t))) == 1
            await t.sessions.undo((await t.session(KEY)).id)
            await ask(t, "FACT-5")
            assert "FACT-1 word" in all_text(provider.prompts[-1])
            for n in range(6, 9):
                await ask(t, fact(n, 400))
            assert len(compactions(await log(t))) == 1
        provider = Model(window=8_000)
        async with opened(url, provider, **TALKATIVE) as t:
            await ask(t, "FACT-9")
            assert len(compactions(await log(t))) == 1
            await ask(t, fact(10, 4_000))
            assert len(compactions(await log(t))) == 2
            await assert_nothing_between(t)

    run(main())


def test_compact_undo_compact_again_loses_nothing(url):
    async def main():
        provider = Model()
        async with opened(url, provider) as t:
            await chat(t, 6, size=400)
            before = await t.prompt(KEY)
            first = await t.compact(KEY)
            folded = await t.prompt(KEY)
            assert folded != before
            row = await t.session(KEY)
            await t.sessions.undo(row.id)
            assert await t.prompt(KEY) == before
            second = await t.compact(KEY)
            assert (second.first_kept, second.covers, second.summary) == (first.first_kept, first.covers, first.summary)
            assert await t.prompt(KEY) == folded
            await ask(t, "FACT-7")
            await t.sessions.undo(row.id)
            assert texts(await t.prompt(KEY))[-2:] == ["FACT-7", "ok"]
            with pytest.raises(UsageError):
                await t.sessions.undo(row.id)
        async with opened(url) as t:
            assert texts(await t.prompt(KEY))[: len(before.messages)] == texts(before)

    run(main())


def test_undo_goes_back_one_compaction_at_a_time(url):
    async def main():
        async with opened(url, Model()) as t:
            shots = []
            for n in range(3):
                await chat(t, 3, first=1 + 3 * n, size=400)
                shots.append(await t.prompt(KEY))
                await t.compact(KEY)
            row = await t.session(KEY)
            for n in (2, 1, 0):
                await t.sessions.undo(row.id)
                sent = texts(await t.prompt(KEY))
                assert sent[: len(shots[n].messages)] == texts(shots[n])
            assert sent == [text for n in range(1, 10) for text in (fact(n, 400), "ok")]

    run(main())


def test_expand_shows_what_a_summary_stands_for(url):
    async def main():
        async with opened(url, Model()) as t:
            await chat(t, 4, size=400)
            await t.compact(KEY)
            row = await t.session(KEY)
            folded = await t.sessions.expand(row.id)
            assert words(folded)[0] == ("user", fact(1, 400))
            assert len(folded) == 6

    run(main())


def test_a_report_gives_the_figures_of_the_entry(url):
    async def main():
        async with opened(url, Model()) as t:
            await chat(t, 6, size=400)
            tried = await t.compact(KEY, dry_run=True)
            report = await t.compact(KEY)
            [fold] = compactions(await log(t))
            for name in ("summary", "first_kept", "covers", "tokens_before", "tokens_after"):
                assert getattr(report, name) == getattr(fold, name) == getattr(tried, name)
            assert (tried.applied, report.applied) == (False, True)
            assert report.covers == (3, report.first_kept - 1)
            assert abs(report.tokens_after - size_of_now(await t.prompt(KEY))) <= 20
            assert report.tokens_after < report.tokens_before
            assert (await t.session(KEY)).token_estimate == report.tokens_after

    def size_of_now(prompt):
        return size_of(prompt)

    run(main())


def test_figures_before_and_after_are_of_one_kind_where_a_provider_counts_otherwise_than_we_do(url):
    async def main():
        usage = {"input_tokens": 300, "output_tokens": 5}
        provider = Model([{"text": "ok"}] * 5 + [{"text": "ok", "usage": usage}])
        async with opened(url, provider, compaction_keep="turns:4") as t:
            await chat(t, 6, size=600)
        async with opened(url, Model(), compaction_keep="turns:4") as t:
            report = await t.compact(KEY)
            assert report.tokens_after < report.tokens_before

    run(main())


def test_a_dry_run_changes_no_byte(url):
    async def main():
        async with opened(url, Model()) as t:
            await chat(t, 4, size=400)
        before = stored_bytes(url)
        async with opened(url, Model()) as t:
            report = await t.compact(KEY, dry_run=True)
            assert report.summary
            assert stored_bytes(url) == before
        assert stored_bytes(url) == before

    run(main())


def test_a_dry_run_after_a_crash_changes_no_byte_either(url):
    async def main():
        async with opened(url, Model()) as t:
            await chat(t, 4, size=400)
            await t.append(KEY, said("cut short"))
            before = stored_bytes(url)
            await t.compact(KEY, dry_run=True)
            assert stored_bytes(url) == before

    run(main())


EXPECTED = {
    "default": (("window:16384", "overflow", "manual"), "tokens:20000", "user", "calibrated", 128_000),
    "zeroclaw": (("tokens:12000", "overflow", "manual"), "from_last_user", "assistant", "chars16", 128_000),
    "sessions": (("messages:40", "overflow", "manual"), "messages:24", "system", "chars16", 128_000),
    "zyhive": (("tokens:80000", "overflow", "manual"), "turns:20", "system", "bytes4", 128_000),
    "claw0": (("overflow", "manual"), "fraction:0.5", "pair", "chars4", 180_000),
    "claw0-keyed": (("overflow", "manual"), "fraction:0.5", "pair", "chars4", 180_000),
    "openclaw": (("window:20000", "overflow", "manual"), "tokens:20000", "user", "calibrated", 128_000),
}


@pytest.mark.parametrize("preset", EXPECTED)
def test_each_preset_has_the_policy_of_its_system(preset, tmp_path):
    settings = load(home=tmp_path, env={}, flags={"session.preset": preset})
    limits = limits_of(settings)
    found = tuple(map(str, limits.triggers)), str(limits.keep), limits.inject, limits.estimator, limits.window
    assert found == EXPECTED[preset]
    when = {"zeroclaw": "in_loop", "zyhive": "after_turn"}.get(preset, "before_turn")
    assert settings.compaction.when == when
    if preset.startswith("claw0"):
        assert (settings.model.max_output, limits.summary_limit()) == (8_096, 2_048)
    assert settings.session.reset == ("daily:04:00" if preset == "openclaw" else "off")


@pytest.mark.parametrize("window", [8_000, 200_000])
def test_by_default_a_tail_of_20000_tokens_or_four_tenths_of_the_window_is_kept(window):
    settings = load(home="/nonexistent", env={}, flags={"model.window": window})
    assert limits_of(settings).keep.n == min(20_000, 0.4 * window)


def test_zeroclaw_stores_questions_and_answers_and_keeps_its_tools_to_the_turn(url):
    async def main():
        provider = ScriptedProvider([{"text": "let me see", **call("note")}, {"text": "the answer"}])
        during = []

        async def look() -> str:
            """Looks."""
            during.append(kinds(await log(t)))
            return "looked"

        provider._replies = iter(
            ScriptedProvider([{"text": "let me see", **call("look")}, {"text": "the answer"}])._replies
        )
        async with opened(url, provider, session_preset="zeroclaw", tools=[look]) as t:
            await ask(t, "question")
            assert during == [["session", "selected", "received"]]
            assert kinds(await log(t)) == ["session", "selected", "received", "user", "assistant"]
            answer = (await log(t))[-1]
            assert history.as_text(answer.content) == "the answer"
            assert not any(isinstance(entry, ToolResult) for entry in await log(t))
            await ask(t, "next")
        assert shown(provider.prompts[1])[-1][0] == "user"
        assert "looked" in str(provider.prompts[1].messages)
        assert shown(provider.prompts[-1]) == [("user", "question"), ("assistant", "the answer"), ("user", "next")]

    run(main())


def test_zeroclaw_compacts_within_its_tool_loop_and_the_answer_comes(url):
    async def main():
        provider = ScriptedProvider(
            [{"text": "a1"}, call("note", "c1", words=4_000), call("note", "c2", words=4_000), {"text": "a2"}],
            summaries=[{"text": "SUMMARY"}] * 5,
        )
        async with opened(url, provider, session_preset="zeroclaw", tools=[note]) as t:
            await ask(t, "u1 " * 500)
            assert await ask(t, "u2") == "a2"
            assert kinds([e for e in await log(t) if not isinstance(e, Received)])[2:] == [
                *("user", "assistant", "compaction"),
                *("user", "assistant"),
            ]
            await assert_nothing_between(t)
            await ask(t, "u3")
        assert shown(provider.prompts[-1])[1:] == [
            ("assistant", f"{ASSISTANT_SUMMARY}\nSUMMARY"),
            ("user", "u2"),
            ("assistant", "a2"),
            ("user", "u3"),
        ]

    run(main())


def test_claw0_keyed_writes_the_users_row_with_the_reply(url):
    async def main():
        during = []

        class Watching(ScriptedProvider):
            async def stream(self, prompt):
                during.append(kinds(await log(t)))
                async for piece in super().stream(prompt):
                    yield piece

        async with opened(url, Watching(), session_preset="claw0-keyed") as t:
            await ask(t, "hello")
            assert during == [["session", "selected", "received"]]
            assert kinds(await log(t)) == ["session", "selected", "received", "user", "assistant"]

    run(main())


@pytest.mark.parametrize("preset", ["zeroclaw", "sessions"])
def test_summaries_of_zeroclaw_and_sessions_are_cut_at_6000_characters(preset, url):
    async def main():
        provider = ScriptedProvider(summaries=[{"text": "s" * 7_000}])
        async with opened(url, provider, session_preset=preset, compaction_keep="turns:1") as t:
            for _ in range(3):
                await ask(t, "w " * 9_000)
            folds = compactions(await log(t)) or [await t.compact(KEY)]
            assert len(folds[0].summary) == 6_000
            assert folds[0].summary.endswith("…")

    run(main())


def test_stopping_a_turn_during_its_compaction_changes_nothing_and_keeps_the_words(url):
    async def main():
        begun = asyncio.Event()

        class Slow(Model):
            async def summarise(self, prompt):
                begun.set()
                await asyncio.sleep(600)
                return "late"

        async with opened(url, Slow(), **TALKATIVE) as t:
            await chat(t, 3, size=400)
            turn = asyncio.create_task(say(t, "stop me"))
            await begun.wait()
            assert t.stop((await t.session(KEY)).id)
            assert type((await turn)[-1]).__name__ == "Stopped"
            assert compactions(await log(t)) == []
            assert texts(await t.prompt(KEY))[-1] == "stop me"

    run(main())


def test_a_killed_process_leaves_the_old_or_the_new_state(url, tmp_path):
    """The summary takes a moment; the process is killed at a moment of its own."""
    script = [{"text": "ok"}] * 8 + [{"text": "SUMMARY", "for": "summary", "delay_ms": 40}] * 8

    def died_at(delay_s, folder):
        folder.mkdir()
        here = url_at(url.partition(":")[0], folder)
        with child(here, folder, "zeroclaw", script, ZEROCLAW_TEXTS) as process:
            for line in process.stdout:
                if line.startswith("CompactionStart"):
                    break
            try:
                process.wait(delay_s)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
            process.wait(GIVES_UP_S)
        return here

    async def look(here):
        provider = ScriptedProvider(summaries=[{"text": "SUMMARY"}])
        async with opened(here, provider, session_preset="zeroclaw") as t:
            await assert_nothing_between(t)
            await ask(t, "new")
            assert all(fold.summary == "SUMMARY" for fold in compactions(await log(t)))
            assert len(compactions(await log(t))) == 1
        assert "SUMMARY" in all_text(provider.prompts[-1])
        assert "new" in texts(provider.prompts[-1])[-1]

    for n, delay_s in enumerate((0.01, 0.04, 0.05)):
        run(look(died_at(delay_s, tmp_path / str(n))))


@pytest.mark.parametrize("turns", [3, 5, 12])
@pytest.mark.parametrize("preset", ["default", "sessions", "claw0"])
def test_a_compaction_by_hand_never_makes_a_prompt_larger(tmp_path, turns, preset):
    async def main():
        chatty = {"text": "They greeted each other warmly, and then said a few more words to each other. " * 8}
        provider = ScriptedProvider(summaries=[chatty] * 2)
        url = f"sqlite:{tmp_path}/s.db"
        async with opened(url, provider, session_preset=preset, compaction_keep="turns:1") as t:
            for n in range(turns):
                await ask(t, f"a question about the harbour, number {n}")
            before = (await t.history(KEY)).messages
            try:
                report = await t.compact(KEY)
            except (SummaryRefused, UsageError):
                assert (await t.history(KEY)).messages == before
            else:
                assert len(str((await t.history(KEY)).messages)) < len(str(before))
                assert preset == "claw0" or report.tokens_after < report.tokens_before

    run(main())


def test_a_compaction_by_hand_reports_sizes_that_were_measured_the_same_way(url):
    async def main():
        usage = {"input_tokens": 10, "output_tokens": 1}
        provider = ScriptedProvider([{"text": "answer " * 40, "usage": usage}] * 6, summaries=[{"text": "short"}])
        async with opened(url, provider, compaction_keep="turns:1") as t:
            for n in range(6):
                await ask(t, f"question {n} " * 40)
            report = await t.compact(KEY)
            assert report.tokens_after < report.tokens_before

    run(main())

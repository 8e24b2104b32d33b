"""The guard through whole turns: what is sent again after an overflow, and how, and when it is given up."""

import asyncio
from types import SimpleNamespace

import pytest

import turnlog
from turnlog.cli.chat.slash_context import context
from turnlog.core import tokens
from turnlog.core.entries import Assistant, Failed, Shortened, ToolResult, User, text_of
from turnlog.core.events import CompactionEnd, CompactionStart, Done, ErrorEvent, GuardStage, Snapshot
from turnlog.core.history import OVERSIZED_SHOWN_CHARS, as_text
from turnlog.errors import ContextOverflow
from turnlog.providers import Delta
from turnlog.testing import FixedClock, ScriptedProvider, answered, said
from turnlog.texts import Texts

from .scenes import (
    TOO_LONG,
    Model,
    all_text,
    call,
    chat,
    compactions,
    dump,
    fact,
    of_type,
    seen,
    size_of,
    texts,
)
from .talk import KEY, ask, log, opened, run, say, shown

CLAW0 = {"session_preset": "claw0"}


def result_of(prompt):
    """The text of the only tool result in a prompt."""
    [found] = [
        block
        for message in prompt.messages
        if not isinstance(message["content"], str)
        for block in message["content"]
        if block.get("type") == "tool_result"
    ]
    return as_text(found["content"])


def twelve():
    """Eleven messages, one of them an oversized tool result: with the next user message twelve."""
    use = [{"type": "tool_use", "id": "c1", "name": "dump", "input": {}}]
    talk = [body for n in range(3) for body in (said(f"question {n} " * 20), answered(f"answer {n} " * 20))]
    return [
        *talk,
        said("dump it"),
        Assistant(content=use, model="m", stop="tool_use"),
        ToolResult(tool_use_id="c1", content=dump(300_000)),
        answered("dumped"),
    ]


def distinct(prompts):
    return all(a.messages != b.messages for n, a in enumerate(prompts) for b in prompts[n + 1 :])


def test_c1_an_overflow_is_answered_by_cutting_the_oversized_result_and_nothing_else(url):
    async def main():
        provider = ScriptedProvider([call("dump"), {"text": "read it"}, TOO_LONG, {"text": "fine"}])
        async with opened(url, provider, tools=[dump], **CLAW0) as t:
            await ask(t, "dump it")
            events = await say(t, "go on")
            assert isinstance(events[-1], Done)
            assert of_type(events, GuardStage) == [GuardStage(stage="shortened")]
            stored = [entry for entry in await log(t) if isinstance(entry, ToolResult)]
            assert [len(entry.content) for entry in stored] == [300_000]
            [mark] = [entry for entry in await log(t) if isinstance(entry, Shortened)]
            assert mark.targets == (stored[0].seq,)
        assert len(provider.prompts) == 4
        assert provider.summary_prompts == []
        assert len(result_of(provider.prompts[2])) == 300_000
        cut = result_of(provider.prompts[3])
        assert len(cut) <= 50_000
        marker = next(line for line in cut.splitlines() if "300000" in line)
        assert str(len(cut) - len(marker) - 2) in marker
        assert cut.startswith("line 0 of the dump\n")
        assert cut.endswith(dump(300_000)[-1000:])

    run(main())


def test_c2_after_two_overflows_the_talk_is_compacted_and_a_restart_shows_it_compacted(url):
    async def main():
        provider = ScriptedProvider([TOO_LONG, TOO_LONG, {"text": "at last"}], summaries=[{"text": "THE SUMMARY"}])
        async with opened(url, provider, tools=[dump], **CLAW0) as t:
            await t.append(KEY, *twelve())
            events = await say(t, "twelfth")
            assert isinstance(events[-1], Done)
            assert seen(events) == "at last"
            assert [event.stage for event in of_type(events, GuardStage)] == ["shortened", "compacted"]
            assert len(compactions(await log(t))) == 1
        assert len(provider.prompts) == 3
        assert len(provider.summary_prompts) == 1
        sizes = [len(all_text(prompt)) for prompt in provider.prompts]
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[2] < sizes[1] < sizes[0]
        assert len(provider.prompts[2].messages) < len(provider.prompts[1].messages)
        again = ScriptedProvider()
        async with opened(url, again, tools=[dump], **CLAW0) as t:
            await ask(t, "next")
        before = provider.prompts[2].messages
        same = again.prompts[0].messages[: len(before)] == before
        assert same, "a diff of these would take minutes"
        assert again.summary_prompts == []

    run(main())


def test_c3_when_everything_overflows_four_different_requests_are_made_and_the_words_are_kept(url):
    async def main():
        provider = ScriptedProvider([TOO_LONG] * 4 + [{"text": "recovered"}], summaries=[{"text": "THE SUMMARY"}])
        async with opened(url, provider, tools=[dump], **CLAW0) as t:
            await t.append(KEY, *twelve())
            events = await say(t, "twelfth")
            assert (type(events[-1]), events[-1].code) == (ErrorEvent, "overflow")
            assert "does not fit" in events[-1].error
            assert events[-1].hint
            assert [e.stage for e in of_type(events, GuardStage)] == ["shortened", "compacted", "rescued"]
            assert len(provider.prompts) == 4
            assert distinct(provider.prompts)
            assert len(provider.summary_prompts) == 1
            rescue = compactions(await log(t))[-1]
            assert (rescue.trigger, rescue.model) == ("rescue", None)
            assert rescue.tokens_after < rescue.tokens_before
            assert (await log(t))[-1].code == "overflow"
            assert await ask(t, "thirteenth") == "recovered"
            assert shown(provider.prompts[-1])[-1] == ("user", "twelfth\n\nthirteenth")
            assert "twelfth" in [entry.content for entry in await log(t) if isinstance(entry, User)]

    run(main())


OVERFLOWS = [
    {"status": 400, "message": "This model's maximum context length is 128000 tokens. However, 140000 were used."},
    {"status": 400, "code": "context_length_exceeded", "message": "Please shorten it."},
    {
        "status": 400,
        "message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)",
    },
    {"status": 400, "message": "Please reduce the length of the messages or completion."},
    {"status": 400, "message": "the request exceeds the available context size, try increasing it"},
    {"status": 400, "message": "输入上下文过长"},
    {"status": 413, "message": ""},
    {"status": 400, "message": ""},
]


@pytest.mark.parametrize("error", OVERFLOWS, ids=lambda error: error["message"][:25] or str(error["status"]))
def test_c5_each_providers_words_for_too_large_lead_to_the_next_step(error, url):
    async def main():
        provider = ScriptedProvider([{"error": error}, {"text": "fits"}], summaries=[{"text": "S"}])
        async with opened(url, provider, **CLAW0) as t:
            await t.append(KEY, *(body for n in range(4) for body in (said(f"q{n}"), answered(f"a{n}"))))
            assert await ask(t, "now") == "fits"
            assert [entry.trigger for entry in compactions(await log(t))] == ["overflow"]

    run(main())


@pytest.mark.parametrize(
    "error",
    [
        {"status": 401, "message": "invalid api key: token too long"},
        {"status": 400, "message": "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens"},
        {"status": 403, "message": "You exceeded your current quota"},
    ],
    ids=lambda error: error["message"][:20],
)
def test_what_is_not_overflow_shortens_and_compacts_nothing(error, url):
    async def main():
        provider = ScriptedProvider([{"error": error}])
        async with opened(url, provider, **CLAW0) as t:
            await t.append(KEY, *twelve())
            assert (await say(t, "now"))[-1].code == "provider"
            assert len(provider.prompts) == 1
            assert compactions(await log(t)) == []

    run(main())


def test_c9_ten_thousand_chinese_characters_are_not_counted_as_a_quarter_of_that(url):
    assert tokens.estimate([{"role": "user", "content": "汉" * 10_000}]) >= 6_000

    async def main():
        provider = ScriptedProvider(window=12_000, summaries=[{"text": "摘要"}])
        async with opened(url, provider, compaction_keep="turns:1") as t:
            await ask(t, "汉字" * 2_000)
            await ask(t, "汉字" * 2_000)
            assert provider.summary_prompts == []
            await ask(t, "汉字" * 2_000)
            assert len(compactions(await log(t))) == 1

    run(main())


def test_usage_above_the_window_is_an_overflow_although_an_answer_came(url):
    async def main():
        silent = {"text": "cut off", "usage": {"input_tokens": 9_000, "cache_read_input_tokens": 2_000}}
        provider = Model([silent, {"text": "whole"}], window=10_000)
        async with opened(url, provider) as t:
            await t.append(KEY, *(body for n in range(4) for body in (said(fact(n)), answered(f"a{n}"))))
            events = await say(t, "now")
            assert seen(events) == "whole"
            assert Snapshot(text="") in events
            assert len(compactions(await log(t))) == 1
            assert "cut off" not in str(await log(t))

    run(main())


class Stopping(ScriptedProvider):
    """Its first answers stop for want of room."""

    def __init__(self, times, **options):
        super().__init__(**options)
        self.times = times

    async def stream(self, prompt):
        self.prompts.append(prompt)
        self.times -= 1
        full = self.times >= 0
        text = f"half an answer {len(self.prompts)}" if full else "a whole answer"
        yield Delta(text=text)
        stop = "model_context_window_exceeded" if full else "end_turn"
        yield Assistant(content=[{"type": "text", "text": text}], model="m", stop=stop)


def test_an_answer_that_stops_for_want_of_room_is_asked_for_again_with_less_before_it(url):
    async def main():
        provider = Stopping(1, window=10_000)
        async with opened(url, provider) as t:
            await t.append(KEY, *(body for n in range(4) for body in (said(f"q{n} " * 50), answered(f"a{n} " * 50))))
            events = await say(t, "now")
            assert seen(events) == "a whole answer"
            assert "half" not in str(await log(t))
        assert len(provider.prompts) == 2
        assert len(all_text(provider.prompts[1])) < len(all_text(provider.prompts[0]))

    run(main())


def test_a_model_that_always_reports_too_much_still_gives_its_answer_and_the_client_shows_it(url):
    async def main():
        provider = Stopping(99, window=10_000)
        async with opened(url, provider) as t:
            await t.append(KEY, *(body for n in range(4) for body in (said(f"q{n}"), answered(f"a{n}"))))
            events = await say(t, "now")
            assert isinstance(events[-1], Done)
            stored = text_of((await log(t))[-1].content)
            assert stored.startswith("half an answer")
            assert seen(events) == stored

    run(main())


def test_an_overflow_after_deltas_clears_what_was_shown(url):
    async def main():
        late = {"deltas": ["this will ", "not stand"], **TOO_LONG}
        provider = ScriptedProvider([late, {"deltas": ["this ", "will"]}], summaries=[{"text": "S"}])
        async with opened(url, provider) as t:
            await t.append(KEY, *(body for n in range(4) for body in (said(f"q{n}"), answered(f"a{n}"))))
            events = await say(t, "now")
            assert seen(events) == "this will"
            assert of_type(events, Snapshot) == [Snapshot(text="")]
            assert "not stand" not in str(await log(t))
            await ask(t, "next")
        assert "not stand" not in all_text(provider.prompts[-1])

    run(main())


def test_an_overflow_in_the_middle_of_a_tool_loop_keeps_the_loop_going(url):
    async def main():
        provider = Model([call("dump", size=60_000), {"text": "understood"}], room=9_000, window=10_000)
        async with opened(url, provider, tools=[dump]) as t:
            events = await say(t, "dump it")
            assert isinstance(events[-1], Done), events
            assert seen(events) == "understood"
            [result] = [entry for entry in await log(t) if isinstance(entry, ToolResult)]
            assert len(result.content) == 60_000
        assert "shortened: 60000 characters" in result_of(provider.prompts[-1])

    run(main())


def test_a_shortening_can_be_undone_and_the_whole_result_is_shown_again(url):
    async def main():
        provider = ScriptedProvider([call("dump"), {"text": "read"}, TOO_LONG, {"text": "fine"}])
        async with opened(url, provider, tools=[dump], **CLAW0) as t:
            await ask(t, "dump it")
            await ask(t, "go on")
            [mark] = [entry for entry in await log(t) if isinstance(entry, Shortened)]
            await ask(t, "still cut?")
            assert len(result_of(provider.prompts[-1])) <= 50_000
            await t.sessions.undo((await t.session(KEY)).id, mark.seq)
            await ask(t, "whole?")
            assert len(result_of(provider.prompts[-1])) == 300_000

    run(main())


def test_a_megabyte_of_user_text_is_refused_with_a_hint_and_the_session_lives_on(url):
    async def main():
        text = "START " + "word " * 209_000 + " END"
        provider = Model([{"text": "hi"}, {"text": "I see"}], room=8_000, window=8_000)
        async with opened(url, provider) as t:
            assert await ask(t, "hello") == "hi"
            events = await say(t, text)
            assert (type(events[-1]), events[-1].code) == (ErrorEvent, "overflow")
            assert events[-1].hint
            assert distinct(provider.prompts)
            whole = [entry for entry in await log(t) if isinstance(entry, User) and entry.content == text]
            assert len(whole) == 1
            assert await ask(t, "and now?") == "I see"
        cut = texts(provider.prompts[-1])[-1]
        assert len(cut) < OVERSIZED_SHOWN_CHARS + 100
        assert "START" in cut
        assert "END" in cut
        assert f"{len(text)} characters" in cut
        assert cut.endswith("and now?")
        again = Model(room=8_000, window=8_000)
        async with opened(url, again) as t:
            assert await ask(t, "after a restart") == "ok"

    run(main())


def test_a_session_with_a_megabyte_of_refused_text_can_still_be_compacted(url):
    """What the summariser is given is counted as it is given, not as the turn shows it."""

    async def main():
        provider = Model(room=8_000, summary_room=8_000, window=8_000)
        async with opened(url, provider) as t:
            await chat(t, 2)
            assert (await say(t, "FACT-99 " + "word " * 40_000 + "FACT-98"))[-1].code == "overflow"
            await chat(t, 4, first=3, size=400)
            provider.summary_prompts.clear()
            report = await t.compact(KEY)
            assert report.applied
            assert all(size_of(prompt) <= 8_000 for prompt in provider.summary_prompts)
            assert {"FACT-98", "FACT-99"} <= set(report.summary.split())

    run(main())


def test_a_shortened_result_reaches_the_summariser_in_parts_that_fit_it(url):
    async def main():
        provider = Model(
            [call("dump", size=99_999), {"text": "FACT-1 read"}], room=8_000, summary_room=8_000, window=8_000
        )
        async with opened(url, provider, tools=[dump]) as t:
            await ask(t, "dump it")
            await chat(t, 3, first=2, size=200)
            provider.summary_prompts.clear()
            await t.compact(KEY)
            assert all(size_of(prompt) <= 8_000 for prompt in provider.summary_prompts)
            asked = "\n".join(map(all_text, provider.summary_prompts))
            assert "line 2500 of" in asked

    run(main())


@pytest.mark.parametrize("when", ["before_turn", "in_loop", "after_turn"])
def test_with_a_smaller_window_the_first_call_is_compacted_first_whatever_when_says(when, url):
    async def main():
        async with opened(url, Model(window=100_000), compaction_when=when) as t:
            await chat(t, 8, size=4_000)
        small = Model(room=8_000, window=8_000)
        async with opened(url, small, compaction_when=when) as t:
            events = await say(t, "FACT-9")
            assert isinstance(events[-1], Done), events
            assert len(small.prompts) == 1
            assert len(small.summary_prompts) >= 1
            assert type(events[0]) is CompactionStart
            [fold] = compactions(await log(t))
            assert fold.trigger == "window"
        assert "FACT-1 " in all_text(small.prompts[0]) + " "

    run(main())


@pytest.mark.parametrize("when", ["before_turn", "in_loop", "after_turn"])
def test_on_resume_a_new_message_that_is_over_the_threshold_with_the_rest_compacts_first(when, url):
    async def main():
        async with opened(url, Model(window=8_000), compaction_when=when) as t:
            await chat(t, 4, size=5_600)
        provider = Model(room=6_000, window=8_000)
        async with opened(url, provider, compaction_when=when) as t:
            events = await say(t, fact(5, 8_000))
            assert isinstance(events[-1], Done), events
        assert len(provider.prompts) == 1
        assert len(provider.summary_prompts) == 1

    run(main())


def test_on_overflow_a_summary_that_does_not_shrink_the_prompt_does_not_count(url):
    async def main():
        provider = ScriptedProvider([TOO_LONG, {"text": "fits"}], summaries=[{"text": "many words " * 150}] * 2)
        async with opened(url, provider) as t:
            await t.append(KEY, *(body for n in range(4) for body in (said(f"q{n} " * 20), answered(f"a{n}"))))
            await say(t, "now")
        sizes = [size_of(prompt) for prompt in provider.prompts]
        assert sizes[1] < sizes[0]

    run(main())


def test_no_endless_loop_where_nothing_can_shrink(url):
    async def main():
        provider = Model(window=8_000)
        flags = {"compaction_triggers": ["tokens:10"], "compaction_keep": "messages:2", "compaction_when": "in_loop"}
        async with opened(url, provider, tools=[dump], **flags) as t:
            provider._replies = iter([])
            await ask(t, fact(1, 4_000))
            assert provider.summary_prompts == []
            for n in range(2, 6):
                await ask(t, fact(n, 4_000))
            assert len(provider.summary_prompts) <= 4
            assert len(provider.prompts) == 5

    run(main())


def test_at_most_one_compaction_is_made_for_one_model_call(url):
    async def main():
        provider = ScriptedProvider(
            [{"text": f"FACT-{n}"} for n in range(6)] + [TOO_LONG] * 3 + [{"text": "fits"}],
            summaries=[{"text": "FACT-1 FACT-2 FACT-3 FACT-4 FACT-5 FACT-0"}] * 9,
            window=8_000,
        )
        flags = {"compaction_triggers": ["messages:12", "overflow"], "compaction_keep": "messages:4"}
        async with opened(url, provider, **flags) as t:
            await chat(t, 6, size=300)
            events = await say(t, "now")
            folds = [entry.trigger for entry in compactions(await log(t))]
            assert folds == ["messages", "rescue"]
            assert len(provider.summary_prompts) == 1
            assert len(of_type(events, CompactionEnd)) == 1

    run(main())


def test_another_compaction_in_the_same_turn_needs_a_tenth_of_the_window(url):
    async def main():
        rounds = [call("dump", f"c{n}", size=200) for n in range(10)]
        provider = Model([{"text": "a"}] * 3 + rounds, window=10_000)
        flags = {
            "compaction_triggers": ["messages:6"],
            "compaction_keep": "messages:2",
            "compaction_when": "in_loop",
        }
        async with opened(url, provider, tools=[dump], **flags) as t:
            await chat(t, 3)
            await ask(t, "loop")
            assert len(compactions(await log(t))) == 1
        assert len(provider.summary_prompts) == 1

    run(main())


def test_a_loop_that_grows_is_compacted_again_within_the_turn(url):
    async def main():
        rounds = [call("dump", f"c{n}", size=9_000) for n in range(6)]
        provider = Model([*rounds, {"text": "finished"}], room=9_000, window=10_000)
        flags = {"compaction_keep": "messages:3", "compaction_when": "in_loop"}
        async with opened(url, provider, tools=[dump], **flags) as t:
            events = await say(t, "FACT-1 loop")
            assert isinstance(events[-1], Done), events
            assert len(compactions(await log(t))) >= 2
            assert "FACT-1" in all_text(provider.prompts[-1])

    run(main())


def test_context_counts_towards_the_size_of_its_turn(url):
    async def main():
        provider = Model(window=8_000)
        async with opened(url, provider, compaction_keep="turns:1") as t:
            await chat(t, 3, size=4_000)
            await ask(t, "FACT-4")
            assert provider.summary_prompts == []
            await ask(t, "FACT-5", context="page " * 4_500)
            assert len(provider.summary_prompts) == 1

    run(main())


def test_the_schemas_of_tools_count_towards_the_size(url):
    def verbose(value: str) -> str:
        return value

    verbose.__doc__ = "Explains itself at length. " * 600

    async def main():
        for tools, expected in (([], 0), ([verbose], 1)):
            provider = Model(window=8_000)
            async with opened(url, provider, tools=tools, compaction_keep="turns:1") as t:
                where = f"agent:main:cli:direct:u{expected}"
                await chat(t, 4, size=4_000, where=where)
            assert bool(provider.summary_prompts) == bool(expected)

    run(main())


def test_messages_that_come_during_a_compaction_stay_in_the_tail(url):
    async def main():
        begun, go_on = asyncio.Event(), asyncio.Event()

        class Slow(Model):
            async def summarise(self, prompt):
                begun.set()
                await go_on.wait()
                return await super().summarise(prompt)

        provider = Slow(window=8_000)
        flags = {"compaction_triggers": ["messages:6"], "compaction_keep": "messages:2"}
        async with opened(url, provider, **flags) as t:
            await chat(t, 3, size=400)
            first = asyncio.create_task(say(t, "FACT-4"))
            await begun.wait()
            second = asyncio.create_task(say(t, "FACT-5"))
            while "FACT-5" not in str(await log(t)):  # noqa: ASYNC110 - nobody tells that it is stored
                await asyncio.sleep(0.01)
            go_on.set()
            assert isinstance((await first)[-1], Done)
            assert isinstance((await second)[-1], Done)
            asked = all_text(provider.summary_prompts[0])
            assert "FACT-5" not in asked
            last = [text for text in texts(provider.prompts[-1]) if "FACT-5" in text]
            assert len(last) == 1
            fold = compactions(await log(t))[0]
            late = [e for e in await log(t) if isinstance(e, User) and e.seq > fold.seq]
            assert late
            states = {row.seq: row.state for row in await t.sessions.explain((await t.session(KEY)).id)}
            assert all(states[entry.seq] == "tail" for entry in late)

    run(main())


def test_messages_that_come_during_a_compaction_after_the_turn_are_answered(url):
    async def main():
        begun, go_on = asyncio.Event(), asyncio.Event()

        class Slow(Model):
            async def summarise(self, prompt):
                begun.set()
                await go_on.wait()
                return await super().summarise(prompt)

        provider = Slow(window=8_000)
        flags = {"compaction_triggers": ["messages:5"], "compaction_keep": "turns:1", "compaction_when": "after_turn"}
        async with opened(url, provider, **flags) as t:
            await chat(t, 3, size=400)
            await begun.wait()
            waiting = asyncio.create_task(say(t, "FACT-4"))
            while "FACT-4" not in str(await log(t)):  # noqa: ASYNC110 - nobody tells that it is stored
                await asyncio.sleep(0.01)
            assert not waiting.done()
            go_on.set()
            assert isinstance((await waiting)[-1], Done)
            assert texts(provider.prompts[-1])[-1] == "FACT-4"
            assert "FACT-1" in texts(provider.prompts[-1])[0]
            assert len(compactions(await log(t))) == 1

    run(main())


def test_a_call_of_somebody_elses_loop_is_made_to_fit_the_same_way(url):
    async def main():
        sent = []

        async def own(history):
            sent.append(history.messages)
            if len(sent) < 3:
                raise ContextOverflow
            return "mine"

        async def summarise(prompt):
            return "S"

        async with opened(url, ScriptedProvider(), **CLAW0) as t:
            await t.append(KEY, *twelve(), said("twelfth"))
            reply = await t.guard(KEY, own, summarise=summarise)
            assert text_of(reply.content) == "mine"
            assert [type(entry) for entry in (await log(t))[-3:]] != []
            assert text_of((await log(t))[-1].content) == "mine"
        assert len(sent) == 3
        assert sent[0] != sent[1] != sent[2]

    run(main())


def test_a_call_of_somebody_elses_loop_that_never_fits_raises_and_leaves_a_mark(url):
    async def main():
        async def own(history):
            raise ContextOverflow

        async with opened(url, ScriptedProvider()) as t:
            await t.append(KEY, said("x"))
            with pytest.raises(turnlog.ContextOverflow):
                await t.guard(KEY, own)
            assert isinstance((await log(t))[-1], Failed)

    run(main())


async def context_shown(t):
    """What /context says."""
    lines = []
    chat = SimpleNamespace(t=t, row=await t.session(KEY), words=Texts("terminal"))
    await context(chat, SimpleNamespace(show=lambda line, tone="": lines.append(line)), "")
    return lines


class Narrow(Model):
    """Says only that it is too large, and never how large it may be."""

    base_url = "http://model.example"

    async def stream(self, prompt):
        if size_of(prompt) > self.room:
            self.prompts.append(prompt)
            raise ContextOverflow("too large")
        async for piece in ScriptedProvider.stream(self, prompt):
            yield piece

    async def summarise(self, prompt):
        raise ContextOverflow("too large")


def test_a_window_sixteen_times_smaller_than_believed_is_found_in_one_turn_and_remembered(url):
    async def main():
        clock = FixedClock()
        provider = Narrow(room=100_000, window=64_000)
        async with opened(url, provider, clock=clock) as t:
            await chat(t, 40, size=5_000)
            provider.room = 4_000
            before = len(provider.prompts)
            events = await say(t, "now")
            assert isinstance(events[-1], Done)
            assert [event.stage for event in of_type(events, GuardStage)] == ["rescued"] * (
                len(provider.prompts) - before - 1
            )
            assert len(provider.prompts) - before <= 6
            assert distinct(provider.prompts[before:])
            learnt = await t.limits(KEY)
            assert learnt.believed == 64_000
            assert any("refused larger prompts" in line and "64,000" in line for line in await context_shown(t))
            assert size_of(provider.prompts[-1]) <= learnt.window <= 8_000
        async with opened(url, provider, clock=clock) as t:
            assert (await t.limits(KEY)).window == learnt.window
            other = Narrow(room=4_000, window=64_000)
            other.base_url = "http://elsewhere.example"
        async with opened(url, other, clock=clock) as t:
            assert (await t.limits(KEY)).window == 64_000
        clock.advance(hours=7 * 24 + 1)
        async with opened(url, provider, clock=clock) as t:
            assert (await t.limits(KEY)).window == 64_000

    run(main())


def test_a_larger_success_makes_a_learnt_window_forgotten(url):
    async def main():
        provider = Narrow(room=100_000, window=64_000)
        async with opened(url, provider) as t:
            await chat(t, 40, size=5_000)
            provider.room = 4_000
            await ask(t, "now")
            assert (await t.limits(KEY)).believed
            provider.room = 100_000
            await ask(t, "word " * 20_000)
            assert (await t.limits(KEY)).window == 64_000
        async with opened(url, provider) as t:
            assert (await t.limits(KEY)).window == 64_000

    run(main())

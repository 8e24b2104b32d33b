"""A turn from its words to `done`: what is stored, what is sent, what is told. Scenarios A and E of one process."""

import asyncio
import time

import pytest

from turnlog import ProviderRefused, UsageError
from turnlog.core.entries import Assistant, Failed, ToolResult, User
from turnlog.core.events import (
    Done,
    ErrorEvent,
    GuardStage,
    Stopped,
    TextDelta,
    ToolCall,
    ToolDone,
    UsageReport,
    spoken,
)
from turnlog.core.history import as_text
from turnlog.providers import Delta
from turnlog.settings.presets import PRESETS
from turnlog.testing import ScriptedProvider, check_messages

from .talk import KEY, ask, kinds, log, opened, run, say, shown, words


def calls(*names, **inputs):
    return {"tool_calls": [{"id": f"call-{name}", "name": name, "input": inputs.get(name, {})} for name in names]}


def weather(city: str = "here") -> str:
    """Tells the weather."""
    return f"sun in {city}"


def broken() -> str:
    """Fails."""
    raise RuntimeError("no such luck")


@pytest.mark.parametrize("preset", PRESETS)
def test_after_a_restart_the_model_sees_every_earlier_pair_verbatim(preset, url):
    async def main():
        provider = ScriptedProvider([{"text": f"answer {n}"} for n in range(3)])
        async with opened(url, provider, session_preset=preset) as t:
            for n in range(3):
                assert await ask(t, f"question {n}") == f"answer {n}"
        provider = ScriptedProvider()
        async with opened(url, provider, session_preset=preset) as t:
            await ask(t, "question 3")
        assert shown(provider.prompts[-1]) == [
            pair for n in range(3) for pair in (("user", f"question {n}"), ("assistant", f"answer {n}"))
        ] + [("user", "question 3")]

    run(main())


def test_a_tool_call_and_its_result_survive_a_restart_once_each(url):
    async def main():
        provider = ScriptedProvider([{"text": "a moment", **calls("weather")}, {"text": "it is sunny"}])
        async with opened(url, provider, tools=[weather]) as t:
            events = await say(t, "weather?")
        assert [type(event) for event in events] == [TextDelta, ToolCall, ToolDone, TextDelta, Done]
        assert events[2].text == "sun in here"
        provider = ScriptedProvider()
        async with opened(url, provider, tools=[weather]) as t:
            await ask(t, "thanks")
        first, call, result, answer, last = provider.prompts[-1].messages
        assert (first["content"], last["content"]) == ("weather?", "thanks")
        assert answer["content"] == [{"type": "text", "text": "it is sunny"}]
        assert [block["type"] for block in call["content"]] == ["text", "tool_use"]
        assert [block["tool_use_id"] for block in result["content"]] == ["call-weather"]

    run(main())


def test_two_calls_of_one_message_give_one_message_with_both_results_in_call_order(url):
    async def main():
        provider = ScriptedProvider([calls("broken", "weather"), {"text": "so so"}])
        async with opened(url, provider, tools=[weather, broken]) as t:
            await ask(t, "try both")
        provider = ScriptedProvider()
        async with opened(url, provider, tools=[weather, broken]) as t:
            await ask(t, "next")
        _, call, results, *_ = provider.prompts[-1].messages
        assert [block["id"] for block in call["content"]] == ["call-broken", "call-weather"]
        assert [block["tool_use_id"] for block in results["content"]] == ["call-broken", "call-weather"]
        assert results["content"][0]["is_error"] is True
        assert "no such luck" in as_text(results["content"][0]["content"])

    run(main())


def test_each_step_is_stored_before_the_next_one_begins(url):
    async def main():
        seen = []

        async def look() -> str:
            """Looks at the log from inside."""
            seen.append(kinds(await log(t)))
            return "looked"

        class Watching(ScriptedProvider):
            async def stream(self, prompt):
                seen.append(kinds(await log(t)))
                async for piece in super().stream(prompt):
                    yield piece

        async with opened(url, Watching([calls("look"), {"text": "done"}]), tools=[look]) as t:
            await ask(t, "look")
            before = ["session", "selected", "user"]
            assert seen == [before, [*before, "assistant"], [*before, "assistant", "tool_result"]]
            assert kinds(await log(t)) == [*before, "assistant", "tool_result", "assistant"]

    run(main())


def test_calls_run_one_after_another_unless_their_tool_is_declared_parallel(url):
    from turnlog.tools import tool

    async def main():
        running, most = 0, {"alone": 0, "beside": 0}

        async def work(name):
            nonlocal running
            running += 1
            most[name] = max(most[name], running)
            await asyncio.sleep(0.02)
            running -= 1
            return name

        async def alone() -> str:
            """One at a time."""
            return await work("alone")

        async def beside() -> str:
            """Together."""
            return await work("beside")

        script = [
            {"tool_calls": [{"id": f"a{n}", "name": "alone", "input": {}} for n in range(3)]},
            {"tool_calls": [{"id": f"b{n}", "name": "beside", "input": {}} for n in range(3)]},
        ]
        async with opened(url, ScriptedProvider(script), tools=[alone, tool(beside, parallel=True)]) as t:
            events = await say(t, "go")
        assert most == {"alone": 1, "beside": 3}
        assert [event.tool_call_id for event in events if isinstance(event, ToolDone)] == [
            *("a0", "a1", "a2"),
            *("b0", "b1", "b2"),
        ]

    run(main())


def test_after_25_rounds_comes_one_call_without_tools_whose_text_is_the_answer(url):
    async def main():
        script = [{"tool_calls": [{"id": f"c{n}", "name": "weather", "input": {}}]} for n in range(25)]
        provider = ScriptedProvider([*script, {"text": "enough"}])
        async with opened(url, provider, tools=[weather]) as t:
            assert await ask(t, "loop") == "enough"
        assert len(provider.prompts) == 26
        assert [prompt.may_call for prompt in provider.prompts] == [True] * 25 + [False]

    run(main())


def test_a_model_that_never_stops_calling_fails_with_a_name_for_it_and_the_session_goes_on(url):
    async def main():
        script = [{"tool_calls": [{"id": f"c{n}", "name": "weather", "input": {}}]} for n in range(26)]
        async with opened(url, ScriptedProvider([*script, {"text": "fine"}]), tools=[weather]) as t:
            events = await say(t, "loop")
            assert events[-1].code == "tool_limit"
            assert (await log(t))[-1].code == "tool_limit"
            assert await ask(t, "and now?") == "fine"

    run(main())


def test_a_provider_error_leaves_a_mark_and_its_text_is_merged_with_the_next_message_once(url):
    async def main():
        provider = ScriptedProvider([{"error": {"status": 401, "message": "bad key"}}])
        async with opened(url, provider) as t:
            events = await say(t, "first")
            assert events == [ErrorEvent(error="bad key", code="provider", hint=ProviderRefused.hint)]
            assert isinstance((await log(t))[-1], Failed)
        for n in range(3):
            provider = ScriptedProvider()
            async with opened(url, provider) as t:
                await ask(t, f"new {n}")
            assert shown(provider.prompts[-1])[0] == ("user", "first\n\nnew 0")

    run(main())


def test_transient_errors_are_retried_three_times_before_the_first_delta_only(url, monkeypatch):
    monkeypatch.setattr("turnlog.turns.retry.BACKOFF_S", 0.001)

    async def main():
        busy = {"error": {"status": 529, "message": "overloaded", "retry_after_s": 0.001}}
        provider = ScriptedProvider([busy, busy, busy, {"text": "at last"}, busy, busy, busy, busy])
        async with opened(url, provider) as t:
            events = await say(t, "hello")
            assert events[:3] == [GuardStage(stage="retry")] * 3
            assert isinstance(events[-1], Done)
            assert len(provider.prompts) == 4
            assert (await say(t, "again"))[-1].code == "provider"
            assert len(provider.prompts) == 8
        provider = ScriptedProvider([{"deltas": ["half a "], "error": {"status": 529, "message": "overloaded"}}])
        async with opened(url, provider) as t:
            events = await say(t, "and now")
            assert events[-1].code == "provider"
            assert len(provider.prompts) == 1
            partial = (await log(t))[-2]
            assert (partial.stop, as_text(partial.content)) == ("error", "half a ")
            await ask(t, "go on")
            assert "half a" not in str(provider.prompts[-1].messages)

    run(main())


def test_a_provider_that_asks_for_a_longer_wait_than_anybody_has_is_not_waited_for(url):
    async def main():
        busy = {"error": {"status": 429, "message": "rate limit", "retry_after_s": 3600}}
        async with opened(url, ScriptedProvider([busy])) as t:
            assert (await say(t, "hello"))[-1].code == "provider"

    run(main())


def test_stopping_a_turn_keeps_its_partial_text_in_history(url):
    async def main():
        provider = ScriptedProvider([{"deltas": ["one ", "two ", "three "] * 100, "delay_ms": 20}])
        async with opened(url, provider) as t:
            events = []
            async for event in t.send(KEY, "count"):
                events.append(event)
                if len(events) == 3:
                    assert t.stop((await t.session(KEY)).id)
            assert isinstance(events[-1], Stopped)
            await ask(t, "why did you stop?")
            last = (await log(t))[-3]
            assert (last.stop, as_text(last.content)) == ("interrupted", "one two three ")
            assert shown(provider.prompts[-1])[1] == ("assistant", "one two three ")
            assert not t.stop((await t.session(KEY)).id)

    run(main())


def test_stopping_during_a_tool_closes_its_call_as_interrupted(url):
    async def main():
        started = asyncio.Event()

        async def slow() -> str:
            """Takes for ever."""
            started.set()
            await asyncio.sleep(60)
            return "never"

        provider = ScriptedProvider([calls("slow", "weather")])
        async with opened(url, provider, tools=[slow, weather]) as t:
            turn = asyncio.create_task(say(t, "go"))
            await started.wait()
            t.stop((await t.session(KEY)).id)
            assert isinstance((await turn)[-1], Stopped)
            entries = await log(t)
            results = [entry for entry in entries if isinstance(entry, ToolResult)]
            assert [(r.tool_use_id, r.content, r.is_error) for r in results] == [
                ("call-slow", "interrupted", True),
                ("call-weather", "interrupted", True),
            ]
            assert entries[-1].code == "stopped"
            await ask(t, "and now")
        check_messages(provider.prompts[-1].messages)

    run(main())


def test_one_who_stops_listening_does_not_stop_the_turn(url):
    async def main():
        provider = ScriptedProvider([{"deltas": ["a", "b", "c"], "delay_ms": 10}])
        async with opened(url, provider) as t:
            async for _ in t.send(KEY, "hello"):
                break
            await t.queue.idle()
            assert words(await log(t)) == [("user", "hello"), ("assistant", "abc")]

    run(main())


def test_leaving_turnlog_during_a_turn_keeps_the_partial_text(url):
    async def main():
        provider = ScriptedProvider([{"deltas": ["well, "] * 100, "delay_ms": 20}])
        async with opened(url, provider) as t:
            async for event in t.send(KEY, "hello"):
                if isinstance(event, TextDelta):
                    break
        async with opened(url) as t:
            entries = await log(t)
            assert entries[-1].stop == "interrupted"
            assert as_text(entries[-1].content).startswith("well, ")

    run(main())


def test_deleting_a_session_during_its_turn_ends_the_turn_and_never_revives_the_session(url):
    async def main():
        provider = ScriptedProvider([{"deltas": ["a"] * 100, "delay_ms": 20}])
        async with opened(url, provider) as t:
            row = await t.session(KEY)
            events = []
            async for event in t.send(KEY, "hello"):
                events.append(event)
                if len(events) == 2:
                    await t.sessions.delete(row.id)
            assert isinstance(events[-1], Stopped | ErrorEvent)
            await t.queue.idle()
            assert (await t.sessions.list()).total == 0
            assert (await t.session(KEY)).id != row.id

    run(main())


def test_context_joins_the_system_prompt_of_its_turn_only_and_is_not_stored(url):
    async def main():
        provider = ScriptedProvider()
        async with opened(url, provider) as t:
            await ask(t, "where am I?", context="PAGE=7")
            await ask(t, "and now?")
            assert "PAGE=7" in provider.prompts[0].system
            assert "PAGE=7" not in provider.prompts[1].system
            assert "PAGE=7" not in str(await log(t))

    run(main())


def test_request_n_plus_1_begins_with_request_n_byte_for_byte(url):
    async def main():
        def rounds(n):
            return [{"text": "x", "tool_calls": [{"id": f"c{n}", "name": "weather", "input": {}}]}, {"text": f"y{n}"}]

        provider = ScriptedProvider([{"text": "plain"}, *rounds(1), {"text": "last"}, *rounds(2)])
        async with opened(url, provider, tools=[weather]) as t:
            for n in range(5):
                await ask(t, f"message {n} 你好 \x00 é")
        for before, after in zip(provider.prompts, provider.prompts[1:], strict=False):
            assert after.messages[: len(before.messages)] == before.messages
            assert after.system == before.system
            assert after.tools == before.tools

    run(main())


def test_usage_is_reported_and_the_size_of_the_session_is_anchored_on_it(url):
    async def main():
        usage = {"input_tokens": 900, "cache_read_input_tokens": 100, "output_tokens": 50}
        async with opened(url, ScriptedProvider([{"text": "hi", "usage": usage}])) as t:
            events = await say(t, "hello")
        report = next(event for event in events if isinstance(event, UsageReport))
        assert (report.input_tokens, report.cache_read_input_tokens, report.output_tokens) == (900, 100, 50)
        assert events[-1].token_estimate == 1050

    run(main())


def test_a_group_never_sees_what_was_said_in_private(url):
    from turnlog import Inbound

    async def main():
        provider = ScriptedProvider()
        async with opened(url, provider) as t:
            for account in ("bot1", "bot2"):
                private = Inbound("telegram", account, "private", "alice", None, "alice", text="secret 123")
                group = Inbound("telegram", account, "supergroup", "42", None, "alice", text="what did I say?")
                await say(t, None, private)
                provider.prompts.clear()
                await say(t, None, group)
                assert "123" not in str(provider.prompts)
            assert (await t.sessions.list()).total == 4

    run(main())


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ({"text": ""}, "returned nothing"),
        ({"text": " \n"}, "returned nothing"),
        ({"error": {"status": 404, "message": "no such model"}}, "no such model"),
    ],
)
def test_a_model_that_gives_no_answer_is_a_clear_event_and_nothing_is_lost(reply, says, url):
    async def main():
        provider = ScriptedProvider([reply])
        async with opened(url, provider) as t:
            events = await say(t, "hello")
            assert says in events[-1].error
            assert events[-1].code == "provider"
            assert events[-1].hint
            await ask(t, "again")
        assert shown(provider.prompts[-1])[-1] == ("user", "hello\n\nagain")

    run(main())


def test_a_defect_in_a_provider_ends_the_turn_and_not_the_process(url):
    class Defect(ScriptedProvider):
        async def stream(self, prompt):
            raise ZeroDivisionError("oh")
            yield

    async def main():
        async with opened(url, Defect()) as t:
            events = await say(t, "hello")
            assert (events[-1].code, events[-1].error) == ("internal", "ZeroDivisionError: oh")
            assert (await log(t))[-1].code == "internal"

    run(main())


def test_a_missing_key_is_an_event_and_the_words_are_kept(url, monkeypatch):
    import turnlog

    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)

    async def main():
        async with turnlog.open(url, home="/nonexistent", model_name="anthropic:claude-x") as t:
            events = await say(t, "hello")
            assert isinstance(events[-1], ErrorEvent)
            assert events[-1].hint
            assert isinstance((await log(t))[-2], User)

    run(main())


def test_an_unknown_agent_or_model_is_refused_before_anything_is_stored(url):
    import turnlog

    async def main():
        for model in ("nosuch:model", "scripted:/nonexistent/file"):
            async with turnlog.open(url, home="/nonexistent", model_name=model) as t:
                with pytest.raises(UsageError):
                    await t.accept(KEY, "hello")
                assert (await t.sessions.list()).total == 0
        async with turnlog.open(url, home="/nonexistent", model_name="offline") as t:
            with pytest.raises(UsageError, match="nobody"):
                await t.accept("agent:nobody:cli:direct:user", "hi")
            assert (await t.sessions.list()).total == 0

    run(main())


def test_nothing_to_send_is_refused_before_anything_is_stored(url):
    async def main():
        async with opened(url) as t:
            with pytest.raises(UsageError):
                await t.accept(KEY)

    run(main())


def test_a_warm_session_is_not_read_again_and_what_others_wrote_meanwhile_is(url):
    async def main():
        provider = ScriptedProvider()
        async with opened(url, provider) as t, opened(url) as other:
            await ask(t, "one")
            reads = []
            read, known = t.store.read, (await t.session(KEY)).last_seq

            async def counted(*args, after=0, **kwargs):
                if after < known:  # a look at what others may have written meanwhile reads nothing again
                    reads.append(args)
                return await read(*args, after=after, **kwargs)

            t.store.read = counted
            await ask(t, "two")
            assert reads == []
            await ask(other, "three")
            await ask(t, "four")
            assert shown(provider.prompts[-1])[-3:] == [("user", "three"), ("assistant", "ok"), ("user", "four")]

    run(main())


def test_an_answer_of_blocks_only_keeps_thinking_and_order(url):
    async def main():
        class Thinker(ScriptedProvider):
            async def stream(self, prompt):
                self.prompts.append(prompt)
                yield Assistant(
                    content=[
                        {"type": "thinking", "thinking": "hm", "signature": "s1"},
                        {"type": "text", "text": "yes"},
                    ],
                    model="m",
                    stop="end_turn",
                )

        provider = Thinker()
        async with opened(url, provider) as t:
            await say(t, "?")
            await say(t, "!")
        assert [block["type"] for block in provider.prompts[-1].messages[1]["content"]] == ["thinking", "text"]

    run(main())


def test_a_reply_four_times_as_long_costs_about_four_times_as_much():
    class Streams(ScriptedProvider):
        def __init__(self, pieces):
            super().__init__()
            self.pieces = pieces

        async def stream(self, prompt):
            for _ in range(self.pieces):
                yield Delta(text="some words of a line\n")
            yield Assistant(content="some words of a line\n" * self.pieces, stop="end_turn")

    async def main(pieces):
        async with opened("memory:", Streams(pieces)) as t:
            before = time.process_time()
            told = [event async for event in t.send(KEY, "at length, please")]
            spoken(told)
            return time.process_time() - before

    def cost(pieces):
        return min(asyncio.run(main(pieces)) for _ in range(3))

    assert cost(30_000) < 9 * cost(7_500)  # were it quadratic: 16

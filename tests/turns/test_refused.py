"""Content that the model refuses: left out of what it sees from then on, visibly, and sent again when asked to."""

import pytest

import turnlog
from turnlog.core.entries import Assistant, Failed, Rewind, Shortened, Undo, Unpin, text_of
from turnlog.core.events import Done, ErrorEvent, GuardStage, Snapshot, TextDelta
from turnlog.core.history import LEFT_OUT
from turnlog.errors import Busy, ContentRefused, UsageError
from turnlog.testing import ScriptedProvider, raises, said

from .scenes import all_text, call, of_type, seen
from .talk import KEY, ask, kinds, log, opened, run, say, shown

BAD_PICTURE = {"error": {"status": 400, "code": "invalid_request_error", "message": "Could not process image"}}
FILTERED = {"error": {"status": 400, "code": "content_filter", "message": "The response was filtered"}}
BAD_KEY = {"error": {"status": 401, "message": "invalid x-api-key"}}
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "bm90IGEgcGljdHVyZQ=="}}


def look(what: str) -> str:
    """Looks at something."""
    return f"SEEN-{what}"


async def states(t, where=KEY):
    row = await t.session(where)
    return {found.seq: (found.state, found.by) for found in await t.sessions.explain(row.id)}


def test_a_refused_message_is_left_out_of_every_later_prompt_and_the_session_goes_on(url):
    async def main():
        provider = ScriptedProvider([{"text": "hello"}, BAD_PICTURE, {"text": "fine"}, {"text": "good"}])
        async with opened(url, provider) as t:
            await ask(t, "hi")
            events = await say(t, [{"type": "text", "text": "look at this"}, PICTURE])
            assert isinstance(events[-1], ErrorEvent)
            assert (events[-1].code, bool(events[-1].hint)) == ("refused_content", True)
            assert await ask(t, "never mind") == "fine"
            [user] = [e for e in await log(t) if "look at this" in text_of(getattr(e, "content", ""))]
            [failed] = [e for e in await log(t) if isinstance(e, Failed)]
            assert (await states(t))[user.seq] == ("left_out", failed.seq)
        async with opened(url, provider) as t:
            assert await ask(t, "still there?") == "good"
        assert shown(provider.prompts[2]) == [("user", "hi"), ("assistant", "hello"), ("user", "never mind")]
        assert "look at this" not in all_text(provider.prompts[3])
        assert len(provider.prompts) == 4

    run(main())


def test_a_fork_of_a_session_with_a_refused_message_answers_too(url):
    async def main():
        provider = ScriptedProvider([FILTERED])
        async with opened(url, provider) as t:
            await say(t, "FORBIDDEN words")
            fork = await t.sessions.fork((await t.session(KEY)).id)
            assert await ask(t, "hello", fork.id) == "ok"
        assert shown(provider.prompts[1]) == [("user", "hello")]

    run(main())


@pytest.mark.parametrize("reply", [BAD_KEY, {"error": {"status": 400, "message": "something odd happened"}}])
def test_what_is_not_surely_about_content_stays_and_is_merged_with_the_next_message(url, reply):
    async def main():
        provider = ScriptedProvider([reply])
        async with opened(url, provider) as t:
            events = await say(t, "first")
            assert events[-1].code == "provider"
            await ask(t, "second")
        assert shown(provider.prompts[1]) == [("user", "first\n\nsecond")]

    run(main())


def test_refused_in_a_later_round_words_and_calls_stay_and_the_results_are_noted_as_left_out(url):
    async def main():
        script = [call("look", "c1", what="one"), call("look", "c2", what="two"), FILTERED, {"text": "fine"}]
        provider = ScriptedProvider(script)
        async with opened(url, provider, tools=[look]) as t:
            events = await say(t, "look twice")
            assert events[-1].code == "refused_content"
            assert await ask(t, "go on") == "fine"
            entries = await log(t)
            results = [e.seq for e in entries if kinds([e]) == ["tool_result"]]
            by_seq = await states(t)
            assert [by_seq[seq][0] for seq in results] == ["tail", "left_out"]
        sent = str(provider.prompts[3].messages)
        assert "look twice" in sent
        assert "SEEN-one" in sent
        assert "SEEN-two" not in sent
        assert LEFT_OUT in sent
        assert LEFT_OUT == "result left out: the model refused it"

    run(main())


def test_a_message_that_steered_a_refused_round_is_left_out_with_its_results(url):
    async def main():
        provider = ScriptedProvider([])
        async with opened(url, provider) as t:
            use = [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]
            await t.append(
                KEY, said("begin"), Assistant(content=use), turnlog.ToolResult(tool_use_id="c1", content="R")
            )
            await t.append(KEY, said("FORBIDDEN too"), Failed(code="refused_content"))
            await ask(t, "next")
        assert shown(provider.prompts[0])[-1] == ("user", "result left out: the model refused it\n\nnext")
        assert "FORBIDDEN" not in str(provider.prompts[0].messages)

    run(main())


def test_an_answer_that_a_filter_stopped_is_a_refusal_and_its_piece_is_shown_but_not_sent(url):
    async def main():
        cut = {"deltas": ["well, ", "as for"], "stop": "refusal"}
        provider = ScriptedProvider([cut, {"text": "fine"}])
        async with opened(url, provider) as t:
            events = await say(t, "FORBIDDEN words")
            assert [e.text for e in of_type(events, TextDelta)] == ["well, ", "as for"]
            assert events[-1].code == "refused_content"
            assert await ask(t, "hello") == "fine"
        assert shown(provider.prompts[1]) == [("user", "hello")]

    run(main())


def test_a_summary_is_never_made_of_what_was_refused_and_it_stays_readable(url):
    async def main():
        provider = ScriptedProvider([{"text": "a"}, FILTERED, {"text": "b"}], summaries=[{"text": "They talked."}])
        async with opened(url, provider, compaction_keep="turns:1") as t:
            await ask(t, "first words " * 40)
            await say(t, "FORBIDDEN words")
            await ask(t, "third words " * 40)
            await ask(t, "fourth")
            report = await t.compact(KEY)
            await ask(t, "fifth")
            row = await t.session(KEY)
            [user] = [e for e in await log(t) if getattr(e, "content", None) == "FORBIDDEN words"]
            assert report.covers[0] <= user.seq <= report.covers[1]
            assert (await states(t))[user.seq][0] == "left_out"
            assert [hit.seq for hit in await t.sessions.search("forbidden")] == [user.seq]
            assert user.seq in [entry.seq for entry in await t.sessions.expand(row.id)]
        assert all("FORBIDDEN" not in all_text(prompt) for prompt in provider.summary_prompts)
        assert "FORBIDDEN" not in all_text(provider.prompts[-1])

    run(main())


def test_a_pin_on_what_is_then_refused_is_taken_off_and_cannot_be_put_back(url):
    async def main():
        class Pinning(ScriptedProvider):
            async def stream(self, prompt):
                if not self.prompts:
                    await t.sessions.pin(row.id, row.last_seq + 1)
                async for piece in super().stream(prompt):
                    yield piece

        async with opened(url, Pinning([FILTERED])) as t:
            row = await t.session(KEY)
            await say(t, "FORBIDDEN words")
            assert [e.target for e in await log(t) if isinstance(e, Unpin)] == [row.last_seq + 1]
            assert (await t.session(KEY)).pins == ()
            await raises(UsageError, t.sessions.pin(row.id, row.last_seq + 1))

    run(main())


def plain_past():
    """Two turns with a picture, thinking, a call and its result."""
    thought = {"type": "thinking", "thinking": "SECRET", "signature": "made elsewhere"}
    use = {"type": "tool_use", "id": "c1", "name": "look", "input": {"what": "sea"}}
    return [
        turnlog.User(content=[{"type": "text", "text": "my boat"}, PICTURE]),
        Assistant(content=[thought, {"type": "text", "text": "nice"}, use], stop="tool_use"),
        turnlog.ToolResult(tool_use_id="c1", content=[{"type": "text", "text": "SEEN-sea"}, PICTURE]),
        Assistant(content="a fine boat"),
    ]


def test_a_second_refusal_in_a_row_is_met_with_a_plain_form_of_the_past_that_stays(url):
    async def main():
        provider = ScriptedProvider([BAD_PICTURE, BAD_PICTURE, {"text": "I see"}, {"text": "yes"}])
        async with opened(url, provider) as t:
            await t.append(KEY, *plain_past())
            assert (await say(t, "one"))[-1].code == "refused_content"
            events = await say(t, "two")
            assert isinstance(events[-1], Done)
            assert of_type(events, GuardStage) == [GuardStage(stage="plain")]
            assert await ask(t, "three") == "yes"
            assert [e.plain for e in await log(t) if isinstance(e, Shortened)] == [True]
        refused, again, plain, later = provider.prompts
        assert "image" in str(refused.messages)
        for prompt in (plain, later):
            blocks = [b for m in prompt.messages if isinstance(m["content"], list) for b in m["content"]]
            assert {block["type"] for block in blocks} <= {"text"}
            words = all_text(prompt)
            assert "SECRET" not in words
            for kept in ("my boat", "[image]", "nice", "look", "SEEN-sea", "a fine boat"):
                assert kept in words
        assert "one" not in shown(plain)[-1][1]
        assert later.messages[: len(plain.messages)] == plain.messages
        assert len(provider.prompts) == 4
        assert again.messages != plain.messages

    run(main())


def test_if_the_plain_form_is_refused_too_it_is_taken_back_and_the_hint_says_how_to_rewind(url):
    async def main():
        provider = ScriptedProvider([BAD_PICTURE] * 3 + [{"text": "fine"}])
        async with opened(url, provider) as t:
            await t.append(KEY, *plain_past())
            await say(t, "one")
            events = await say(t, "two")
            assert (events[-1].code, "rewind" in events[-1].hint) == ("refused_content", True)
            assert kinds(await log(t))[-4:] == ["user", "shortened", "undo", "failed"]
            assert await ask(t, "three") == "fine"
        assert len(provider.prompts) == 4
        assert (
            provider.prompts[3].messages[: len(provider.prompts[0].messages) - 1] == provider.prompts[0].messages[:-1]
        )

    run(main())


def test_where_the_plain_form_is_no_different_the_same_request_is_not_made_again(url):
    async def main():
        provider = ScriptedProvider([{"text": "hello"}, FILTERED, FILTERED])
        async with opened(url, provider) as t:
            await ask(t, "hi")
            await say(t, "one")
            events = await say(t, "two")
            assert "rewind" in events[-1].hint
        assert len(provider.prompts) == 3

    run(main())


def test_text_that_was_streamed_before_a_plain_attempt_is_taken_back(url):
    async def main():
        cut = {"deltas": ["well"], "stop": "refusal"}
        provider = ScriptedProvider([BAD_PICTURE, cut, {"text": "I see"}])
        async with opened(url, provider) as t:
            await t.append(KEY, *plain_past())
            await say(t, "one")
            events = await say(t, "two")
            assert Snapshot(text="") in events
            assert seen(events) == "I see"

    run(main())


def test_retry_sends_the_refused_words_again_and_they_are_back_in_history(url):
    async def main():
        provider = ScriptedProvider([{"text": "hello"}, FILTERED, {"text": "now I can"}, {"text": "more"}])
        async with opened(url, provider) as t:
            await ask(t, "hi")
            await say(t, "ODD words")
            events = [event async for event in t.retry(KEY)]
            assert isinstance(events[-1], Done)
            assert seen(events) == "now I can"
            await ask(t, "go on")
            assert kinds(await log(t))[-6:] == ["user", "failed", "rewind", "assistant", "user", "assistant"]
            assert "left_out" not in {state for state, _ in (await states(t)).values()}
        assert shown(provider.prompts[1]) == shown(provider.prompts[2])
        assert shown(provider.prompts[3])[2:] == [("user", "ODD words"), ("assistant", "now I can"), ("user", "go on")]

    run(main())


def test_retry_of_a_later_round_sends_its_results_again_and_runs_no_tool_anew(url):
    async def main():
        runs = []

        def count(what: str) -> str:
            """Counts."""
            runs.append(what)
            return "SEEN"

        provider = ScriptedProvider([call("count", what="x"), {"deltas": ["pa"], "stop": "refusal"}, {"text": "done"}])
        async with opened(url, provider, tools=[count]) as t:
            await say(t, "count")
            events = [event async for event in t.retry(KEY)]
            assert seen(events) == "done"
        assert runs == ["x"]
        assert provider.prompts[1].messages == provider.prompts[2].messages

    run(main())


def test_retry_serves_any_turn_that_failed_and_nothing_else(url):
    async def main():
        provider = ScriptedProvider([BAD_KEY, {"text": "there"}])
        async with opened(url, provider) as t:
            await say(t, "hello")
            assert seen([event async for event in t.retry(KEY)]) == "there"
            await raises(UsageError, anext(t.retry(KEY)))
            await t.sessions.new(KEY)
            await raises(UsageError, anext(t.retry(KEY)))
        assert shown(provider.prompts[1]) == [("user", "hello")]

    run(main())


def test_a_retry_that_is_refused_again_leaves_the_words_out_again(url):
    async def main():
        provider = ScriptedProvider([FILTERED, FILTERED, {"text": "fine"}])
        async with opened(url, provider) as t:
            await say(t, "ODD words")
            events = [event async for event in t.retry(KEY)]
            assert events[-1].code == "refused_content"
            await ask(t, "hello")
        assert shown(provider.prompts[2]) == [("user", "hello")]

    run(main())


def test_retry_while_a_turn_runs_is_busy_and_stores_nothing(url):
    async def main():
        async with opened(url, ScriptedProvider([FILTERED])) as t:
            await say(t, "ODD words")
            row = await t.session(KEY)
            async with t.store.lease(row.id):
                await raises(Busy, anext(t.retry(KEY)))
            assert not [e for e in await log(t) if isinstance(e, Rewind)]
            await t.queue.idle()

    run(main())


@pytest.mark.parametrize("preset", ["zeroclaw", "claw0-keyed"])
def test_presets_that_hold_rows_back_leave_out_and_retry_as_well(tmp_path, preset):
    async def main():
        provider = ScriptedProvider([FILTERED, {"text": "fine"}, FILTERED, {"text": "now"}])
        async with opened(None, provider, home=tmp_path, session_preset=preset) as t:
            await say(t, "FORBIDDEN words")
            assert await ask(t, "hello") == "fine"
            await say(t, "ODD words")
            assert seen([event async for event in t.retry(KEY)]) == "now"
        assert shown(provider.prompts[1]) == [("user", "hello")]
        assert shown(provider.prompts[3])[-1] == ("user", "ODD words")

    run(main())


def test_where_rounds_are_not_stored_a_refused_later_round_does_not_cost_the_words(tmp_path):
    async def main():
        provider = ScriptedProvider([call("look", what="x"), FILTERED, {"text": "fine"}])
        async with opened(None, provider, home=tmp_path, tools=[look], session_preset="zeroclaw") as t:
            await say(t, "please look")
            await ask(t, "and?")
        assert shown(provider.prompts[2]) == [("user", "please look\n\nand?")]

    run(main())


def test_discard_hides_the_failed_turn_and_a_rewind_brings_it_back(url):
    async def main():
        provider = ScriptedProvider([{"text": "hello"}, BAD_KEY, {"text": "fine"}])
        async with opened(url, provider) as t:
            await ask(t, "hi")
            await say(t, "MISTAKEN words")
            row = await t.session(KEY)
            failed_at = row.last_seq
            await t.sessions.discard(row.id)
            await raises(UsageError, t.sessions.discard(row.id))
            await ask(t, "again")
            assert "MISTAKEN" not in all_text(provider.prompts[2])
            await t.sessions.rewind(row.id, failed_at)
            assert "MISTAKEN" in str((await t.history(KEY)).messages)

    run(main())


def test_a_turn_cut_by_a_crash_and_refused_when_begun_again_is_left_out(url):
    async def main():
        provider = ScriptedProvider([FILTERED, {"text": "fine"}])
        async with opened(url, provider) as t:
            await t.append(KEY, said("FORBIDDEN words"))
            await t.resume(rerun=True)
            await t.queue.idle()
            assert [e.code for e in await log(t) if isinstance(e, Failed)] == ["interrupted", "refused_content"]
            await ask(t, "hello")
        assert shown(provider.prompts[1]) == [("user", "hello")]

    run(main())


def test_a_call_of_ones_own_that_is_refused_is_left_out_as_well(url):
    async def main():
        async def call(history):
            if "FORBIDDEN" in str(history.messages):
                raise ContentRefused("not this")
            return "fine"

        async with opened(url) as t:
            await t.append(KEY, said("FORBIDDEN words"))
            await raises(ContentRefused, t.guard(KEY, call))
            await t.append(KEY, said("hello"))
            assert (await t.guard(KEY, call)).content == "fine"

    run(main())


def test_undoing_the_plain_form_brings_the_past_back_as_it_was(url):
    async def main():
        provider = ScriptedProvider([BAD_PICTURE, BAD_PICTURE, {"text": "I see"}])
        async with opened(url, provider) as t:
            await t.append(KEY, *plain_past())
            await say(t, "one")
            await ask(t, "two")
            [mark] = [e for e in await log(t) if isinstance(e, Shortened)]
            await t.sessions.undo((await t.session(KEY)).id, mark.seq)
            assert isinstance((await log(t))[-1], Undo)
            assert (await t.history(KEY)).messages[0]["content"][1] == PICTURE

    run(main())

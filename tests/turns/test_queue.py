"""Messages that come while a turn runs: steering, waiting, interrupting, refusing. Scenarios E1, E4, E6 and E8."""

import asyncio
from contextlib import aclosing

import pytest

from turnlog import Busy, UsageError
from turnlog.core.entries import Assistant, Failed, Received, ToolResult, User, text_of
from turnlog.core.events import TERMINAL, Done, ErrorEvent, Queued, Stopped, TextDelta, ToolDone
from turnlog.errors import StoreUnavailable
from turnlog.settings.presets import PRESETS
from turnlog.testing import ScriptedProvider, check_messages, entry
from turnlog.turns.stream import TurnStream

from ..waiting import GIVES_UP_S
from .gates import Gated, Slow, heard, listening, slow_calls
from .talk import KEY, ask, kinds, log, opened, run, say, shown, words

SKIPPED = "skipped: a new message arrived"


@pytest.mark.parametrize("preset", PRESETS)
def test_a_steering_message_lets_the_running_tool_finish_and_skips_the_others(preset, url):
    async def main():
        slow = Slow()
        provider = ScriptedProvider([slow_calls(5), {"text": "both"}])
        async with opened(url, provider, tools=[slow.tool], session_preset=preset) as t:
            first = await t.accept(KEY, "first", sender="ann")
            async with listening(t, [first]) as [listener]:
                await slow.started.wait()
                async with listening(t, [await t.accept(KEY, "second", sender="bob")]) as [other]:
                    await asyncio.sleep(0)
                    slow.go.set()
                    events, later = await listener, await other
            entries = await log(t)
        assert slow.runs == 1
        results = [event.text for event in events if isinstance(event, ToolDone)]
        assert results == ["run 1"] + [SKIPPED] * 4
        *_, calls, answer = provider.prompts[1].messages
        assert [block["id"] for block in calls["content"]] == [f"c{n}" for n in range(5)]
        assert [block.get("tool_use_id") for block in answer["content"]] == [*(f"c{n}" for n in range(5)), None]
        assert answer["content"][-1]["text"] == "second"
        assert shown(provider.prompts[1])[0] == ("user", "first")
        assert len(provider.prompts) == 2
        check_messages(provider.prompts[1].messages)
        assert isinstance(events[-1], Done)
        assert later == [Queued(position=1), TextDelta(text="both"), events[-1]]
        assert [e.sender for e in entries if isinstance(e, User | Received) and not getattr(e, "from_", ())] == [
            "ann",
            "bob",
        ]

    run(main())


def test_a_steering_message_is_stored_at_once_and_joins_the_turn_by_reference(url):
    async def main():
        slow = Slow()
        async with opened(url, ScriptedProvider([slow_calls(2)]), tools=[slow.tool]) as t:
            first = asyncio.create_task(say(t, "first"))
            await slow.started.wait()
            await t.accept(KEY, "second", message_id="m2", sender="bob")
            stored = (await log(t))[-1]
            assert (type(stored), stored.content, stored.message_id, stored.mode) == (Received, "second", "m2", "steer")
            slow.go.set()
            await first
            entries = await log(t)
            assert kinds(entries[2:]) == [
                *("user", "assistant", "received"),
                *("tool_result", "tool_result", "user", "assistant"),
            ]
            assert entries[-2].from_ == (stored.seq,)
            assert (await t.session(KEY)).received == ()

    run(main())


def test_several_steering_messages_join_the_same_call_in_their_order(url):
    async def main():
        slow = Slow()
        provider = ScriptedProvider([slow_calls(2)])
        async with opened(url, provider, tools=[slow.tool]) as t:
            first = asyncio.create_task(say(t, "first"))
            await slow.started.wait()
            for n in range(3):
                await t.accept(KEY, f"more {n}")
            slow.go.set()
            await first
        assert len(provider.prompts) == 2
        assert shown(provider.prompts[1])[-1][1].endswith("more 0\n\nmore 1\n\nmore 2")

    run(main())


def test_calls_made_before_a_steering_message_was_seen_are_all_skipped(url):
    async def main():
        slow = Slow()
        slow.go.set()
        provider = Gated([slow_calls(2)])
        async with opened(url, provider, tools=[slow.tool]) as t:
            first = asyncio.create_task(say(t, "first"))
            await provider.reached[0].wait()
            await t.accept(KEY, "second")
            provider.go[0].set()
            events = await first
        assert slow.runs == 0
        assert [event.text for event in events if isinstance(event, ToolDone)] == [SKIPPED] * 2

    run(main())


def test_what_the_runner_does_not_steer_by_is_the_next_turn_by_itself(url):
    """A message that comes during the final model call."""

    async def main():
        provider = Gated([{"text": "one"}, {"text": "two"}])
        async with opened(url, provider) as t:
            first = asyncio.create_task(say(t, "first"))
            await provider.reached[0].wait()
            second = await t.accept(KEY, "second")
            async with listening(t, [second]) as [listener]:
                provider.go[0].set()
                await first
                events = await listener
            assert [type(event) for event in events] == [Queued, TextDelta, Done]
            assert [text for kind, text in words(await log(t)) if kind == "assistant"] == ["one", "two"]
        assert shown(provider.prompts[1]) == [("user", "first"), ("assistant", "one"), ("user", "second")]

    run(main())


@pytest.mark.parametrize("preset", ["zeroclaw", "claw0-keyed"])
def test_where_rows_are_written_with_their_reply_only_those_who_wait_are_told_so(url, preset):
    async def main():
        slow = Slow()
        provider = ScriptedProvider([{"text": "one"}, slow_calls(1), {"text": "two"}, {"text": "three"}])
        flags = {"session_preset": preset, "queue_mode": "followup", "model_window": 20_000}
        async with opened(url, provider, tools=[slow.tool], **flags) as t, opened(url, **flags) as other:
            assert Queued not in map(type, await say(t, "nobody is before me"))
            first = asyncio.create_task(say(t, "nor before me"))
            await slow.started.wait()
            behind = asyncio.create_task(say(t, "behind in this process"))
            elsewhere = asyncio.create_task(say(other, "behind in another process"))
            while kinds(await log(t)).count("received") < 4:  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.01)
            slow.go.set()
            assert Queued not in map(type, await first)
            assert (await behind)[0] == Queued(position=1)
            assert (await elsewhere)[0] == Queued(position=1)

    run(main())


@pytest.mark.parametrize("preset", ["zeroclaw", "claw0-keyed", "default"])
def test_the_prompt_at_the_end_of_the_log_is_what_was_sent_while_it_ended_there(url, preset):
    async def main():
        ends = []

        class Noting(ScriptedProvider):
            async def stream(self, prompt):
                ends.append(((await t.session(KEY)).last_seq, prompt))
                async for piece in super().stream(prompt):
                    yield piece

        provider = Noting([{"text": "one"}, {"error": {"status": 401, "message": "no"}}])
        async with opened(url, provider, session_preset=preset) as t:
            for text in ("first", "fails", "third"):
                await say(t, text)
            for end, prompt in ends:
                assert (await t.prompt(KEY, at=end)).messages == prompt.messages
        assert len(ends) == 3

    run(main())


def test_followup_leaves_the_running_turn_alone_and_gives_each_message_a_turn(url):
    async def main():
        slow = Slow()
        provider = ScriptedProvider([slow_calls(2), {"text": "a"}, {"text": "b"}, {"text": "c"}])
        async with opened(url, provider, tools=[slow.tool], queue_mode="followup") as t:
            first = asyncio.create_task(say(t, "first"))
            await slow.started.wait()
            tickets = [await t.accept(KEY, text) for text in ("second", "third")]
            assert [await ticket.waits() for ticket in tickets] == [1, 2]
            slow.go.set()
            await first
            answers = [await heard(t, ticket) for ticket in tickets]
            assert [type(events[-1]) for events in answers] == [Done, Done]
        assert slow.runs == 2
        assert shown(provider.prompts[-1])[-4:] == [
            *(("assistant", "a"), ("user", "second")),
            *(("assistant", "b"), ("user", "third")),
        ]

    run(main())


def test_collect_makes_one_turn_of_all_that_wait(url):
    async def main():
        provider = Gated()
        async with opened(url, provider, queue_mode="collect") as t:
            first = asyncio.create_task(say(t, "first"))
            await provider.reached[0].wait()
            tickets = [await t.accept(KEY, f"more {n}") for n in range(3)]
            async with listening(t, tickets) as listeners:
                provider.go[0].set()
                await first
                ends = [(await listener)[-1] for listener in listeners]
            assert [type(end) for end in ends] == [Done] * 3
            entries = await log(t)
            assert [e.from_ for e in entries if isinstance(e, User) and e.from_] == [(4, 5, 6)]
        assert len(provider.prompts) == 2
        assert shown(provider.prompts[1])[-1] == ("user", "more 0\n\nmore 1\n\nmore 2")

    run(main())


@pytest.mark.parametrize("during", ["model", "tool"])
def test_interrupt_cancels_the_running_turn_and_starts_anew(during, url):
    async def main():
        slow = Slow()
        provider = Gated([{"text": "new"}]) if during == "model" else Gated([slow_calls(2), {"text": "new"}], at=())
        async with opened(url, provider, tools=[slow.tool]) as t:
            first = asyncio.create_task(say(t, "first"))
            await (provider.reached[0] if during == "model" else slow.started).wait()
            events = await say(t, "second", mode="interrupt")
            assert isinstance((await first)[-1], Stopped)
            assert isinstance(events[-1], Done)
            entries = await log(t)
            assert [e.code for e in entries if isinstance(e, Failed)] == ["stopped"]
            results = [e.content for e in entries if isinstance(e, ToolResult)]
            assert results == ([] if during == "model" else ["interrupted"] * 2)
        check_messages(provider.prompts[-1].messages)
        assert shown(provider.prompts[-1])[-1][1].endswith("second")

    run(main())


def test_an_interrupt_from_another_opening_ends_the_turn_before_its_next_tool(url):
    async def main():
        slow = Slow()
        async with opened(url, ScriptedProvider([slow_calls(3)]), tools=[slow.tool]) as t, opened(url) as other:
            first = asyncio.create_task(say(t, "first"))
            await slow.started.wait()
            ticket = await other.accept(KEY, "second", mode="interrupt")
            slow.go.set()
            assert isinstance((await first)[-1], Stopped)
            assert isinstance((await heard(other, ticket))[-1], Done)
            assert slow.runs == 1
            results = [e.content for e in await log(t) if isinstance(e, ToolResult)]
            assert results == ["run 1", "interrupted", "interrupted"]

    run(main())


def test_stopping_a_turn_does_not_stop_what_waits(url):
    async def main():
        provider = Gated([{"text": "never"}])
        async with opened(url, provider) as t:
            first = asyncio.create_task(say(t, "first"))
            await provider.reached[0].wait()
            second = await t.accept(KEY, "second")
            assert t.stop(second.session_id)
            assert isinstance((await first)[-1], Stopped)
            assert isinstance((await heard(t, second))[-1], Done)
            assert not t.stop(second.session_id)
        assert shown(provider.prompts[-1]) == [("user", "first\n\nsecond")]

    run(main())


def test_beyond_the_cap_the_sender_is_refused_and_nothing_is_stored(url):
    async def main():
        provider = Gated()
        async with opened(url, provider) as t:
            first = asyncio.create_task(say(t, "first"))
            await provider.reached[0].wait()
            accepted, refused = [], []
            for n in range(40):
                try:
                    accepted.append(await t.accept(KEY, f"more {n}."))
                except Busy as busy:
                    refused.append(busy)
            assert (len(accepted), len(refused)) == (20, 20)
            assert all("20" in str(busy) and busy.hint for busy in refused)
            async with listening(t, accepted) as listeners:
                provider.go[0].set()
                await first
                assert [type((await listener)[-1]) for listener in listeners] == [Done] * 20
            said = [e.content for e in await log(t) if isinstance(e, Received)]
            assert said == [f"more {n}." for n in range(20)]
            assert await ask(t, "after it") == "ok"

    run(main())


def test_forty_messages_at_once_while_busy_are_taken_or_refused_and_the_cap_holds(url):
    async def main():
        provider = Gated()
        async with opened(url, provider) as t:
            first = asyncio.create_task(say(t, "first"))
            await provider.reached[0].wait()
            sent = [t.accept(KEY, f"more {n}.") for n in range(40)]
            outcomes = await asyncio.gather(*sent, return_exceptions=True)
            tickets = [ticket for ticket in outcomes if not isinstance(ticket, BaseException)]
            assert all(isinstance(outcome, Busy) for outcome in outcomes if isinstance(outcome, BaseException))
            stored = (await t.session(KEY)).received
            provider.go[0].set()
            await first
            await t.queue.idle()
            said = [e.content for e in await log(t) if isinstance(e, Received)]
            assert sorted(said) == sorted(ticket.incoming.content for ticket in tickets)
            assert len(stored) == len(tickets) == 20

    run(main())


def test_a_cap_of_ones_own_holds(url):
    async def main():
        provider = Gated()
        async with opened(url, provider, queue_cap=2) as t:
            first = asyncio.create_task(say(t, "first"))
            await provider.reached[0].wait()
            for n in range(2):
                await t.accept(KEY, f"more {n}")
            with pytest.raises(Busy):
                await t.accept(KEY, "one too many", dedupe_id="d1")
            provider.go[0].set()
            await first
            await t.queue.idle()
            # Refused is not delivered: the platform sends it again, and then it counts.
            assert await ask(t, "one too many", dedupe_id="d1") == "ok"

    run(main())


def test_two_sessions_run_side_by_side_and_one_session_serially(url):
    async def main():
        running, most = 0, 0
        together = asyncio.Event()

        class Counting(ScriptedProvider):
            async def stream(self, prompt):
                nonlocal running, most
                running += 1
                most = max(most, running)
                if most == 2:
                    together.set()
                await (together.wait() if beside else asyncio.sleep(0.05))
                running -= 1
                async with aclosing(super().stream(prompt)) as pieces:
                    async for piece in pieces:
                        yield piece

        async with opened(url, Counting(), queue_mode="followup") as t:
            beside = False
            await asyncio.gather(*(say(t, f"{n}", "agent:main:cli:direct:one") for n in range(3)))
            assert most == 1
            beside = True
            await asyncio.gather(*(say(t, "hi", f"agent:main:cli:direct:p{n}") for n in range(2)))
            assert most == 2

    run(main())


@pytest.mark.parametrize("sessions", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_many_sessions_with_10_turns_each_are_all_valid(url, sessions):
    async def main():
        provider = ScriptedProvider()
        async with opened(url, provider) as t:

            async def talk(n):
                for turn in range(10):
                    await ask(t, f"s{n} t{turn}", f"agent:main:cli:direct:p{n}")

            await asyncio.gather(*(talk(n) for n in range(sessions)))
            for n in range(sessions):
                said = [text for kind, text in words(await log(t, f"agent:main:cli:direct:p{n}")) if kind == "user"]
                assert said == [f"s{n} t{turn}" for turn in range(10)]
        assert len(provider.prompts) == 10 * sessions
        for prompt in provider.prompts:
            [whose] = {text.split()[0] for role, text in shown(prompt) if role == "user"}
            assert whose.startswith("s")

    run(main())


def test_every_listener_gets_every_event_from_its_point_on_once_and_in_order():
    async def main():
        live = TurnStream("s1")
        told = [TextDelta(text=str(n)) for n in range(10_000)] + [Done(session_id="s1", token_estimate=1)]

        async def follow(after, pace):
            got = []
            async for event in live.follow(after):
                got.append(event)
                if pace and len(got) % pace == 0:
                    await asyncio.sleep(0)
            return got

        places = [(0, 0), (0, 1), (0, 7), (1, 3), (9_999, 0), (10_000, 0), (10_001, 0)]
        listeners = [asyncio.create_task(follow(*place)) for place in places]
        for n, event in enumerate(told):
            live.add(event)
            if n % 100 == 0:
                await asyncio.sleep(0)
        late = [await follow(after, 0) for after, _ in places]
        live.add(Stopped())
        assert live.over
        for (after, _), listener, again in zip(places, listeners, late, strict=True):
            assert await listener == again == told[after:]

    run(main())


def test_10000_deltas_of_a_turn_reach_those_who_join_in_the_middle(url):
    async def main():
        pieces = [f"{n} " for n in range(10_000)]
        provider = ScriptedProvider([{"deltas": pieces}])
        async with opened(url, provider) as t:
            row = await t.session(KEY)
            ticket = await t.accept(KEY, "count")
            everything = asyncio.create_task(heard(t, ticket))
            live = t.queue.running(row.id)
            await live.reach(100)
            joined = asyncio.create_task(collect(live, 50))
            whole = await everything
            assert [event.text for event in whole[:-1]] == pieces
            assert isinstance(whole[-1], Done)
            assert await joined == whole[50:]
            assert t.queue.running(row.id) is None

    async def collect(live, after):
        return [event async for event in live.follow(after)]

    run(main())


def test_messages_that_waited_at_a_restart_are_answered_in_order(url):
    async def main():
        provider = Gated()
        async with opened(url, provider) as t:
            await t.accept(KEY, "first")
            await provider.reached[0].wait()
            for n in range(3):
                await t.accept(KEY, f"waiting {n}", mode="followup")
        provider = ScriptedProvider([{"text": f"answer {n}"} for n in range(3)])
        async with opened(url, provider) as t:
            assert len((await t.session(KEY)).received) == 3
            assert await t.resume() == 1
            await t.queue.idle()
            assert (await t.session(KEY)).received == ()
            assert await t.resume() == 0
            answers = [text for kind, text in words(await log(t)) if kind == "assistant"]
        assert answers == ["answer 0", "answer 1", "answer 2"]
        assert shown(provider.prompts[-1]) == [
            *(("user", "first\n\nwaiting 0"), ("assistant", "answer 0")),
            *(("user", "waiting 1"), ("assistant", "answer 1")),
            *(("user", "waiting 2"),),
        ]

    run(main())


def test_a_new_message_after_a_restart_is_answered_after_those_that_waited(url):
    async def main():
        provider = Gated()
        async with opened(url, provider) as t:
            await t.accept(KEY, "first")
            await provider.reached[0].wait()
            await t.accept(KEY, "waiting")
        provider = ScriptedProvider()
        async with opened(url, provider) as t:
            await ask(t, "new")
        assert [shown(prompt)[-1] for prompt in provider.prompts] == [("user", "first\n\nwaiting"), ("user", "new")]

    run(main())


async def cut_short(url, *bodies):
    """A turn that its process did not survive: these entries, and no end."""
    async with opened(url) as t:
        row = await t.session(KEY)
        async with t.store.lease(row.id) as lease:
            for body in bodies:
                await t.store.append(row.id, [body], lease=lease)


CALL = entry(
    type="assistant",
    content=[{"type": "tool_use", "id": "c1", "name": "slow", "input": {}}],
    model="m",
    stop="tool_use",
)


def test_a_turn_cut_short_is_marked_and_its_text_is_left_for_the_next_message(url):
    async def main():
        await cut_short(url, entry(type="user", content="first"))
        provider = ScriptedProvider()
        async with opened(url, provider) as t:
            assert await t.resume() == 1
            await t.queue.idle()
            assert (await log(t))[-1].code == "interrupted"
            assert provider.prompts == []
            await ask(t, "next")
        assert shown(provider.prompts[-1]) == [("user", "first\n\nnext")]

    run(main())


def test_with_rerun_a_turn_cut_short_before_any_tool_is_run_again_exactly_once(url):
    async def main():
        await cut_short(url, entry(type="user", content="first"))
        provider = ScriptedProvider([{"text": "at last"}])
        for _ in range(3):
            async with opened(url, provider) as t:
                await t.resume(rerun=True)
                await t.queue.idle()
                assert words(await log(t)) == [("user", "first"), ("assistant", "at last")]
        assert [shown(prompt) for prompt in provider.prompts] == [[("user", "first")]]

    run(main())


@pytest.mark.parametrize("result", [False, True])
def test_with_rerun_a_turn_cut_short_after_a_tool_had_started_is_not_run_again(result, url):
    async def main():
        done = entry(type="tool_result", tool_use_id="c1", content="x")
        await cut_short(url, entry(type="user", content="first"), CALL, *([done] if result else []))
        provider = ScriptedProvider()
        async with opened(url, provider, tools=[Slow().tool]) as t:
            await t.resume(rerun=True)
            await t.queue.idle()
            assert provider.prompts == []
            assert (await log(t))[-1].code == "interrupted"
            await ask(t, "next")
        check_messages(provider.prompts[-1].messages)

    run(main())


def test_with_rerun_a_turn_that_was_cut_short_again_is_not_run_a_third_time(url):
    async def main():
        await cut_short(url, entry(type="user", content="first"))
        for _ in range(3):
            provider = Gated()
            async with opened(url, provider) as t:
                await t.resume(rerun=True)
                if t.queue.is_busy((await t.session(KEY)).id):
                    await provider.reached[0].wait()
                    t.store.append = lost  # nothing that this opening does from here on reaches the disk
            assert provider.calls <= 1
        assert kinds(await entries_of(url))[-2:] == ["user", "failed"]
        assert provider.calls == 0

    async def lost(*args, **options):
        raise StoreUnavailable("the process is gone")

    run(main())


async def entries_of(url):
    async with opened(url) as t:
        return await log(t)


def test_with_rerun_what_waited_comes_after_the_turn_that_is_run_again(url):
    async def main():
        waiting = entry(type="received", content="second", mode="steer")
        await cut_short(url, entry(type="user", content="first"), waiting)
        provider = ScriptedProvider([{"text": "one"}, {"text": "two"}])
        async with opened(url, provider) as t:
            await t.resume(rerun=True)
            await t.queue.idle()
            assert [text for kind, text in words(await log(t)) if kind == "assistant"] == ["one", "two"]
        assert shown(provider.prompts[-1]) == [("user", "first"), ("assistant", "one"), ("user", "second")]

    run(main())


def test_closing_while_turns_run_and_messages_wait_loses_nothing(url):
    async def main():
        provider = Gated(at=range(5))
        keys = [f"agent:main:cli:direct:p{n}" for n in range(5)]
        async with opened(url, provider) as t:
            for key in keys:
                await t.accept(key, "first")
            await asyncio.gather(*(event.wait() for event in provider.reached.values()))
            for key in keys:
                for n in range(4):
                    await t.accept(key, f"waiting {n}")
        provider = ScriptedProvider()
        async with opened(url, provider) as t:
            assert await t.resume() == 5
            await t.queue.idle()
            for key in keys:
                row = await t.session(key)
                assert (row.received, row.under_way, row.turn_count) == ((), False, 5)
                entries = await t.store.read(row.id)
                said = [text_of(e.content) for e in entries if isinstance(e, User | Received) and e.content]
                assert said == ["first", *(f"waiting {n}" for n in range(4))]
                assert len([e for e in entries if isinstance(e, Assistant)]) == 4

    run(main())


def test_those_who_listen_for_a_waiting_message_are_not_left_hanging_by_a_close(url):
    async def main():
        provider = Gated()
        async with opened(url, provider) as t:
            await t.accept(KEY, "first")
            await provider.reached[0].wait()
            ticket = await t.accept(KEY, "waiting")
            listener = asyncio.create_task(heard(t, ticket))
            await asyncio.sleep(0)
        done, _ = await asyncio.wait([listener], timeout=GIVES_UP_S)
        listener.cancel()
        assert done
        assert isinstance(listener.exception(), Busy) or isinstance(listener.result()[-1], TERMINAL)

    run(main())


def test_a_message_during_a_close_is_refused_or_taken_and_never_left_hanging(url):
    async def main():
        async with opened(url) as t:
            await ask(t, "first")
            await t.queue.close()
            async with asyncio.timeout(GIVES_UP_S):
                try:
                    await t.accept(KEY, "too late")
                except Busy:
                    assert kinds(await log(t))[-1] == "assistant"
                else:
                    assert "too late" in str((await log(t))[-1])

    run(main())


def test_words_that_cannot_be_stored_are_an_error_of_their_sender_and_the_session_goes_on(url):
    async def main():
        async with opened(url) as t:
            with pytest.raises(UsageError):
                async with asyncio.timeout(GIVES_UP_S):
                    await t.accept(KEY, "x" * (33 * 1024 * 1024))
            assert await ask(t, "shorter") == "ok"
            assert words(await log(t)) == [("user", "shorter"), ("assistant", "ok")]

    run(main())


def test_a_store_that_fails_before_the_words_are_durable_is_an_error_of_their_sender(url):
    async def main():
        async with opened(url) as t:
            await t.session(KEY)
            append = t.store.append

            async def failing(*args, **options):
                raise StoreUnavailable("the disk is full")

            t.store.append = failing
            with pytest.raises(StoreUnavailable):
                async with asyncio.timeout(GIVES_UP_S):
                    await t.accept(KEY, "first")
            t.store.append = append
            assert await ask(t, "second") == "ok"

    run(main())


def test_a_store_that_fails_while_a_message_is_put_in_line_is_an_error_of_its_sender(url):
    """The turn runs elsewhere, so the message is stored as waiting, and that fails."""

    async def main():
        provider = Gated()
        async with opened(url, provider) as t, opened(url) as other:
            first = asyncio.create_task(say(t, "first"))
            await provider.reached[0].wait()

            async def failing(*args, **options):
                raise StoreUnavailable("the disk is full")

            other.store.append = failing
            with pytest.raises(StoreUnavailable):
                async with asyncio.timeout(GIVES_UP_S):
                    await other.accept(KEY, "second")
            provider.go[0].set()
            await first

    run(main())


def test_a_session_deleted_while_messages_wait_ends_their_listeners(url):
    async def main():
        provider = Gated()
        async with opened(url, provider) as t:
            first = await t.accept(KEY, "first")
            await provider.reached[0].wait()
            second = await t.accept(KEY, "second")
            async with listening(t, [first, second]) as listeners:
                await t.sessions.delete(first.session_id)
                done, _ = await asyncio.wait(listeners, timeout=GIVES_UP_S)
                assert len(done) == 2
                assert isinstance((await listeners[0])[-1], Stopped | ErrorEvent)
            await t.queue.idle()
            assert (await t.sessions.list()).total == 0

    run(main())


def test_a_listener_that_leaves_while_a_turn_says_nothing_is_forgotten():
    async def go():
        stream = TurnStream("s1", 2)
        for _ in range(3):
            listener = asyncio.create_task(stream.reach(0))
            await asyncio.sleep(0)
            listener.cancel()
            await asyncio.wait({listener})
        assert stream._listening == []
        listener = asyncio.create_task(stream.reach(0))
        await asyncio.sleep(0)
        stream.add(Stopped())
        assert await listener

    asyncio.run(go())

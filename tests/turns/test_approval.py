"""Calls that wait for a person: the turn is paused, costs nothing, and goes on once after the answer. A20."""

import asyncio
from contextlib import asynccontextmanager

import pytest

import turnlog
from turnlog import Approval, ApprovalAnswer, Conflict, Failed, NotFound, Received, ToolResult, UsageError
from turnlog.core.events import ApprovalAnswered, ApprovalRequest, Done, Stopped, ToolDone
from turnlog.testing import FixedClock, ScriptedProvider

from ..waiting import until
from .scenes import call, of_type
from .talk import KEY, ask, kinds, log, opened, run, say, shown

ASK = call("send", to="ann")


class Sent:
    """A tool that counts its runs."""

    def __init__(self, **options):
        self.to = []
        self.options = {"approval": True, **options}

    @property
    def tool(self):
        def send(to: str) -> str:
            """Sends something."""
            self.to.append(to)
            return f"sent to {to}"

        return turnlog.tool(send, **self.options)


def provider(*first):
    return ScriptedProvider([*(first or (ASK,)), {"text": "finished."}])


@asynccontextmanager
async def asked(url, *replies, sent=None, text="go", **flags):
    """A turn that waits: its listener, its events so far, and the tool."""
    sent = sent or Sent()
    async with opened(url, provider(*replies), tools=[sent.tool], **flags) as t:
        events = []
        task = asyncio.create_task(follow(t, text, events))
        try:
            await until(lambda: of_type(events, ApprovalRequest) or task.done())
            yield t, task, events, sent
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def follow(t, text, events, **options):
    async for event in t.send(KEY, text, **options):
        events.append(event)
    return events


def answers(entries):
    return [entry for entry in entries if isinstance(entry, ApprovalAnswer)]


def results(entries):
    return [entry.content for entry in entries if isinstance(entry, ToolResult)]


def test_a_call_that_needs_approval_pauses_the_turn_and_gives_the_lease_back(url):
    async def main():
        async with asked(url) as (t, task, _events, sent):
            await t.queue.idle()
            row = (await t.session(KEY)).row
            assert row.waiting
            assert row.paused
            assert [one.call for one in row.approvals] == ["c1"]
            async with t.store.lease(row.id, wait_s=0):
                pass
            assert kinds(await log(t))[-2:] == ["assistant", "approval"]
            assert not task.done()
            assert sent.to == []
            assert await t.holder(row) == ""

    run(main())


def test_an_approved_call_runs_once_and_the_stream_ends(url):
    async def main():
        async with asked(url) as (t, task, events, sent):
            answer = await t.approve(KEY, "c1")
            await task
            assert answer.word == "approved"
            assert answer.by
            assert sent.to == ["ann"]
            assert isinstance(events[-1], Done)
            assert len(of_type(events, ApprovalAnswered)) == 1
            row = (await t.session(KEY)).row
            assert not row.waiting
            assert not row.approvals
            assert not row.under_way
            assert kinds(await log(t))[-5:] == ["approval", "approval_answer", "approval", "tool_result", "assistant"]
            [record] = await t.approvals(KEY)
            assert (record.state, record.ran, record.by) == ("approved", True, answer.by)

    run(main())


def test_the_model_reads_why_a_call_was_denied(url):
    async def main():
        async with asked(url) as (t, task, events, sent):
            await t.deny(KEY, "c1", "not today")
            await task
            assert sent.to == []
            assert results(await log(t)) == ["denied: not today"]
            assert of_type(events, ToolDone)[0].is_error

    run(main())


def test_an_edited_call_runs_with_the_new_arguments_and_the_model_is_told(url):
    async def main():
        async with asked(url) as (t, task, _events, sent):
            await t.approve(KEY, "c1", input={"to": "bob"})
            await task
            assert sent.to == ["bob"]
            assert results(await log(t)) == ['[the user changed the arguments to {"to": "bob"}]\n\nsent to bob']

    run(main())


def test_arguments_that_do_not_fit_are_refused_to_who_wrote_them_and_the_call_waits_on(url):
    async def main():
        async with asked(url) as (t, task, _events, sent):
            before = await log(t)
            with pytest.raises(UsageError, match="send cannot take these arguments"):
                await t.approve(KEY, "c1", input={"whom": "bob"})
            assert await log(t) == before
            await t.approve(KEY, "c1", input={"to": "bob"})
            await task
            assert sent.to == ["bob"]

    run(main())


def test_of_two_answers_the_first_counts_and_the_other_is_told(url):
    async def main():
        async with asked(url) as (t, task, _events, _sent):
            both = await asyncio.gather(t.approve(KEY, "c1"), t.deny(KEY, "c1"), return_exceptions=True)
            assert sorted(isinstance(one, Conflict | NotFound) for one in both) == [False, True]
            await task
            assert len(answers(await log(t))) == 1
            with pytest.raises(NotFound):
                await t.deny(KEY, "c1")

    run(main())


def test_always_allows_calls_that_match_the_pattern_in_this_session_only(url):
    replies = [ASK, {"text": "one."}, call("send", "c2", to="ann"), {"text": "two."}, call("send", "c3", to="bob")]

    async def main():
        async with asked(url, *replies) as (t, task, _events, sent):
            await t.approve(KEY, "c1", always=True)
            await task
            assert (await t.session(KEY)).allowed == ('send(to="ann")',)
            await ask(t, "again")
            assert sent.to == ["ann", "ann"]
            other = asyncio.create_task(follow(t, "third", more := []))
            await until(lambda: of_type(more, ApprovalRequest))
            other.cancel()

    run(main())


def test_calls_before_the_waiting_one_run_and_all_that_wait_are_asked_for_at_once(url):
    calls = [{"id": f"c{n}", "name": name, "input": {"to": str(n)}} for n, name in enumerate(["look", "send", "look"])]
    calls.append({"id": "c3", "name": "send", "input": {"to": "3"}})
    looked = []

    def look(to: str) -> str:
        looked.append(to)
        return "seen"

    async def main():
        sent = Sent()
        async with opened(url, provider({"tool_calls": calls}), tools=[sent.tool, look]) as t:
            events = []
            task = asyncio.create_task(follow(t, "go", events))
            await until(lambda: len(of_type(events, ApprovalRequest)) == 2)
            assert looked == ["0"]
            assert [one.call_id for one in of_type(events, ApprovalRequest)] == ["c1", "c3"]
            await t.approve(KEY, "c3")
            await t.queue.idle()
            assert sent.to == []
            assert looked == ["0"]
            await t.deny(KEY, "c1")
            await task
            assert sent.to == ["3"]
            assert looked == ["0", "2"]

    run(main())


def test_without_anybody_to_ask_a_call_is_denied_with_a_hint(url):
    async def main():
        sent = Sent()
        async with opened(url, provider(), tools=[sent.tool]) as t:
            await t.ask(KEY, "go")
            assert sent.to == []
            assert "tools.approval" in results(await log(t))[0]
            assert not (await t.session(KEY)).allowed

    run(main())


@pytest.mark.parametrize("mode", ["steer", "followup", "collect", "interrupt"])
def test_a_new_message_denies_the_calls_that_wait_in_every_mode(url, mode):
    async def main():
        async with asked(url, ASK, {"text": "one."}) as (t, task, events, sent):
            more = await say(t, "wait, do something else", mode=mode)
            await task
            [answer] = answers(await log(t))
            assert (answer.word, answer.words) == ("denied", "a new message arrived")
            assert sent.to == []
            assert isinstance(more[-1], Done)
            assert isinstance(events[-1], Stopped if mode == "interrupt" else Done)

    run(main())


def test_a_message_of_somebody_who_may_not_approve_waits_and_changes_nothing(url):
    async def main():
        async with asked(url) as (t, task, _events, sent):
            t.queue._paused._may_approve = lambda row, sender: sender == "ann"
            other = await t.accept(KEY, "me too", sender="bob", mode="followup")
            await t.queue.idle()
            assert (await t.session(KEY)).waiting
            assert not answers(await log(t))
            await t.approve(KEY, "c1")
            await task
            assert sent.to == ["ann"]
            assert isinstance([event async for event in t.queue.follow(other)][-1], Done)

    run(main())


def test_a_paused_turn_can_be_stopped_and_its_call_never_runs(url):
    async def main():
        async with asked(url) as (t, task, events, sent):
            assert await t.stop_anywhere((await t.session(KEY)).id)
            await task
            assert isinstance(events[-1], Stopped)
            assert sent.to == []
            with pytest.raises(NotFound):
                await t.approve(KEY, "c1")
            assert not (await t.session(KEY)).under_way

    run(main())


def test_deleting_a_session_with_a_paused_turn_ends_its_stream(url):
    async def main():
        async with asked(url) as (t, task, _events, sent):
            await t.sessions.delete((await t.session(KEY)).id)
            await task
            assert sent.to == []

    run(main())


def test_a_restart_keeps_the_question_and_the_answer_is_enough_to_go_on(url):
    async def main():
        async with asked(url):
            pass
        sent = Sent()
        async with opened(url, ScriptedProvider([{"text": "finished."}]), tools=[sent.tool]) as t:
            await t.resume(rerun=True)
            await t.queue.idle()
            entries = await log(t)
            assert kinds(entries)[-1] == "approval"
            assert not any(isinstance(e, Failed) for e in entries)
            await t.approve(KEY, "c1")
            await until(lambda: sent.to)
            await t.queue.idle()
            assert kinds(await log(t))[-1] == "assistant"
            assert sent.to == ["ann"]

    run(main())


def test_an_answer_that_came_while_no_process_ran_is_taken_up_at_the_next_start(url):
    async def main():
        async with asked(url) as (t, _, __, ___):
            row = (await t.session(KEY)).row
        async with turnlog.open_store(url) as store:
            await store.append(row.id, [ApprovalAnswer(call="c1", word="approved", by="ann")])
        sent = Sent()
        async with opened(url, ScriptedProvider([{"text": "finished."}]), tools=[sent.tool]) as t:
            await t.resume()
            await t.queue.idle()
            assert sent.to == ["ann"]
            assert not (await t.session(KEY)).under_way

    run(main())


def test_an_answer_in_another_process_wakes_the_one_that_asked_and_its_listeners_hear_the_end(url):
    async def main():
        async with asked(url) as (_t, task, events, sent):
            other_sent = Sent()
            async with opened(url, provider(), tools=[other_sent.tool]) as other:
                await other.approve(KEY, "c1")
                await task
            assert sent.to == ["ann"]
            assert other_sent.to == []
            assert isinstance(events[-1], Done)

    run(main())


def test_the_process_that_answered_takes_the_turn_up_if_the_other_is_gone(url):
    async def main():
        async with asked(url):
            pass
        sent = Sent()
        async with opened(url, ScriptedProvider([{"text": "finished."}]), tools=[sent.tool]) as t:
            await t.approve(KEY, "c1")
            await until(lambda: sent.to)
            await t.queue.idle()

    run(main())


def test_a_turn_that_another_process_ended_is_told_to_the_listeners_of_the_one_that_asked(url):
    async def main():
        async with asked(url) as (t, task, events, sent):
            row = (await t.session(KEY)).row
            lane = t.queue._lanes.get(row.id)
            (await until(lambda: lane.watch)).cancel()
            other_sent = Sent()
            async with opened(url, ScriptedProvider([{"text": "elsewhere."}]), tools=[other_sent.tool]) as other:
                await other.approve(KEY, "c1")
                await until(lambda: other_sent.to)
                await other.queue.idle()
            t.queue._start_worker(lane)
            await task
            assert isinstance(events[-1], Done)
            assert sent.to == []
            assert [event.text for event in of_type(events, ToolDone)] == ["sent to ann"]

    run(main())


def test_a_call_that_nobody_answers_in_time_is_denied(url):
    clock = FixedClock()

    async def main():
        async with asked(url, clock=clock) as (t, task, _events, sent):
            clock.advance(hours=25)
            t.queue._start_worker(t.queue._lanes.get((await t.session(KEY)).id))
            await task
            assert results(await log(t)) == ["denied: nobody answered in time"]
            assert sent.to == []

    run(main())


def test_an_answer_that_comes_too_late_denies_the_call_though_no_process_noticed_the_time(url):
    clock = FixedClock()

    async def main():
        async with asked(url, clock=clock):
            pass
        clock.advance(hours=25)
        sent = Sent()
        async with opened(url, ScriptedProvider([{"text": "finished."}]), tools=[sent.tool], clock=clock) as t:
            with pytest.raises(Conflict, match="too long"):
                await t.approve(KEY, "c1", always=True)
            await until(lambda: not t.queue.is_busy("x") and t._parts.agents._provider.prompts)
            await t.queue.idle()
            assert results(await log(t)) == ["denied: nobody answered in time"]
            assert sent.to == []
            assert not (await t.session(KEY)).allowed

    run(main())


def test_an_answer_comes_too_late_also_for_a_row_from_before_the_question(url):
    clock = FixedClock()

    async def main():
        async with opened(url) as t:
            before = (await t.session(KEY)).row
        async with asked(url, clock=clock):
            pass
        clock.advance(hours=25)
        sent = Sent()
        async with opened(url, ScriptedProvider([{"text": "finished."}]), tools=[sent.tool], clock=clock) as t:
            with pytest.raises(Conflict, match="too long"):
                await t.approve(before, "c1")
            await until(lambda: t._parts.agents._provider.prompts)
            await t.queue.idle()
            assert results(await log(t)) == ["denied: nobody answered in time"]
            assert sent.to == []

    run(main())


def test_an_answer_to_an_earlier_question_never_approves_a_later_one_with_the_same_id(url):
    async def main():
        async with asked(url, ASK, call("send", to="bob")) as (t, task, events, sent):
            [first] = of_type(events, ApprovalRequest)
            await t.approve(KEY, "c1", request=first.seq)
            await until(lambda: len(of_type(events, ApprovalRequest)) == 2)
            with pytest.raises(NotFound):
                await t.approve(KEY, "c1", request=first.seq)
            await t.deny(KEY, "c1", request=of_type(events, ApprovalRequest)[1].seq)
            await task
            assert sent.to == ["ann"]
            assert [one.state for one in await t.approvals(KEY)] == ["approved", "denied"]

    run(main())


def test_an_approval_counts_only_where_it_was_asked_for(url):
    async def main():
        async with asked(url):
            pass
        sent = Sent()
        tool = turnlog.tools.Tool(
            **{f: getattr(sent.tool, f) for f in sent.tool.__struct_fields__ if f != "place"}, place="another directory"
        )
        async with opened(url, ScriptedProvider([{"text": "finished."}]), tools=[tool]) as t:
            await t.approve(KEY, "c1")
            await ask(t, "go on", mode="followup")
            assert sent.to == []
            assert "another workspace" in results(await log(t))[0]

    run(main())


@pytest.mark.parametrize("preset", ["zeroclaw", "claw0-keyed", "sessions", "zyhive"])
def test_under_every_preset_a_paused_turn_is_in_the_log_and_goes_on_after_a_restart(tmp_path, preset):
    flags = {"home": tmp_path, "session_preset": preset}

    async def main():
        async with asked(None, **flags):
            pass
        sent = Sent()
        model = ScriptedProvider([{"text": "finished."}, {"text": "later."}])
        async with opened(None, model, tools=[sent.tool], **flags) as t:
            await t.resume()
            await t.approve(KEY, "c1")
            await until(lambda: sent.to)
            await t.queue.idle()
            entries = await log(t)
            assert results(entries) == ["sent to ann"]
            assert not any(isinstance(e, Failed) for e in entries)
            assert await ask(t, "next") == "later."
            assert shown(model.prompts[-1])[-2:] == [("assistant", "finished."), ("user", "next")]

    run(main())


def test_a_manual_compaction_keeps_a_call_that_waits(url):
    async def main():
        replies = [*({"text": f"old {n}"} for n in range(4)), ASK]
        sent = Sent()
        async with opened(
            url, ScriptedProvider([*replies, {"text": "finished."}]), tools=[sent.tool], compaction_keep="messages:1"
        ) as t:
            for n in range(4):
                await ask(t, f"q{n} " + "word " * 300)
            events = []
            task = asyncio.create_task(follow(t, "go", events))
            await until(lambda: of_type(events, ApprovalRequest))
            await t.queue.idle()
            report = await t.compact(KEY)
            request = next(e for e in await log(t) if isinstance(e, Approval))
            assert report.first_kept < request.seq
            await t.approve(KEY, "c1")
            await task
            assert sent.to == ["ann"]

    run(main())


def test_waiting_messages_of_the_row_are_not_lost_while_the_turn_is_paused(url):
    async def main():
        async with asked(url) as (t, _task, _events, _sent):
            t.queue._paused._may_approve = lambda row, sender: False
            await t.accept(KEY, "later", mode="followup")
            assert sum(isinstance(e, Received) for e in await log(t)) == 1
        async with opened(url, ScriptedProvider([{"text": "a."}, {"text": "b."}]), tools=[Sent().tool]) as t:
            await t.resume()
            await t.approve(KEY, "c1")
            await until(lambda: len([1 for p in t._parts.agents._provider.prompts]) == 2)
            await t.queue.idle()
            assert not (await t.session(KEY)).received

    run(main())


@pytest.mark.parametrize(
    ("word", "to"),
    [
        *[(True, ["ann"]), (False, []), ("no", []), (None, []), (ValueError, [])],
        *[({"to": "bob"}, ["bob"]), ({"whom": "bob"}, [])],
    ],
)
def test_a_function_may_answer_for_a_person(url, word, to):
    async def approve(request):
        assert request.tool == "send"
        if word is ValueError:
            raise ValueError
        return word

    async def main():
        sent = Sent()
        async with opened(url, provider(), tools=[sent.tool]) as t:
            assert await t.session("x").ask("go", approve=approve) == "finished."
            assert sent.to == to
            [record] = await t.session("x").approvals()
            assert record.state == ("approved" if to else "denied")

    run(main())


def test_asking_without_a_function_that_approves_denies(url):
    async def main():
        sent = Sent()
        async with opened(url, provider(), tools=[sent.tool]) as t:
            assert await t.ask("x", "go") == "finished."
            assert sent.to == []

    run(main())


@pytest.mark.parametrize("given", [{}, {"to": ["ann"]}, {"to": "ann", "cc": "bo"}])
def test_a_call_that_does_not_fit_is_told_to_the_model_and_nobody_is_asked(url, given):
    async def main():
        sent = Sent()
        async with opened(url, provider(call("send", **given)), tools=[sent.tool]) as t:
            events = await follow(t, "go", [])
            assert not of_type(events, ApprovalRequest)
            assert isinstance(events[-1], Done)
            (result,) = of_type(events, ToolDone)
            assert result.is_error
            assert "the input does not fit" in result.text
            assert "approval" not in kinds(await log(t))
            assert sent.to == []

    run(main())

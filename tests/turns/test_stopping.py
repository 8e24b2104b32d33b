"""Stopping and interrupting turns that another process runs, at every store."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from turnlog.core.events import Done, Stopped
from turnlog.testing import ScriptedProvider
from turnlog.turns import stopping

from ..stores import postgres
from .gates import Gated, heard
from .talk import KEY, kinds, log, opened, run, url_at, words


@pytest.fixture(params=["jsonl", "sqlite", "postgresql"])
def url(request, tmp_path):
    return postgres.url_of(tmp_path) if request.param == "postgresql" else url_at(request.param, tmp_path)


@asynccontextmanager
async def two(url, provider, **flags):
    """One whose model is being asked, and another at the same store; the turn's events so far unheard."""
    async with (
        opened(url, provider, **flags) as one,
        opened(url, ScriptedProvider([{"text": "theirs"}]), **flags) as other,
    ):
        ticket = await one.accept(KEY, "first")
        listening = asyncio.create_task(heard(one, ticket))
        await provider.reached[0].wait()
        yield one, other, listening


def test_a_turn_is_stopped_by_another_process_in_the_middle_of_a_model_call(url):
    async def main():
        async with two(url, Gated([{"text": "later"}])) as (one, other, listening):
            row = await other.sessions.open(KEY)
            assert await other.stop_anywhere(row.id)
            assert isinstance((await listening)[-1], Stopped)
            assert not await other.stop_anywhere(row.id), "there is nothing to stop any more"
            assert isinstance((await heard(one, await one.accept(KEY, "again")))[-1], Done), "not meant"
            assert (await one.store.ledger.list(stopping.STOPS)) == []

    run(main())


@pytest.mark.parametrize("preset", ["default", "zeroclaw"])
def test_a_message_that_interrupts_stops_a_turn_of_another_process_in_the_middle_of_a_model_call(url, preset):
    async def main():
        provider = Gated([{"text": "answer"}])
        async with two(url, provider, session_preset=preset) as (one, other, listening):
            ticket = await other.accept(KEY, "second", mode="interrupt")
            assert isinstance((await listening)[-1], Stopped)
            assert isinstance((await heard(other, ticket))[-1], Done)
            told = words(await log(one))
            assert [text for _, text in told].count("second") <= 1
            assert told[-1] in (("assistant", "answer"), ("assistant", "theirs")), "whichever is faster"

    run(main())


def test_a_message_that_waits_interrupts_nothing(tmp_path):
    async def main():
        provider = Gated([{"text": "mine"}, {"text": "answer"}])
        async with two(url_at("sqlite", tmp_path), provider) as (one, other, listening):
            ticket = await other.accept(KEY, "second", mode="followup")
            for _ in range(3):
                await one.queue._stop_watcher.look()
            assert one.queue.under_way()
            provider.go[0].set()
            assert isinstance((await listening)[-1], Done)
            assert isinstance((await heard(other, ticket))[-1], Done)
            assert "failed" not in kinds(await log(one))

    run(main())


def test_wishes_are_looked_for_often_enough_while_a_turn_runs_and_never_without_one(tmp_path):
    assert 2 * stopping.LOOK_S < 1

    async def main():
        async with opened(url_at("sqlite", tmp_path), ScriptedProvider([{"text": "a"}])) as t:
            assert t.queue._stop_watcher._task is None
            await heard(t, await t.accept(KEY, "hi"))
            await t.queue.idle()
            await t.queue._stop_watcher._task
            assert t.queue._stop_watcher._task.done()

    run(main())

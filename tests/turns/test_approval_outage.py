"""The database server dies and comes back around a question: asked once, run once, never without a word."""

import asyncio

import pytest

import turnlog
from turnlog import Approval, ApprovalAnswer, StoreUnavailable, ToolResult
from turnlog.core.events import ApprovalRequest, Done

from ..stores import postgres
from ..waiting import until
from .scenes import of_type
from .talk import KEY, log, run
from .test_approval import Sent, asked, opened, provider

WORDS = ("approve", "deny", "edit")


@pytest.fixture
def here(tmp_path):
    server = postgres.stoppable()
    server.place = server.url(server.database(tmp_path), lease_s=postgres.LONG_S, patience_s=0.2)
    yield server
    if not server.is_running():
        server.start()


async def give(t, word, call="c1"):
    if word == "deny":
        await t.deny(KEY, call, "no")
    else:
        await t.approve(KEY, call, input={"to": "bob"} if word == "edit" else None)


async def given_back(t, here):
    """The lease of the paused turn is free, also after a crash of the database, which flushes this late otherwise."""
    await t.queue.idle()
    await asyncio.to_thread(here.sql, "CHECKPOINT")


def stopping_after_the_answer(t, here):
    """The server is killed after the answer is durable, before anybody else can have seen it."""
    append = t.store.append

    async def stopping(name, bodies, **options):
        done = await append(name, bodies, **options)
        if any(isinstance(body, ApprovalAnswer) for body in bodies):
            here.stop("immediate")
        return done

    t.store.append = stopping


async def surely(act):
    """Until the store takes it."""
    while True:
        try:
            return await act()
        except StoreUnavailable:
            await asyncio.sleep(0.05)


async def check(t, events, sent, word):
    assert sent.to == {"approve": ["ann"], "edit": ["bob"], "deny": []}[word]
    entries = await surely(lambda: log(t))
    assert sum(isinstance(e, Approval) and e.state == "requested" for e in entries) == 1
    assert sum(isinstance(e, ApprovalAnswer) for e in entries) == 1
    assert sum(isinstance(e, ToolResult) for e in entries) == 1
    assert len(of_type(events, ApprovalRequest)) == 1
    assert isinstance(events[-1], Done)


@pytest.mark.parametrize("word", WORDS)
def test_the_database_dies_during_a_question(here, word):
    async def main():
        async with asked(here.place, store_durability="full") as (t, task, events, sent):
            await given_back(t, here)
            await asyncio.to_thread(here.stop, "immediate")
            with pytest.raises(StoreUnavailable):
                await give(t, word)
            assert sent.to == []
            await asyncio.to_thread(here.start)
            await surely(lambda: give(t, word))
            await task
            await check(t, events, sent, word)

    run(main())


@pytest.mark.parametrize("word", WORDS)
def test_the_database_dies_between_the_answer_and_the_execution(here, word):
    async def main():
        async with asked(here.place, store_durability="full") as (t, task, events, sent):
            await given_back(t, here)
            stopping_after_the_answer(t, here)
            await give(t, word)
            assert not here.is_running()
            assert sent.to == []
            await asyncio.to_thread(here.start)
            await task
            await check(t, events, sent, word)

    run(main())


def test_the_database_dies_while_an_approved_call_runs(here):
    async def main():
        sent = Sent()
        async with asked(here.place, sent=Stopping(here, sent), store_durability="full") as (t, task, events, _):
            await given_back(t, here)
            await t.approve(KEY, "c1")
            await until(lambda: sent.to)
            await asyncio.to_thread(here.start)
            await task
            await check(t, events, sent, "approve")

    run(main())


class Stopping(Sent):
    """The tool, whose run kills the database."""

    def __init__(self, server, sent):
        super().__init__()
        self._server, self._sent = server, sent

    @property
    def tool(self):
        def send(to: str) -> str:
            self._server.stop("immediate")
            self._sent.to.append(to)
            return f"sent to {to}"

        return turnlog.tool(send, **self.options)


def test_the_database_dies_after_the_answer_and_the_process_that_asked_is_gone(here):
    async def main():
        async with asked(here.place, store_durability="full") as (t, _, _, _):
            await given_back(t, here)
        sent = Sent()
        async with opened(here.place, provider(), tools=[sent.tool], store_durability="full") as t:
            stopping_after_the_answer(t, here)
            await t.approve(KEY, "c1")
            for _ in range(10):  # the looks of this process fail as well
                with pytest.raises(StoreUnavailable):
                    await t.store.ledger.get("selected", KEY)
            await asyncio.to_thread(here.start)
            await until(lambda: sent.to)
            await t.queue.idle()
            assert sent.to == ["ann"]
            assert sum(isinstance(e, ToolResult) for e in await surely(lambda: log(t))) == 1

    run(main())

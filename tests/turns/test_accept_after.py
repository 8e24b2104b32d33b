"""A message that follows an earlier entry: the rewind and the message are stored together, or not at all."""

import asyncio

import pytest

import turnlog
from turnlog.core.entries import Assistant, Received, Rewind, User
from turnlog.errors import Busy, Conflict, UsageError
from turnlog.testing import check_messages


@pytest.fixture
def run(tmp_path):
    """Runs `steps(library)` on a store of its own."""

    def work(steps, **flags):
        async def main():
            async with turnlog.open(home=tmp_path, model_name="offline", **flags) as library:
                await steps(library)

        asyncio.run(main())

    return work


async def two_turns(t):
    row = await t.sessions.new("agent:main:web:direct:ann")
    await t.ask(row, "My name is Zoe.")
    await t.ask(row, "What is my name?")
    entries = await t.sessions.read(row.id)
    return row, [entry for entry in entries if isinstance(entry, User)]


async def follow(ticket):
    async for _ in ticket.follow():
        pass


def test_the_model_sees_the_new_words_and_not_the_old_ones(run):
    async def steps(t):
        row, [first, _] = await two_turns(t)
        await follow(await t.accept_after(row, first.seq - 1, "My name is Grace."))
        history = await t.history(row)
        check_messages(history.messages)
        said = str(history.messages)
        assert "Grace" in said
        assert "Zoe" not in said
        entries = await t.sessions.read(row.id)
        at = next(n for n, entry in enumerate(entries) if isinstance(entry, Rewind))
        assert isinstance(entries[at + 1], User)
        assert entries[at].ts == entries[at + 1].ts

    run(steps)


@pytest.mark.parametrize("preset", ["zeroclaw", "claw0-keyed"])
def test_where_rows_are_written_with_their_reply_the_rewind_and_the_message_are_one_append(run, preset):
    async def steps(t):
        row, [first, _] = await two_turns(t)
        await follow(await t.accept_after(row, first.seq + 1, "My name is Grace."))
        *_, rewind, received, user, reply = await t.sessions.read(row.id)
        assert (type(rewind), type(received), type(user)) == (Rewind, Received, User)
        assert rewind.ts == received.ts
        assert user.from_ == (received.seq,)
        assert user.content == "My name is Grace."
        assert isinstance(reply, Assistant)
        check_messages((await t.history(row)).messages)

    run(steps, session_preset=preset)


@pytest.mark.parametrize("preset", ["zeroclaw", "claw0-keyed", "default"])
def test_a_message_that_expects_the_session_unchanged_is_refused_after_a_change(run, preset):
    async def steps(t):
        row, _ = await two_turns(t)
        left = t.left_here(row.id)
        await follow(await t.accept_if_unchanged(left, "And now?"))
        before = await t.sessions.read(row.id)
        with pytest.raises(Conflict):
            await t.accept_if_unchanged(left, "And once more?")
        assert await t.sessions.read(row.id) == before
        assert [entry for entry in before if isinstance(entry, Assistant)][-1].seq == before[-1].seq

    run(steps, session_preset=preset)


def test_a_compaction_after_the_place_no_longer_counts(run):
    async def steps(t):
        row, [first, second] = await two_turns(t)
        body = turnlog.Compaction(
            summary="A name.",
            first_kept=second.seq,
            covers=(first.seq, second.seq - 1),
            tokens_before=9,
            tokens_after=2,
        )
        await t.append(row, body)
        await follow(await t.accept_after(row, second.seq - 1, "And what is my name now?"))
        said = str((await t.history(row)).messages)
        assert "My name is Zoe." in said
        assert "A name." not in said

    run(steps)


def test_a_place_within_a_turn_is_refused_and_nothing_is_stored(run):
    async def steps(t):
        row, [first, _] = await two_turns(t)
        before = await t.sessions.read(row.id)
        with pytest.raises(UsageError, match="does not end a turn"):
            await t.accept_after(row, first.seq, "x")
        with pytest.raises(UsageError):
            await t.accept_after(row, 0, "x")
        assert await t.sessions.read(row.id) == before

    run(steps)


def test_while_a_turn_runs_it_is_refused_and_nothing_is_stored(run):
    async def steps(t):
        row, [first, _] = await two_turns(t)
        async with t.lease(row):
            before = await t.sessions.read(row.id)
            with pytest.raises(Busy):
                await t.accept_after(row, first.seq - 1, "x")
        assert await t.sessions.read(row.id) == before

    run(steps)


def test_of_two_at_once_one_is_refused_or_both_run_one_after_the_other(run):
    async def steps(t):
        row, [first, _] = await two_turns(t)
        made = await asyncio.gather(
            *(t.accept_after(row, first.seq - 1, f"My name is {name}.") for name in ("Kim", "Lee")),
            return_exceptions=True,
        )
        for ticket in made:
            if not isinstance(ticket, Exception):
                await follow(ticket)
        assert any(not isinstance(ticket, Exception) for ticket in made)
        assert all(isinstance(ticket, Busy) for ticket in made if isinstance(ticket, Exception))
        check_messages((await t.history(row)).messages)

    run(steps)

"""Whoever held a session that was deleted cannot write to one that was later made under its id, on any store."""

import asyncio
import re
from pathlib import Path

import pytest

import turnlog
from turnlog import NotFound
from turnlog.core.events import Done, ErrorEvent, Stopped
from turnlog.core.user_content import with_words
from turnlog.testing import FixedClock, said
from turnlog.turns import stopping

from .. import warm
from ..stores import postgres
from .gates import Gated
from .talk import KEY, ask, opened, run, say, words

MY_CHAT = turnlog.SessionById("my-chat")
ROOT = Path(__file__).parents[2]
PLACES = {
    "jsonl": "jsonl:{}/files",
    "v3": "jsonl:{}/files?dialect=v3",
    "zyhive": "jsonl:{}/files?layout=zyhive",
    "flat": "jsonl:{}/files?dialect=flat",
    "sqlite": "sqlite:{}/sessions.db",
    "postgresql": None,
}


@pytest.fixture(params=PLACES)
def everywhere(request, tmp_path):
    return postgres.url_of(tmp_path) if request.param == "postgresql" else PLACES[request.param].format(tmp_path)


OTHER = """
import asyncio, sys, turnlog
from turnlog.testing import FixedClock, ScriptedProvider
async def main(url):
    async with turnlog.open(url, home="/nonexistent", provider=ScriptedProvider(), clock=FixedClock()) as t:
        await t.sessions.delete("my-chat")
        await t.sessions.new("agent:main:cli:direct:user", session_id="my-chat")
        for n in range(5):  # longer than the other one was
            await t.sessions.rename("my-chat", f"another chat {n}")
asyncio.run(main(*sys.argv[1:]))
"""


def delete_and_make_anew(url):
    """In another process."""
    done = warm.run_code(OTHER, url)
    assert done.returncode == 0, done.stderr[-2000:]


def test_an_answer_does_not_reach_a_session_made_anew_by_another_process(everywhere):
    """The clock stands still meanwhile: the two sessions were created at the same moment."""

    async def story():
        provider = Gated([{"text": "the answer"}])
        async with opened(everywhere, provider, clock=FixedClock()) as t:
            row = await t.sessions.new(KEY, session_id="my-chat")
            ticket = await t.accept(row, "the question")
            await provider.reached[0].wait()
            await asyncio.to_thread(delete_and_make_anew, everywhere)
            there = await t.store.read("my-chat")
            provider.go[0].set()
            events = [event async for event in t.queue.follow(ticket)]
            await t.queue.idle()
            assert isinstance(events[-1], ErrorEvent), events
            assert events[-1].code == "deleted", events[-1]
            assert await t.store.read("my-chat") == there
            assert (await t.sessions.get("my-chat")).title == "another chat 4"
            # Who holds the old one is told; who asks by its name gets the new one.
            for gone in (t.append(row, said("x")), t.accept(row, "x"), t.compact(row)):
                with pytest.raises(NotFound):
                    await gone
            assert await ask(t, "hello", MY_CHAT) == "ok"
            assert words(await t.store.read("my-chat")) == [("user", "hello"), ("assistant", "ok")]

    run(story())


def test_messages_for_the_new_session_are_answered_while_the_turn_of_the_deleted_one_still_runs(url):
    async def story():
        provider = Gated([{"text": "late"}])
        async with opened(url, provider) as t, turnlog.open_store(url) as elsewhere:
            row = await t.sessions.new(KEY, session_id="my-chat")
            old = await t.accept(row, "to the old one")
            await provider.reached[0].wait()
            waiting = await t.accept(row, "waits in the old one")
            await elsewhere.delete("my-chat")
            new = await t.sessions.new(KEY, session_id="my-chat")
            fresh = await t.accept(new, "to the new one")
            provider.go[0].set()
            assert isinstance([e async for e in t.queue.follow(old)][-1], ErrorEvent | Stopped)
            with pytest.raises(NotFound):
                [e async for e in t.queue.follow(waiting)]
            assert isinstance([e async for e in t.queue.follow(fresh)][-1], Done)
            await t.queue.idle()
            assert not t.queue._lanes._replaced
            there = with_words(await t.store.read("my-chat"))
            assert words(there) == [("user", "to the new one"), ("assistant", "late")]

    run(story())


def test_who_holds_a_deleted_session_is_not_shown_what_the_model_sees_of_the_next_one(url):
    async def story():
        async with opened(url) as t:
            held = await t.sessions.new(KEY, session_id="my-chat")
            await t.sessions.delete("my-chat")
            made = await t.sessions.new(KEY, session_id="my-chat")
            await ask(t, "of the new one", made)
            for look in (t.history, t.prompt):
                assert "of the new one" in str((await look(made)).messages)
                for at in (None, 3):
                    with pytest.raises(NotFound):
                        await look(held, at=at)

    run(story())


def test_a_delivery_to_a_deleted_session_is_not_taken_for_one_to_the_next_of_its_id(url):
    async def story():
        async with opened(url) as t:
            row = await t.sessions.new(KEY, session_id="my-chat")
            assert await ask(t, "once", row, dedupe_id="d1") == "ok"
            await t.sessions.delete("my-chat")
            await t.sessions.new(KEY, session_id="my-chat")
            for n in range(5):
                await t.sessions.rename("my-chat", f"n{n}")
            events = await say(t, "once", MY_CHAT, dedupe_id="d1")
            assert events == [Done(session_id="my-chat", token_estimate=0)]
            assert words(await t.store.read("my-chat")) == []

    run(story())


def test_a_wish_to_stop_a_turn_does_not_meet_one_of_the_next_session_of_its_id(url):
    async def story():
        provider = Gated()
        async with opened(url, provider) as t:
            row = await t.sessions.new(KEY, session_id="my-chat")
            wish = {"seq": 99, "incarnation": row.incarnation}
            await t.sessions.delete("my-chat")
            await t.sessions.new(KEY, session_id="my-chat")
            ticket = await t.accept(MY_CHAT, "hello")
            await provider.reached[0].wait()
            await t.store.ledger.put_if_absent(stopping.STOPS, "my-chat", wish)
            await stopping.StopWatcher(t.store.ledger, t.queue).look()
            provider.go[0].set()
            assert isinstance([e async for e in t.queue.follow(ticket)][-1], Done)

    run(story())


def test_a_log_of_an_older_version_goes_by_its_creation_and_is_told_from_its_successor(tmp_path):
    """Such a file names no incarnation; nor does one that another tool has made."""

    async def story():
        url = f"jsonl:{tmp_path}/files"
        async with opened(url) as t:
            await ask(t, "hello")
            name = (await t.session(KEY)).id
        [path] = (tmp_path / "files").rglob(f"{name}.jsonl")
        path.write_bytes(re.sub(rb',"incarnation":"[0-9a-f]+"', b"", path.read_bytes()))
        async with opened(url) as t:
            row = await t.session(name)
            assert row.stamped == ""
            assert row.incarnation == str(row.created_at)
            assert await ask(t, "and again", row) == "ok"
            await t.sessions.delete(name)
            await t.sessions.new(KEY, session_id=name)
            with pytest.raises(NotFound):
                await t.append(row, said("x"))

    run(story())

"""An `Access` offers what one principal may do, checks all of it, and leads nowhere else."""

import asyncio
import inspect

import pytest

import turnlog
from turnlog import Denied, NotFound, Principal
from turnlog.access import Access
from turnlog.stores import Ledger
from turnlog.testing import ScriptedProvider
from turnlog.turns.queue import Queue
from turnlog.turns.runner import Runner

HERS = "agent:main:web:direct:ann"
STORE_VERBS = ("append", "describe", "lease", "reindex")


def opened(**flags):
    return turnlog.open("memory:", home="/nonexistent", provider=ScriptedProvider("Noted."), **flags)


async def talk(access, key, text):
    return [event async for event in access.send(key, text)]


def public_values(thing):
    for name in dir(thing):
        if not name.startswith("_"):
            yield name, inspect.getattr_static(type(thing), name, None), getattr(thing, name)


def reached(thing, path="access", seen=None, depth=6):
    """(path, value) of everything that public names lead to; of methods, what they are bound to."""
    seen = {} if seen is None else seen
    if id(thing) in seen or depth == 0:
        return
    seen[id(thing)] = thing  # kept, so that no other value gets its id meanwhile
    yield path, thing
    if isinstance(thing, str | bytes | int | float | type(None) | frozenset | set | dict | list | tuple | type):
        return
    for name, _, value in public_values(thing):
        yield from reached(value, f"{path}.{name}", seen, depth - 1)
    if inspect.ismethod(thing):
        yield from reached(thing.__self__, f"{path}.__self__", seen, depth - 1)


def is_store(value):
    return not isinstance(value, Access) and all(hasattr(value, verb) for verb in STORE_VERBS)


def test_nothing_that_an_access_leads_to_is_a_store_a_ledger_a_queue_or_turnlog_itself():
    async def main():
        async with opened() as t:
            found = list(reached(t.acting_for(Principal("ann"))))
            assert len(found) > 50
            raw = (Queue, Runner, turnlog.Turnlog)
            ledger = [name for name in dir(Ledger) if not name.startswith("_")]
            assert [path for path, value in found if is_store(value) or isinstance(value, raw)] == []
            assert [path for path, value in found if all(hasattr(value, verb) for verb in ledger)] == []
            everything = [value for _, value in reached(t)]
            assert any(map(is_store, everything))
            assert any(isinstance(value, Queue) for value in everything)

    asyncio.run(main())


def test_an_access_cannot_be_made_into_that_of_somebody_else():
    async def main():
        async with opened() as t:
            for principal in (Principal("ann"), Principal("ann", frozenset({"admin"}), frozenset({"main"}))):
                access = t.acting_for(principal)
                with pytest.raises(Denied):
                    access.sessions.acting_for(Principal("owner", frozenset({"admin"})))
                with pytest.raises(AttributeError):
                    access.sessions.principal = Principal("owner", frozenset({"admin"}))

    asyncio.run(main())


async def refusal(call):
    """What a call raises; None if it does something."""
    try:
        found = call()
        if inspect.isawaitable(found):
            await found
        elif hasattr(found, "__anext__"):
            await anext(found)
            await found.aclose()
        elif hasattr(found, "__aenter__"):
            async with found:
                pass
    except (turnlog.TurnlogError, StopAsyncIteration) as error:
        return type(error)
    return None


def calls(access, row, where):
    """Each verb of an access, about a session; `row`: whichever form `where` has."""
    user = turnlog.User(content="mine now")
    yield "send", lambda: access.send(where, "hi")
    yield "accept", lambda: access.accept(where, "hi")
    yield "hear", lambda: access.hear(where, "hi")
    yield "retry", lambda: access.retry(where)
    yield "accept_retry", lambda: access.accept_retry(where)
    yield "session", lambda: access.session(where)
    yield "history", lambda: access.history(where)
    yield "prompt", lambda: access.prompt(where)
    yield "limits", lambda: access.limits(where)
    yield "recall", lambda: access.recall(where, "locker")
    yield "ask", lambda: access.ask(where, "hi")
    yield "append", lambda: access.append(where, user)
    yield "lease", lambda: access.lease(where)
    yield "guard", lambda: access.guard(where, lambda history: None)
    yield "call", lambda: access.call(where, lambda messages: "mine")
    yield "stream", lambda: access.stream(where, lambda messages: "mine")
    yield "compact", lambda: access.compact(where)
    yield "approvals", lambda: access.approvals(where)
    yield "approve", lambda: access.approve(where, "c1")
    yield "deny", lambda: access.deny(where, "c1")
    yield "accept_after", lambda: access.accept_after(where, 1, "hello")
    yield "left_here", lambda: access.left_here(row.id)
    yield "accept_if_unchanged", lambda: access.accept_if_unchanged(row, "hello")
    yield "former_files", lambda: access.former_files(where)
    yield "undo_file", lambda: access.undo_file(where)
    yield "watch", lambda: access.watch(where, after=0)
    yield "renewed", lambda: access.renewed(row)
    yield "running", lambda: access.running(row)
    yield "holder", lambda: access.holder(row)
    yield "model", lambda: access.model("main")
    yield "models", lambda: access.models("main")
    yield "check_model", lambda: access.check_model("main", "")
    yield "model_of", lambda: access.model_of(where)
    yield "choose_model", lambda: access.choose_model(where, "")
    yield "remembered", lambda: access.remembered("main", "locker")
    yield "new", lambda: access.new(turnlog.core.keys.parse(HERS))
    yield "delivered_to", lambda: access.delivered_to(turnlog.core.keys.parse(HERS), "d1")


LOGS = {"ask", "send", "accept", "hear", "accept_retry", "history", "prompt", "append", "guard", "compact", "watch"}
LOGS |= {"approvals", "approve", "deny", "call", "stream"}
"""Verbs that read or write the log of the session."""
READING = {"session", "approvals", "history", "prompt", "limits", "recall", "watch", "running", "holder", "model"}
READING |= {"remembered", "former_files", "models", "check_model", "model_of"}


def test_every_verb_says_that_the_session_of_somebody_else_does_not_exist():
    async def main():
        async with opened() as t:
            ann, bob = t.acting_for(Principal("ann")), t.acting_for(Principal("bob", agents=frozenset({"ops"})))
            ticket = await ann.accept(HERS, "My locker is number 7.", dedupe_id="d1")
            assert [event async for event in ticket.follow()]
            row = (await ann.session(HERS)).row
            for where in (row, row.id, row.key, turnlog.core.keys.parse(row.key)):
                told = {name: await refusal(call) for name, call in calls(bob, row, where)}
                assert set(told.values()) == {NotFound}, told
            assert not await bob.stop_anywhere(row.id)
            assert await refusal(lambda: bob.allow("write_file")) == Denied
            assert (await t.session(row.id)).row == row
            assert (await t.sessions.list()).total == 1
            verbs = {name for name, _ in calls(bob, row, row)} | {"stop_anywhere", "sessions", "principal", "allow"}
            assert {name for name in dir(bob) if not name.startswith("_")} == verbs

    asyncio.run(main())


def test_one_who_may_only_read_changes_nothing():
    async def main():
        async with opened() as t:
            ann = t.acting_for(Principal("ann"))
            await talk(ann, HERS, "My locker is number 7.")
            row = (await ann.session(HERS)).row
            eve = t.acting_for(Principal("eve", frozenset({"read"})))
            for where in (row, row.id):
                told = {name: await refusal(call) for name, call in calls(eve, row, where)}
                assert told.pop("left_here") in (Denied, NotFound)  # whether a turn ran here is nobody's business
                assert told == {name: None if name in READING else Denied for name in told}
            with pytest.raises(Denied):
                await eve.stop_anywhere(row.id)
            with pytest.raises(Denied):
                await talk(eve, "agent:main:web:direct:eve", "a session of my own")
            assert (await t.session(row.id)).row == row
            assert (await t.sessions.list()).total == 1

    asyncio.run(main())


def test_a_row_that_was_made_up_leads_nowhere():
    async def main():
        async with opened() as t:
            row = (await t.acting_for(Principal("ann")).session(HERS)).row
            forged = turnlog.Session(id=row.id, key="agent:main:web:direct:bob", agent="main", channel="web")
            bob = t.acting_for(Principal("bob"))
            told = {name: await refusal(call) for name, call in calls(bob, forged, forged) if name in LOGS}
            assert None not in told.values(), told
            assert (await t.session(row.id)).row == row

    asyncio.run(main())


def test_a_ledger_that_was_handed_over_has_only_the_spaces_named():
    async def main():
        async with opened() as t:
            ledger = t.ledger("tokens", "cookies")
            assert await ledger.put_if_absent("tokens", "a", 1) is None
            assert await ledger.cas("tokens", "a", 1, 2)
            assert (await ledger.get("tokens", "a"), len(await ledger.list("tokens"))) == (2, 1)
            assert await ledger.delete("tokens", "a")
            for call in (
                ledger.get("selected", "a"),
                ledger.put_if_absent("selected", "a", 1),
                ledger.cas("selected", "a", None, 1),
                ledger.list("selected"),
                ledger.delete("selected", "a"),
            ):
                with pytest.raises(Denied):
                    await call

    asyncio.run(main())

"""The shortest program, with and without `await`: one engine, the same names and types, from any thread and loop."""

import ast
import asyncio
import contextlib
import inspect
import os
import re
import threading
import typing
from contextlib import AbstractAsyncContextManager

import pytest

import turnlog
from turnlog import NotFound, StoreUnavailable, UsageError
from turnlog.access import Access
from turnlog.sync.facade import without_await
from turnlog.testing import ScriptedProvider

LEFT_OUT = {
    *("accept", "accept_retry", "running", "on_turn"),  # for edges that keep a turn in a task
    *("agent", "memory", "ledger", "end_turns"),  # parts of the running object, which have loops
    *("close", "aclose"),  # the synchronous one closes the engine
}
PAIRS = [
    (turnlog.Sessions, turnlog.SyncSessions),
    (turnlog.SessionHandle, turnlog.SyncSessionHandle),
    (Access, turnlog.SyncAccess),
    (turnlog.Turnlog, turnlog.SyncTurnlog),
]
SYNC = dict(PAIRS)
VERBS = {
    *("ask", "send", "append", "history", "messages", "compact", "undo", "fork", "rewind", "retry", "pin", "unpin"),
    *("search", "explain", "export", "rename", "archive", "delete", "watch", "lease"),
}


def scripted(*replies):
    return ScriptedProvider([{"text": reply} if isinstance(reply, str) else reply for reply in replies])


def connected(*replies, url="memory:", **settings):
    return turnlog.connect(url, home="/nonexistent", provider=scripted(*replies), **settings)


def methods(kind):
    found = inspect.getmembers(kind, inspect.isfunction)
    return {name: method for name, method in found if not name.startswith("_")}


def plain(hint):
    """The type without `await`."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.get_origin(typing.AsyncIterator[int]), typing.get_origin(typing.AsyncGenerator[int, None])):
        return f"typing.Generator[{args[0]}]"
    if origin is AbstractAsyncContextManager:
        return f"typing.AbstractContextManager[{args[0]}]"
    return SYNC.get(hint, hint)


def shown(hint):
    return str(hint).replace("collections.abc.", "typing.").replace("contextlib.", "typing.")


@pytest.mark.parametrize(("kind", "sync"), PAIRS, ids=lambda kind: kind.__name__)
def test_both_worlds_have_the_same_methods_with_the_same_parameters_types_and_words(kind, sync):
    ours, theirs = methods(kind), methods(sync)
    assert set(ours) - LEFT_OUT == set(theirs) - LEFT_OUT
    for name in set(ours) - LEFT_OUT:
        mine, other = inspect.signature(ours[name]), inspect.signature(theirs[name])
        assert [str(one) for one in mine.parameters.values()] == [str(one) for one in other.parameters.values()], name
        assert without_await(ours[name].__doc__) == theirs[name].__doc__
        hints, others = typing.get_type_hints(ours[name]), typing.get_type_hints(theirs[name])
        if name != "lease":
            assert shown(plain(hints["return"])) == shown(others["return"]), name


@pytest.mark.parametrize("kind", [turnlog.SessionHandle, turnlog.SyncSessionHandle])
def test_a_handle_has_a_verb_for_everything_about_one_conversation(kind):
    assert set(methods(kind)) >= VERBS


def test_a_name_is_a_session_of_the_default_agent_that_is_made_at_its_first_use():
    with connected("Hello Ann.", "You are Ann.") as t:
        chat = t.session("ann")
        assert t.sessions.list().total == 0
        assert chat.ask("My name is Ann.") == "Hello Ann."
        assert [event.type for event in chat.send("And what is my name?")][-1] == "done"
        assert chat.key == "agent:main:app:direct:ann"
        assert chat.message_count == 4
        for name in (chat.id, chat.key, chat.row, chat, t.session(user="ann"), turnlog.core.keys.parse(chat.key)):
            assert t.session(name).id == chat.id
            assert len(t.history(name).messages) == 4


def test_text_from_outside_is_never_read_as_an_id_or_a_key():
    with connected("a", "b", "c") as t:
        secret = t.session("ann")
        secret.ask("My locker is 7.")
        for text in (secret.id, secret.key):
            stranger = t.session(user=text)
            assert stranger.id != secret.id
            assert stranger.messages() == []
        assert t.session(user="ann", agent="main", channel="web").key == "agent:main:web:direct:ann"


def test_wrong_names_of_sessions_are_errors_with_a_hint():
    with connected() as t:
        for wrong in ({}, {"where": "a", "user": "b"}, {"where": "a", "agent": "main"}, {"where": ""}, {"id": "a b"}):
            with pytest.raises(UsageError) as raised:
                t.session(**wrong)
            assert "t.session(" in raised.value.hint or "Session ids" in raised.value.hint
        with pytest.raises(NotFound) as raised:
            t.session("ses-1794909511239-v2lr7j").ask("hi")
        assert "t.session(user=" in raised.value.hint
        with pytest.raises(NotFound) as raised:
            t.session(id="ann").ask("hi")
        assert "t.session('ann')" in raised.value.hint
        with pytest.raises(NotFound):
            t.session("nobody").delete()
        assert t.sessions.list().total == 0


def test_every_verb_of_a_handle_does_its_work():
    with connected("one", "two", "three", "four", "a summary of it all") as t:
        chat = t.session("ann")
        for text in ("first question", "second question", "third question"):
            chat.ask(text)
        seqs = [message.seq for message in chat.messages()]
        assert chat.search("second")[0].seq == seqs[2]
        assert chat.pin(seqs[0]).pins
        assert chat.unpin(seqs[0]).pins == ()
        assert chat.rename("About questions").title == chat.title == "About questions"
        assert "second question" in chat.export("md")
        fork = chat.fork(at=seqs[1])
        assert (fork.message_count, chat.message_count) == (2, 6)
        chat.rewind(seqs[3])
        assert [message.seq for message in chat.messages()] == seqs[:4]
        with chat.lease() as lease:
            chat.append(turnlog.User(content="by hand"), turnlog.Assistant(content="stored"), lease=lease)
        assert len(chat.prompt().messages) == 6
        watching = chat.watch(after=chat.last_seq - 1)
        assert next(watching).content == "stored"
        watching.close()
        assert not chat.stop()
        old = chat.id
        assert chat.archive("done with it").status == "archived"
        assert chat.id != old
        chat.delete()
        with pytest.raises(NotFound):
            _ = t.session(id="no-such").row


def test_a_compaction_is_undone_on_the_handle():
    with connected(*["word " * 300] * 6, compaction_keep="turns:1") as t:
        chat = t.session("ann")
        for number in range(6):
            chat.ask(f"question {number}")
        assert chat.compact(dry_run=True).applied is False
        assert chat.compact().applied
        assert chat.compactions == 1
        assert "compacted" in {found.state for found in chat.explain()}
        assert len(chat.expand()) == 10
        chat.undo()
        assert chat.compactions == 0


def test_a_turn_that_failed_is_raised_by_ask_and_can_be_sent_again():
    with connected({"error": {"status": 401, "message": "no such key"}}, "now it works") as t:
        chat = t.session("ann")
        with pytest.raises(turnlog.ProviderError, match="no such key") as raised:
            chat.ask("hi")
        assert raised.value.hint
        assert [event.type for event in chat.retry()][-1] == "done"


def test_it_works_from_many_threads_at_once():
    found = {}
    with connected() as t:

        def talk(name):
            chat = t.session(name)
            found[name] = [chat.ask(f"{name} {number}") for number in range(3)] and chat.message_count

        threads = [threading.Thread(target=talk, args=(f"user {number}",)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(found.values()) == {6}
        assert t.sessions.list().total == 8


def test_it_works_inside_a_running_loop():
    async def main():
        with connected("yes") as t:
            assert t.session("ann").ask("Is a loop running?") == "yes"

    asyncio.run(main())


def test_after_a_close_and_in_a_forked_child_it_says_what_to_do():
    t = connected("hi")
    chat = t.session("ann")
    child = os.fork()
    if not child:
        try:
            chat.ask("hi")
        except StoreUnavailable as error:
            os._exit(42 if "turnlog.connect()" in error.hint else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    t.close()
    t.close()
    for use in (lambda: chat.ask("hi"), lambda: list(chat.send("hi")), lambda: chat.title, lambda: t.sessions.list()):
        with pytest.raises(StoreUnavailable) as raised:
            use()
        assert "turnlog.connect()" in raised.value.hint


def test_the_same_with_await():
    async def main():
        t = await turnlog.aconnect("memory:", home="/nonexistent", provider=scripted("Hello.", "Ann."))
        assert await t.session("ann").ask("My name is Ann.") == "Hello."
        chat = t.session("ann")
        with pytest.raises(UsageError, match="not opened"):
            _ = chat.title
        assert (await chat) is chat
        assert chat.title == "My name is Ann."
        async with chat.lease() as lease:
            await chat.append(turnlog.User(content="x"), turnlog.Assistant(content="y"), lease=lease)
        assert [event.type async for event in chat.send("Who am I?")][-1] == "done"
        assert not hasattr(chat, "no_such_thing")
        await asyncio.create_task(t.aclose())  # in another task than the one that opened it
        await t.aclose()
        with pytest.raises(StoreUnavailable):
            await chat.ask("hi")

    asyncio.run(main())


def test_a_stop_from_another_thread_is_raised_by_ask():
    waiting = threading.Event()

    def wait() -> str:
        """Waits."""
        waiting.set()
        return threading.Event().wait(0.2) or "over"

    call = {"tool_calls": [{"id": "c", "name": "wait", "input": {}}]}
    with connected(call, "never", tools=[wait]) as t:
        chat = t.session("ann")
        failures = []

        def ask():
            try:
                chat.ask("wait for it")
            except turnlog.TurnStopped as stopped:
                failures.append(stopped)

        asking = threading.Thread(target=ask)
        asking.start()
        waiting.wait(60)
        assert chat.stop()
        asking.join()
        assert failures


def test_public_names_are_listed_before_they_are_used():
    assert {"connect", "aconnect", "open", "TextDelta", "Done", "History", "Query", "Session"} <= set(dir(turnlog))
    assert dir(turnlog) == sorted(turnlog.__all__)


EXAMPLE = re.compile(r"Example: `(.+?)`\s*$", re.DOTALL)
FUNCTIONS = [turnlog.open, turnlog.connect, turnlog.aconnect, turnlog.open_store, turnlog.copy, turnlog.tool]
FIRST = {
    "retry": "await fail()",
    "discard": "await fail()",
    "undo": "await chat.compact()",
    "expand": "await chat.compact()",
    "unpin": "await chat.pin(3)",
}
"""What has to happen before an example can run."""


def example_of(function):
    found = EXAMPLE.search(function.__doc__ or "")
    assert found, f"{function.__qualname__} has no example"
    return found[1]


async def run(code, names):
    result = eval(compile(code, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if inspect.iscoroutine(result):
        await result


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_every_public_function_has_an_example_that_runs(function, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TURNLOG_HOME", str(tmp_path))
    monkeypatch.setenv("TURNLOG_MODEL_NAME", "offline")
    asyncio.run(run(example_of(function), {"turnlog": turnlog, "open_store": turnlog.open_store}))


@pytest.mark.parametrize("name", sorted(methods(turnlog.SessionHandle)))
def test_every_verb_of_a_handle_has_an_example_that_runs_in_both_worlds(name):
    replies = ["word " * 300] * 3
    error = {"error": {"status": 401, "message": "no key"}}
    settings = {"home": "/nonexistent", "compaction_keep": "turns:1"}
    allowed = turnlog.TurnlogError if name in ("approve", "deny") else ()  # no call waits for them here

    async def with_await():
        async with turnlog.open("memory:", provider=scripted(*replies, error, "ok"), **settings) as t:
            chat = t.session("ann")
            for text in ("My name is Ann.", "I like tea.", "Good."):
                await chat.ask(text)

            async def fail():
                assert [event.type async for event in chat.send("x")][-1] == "error"

            names = {"t": t, "chat": chat, "fail": fail}
            await run(FIRST.get(name, "pass"), names)
            with contextlib.suppress(allowed):
                await run(example_of(methods(turnlog.SessionHandle)[name]), names)

    if name in ("ask", "send"):
        error = "Ann."
    asyncio.run(with_await())
    if name not in FIRST:
        with turnlog.connect("memory:", provider=scripted(*replies, "ok"), **settings) as t:
            chat = t.session("ann")
            for text in ("My name is Ann.", "I like tea.", "Good."):
                chat.ask(text)
            with contextlib.suppress(allowed):
                exec(example_of(methods(turnlog.SyncSessionHandle)[name]), {"t": t, "chat": chat})

"""Google's ADK on a Turnlog store: one suite of rules for its own in-memory service and for ours on every store, random
calls on both, writers at once, and what goes beyond it."""

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings, strategies as st

import turnlog
from turnlog.core.entries import Assistant, Compaction, Facts, Foreign, ToolResult, Undo, User
from turnlog.errors import TurnlogError, UsageError

from .. import warm
from ..stores import postgres

pytest.importorskip("google.adk", reason="needs google-adk (requirements/test.txt)")

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types
from google.genai.errors import ClientError
from pydantic import Field

from turnlog.adapters import adk_sessions
from turnlog.adapters.adk_events import entry_of, event_of
from turnlog.adapters.adk_sessions import AdkSessions
from turnlog.adapters.fitting import fit
from turnlog.adapters.google_adk import (
    StaleSessionError,
    TurnlogPlugin,
    TurnlogSessionService,
    register_session_service,
)
from turnlog.core.guard import Limits

WHO = {"app_name": "weather", "user_id": "ann"}
URLS = ("memory", "sqlite", "jsonl", "postgresql")


RULES_OF = (2, 13)
"""The version whose own service follows the rules that are tested here. Ours follows them with every version."""


def needs_the_rules():
    found = version("google-adk")
    if tuple(map(int, found.split(".")[:2])) < RULES_OF:
        pytest.skip(f"the own service of google-adk {found} breaks some of these rules")


def run(work):
    return asyncio.run(work)


def url_of(kind, folder):
    match kind:
        case "memory":
            return "memory:"
        case "postgresql":
            return postgres.url_of(folder)
        case _:
            return f"{kind}:{folder}/store"


@pytest.fixture(params=["theirs", *URLS])
def service(request, tmp_path):
    if request.param == "theirs":
        needs_the_rules()
        yield InMemorySessionService()
        return
    ours = TurnlogSessionService(url_of(request.param, tmp_path))
    yield ours
    ours.holder.close()


@pytest.fixture(params=["sqlite", "jsonl", "postgresql"])
def url(request, tmp_path):
    return url_of(request.param, tmp_path)


def said(text, author="user", at=None, **more):
    content = types.Content(role="user" if author == "user" else "model", parts=[types.Part(text=text)])
    time = {} if at is None else {"timestamp": at}
    return Event(author=author, invocation_id="i1", content=content, **time, **more)


def changes(at=None, **delta):
    named = {name.replace("__", ":"): value for name, value in delta.items()}
    time = {} if at is None else {"timestamp": at}
    return Event(author="bot", invocation_id="i1", actions=EventActions(state_delta=named), **time)


def plain(session):
    return session and session.model_dump(mode="json", exclude={"last_update_time"})


class TestRules:
    """What every session service of ADK does, however it stores."""

    def test_a_created_session_is_found_with_its_state_and_no_events(self, service):
        async def main():
            made = await service.create_session(**WHO, session_id="s1", state={"n": 1, "x": [None, {"y": "z"}]})
            found = await service.get_session(**WHO, session_id="s1")
            assert plain(found) == plain(made)
            assert (found.id, found.events, found.state) == ("s1", [], {"n": 1, "x": [None, {"y": "z"}]})
            assert found.last_update_time == made.last_update_time > 0

        run(main())

    def test_a_name_in_a_state_may_have_half_a_character(self, service):
        state = {"\ud800": 1, "user:\udfff": {"\ud83d": [{"\ude00": 2}]}}

        async def main():
            await service.create_session(**WHO, session_id="s1", state=state)
            found = await service.get_session(**WHO, session_id="s1")
            assert found.state == state

        run(main())

    def test_a_session_without_an_id_gets_a_new_one(self, service):
        async def main():
            ids = {(await service.create_session(**WHO, session_id=given)).id for given in (None, "", "  ")}
            assert len(ids) == 3
            assert all(ids)

        run(main())

    def test_an_id_is_stripped_and_exists_once(self, service):
        async def main():
            assert (await service.create_session(**WHO, session_id=" s1 ")).id == "s1"
            with pytest.raises(AlreadyExistsError):
                await service.create_session(**WHO, session_id="s1")
            assert (await service.get_session(**WHO, session_id=" s1 ")).id == "s1"

        run(main())

    def test_the_same_id_of_another_user_or_app_is_another_session(self, service):
        async def main():
            await service.create_session(**WHO, session_id="s1", state={"who": "ann"})
            await service.create_session(app_name="weather", user_id="bob", session_id="s1", state={"who": "bob"})
            await service.create_session(app_name="news", user_id="ann", session_id="s1", state={"who": "news"})
            found = await service.get_session(**WHO, session_id="s1")
            assert found.state == {"who": "ann"}

        run(main())

    def test_a_session_that_does_not_exist_is_none(self, service):
        async def main():
            assert await service.get_session(**WHO, session_id="s1") is None
            assert (await service.list_sessions(**WHO)).sessions == []

        run(main())

    def test_events_come_back_equal_and_in_order(self, service):
        async def main():
            session = await service.create_session(**WHO, session_id="s1")
            events = [said("hello"), said("hi", "bot"), said("again", at=1.5), said("earlier", "bot", at=1.0)]
            for event in events:
                assert await service.append_event(session, event) is event
            found = await service.get_session(**WHO, session_id="s1")
            assert found.events == session.events == events

        run(main())

    def test_events_of_one_time_stay_in_the_order_of_their_appends(self, service):
        async def main():
            session = await service.create_session(**WHO, session_id="s1")
            for number in range(12):
                await service.append_event(session, said(str(number), at=7.0))
            found = await service.get_session(**WHO, session_id="s1")
            assert [event.content.parts[0].text for event in found.events] == [str(n) for n in range(12)]

        run(main())

    def test_the_time_of_the_last_update_is_that_of_the_last_event(self, service):
        async def main():
            session = await service.create_session(**WHO, session_id="s1")
            await service.append_event(session, said("hello", at=12.25))
            found = await service.get_session(**WHO, session_id="s1")
            assert found.last_update_time == session.last_update_time == 12.25

        run(main())

    def test_partial_events_are_not_stored(self, service):
        async def main():
            session = await service.create_session(**WHO, session_id="s1")
            event = said("hel", "bot", partial=True)
            assert await service.append_event(session, event) is event
            assert session.events == (await service.get_session(**WHO, session_id="s1")).events == []

        run(main())

    def test_an_event_that_is_delivered_again_is_stored_once(self, service):
        async def main():
            session = await service.create_session(**WHO, session_id="s1")
            event = said("hello")
            await service.append_event(session, event)
            await service.append_event(session, event.model_copy(deep=True))
            copy = await service.get_session(**WHO, session_id="s1", config=GetSessionConfig(num_recent_events=0))
            await service.append_event(copy, event.model_copy(deep=True))
            assert len((await service.get_session(**WHO, session_id="s1")).events) == 1

        run(main())

    def test_a_delta_changes_its_keys_and_leaves_the_others(self, service):
        async def main():
            session = await service.create_session(**WHO, session_id="s1", state={"a": 1, "b": 2})
            await service.append_event(session, changes(b=None, c={"d": [1.5, True]}))
            assert session.state == {"a": 1, "b": None, "c": {"d": [1.5, True]}}
            assert (await service.get_session(**WHO, session_id="s1")).state == session.state

        run(main())

    def test_state_of_the_app_is_everyones(self, service):
        async def main():
            session = await service.create_session(**WHO, session_id="s1", state={"app:unit": "C"})
            await service.append_event(session, changes(app__theme="dark"))
            other = await service.create_session(app_name="weather", user_id="bob", session_id="s2")
            assert other.state == {"app:unit": "C", "app:theme": "dark"}
            assert (await service.create_session(app_name="news", user_id="ann")).state == {}

        run(main())

    def test_state_of_a_user_is_in_all_sessions_of_that_user_and_app(self, service):
        async def main():
            session = await service.create_session(**WHO, session_id="s1", state={"user:name": "Ann"})
            later = await service.create_session(**WHO, session_id="s2")
            await service.append_event(session, changes(user__city="Paris"))
            found = await service.get_session(**WHO, session_id=later.id)
            assert found.state == {"user:name": "Ann", "user:city": "Paris"}
            assert (await service.create_session(app_name="weather", user_id="bob")).state == {}

        run(main())

    def test_state_of_a_user_can_be_read_without_a_session(self, service):
        async def main():
            assert await service.get_user_state(**WHO) == {}
            await service.create_session(**WHO, state={"user:name": "Ann", "n": 1, "app:x": 2})
            assert await service.get_user_state(**WHO) == {"name": "Ann"}

        run(main())

    def test_temporary_state_is_seen_by_the_caller_and_not_stored(self, service):
        async def main():
            session = await service.create_session(**WHO, session_id="s1", state={"temp:a": 1})
            assert "temp:a" not in session.state
            event = await service.append_event(session, changes(temp__b=2, c=3))
            assert session.state["temp:b"] == 2
            assert event.actions.state_delta == {"c": 3}
            assert (await service.get_session(**WHO, session_id="s1")).state == {"c": 3}

        run(main())

    def test_only_the_newest_events_are_given_if_so_many_are_wanted(self, service):
        async def main():
            session = await service.create_session(**WHO, session_id="s1", state={"n": 1})
            for number in range(9):
                await service.append_event(session, said(str(number), at=float(number)))
            for wanted in (0, 1, 4, 9, 50):
                found = await service.get_session(
                    **WHO, session_id="s1", config=GetSessionConfig(num_recent_events=wanted)
                )
                assert [event.timestamp for event in found.events] == [float(n) for n in range(9)][9 - min(wanted, 9) :]
                assert found.state == {"n": 1}

        run(main())

    def test_only_events_since_a_time_are_given_if_wanted(self, service):
        async def main():
            session = await service.create_session(**WHO, session_id="s1")
            for number in range(9):
                await service.append_event(session, said(str(number), at=float(number)))
            for since, recent, left in ((4.0, None, 5), (4.5, None, 4), (99.0, None, 0), (4.0, 2, 2), (7.5, 4, 1)):
                config = GetSessionConfig(after_timestamp=since, num_recent_events=recent)
                found = await service.get_session(**WHO, session_id="s1", config=config)
                assert len(found.events) == left

        run(main())

    def test_sessions_are_listed_without_events_the_oldest_update_first(self, service):
        async def main():
            for number, name in enumerate(("b", "a", "c")):
                session = await service.create_session(**WHO, session_id=name, state={"name": name, "user:u": 1})
                await service.append_event(session, said("hello", at=100.0 - number))
            found = (await service.list_sessions(**WHO)).sessions
            assert [one.id for one in found] == ["c", "a", "b"]
            assert [one.events for one in found] == [[], [], []]
            assert found[0].state == {"name": "c", "user:u": 1}
            assert found[0].last_update_time == 98.0

        run(main())

    def test_sessions_of_one_user_or_of_all_are_listed(self, service):
        async def main():
            for user in ("ann", "an", "bob"):
                session = await service.create_session(app_name="weather", user_id=user, state={"user:me": user})
                await service.append_event(session, said("hello", at=1.0))
            await service.create_session(app_name="weather2", user_id="ann")
            assert [one.user_id for one in (await service.list_sessions(**WHO)).sessions] == ["ann"]
            everyone = (await service.list_sessions(app_name="weather")).sessions
            assert [(one.user_id, one.state["user:me"]) for one in everyone] == [(u, u) for u in ("an", "ann", "bob")]

        run(main())

    def test_a_deleted_session_is_gone_and_its_users_state_stays(self, service):
        async def main():
            session = await service.create_session(**WHO, session_id="s1", state={"user:name": "Ann", "n": 1})
            await service.append_event(session, said("hello"))
            await service.delete_session(**WHO, session_id=" s1 ")
            await service.delete_session(**WHO, session_id="s1")
            assert await service.get_session(**WHO, session_id="s1") is None
            again = await service.create_session(**WHO, session_id="s1")
            assert (again.events, again.state) == ([], {"user:name": "Ann"})

        run(main())

    def test_a_session_that_was_deleted_takes_no_event(self, service):
        async def main():
            session = await service.create_session(**WHO, session_id="s1")
            await service.delete_session(**WHO, session_id="s1")
            with pytest.raises(SessionNotFoundError):
                await service.append_event(session, said("hello"))
            with pytest.raises(SessionNotFoundError):
                await service.append_event(Session(id="never", **WHO), said("hello"))

        run(main())

    def test_a_copy_is_the_callers_own(self, service):
        async def main():
            session = await service.create_session(**WHO, session_id="s1", state={"a": [1]})
            await service.append_event(session, said("hello"))
            copy = await service.get_session(**WHO, session_id="s1")
            copy.state["a"].append(2)
            copy.events.clear()
            found = await service.get_session(**WHO, session_id="s1")
            assert (found.state, len(found.events)) == ({"a": [1]}, 1)

        run(main())

    def test_sessions_of_a_list_share_nothing(self, service):
        async def main():
            await service.create_session(**WHO, session_id="s1", state={"user:a": [1], "app:a": [1]})
            await service.create_session(**WHO, session_id="s2")
            first, second = (await service.list_sessions(**WHO)).sessions
            first.state["user:a"].append(2)
            first.state["app:a"].append(2)
            assert second.state == {"user:a": [1], "app:a": [1]}

        run(main())

    def test_ids_may_hold_any_text(self, service):
        async def main():
            names = ["%user", "%app", "%%user", "a:b", "a/b", "ü 中", "thread", "'; drop table", "A", "a"]
            for name in names:
                made = await service.create_session(app_name=name, user_id=name, session_id=name, state={"n": name})
                await service.append_event(made, changes(user__n=name, app__n=name))
            for name in names:
                found = await service.get_session(app_name=name, user_id=name, session_id=name)
                assert found.state == {"n": name, "user:n": name, "app:n": name}
                assert [one.id for one in (await service.list_sessions(app_name=name)).sessions] == [name]

        run(main())

    def test_events_of_one_session_at_once_are_all_stored(self, service):
        async def main():
            session = await service.create_session(**WHO, session_id="s1")
            await asyncio.gather(*(service.append_event(session, changes(**{f"k{n}": n})) for n in range(8)))
            found = await service.get_session(**WHO, session_id="s1")
            assert len(found.events) == 8
            assert found.state == {f"k{n}": n for n in range(8)}

        run(main())


NAME = st.sampled_from(["s1", "s2"])
KEY = st.sampled_from(["a", "b", "user:a", "user:b", "app:a", "temp:a", ""]) | st.text(st.characters(), max_size=5)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
) | st.text(st.characters(), max_size=8)
STATE = st.dictionaries(KEY, VALUE, max_size=3)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON = st.dictionaries(WORDS, st.none() | st.integers(0, 9) | WORDS | st.lists(WORDS, max_size=2), max_size=3)
PART = st.one_of(
    st.builds(types.Part, text=WORDS),
    st.builds(types.Part, text=WORDS, thought=st.just(True), thought_signature=st.binary(max_size=4)),
    st.builds(
        lambda name, args: types.Part(function_call=types.FunctionCall(id=name, name="f", args=args)),
        st.sampled_from(["c1", "c2", None]),
        JSON,
    ),
    st.builds(
        lambda name, given: types.Part(function_response=types.FunctionResponse(id=name, name="f", response=given)),
        st.sampled_from(["c1", "c2", None]),
        JSON | st.builds(lambda text: {"result": text}, WORDS) | st.builds(lambda text: {"error": text}, WORDS),
    ),
    st.builds(
        lambda kind, data: types.Part(inline_data=types.Blob(mime_type=kind, data=data)),
        st.sampled_from(["image/png", "audio/wav"]),
        st.binary(max_size=6),
    ),
    st.builds(
        lambda: types.Part(
            executable_code=types.ExecutableCode(code="1", language=types.Language.PYTHON),
        )
    ),
)
CONTENT = st.none() | st.builds(
    types.Content,
    role=st.sampled_from(["user", "model"]),
    parts=st.none() | st.lists(PART, max_size=3),
)
EVENT = st.builds(
    Event,
    author=st.sampled_from(["user", "bot"]),
    invocation_id=WORDS,
    content=CONTENT,
    actions=st.builds(EventActions, state_delta=STATE, transfer_to_agent=st.none() | WORDS),
    long_running_tool_ids=st.none() | st.sets(WORDS, max_size=2),
    timestamp=st.floats(0, 2e9),
    branch=st.none() | WORDS,
    error_code=st.none() | WORDS,
    turn_complete=st.none() | st.booleans(),
)
STEP = st.one_of(
    st.tuples(st.just("create"), NAME, STATE),
    st.tuples(st.just("append"), NAME, EVENT),
    st.tuples(st.just("append"), NAME, EVENT),
    st.tuples(st.just("delete"), NAME, st.none()),
    st.tuples(st.just("get"), NAME, st.none() | st.integers(0, 4)),
    st.tuples(st.just("again"), NAME, st.integers(0, 20)),
    st.tuples(st.just("list"), NAME, st.none()),
)


async def do(service, copies, name, session_id, value):
    """What one call gives, as JSON."""
    match name:
        case "create":
            try:
                copies[session_id] = await service.create_session(**WHO, session_id=session_id, state=value)
            except AlreadyExistsError:
                return "exists"
            return plain(copies[session_id])
        case "append":
            if session_id not in copies:
                return None
            try:
                event = await service.append_event(copies[session_id], value.model_copy(deep=True))
            except SessionNotFoundError:
                return "not found"
            return event.model_dump(mode="json"), plain(copies[session_id])
        case "again":
            whole = await service.get_session(**WHO, session_id=session_id)
            if not whole or not whole.events:
                return None
            config = GetSessionConfig(num_recent_events=value % 3)
            copy = await service.get_session(**WHO, session_id=session_id, config=config)
            await service.append_event(copy, whole.events[value % len(whole.events)])
            return plain(await service.get_session(**WHO, session_id=session_id))
        case "delete":
            return await service.delete_session(**WHO, session_id=session_id)
        case "get":
            config = None if value is None else GetSessionConfig(num_recent_events=value)
            return plain(await service.get_session(**WHO, session_id=session_id, config=config))
        case _:
            found = (await service.list_sessions(**WHO)).sessions
            return sorted((plain(one) for one in found), key=lambda one: one["id"])


def compare(url, steps):
    async def main():
        needs_the_rules()
        ours, theirs = TurnlogSessionService(url), InMemorySessionService()
        my, other = {}, {}
        try:
            for step in steps:
                assert await do(ours, my, *step) == await do(theirs, other, *step)
        finally:
            await ours.close()

    run(main())


@settings(max_examples=25)
@given(st.lists(STEP, max_size=14), st.sampled_from([1, 3, 16]))
@example([("create", "s2", {"a": 1, "\ud800": 1, "user:\ud800": 2}), ("get", "s2", None)], 16)
def test_the_same_calls_give_the_same_answers_as_adks_own_service(steps, listed_together):
    with patch.object(adk_sessions, "LISTED_TOGETHER", listed_together):
        compare("memory:", [("create", "s1", {}), *steps])


@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "postgresql"])
@settings(max_examples=2)
@given(steps=st.lists(STEP, min_size=15, max_size=25))
def test_the_same_calls_give_the_same_answers_on_disk(kind, steps):
    with tempfile.TemporaryDirectory() as folder:
        compare(url_of(kind, folder), [("create", "s1", {}), *steps])


@settings(max_examples=60)
@given(EVENT)
def test_an_event_and_its_entry_are_equal(event):
    stored = event.model_dump(mode="json", exclude_none=True)
    entry = entry_of(json.loads(json.dumps(stored)))
    assert event_of(entry) == stored
    assert Event.model_validate(event_of(entry)) == Event.model_validate(stored)


def test_parts_of_an_event_are_messages_and_words_are_stored_once():
    call = types.FunctionCall(id="c1", name="weather", args={"city": "Paris"})
    result = types.FunctionResponse(id="c1", name="weather", response={"result": "sunny"})
    both = [types.Part(function_response=result), types.Part(function_response=result)]
    events = [
        said("hello"),
        Event(author="bot", content=types.Content(role="model", parts=[types.Part(function_call=call)])),
        Event(author="bot", content=types.Content(role="user", parts=both[:1])),
        Event(author="bot", content=types.Content(role="user", parts=both)),
        changes(n=1),
    ]
    entries = [entry_of(event.model_dump(mode="json", exclude_none=True)) for event in events]
    assert [type(entry) for entry in entries] == [User, Assistant, ToolResult, User, Foreign]
    assert entries[1].content == [{"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Paris"}}]
    assert (entries[2].tool_use_id, entries[2].content) == ("c1", "sunny")
    assert not any("hello" in json.dumps(entry.raw) for entry in entries[:1])
    assert not any("sunny" in json.dumps(entry.raw) for entry in entries[2:3])


def test_a_copy_that_is_out_of_date_is_refused_and_changes_nothing(url):
    async def main():
        service = TurnlogSessionService(url)
        one = await service.create_session(**WHO, session_id="s1")
        two = await service.get_session(**WHO, session_id="s1")
        await service.append_event(one, said("first"))
        with pytest.raises(StaleSessionError, match="modified in storage") as raised:
            await service.append_event(two, changes(user__n=1, n=1))
        assert isinstance(raised.value, TurnlogError)
        assert isinstance(raised.value, ValueError)
        assert raised.value.hint
        assert two.events == []
        found = await service.get_session(**WHO, session_id="s1")
        assert (len(found.events), found.state) == (1, {})
        await service.append_event(two, changes(n=2), retry=True)
        assert [len(two.events), two.state] == [2, {"n": 2}]
        with pytest.raises(ValueError, match="modified in storage"):
            await service.append_event(one, said("stale"))
        by_hand = Session(id="s1", **WHO)
        with pytest.raises(StaleSessionError):
            await service.append_event(by_hand, said("stale"))
        by_hand.events = list(two.events)
        await service.append_event(by_hand, said("third"))
        assert len((await service.get_session(**WHO, session_id="s1")).events) == 3
        await service.close()

    run(main())


async def append_as_before(t, events):
    """As versions before decision 79 did: all fields of an event, and for each event its head and its id."""
    [row] = (await t.sessions.list()).items
    for count, event in enumerate(events, 1):
        body = entry_of(event.model_dump(mode="json", exclude_none=True))
        put = {"h": [event.timestamp, count], f"e|{event.id}": True}
        await t.store.append(row.id, [body, Facts(app="google-adk", put=put)], lease="own")


def test_sessions_of_an_older_version_are_read_and_continued(url):
    async def main():
        service = TurnlogSessionService(url)
        await service.create_session(**WHO, session_id="s1")
        before = [said(f"before {n}", at=float(n + 1)) for n in range(3)]
        async with turnlog.open(url) as t:
            await append_as_before(t, before)
        session = await service.get_session(**WHO, session_id="s1")
        assert (session.events, session.last_update_time) == (before, 3.0)
        part = await service.get_session(**WHO, session_id="s1", config=GetSessionConfig(num_recent_events=1))
        await service.append_event(part, before[0].model_copy(deep=True))
        new = [said("new", at=2.5), changes(n=1, at=9.0)]
        for event in new:
            await service.append_event(session, event)
        with pytest.raises(StaleSessionError):
            await service.append_event(part, said("stale"))
        found = await service.get_session(**WHO, session_id="s1")
        assert (found.events, found.last_update_time, found.state) == ([*before, *new], 9.0, {"n": 1})
        await service.close()

    run(main())


def test_fields_that_every_new_event_has_are_not_stored(tmp_path):
    async def main():
        service = TurnlogSessionService(f"sqlite:{tmp_path}/a.db")
        session = await service.create_session(**WHO, session_id="s1")
        actions = EventActions(escalate=False)
        given = [said("plain"), said("with actions", actions=actions), said("in a workflow", node_path="a/b")]
        for event in given:
            await service.append_event(session, event)
        assert (await service.get_session(**WHO, session_id="s1")).events == given
        async with turnlog.open(f"sqlite:{tmp_path}/a.db") as t:
            [row] = (await t.sessions.list()).items
            stored = [entry.raw["google_adk"] for entry in await t.store.read(row.id) if isinstance(entry, User)]
        assert ["actions" in one for one in stored] == [False, True, False]
        assert ["node_info" in one for one in stored] == [False, False, True]
        await service.close()

    run(main())


async def texts_of(service):
    whole = await service.get_session(**WHO, session_id="s1")
    return [event.content.parts[0].text for event in whole.events]


def test_any_event_that_is_delivered_again_to_a_partial_copy_is_stored_once(url):
    async def main():
        service = TurnlogSessionService(url)
        session = await service.create_session(**WHO, session_id="s1")
        events = [said(f"{n}", at=float(n % 7)) for n in range(40)]  # their times are no order
        for event in events:
            await service.append_event(session, event)
        recent = GetSessionConfig(num_recent_events=1)
        part = await service.get_session(**WHO, session_id="s1", config=recent)
        for event in events:
            await service.append_event(part, event.model_copy(deep=True))
        assert len(part.events) == 1
        other = said("other", at=events[3].timestamp)
        other.id = events[3].id
        await service.append_event(part, other)  # it has an id that is there, and is not the same
        await service.append_event(part, other.model_copy(deep=True))
        assert await texts_of(service) == [*(f"{n}" for n in range(40)), "other"]
        await service.close()

    run(main())


def test_an_event_that_is_delivered_twice_at_once_is_stored_once(url):
    async def main():
        service = TurnlogSessionService(url)
        session = await service.create_session(**WHO, session_id="s1")
        for number in range(5):
            event = said(f"{number}")
            copies = [event, event.model_copy(deep=True), event.model_copy(deep=True)]
            await asyncio.gather(*(service.append_event(session, copy) for copy in copies))
        assert await texts_of(service) == [event.content.parts[0].text for event in session.events]
        assert len(session.events) == 5
        await service.close()

    run(main())


def test_an_event_is_one_entry_and_ids_are_listed_together(tmp_path):
    async def main():
        service = TurnlogSessionService(f"sqlite:{tmp_path}/a.db")
        session = await service.create_session(**WHO, session_id="s1")
        async with turnlog.open(f"sqlite:{tmp_path}/a.db") as t:
            [row] = (await t.sessions.list()).items
            before = (await t.store.describe(row.id)).last_seq
            for number in range(40):
                await service.append_event(session, said(f"{number}"))
            entries = await t.store.read(row.id, after=before)
            assert [len(one.put) for one in entries if isinstance(one, Facts)] == [18, 18]
            facts = await t.store.facts(row.id, "google-adk", prefix="e|")
            await service.append_event(session, changes(n=1))
            assert len(await t.store.facts(row.id, "google-adk", prefix="e|")) == 41
        stored = {one.seq: event_of(one)["id"] for one in entries if event_of(one)}
        assert [one.id for one in session.events[:40]] == list(stored.values())
        assert {one.key: one.value for one in facts} == {f"e|{one}": seq for seq, one in [*stored.items()][:34]}
        await service.close()

    run(main())


def test_the_last_update_is_known_without_reading_events(url):
    async def main():
        service = TurnlogSessionService(url)
        for name, times in (("s1", [5.0]), ("s2", [9.0, 4.0]), ("s3", [*map(float, range(30)), 6.0])):
            session = await service.create_session(**WHO, session_id=name)
            for at in times:
                await service.append_event(session, said("hello", at=at))
        listed = (await service.list_sessions(**WHO)).sessions
        assert [(one.id, one.last_update_time) for one in listed] == [("s2", 4.0), ("s1", 5.0), ("s3", 6.0)]
        for count in (0, 1):
            config = GetSessionConfig(num_recent_events=count)
            found = await service.get_session(**WHO, session_id="s3", config=config)
            assert found.last_update_time == 6.0
        await service.append_event(listed[0], said("more", at=7.0))
        await service.close()

    run(main())


def test_an_event_after_a_title_makes_a_copy_stale_and_so_does_an_erased_one(url):
    async def main():
        service, other = TurnlogSessionService(url), TurnlogSessionService(url)
        session = await service.create_session(**WHO, session_id="s1")
        for redact in (False, True):
            copy = await other.get_session(**WHO, session_id="s1")
            async with turnlog.open(url) as t:
                [row] = (await t.sessions.list()).items
                await t.sessions.rename(row.id, "Greetings")
                await service.append_event(session, said("first"))
                if redact:
                    last = [entry.seq for entry in await t.store.read(row.id) if isinstance(entry, User)][-1]
                    await t.store.erase(row.id, [last], redact=True)
                await t.sessions.rename(row.id, "More greetings")
            with pytest.raises(StaleSessionError):
                await other.append_event(copy, said("stale"))
        assert await texts_of(service) == ["first"]
        await service.close()
        await other.close()

    run(main())


def test_titles_of_turnlog_do_not_make_a_copy_stale(tmp_path):
    async def main():
        service = TurnlogSessionService(f"sqlite:{tmp_path}/a.db")
        session = await service.create_session(**WHO, session_id="s1")
        await service.append_event(session, said("hello"))
        async with turnlog.open(f"sqlite:{tmp_path}/a.db") as t:
            [row] = [row for row in (await t.sessions.list()).items if row.message_count]
            await t.sessions.rename(row.id, "Greetings")
        await service.append_event(session, said("more"))
        await service.close()

    run(main())


def test_a_copy_that_was_made_from_json_can_be_continued(url):
    async def main():
        service = TurnlogSessionService(url)
        session = await service.create_session(**WHO, session_id="s1")
        for n in range(3):
            session = Session.model_validate_json(session.model_dump_json())
            await service.append_event(session, said(f"q{n}", at=10.0 + n))

        async def compact(t):
            log = service.sessions.log_of(_key("s1"))
            row = await log.find(t)
            body = Compaction(summary="They asked.", first_kept=row.last_seq, covers=(2, row.last_seq - 1))
            await log.append(t, [body], row=row)

        await service.holder.call(compact)
        before = Session.model_validate_json(session.model_dump_json())
        whole = Session.model_validate_json((await service.get_session(**WHO, session_id="s1")).model_dump_json())
        assert whole.events[-1].actions.compaction
        await service.append_event(whole, said("after the compaction", at=20.0))
        [listed] = (await service.list_sessions(**WHO)).sessions
        await service.append_event(Session.model_validate_json(listed.model_dump_json()), said("listed", at=21.0))
        for stale in (before, Session.model_validate_json(listed.model_dump_json())):
            with pytest.raises(StaleSessionError):
                await service.append_event(stale, said("late", at=22.0))
        await service.close()

    run(main())


def test_a_rewind_of_turnlogs_makes_a_copy_stale(url):
    async def main():
        service = TurnlogSessionService(url)
        session = await service.create_session(**WHO, session_id="s1")
        for n in range(3):
            await service.append_event(session, said(f"q{n}", at=10.0 + 2 * n))
            await service.append_event(session, said(f"a{n}", "bot", at=11.0 + 2 * n))

        async def rewind(t):
            row = await service.sessions.log_of(_key("s1")).find(t)
            await t.sessions.rewind(row.id, row.last_seq - 2)

        await service.holder.call(rewind)
        with pytest.raises(StaleSessionError):
            await service.append_event(session, said("on a copy with a2", "bot", at=20.0))
        await service.append_event(session, said("on the newest", at=21.0), retry=True)
        assert words_of(session) == ["q0", "a0", "q1", "a1", "on the newest"]
        assert words_of(await service.get_session(**WHO, session_id="s1")) == words_of(session)
        await service.close()

    run(main())


def words_of(session):
    return [event.content.parts[0].text for event in session.events]


def test_a_session_that_another_service_has_created_anew_takes_an_event_at_once(url):
    async def main():
        mine, other = TurnlogSessionService(url), TurnlogSessionService(url)
        old = await mine.create_session(**WHO, session_id="s1")
        await mine.append_event(old, said("before"))
        await other.delete_session(**WHO, session_id="s1")
        new = await other.create_session(**WHO, session_id="s1")
        await mine.append_event(new, said("after"))
        with pytest.raises(StaleSessionError):
            await mine.append_event(old, said("too late"))
        found = await other.get_session(**WHO, session_id="s1")
        assert [event.content.parts[0].text for event in found.events] == ["after"]
        await mine.close()
        await other.close()

    run(main())


def test_half_a_character_in_the_name_of_a_model_does_not_hide_the_sessions(url):
    async def main():
        service = TurnlogSessionService(url)
        session = await service.create_session(**WHO, session_id="s1")
        usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=5)
        event = said("hello", "bot", model_version="\ud800", usage_metadata=usage)
        await service.append_event(session, event)
        assert [one.id for one in (await service.list_sessions(**WHO)).sessions] == ["s1"]
        assert (await service.get_session(**WHO, session_id="s1")).events == [event]
        await service.close()

    run(main())


def test_eight_keys_of_one_user_that_are_written_at_once_are_all_kept(url):
    async def main():
        services = [TurnlogSessionService(url) for _ in range(8)]
        sessions = [await one.create_session(**WHO, session_id=f"s{n}") for n, one in enumerate(services)]
        await asyncio.gather(
            *(
                service.append_event(session, changes(**{f"user__k{n}": n, f"app__k{n}": n}))
                for n, (service, session) in enumerate(zip(services, sessions, strict=True))
            )
        )
        found = await services[0].get_session(**WHO, session_id="s0")
        assert found.state == {f"{scope}:k{n}": n for n in range(8) for scope in ("user", "app")}
        for service in services:
            await service.close()

    run(main())


def test_a_session_that_many_create_at_once_is_created_once(url):
    async def main():
        services = [TurnlogSessionService(url) for _ in range(4)]
        made = await asyncio.gather(
            *(one.create_session(**WHO, session_id="s1") for one in services), return_exceptions=True
        )
        assert sum(isinstance(one, Session) for one in made) == 1
        assert sum(isinstance(one, AlreadyExistsError) and isinstance(one, TurnlogError) for one in made) == 3
        for service in services:
            await service.close()

    run(main())


WRITER = """
import asyncio, sys
from google.adk.events import Event, EventActions
from turnlog.adapters.google_adk import TurnlogSessionService

async def main(url, name, count):
    service = TurnlogSessionService(url)
    session = await service.get_session(app_name="weather", user_id="ann", session_id="s1")
    print("ready", flush=True)
    for n in range(count):
        delta = {f"{name}{n}": n, f"user:{name}": n, f"app:{name}{n}": n}
        event = Event(author=name, invocation_id="i", actions=EventActions(state_delta=delta))
        await service.append_event(session, event, retry=True)
        print(n, flush=True)
    await service.close()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def writer(url, name, count):
    adapter = "turnlog.adapters.google_adk"
    return warm.start_code(WRITER, url, name, count, module=adapter, stdout=subprocess.PIPE, text=True)


async def read_again(url, **config):
    service = TurnlogSessionService(url)
    found = await service.get_session(**WHO, session_id="s1", config=GetSessionConfig(**config))
    await service.close()
    return found


async def created(url):
    service = TurnlogSessionService(url)
    await service.create_session(**WHO, session_id="s1")
    await service.close()


@pytest.mark.parametrize("kind", ["jsonl", pytest.param("sqlite", marks=pytest.mark.slow)])
def test_two_processes_on_one_session_lose_nothing(kind, tmp_path):
    url = url_of(kind, tmp_path)
    run(created(url))
    writers = [writer(url, name, 6) for name in ("a", "b")]
    assert [one.communicate()[0].split()[-1] for one in writers] == ["5", "5"]
    found = run(read_again(url))
    assert len(found.events) == 12
    assert found.state == {f"{scope}{name}{n}": n for scope in ("", "app:") for name in "ab" for n in range(6)} | {
        f"user:{name}": 5 for name in "ab"
    }


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("jsonl", marks=pytest.mark.slow)])
def test_a_killed_writer_leaves_whole_events_and_their_state(kind, tmp_path):
    url = url_of(kind, tmp_path)
    run(created(url))
    process = writer(url, "a", 10_000)
    for line in process.stdout:
        if line.strip() == "7":
            break
    process.send_signal(signal.SIGKILL)
    told = 7 + sum(1 for _ in process.stdout)
    process.communicate()
    found = run(read_again(url))
    last = len(found.events) - 1
    assert last in (told, told + 1)
    assert found.state[f"a{last}"] == found.state["user:a"] == found.state[f"app:a{last}"] == last
    assert found.events[-1].actions.state_delta["user:a"] == last


def test_state_that_a_dead_process_announced_is_added_unless_it_is_newer(tmp_path):
    from turnlog.core.entries import Facts

    async def main():
        service = TurnlogSessionService(f"sqlite:{tmp_path}/a.db")
        session = await service.create_session(**WHO, session_id="s1", state={"user:a": "now", "user:b": "now"})

        async def announce(t):
            log = service.sessions.log_of(_key("s1"))
            await log.append_to(
                t, await log.open(t), [Facts(app="google-adk", put={"p": [1, {"x": 1}, {"a": "old", "c": "lost"}]})]
            )

        await service.holder.call(announce)
        found = await service.get_session(**WHO, session_id=session.id)
        assert found.state == {"user:a": "now", "user:b": "now", "user:c": "lost", "app:x": 1}
        assert await service.get_user_state(**WHO) == {"a": "now", "b": "now", "c": "lost"}
        await service.close()

    run(main())


@pytest.mark.parametrize("is_erased", [False, True])
def test_state_that_was_deleted_or_erased_does_not_come_back(url, is_erased):
    async def main():
        service = TurnlogSessionService(url)
        session = await service.create_session(**WHO, session_id="s1", state={"app:a": 1})
        await service.append_event(session, changes(user__name="Ann", app__b=2))

        async def remove(t):
            for row in (await t.sessions.list()).items:
                if row.title and row.title.startswith("State of"):
                    seqs = [entry.seq for entry in await t.store.read(row.id) if isinstance(entry, Facts)]
                    await (t.store.erase(row.id, seqs, redact=True) if is_erased else t.sessions.delete(row.id))

        await service.holder.call(remove)
        assert (await service.get_session(**WHO, session_id="s1")).state == {}
        assert await service.get_user_state(**WHO) == {}
        await service.append_event(session, changes(user__name="Bob"))
        assert (await service.get_session(**WHO, session_id="s1")).state == {"user:name": "Bob"}
        await service.close()

    run(main())


def test_state_that_was_announced_and_never_written_is_added(url):
    async def main():
        service = TurnlogSessionService(url)
        session = await service.create_session(**WHO, session_id="s1")
        with patch.object(AdkSessions, "_write", side_effect=OSError), pytest.raises(OSError):
            await service.append_event(session, changes(user__name="Ann", app__b=2))
        assert (await service.get_session(**WHO, session_id="s1")).state == {"user:name": "Ann", "app:b": 2}
        assert await service.get_user_state(**WHO) == {"name": "Ann"}
        await service.close()

    run(main())


def test_a_newer_value_of_a_writer_whose_clock_is_behind_stays(url):
    async def main():
        service = TurnlogSessionService(url)
        first = await service.create_session(**WHO, session_id="s1")
        second = await service.create_session(**WHO, session_id="s2")
        await service.append_event(first, changes(user__name="Ann", app__b=1))
        with patch.object(adk_sessions, "now_ms", return_value=1):
            await service.append_event(second, changes(user__name="Bob", app__b=2))
        assert (await service.get_session(**WHO, session_id="s1")).state == {"user:name": "Bob", "app:b": 2}
        assert await service.get_user_state(**WHO) == {"name": "Bob"}
        await service.close()

    run(main())


def _key(session_id):
    from turnlog.adapters.adk_state import AdkPlace

    return AdkPlace("weather", "ann", session_id).key


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("jsonl", marks=pytest.mark.slow)])
@settings(max_examples=1)
@given(events=st.lists(EVENT, min_size=12, max_size=12))
def test_random_events_are_read_equal_in_another_process_and_after_compaction_and_undo(kind, events):
    code = (
        "import asyncio, sys\nfrom turnlog.adapters.google_adk import TurnlogSessionService\n"
        "found = asyncio.run(TurnlogSessionService(sys.argv[1]).get_session("
        "app_name='weather', user_id='ann', session_id='s1'))\n"
        "print(found.model_dump_json())"
    )

    async def main():
        service = TurnlogSessionService(url)
        session = await service.create_session(**WHO, session_id="s1")
        await service.append_event(session, said("first"))
        for event in events:
            await service.append_event(session, event)
        await service.close()
        async with turnlog.open(url) as t:
            [row] = [row for row in (await t.sessions.list()).items if row.key.endswith(":s1")]
            entries = await t.store.read(row.id)
            messages = [entry.seq for entry in entries if isinstance(entry, User)]
            body = Compaction(summary="what was said", first_kept=row.last_seq + 1, covers=(messages[0], row.last_seq))
            async with t.store.lease(row.id) as lease:
                [made] = await t.store.append(row.id, [body], lease=lease)
                compacted = await service_of(t).get_session(**WHO, session_id="s1")
                assert [one.id for one in compacted.events if one.actions.compaction] == [f"turnlog-{made.seq}"]
                await t.store.append(row.id, [Undo(target=made.seq)], lease=lease)
        return session

    def service_of(t):
        return TurnlogSessionService(store=t)

    with tempfile.TemporaryDirectory() as folder:
        url = url_of(kind, folder)
        session = run(main())
        told = subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True, check=True).stdout
    assert json.loads(told)["events"] == json.loads(session.model_dump_json())["events"]


def test_a_compaction_is_shown_as_adks_own_and_adk_applies_it(tmp_path):
    from google.adk.flows.llm_flows.contents import _process_compaction_events

    async def main():
        service = TurnlogSessionService(f"sqlite:{tmp_path}/a.db")
        session = await service.create_session(**WHO, session_id="s1")
        for number in range(6):
            await service.append_event(session, said(f"question {number}", at=5.0))  # a clock that stands still
            await service.append_event(session, said(f"answer {number}", "bot", at=5.0 + number // 3))
        async with turnlog.open(f"sqlite:{tmp_path}/a.db") as t:
            [row] = [row for row in (await t.sessions.list()).items if row.message_count]
            users = [entry.seq for entry in await t.store.read(row.id) if isinstance(entry, User)]
            body = Compaction(summary="five questions", first_kept=users[5], covers=(users[0], users[5] - 1))
            await t.store.append(row.id, [body], lease="own")
        found = await service.get_session(**WHO, session_id="s1")
        assert len(found.events) == 13
        shown = [event.content.parts[0].text for event in _process_compaction_events(found.events)]
        assert any("five questions" in text for text in shown)
        assert {"question 5", "answer 5"} <= set(shown)
        await service.append_event(found, said("goes on", at=9.0))
        async with turnlog.open(f"sqlite:{tmp_path}/a.db") as t:
            await t.sessions.undo(row.id)
        again = await service.get_session(**WHO, session_id="s1")
        assert again.events[:12] == session.events
        assert not any(event.actions.compaction for event in again.events)
        await service.close()

    run(main())


def test_an_event_whose_words_were_erased_is_left_out(tmp_path):
    async def main():
        service = TurnlogSessionService(f"sqlite:{tmp_path}/a.db")
        session = await service.create_session(**WHO, session_id="s1")
        for text in ("one", "secret", "three"):
            await service.append_event(session, said(text))
        for _ in range(3):  # from the second time on, its events are kept in memory
            whole = await service.get_session(**WHO, session_id="s1")
            assert [event.content.parts[0].text for event in whole.events] == ["one", "secret", "three"]
        async with turnlog.open(f"sqlite:{tmp_path}/a.db") as t:
            [row] = [row for row in (await t.sessions.list()).items if row.message_count]
            seqs = [entry.seq for entry in await t.store.read(row.id) if isinstance(entry, User)]
            await t.store.erase(row.id, seqs[1:2], redact=True)
        found = await service.get_session(**WHO, session_id="s1")
        assert [event.content.parts[0].text for event in found.events] == ["one", "three"]
        assert not any(b"secret" in words for kept in service._kept._sessions.values() for words in kept)
        await service.append_event(found, said("four"))
        assert len((await service.get_session(**WHO, session_id="s1")).events) == 3
        await service.close()

    run(main())


def test_sessions_have_titles_and_are_found_by_search_and_exported(tmp_path):
    async def main():
        service = TurnlogSessionService(f"sqlite:{tmp_path}/a.db")
        session = await service.create_session(**WHO, session_id="s1", state={"user:name": "Ann"})
        await service.append_event(session, said("Where do kingfishers nest?"))
        await service.append_event(session, said("In river banks.", "bot"))
        await service.close()
        async with turnlog.open(f"sqlite:{tmp_path}/a.db") as t:
            rows = {row.key: row.title for row in (await t.sessions.list()).items}
            assert rows["agent:main:google_adk:weather:direct:ann:thread:s1"] == "Where do kingfishers nest?"
            assert rows["agent:main:google_adk:weather:direct:ann:thread:%25user"] == "State of user ann"
            [hit] = await t.sessions.search("kingfishers")
            assert hit.seq

    run(main())


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 901])
def test_ids_that_no_key_can_hold_are_refused(name):
    async def main():
        service = TurnlogSessionService("memory:")
        with pytest.raises(UsageError):
            await service.create_session(app_name=name, user_id="ann")
        with pytest.raises(UsageError):
            await service.get_session(app_name="weather", user_id=name, session_id="s1")
        with pytest.raises(UsageError):
            await service.get_session(**WHO, session_id=name)
        with pytest.raises(UsageError):
            await service.list_sessions(app_name=name)
        await service.close()

    run(main())


def test_bad_urls_are_refused_and_say_what_is_wrong():
    with pytest.raises(UsageError, match="mysql"):
        run(TurnlogSessionService("mysql://x").create_session(**WHO))
    with pytest.raises(UsageError, match="both"):
        TurnlogSessionService("memory:", uri="turnlog:memory:")
    with pytest.raises(UsageError, match=r"sqlite:a\.db"):
        TurnlogSessionService(uri="sqlite:a.db")


@pytest.mark.parametrize(
    "parts",
    [
        [{"function_response": {"id": name, "name": "f", "response": {"x": "z" * 9_000_000}}} for name in ("c1", "c2")],
        [{"function_call": {"name": "f", "args": {"x": "z" * 17_000_000}}}],
        [{"text": "h"}, {"text": "中" * 6_000_000, "thought_signature": "YQ=="}],
    ],
    ids=["responses", "call", "words"],
)
def test_a_large_event_is_stored_once_whatever_makes_it_large(parts):
    async def main():
        service = TurnlogSessionService("memory:")
        session = await service.create_session(**WHO, session_id="s1")
        event = Event(author="bot", content=types.Content.model_validate({"parts": parts}))
        await service.append_event(session, event)
        assert (await service.get_session(**WHO, session_id="s1")).events == [event]
        await service.close()

    run(main())


def test_what_json_cannot_hold_is_a_type_error_and_nothing_is_stored():
    async def main():
        service = TurnlogSessionService("memory:")
        session = await service.create_session(**WHO, session_id="s1")
        with pytest.raises(TypeError) as raised:
            await service.append_event(session, changes(n=float("nan")))
        assert isinstance(raised.value, TurnlogError)
        with pytest.raises(TypeError):
            await service.create_session(**WHO, state={"n": float("inf")})
        with pytest.raises(UsageError):
            await service.append_event(session, said("x" * (33 * 1024 * 1024)))
        found = await service.get_session(**WHO, session_id="s1")
        assert (found.events, found.state, session.events) == ([], {}, [])
        await service.close()

    run(main())


def test_bytes_in_a_state_are_stored_as_adks_own_services_store_them(tmp_path):
    async def main():
        state = {"a": b"abc", "app:b": {"c": b"\xc3\xa9"}}
        theirs = SqliteSessionService(f"{tmp_path}/adk.db")
        service = TurnlogSessionService("memory:")
        wanted = await theirs.create_session(**WHO, session_id="s1", state=state)
        found = await service.create_session(**WHO, session_id="s1", state={**state, "d": b"\xff"})
        assert found.state == {**wanted.state, "d": "_w=="} == {"a": "abc", "app:b": {"c": "é"}, "d": "_w=="}
        await service.close()

    run(main())


@dataclass
class Measured:
    at: float = float("nan")


def _holding_itself():
    found = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    "bad",
    [
        Event(author="bot", output={"x": float("nan")}),
        Event(author="bot", output=Measured()),
        Event(author="bot", actions=EventActions(agent_state={"x": float("inf")})),
        Event(author="bot", actions=EventActions(set_model_response=[float("nan")])),
        Event(author="bot", actions=EventActions(state_delta={"x": {float("nan")}})),
        Event(author="bot", actions=EventActions(state_delta={"x": Measured()})),
        Event(author="bot", actions=EventActions(state_delta={"x": _holding_itself()})),
        Event(author="bot", avg_logprobs=float("-inf")),
        Event(author="bot", timestamp=float("nan")),
    ],
    ids=["output", "object", "agent state", "response", "set", "object in state", "circle", "number", "time"],
)
def test_what_json_cannot_hold_is_refused_wherever_an_event_has_it(bad):
    async def main():
        service = TurnlogSessionService("memory:")
        session = await service.create_session(**WHO, session_id="s1")
        with pytest.raises(TypeError) as raised:
            await service.append_event(session, bad)
        assert isinstance(raised.value, TurnlogError)
        found = await service.get_session(**WHO, session_id="s1")
        assert (found.events, found.state, session.events) == ([], {}, [])
        with pytest.raises(TypeError):
            await service.create_session(**WHO, state={"x": _holding_itself()})
        await service.close()

    run(main())


def test_adks_command_line_makes_the_service_from_a_uri(tmp_path):
    from google.adk.cli.service_registry import get_service_registry

    register_session_service()
    service = get_service_registry().create_session_service(f"turnlog:sqlite:{tmp_path}/a.db", agents_dir="x")

    async def main():
        await service.create_session(**WHO, session_id="s1")
        await service.close()

    run(main())
    assert (tmp_path / "a.db").exists()


class WindowLlm(BaseLlm):
    """A model that takes a number of characters, and refuses more as Google's API does."""

    most: int
    asked: list = Field(default_factory=list)

    async def generate_content_async(self, llm_request, stream=False):
        contents = [content.model_copy(deep=True) for content in llm_request.contents]
        self.asked.append(contents)
        accepted_by_gemini(contents)
        if sum(len(content.model_dump_json(exclude_none=True)) for content in contents) > self.most:
            raise ClientError(
                400,
                {
                    "error": {
                        "code": 400,
                        "status": "INVALID_ARGUMENT",
                        "message": "The input token count (9999) exceeds the maximum number of tokens allowed (2000).",
                    }
                },
            )
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=f"answer {len(self.asked)}")]))


def accepted_by_gemini(contents):
    """A call is followed by its responses, and a response follows its call."""
    waiting = []
    for content in contents:
        assert content.role in ("user", "model")
        assert content.parts
        responses = [part.function_response.name for part in content.parts if part.function_response]
        assert sorted(responses) == sorted(waiting)
        waiting = [part.function_call.name for part in content.parts if part.function_call]
    assert not waiting


async def summarise(prompt):
    return "## Goal\nMany questions were asked, and each was answered.\n## Next\nGo on."


def runner_of(service, model, **plugin):
    agent = LlmAgent(name="bot", model=model, instruction="Be brief.")
    app = App(name="weather", root_agent=agent, plugins=[TurnlogPlugin(summarise=summarise, **plugin)])
    return Runner(app=app, session_service=service)


async def ask(runner, text):
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return [event async for event in runner.run_async(user_id="ann", session_id="s1", new_message=content)]


async def long_session(service, turns):
    session = await service.create_session(**WHO, session_id="s1")
    for number in range(turns):
        await service.append_event(session, said(f"question {number} " + "word " * 150))
        await service.append_event(session, said(f"answer {number} " + "word " * 150, "bot"))
    return session


def test_a_call_of_a_runner_fits_and_its_summary_is_stored_and_can_be_undone(tmp_path):
    async def main():
        service = TurnlogSessionService(f"sqlite:{tmp_path}/a.db")
        session = await long_session(service, 40)
        model = WindowLlm(model="window", most=40_000)
        runner = runner_of(service, model, window=8_000)
        assert (await ask(runner, "and now?"))[-1].content.parts[0].text == "answer 1"
        [sent] = model.asked
        assert "each was answered" in sent[0].parts[0].text
        assert sent[-1].parts[0].text == "and now?"
        found = await service.get_session(**WHO, session_id="s1")
        assert [event.author for event in found.events if event.actions.compaction] == ["user"]
        assert [event for event in found.events if not event.actions.compaction][:80] == session.events
        await ask(runner, "and then?")
        assert model.asked[-1][0] == sent[0]
        assert len(model.asked[-1]) == len(sent) + 2
        async with turnlog.open(f"sqlite:{tmp_path}/a.db") as t:
            [row] = [row for row in (await t.sessions.list()).items if row.message_count]
            assert row.compactions == 1
            await t.sessions.undo(row.id)
        again = await service.get_session(**WHO, session_id="s1")
        assert not any(event.actions.compaction for event in again.events)
        assert again.events[:80] == session.events
        await runner.close()
        await service.close()

    run(main())


def test_a_call_that_is_refused_for_its_size_is_made_again_with_less():
    async def main():
        service = TurnlogSessionService("memory:")
        await long_session(service, 12)
        model = WindowLlm(model="window", most=9_000)
        runner = runner_of(service, model, window=1_000_000)
        answer = (await ask(runner, "and now?"))[-1]
        assert len(model.asked) > 1
        assert answer.content.parts[0].text == f"answer {len(model.asked)}"
        assert model.asked[-1][-1].parts[0].text == "and now?"
        await runner.close()
        await service.close()

    run(main())


def test_another_error_of_the_model_is_left_alone():
    class Broken(WindowLlm):
        async def generate_content_async(self, llm_request, stream=False):
            raise ClientError(403, {"error": {"code": 403, "status": "PERMISSION_DENIED", "message": "no"}})
            yield

    async def main():
        service = TurnlogSessionService("memory:")
        await long_session(service, 1)
        runner = runner_of(service, Broken(model="window", most=1), window=8_000)
        with pytest.raises(ClientError, match="PERMISSION_DENIED"):
            await ask(runner, "and now?")
        await runner.close()
        await service.close()

    run(main())


def test_the_plugin_works_with_a_service_of_adks_own():
    async def main():
        service = InMemorySessionService()
        session = await long_session(service, 40)
        model = WindowLlm(model="window", most=40_000)
        agent = LlmAgent(name="bot", model=model)
        plugin = TurnlogPlugin("memory:", summarise=summarise, window=8_000)
        runner = Runner(app=App(name="weather", root_agent=agent, plugins=[plugin]), session_service=service)
        await ask(runner, "and now?")
        await ask(runner, "and then?")
        assert "each was answered" in model.asked[1][0].parts[0].text
        assert model.asked[1][0] == model.asked[0][0]  # made once
        assert len(session.events) == 80
        await runner.close()

    run(main())


def test_the_plugin_summarises_a_session_again_when_it_has_grown():
    async def main():
        service = InMemorySessionService()
        await service.create_session(**WHO, session_id="s1")
        model = WindowLlm(model="window", most=15_000)
        agent = LlmAgent(name="bot", model=model)
        plugin = TurnlogPlugin("memory:", summarise=summarise, window=3_000)
        runner = Runner(app=App(name="weather", root_agent=agent, plugins=[plugin]), session_service=service)
        for number in range(30):
            await ask(runner, f"question {number} " + "word " * 150)
        assert len(model.asked) == 30  # none was refused
        await runner.close()

    run(main())


@settings(max_examples=40)
@given(st.lists(CONTENT.filter(lambda content: content and content.parts), max_size=12), st.integers(300, 4_000))
def test_whatever_fit_gives_is_accepted_by_the_api(contents, window):
    contents = [*contents, types.Content(role="user", parts=[types.Part(text="now")])]
    for content in contents:
        for part in content.parts:
            if content.role == "model":
                part.function_response = None
            else:
                part.function_call = None
    try:
        found = fit(contents, "gemini", Limits(window=window))
    except turnlog.ContextOverflow:
        return
    accepted_by_gemini(found)
    assert found[-1].parts[-1].text == "now"


def test_fit_shortens_each_response_of_parallel_calls():
    calls = [types.Part(function_call=types.FunctionCall(name="f", args={"n": n})) for n in range(2)]
    results = [
        types.Part(function_response=types.FunctionResponse(name="f", response={"result": f"{n} line\n" * 20_000}))
        for n in range(2)
    ]
    contents = [
        types.Content(role="user", parts=[types.Part(text="go")]),
        types.Content(role="model", parts=calls),
        types.Content(role="user", parts=results),
        types.Content(role="model", parts=[types.Part(text="done")]),
        types.Content(role="user", parts=[types.Part(text="thanks")]),
    ]
    found = fit(contents, "gemini", Limits(window=32_000))
    assert [content for content in found if content in contents] == [contents[n] for n in (1, 3, 4)]
    [cut] = [content for content in found if content.parts[0].function_response]
    texts = [part.function_response.response["result"] for part in cut.parts]
    assert [text[0] for text in texts] == ["0", "1"]
    assert all("shortened" in text for text in texts)


def test_the_one_line_works_without_a_framework_being_imported_by_turnlog():
    code = "import sys, turnlog; assert not any(name.startswith('google') for name in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    hidden = (
        "import sys\nsys.modules['google.adk'] = None\n"
        "try:\n    import turnlog.adapters.google_adk\n"
        "except ImportError as error:\n    print(error)"
    )
    told = subprocess.run([sys.executable, "-c", hidden], check=True, capture_output=True, text=True).stdout
    assert 'pip install "turnlog[adk]"' in told


@pytest.mark.parametrize("event", [lambda: said("fast"), changes], ids=["message", "no message"])
def test_a_copy_that_is_read_again_is_not_overtaken_again_and_again(monkeypatch, tmp_path, event):
    """As it was by another process that appended without a pause: it need not read anything before."""
    reload = TurnlogSessionService._reload
    overtakers = []

    async def main():
        async with turnlog.open(f"sqlite:{tmp_path}/a.db") as t:
            fast, slow = TurnlogSessionService(store=t), TurnlogSessionService(store=t)
            theirs = await fast.create_session(**WHO, session_id="s1")
            ours = await slow.get_session(**WHO, session_id="s1")
            await fast.append_event(theirs, event())

            async def overtaken(self, *args):
                await reload(self, *args)
                overtakers.append(asyncio.ensure_future(fast.append_event(theirs, event())))
                await asyncio.wait(overtakers[-1:], timeout=0.3)

            with monkeypatch.context() as slowed:
                slowed.setattr(TurnlogSessionService, "_reload", overtaken)
                await slow.append_event(ours, said("slow"), retry=True)
            late = await asyncio.gather(*overtakers, return_exceptions=True)
            return len(ours.events), late

    events, late = run(main())
    assert events == 2
    assert [type(one) for one in late] == [StaleSessionError]

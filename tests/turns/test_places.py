"""Which session a client's request goes on: recordings of real clients, and the rules one by one."""

import asyncio

import pytest

from turnlog import NotFound, Query, StoreUnavailable, UsageError
from turnlog.core import history
from turnlog.core.entries import Assistant, Foreign, Rewind, Shortened, User, text_of
from turnlog.runtime import background
from turnlog.sessions import Sessions, own_answers
from turnlog.stores.in_memory import MemoryStore
from turnlog.turns.candidates import COMPARED
from turnlog.turns.places import Places

from ..stores import postgres
from .clients import ANN, BOB, Client, assistant, name_of, opened, recording, replay, split_of, user

pytestmark = pytest.mark.anyio

EXPECTED = {
    "aider-three-turns": "new:A rewound:A rewound:A",
    "anthropic-python": "new:A new:B new:C",
    "claude-code-overflow": "new:A continued:A",
    "claude-code-tool-and-continue": "new:A continued:A continued:A",
    "codex-cut-stream": "new:A replayed:A replayed:A replayed:A replayed:A replayed:A",
    "codex-exec-resume": "new:A continued:A continued:A",
    "langchain-openai": "new:A new:B new:C new:D",
    "llm-continue": "new:A continued:A new:B",
    "openai-agents": "new:A continued:A new:B new:C new:D",
    "openai-python": "new:A new:B new:C new:D new:E",
    "opencode-run-continue": "new:A new:B continued:B continued:B",
}


def mapped(found):
    """Sessions as letters, in the order of their appearance."""
    letters = {}
    for _, session in found:
        letters.setdefault(session, chr(ord("A") + len(letters)))
    return " ".join(f"{match}:{letters[session]}" for match, session in found)


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(params=["memory", "sqlite", "jsonl"])
async def store(request, tmp_path):
    urls = {"memory": "memory:", "sqlite": f"sqlite:{tmp_path}/s.db", "jsonl": f"jsonl:{tmp_path}/s"}
    async with opened(urls[request.param], durability="os") as found:
        yield found


@pytest.mark.parametrize("name", EXPECTED)
async def test_a_recorded_client_is_mapped_as_intended(store, name):
    assert mapped(await replay(Client(store), name)) == EXPECTED[name]


async def test_all_recordings_in_one_store_are_mapped_as_each_alone(store):
    client = Client(store)
    seen = set()
    for name in EXPECTED:
        found = await replay(client, name)
        assert mapped(found) == EXPECTED[name]
        assert seen.isdisjoint(session for _, session in found)
        seen.update(session for _, session in found)


async def test_recorded_conversations_go_on_after_a_restart(store):
    """With nothing in memory: from the logs and the index alone."""
    for name in ("llm-continue", "opencode-run-continue", "aider-three-turns", "codex-exec-resume"):
        client = Client(store)
        found = await replay(client, name)
        await client.places.close()
        wanted = next(n for n, _ in reversed(list(enumerate(found))) if found[n][0] != "new")
        recorded = recording(name)[wanted]
        system, messages = split_of(recorded["body"])
        said = [*messages, assistant(recorded["answered_with"]["text"]), user("and after a restart?")]
        match, session, _ = await Client(store).say(*said, name=name_of(recorded), system=system)
        assert (match, session) == ("continued", found[wanted][1])


async def test_a_conversation_without_a_name_goes_on_by_its_answer_alone(store):
    client = Client(store)
    _, first, _ = await client.say(user("hi"), answer="Hello, Ann.")
    assert (await client.say(user("hi"), assistant("Hello, Ann. "), user("and?")))[:2] == ("continued", first)


async def test_conversations_that_begin_alike_do_not_meet(store):
    client = Client(store)
    sessions = {(await client.say(user("hi"), answer="Hello."))[1] for _ in range(3)}
    few = [user("big"), assistant("positive"), user("bad"), assistant("negative")]
    sessions |= {(await client.say(*few, user(text), answer="positive"))[1] for text in ("one", "two", "three")}
    other = [user("big"), assistant("positive"), user("sad"), assistant("negative"), user("four")]
    sessions.add((await client.say(*other, answer="positive"))[1])
    assert len(sessions) == 7


async def test_another_principal_with_the_same_words_gets_a_session_of_their_own(store):
    ann, bob = Client(store, name="n"), Client(store, who=BOB, name="n")
    bob.places = ann.places
    _, hers, _ = await ann.say(user("hi"), answer="Only for Ann.")
    match, his, shown = await bob.say(user("hi"), assistant("Only for Ann."), user("what did she ask?"))
    assert (match, his == hers) == ("new", False)
    assert len(shown) == 3
    match, named, _ = await bob.say(user("mine"), handle=hers)
    assert (match, named == hers) == ("new", False)


async def test_an_edited_message_under_a_name_goes_back_and_the_old_path_stays_in_the_log(store):
    client = Client(store, name="n")
    _, session, _ = await client.say(user("one"), answer="First.")
    await client.say(user("one"), assistant("First."), user("two"), answer="Second.")
    match, same, shown = await client.say(user("one"), assistant("First."), user("two, edited"), answer="Third.")
    assert (match, same) == ("rewound", session)
    assert [text_of(message["content"]) for message in shown] == ["one", "First.", "two, edited"]
    assert "two" in [entry.content for entry in await client.log(session) if isinstance(entry, User)]
    match, other, _ = await client.say(user("one, edited"), assistant("First."), user("two"))
    assert (match, other == session) == ("new", False)


async def test_asking_again_after_a_whole_answer_makes_a_second_answer(store):
    client = Client(store, name="n")
    _, session, _ = await client.say(user("one"), answer="First.")
    assert (await client.say(user("one"), answer="Other."))[:2] == ("rewound", session)
    answers = [entry.content for entry in await client.log(session) if isinstance(entry, Assistant)]
    assert answers == ["First.", "Other."]
    match, same, shown = await client.say(user("one"), assistant("Other."), user("two"))
    assert (match, same, len(shown)) == ("continued", session, 3)


async def test_a_pruned_result_is_shortened_once_and_kept(store):
    client = Client(store, name="n")
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
    asked = Assistant(
        content=[{"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}}], model="x", stop="tool_use"
    )
    said = [user("read it"), {"role": "assistant", "content": None, "tool_calls": [call]}]
    whole = {"role": "tool", "tool_call_id": "c1", "content": "line\n" * 500}
    pruned = {"role": "tool", "tool_call_id": "c1", "content": "[cleared]"}
    _, session, _ = await client.say(user("read it"), answer=asked)
    await client.say(*said, whole, answer="Read.")
    for turn, words in enumerate(("and?", "then?")):
        match, same, shown = await client.say(
            *said, pruned, assistant("Read."), *([user("and?"), assistant("Yes.")] if turn else []), user(words)
        )
        assert (match, same) == ("continued", session)
        assert len(shown[2]["content"][0]["content"]) <= len("[cleared]")
    log = await client.log(session)
    assert [(entry.targets, entry.limit) for entry in log if isinstance(entry, Shortened)] == [
        ((next(entry.seq for entry in log if getattr(entry, "tool_use_id", "")),), 9)
    ]


async def test_of_eight_at_once_one_continues_and_seven_fork_and_none_waits(store):
    client = Client(store, name="n")
    await client.say(user("one"), answer="First.")
    meeting = asyncio.Barrier(8)

    async def one(n):
        async with client.asking(user("one"), assistant("First."), user(f"next {n}")) as entrance:
            await meeting.wait()  # all eight hold their sessions at once
            await entrance.journal.append(Assistant(content=f"Answer {n}.", model="x", stop="end_turn"))
            return entrance.match, entrance.session_id

    async with asyncio.timeout(60):
        found = await asyncio.gather(*(one(n) for n in range(8)))
    assert sorted(match for match, _ in found) == ["continued"] + ["forked"] * 7
    assert len({session_id for _, session_id in found}) == 8
    for n, (_, session_id) in enumerate(found):
        match, same, _ = await client.say(
            user("one"), assistant("First."), user(f"next {n}"), assistant(f"Answer {n}."), user("more")
        )
        assert (match, same) == ("continued", session_id)


async def test_equal_requests_of_connected_clients_are_calls_of_their_own(store):
    client = Client(store)
    async with client.asking(user("hi")) as first, client.asking(user("hi")) as second:
        assert (first.match, second.match) == ("new", "new")
        assert first.session_id != second.session_id


async def test_a_repeat_joins_the_call_whose_client_went_away(store):
    client = Client(store)
    async with client.asking(user("hi")) as first:
        client.places.left(first.session_id, first.turn, whole=False)
        async with client.asking(user("hi")) as again:
            assert (again.match, again.answer, again.turn) == ("replayed", None, first.turn)
        async with client.asking(user("hi"), parameters={"temperature": 1}) as other:
            assert other.match == "new"
        await first.journal.append(Assistant(content="Hello.", model="x", stop="end_turn"))
    async with client.asking(user("hi")) as told:
        assert (told.match, told.answer.content) == ("replayed", "Hello.")
    client.places.left(first.session_id, first.turn, whole=True)
    async with client.asking(user("hi")) as later:
        assert later.match == "new"


@pytest.mark.parametrize(
    ("first", "second", "match"),
    [
        ({}, {"is_retry": True}, "replayed"),
        ({"is_stream": True}, {"is_stream": False}, "replayed"),
        ({"is_stream": True}, {"is_stream": True}, "new"),
        ({}, {"is_stream": True}, "new"),
        ({}, {"is_retry": True, "parameters": {"temperature": 1}}, "new"),
    ],
)
async def test_a_request_that_says_it_is_a_repeat_gets_the_answer_though_it_was_written(store, first, second, match):
    """A socket takes a whole answer that a proxy then cuts."""
    client = Client(store)
    await client.say(user("hi"), **first)
    assert (await client.say(user("hi"), **second))[0] == match


async def test_of_two_equal_calls_a_retry_repeats_neither_and_none_later_than_sdks_retry():
    now = 1_700_000_000_000
    store = MemoryStore(clock=lambda: now)
    client = Client(store, clock=lambda: now)
    await client.say(user("hi"))
    await client.say(user("hi"))
    assert (await client.say(user("hi"), is_retry=True))[0] == "new"
    other = Client(store, clock=lambda: now)
    await other.say(user("hey"))
    now += 11_000
    assert (await other.say(user("hey"), is_retry=True))[0] == "new"


@pytest.mark.parametrize("stop", ["interrupted", "error"])
async def test_an_answer_that_was_cut_short_is_not_told_as_a_whole_one(store, stop):
    client = Client(store, name="n")
    partial = Assistant(content="Half of", model="x", stop=stop)
    await client.say(user("hi"), answer=partial, whole=False)
    match, _, shown = await client.say(user("hi"))
    assert (match, len(shown)) == ("rewound", 1)


async def test_an_answer_that_the_client_brought_along_is_not_the_answer_to_its_call(store):
    client = Client(store, name="n")
    await client.say(user("a"), answer="One.")
    await client.say(user("b"), assistant("One."), user("c"), answer="Two.")
    async with client.asking(user("a"), assistant("One."), user("d")) as entrance:
        assert await client.places.answer(entrance.session_id, entrance.turn) is None
        await entrance.journal.append(Assistant(content="Three.", model="x", stop="end_turn"))
        assert (await client.places.answer(entrance.session_id, entrance.turn)).content == "Three."


async def test_a_repeat_comes_too_late_after_two_minutes():
    now = 1_700_000_000_000
    store = MemoryStore(clock=lambda: now)
    client = Client(store, name="n", clock=lambda: now)
    await client.say(user("hi"), whole=False)
    now += 119_000
    assert (await client.say(user("hi")))[0] == "replayed"
    now += 2_000
    assert (await client.say(user("hi")))[0] == "rewound"


async def test_after_a_restart_only_a_client_with_a_name_is_told_a_young_answer_again():
    now = 1_700_000_000_000
    store = MemoryStore(clock=lambda: now)
    for name, match in (("n", "replayed"), (None, "new")):
        await Client(store, name=name, clock=lambda: now).say(user("hi"))
        assert (await Client(store, name=name, clock=lambda: now).say(user("hi")))[0] == match
    now += 121_000
    assert (await Client(store, name="n", clock=lambda: now).say(user("hi")))[0] == "rewound"


async def test_words_of_a_call_that_a_crash_cut_short_are_stored_once(store):
    client = Client(store, name="n")
    async with client.asking(user("hi")) as cut:
        pass  # no answer
    match, session, shown = await Client(store, name="n").say(user("hi"))
    assert (match, session, len(shown)) == ("continued", cut.session_id, 1)
    assert sum(isinstance(entry, User) for entry in await store.read(session)) == 1


async def test_an_answer_of_which_the_client_knows_the_beginning_is_recognised_and_its_version_is_sent(store):
    client = Client(store)
    partial = Assistant(content="One two three four", model="x", stop="interrupted")
    _, session, _ = await client.say(user("count"), answer=partial)
    match, same, shown = await client.say(user("count"), assistant("One two"), user("go on"))
    assert (match, same) == ("continued", session)
    assert [text_of(message["content"]) for message in shown] == ["count", "One two", "go on"]
    assert (await client.say(user("count"), assistant("One two"), user("go on"), assistant("Yes."), user("x")))[:2] == (
        "continued",
        session,
    )


async def test_a_session_is_found_again_by_the_index_behind_many_newer_ones(store):
    client = Client(store)
    _, session, _ = await client.say(user("old"), answer="An old answer.")
    for n in range(70):
        await client.say(user(f"new {n}"))
    await client.places.close()
    said = [user("old"), assistant("An old answer."), user("still there?")]
    assert (await Client(store).say(*said))[:2] == ("continued", session)
    for fact in await store.ledger.list(own_answers.SPACE):
        await store.ledger.delete(own_answers.SPACE, fact.key)
    said = [*said, assistant("Yes."), user("and without the index?")]
    for n in range(70):
        await client.say(user(f"newer {n}"))
    await client.places.close()
    await Sessions(store).reindex()
    assert (await Client(store).say(*said))[:2] == ("continued", session)


async def test_a_request_is_compared_with_the_newest_64_sessions_of_its_name():
    now = 1_700_000_000_000

    def clock():
        nonlocal now
        now += 1_000
        return now

    store = MemoryStore(clock=clock)
    client = Client(store, name="n", clock=clock)
    found = [(await client.say(user(f"talk {n}"), answer=f"answer {n}"))[1] for n in range(COMPARED + 1)]
    for n, match in ((1, "continued"), (0, "new")):
        asked = [user(f"talk {n}"), assistant(f"answer {n}"), user("more")]
        assert (await client.say(*asked))[0] == match
    assert (COMPARED, len(set(found))) == (64, 65)


async def test_an_answer_is_remembered_for_thirty_days_and_its_session_by_name_for_ever():
    now = 1_700_000_000_000
    store = MemoryStore(clock=lambda: now)
    sessions = {}
    for name in (None, "n"):
        client = Client(store, name=name, clock=lambda: now)
        sessions[name] = (await client.say(user("old"), answer="An old answer."))[1]
        await client.places.close()
    said = [user("old"), assistant("An old answer."), user("still there?")]
    for n in range(COMPARED):  # so that only the index tells it
        await Client(store, clock=lambda: now).say(user(f"new {n}"))
    now += 29 * 86_400_000
    late = Client(store, clock=lambda: now)
    assert (await late.say(*said, answer="Yes."))[:2] == ("continued", sessions[None])
    await late.places.close()
    for n in range(COMPARED):
        await Client(store, clock=lambda: now).say(user(f"newer {n}"))
    now += 31 * 86_400_000
    said += [assistant("Yes."), user("and now?")]
    assert (await Client(store, clock=lambda: now).say(*said))[0] == "new"
    assert (await Client(store, name="n", clock=lambda: now).say(*said[:3]))[1] == sessions["n"]


async def test_a_session_that_is_named_by_its_id_goes_on_with_what_others_said_before(store):
    client = Client(store, name="codex")
    _, session, _ = await client.say(user("begun here"), answer="Begun.")
    other = Client(store, places=client.places, name="claude", handle=session)
    match, same, shown = await other.say(user("go on there"), answer="Going on.")
    assert (match, same, len(shown)) == ("joined", session, 3)
    match, same, shown = await other.say(user("go on there"), assistant("Going on."), user("more"), answer="More.")
    assert (match, same, len(shown)) == ("continued", session, 5)
    back = Client(store, handle=session, name="codex")
    match, same, shown = await back.say(user("begun here"), assistant("Begun."), user("back"), answer="Back.")
    assert (match, same, len(shown)) == ("continued", session, 7)
    match, same, shown = await other.say(
        user("go on there"), assistant("Going on."), user("more"), assistant("More."), user("there again")
    )
    assert (match, same, len(shown)) == ("continued", session, 9)


async def test_an_answer_that_cannot_be_indexed_is_reported_and_harms_nobody(store, monkeypatch):
    async def refused(*args, **options):
        raise StoreUnavailable("the database is down")

    monkeypatch.setattr(own_answers, "put", refused)
    before = background.failures().get("index of answers", 0)
    client = Client(store, name="n")
    await client.say(user("a"), answer="b")
    tasks = list(client.places._puts)
    await client.places.close()
    assert [task.exception() for task in tasks] == [None]
    assert background.failures()["index of answers"] == before + 1


async def test_nothing_is_stored_for_a_client_that_wants_it_so(store):
    client = Client(store, name="n")
    async with client.asking(user("a secret"), store=False) as entrance:
        assert not entrance.stored
        assert text_of(entrance.journal.stored[-1].content) == "a secret"
    await client.places.close()
    assert not (await store.find(Query())).items
    assert not await store.ledger.list(own_answers.SPACE)


async def test_a_client_that_rewrites_its_first_message_for_ever_is_answered_without_being_stored(store):
    client = Client(store, name="n")
    said = [assistant("Yes.")]
    for n in range(60):
        match, _, shown = await client.say(
            user(f"it is {n} o'clock"), *said, user(f"question {n}"), answer=f"Answer {n}."
        )
        said += [user(f"question {n}"), assistant(f"Answer {n}.")]
        assert len(shown) == 2 * n + 3
    assert match == "restless"


async def test_the_head_is_stored_once_for_each_digest_and_found_by_its_call(store):
    client = Client(store, name="n", system="be brief", tools=[{"name": "read"}])
    _, session, _ = await client.say(user("one"), answer="First.")
    await client.say(user("one"), assistant("First."), user("two"), answer="Second.")
    await client.say(
        user("one"), assistant("First."), user("two"), assistant("Second."), user("three"), system="be long"
    )
    notes = [entry for entry in await client.log(session) if isinstance(entry, Foreign)]
    assert [note.raw["turnlog"] for note in notes] == ["head", "request", "request", "head", "request"]
    call = await client.places.stored(session, notes[2].seq, ANN)
    assert await client.places.head(call) == ("be brief", [{"name": "read"}])
    call = await client.places.stored(session, notes[4].seq, ANN)
    assert await client.places.head(call) == ("be long", [{"name": "read"}])
    assert await client.places.stored(session, notes[4].seq, BOB) is None
    assert await client.places.stored(session, 1, ANN) is None


async def test_a_thread_follows_the_answer_that_it_names(store):
    client = Client(store)
    async with client.asking(user("one")) as first:
        await first.journal.append(Assistant(content="First.", model="x", stop="end_turn"))
    at = (first.session_id, first.turn)
    match, same, shown = await client.say(user("two"), after=at, answer="Second.")
    assert (match, same, len(shown)) == ("continued", first.session_id, 3)
    match, other, shown = await client.say(user("two, differently"), after=at)
    assert (match, other == first.session_id, len(shown)) == ("forked", False, 3)
    for wrong in ((first.session_id, 99), ("nowhere", 1), (first.session_id, 1)):
        with pytest.raises(NotFound):
            await client.say(user("x"), after=wrong)
    with pytest.raises(NotFound):
        await Client(store, who=BOB).say(user("x"), after=at)


async def test_a_look_writes_nothing_and_shows_what_would_be_sent(store):
    client = Client(store, name="n")
    said = [user("one"), assistant("First."), user("two")]
    _, session, _ = await client.say(user("one"), answer="First.")
    before = await client.log(session)
    for asked in (said, [user("one, edited"), *said], [user("one")], [*said[:2], user("other")]):
        seen = history.build(await client.places.look(client.asked(asked))).messages
        assert len(seen) == len(asked) - (1 if asked[0]["content"] == "one, edited" else 0)
    assert await client.log(session) == before
    assert len((await store.find(Query())).items) == 1


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 257])
async def test_a_name_that_is_none_is_refused(store, name):
    with pytest.raises(UsageError):
        await Client(store, name=name).say(user("hi"))


async def test_a_request_without_words_is_refused_and_leaves_no_session(store):
    for messages in ([], [user("  ")], [user("")]):
        with pytest.raises(UsageError):
            await Client(store).say(*messages)
    assert not (await store.find(Query())).items


async def test_pins_and_shortenings_survive_a_client_that_goes_back(store):
    client = Client(store, name="n")
    _, session, _ = await client.say(user("one"), answer="First.")
    log = await client.log(session)
    await client.say(user("one"), assistant("First."), user("two"), answer="Second.")
    target = next(entry.seq for entry in log if isinstance(entry, User))
    await Sessions(store).pin(session, target)
    await client.say(user("one"), assistant("First."), user("two, edited"))
    assert [held for _, held in (await store.describe(session)).pins] == [target]
    assert any(isinstance(entry, Rewind) for entry in await client.log(session))


async def test_a_session_in_which_another_turn_runs_is_forked(store):
    client = Client(store, name="n")
    _, session, _ = await client.say(user("one"), answer="First.")
    async with store.lease(session):  # the page, or another server
        match, other, shown = await client.say(user("one"), assistant("First."), user("two"))
    assert (match, other == session, len(shown)) == ("forked", False, 3)


async def test_places_of_two_servers_see_each_other(store):
    first, second = Client(store, name="n"), Client(store, name="n")
    said = [user("0")]
    session = None
    for n in range(1, 6):
        for client in (first, second):
            _, found, shown = await client.say(*said, answer=f"{n} {client is first}")
            assert session in (None, found)
            assert len(shown) == len(said)
            session = found
            said += [assistant(f"{n} {client is first}"), user(f"next {n}")]
    assert isinstance(first.places, Places)


async def test_two_servers_on_postgresql_share_conversations_and_repeats(tmp_path):
    url = postgres.url_of(tmp_path)
    async with opened(url) as one, opened(url) as other:
        first, second = Client(one, name="n"), Client(other, name="n")
        _, session, _ = await first.say(user("hi"), answer="Hello.", whole=False)
        assert (await second.say(user("hi")))[:2] == ("replayed", session)  # the repeat reached the other server
        said = [user("hi"), assistant("Hello."), user("more")]
        assert (await second.say(*said, answer="More."))[:2] == ("continued", session)
        assert (await first.say(*said, assistant("More."), user("on")))[:2] == ("continued", session)
        async with first.asking(user("cut short"), name="m") as running:
            async with second.asking(user("cut short"), name="m") as again:
                assert (again.match, again.answer, again.turn) == ("replayed", None, running.turn)
            match, fork, _ = await second.say(user("cut short"), user("and more"), name="m")
            assert (match, fork == running.session_id) == ("forked", False)
        await Client(one).say(user("hi"), answer="Hello.")
        unnamed = Client(other)
        assert (await unnamed.say(user("hi"), assistant("Hello."), user("?")))[0] == "continued"
        await asyncio.gather(*(client.places.close() for client in (first, second, unnamed)))


async def test_half_characters_and_zeros_are_stored_and_found_again(store):
    odd = "half \ud800 and zero \0 end"
    client = Client(
        store, name="n", system=odd, client=odd, model=odd, parameters={"stop": [odd]}, tools=[{"name": odd}]
    )
    _, session, _ = await client.say(user(odd), answer="Yes.")
    assert (await client.say(user(odd), assistant("Yes."), user("more")))[:2] == ("continued", session)
    again = Client(store, name="n", system=odd)
    assert (await again.say(user(odd), assistant("Yes."), user("more"), assistant("Yes."), user("on")))[:2] == (
        "continued",
        session,
    )


async def test_a_thread_that_is_asked_for_again_after_a_crash_stores_its_words_once(store):
    client = Client(store)
    async with client.asking(user("one")) as first:
        await first.journal.append(Assistant(content="First.", model="x", stop="end_turn"))
    at = (first.session_id, first.turn)
    async with client.asking(user("two"), after=at):
        pass  # the process dies before there is an answer
    again = Client(store)
    match, session, shown = await again.say(user("two"), after=at, answer="Second.")
    assert (match, session, len(shown)) == ("continued", first.session_id, 3)
    async with client.asking(user("other"), after=at) as fork:
        assert fork.match == "forked"
    match, session, shown = await Client(store).say(user("other"), after=at)
    assert (match, session, len(shown)) == ("continued", fork.session_id, 3)


async def test_what_is_appended_to_a_session_goes_to_its_tip_whatever_it_holds(store):
    client = Client(store)
    _, session, _ = await client.say(user("one"), answer="First.")
    match, same, shown = await client.say(user("one"), tip=session, answer="Again.")
    assert (match, same, len(shown)) == ("continued", session, 3)
    async with client.asking(user("two"), tip=session):
        pass
    match, same, shown = await Client(store).say(user("two"), tip=session, answer="Second.")
    assert (match, same, len(shown)) == ("continued", session, 5)
    with pytest.raises(NotFound):
        await Client(store, who=BOB).say(user("x"), tip=session)


async def test_what_is_appended_waits_for_the_call_that_runs(store):
    client = Client(store)
    _, session, _ = await client.say(user("one"), answer="First.")
    async with client.asking(user("two"), tip=session) as running:
        waits = asyncio.create_task(client.say(user("three"), tip=session))
        await asyncio.sleep(0)
        await running.journal.append(Assistant(content="Second.", model="x", stop="end_turn"))
    match, same, shown = await waits
    assert (match, same, len(shown)) == ("continued", session, 5)


async def test_what_follows_an_entry_keeps_everything_before_it_and_stores_nothing_twice(store):
    client = Client(store)
    async with client.asking(user("one")) as first:
        [answer] = await first.journal.append(Assistant(content="First.", model="x", stop="end_turn"))
    point = (first.session_id, answer.seq)
    match, same, shown = await client.say(user("two"), point=point, answer="Second.")
    assert (match, same, len(shown)) == ("continued", first.session_id, 3)
    match, same, shown = await client.say(
        user("two"), assistant("Second."), user("three"), point=point, answer="Third."
    )
    assert (match, same, len(shown)) == ("continued", first.session_id, 5)
    match, same, shown = await client.say(user("two"), assistant("Second."), user("3"), point=point)
    assert (match, same, len(shown)) == ("rewound", first.session_id, 5)
    match, same, shown = await client.say(user("else"), point=point)
    assert (match, same, len(shown)) == ("rewound", first.session_id, 3)

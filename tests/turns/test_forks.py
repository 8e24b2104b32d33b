"""Forks of a client's session: they cost what the prompt needs of the past, and everything stays within reach."""

import asyncio
import contextlib
import random
import re

import pytest

from turnlog import UsageError
from turnlog.core import history
from turnlog.core.entries import MESSAGES, Assistant, Compaction, Pin, User
from turnlog.sessions import Sessions, own_answers
from turnlog.sessions.erasing_text import EraseRequest, WordEraser

from ..stores import postgres
from .clients import Client, assistant, opened, user

pytestmark = pytest.mark.anyio
TURNS = 30
KEPT = 3
SUMMARY = "They counted."


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(params=["memory", "sqlite", "jsonl", "postgresql"])
async def store(request, tmp_path):
    urls = {"memory": "memory:", "sqlite": f"sqlite:{tmp_path}/s.db", "jsonl": f"jsonl:{tmp_path}/s"}
    url = urls.get(request.param) or postgres.url_of(tmp_path)
    async with opened(url, **({} if request.param == "postgresql" else {"durability": "os"})) as found:
        yield found


def talk(turns=TURNS):
    return [message for n in range(turns) for message in (user(f"question {n}"), assistant(f"answer {n}"))]


async def compacted(store, client, turns=TURNS):
    """A session of which all but the last turns are folded; its second question is pinned."""
    _, session, _ = await client.say(*talk(turns)[:-1], answer=f"answer {turns - 1}")
    log = await client.log(session)
    said = [entry for entry in log if isinstance(entry, MESSAGES)]
    first = said[-2 * KEPT].seq
    body = Compaction(summary=SUMMARY, first_kept=first, covers=(said[0].seq, first - 1), tokens_before=900)
    async with store.lease(session) as lease:
        await store.append(session, [body, Pin(target=said[2].seq)], lease=lease)
    return session


async def forked(client, *said):
    """A fork, because the session runs another call meanwhile: (its id, what the model was shown)."""
    async with client.asking(*said, user("meanwhile")):
        match, fork, shown = await client.say(*said, user("in the fork"), answer="forked")
    assert match == "forked"
    return fork, shown


async def test_a_fork_takes_over_what_the_prompt_needs_and_no_more(store):
    sizes = []
    for turns in (TURNS, 3 * TURNS):
        client = Client(store, name=f"n{turns}")
        session = await compacted(store, client, turns)
        source = await Sessions(store).history(session)
        fork, shown = await forked(client, *talk(turns))
        assert shown[:-1] == source.messages
        assert shown[-1]["content"] == "in the fork"
        sizes.append(len(await client.log(fork)))
        row = await store.describe(fork)
        assert (row.title, row.compactions, row.forked_from.id) == ((await store.describe(session)).title, 1, session)
    assert sizes[0] == sizes[1], "its cost does not grow with the past"
    assert sizes[0] < 2 * KEPT + 12


async def test_a_fork_goes_on_and_is_found_again_by_its_words_alone(store):
    client = Client(store)
    session = await compacted(store, client)
    fork, _ = await forked(client, *talk())
    said = [*talk(), user("in the fork"), assistant("forked")]
    match, found, shown = await client.say(*said, user("on"), answer="went on")
    assert (match, found) == ("continued", fork)
    assert [history.as_text(message["content"]) for message in shown[-3:]] == ["in the fork", "forked", "on"]
    await client.places.close()
    again = Client(store)  # another process, which has no path in memory
    said += [user("on"), assistant("went on")]
    assert (await again.say(*said, user("after"), answer="a"))[:2] == ("continued", fork)
    await again.places.close()
    for fact in await store.ledger.list(own_answers.SPACE, limit=1000):
        await store.ledger.delete(own_answers.SPACE, fact.key)
    await Sessions(store).reindex()
    said += [user("after"), assistant("a")]
    last = Client(store)
    assert (await last.say(*said, user("reindexed")))[:2] == ("continued", fork)
    assert session != fork
    await last.places.close()


async def test_a_fork_of_a_fork_is_as_small_and_reaches_the_same_originals(store):
    client = Client(store, name="n")
    await compacted(store, client)
    first, _ = await forked(client, *talk())
    said = [*talk(), user("in the fork"), assistant("forked")]
    second, shown = await forked(client, *said)
    assert [part in str(shown) for part in (SUMMARY, "question 1", "question 5")] == [True, True, False]
    assert (await store.describe(second)).forked_from.id == first
    assert len(await client.log(second)) < 2 * KEPT + 16
    again = Client(store, name="n")
    assert (await again.say(*said, user("in the fork"), assistant("forked"), user("on")))[:2] == ("continued", second)
    covered = await Sessions(store).expand(second)
    assert [entry.content for entry in covered] == [m["content"] for m in talk()[: -2 * KEPT]]


async def test_an_edit_before_the_summary_goes_back_to_the_beginning_of_the_fork(store):
    client = Client(store, name="n")
    await compacted(store, client)
    fork, _ = await forked(client, *talk())
    said = [user("another question"), *talk()[1:], user("in the fork"), assistant("forked"), user("now")]
    edited = [*talk()[:6], user("edited"), *talk()[7:], user("in the fork"), assistant("forked"), user("now")]
    for request in (edited, said):
        match, _, shown = await client.say(*request)
        assert match in ("rewound", "new")
        assert SUMMARY not in str(shown)
        assert str(shown).count("question 0") == (request is edited)
    assert fork


async def test_the_originals_come_back_into_a_fork_when_its_compaction_is_undone(store):
    client, sessions = Client(store, name="n"), Sessions(store)
    session = await compacted(store, client)
    fork, _ = await forked(client, *talk())
    before = await client.log(fork)
    row = await sessions.undo(fork)
    assert (row.compactions, len(row.pins)) == (0, 1)
    shown = (await sessions.history(fork)).messages
    assert [history.as_text(message["content"]) for message in shown] == [
        *(message["content"] for message in talk()),
        *("in the fork", "forked"),
    ]
    assert (await client.log(fork))[: len(before)] == before, "nothing was changed"
    assert (await sessions.get(session)).compactions == 1, "its source is as it was"
    said = [*talk(), user("in the fork"), assistant("forked")]
    assert (await client.say(*said, user("on")))[:2] == ("continued", fork)
    with pytest.raises(UsageError):
        await sessions.undo(fork)


async def test_a_fork_stays_when_its_source_is_deleted_and_its_client_loses_nothing(store):
    client, sessions = Client(store, name="n"), Sessions(store)
    session = await compacted(store, client)
    fork, _ = await forked(client, *talk())
    await sessions.delete(session)
    shown = (await sessions.history(fork)).messages
    assert SUMMARY in str(shown[0])
    for verb in (sessions.undo, sessions.expand):
        with pytest.raises(UsageError, match="deleted"):
            await verb(fork)
    said = [*talk(), user("in the fork"), assistant("forked"), user("on")]
    again = Client(store, name="n")
    match, found, shown = await again.say(*said)
    assert (match, found == fork, len(shown)) == ("new", False, len(said))
    by_id = Client(store, handle=fork)
    match, found, shown = await by_id.say(*said)
    assert (match, found, len(shown)) == ("rewound", fork, len(said))


async def test_words_that_are_erased_with_what_was_made_of_them_go_from_forks_too(store):
    client, sessions = Client(store, name="n"), Sessions(store)
    session = await compacted(store, client)
    fork, _ = await forked(client, *talk())
    gone = f"question {TURNS - 1}"
    seq = next(entry.seq for entry in await client.log(session) if getattr(entry, "content", "") == gone)
    pinned = next(entry.seq for entry in await client.log(session) if getattr(entry, "content", "") == "question 1")
    eraser = WordEraser(store, sessions, None, lambda _: None)
    row = await sessions.get(session)
    await eraser.erase(EraseRequest(row=row, seqs=(seq, pinned), apply=True, redact=True, derived=True))
    for one in (session, fork):
        said = str(await client.log(one))
        assert [part in said for part in (gone, "question 1'", SUMMARY)] == [False] * 3
        assert f"question {TURNS - 2}" in said


async def test_of_eight_at_once_each_fork_holds_its_own_words(store):
    client = Client(store, name="n")
    await compacted(store, client)
    meeting = asyncio.Barrier(8)

    async def one(n):
        async with client.asking(*talk(), user(f"next {n}")) as entrance:
            shown = str(history.build(entrance.journal.transcript).messages)
            await meeting.wait()
            await entrance.journal.append(Assistant(content=f"Answer {n}.", model="x", stop="end_turn"))
            return entrance.match, entrance.session_id, [m for m in range(8) if f"next {m}" in shown]

    async with asyncio.timeout(120):
        found = await asyncio.gather(*(one(n) for n in range(8)))
    assert sorted(match for match, _, _ in found) == ["continued"] + ["forked"] * 7
    assert [words for _, _, words in found] == [[n] for n in range(8)]
    sizes = [
        sum(isinstance(entry, User) for entry in await client.log(one)) for match, one, _ in found if match == "forked"
    ]
    assert max(sizes) <= KEPT + 2


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_clients_do_a_prompt_holds_no_words_that_are_not_in_its_request(seed):
    """Several conversations of one name, edited, compacted, forked, undone, deleted and taken up by another process."""
    luck = random.Random(seed)
    async with opened("memory:") as store:
        client, sessions = Client(store, name="n"), Sessions(store)
        talks, made, kinds = [[]], set(), set()
        for count in range(120):
            said = list(luck.choice(talks))
            if said and luck.random() < 0.2:
                del said[2 * luck.randrange(len(said) // 2) :]
            said.append(user(f"word{count}."))
            async with contextlib.AsyncExitStack() as running:
                if luck.random() < 0.4:
                    await running.enter_async_context(client.asking(*said[:-1], user(f"word{count}x.")))
                match, session, shown = await client.say(*said, answer=f"word{count}y.")
            words = set(re.findall(r"word\w+\.", str(shown)))
            asked = [message["content"] for message in said]
            assert words <= set(asked)
            folded = [word for word in asked if word not in words]
            assert folded == asked[: len(folded)] or (await store.describe(session)).pins, match
            assert not folded or SUMMARY in str(shown)
            talks = [*talks, [*said, assistant(f"word{count}y.")]][-8:]
            made.add(session)
            await shaken(luck, store, sessions, session, made)
            if luck.random() < 0.1:
                await client.places.close()
                client = Client(store, name="n")
            origin = (await store.describe(session)).forked_from if session in made else None
            kinds.add((match, bool(origin and origin.compaction)))
        await client.places.close()
        assert ("forked", True) in kinds


async def shaken(luck, store, sessions, session, made):
    """Something happens to a session between two requests."""
    chance = luck.random()
    if chance < 0.3:
        said = [one for one in await sessions.explain(session) if one.state == "tail"]
        row = await store.describe(session)
        starts = [
            one.seq for one in said if isinstance((await store.read(session, after=one.seq - 1, limit=1))[0], User)
        ]
        if len(starts) > 1:
            start = row.boundary if row.boundary > 1 else row.first_message
            body = Compaction(summary=SUMMARY, first_kept=starts[-1], covers=(start, starts[-1] - 1))
            async with store.lease(session) as lease:
                await store.append(session, [body], lease=lease)
    elif chance < 0.4:
        with contextlib.suppress(UsageError):
            await sessions.undo(session)
    elif chance < 0.45:
        gone = luck.choice(sorted(made))
        made.discard(gone)
        await sessions.delete(gone)

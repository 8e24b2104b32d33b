"""kill -9 in the middle of turns, and a look at what is left.

    python -m tests.turns.crashing points PLACE KIND SCENARIO RERUN    before and after each append of a scenario
    python -m tests.turns.crashing random PLACE KIND ROUNDS SEED       at random moments of many turns with tools
    python -m tests.turns.crashing approvals PLACE KIND WORD           the same, for a call that waits for a person
    python -m tests.turns.crashing commit PLACE KIND ROUNDS SEED       around the append of a summary

Forks a child for each crash, so that hundreds of them take seconds. The child says through a pipe what it was told,
and what its tools did, before it goes on; its store kills it at the append that the parent named.
"""

import asyncio
import json
import os
import random
import select
import signal
import sys
import time
from pathlib import Path

import turnlog
from turnlog.core import history
from turnlog.core.entries import (
    Approval,
    ApprovalAnswer,
    Assistant,
    Compaction,
    Failed,
    Received,
    User,
    text_of,
    tool_uses,
)
from turnlog.core.events import ApprovalRequest, Done
from turnlog.core.session import describe
from turnlog.testing import ScriptedProvider, check_messages

from ..stores import postgres
from .talk import HANGS_AFTER_S, KEY, opened, url_at

FLAGS = {"store_durability": "full"}
NEVER = 10**6
OLD_TURNS = 6
ROUNDS_A_STORE = 50
"""Then a new store is begun: a long one is read again and again, which proves nothing more."""


class Pipe:
    """What the child tells; one JSON line each."""

    def __init__(self, fd):
        self._fd = fd

    def tell(self, *what):
        os.write(self._fd, (json.dumps(what) + "\n").encode())


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def mine(t, at, after):
    """Its own process is killed at append number `at` (from 0), before or after it."""
    append, count = t.store.append, 0

    async def counted(*args, **options):
        nonlocal count
        number, count = count, count + 1
        if number == at and not after:
            die()
        stored = await append(*args, **options)
        if number == at:
            die()
        return stored

    t.store.append = counted


def tools_of(pipe, at_first=None):
    async def look(place: str) -> str:
        """Looks at a place."""
        pipe.tell("tool", place)
        if at_first is not None and place.endswith("0"):
            await at_first()
        return f"saw {place}"

    return [look]


def turn_script(name, count=2):
    calls = [{"id": f"{name}-{n}", "name": "look", "input": {"place": f"{name}-{n}"}} for n in range(count)]
    looking = [{"text": f"looking for {name}.", "tool_calls": calls}] if calls else []
    return [*looking, {"text": f"answer to {name}."}]


async def say_acknowledged(t, pipe, text, **options):
    ticket = await t.accept(KEY, text, **options)
    pipe.tell("accepted", text)
    return ticket


async def hear(t, pipe, ticket):
    async for event in t.queue.follow(ticket):
        if isinstance(event, Done):
            pipe.tell("done", ticket.incoming.content)


async def turn_with_tools(url, pipe, at, after):
    """A turn with two tools, during which another message comes in and waits."""
    others = []

    async def another():
        others.append(await say_acknowledged(t, pipe, "second.", mode="followup", dedupe_id="d2"))

    provider = ScriptedProvider([*turn_script("first"), *turn_script("second", 0)])
    async with opened(url, provider, tools=tools_of(pipe, another), **FLAGS) as t:
        mine(t, at, after)
        await hear(t, pipe, await say_acknowledged(t, pipe, "first.", dedupe_id="d1"))
        for ticket in others:
            await hear(t, pipe, ticket)


async def turn_with_compaction(url, pipe, at, after):
    """A turn before which older ones are folded."""
    provider = ScriptedProvider(turn_script("first"), summaries=[{"text": "what was old."}])
    async with opened(url, provider, tools=tools_of(pipe), **folding(), **FLAGS) as t:
        mine(t, at, after)
        await hear(t, pipe, await say_acknowledged(t, pipe, "first."))


async def turn_with_approval(url, pipe, at, after, *, word):
    """A turn whose call waits; the question is answered in the same process. Two calls wait, one does not."""
    calls = [
        {"id": "first-0", "name": "look", "input": {"place": "first-0"}},
        {"id": "first-1", "name": "send", "input": {"place": "first-1"}},
    ]
    provider = ScriptedProvider([{"text": "looking for first.", "tool_calls": calls}, {"text": "answer to first."}])
    async with opened(url, provider, tools=[*tools_of(pipe), sending(pipe)], **FLAGS) as t:
        mine(t, at, after)
        ticket = await say_acknowledged(t, pipe, "first.")
        async for event in t.queue.follow(ticket):
            if isinstance(event, ApprovalRequest):
                pipe.tell("asked", event.call_id)
                await answer(t, word)
            if isinstance(event, Done):
                pipe.tell("done", ticket.incoming.content)


def sending(pipe):
    def send(place: str) -> str:
        """Sends something, once."""
        pipe.tell("sent", place)
        return f"sent {place}"

    return turnlog.tool(send, approval=True)


async def answer(t, word):
    if word == "deny":
        await t.deny(KEY, "first-1", "no")
    else:
        await t.approve(KEY, "first-1", input={"place": "edited"} if word == "edit" else None)


async def check_asked(url, told, word):
    """Another process goes on: it answers what still waits. Asked once, run at most once, never without a word."""
    again = []
    provider = ScriptedProvider([{"text": f"later {n}."} for n in range(9)])
    async with opened(url, provider, tools=[*tools_of(Mute()), sending(Ears(again))], **FLAGS) as t:
        row = await t.session(KEY)
        look_at_log(await t.store.read(row.id), row, told)
        was_answered = row.paused and not row.waiting
        await t.resume(rerun=False)
        await t.queue.idle()
        if (await t.session(KEY)).waiting:
            await answer(t, word)
            was_answered = True
        while (row := await t.session(KEY)).paused:
            await asyncio.wait_for(anext(aiter(t.watch(KEY, after=row.last_seq))), HANGS_AFTER_S)
        await t.queue.idle()
        assert isinstance([event async for event in t.send(KEY, "next.")][-1], Done)
        entries = await t.store.read(row.id)
    requests = [e for e in entries if isinstance(e, Approval) and e.state == "requested"]
    answers = [e for e in entries if isinstance(e, ApprovalAnswer)]
    assert len(requests) <= 1, "asked twice"
    assert len(answers) <= 1, "answered twice"
    runs = [text for what, text in [*told, *again] if what == "sent"]
    allowed = [] if word == "deny" else ["edited" if word == "edit" else "first-1"]
    assert runs in ([], allowed), f"ran {runs}"
    assert not runs or answers, "ran without a word"
    assert not (was_answered and allowed) or runs == allowed, "a paused turn with its answer was not taken up"
    assert ["done", "first."] not in told or runs == allowed, "done without the call"


class Ears:
    def __init__(self, told):
        self._told = told

    def tell(self, *what):
        self._told.append(list(what))


def approvals(place, kind, word, url=None):
    """Crashes before and after each append between the message and the answer's end."""
    crashes = 0
    for at in range(NEVER):
        for after in (False, True):
            folder = Path(place) / f"{at}-{after}"
            folder.mkdir()
            where = postgres_at(kind, f"{word}_{at}_{after}".lower()) or url_at(kind, folder)
            asyncio.run(prepare(where, ""))
            told, lived = crash(
                lambda pipe, where=where, at=at, after=after: turn_with_approval(where, pipe, at, after, word=word)
            )
            if lived:
                assert ["done", "first."] in told
                return crashes
            crashes += 1
            if where.startswith("postgresql:"):
                postgres.expire_leases(where)
            try:
                asyncio.run(check_asked(where, told, word))
            except AssertionError as error:
                when = "after" if after else "before"
                raise SystemExit(f"{kind}, {word}, {when} append {at}, told {told}: {error!r}") from error
    raise AssertionError("the scenario never ends")


def postgres_at(kind, name):
    """A new schema of the server at that address; empty for the other stores."""
    return f"{kind}&schema=a_{name}" if kind.startswith("postgresql:") else ""


def folding():
    return {"compaction_triggers": [f"messages:{2 * OLD_TURNS - 2}"], "compaction_keep": "messages:4"}


async def prepare(url, scenario):
    async with opened(url, **FLAGS) as t:
        if scenario == "compaction":
            for n in range(OLD_TURNS):
                async for _ in t.send(KEY, f"old {n}. " + "said at some length, " * 20):
                    pass


SCENARIOS = {"tools": turn_with_tools, "compaction": turn_with_compaction}


def crash(child, *, kill_after=None):
    """What the child told until it died; and whether it lived."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 3
        try:
            os.close(ours)
            asyncio.run(asyncio.wait_for(child(Pipe(theirs)), HANGS_AFTER_S))
            code = 0
        except BaseException as error:
            os.write(2, f"child: {error!r}\n".encode())
        finally:
            os._exit(code)
    os.close(theirs)
    if kill_after is not None:
        kill_after(ours)
        os.kill(pid, signal.SIGKILL)
    told = b""
    while piece := os.read(ours, 65536):
        told += piece
    os.close(ours)
    _, status = os.waitpid(pid, 0)
    if os.WIFEXITED(status) and (os.WEXITSTATUS(status) or kill_after):
        raise AssertionError(f"the child ended by itself with {os.WEXITSTATUS(status)}")
    return [json.loads(line) for line in told.decode().split("\n")[:-1]], os.WIFEXITED(status)


def points(place, kind, scenario, rerun):
    """Crashes before and after each append, until there is none left to crash at."""
    crashes = 0
    for at in range(NEVER):
        for after in (False, True):
            folder = Path(place) / f"{at}-{after}"
            folder.mkdir()
            url = url_at(kind, folder)
            asyncio.run(prepare(url, scenario))
            told, lived = crash(lambda pipe, url=url, at=at, after=after: SCENARIOS[scenario](url, pipe, at, after))
            if lived:
                assert [what for what, _ in told].count("done") == (2 if scenario == "tools" else 1)
                return crashes
            crashes += 1
            try:
                asyncio.run(check_once(url, told, rerun=rerun == "rerun", folded=scenario == "compaction"))
            except AssertionError as error:
                when = "after" if after else "before"
                raise SystemExit(f"{kind}, {scenario}, {when} append {at}, told {told}: {error!r}") from error
    raise AssertionError("the scenario never ends")


async def check_once(url, told, *, rerun, folded):
    async with opened(url, **FLAGS) as t:
        row = await t.session(KEY)
        before = await t.store.read(row.id)
        look_at_log(before, row, told)
    provider = ScriptedProvider([{"text": f"later {n}."} for n in range(9)], summaries=[{"text": "what was old."}])
    async with opened(url, provider, tools=tools_of(Mute()), **(folding() if folded else {}), **FLAGS) as t:
        await t.resume(rerun=rerun)
        await t.queue.idle()
        row = await t.session(KEY)
        assert not row.under_way, "a turn is neither answered nor marked"
        assert row.received == (), "a message waits for ever"
        if not folded:
            await redeliver(t, told)
        events = [event async for event in t.send(KEY, "next.")]
        assert isinstance(events[-1], Done), events
        entries = await t.store.read(row.id)
        look_at_log(entries, await t.session(KEY), told)
        assert_once(provider, entries, told, rerun)
        assert entries[: len(before)] == before, "an entry was changed"


async def redeliver(t, told):
    """The platform has had no receipt for what died with the process, and sends everything again."""
    for text, dedupe_id in (("first.", "d1"), ("second.", "d2")):
        acknowledged = ["accepted", text] in told
        ticket = await t.accept(KEY, text, dedupe_id=dedupe_id)
        assert not (acknowledged and ticket.stored.result()), "a redelivery was run again"
        await t.queue.idle()
    entries = await t.store.read((await t.session(KEY)).id)
    said = [text_of(e.content) for e in entries if isinstance(e, User | Received) and e.content]
    assert sorted(said) == ["first.", "second."], said


class Mute:
    def tell(self, *what):
        raise AssertionError(f"a tool ran again: {what}")


def look_at_log(entries, row, told):
    """No gaps, nothing acknowledged lost or doubled, counts right, the prompt valid."""
    assert [e.seq for e in entries] == list(range(1, len(entries) + 1)), "seqs have gaps"
    said = [text_of(e.content) for e in entries if isinstance(e, User | Received) and e.content]
    assert len(said) == len(set(said)), f"something is doubled: {said}"
    answers = [text_of(e.content) for e in entries if isinstance(e, Assistant)]
    calls = {call["id"] for e in entries if isinstance(e, Assistant) for call in tool_uses(e)}
    for what, text in told:
        if what == "accepted":
            assert text in said, f"{text!r} was acknowledged and is lost"
        elif what == "done":
            assert answers.count(f"answer to {text}") == 1, f"the answer to {text!r} is lost or doubled"
        elif what == "tool":
            assert text in calls, f"tool {text} ran before its call was stored"
    assert row.row == describe(None, entries), "the row differs from what the log says"
    assert row.message_count == sum(isinstance(e, User | Assistant) for e in entries)
    if any(isinstance(e, User) for e in entries):
        check_messages(history.build(entries).messages)


def assert_once(provider, entries, told, rerun):
    cut = [e for e in entries if isinstance(e, Failed)]
    assert len(cut) <= 1
    assert all(e.code == "interrupted" for e in cut)
    for prompt in [*provider.prompts, *provider.summary_prompts]:
        check_messages(prompt.messages)
    for what, text in told:
        if what == "accepted" and not any(isinstance(e, Compaction) for e in entries):
            said = [m for m in provider.prompts[-1].messages if m["role"] == "user"]
            assert str(said).count(text) == 1, f"{text!r} is not shown once: {said}"
    if cut and rerun and not any(isinstance(e, Assistant) for e in entries[: cut[0].seq] if e.seq > first_of(entries)):
        assert answered_after(entries, cut[0].seq), "the turn was not run again"


def first_of(entries):
    """The seq of the question that the crash cut short."""
    cut = next(e.seq for e in entries if isinstance(e, Failed))
    return max(e.seq for e in entries if isinstance(e, User) and e.seq < cut)


def answered_after(entries, seq):
    later = [e for e in entries if e.seq > seq and isinstance(e, User | Assistant)]
    return isinstance(later[0], Assistant)


async def many_turns(url, pipe, first):
    """Turns with tools, one after another, for ever."""
    names = [f"n{n}" for n in range(first, first + 500)]
    provider = ScriptedProvider([reply for name in names for reply in turn_script(name, int(name[1:]) % 4)])
    async with opened(url, provider, tools=tools_of(pipe), **FLAGS) as t:
        for name in names:
            await hear(t, pipe, await say_acknowledged(t, pipe, f"{name}."))
        await asyncio.sleep(3600)


def at_random(place, kind, rounds, seed):
    rng = random.Random(int(seed))
    told, first, url = [], 0, ""
    for n in range(int(rounds)):
        if n % ROUNDS_A_STORE == 0:
            folder = Path(place) / f"{n}"
            folder.mkdir()
            told, url = [], url_at(kind, folder)

        def moment(pipe):
            if rng.random() < 0.8:
                select.select([pipe], [], [])  # let it get going; in the other rounds it dies while opening
            time.sleep(rng.random() * 0.06)

        told += crash(lambda pipe, url=url, first=first: many_turns(url, pipe, first), kill_after=moment)[0]
        first += 500
        try:
            asyncio.run(check_many(url, told))
        except AssertionError as error:
            raise SystemExit(f"round {n} of seed {seed}: {error!r}") from error
    return rounds


async def check_many(url, told):
    async with opened(url, **FLAGS) as t:
        row = await t.session(KEY)
        look_at_log(await t.store.read(row.id), row, told)
        tools = [text for what, text in told if what == "tool"]
        assert len(tools) == len(set(tools)), "a tool ran twice"


async def fold(url, pipe):
    class Telling(ScriptedProvider):
        async def summarise(self, prompt):
            summary = await super().summarise(prompt)
            pipe.tell("summary", summary)
            return summary

    async with opened(url, Telling(summaries=[{"text": "what was old."}]), **folding(), **FLAGS) as t:
        await t.compact(KEY)
        pipe.tell("compacted", "")
        await asyncio.sleep(3600)


def around_commit(place, kind, rounds, seed):
    """Either fully old or fully new: a boundary only with its summary, and the same history either way."""
    rng = random.Random(int(seed))
    folded = 0
    for n in range(int(rounds)):
        folder = Path(place) / f"{n}"
        folder.mkdir()
        url = url_at(kind, folder)
        asyncio.run(prepare(url, "compaction"))

        def moment(pipe):
            select.select([pipe], [], [])
            time.sleep(rng.random() ** 2 * 0.01)

        told, _ = crash(lambda pipe, url=url: fold(url, pipe), kill_after=moment)
        folded += asyncio.run(check_commit(url, ["compacted", ""] in told))
    return f"{rounds} ({folded} new, {int(rounds) - folded} old)"


async def check_commit(url, acknowledged):
    provider = ScriptedProvider()
    async with opened(url, provider, **FLAGS) as t:
        row = await t.session(KEY)
        entries = await t.store.read(row.id)
        look_at_log(entries, row, [])
        compactions = [e for e in entries if isinstance(e, Compaction)]
        assert len(compactions) == row.compactions <= 1
        assert not acknowledged or compactions, "an acknowledged compaction is lost"
        assert row.boundary == (compactions[0].first_kept if compactions else 1), "a boundary without its summary"
        async for _ in t.send(KEY, "next."):
            pass
    sent = str(provider.prompts[-1].messages)
    assert ("what was old." in sent) == bool(compactions)
    assert ("old 0." in sent) == (not compactions)
    return bool(compactions)


def main():
    what = {"points": points, "random": at_random, "commit": around_commit, "approvals": approvals}[sys.argv[1]]
    print(f"{what(*sys.argv[2:])} crashes: nothing lost, nothing doubled")


if __name__ == "__main__":
    main()

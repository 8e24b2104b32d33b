"""kill -9 at random points of a tool-using workload, then a look at what is left.

    python -m tests.stores.crash URL ROUNDS SEED

Forks a child per round: no warm-up, so that hundreds of crashes take seconds. The child reports each acknowledged
entry through a pipe before it goes on; the parent kills it at a random moment and compares.
"""

import asyncio
import json
import os
import random
import select
import signal
import sys
import time

import turnlog
from turnlog.core import compaction, history
from turnlog.core.compaction import Keep
from turnlog.core.entries import Assistant, ToolResult, User
from turnlog.testing import check_messages, entry

from . import postgres

KEY = "agent:main:cli:direct:user"


def block(word):
    return [{"type": "text", "text": word}]


async def workload(url, first, pipe):
    """Turns with tools, compactions, renames, pins and undos, for ever."""

    def acknowledge(entries):
        lines = [json.dumps([e.seq, word_of(e)]) for e in entries]
        os.write(pipe, ("\n".join(lines) + "\n").encode())

    async with turnlog.open_store(url) as store:
        sessions = turnlog.Sessions(store)
        await sessions.open(KEY)
        row = await keep(sessions)
        n = first
        while True:
            async with store.lease(row.id) as lease:

                async def say(*bodies, lease=lease):
                    acknowledge(await store.append(row.id, bodies, lease=lease))

                loaded = await sessions.load(row.id)
                if loaded.session.under_way:
                    await say(entry(type="failed", code="interrupted", reason="the process died"))
                n += 1
                await say(entry(type="user", content=f"u{n}."))
                for step in range(n % 3):
                    calls = [
                        {"type": "tool_use", "id": f"c{n}.{step}.{k}", "name": "look", "input": {}}
                        for k in range(1 + n % 2)
                    ]
                    await say(entry(type="assistant", content=[*block(f"t{n}.{step}."), *calls], stop="tool_use"))
                    for call in calls:
                        await say(entry(type="tool_result", tool_use_id=call["id"], content=f"r{call['id']}."))
                if n % 5 == 0:
                    plan = compaction.plan((await sessions.load(row.id)).entries, Keep("messages", 8))
                    if plan:
                        body = compaction.complete(plan, f"s{n}.", trigger="tokens", tokens_before=9, tokens_after=1)
                        await say(body)
                await say(entry(type="assistant", content=block(f"a{n}."), stop="end_turn"))
            if n % 4 == 0:
                await sessions.rename(row.id, f"title {n}")
            if n % 7 == 0 and (await sessions.get(row.id)).compactions:
                await sessions.undo(row.id)
            if n % 6 == 0:
                other = await sessions.new(KEY, label=f"l{n}")
                await sessions.select(row.id)
                await sessions.delete(other.id)


async def keep(sessions):
    """The session that is watched; others come and go around it, and the key's selection with them."""
    try:
        return await sessions.select("keep")
    except turnlog.NotFound:
        return await sessions.new(KEY, session_id="keep")


def word_of(item):
    match item:
        case User():
            return item.content
        case Assistant():
            return item.content[0]["text"]
        case ToolResult():
            return item.content
        case _:
            return ""


def crash_once(url, first, rng):
    """What the child had acknowledged when it was killed."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(ours)
            asyncio.run(workload(url, first, theirs))
        except BaseException as error:
            os.write(2, f"child: {error!r}\n".encode())
        finally:
            os._exit(3)
    os.close(theirs)
    if rng.random() < 0.8:
        select.select([ours], [], [], 120)  # let it get going; in the other rounds it dies while opening
    time.sleep(rng.random() * 0.03)
    os.kill(pid, signal.SIGKILL)
    told = b""
    while piece := os.read(ours, 65536):
        told += piece
    os.close(ours)
    _, status = os.waitpid(pid, 0)
    if url.startswith("postgresql:"):
        postgres.expire_leases(url)
    if os.WIFEXITED(status):
        raise AssertionError(f"the child ended by itself with {os.WEXITSTATUS(status)}")
    return [json.loads(line) for line in told.decode().split("\n")[:-1]]


async def check(url, acknowledged):
    """Everything acknowledged is there once, at its seq; the log has no gaps; the prompt is valid."""
    async with turnlog.open_store(url) as store:
        sessions = turnlog.Sessions(store)
        selected = await sessions.open(KEY)
        assert selected.status == "active"
        row = await keep(sessions)
        actives = (await store.find(turnlog.Query(key=KEY, status="active"))).items
        assert [active.id for active in actives] == ["keep"], "the key has not exactly one selected session"
        entries = await store.read(row.id)
        assert [e.seq for e in entries] == list(range(1, len(entries) + 1)), "seqs have gaps"
        words = [word_of(e) for e in entries if word_of(e)]
        assert len(words) == len(set(words)), "something is doubled"
        by_seq = {e.seq: word_of(e) for e in entries}
        for seq, word in acknowledged.items():
            assert by_seq.get(seq) == word, f"entry {seq} ({word!r}) was acknowledged and is {by_seq.get(seq)!r}"
        if words:
            check_messages(history.build(entries).messages)
            check_messages((await sessions.history(row.id)).messages)
        assert (await sessions.history(row.id)) == history.build(entries), "a resume differs from the whole log"
        assert row == (await store.find(turnlog.Query(ids=(row.id,)))).items[0]
        return max((int(w[1:].split(".")[0]) for w in words if w[0] == "u"), default=0)


def run(url, rounds, seed):
    rng = random.Random(seed)
    acknowledged = {}
    first = 0
    for n in range(rounds):
        acknowledged.update(crash_once(url, first, rng))
        try:
            first = asyncio.run(check(url, acknowledged))
        except AssertionError as error:
            raise SystemExit(f"round {n} of seed {seed}: {error}") from error
    counts = f"{rounds} crashes, {len(acknowledged)} acknowledged entries, {first} turns begun"
    print(f"{counts}: nothing lost, nothing doubled")


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

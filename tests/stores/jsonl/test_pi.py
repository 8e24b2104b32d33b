"""pi itself opens what we wrote or continued, and builds the same context; and we go on with what it wrote."""

import asyncio
import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from benchmarks.install import PI_ENTRY, make_node
from msgspec.structs import replace

from tests.core.simulation import KEEPS, Simulation
from turnlog import Query, Sessions, open_store
from turnlog.core import history
from turnlog.core.entries import Assistant, ToolResult, Undo, User, text_of, tool_uses
from turnlog.core.user_content import user_content
from turnlog.testing import check_messages, entry, opened, said

FIXTURES = Path(__file__).parents[2] / "transcripts" / "pi"
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def pi():
    """Asks pi; skips, and says why, where it cannot be had."""
    missing = make_node()
    if missing:
        pytest.skip(f"pi is needed for this: {missing}")

    def ask(*steps):
        node.stdin.write(json.dumps(steps) + "\n")
        node.stdin.flush()
        return json.loads(node.stdout.readline())

    command = ["node", str(HERE / "pi.mjs"), str(PI_ENTRY)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as node:
        yield ask
        node.stdin.close()
        assert node.wait() == 0


def in_pi(message):
    """(who, words, calls) of one message of pi's."""
    match message["role"]:
        case "compactionSummary":
            return "summary", message["summary"], []
        case "branchSummary":
            return "user", message["summary"], []
        case "bashExecution":
            return "user", message["output"], []
        case role:
            blocks = message["content"]
            blocks = [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks
            calls = [(block["id"], block["name"]) for block in blocks if block["type"] == "toolCall"]
            who = {"toolResult": "tool", "custom": "user"}.get(role, role)
            return (
                who,
                "\n\n".join(block["text"] for block in blocks if block["type"] == "text" and block["text"]),
                calls,
            )


def in_ours(entries):
    view = history.survey(entries)
    found = [("summary", view.compaction.summary, [])] if view.compaction else []
    for item in view.tail:
        match item:
            case User():
                found.append(("user", text_of(user_content(item, view.received)), []))
            case Assistant():
                calls = [(block["id"], block["name"]) for block in tool_uses(item)]
                found.append(("assistant", text_of(item.content), calls))
            case ToolResult():
                found.append(("tool", text_of(item.content), []))
    return found


def same(ours, theirs):
    """Word for word, but that we introduce what pi only marks by its role."""
    ours, theirs = in_ours(ours), [in_pi(message) for message in theirs["messages"]]
    assert [(who, calls) for who, _, calls in ours] == [(who, calls) for who, _, calls in theirs]
    for (_, mine, _), (_, words, _) in zip(ours, theirs, strict=True):
        assert mine == words or (words and words in mine)


async def write(url, session_id, log):
    async with open_store(url, durability="os") as store, store.lease(session_id) as lease:
        for body in log:
            await store.append(session_id, [body], lease=lease)


async def read(url, session_id):
    async with open_store(url, durability="os") as store:
        return await store.read(session_id)


def file_of(root, session_id):
    return next(path for path in root.rglob(f"*{session_id}.jsonl") if ".turnlog" not in path.parts)


TALK = [
    entry(type="selected", n=1),
    entry(type="received", content="first words", sender="Ann"),
    entry(type="user", **{"from": [3]}),
    entry(type="assistant", content=[{"type": "text", "text": "looking"},
          {"type": "tool_use", "id": "c1", "name": "read_file", "input": {"path": "a"}}], model="claude-sonnet-4-5",
          usage={"input_tokens": 5, "output_tokens": 2}, stop="tool_use"),
    entry(type="tool_result", tool_use_id="c1", content="the file", is_error=True),
    entry(type="assistant", content="plain words", model="claude-sonnet-4-5", stop="end_turn"),
    entry(type="user", content="to be rewound"),
    entry(type="assistant", content=[{"type": "text", "text": "rewound too"}], stop="end_turn"),
    entry(type="rewind", to=7),
    entry(type="user", content=[{"type": "text", "text": "blocks \ud83d"}]),
    entry(type="assistant", content=[{"type": "text", "text": "yes"}], stop="end_turn"),
    entry(type="pin", target=4),
    entry(type="title", title="What was said"),
    entry(type="compaction", summary="Ann's first words.", first_kept=11, covers=[4, 10], tokens_before=9),
    entry(type="user", content="after it"),
    entry(type="failed", code="interrupted"),
]  # fmt: skip


@pytest.mark.parametrize("layout", ["pi", "openclaw"])
def test_pi_reads_what_we_wrote_as_we_do(tmp_path, pi, layout):
    url = f"jsonl:{tmp_path}/store?layout={layout}"
    asyncio.run(write(url, "s1", [opened("s1"), *TALK]))
    ours = asyncio.run(read(url, "s1"))
    assert [unstored(e) for e in ours[1:]] == [unstored(e) for e in TALK]
    (theirs,) = pi({"file": str(file_of(tmp_path, "s1"))})
    same(ours, theirs)
    assert (theirs["id"], theirs["name"]) == ("s1", "What was said")
    assert len(set(theirs["ids"])) == len(TALK)


def unstored(item):
    return replace(item, seq=0, ts="")


def test_both_take_turns_in_one_file(tmp_path, pi):
    url = f"jsonl:{tmp_path}/store?layout=pi"
    asyncio.run(write(url, "s1", [opened("s1"), *TALK]))
    file = str(file_of(tmp_path, "s1"))
    usage = {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 2,
             "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}}  # fmt: skip
    answer = {"role": "assistant", "content": [{"type": "text", "text": "pi's answer"}], "api": "a", "provider": "p",
              "model": "m", "usage": usage, "stopReason": "stop", "timestamp": 1767261600000}  # fmt: skip
    question = {"role": "user", "content": "asked in pi", "timestamp": 1767261600000}
    (before,) = pi({"file": file, "does": [["appendMessage", question], ["appendMessage", answer]]})
    same(asyncio.run(read(url, "s1")), before)
    asyncio.run(write(url, "s1", [said("asked in turnlog")]))
    (mine,) = pi({"file": file})
    same(asyncio.run(read(url, "s1")), mine)
    assert in_pi(mine["messages"][-1])[1] == "asked in turnlog"
    branched = pi({"file": file, "does": [["branch", before["leaf"]], ["appendMessage", question]]})[0]
    ours = asyncio.run(read(url, "s1"))
    same(ours, branched)
    assert "asked in turnlog" not in json.dumps(history.build(ours).messages)
    asyncio.run(write(url, "s1", [said("on this branch")]))
    compacted = pi({"file": file, "does": [["appendCompaction", "pi's summary", before["leaf"], 100]]})[0]
    ours = asyncio.run(read(url, "s1"))
    same(ours, compacted)
    assert in_ours(ours)[0] == ("summary", "pi's summary", [])
    check_messages(history.build(ours).messages)


def test_a_fork_made_by_pi_is_a_session_of_its_own(tmp_path, pi):
    url = f"jsonl:{tmp_path}/store?layout=pi"
    asyncio.run(write(url, "s1", [opened("s1"), *TALK]))
    (whole,) = pi({"file": str(file_of(tmp_path, "s1"))})
    (fork,) = pi({"file": str(file_of(tmp_path, "s1")), "does": [["fork", whole["ids"][11]]]})
    assert fork["id"] != "s1"

    async def look():
        async with open_store(url, durability="os") as store:
            assert {row.id for row in (await store.find(Query())).items} == {"s1", fork["id"]}
            entries = await store.read(fork["id"])
            same(entries, fork)
            async with store.lease(fork["id"]) as lease:
                await store.append(fork["id"], [said("on")], lease=lease)
            return await store.read(fork["id"])

    same(asyncio.run(look()), pi({"file": fork["file"]})[0])


@pytest.mark.parametrize("number", [1, 2])
def test_pi_reads_its_own_files_after_we_continued_them(tmp_path, pi, number):
    shutil.copytree(FIXTURES, tmp_path / "store")
    session_id = f"0199a000-0000-7000-8000-00000000000{number}"
    url = f"jsonl:{tmp_path}/store"
    for path in tmp_path.rglob("*.jsonl"):
        os.utime(path, (1, 1))  # nobody is writing them any more
    if number == 1:
        same(asyncio.run(read(url, session_id)), pi({"file": str(file_of(tmp_path, session_id))})[0])
    asyncio.run(write(url, session_id, [said("we went on"), entry(type="pin", target=4)]))

    async def load():
        async with open_store(url) as store:
            return (await Sessions(store).load(session_id)).entries

    (theirs,) = pi({"file": str(file_of(tmp_path, session_id))})
    assert in_pi(theirs["messages"][-1])[1] == "we went on"
    if number == 1:
        same(asyncio.run(load()), theirs)


def test_random_sessions_read_the_same_in_pi(tmp_path, pi):
    """Without undone compactions, which pi cannot know of."""
    moves = random_moves(random.Random(7), 40)
    logs = {f"s{n}": Simulation().run(each).log for n, each in enumerate(moves)}
    logs = {name: log for name, log in logs.items() if not any(isinstance(e, Undo) for e in log)}
    url = f"jsonl:{tmp_path}/store?layout=pi"

    async def store_all():
        async with open_store(url, durability="os") as store:
            for name, log in logs.items():
                async with store.lease(name) as lease:
                    await store.append(name, [opened(name), *map(unstored, log[1:])], lease=lease)
            return {name: await store.read(name) for name in logs}

    found = asyncio.run(store_all())
    theirs = pi(*({"file": str(file_of(tmp_path, name))} for name in logs))
    for name, one in zip(logs, theirs, strict=True):
        same(found[name], one)


def random_moves(chance, count):
    """Drawn by hand, so that pi is started once for all of them."""
    kinds = [
        lambda: ("user", chance.choice(["text", "blocks", "received"])),
        lambda: ("assistant", chance.choice(["text", "thinking", "string"])),
        lambda: ("call", chance.randint(1, 3), True),
        lambda: ("result", chance.randint(0, 3), chance.random() < 0.5),
        lambda: ("failed", "provider"),
        lambda: ("compact", chance.choice(KEEPS)),
        lambda: ("rewind", chance.randint(0, 40)),
        lambda: ("pin", chance.randint(0, 40)),
        lambda: ("title", None),
    ]
    return [[chance.choice(kinds)() for _ in range(chance.randint(3, 30))] for _ in range(count)]

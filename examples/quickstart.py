"""A session that survives a killed process: stored, killed, resumed, compacted, undone.

    python examples/quickstart.py [DIRECTORY]

Without a directory a temporary one is used and removed at the end. No model is called: the answers are written here.
"""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

import turnlog
from turnlog.core import compaction
from turnlog.core.admission import kind_of
from turnlog.core.compaction import Keep
from turnlog.core.entries import Assistant, Failed, User
from turnlog.core.history import as_text

KEY = "agent:main:cli:direct:user"
TURNS = [
    ("We deploy from the branch release-7.", "Noted: release-7."),
    ("The database is orders_v2 on db3.", "Noted: orders_v2 on db3."),
    ("Friday evening is off limits.", "Noted: no deploys on Friday evening."),
]
CALL = {"type": "tool_use", "id": "call-1", "name": "run_tests", "input": {"branch": "release-7"}}


async def talk_until_killed(store_url: str) -> None:
    """The child process: complete turns first, then one whose tool never returns."""
    async with turnlog.open(store_url) as t:
        session = await t.sessions.open(KEY)
        async with t.store.lease(session.id) as lease:
            for question, answer in TURNS:
                await t.store.append(session.id, [User(content=question)], lease=lease)
                await t.store.append(session.id, [Assistant(content=answer, stop="end_turn")], lease=lease)
            await t.store.append(session.id, [User(content="Run the tests.")], lease=lease)
            entries = await t.store.append(session.id, [Assistant(content=[CALL], stop="tool_use")], lease=lease)
            print(f"stored up to entry {entries[-1].seq}; the tool is running", flush=True)
            await asyncio.sleep(3600)


def kill_in_the_middle_of_a_turn(store_url: str) -> None:
    command = [sys.executable, __file__, "--child", store_url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        print(f"  process {child.pid}: {child.stdout.readline().strip()}")
        child.kill()
        child.wait()
        print(f"  process {child.pid}: killed with SIGKILL")


async def go_on(store_url: str) -> Path:
    async with turnlog.open(store_url) as t:
        session = await t.sessions.open(KEY)
        print(f"\n2. Resumed session {session.id}: {session.message_count} messages, last from {session.last_role!r}")
        for entry in await t.sessions.read(session.id):
            words = as_text(entry.content or "") if isinstance(entry, User | Assistant) else ""
            print(f"  {entry.seq:3} {kind_of(entry):10} {words}".rstrip())

        print("\n3. The interrupted turn is marked, and the session goes on")
        async with t.store.lease(session.id) as lease:
            interrupted = Failed(code="interrupted", reason="the process died")
            await t.store.append(session.id, [interrupted], lease=lease)
            await t.store.append(session.id, [User(content="Are you still there?")], lease=lease)
            answer = Assistant(content="Yes. The tests were interrupted; shall I run them again?", stop="end_turn")
            await t.store.append(session.id, [answer], lease=lease)
        await show_history(t, session.id)

        print("\n4. Compacted: everything before the last turn is now under a summary")
        loaded = await t.sessions.load(session.id)
        plan = compaction.plan(loaded.entries, Keep("turns", 1))
        assert plan is not None, "there is something to fold"
        summary = "Deploy release-7 against orders_v2 on db3, never on Friday evening. The tests were asked for."
        body = compaction.complete(plan, summary, trigger="manual", tokens_before=120, tokens_after=60)
        async with t.store.lease(session.id) as lease:
            await t.store.append(session.id, [body], lease=lease)
        await show_history(t, session.id)

        await t.sessions.undo(session.id)
        print("\n5. The compaction is undone; nothing had been removed")
        await show_history(t, session.id)
        return Path(store_url.partition(":")[2]) / "agents/main/sessions" / f"{session.id}.jsonl"


async def show_history(t: turnlog.Turnlog, session_id: str) -> None:
    """Prints what a model would see now."""
    history = await t.sessions.history(session_id)
    for message in history.messages:
        text = as_text(message["content"]).replace("\n", " ")
        print(f"  {message['role']:9} {text}")


def run(directory: Path, *, keep: bool) -> None:
    store_url = f"jsonl:{directory}"
    print("1. A process talks and is killed in the middle of a turn")
    kill_in_the_middle_of_a_turn(store_url)
    path = asyncio.run(go_on(store_url))
    print(f"\n6. The session is {len(path.read_text().splitlines())} lines of JSON in\n  {path}")
    if keep:
        print(f"Look at it: cat {path}")
    else:
        print("That was a temporary directory, gone now. Keep one with: python examples/quickstart.py DIRECTORY")
        print("and then: cat DIRECTORY/agents/main/sessions/ses-*.jsonl")


def main() -> None:
    match sys.argv[1:]:
        case ["--child", store_url]:
            asyncio.run(talk_until_killed(store_url))
        case [directory]:
            run(Path(directory).absolute(), keep=True)
        case _:
            with tempfile.TemporaryDirectory() as directory:
                run(Path(directory), keep=False)


if __name__ == "__main__":
    main()

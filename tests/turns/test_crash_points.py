"""kill -9 around every append of a turn: what was acknowledged is there once, and the session goes on. A7, A12, D13."""

import asyncio
import os
import random
import signal
import subprocess
from pathlib import Path

import pytest

from turnlog.core.entries import Assistant, Failed
from turnlog.testing import ScriptedProvider, check_messages

from .. import warm
from ..stores import postgres
from .talk import KEY, ask, log, opened, run, shown

ROOT = Path(__file__).parents[2]
CRASHES = int(os.environ.get("CRASHES", "10"))
KINDS = ("jsonl", "sqlite")


def crashing(*args):
    done = warm.run_code("from tests.turns.crashing import main; main()", *args, timeout=600 + CRASHES)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


SHORT = {("jsonl", "mark"), ("sqlite", "rerun")}
"""Which calls are made anew is decided above the stores: each store is killed in one of the two ways."""


@pytest.mark.parametrize(
    ("kind", "rerun"),
    [
        pytest.param(kind, rerun, marks=() if (kind, rerun) in SHORT else pytest.mark.slow)
        for kind in KINDS
        for rerun in ("mark", "rerun")
    ],
)
@pytest.mark.parametrize(("scenario", "appends"), [("tools", 9), ("compaction", 6)])
def test_killed_before_or_after_any_append_of_a_turn_nothing_is_lost_and_the_session_goes_on(
    kind, scenario, appends, rerun, tmp_path
):
    told = crashing("points", tmp_path, kind, scenario, rerun)
    assert int(told.split()[0]) == 2 * appends


WORDS = {"approve": 9, "edit": 9, "deny": 8}
"""Appends from the first message to the end of the turn."""
ONCE = {("jsonl", "approve"), ("sqlite", "edit"), ("jsonl", "deny"), ("postgres", "approve")}
ASKED = [
    pytest.param(kind, word, marks=() if (kind, word) in ONCE else pytest.mark.slow)
    for kind in (*KINDS, "postgres")
    for word in WORDS
]
"""The short form has every store and every answer."""


@pytest.mark.parametrize(("kind", "word"), ASKED)
def test_killed_around_a_question_and_its_answer_it_is_asked_once_and_runs_at_most_once(kind, word, tmp_path):
    where = postgres.server().url("postgres", lease_s=postgres.LONG_S) if kind == "postgres" else kind
    told = crashing("approvals", tmp_path, where, word)
    assert int(told.split()[0]) == 2 * WORDS[word]


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_random_points_of_many_turns_with_tools_nothing_is_lost_or_doubled(kind, tmp_path):
    seed = random.SystemRandom().randrange(10**6)
    assert f"{CRASHES} crashes" in crashing("random", tmp_path, kind, CRASHES, seed)


@pytest.mark.parametrize("kind", KINDS)
def test_killed_between_a_summary_and_its_commit_the_state_is_fully_old_or_fully_new(kind, tmp_path):
    seed = random.SystemRandom().randrange(10**6)
    assert crashing("commit", tmp_path, kind, CRASHES, seed).startswith(f"{CRASHES} (")


WAITING = """
import asyncio, sys
from tests.turns.gates import Gated
from tests.turns.talk import KEY, opened
async def main():
    provider = Gated()
    async with opened(sys.argv[1], provider, store_durability="full") as t:
        await t.accept(KEY, "first")
        await provider.reached[0].wait()
        print("asked", flush=True)
        await asyncio.sleep(3600)
asyncio.run(main())
"""


def kill_during_the_model_call(url):
    child = warm.start_code(WAITING, url, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "asked\n"
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    assert child.returncode == -signal.SIGKILL


def test_killed_during_the_model_call_the_text_is_merged_with_the_next_message_once(url):
    kill_during_the_model_call(url)

    async def main():
        for _ in range(2):
            provider = ScriptedProvider([{"text": "answer"}])
            async with opened(url, provider) as t:
                await ask(t, "new" if not await answers(t) else "newer")
            assert shown(provider.prompts[-1])[0] == ("user", "first\n\nnew")
            assert str(provider.prompts[-1].messages).count("first") == 1
            check_messages(provider.prompts[-1].messages)
        async with opened(url) as t:
            assert [e.code for e in await log(t) if isinstance(e, Failed)] == ["interrupted"]

    async def answers(t):
        return [e for e in await log(t) if isinstance(e, Assistant)]

    run(main())


def test_killed_during_the_model_call_the_text_alone_ends_the_next_request_after_any_number_of_restarts(url):
    kill_during_the_model_call(url)

    async def main():
        for _ in range(3):
            async with opened(url) as t:
                await t.resume()
                await t.queue.idle()
        provider = ScriptedProvider()
        async with opened(url, provider) as t:
            await ask(t, "new")
        assert shown(provider.prompts[-1]) == [("user", "first\n\nnew")]

    run(main())


def test_killed_during_the_model_call_the_turn_is_run_again_once_where_that_is_wanted(url):
    kill_during_the_model_call(url)

    async def main():
        provider = ScriptedProvider([{"text": "answer"}])
        for _ in range(2):
            async with opened(url, provider) as t:
                await t.resume(rerun=True)
                await t.queue.idle()
        assert [shown(prompt) for prompt in provider.prompts] == [[("user", "first")]]

    run(main())


def test_killed_while_messages_wait_all_of_them_are_answered_in_order(url):
    code = WAITING.replace('print("asked"', "await more(t)\n        print('asked'")
    child = warm.start_code(
        code.replace("async def main", MORE + "async def main"), url, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout.readline() == "asked\n"
    finally:
        child.kill()
        child.wait()
        child.stdout.close()

    async def main():
        provider = ScriptedProvider()
        async with opened(url, provider) as t:
            await t.resume()
            await t.queue.idle()
            assert (await t.session(KEY)).received == ()
        assert [text for role, text in shown(provider.prompts[-1]) if role == "user"] == [
            "first\n\nwaiting 0",
            "waiting 1",
            "waiting 2",
        ]

    asyncio.run(main())


MORE = """
async def more(t):
    for n in range(3):
        await t.accept(KEY, f"waiting {n}", mode="followup")
"""

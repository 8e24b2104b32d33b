"""LangGraph and the Claude Agent SDK with several processes: nothing is lost, and a killed writer leaves whole writes.
The other adapters have these tests in their own modules.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from . import driving
from .driving import find_spec, run

ROOT = Path(__file__).parents[2]
EXAMPLES = int(os.environ.get("EXAMPLES", "10"))
TEXT = st.text(st.characters(), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
WRITER = """
import asyncio, sys
from tests.adapters import driving

async def main(kind, url, name, count):
    ours = getattr(driving, kind)(url)
    for n in range(int(count)):
        await ours.write(name, [sys.argv[5], n])
        print(n, flush=True)

asyncio.run(main(*sys.argv[1:5]))
"""
kinds = pytest.mark.parametrize(
    "kind",
    [
        pytest.param("LangGraph", marks=pytest.mark.skipif(not find_spec("langgraph"), reason="needs langgraph")),
        pytest.param(
            "ClaudeAgentSdk", marks=pytest.mark.skipif(not find_spec("claude_agent_sdk"), reason="make adapters")
        ),
    ],
)


def writer(kind, url, count, who):
    command = [sys.executable, "-c", WRITER, kind, url, "ann", str(count), who]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@kinds
@pytest.mark.parametrize("scheme", ["sqlite", "jsonl"])
def test_two_processes_on_one_session_lose_nothing_and_keep_their_order(kind, scheme, tmp_path):
    url = f"{scheme}:{tmp_path}/store"
    both = [writer(kind, url, 15, who) for who in "ab"]
    assert [one.wait() for one in both] == [0, 0]
    for one in both:
        one.stdout.close()
    found = run(getattr(driving, kind)(url).read("ann"))
    for who in "ab":
        assert [n for name, n in found if name == who] == list(range(15))


@kinds
@pytest.mark.parametrize("scheme", ["sqlite", "jsonl"])
def test_a_killed_writer_leaves_what_it_was_told_is_stored(kind, scheme, tmp_path):
    url = f"{scheme}:{tmp_path}/store"
    one = writer(kind, url, 100_000, "a")
    told = [int(one.stdout.readline()) for _ in range(8)]
    one.send_signal(signal.SIGKILL)
    rest = one.stdout.read().split()
    one.wait()
    one.stdout.close()
    told += [int(n) for n in rest]
    ours = getattr(driving, kind)(url)
    found = [n for _, n in run(ours.read("ann"))]
    assert found in (told, [*told, told[-1] + 1])
    run(ours.write("ann", ["b", 0]))
    assert len(run(ours.read("ann"))) == len(found) + 1


@pytest.mark.skipif(not find_spec("claude_agent_sdk"), reason="make adapters")
@pytest.mark.parametrize("scheme", ["sqlite", "jsonl"])
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(values=st.lists(JSON, min_size=1, max_size=4))
def test_random_lines_are_read_equal_by_another_object(scheme, values, tmp_path_factory):
    url = f"{scheme}:{tmp_path_factory.mktemp('lines')}/store"

    async def work():
        for value in values:
            await driving.ClaudeAgentSdk(url).write("ann", value)
        return await driving.ClaudeAgentSdk(url).read("ann")

    assert repr(run(work())) == repr(values)

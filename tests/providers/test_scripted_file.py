"""`scripted:FILE`: replies in order, across processes, each used once."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import aclosing

import pytest

from turnlog import UsageError
from turnlog.core.entries import Assistant
from turnlog.core.prompt import Prompt
from turnlog.providers import Delta
from turnlog.providers.scripted import ScriptProvider
from turnlog.testing import check_messages

HI = Prompt(system="", messages=[{"role": "user", "content": "hi"}])
check_messages(HI.messages)


@pytest.fixture
def script(tmp_path):
    def write(*lines):
        path = tmp_path / "script.jsonl"
        path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
        return path

    return write


async def pieces_of(provider, prompt=HI):
    return [piece async for piece in provider.stream(prompt)]


def answers(path, count):
    async def go():
        provider = ScriptProvider(path)
        return [(await pieces_of(provider))[-1] for _ in range(count)]

    return asyncio.run(go())


def texts(path, count):
    return ["".join(block.get("text", "") for block in answer.content) for answer in answers(path, count)]


def test_replies_come_in_order_over_several_openings_and_past_the_end_it_says_ok(script):
    path = script("# a comment", {"text": "one"}, "", {"text": "two"}, "  # indented", {"text": "three"})
    assert texts(path, 2) == ["one", "two"]
    assert texts(path, 2) == ["three", "ok"]
    assert texts(path, 1) == ["ok"]
    assert json.loads((path.parent / "script.jsonl.position").read_text()) == {"turn": 3, "summary": 0}
    with path.open("a") as file:
        file.write('{"text": "four"}\n')
    assert texts(path, 2) == ["four", "ok"]


def test_summaries_have_a_queue_of_their_own(script):
    path = script({"text": "s1", "for": "summary"}, {"text": "t1"}, {"deltas": ["s", "2"], "for": "summary"})

    async def go():
        provider = ScriptProvider(path)
        assert (await pieces_of(provider))[-1].content == [{"type": "text", "text": "t1"}]
        assert [await provider.summarise(HI) for _ in range(3)] == ["s1", "s2", "ok"]
        assert (await pieces_of(provider))[-1].content == [{"type": "text", "text": "ok"}]
        await provider.close()

    asyncio.run(go())


def test_an_answer_is_what_the_line_says(script):
    call = {"id": "c1", "name": "look", "input": {"at": "x"}}
    usage = {"input_tokens": 7, "output_tokens": 2}
    path = script(
        {"text": "one two", "deltas": ["one ", "two"], "usage": usage},
        {"tool_calls": [call, {"name": "look", "input": {}}, {"name": "look"}]},
    )

    async def go():
        provider = ScriptProvider(path)
        assert provider.window is None
        assert provider.model == "scripted:script.jsonl"
        first = await pieces_of(provider)
        assert first == [
            Delta(text="one "),
            Delta(text="two"),
            Assistant(
                content=[{"type": "text", "text": "one two"}], model=provider.model, usage=usage, stop="end_turn"
            ),
        ]
        *told, second = await pieces_of(provider)
        assert {piece.call.id for piece in told} == {block["id"] for block in second.content}
        assert second.stop == "tool_use"
        assert second.usage is None
        assert second.content[0] == {"type": "tool_use", **call}
        ids = {block["id"] for block in second.content}
        assert len(ids) == 3
        assert "" not in ids

    asyncio.run(go())


def test_a_delay_passes_before_each_piece_and_can_be_cut_off(script):
    path = script({"deltas": ["a", "b"], "delay_ms": 60}, {"text": "late", "delay_ms": 600_000}, {"text": "next"})

    async def go():
        provider = ScriptProvider(path)
        begun = time.monotonic()
        await pieces_of(provider)
        assert time.monotonic() - begun >= 0.12
        late = asyncio.create_task(pieces_of(provider))
        while json.loads((path.parent / "script.jsonl.position").read_text())["turn"] < 2:  # noqa: ASYNC110  taken by a thread
            await asyncio.sleep(0.01)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        async with aclosing(provider.stream(HI)) as pieces:
            assert await anext(pieces) == Delta(text="next")

    asyncio.run(go())


@pytest.mark.parametrize("reply", [{"deltas": ["a", "b", "c"]}, {"text": "c"}, {"tool_calls": [{"name": "look"}]}])
def test_the_last_piece_waits_until_the_file_is_there(script, tmp_path, reply):
    gate = tmp_path / "go on"
    path = script({**reply, "until": str(gate)})

    async def go():
        async with aclosing(ScriptProvider(path).stream(HI)) as pieces:
            for earlier in reply.get("deltas", ())[:-1]:
                assert await anext(pieces) == Delta(text=earlier)
            last = asyncio.ensure_future(anext(pieces))
            assert await asyncio.wait([last], timeout=0.05) == (set(), {last})
            gate.touch()
            assert getattr(await last, "text", "") in ("", "c")

    asyncio.run(go())


@pytest.mark.parametrize(
    "line",
    ["{", "[]", '{"txt": "x"}', '{"text": 1}', '{"for": "title"}', '{"tool_calls": [{"input": {}}]}',
     '{"tool_calls": [{"name": "n", "input": "x"}]}', '{"error": "x"}', '{"error": {"status": "400"}}', "\x00"],
)  # fmt: skip
def test_a_bad_line_is_named_with_file_and_number(script, line):
    path = script({"text": "fine"}, "# comment", line)
    with pytest.raises(UsageError, match=r"script\.jsonl, line 3") as caught:
        ScriptProvider(path)
    assert "text" in caught.value.hint


def test_a_line_spoilt_while_it_plays_is_named_and_nothing_is_used_up(script):
    path = script({"text": "one"}, {"text": "two"})
    provider = ScriptProvider(path)
    good = path.read_text()
    path.write_text(good + "{\n")
    with pytest.raises(UsageError, match="line 3"):
        asyncio.run(pieces_of(provider))
    path.write_text(good)
    assert texts(path, 1) == ["one"]


def test_what_cannot_be_read_or_written_is_said(script, tmp_path):
    with pytest.raises(UsageError, match=r"absent\.jsonl"):
        ScriptProvider(tmp_path / "absent.jsonl")
    with pytest.raises(UsageError, match="directory"):
        ScriptProvider(tmp_path)
    path = script({"text": "one"})
    place = tmp_path / "script.jsonl.position"
    place.write_text("nonsense")
    with pytest.raises(UsageError, match="position") as caught:
        texts(path, 1)
    assert "Delete it" in caught.value.hint
    place.unlink()
    place.mkdir()
    with pytest.raises(UsageError, match="position"):
        texts(path, 1)


TAKE = """
import sys
from pathlib import Path
from turnlog.providers.scripted import take
print("ready", flush=True)
sys.stdin.readline()
while True:
    text = take(Path(sys.argv[1]), "turn").text
    if text == "ok":
        break
    print(text, flush=True)
"""


def takers(path, count):
    """Processes that have all been started before the first of them may go."""
    command = [sys.executable, "-c", TAKE, str(path)]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.close()
    return processes


def test_racing_processes_never_get_the_same_line(script):
    path = script(*({"text": f"line {n}"} for n in range(400)))
    got: list[list[str]] = []
    for process in takers(path, 3):
        with process:
            got.append(process.stdout.read().splitlines())
        assert process.returncode == 0
    assert sorted(line for lines in got for line in lines) == sorted(f"line {n}" for n in range(400))
    for lines in got:
        numbers = [int(line.split()[1]) for line in lines]
        assert numbers == sorted(numbers)


def test_a_killed_process_leaves_a_position_that_can_be_gone_on_from(script):
    path = script(*({"text": f"line {n}"} for n in range(3_000)))
    seen: list[str] = []
    for _ in range(4):
        (process,) = takers(path, 1)
        seen += [process.stdout.readline().strip() for _ in range(20)]
        os.kill(process.pid, signal.SIGKILL)
        with process:
            seen += process.stdout.read().splitlines()
    seen += texts(path, 1)
    assert len(seen) == len(set(seen)), "a line was given out twice"
    used = json.loads((path.parent / "script.jsonl.position").read_text())["turn"]
    assert len(seen) <= used <= len(seen) + 4, "each kill may cost the one line that was being given out"

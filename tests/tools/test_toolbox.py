"""A call becomes a result, whatever the tool does."""

import asyncio
import gc
import os
import subprocess
import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from turnlog.codecs.native import encode
from turnlog.core.entries import ENTRY_MAX_BYTES, Assistant, User
from turnlog.core.history import build
from turnlog.core.prompt import INVALID_INPUT, ToolDefinition as Spec
from turnlog.errors import NotFound, UsageError
from turnlog.testing import check_messages
from turnlog.tools import BUILT_IN_MAX_CHARS, OUTPUT_MAX_CHARS, Tool, Toolbox, tool
from turnlog.tools.approval import ApprovalPolicy
from turnlog.tools.threads import ABANDONED_MAX

from ..waiting import GIVES_UP_S, until
from .contexts import call, context, run


def weather(city: str) -> str:
    return f"sunny in {city}"


def test_a_result_carries_the_id_of_its_call():
    result = run([weather], "weather", {"city": "Aix"})
    assert (result.tool_use_id, result.content, result.is_error) == ("call-1", "sunny in Aix", False)


def test_specs_are_in_the_same_order_however_the_tools_were_given():
    def alpha(): ...
    def beta(): ...

    assert Toolbox([beta, alpha]).specs == Toolbox([alpha, beta]).specs
    assert [spec.name for spec in Toolbox([beta, weather, alpha]).specs] == ["alpha", "beta", "weather"]


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(UsageError, match="two tools named 'weather'"):
        Toolbox([weather, tool(lambda: 1, name="weather")])


def test_only_what_is_declared_parallel_is_parallel():
    box = Toolbox([weather, tool(lambda: 1, name="beside", parallel=True)])
    assert box.is_parallel("beside")
    assert not box.is_parallel("weather")
    assert not box.is_parallel("nonsense")


def test_a_subset_has_the_tools_named_and_refuses_a_name_nobody_has():
    box = Toolbox([weather, tool(lambda: 1, name="clock")])
    assert [spec.name for spec in box.subset(["weather", "weather"]).specs] == ["weather"]
    assert box.subset([]).specs == ()
    with pytest.raises(UsageError) as refused:
        box.subset(["wether"])
    assert refused.value.hint == "Did you mean 'weather'?"


def test_an_unknown_tool_is_an_error_result_that_names_the_nearest():
    result = run([weather], "wether", {"city": "x"})
    assert result.is_error
    assert "'weather'" in result.content
    assert "There are none" in run([], "weather").content
    assert len(run([weather], "x" * 1_000_000).content) < 20_000


@pytest.mark.parametrize("given", [{INVALID_INPUT: '{"city": "Aix'}, '{"city": "Aix', ["Aix"], 3])
def test_an_input_that_is_no_object_is_an_error_result_that_shows_it(given):
    result = run([weather], "weather", given)
    assert result.is_error
    assert "not a JSON object" in result.content
    assert str(3 if given == 3 else "Aix") in result.content


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no")


RAISED = [
    (ValueError("bad number"), "ValueError: bad number"),
    (KeyError("a"), "KeyError: 'a'"),
    (ValueError(), "ValueError"),
    (Unspeakable(), "Unspeakable"),
    (SystemExit(2), "2"),
    (StopIteration(1), "StopIteration"),
    (RecursionError("deep"), "RecursionError: deep"),
    (ExceptionGroup("two", [ValueError("x")]), "ExceptionGroup: two (1 sub-exception)"),
    (NotFound("no order 7", hint="Ask for its number."), "no order 7. Ask for its number."),
    (NotFound("no order 7"), "no order 7"),
    (asyncio.CancelledError(), "ancelled"),
]


@pytest.mark.parametrize("kind", ["plain", "async"])
@pytest.mark.parametrize(("error", "text"), RAISED, ids=lambda value: str(type(value).__name__))
def test_a_raising_tool_is_an_error_result_without_a_traceback(error, text, kind):
    def plain():
        raise error

    async def asynchronous():
        raise error

    result = run([tool(plain if kind == "plain" else asynchronous, name="fail")], "fail")
    assert result.is_error
    assert text in result.content
    assert "Traceback" not in result.content
    assert ".py" not in result.content


def test_a_keyboard_interrupt_that_a_plain_tool_raises_is_its_own():
    def plain():
        raise KeyboardInterrupt

    result = run([plain], "plain")
    assert result.is_error
    assert "KeyboardInterrupt" in result.content


@pytest.mark.parametrize("place", [Path.home(), Path.cwd(), Path(tempfile.gettempdir()), Path(sys.prefix)])
def test_where_this_machine_keeps_its_files_is_not_told(place):
    def fail():
        (place / "nowhere" / "notes.txt").read_text()

    content = run([fail], "fail").content
    assert str(place) not in content
    assert "notes.txt" in content
    assert "No such file" in content


def test_a_message_without_end_is_cut():
    def fail():
        raise ValueError("x" * 10_000_000)

    assert len(run([fail], "fail").content) <= 10_000


def test_a_hanging_async_tool_is_cancelled_and_says_so():
    ended = []

    async def hang():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    result = run([tool(hang, timeout_s=0.05)], "hang")
    assert result.is_error
    assert "0.05 s" in result.content
    assert ended == [True]


def test_an_async_tool_that_refuses_to_be_cancelled_is_left_behind():
    async def main():
        free = asyncio.Event()

        async def stubborn():
            while not free.is_set():
                try:
                    await free.wait()
                except asyncio.CancelledError:
                    pass

        try:
            async with asyncio.timeout(GIVES_UP_S):
                return await Toolbox([tool(stubborn, timeout_s=0.05)]).run(call("stubborn"), context())
        finally:
            free.set()

    assert asyncio.run(main()).is_error


def test_a_hanging_plain_tool_neither_blocks_the_loop_nor_others_nor_the_exit(tmp_path):
    script = tmp_path / "hang.py"
    script.write_text(
        "import asyncio, time\n"
        "from tests.tools.contexts import call, context\n"
        "from turnlog.tools import Toolbox, tool\n"
        "def hang(): time.sleep(600)\n"
        "def quick(): return 'here'\n"
        "async def main():\n"
        "    box = Toolbox([tool(hang, timeout_s=0.2), quick])\n"
        "    hung = [asyncio.create_task(box.run(call('hang'), context())) for _ in range(12)]\n"
        "    print((await box.run(call('quick'), context())).content)\n"
        "    print({(await each).is_error for each in hung})\n"
        "asyncio.run(main())\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=root,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=GIVES_UP_S,
        check=True,
    )
    assert done.stdout.split() == ["here", "{True}"]
    assert done.stderr == ""


def test_a_plain_tool_that_never_comes_back_is_not_called_for_ever():
    free = threading.Event()

    async def main():
        box = Toolbox([tool(lambda: free.wait(60), name="hang", timeout_s=0.02)])
        await asyncio.gather(*(box.run(call("hang"), context()) for _ in range(ABANDONED_MAX)))
        refused = await box.run(call("hang"), context())
        free.set()
        async with asyncio.timeout(GIVES_UP_S):  # threads end when the machine lets them
            while (await box.run(call("hang"), context())).content != "true":  # noqa: ASYNC110 - nobody says it
                await asyncio.sleep(0.1)
        return refused

    assert f"{ABANDONED_MAX} earlier calls" in asyncio.run(main()).content


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_the_callers_cancellation_passes_and_ends_the_tool(kind):
    begun, free = threading.Event(), threading.Event()
    ended = []

    async def asynchronous():
        begun.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.append(True)

    def plain():
        begun.set()
        free.wait(600)

    async def main():
        function = asynchronous if kind == "async" else plain
        running = asyncio.create_task(Toolbox([tool(function, name="hang")]).run(call("hang"), context()))
        await until(begun.is_set)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        free.set()

    asyncio.run(main())
    assert ended == ([True] if kind == "async" else [])


HUGE = "line of text\n" * 8_000_000  # 104 MB


@pytest.mark.parametrize("kind", ["text", "json", "blocks", "async"])
def test_an_output_without_end_is_cut_and_blocks_nobody(kind):
    values = {"json": [HUGE], "blocks": [{"type": "text", "text": HUGE}]}

    def plain():
        return values.get(kind, HUGE)

    async def asynchronous():
        return HUGE

    async def main():
        """The longest step of this loop too, in processor time: however busy the machine is, it is the same."""
        awake = [time.thread_time()]

        async def watch():
            while True:
                await asyncio.sleep(0.005)
                awake.append(time.thread_time())

        watcher = asyncio.create_task(watch())
        box = Toolbox([tool(asynchronous if kind == "async" else plain, name="flood")])
        result = await box.run(call("flood"), context())
        watcher.cancel()
        return result, max(after - before for before, after in pairwise([*awake, time.thread_time()]))

    gc.disable()  # collecting what other tests left behind takes processor time too
    try:
        result, gap_s = asyncio.run(main())
    finally:
        gc.enable()
    assert not result.is_error
    text = result.content if isinstance(result.content, str) else result.content[0]["text"]
    assert OUTPUT_MAX_CHARS * 0.9 < len(text) <= OUTPUT_MAX_CHARS
    assert "shortened" in text
    assert gap_s < 0.1


def test_the_largest_result_fits_an_entry_whatever_its_characters():
    result = run([tool(lambda: "\x01" * 100_000_000, name="flood")], "flood")
    assert len(encode(result)) < ENTRY_MAX_BYTES


def test_a_tools_own_cap_is_kept():
    result = run([tool(lambda: "x" * 1_000, name="small", cap_chars=200)], "small")
    assert len(result.content) <= 200
    assert BUILT_IN_MAX_CHARS == 50_000


def test_a_tool_made_by_hand_needs_no_function():
    async def answer(given, known):
        return [{"type": "text", "text": f"{given['a']} {known.agent}"}, {"type": "image", "source": {"type": "url"}}]

    made = Tool(spec=Spec(name="hand", input_schema={"type": "object"}), run=answer)
    result = run([made], "hand", {"a": 1})
    assert result.content[0] == {"type": "text", "text": "1 main"}
    assert "left out" in result.content[1]["text"]


def test_results_of_every_kind_make_messages_a_provider_accepts():
    async def surrogate():
        return "\ud800 lone"

    def fail():
        raise ValueError

    box = Toolbox([weather, surrogate, fail, tool(lambda: "", name="blank"), tool(lambda: None, name="nothing")])
    calls = [call(name, {}, f"c{n}") for n, name in enumerate(["weather", "surrogate", "fail", "blank", "nothing"])]

    async def main():
        return [await box.run(each, context()) for each in calls]

    entries = [User(seq=1, content="go"), Assistant(seq=2, content=calls), *asyncio.run(main())]
    entries[2:] = [type(entry)(**{**_fields(entry), "seq": n}) for n, entry in enumerate(entries[2:], 3)]
    check_messages(build(entries).messages)


def _fields(entry):
    return {name: getattr(entry, name) for name in entry.__struct_fields__}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "the field `path` is missing"),
        ({"path": 5}, "the field `path` is not of the type string"),
        ({"path": None}, "the field `path` is not of the type string"),
        ({"path": "a", "lines": "1-3"}, "the field `lines` is not of the type array"),
        ({"path": "a", "pth": "b"}, "there is no field `pth`"),
    ],
)
def test_a_tool_with_only_a_schema_is_not_called_with_what_does_not_fit(given, why):
    ran = []

    async def go(given, context):
        ran.append(given)
        return "done"

    fields = {"path": {"type": "string"}, "lines": {"type": "array"}, "depth": {"type": "integer"}}
    schema = {"type": "object", "properties": fields, "required": ["path"], "additionalProperties": False}
    server = Tool(spec=Spec(name="go", description="", input_schema=schema), run=go, effects=("writes",))
    box = Toolbox([server])
    assert box.judge({"name": "go", "input": given}, ApprovalPolicy()).verdict == "run"
    result = run([server], "go", given)
    assert result.is_error
    assert why in result.content
    assert "The fields are: path, lines (optional), depth (optional)." in result.content
    fits = {"path": "a", "depth": "3", "lines": None}
    assert box.judge({"name": "go", "input": fits}, ApprovalPolicy()).verdict == "ask"
    assert run([server], "go", fits).content == "done"
    assert ran == [fits]


@pytest.mark.parametrize("schema", [{}, {"properties": [], "required": "path"}, {"properties": {"a": True}}])
def test_a_schema_of_an_unusual_form_refuses_nothing(schema):
    async def go(given, context):
        return "done"

    server = Tool(spec=Spec(name="go", description="", input_schema=schema), run=go)
    assert run([server], "go", {"a": 1}).content == "done"

"""What every provider promises, as tests. A provider that passes this suite can be given to `turnlog.open`.

The suite says what the model shall answer (`ScriptedReply`), and the subclass makes its model answer that: by a local
server that speaks the wire format, a recording, or a fake client. If a model's answers cannot be chosen, set
`scripted = False`; then the suite tests only what holds for any answer.
"""

import asyncio
import copy
import functools
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path
from typing import Any, TypeAlias

from ..core import parameters
from ..core.entries import Assistant
from ..core.prompt import Prompt, ToolDefinition
from ..errors import ContentRefused, ContextOverflow, ProviderBusy, ProviderRefused
from ..providers import Delta, Provider
from ..providers.scripted import ScriptedCall, ScriptedFailure, ScriptedReply
from . import check_messages, raises
from .base import claim

ContractTest: TypeAlias = Callable[..., Awaitable[None]]

LOOK = ToolDefinition(
    name="look", description="Looks.", input_schema={"type": "object", "properties": {"at": {"type": "string"}}}
)
CALLS = (
    ScriptedCall(id="c1", name="look", input={"at": "a.txt"}),
    ScriptedCall(id="c2", name="look", input={"at": "ü", "deep": [1, {"x": None}]}),
)
TEXTS = (
    "Hello",
    "x",
    "日本語と中文。" * 50,
    "👩‍👩‍👧 e\u0301 \u202eabc",
    "line\r\n\tline\u2028",
    '{"a": "\\"}',
    "word " * 2_000,
)
USAGE = {"input_tokens": 7, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 40, "output_tokens": 3}
LONG = ScriptedReply(deltas=("a", *["x" * 65_536] * 400))
"""More than the buffers between two processes hold, so that the sender notices when the reader disconnects."""
SILENT = ScriptedReply(deltas=("a", "b"), delay_ms=600_000)
"""A model that does not answer during the test."""
TOO_LONG = "prompt is too long: 9000 tokens > 8000 maximum"
PLENTY = 4_000_000
"""More characters than any window holds."""
OVERFLOW = ScriptedReply(error=ScriptedFailure(status=400, message=TOO_LONG))
BROKEN_OFF = ScriptedReply(deltas=("a",), error=ScriptedFailure(code="overloaded_error", message="Overloaded"))
STOPS = ("max_tokens", "refusal")
PIECES = [tuple(f"{n}{letter}" * 50 for letter in "abcdef") for n in range(4)]
"""The answers of four streams."""
TIMES_CLOSED = 2

FAILURES: tuple[tuple[ScriptedFailure, type[Exception]], ...] = (
    (ScriptedFailure(status=400, message=TOO_LONG), ContextOverflow),
    (ScriptedFailure(status=413, message="Payload Too Large"), ContextOverflow),
    (ScriptedFailure(status=400, code="context_length_exceeded", message="no"), ContextOverflow),
    (ScriptedFailure(status=429, message="slow down"), ProviderBusy),
    (ScriptedFailure(status=503, message="overloaded"), ProviderBusy),
    (ScriptedFailure(status=401, message="who are you?"), ProviderRefused),
    (ScriptedFailure(status=404, message="no such model"), ProviderRefused),
    (ScriptedFailure(status=400, message="blocked by our content filter"), ContentRefused),
)


def ask(text: str = "Hi", **more: Any) -> Prompt:
    return Prompt(system="Be kind.", messages=[{"role": "user", "content": text}], **more)


async def collect(provider: Provider, prompt: Prompt) -> tuple[list[Delta], Assistant]:
    """The pieces and the answer; fails unless there is one answer, at the end."""
    pieces = [piece async for piece in provider.stream(prompt)]
    *deltas, answer = pieces
    assert isinstance(answer, Assistant), "the last thing a stream yields is the answer"
    return [_delta(piece) for piece in deltas], answer


def _delta(piece: Delta | Assistant) -> Delta:
    assert isinstance(piece, Delta), "a stream yields one answer, and nothing but pieces before it"
    return piece


def text_of(answer: Assistant) -> str:
    blocks: list[dict[str, Any]] = answer.content if isinstance(answer.content, list) else []
    return "".join(block["text"] for block in blocks if block["type"] == "text")


def answering(*replies: ScriptedReply, only_scripted: bool = False) -> Callable[[ContractTest], Callable[..., None]]:
    """The test gets a provider whose model gives these replies. `only_scripted`: it needs answers that were chosen."""

    def decorate(test: ContractTest) -> Callable[..., None]:
        @functools.wraps(test)
        async def with_provider(self: "ProviderContract", place: Path) -> None:
            if self.scripted or not only_scripted:
                async with self.open(place, replies) as provider:
                    await test(self, provider)

        return claim(with_provider)

    return decorate


class ProviderContract:
    """Subclass it and implement `open`; for a provider with a connection also `asked` and `disconnected`."""

    scripted = True
    """False: the model's answers cannot be chosen."""

    def open(self, place: Path, replies: Sequence[ScriptedReply]) -> AbstractAsyncContextManager[Provider]:
        """A provider whose model gives these replies in order, to `stream` and to `summarise` alike."""
        raise NotImplementedError

    async def asked(self) -> None:
        """Returns when the model has received a request."""
        for _ in range(100):
            await asyncio.sleep(0)

    async def disconnected(self) -> None:
        """Returns when the model's side has noticed that the connection was closed."""

    @answering()
    async def test_it_says_which_model_it_is_and_how_much_fits(self, provider: Provider) -> None:
        assert isinstance(provider.model, str)
        assert provider.model
        assert provider.window is None or provider.window > 0

    @answering(ScriptedReply(deltas=("Hel", "lo ", "你好 👋")))
    async def test_an_answer_comes_in_pieces_and_then_whole_and_once(self, provider: Provider) -> None:
        deltas, answer = await collect(provider, ask())
        assert "".join(delta.text for delta in deltas) == text_of(answer)
        assert answer.model == provider.model
        if self.scripted:
            assert text_of(answer) == "Hello 你好 👋"
            assert answer.stop == "end_turn"

    @answering(ScriptedReply(text="I look.", tool_calls=CALLS), only_scripted=True)
    async def test_calls_have_ids_of_their_own_and_objects_as_input_in_order(self, provider: Provider) -> None:
        _, answer = await collect(provider, ask(tools=(LOOK,)))
        assert isinstance(answer.content, list)
        calls = [block for block in answer.content if block["type"] == "tool_use"]
        assert [(call["name"], call["input"]) for call in calls] == [(call.name, call.input) for call in CALLS]
        assert len({call["id"] for call in calls} - {""}) == len(CALLS)
        assert answer.stop == "tool_use"
        check_messages(_with_results(answer))

    @answering(ScriptedReply(text="I look.", tool_calls=CALLS))
    async def test_pieces_of_calls_are_the_calls_of_the_answer(self, provider: Provider) -> None:
        deltas, answer = await collect(provider, ask(tools=(LOOK,)))
        calls = [block for block in answer.content if isinstance(block, dict) and block["type"] == "tool_use"]
        pieces = [delta.call for delta in deltas if delta.call]
        assert {piece.index for piece in pieces} == set(range(len(calls)))
        for number, call in enumerate(calls):
            own = [piece for piece in pieces if piece.index == number]
            assert {(piece.id, piece.name) for piece in own} == {(call["id"], call["name"])}
            assert json.loads("".join(piece.input for piece in own) or "{}") == call["input"]
        if self.scripted:
            said = [number for number, delta in enumerate(deltas) if delta.text]
            assert len(calls) == len(CALLS)
            assert said[-1] < next(number for number, delta in enumerate(deltas) if delta.call)

    @answering(ScriptedReply(text="x"))
    async def test_parameters_it_takes_change_no_contract(self, provider: Provider) -> None:
        """A provider gets only parameters that it takes, and says which these are by names that exist."""
        assert provider.takes <= parameters.ALL
        wanted = parameters.Parameters(temperature=0.5, top_p=0.9, stop=("never said",), seed=1, effort="low")
        kept, left_out = parameters.fitting(wanted, provider.takes)
        assert set(left_out) == parameters.given(wanted) - provider.takes
        deltas, answer = await collect(provider, ask(parameters=kept))
        assert "".join(delta.text for delta in deltas) == text_of(answer)

    @answering(ScriptedReply(text="I look.", tool_calls=CALLS), ScriptedReply(text="There it is."))
    async def test_its_own_answers_can_be_sent_back_to_it(self, provider: Provider) -> None:
        _, first = await collect(provider, ask(tools=(LOOK,)))
        prompt = Prompt(system="", messages=_with_results(first), tools=(LOOK,))
        check_messages(prompt.messages)
        _, second = await collect(provider, prompt)
        assert not self.scripted or text_of(second) == "There it is."

    @answering(ScriptedReply(), only_scripted=True)
    async def test_an_answer_without_text_is_an_answer(self, provider: Provider) -> None:
        deltas, answer = await collect(provider, ask())
        assert (text_of(answer), [delta.text for delta in deltas if delta.text]) == ("", [])

    @answering(*(ScriptedReply(text=text) for text in TEXTS))
    async def test_text_of_any_kind_is_passed_on_as_it_is(self, provider: Provider) -> None:
        for text in TEXTS:
            _, answer = await collect(provider, ask(text))
            assert not self.scripted or text_of(answer) == text

    @answering(ScriptedReply(tool_calls=CALLS))
    async def test_a_prompt_is_not_changed(self, provider: Provider) -> None:
        _, answer = await collect(provider, ask(tools=(LOOK,)))
        marks = ((-1, 0), (0, 0))
        prompt = Prompt(system="S", messages=_with_results(answer), tools=(LOOK,), breakpoints=marks)
        before = copy.deepcopy(prompt)
        await collect(provider, prompt)
        await provider.summarise(prompt)
        assert prompt == before

    @answering(ScriptedReply(text="x", usage=USAGE))  # type: ignore[arg-type]
    async def test_usage_is_counted_in_input_cache_and_output(self, provider: Provider) -> None:
        _, answer = await collect(provider, ask())
        assert not self.scripted or answer.usage == USAGE
        if answer.usage is not None:
            assert {"input_tokens", "output_tokens"} <= set(answer.usage) <= set(USAGE)
            assert all(isinstance(count, int) and count >= 0 for count in answer.usage.values())

    @answering(*(ScriptedReply(text="x", stop=stop) for stop in STOPS), only_scripted=True)
    async def test_why_an_answer_ended_is_told_in_one_language(self, provider: Provider) -> None:
        assert [(await collect(provider, ask()))[1].stop for _ in STOPS] == list(STOPS)

    @answering(OVERFLOW, ScriptedReply(text="x"))
    async def test_what_does_not_fit_is_an_overflow_with_its_sizes(self, provider: Provider) -> None:
        text = "Hi" if self.scripted else "word " * (PLENTY // 5)
        error = await raises(ContextOverflow, collect(provider, ask(text)))
        if self.scripted:
            assert (error.tokens, error.window) == (9_000, 8_000)
        elif error.window:
            assert error.tokens > error.window
        await collect(provider, ask())

    @answering(
        *(reply for failure, _ in FAILURES for reply in (ScriptedReply(error=failure), ScriptedReply(text="x"))),
        only_scripted=True,
    )
    async def test_each_failure_is_one_of_ours_and_nothing_is_tried_again(self, provider: Provider) -> None:
        for failure, kind in FAILURES:
            error = await raises(kind, collect(provider, ask()))
            assert type(error) is kind, failure
            assert text_of((await collect(provider, ask()))[1]) == "x", "one request, one reply"

    @answering(
        ScriptedReply(error=ScriptedFailure(status=429, message="slow down", retry_after_s=7)), only_scripted=True
    )
    async def test_a_time_to_wait_is_passed_on(self, provider: Provider) -> None:
        assert (await raises(ProviderBusy, collect(provider, ask()))).retry_after_s == 7

    @answering(BROKEN_OFF, only_scripted=True)
    async def test_a_failure_in_the_middle_of_an_answer_leaves_no_answer(self, provider: Provider) -> None:
        pieces: list[Delta | Assistant] = []

        async def listen() -> None:
            async for piece in provider.stream(ask()):
                pieces.append(piece)

        await raises(ProviderBusy, listen())
        assert [_delta(piece).text for piece in pieces] == ["a"]

    @answering(LONG, ScriptedReply(text="next"))
    async def test_closing_the_stream_early_ends_the_call(self, provider: Provider) -> None:
        async with aclosing(provider.stream(ask())) as pieces:
            await anext(pieces)
        await self.disconnected()
        _, answer = await collect(provider, ask())
        assert not self.scripted or text_of(answer) == "next"

    @answering(SILENT, ScriptedReply(text="next"))
    async def test_cancelling_a_call_ends_it_and_the_next_one_is_answered(self, provider: Provider) -> None:
        call = asyncio.create_task(collect(provider, ask()))
        await self.asked()
        call.cancel()
        [ended] = await asyncio.gather(call, return_exceptions=True)
        assert not self.scripted or isinstance(ended, asyncio.CancelledError)
        await self.disconnected()
        _, answer = await collect(provider, ask())
        assert not self.scripted or text_of(answer) == "next"

    @answering(*(ScriptedReply(deltas=pieces) for pieces in PIECES))
    async def test_streams_at_the_same_time_do_not_mix(self, provider: Provider) -> None:
        answers = await asyncio.gather(*(collect(provider, ask(f"Number {n}")) for n in range(4)))
        for deltas, answer in answers:
            assert "".join(delta.text for delta in deltas) == text_of(answer)
        if self.scripted:
            assert sorted(text_of(answer) for _, answer in answers) == ["".join(pieces) for pieces in PIECES]

    @answering(ScriptedReply(text="They met."), OVERFLOW)
    async def test_a_summary_is_text_and_fails_like_an_answer(self, provider: Provider) -> None:
        summary = await provider.summarise(ask("Ann: hello. Bob: hello.", tools=(LOOK,)))
        assert isinstance(summary, str)
        if self.scripted:
            assert summary == "They met."
            await raises(ContextOverflow, provider.summarise(ask()))

    @answering(ScriptedReply(text="x"))
    async def test_closing_it_twice_does_no_harm(self, provider: Provider) -> None:
        await collect(provider, ask())
        for _ in range(TIMES_CLOSED):
            await provider.close()


def _with_results(answer: Assistant) -> list[Any]:
    """A conversation that continues after this answer; the results of its calls come first."""
    content = answer.content if isinstance(answer.content, list) else []
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "found"}
        for block in content
        if block["type"] == "tool_use"
    ]
    return [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": content},
        {"role": "user", "content": [*results, {"type": "text", "text": "And?"}]},
    ]

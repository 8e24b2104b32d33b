"""Tools for testing programs that use Turnlog; contracts for stores, providers and channels (docs/how-to/extending.md).

    class TestMyStore(StoreContract):
        def open(self, place, **options):
            return my_store(place, **options)      # an async context manager that gives a Store

Nothing here imports pytest; the contract's tests are plain methods that any runner can collect.
"""

from collections.abc import AsyncGenerator, Awaitable, Iterator, Mapping, Sequence
from contextlib import aclosing
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from msgspec import convert

from ..core.entries import Assistant, Entry, Opened
from ..core.parameters import ALL
from ..core.prompt import Prompt
from ..providers import Delta
from ..providers.scripted import PAST_THE_END, ScriptedReply as ScriptedReply, play, say
from .wires import InvalidMessages as InvalidMessages, WireName, check, check_anthropic, check_json, check_openai

if TYPE_CHECKING:
    from .channel_contract import ChannelContract as ChannelContract
    from .provider_contract import ProviderContract as ProviderContract
    from .store_contract import StoreContract as StoreContract


def check_messages(
    messages: Sequence[Mapping[str, Any]], wire: WireName | None = None, *, tools: Sequence[Mapping[str, Any]] = ()
) -> None:
    """Raises InvalidMessages unless a provider would accept these messages.

    Without a `wire`, it checks order, pairing and ids, in Anthropic's shape, as prompts are built. With one, it checks
    all rules of that API for `messages` and `tools` of a request, in its own shape, as they are sent.
    """
    if not messages:
        raise InvalidMessages("there is no message")
    check_json([messages, tools])
    if wire == "openai":
        check_openai(messages, tools)
        return
    _check_order(messages)
    if wire == "anthropic":
        check_anthropic(messages, tools)


def _check_order(messages: Sequence[Mapping[str, Any]]) -> None:
    seen: set[str] = set()
    owed: list[str] = []
    for index, message in enumerate(messages):
        role = message.get("role")
        expected = "user" if index % 2 == 0 else "assistant"
        check(role == expected, f"message {index} is {role!r}, not {expected!r}")
        blocks = _blocks(message, index)
        results = [block for block in blocks if block.get("type") == "tool_result"]
        ids = [str(block.get("tool_use_id")) for block in results]
        check(sorted(ids) == sorted(owed), f"message {index} answers calls {ids}, but {owed} were made right before")
        check(blocks[: len(results)] == results, f"message {index}: tool results must come first")
        owed = _calls(index, blocks, seen)
        check(not owed or role == "assistant", f"message {index}: a user message calls a tool")
    check(not owed, f"the last message calls {owed[:1]} and no result follows")


def _blocks(message: Mapping[str, Any], index: int) -> list[Mapping[str, Any]]:
    content: Any = message.get("content")
    blocks: list[Mapping[str, Any]] = [{"type": "text", "text": content}] if isinstance(content, str) else content
    check(isinstance(blocks, list) and blocks, f"message {index} has no content")
    for block in blocks:
        _check_block(block, index)
    return blocks


def _check_block(block: Mapping[str, Any], index: int) -> None:
    match block.get("type"):
        case "text" if not str(block.get("text") or "").strip():
            raise InvalidMessages(f"message {index} has a blank text block")
        case "tool_result" if isinstance(block.get("content"), list):
            for inner in block["content"]:
                _check_block(inner, index)
        case "tool_use" if not isinstance(block.get("input"), dict) or not block.get("name"):
            raise InvalidMessages(f"message {index}: a call needs a name and an object as input")
        case None:
            raise InvalidMessages(f"message {index} has a block without a type")
        case _:
            pass


def _calls(index: int, blocks: Sequence[Mapping[str, Any]], seen: set[str]) -> list[str]:
    ids = [block.get("id") for block in blocks if block.get("type") == "tool_use"]
    for call_id in ids:
        is_new = isinstance(call_id, str) and call_id and call_id not in seen
        check(is_new, f"message {index}: call id {call_id!r} is missing or used twice")
        seen.add(str(call_id))
    return cast("list[str]", ids)


class FixedClock:
    """A clock in Unix milliseconds that moves only when told to."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, *, ms: int = 0, s: float = 0, minutes: float = 0, hours: float = 0) -> None:
        self.now_ms += int(ms + s * 1000 + minutes * 60_000 + hours * 3_600_000)


class ScriptedProvider:
    """Answers from a script, in order; after its end it says "ok". Keeps every prompt, and checks each of them."""

    model = "scripted"
    takes = ALL

    def __init__(
        self,
        replies: Sequence[ScriptedReply | Mapping[str, Any]] = (),
        *,
        summaries: Sequence[ScriptedReply | Mapping[str, Any]] = (),
        window: int | None = None,
    ) -> None:
        self._replies = _replies(replies)
        self._summaries = _replies(summaries)
        self.window = window
        self.prompts: list[Prompt] = []
        self.summary_prompts: list[Prompt] = []
        self.closed = False

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Delta | Assistant]:
        check_messages(prompt.messages)
        self.prompts.append(prompt)
        async with aclosing(play(next(self._replies, PAST_THE_END), self.model)) as pieces:
            async for piece in pieces:
                yield piece

    async def summarise(self, prompt: Prompt) -> str:
        self.summary_prompts.append(prompt)
        return await say(next(self._summaries, PAST_THE_END))

    async def close(self) -> None:
        self.closed = True


def _replies(script: Sequence[ScriptedReply | Mapping[str, Any]]) -> Iterator[ScriptedReply]:
    """Checks all replies at once, so that a mistake in a script shows where it is written."""
    return iter([convert(reply, ScriptedReply) if isinstance(reply, Mapping) else reply for reply in script])


def entry(**fields: Any) -> Entry:
    """An entry from plain values: `entry(type="user", content="hi")`."""
    return convert(fields, Entry)


def said(text: str) -> Entry:
    return entry(type="user", content=text)


def answered(text: str) -> Entry:
    return entry(type="assistant", content=[{"type": "text", "text": text}], model="m", stop="end_turn")


def opened(session_id: str, *, peer: str = "user", agent: str = "main") -> Opened:
    return Opened(id=session_id, key=f"agent:{agent}:cli:direct:{peer}", agent=agent, channel="cli")


async def raises(kind: type[Exception], doing: Awaitable[Any]) -> Any:
    """The error that `doing` raises; fails if it raises another, or none."""
    try:
        await doing
    except kind as error:
        assert getattr(error, "hint", "x"), f"{kind.__name__} has no hint"
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


_CONTRACTS = {
    "ChannelContract": "channel_contract",
    "ProviderContract": "provider_contract",
    "StoreContract": "store_contract",
}


def __getattr__(name: str) -> Any:
    """Imports the contracts at first use, because they need much that the rest does not."""
    if name not in _CONTRACTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_CONTRACTS[name]}", __name__), name)

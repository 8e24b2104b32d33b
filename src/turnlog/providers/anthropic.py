"""Anthropic's Messages API through the official SDK: a prompt to a request, a stream to an answer.

Every request of a growing session begins with the bytes of the one before, but for the cache marks: contents are
always lists of blocks, never the shorthand of a plain string, because only a block can carry a mark and a mark moves
on. Blocks belong to stored entries and are never changed, only copied. Nothing is retried here.
"""

import os
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any, cast

from msgspec.structs import replace

from ..core.entries import Assistant, Block, Usage, clean, text_of
from ..core.history import ApiMessage, as_text
from ..core.prompt import MAX_BREAKPOINTS, Prompt
from . import Delta
from .calls import read_input
from .failures import check_installed, cut_short, failure_of, load, missing_key
from .windows import UNKNOWN_OUTPUT, of_claude

KEY = "ANTHROPIC_API_KEY"
TOKEN = "ANTHROPIC_AUTH_TOKEN"  # noqa: S105 - the variable's name

CONNECT_TIMEOUT_S = 10.0
"""An address that does not answer is told from a model that thinks for minutes."""

MARK = {"type": "ephemeral"}

_KNOWN = frozenset({"text", "image", "document", "search_result", "tool_use", "tool_result", "server_tool_use"})
"""Besides thinking and the results of server tools. What another provider signed or encrypted is of no other kind."""

_USAGE = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")


class AnthropicProvider:
    def __init__(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        window: int | None = None,
        max_output: int | None = None,
        timeout_s: float = 600,
    ) -> None:
        check_installed("anthropic")
        size = of_claude(name)
        self._name = name
        self._window = window or (size.window if size else None)
        self._max_output = max_output or (size.output if size else UNKNOWN_OUTPUT)
        self._credentials = _credentials(api_key)
        self._base_url = base_url
        self._timeout_s = timeout_s
        self._opened: Any = None

    @property
    def model(self) -> str:
        return f"anthropic:{self._name}"

    @property
    def window(self) -> int | None:
        return self._window

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Delta | Assistant, None]:
        answer = _Answer()
        async with aclosing(self._events(request_of(prompt, self._name, self._max_output))) as events:
            async for event in events:
                if delta := answer.take(event):
                    yield delta
        yield answer.finish(self.model)

    async def summarise(self, prompt: Prompt) -> str:
        async with aclosing(self.stream(replace(prompt, may_call=False))) as pieces:
            async for piece in pieces:
                if isinstance(piece, Assistant):
                    return text_of(piece.content)
        raise cut_short()

    async def close(self) -> None:
        if self._opened is not None:
            opened, self._opened = self._opened, None
            await opened.close()

    def _client(self, sdk: Any) -> Any:
        if self._opened is None:
            self._opened = sdk.AsyncAnthropic(
                **self._credentials,
                base_url=self._base_url,
                max_retries=0,  # the runner retries; twice would be six times as often
                timeout=sdk.Timeout(self._timeout_s, connect=min(CONNECT_TIMEOUT_S, self._timeout_s)),
            )
        return self._opened

    async def _events(self, request: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        sdk = load("anthropic")
        try:
            async with await self._client(sdk).messages.create(**request, stream=True) as events:
                async for event in events:
                    yield event.to_dict(mode="json", warnings=False)
        except Exception as error:
            raise failure_of(error, sdk, key=KEY) from error


def _credentials(api_key: str | None) -> dict[str, str]:
    """Said explicitly, so that the SDK does not go on to look for profiles on the disk."""
    if key := api_key or os.environ.get(KEY):
        return {"api_key": key}
    if token := os.environ.get(TOKEN):
        return {"auth_token": token}
    raise missing_key(KEY)


def request_of(prompt: Prompt, name: str, max_output: int) -> dict[str, Any]:
    """The body, as the SDK takes it. The same prompt gives the same bytes."""
    marks = set(prompt.breakpoints[:MAX_BREAKPOINTS])
    head = any(message == -1 for message, _ in marks)
    request: dict[str, Any] = {
        "model": name,
        "max_tokens": prompt.max_output or max_output,
        "messages": _messages(prompt.messages, marks),
    }
    if prompt.system:
        request["system"] = _marked([{"type": "text", "text": clean(prompt.system)}], head)
    if prompt.tools:
        request["tools"] = _marked(_tools(prompt), head and not prompt.system)
        if not prompt.may_call:
            request["tool_choice"] = {"type": "none"}
    return request


def _tools(prompt: Prompt) -> list[Block]:
    tools: list[Block] = []
    for tool in prompt.tools:
        described = {"description": tool.description} if tool.description else {}
        tools.append({"name": tool.name, **described, "input_schema": {"type": "object", **tool.input_schema}})
    return tools


def _marked(blocks: list[Block], wanted: bool) -> list[Block]:
    """The mark goes to the last block that may have one."""
    if not wanted:
        return blocks
    for index in range(len(blocks) - 1, -1, -1):
        if blocks[index].get("type") not in ("thinking", "redacted_thinking"):
            return [*blocks[:index], {**blocks[index], "cache_control": MARK}, *blocks[index + 1 :]]
    return blocks


def _messages(messages: list[ApiMessage], marks: set[tuple[int, int]]) -> list[ApiMessage]:
    """A message of which nothing is left is left out, and its neighbours, being of one role, become one."""
    sent: list[ApiMessage] = []
    for index, message in enumerate(messages):
        blocks: list[Block] = []
        for number, block in enumerate(_blocks(message)):
            blocks.extend(_shown(message["role"], block))
            blocks = _marked(blocks, (index, number) in marks)
        if blocks and sent and sent[-1]["role"] == message["role"]:
            sent[-1]["content"].extend(blocks)
        elif blocks:
            sent.append({"role": message["role"], "content": blocks})
    return sent


def _blocks(message: ApiMessage) -> list[Block]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _shown(role: str, block: Block) -> Iterator[Block]:
    kind = str(block.get("type"))
    match kind:
        case "thinking":
            if block.get("signature"):
                yield block
        case "redacted_thinking":
            if block.get("data"):
                yield block
        case "tool_use":
            yield {**_unmarked(block), "id": _safe_id(block["id"])}
        case "tool_result":
            yield {**_unmarked(block), "tool_use_id": _safe_id(block["tool_use_id"])}
        case _ if kind in _KNOWN or kind.endswith("_tool_result"):
            yield _unmarked(block)
        case _ if role == "user":
            yield {"type": "text", "text": as_text([block])}
        case _:
            pass


def _unmarked(block: Block) -> Block:
    """Imported blocks may bring marks of their own, and there is room for four in all."""
    plain = {name: value for name, value in block.items() if name != "cache_control"}
    inner = plain.get("content")
    if isinstance(inner, list):
        plain["content"] = [_unmarked(part) for part in cast("list[Block]", inner)]
    return plain


def _safe_id(call_id: str) -> str:
    """Other servers make ids such as "functions.read:0"; this API takes letters, digits, _ and - only."""
    return _NOT_IN_IDS.sub(lambda found: f"_{ord(found[0]):x}_", call_id)


class _Answer:
    """One answer as it arrives. Pieces are kept in lists: joining them one by one costs the square of their number."""

    def __init__(self) -> None:
        self._starts: dict[int, Block] = {}
        self._pieces: dict[tuple[int, str], list[Any]] = {}
        self._usage: Usage = dict.fromkeys(_USAGE, 0)
        self._stop: str | None = None
        self._ended = False

    def take(self, event: dict[str, Any]) -> Delta | None:
        match event:
            case {"type": "message_start", "message": {"usage": {**usage}}}:
                self._count(usage)
            case {"type": "content_block_start", "index": int(index), "content_block": {**block}}:
                self._starts[index] = {name: value for name, value in block.items() if value is not None}
                if block.get("text"):
                    return Delta(text=str(block["text"]))
            case {"type": "content_block_delta", "index": int(index), "delta": {**delta}}:
                return self._add(index, delta)
            case {"type": "message_delta", "delta": {**delta}}:
                self._stop = delta.get("stop_reason") or self._stop
                self._count(event.get("usage") or {})
            case {"type": "message_stop"}:
                self._ended = True
            case _:
                pass  # kinds of events that are new, or that say nothing to us
        return None

    def _count(self, usage: dict[str, Any]) -> None:
        self._usage.update({name: usage[name] for name in _USAGE if isinstance(usage.get(name), int)})

    def _add(self, index: int, delta: dict[str, Any]) -> Delta | None:
        match delta:
            case {"type": "text_delta", "text": str(text)}:
                self._keep(index, "text", text)
                return Delta(text=text)
            case {"type": "thinking_delta", "thinking": str(text)}:
                self._keep(index, "thinking", text)
                return Delta(thinking=text)
            case {"type": "signature_delta", "signature": str(text)}:
                self._keep(index, "signature", text)
            case {"type": "input_json_delta", "partial_json": str(text)}:
                self._keep(index, "input", text)
            case {"type": "citations_delta", "citation": {**citation}}:
                self._keep(index, "citations", citation)
            case _:
                pass
        return None

    def _keep(self, index: int, field: str, piece: Any) -> None:
        self._pieces.setdefault((index, field), []).append(piece)

    def finish(self, model: str) -> Assistant:
        if not self._ended:
            raise cut_short()
        content = [self._block(index) for index in sorted(self._starts)]
        return Assistant(content=content, model=model, usage=self._usage, stop=self._stop)

    def _block(self, index: int) -> Block:
        block = dict(self._starts[index])
        for (owner, field), pieces in self._pieces.items():
            if owner != index:
                continue
            match field:
                case "input":
                    block["input"] = read_input("".join(pieces))
                case "citations":
                    block["citations"] = [*block.get("citations", ()), *pieces]
                case _:
                    block[field] = str(block.get(field, "")) + "".join(pieces)
        if block.get("type") == "tool_use" and not isinstance(block.get("input"), dict):
            block["input"] = read_input(str(block.get("input") or ""))
        return block

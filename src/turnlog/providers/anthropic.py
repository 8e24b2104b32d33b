"""Anthropic's Messages API through the official SDK: converts a prompt to a request, and a stream to an answer.

Every request of a growing session begins with the bytes of the previous one, except for the cache marks: contents are
always lists of blocks, never plain strings, because only a block can carry a mark and marks move. Blocks belong to
stored entries, so they are copied and never changed. Nothing is retried here.
"""

import os
from collections.abc import AsyncGenerator
from copy import copy
from typing import Any

from msgspec.structs import replace

from ..core.entries import Assistant, Block, Usage
from ..core.history import ApiMessage
from ..core.parameters import Parameters
from ..core.prompt import HEAD, MAX_BREAKPOINTS, SYSTEM_LEAD, Prompt, system_parts
from . import CallPiece, Delta
from .sdk import SdkClient, check_installed, missing_key, unchecked
from .streaming import answered, cut_short, summary_from
from .tool_input import read_input
from .windows import UNKNOWN_OUTPUT, of_claude

KEY = "ANTHROPIC_API_KEY"
TOKEN = "ANTHROPIC_AUTH_TOKEN"  # noqa: S105 - the variable's name

MARK = {"type": "ephemeral"}

TAKES = frozenset({"stop", "tool_choice", "parallel", "format", "thinking", "user", "betas", "server_tools"})
"""Without temperature, top_p and top_k: the version of the API that the SDK speaks refuses them."""
NO_EFFORT = (
    "claude-3-",
    "claude-opus-4-0",
    "claude-opus-4-1",
    "claude-opus-4-2",
    "claude-sonnet-4-",
    "claude-haiku-4-",
)
"""Models that refuse an effort; `claude-sonnet-4-6` and later ones of that name know it."""
EFFORT_SINCE = ("claude-sonnet-4-6", "claude-sonnet-4-7", "claude-sonnet-4-8")
EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
STREAMED = ("text", "thinking", "tool_use")
"""Blocks whose pieces are passed on as they come; others are passed on whole."""
CHOICES = {"auto": "auto", "required": "any", "none": "none", "named": "tool"}

_USAGE = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")


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
        check_installed("anthropic")  # before a key is missed
        self.base_url = base_url
        """None: the provider's own address."""
        self._given_window, self._given_output = window, max_output
        self._choose(name)
        self._client = SdkClient(
            "anthropic", "AsyncAnthropic", key=KEY, timeout_s=timeout_s, base_url=base_url, **_credentials(api_key)
        )

    def _choose(self, name: str) -> None:
        self.model, self._name = f"anthropic:{name}", name
        size = of_claude(name)
        self.window = self._given_window or (size.window if size else None)
        self._max_output = self._given_output or (size.output if size else UNKNOWN_OUTPUT)
        self.takes = TAKES | {"effort"} if _knows_effort(name) else TAKES

    def named(self, name: str) -> "AnthropicProvider":
        """Another model of this API, with the same connections; closing one closes both."""
        named = copy(self)
        named._choose(name)
        return named

    def stream(self, prompt: Prompt) -> AsyncGenerator[Delta | Assistant, None]:
        return answered(prompt, "anthropic", self.model, MessageAnswer(), self._events)

    async def summarise(self, prompt: Prompt) -> str:
        return await summary_from(self.stream(replace(prompt, may_call=False)))

    async def close(self) -> None:
        await self._client.close()

    def _events(self, prompt: Prompt) -> AsyncGenerator[dict[str, Any], None]:
        request = request_of(prompt, self._name, self._max_output)
        if prompt.parameters.betas:
            request["extra_headers"] = {"anthropic-beta": ",".join(prompt.parameters.betas)}
        sent = unchecked(request, "messages", "tools")
        return self._client.events(lambda client: client.messages.create(**sent, stream=True))


def _credentials(api_key: str | None) -> dict[str, str]:
    """Passed explicitly, so that the SDK does not search for profiles on the disk."""
    if key := api_key or os.environ.get(KEY):
        return {"api_key": key}
    if token := os.environ.get(TOKEN):
        return {"auth_token": token}
    raise missing_key(KEY)


def request_of(prompt: Prompt, name: str, max_output: int) -> dict[str, Any]:
    """The request body for the SDK, from an adapted prompt. The same prompt gives the same bytes."""
    marks = set(prompt.breakpoints[:MAX_BREAKPOINTS])
    constant, lead = system_parts(prompt)
    request: dict[str, Any] = {
        "model": name,
        "max_tokens": prompt.max_output or max_output,
        "messages": _messages(prompt.messages, marks),
    }
    if prompt.system:
        request["system"] = [*_system(constant, HEAD in marks), *_system(lead, SYSTEM_LEAD in marks)]
    if prompt.tools or prompt.parameters.server_tools:
        request["tools"] = _marked(_tools(prompt), HEAD in marks and not constant)
        if not prompt.may_call:
            request["tool_choice"] = {"type": "none"}
    return {**request, **_parameters(prompt)}


def _parameters(prompt: Prompt) -> dict[str, Any]:
    given = prompt.parameters
    made: dict[str, Any] = {}
    if given.stop:
        made["stop_sequences"] = list(given.stop)
    if prompt.may_call and (prompt.tools or given.server_tools) and (choice := _choice(given)):
        made["tool_choice"] = choice
    output: dict[str, Any] = {}
    if given.effort in EFFORTS:
        output["effort"] = EFFORTS[given.effort]
    if given.format is not None and "schema" in given.format:
        output["format"] = {"type": "json_schema", "schema": given.format["schema"]}
    if output:
        made["output_config"] = output
    if given.thinking is not None:
        made["thinking"] = given.thinking
    elif given.effort == "none":
        made["thinking"] = {"type": "disabled"}
    if given.user:
        made["metadata"] = {"user_id": given.user}
    return made


def _choice(given: Parameters) -> dict[str, Any]:
    choice: dict[str, Any] = {"type": CHOICES[given.tool_choice]} if given.tool_choice else {}
    if given.tool_choice == "named":
        choice["name"] = given.tool
    if given.parallel is False and given.tool_choice != "none":
        choice = {"type": "auto", **choice, "disable_parallel_tool_use": True}
    return choice


def _knows_effort(name: str) -> bool:
    return name.startswith(EFFORT_SINCE) or not name.startswith(NO_EFFORT)


def _system(text: str, is_marked: bool) -> list[Block]:
    return _marked([{"type": "text", "text": text}], is_marked) if text.strip() else []


def _tools(prompt: Prompt) -> list[Block]:
    tools: list[Block] = []
    for tool in prompt.tools:
        described = {"description": tool.description} if tool.description else {}
        tools.append({"name": tool.name, **described, "input_schema": {"type": "object", **tool.input_schema}})
    return [*tools, *prompt.parameters.server_tools]


def _marked(blocks: list[Block], wanted: bool) -> list[Block]:
    """Puts the mark on the last block that may have one."""
    if not wanted:
        return blocks
    for index in range(len(blocks) - 1, -1, -1):
        if blocks[index].get("type") not in ("thinking", "redacted_thinking"):
            return [*blocks[:index], {**blocks[index], "cache_control": MARK}, *blocks[index + 1 :]]
    return blocks


def _messages(messages: list[ApiMessage], marks: set[tuple[int, int]]) -> list[ApiMessage]:
    sent = [{**message} for message in messages]
    for index, number in sorted(marks):
        if index >= 0:
            blocks = sent[index]["content"]
            sent[index]["content"] = [*_marked(blocks[: number + 1], True), *blocks[number + 1 :]]
    return sent


class MessageAnswer:
    """One answer as it arrives. Pieces are kept in lists: joining them one by one takes quadratic time."""

    def __init__(self) -> None:
        self._starts: dict[int, Block] = {}
        self._newest = ""
        """The type of the newest block."""
        self._begins = False
        """The newest block is of the same type as the one before, and no piece of it has come."""
        self._pieces: dict[tuple[int, str], list[Any]] = {}
        self._usage: Usage = dict.fromkeys(_USAGE, 0)
        self._stop: str | None = None
        self._ended = False

    def take(self, event: dict[str, Any]) -> list[Delta]:
        match event:
            case {"type": "message_start", "message": {"usage": {**usage}}}:
                self._count(usage)
            case {"type": "content_block_start", "index": int(index), "content_block": {**block}}:
                return self._start(index, {name: value for name, value in block.items() if value is not None})
            case {"type": "content_block_delta", "index": int(index), "delta": {**delta}}:
                return self._add(index, delta)
            case {"type": "content_block_stop", "index": int(index)} if index in self._starts:
                return [Delta(block=self._block(index))] if self._newest not in STREAMED else []
            case {"type": "message_delta", "delta": {**delta}}:
                self._stop = delta.get("stop_reason") or self._stop
                self._count(event.get("usage") or {})
            case {"type": "message_stop"}:
                self._ended = True
            case _:
                pass  # new kinds of events, and those that are not needed
        return []

    def _start(self, index: int, block: Block) -> list[Delta]:
        kind = str(block.get("type"))
        self._begins = kind == self._newest
        self._starts[index], self._newest = block, kind
        if kind == "tool_use":
            return [self._call_piece(index, "")]
        if kind == "text" and block.get("text"):
            return [self._words(text=str(block["text"]))]
        return []

    def _words(self, *, text: str = "", thinking: str = "") -> Delta:
        begins, self._begins = self._begins, False
        return Delta(text=text, thinking=thinking, begins=begins)

    def _call_piece(self, index: int, piece: str) -> Delta:
        block = self._starts[index]
        number = sum(1 for at, other in self._starts.items() if at < index and other.get("type") == "tool_use")
        return Delta(call=CallPiece(number, str(block.get("id") or ""), str(block.get("name") or ""), piece))

    def _count(self, usage: dict[str, Any]) -> None:
        self._usage.update({name: usage[name] for name in _USAGE if isinstance(usage.get(name), int)})

    def _add(self, index: int, delta: dict[str, Any]) -> list[Delta]:
        match delta:
            case {"type": "text_delta", "text": str(text)}:
                self._keep(index, "text", text)
                return [self._words(text=text)]
            case {"type": "thinking_delta", "thinking": str(text)}:
                self._keep(index, "thinking", text)
                return [self._words(thinking=text)]
            case {"type": "signature_delta", "signature": str(text)}:
                self._keep(index, "signature", text)
                return [Delta(signature=text)]
            case {"type": "input_json_delta", "partial_json": str(text)}:
                self._keep(index, "input", text)
                if text and self._starts.get(index, {}).get("type") == "tool_use":
                    return [self._call_piece(index, text)]
            case {"type": "citations_delta", "citation": {**citation}}:
                self._keep(index, "citations", citation)
            case _:
                pass
        return []

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

"""The model that needs nothing: no network, no account, no weights. It is there so that everything else can be seen.

Answers at once and always the same, from what its prompt shows and from nothing else: what it still knows after a
resume, a switch or a compaction is what a real model would have been shown. Counts tokens by estimate and refuses
a prompt that is too large in the words of a real provider. Understands nothing, and says so.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from typing import Any, cast

from ..core import tokens
from ..core.entries import Assistant, Usage
from ..core.history import as_text
from ..core.prompt import Prompt, as_dict
from ..errors import ContextOverflow
from . import Delta
from .offline_answers import Answer, answer
from .offline_summary import summarise

WINDOW = 8_000
"""Small, so that an afternoon's talk gets to see a compaction."""
PIECES = 4
"""Deltas of one answer: enough to see it stream, few enough to be at once."""


class OfflineProvider:
    model = "offline"

    def __init__(self, *, window: int | None = None, max_output: int | None = None) -> None:
        self.window = window or WINDOW
        self._max_output = max_output
        self._tools: tuple[object, str] = ((), "")
        """The tools of the last prompt, and how they read: they are the same again and again."""

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Delta | Assistant]:
        seen = self._flatten(prompt)
        size = _check_size(prompt, seen, self.window)
        reply, stop = _cut(answer(prompt), prompt.max_output or self._max_output or self.window, self.window - size)
        for piece in _pieces(reply.text):
            yield Delta(text=piece)
            await asyncio.sleep(0)
        blocks: list[dict[str, Any]] = [{"type": "text", "text": reply.text}] if reply.text else []
        if reply.call:
            blocks.append(_call_block(reply.call, seen))
        spent = tokens.of_messages([{"role": "assistant", "content": blocks}])
        yield Assistant(content=blocks, model=self.model, usage=_usage(size, spent), stop=stop)

    async def summarise(self, prompt: Prompt) -> str:
        _check_size(prompt, self._flatten(prompt), self.window)
        return summarise("\n\n".join(as_text(message["content"]) for message in prompt.messages))

    async def close(self) -> None:
        """Nothing is open."""

    def _flatten(self, prompt: Prompt) -> str:
        """All of it as one text: counting that costs a third of counting each message by itself, and differs by 1 %."""
        if prompt.tools is not self._tools[0]:
            self._tools = prompt.tools, as_text(as_dict(prompt)["tools"]) if prompt.tools else ""
        return "\n".join((prompt.system, self._tools[1], *(as_text(message["content"]) for message in prompt.messages)))


def _check_size(prompt: Prompt, seen: str, window: int) -> int:
    size = tokens.of_text(seen) + tokens.MESSAGE_TOKENS * len(prompt.messages) + tokens.IMAGE_TOKENS * _images(prompt)
    if size > window:
        raise ContextOverflow(f"prompt is too long: {size} tokens > {window} maximum", tokens=size, window=window)
    return size


def _images(prompt: Prompt) -> int:
    contents: list[Any] = [message["content"] for message in prompt.messages]
    lists = (cast("list[dict[str, Any]]", content) for content in contents if isinstance(content, list))
    return sum(block.get("type") == "image" for blocks in lists for block in blocks)


def _cut(reply: Answer, allowed: int, room: int) -> tuple[Answer, str]:
    """The answer as far as it may go, and why it ends there."""
    size = tokens.of_text(reply.text)
    if size <= min(allowed, room):
        return reply, "tool_use" if reply.call else "end_turn"
    kept = reply.text[: len(reply.text) * min(allowed, room) // size]
    return Answer(kept), "max_tokens" if allowed <= room else "model_context_window_exceeded"


def _pieces(text: str) -> list[str]:
    step = -(-len(text) // PIECES)
    return [text[at : at + step] for at in range(0, len(text), step)] if text else []


def _call_block(call: tuple[str, dict[str, Any]], seen: str) -> dict[str, Any]:
    # From the prompt and not from a counter: the same prompt gives the same id, and no two of a session are alike.
    digest = hashlib.blake2b(seen.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return {"type": "tool_use", "id": f"offline_{digest}", "name": call[0], "input": call[1]}


def _usage(size: int, spent: int) -> Usage:
    return {
        "input_tokens": size,
        "cache_read_input_tokens": 0,
        "cache_creation_input_tokens": 0,
        "output_tokens": spent,
    }

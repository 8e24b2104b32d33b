"""A model that needs no network, no account and no weights, so that everything else can be tried.

It answers at once, deterministically, and only from its prompt: what it still knows after a resume, a switch or a
compaction is what a real model would have seen. It estimates tokens and refuses a prompt that is too large in the words
of a real provider. It understands nothing, and says so.
"""

import asyncio
import hashlib
import json
import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from ...core import tokens
from ...core.entries import Assistant, Usage
from ...core.history import as_text
from ...core.prompt import Prompt, as_dict
from ...errors import ContextOverflow
from .. import CallPiece, Delta
from .answers import answer
from .summary import summarise

WINDOW = 8_000
"""Small, so that a few dozen messages cause a compaction."""
PIECES = 4
"""The number of deltas of one answer: enough to see it stream."""


class OfflineProvider:
    model = "offline"
    takes = frozenset({"stop"})

    def __init__(self, *, window: int | None = None, max_output: int | None = None) -> None:
        self.window = window or WINDOW
        self._max_output = max_output
        self._tools: tuple[object, str] = ((), "")
        """The tools of the last prompt and their text: they are usually the same."""

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Delta | Assistant]:
        size = self._check_size(prompt)
        text, call = answer(prompt)
        text, call = _until_stop(text, call, prompt.parameters.stop)
        text, stop = _cut(text, prompt.max_output or self._max_output or self.window, self.window - size)
        step = len(text) // PIECES + 1
        for at in range(0, len(text), step):
            yield Delta(text=text[at : at + step])
            await asyncio.sleep(0)
        blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        if call and not stop:
            # Derived from the prompt: the same prompt gives the same id, and no two of a session are equal.
            seen = self._flatten(prompt).encode("utf-8", "surrogatepass")
            digest = hashlib.blake2b(seen, digest_size=8).hexdigest()
            blocks.append({"type": "tool_use", "id": f"offline_{digest}", "name": call[0], "input": call[1]})
            yield Delta(call=CallPiece(0, f"offline_{digest}", call[0], json.dumps(call[1], ensure_ascii=False)))
        spent = tokens.of_messages([{"role": "assistant", "content": blocks}])
        usage: Usage = {"input_tokens": size, "output_tokens": spent}
        stop = stop or ("tool_use" if call else "end_turn")
        yield Assistant(content=blocks, model=self.model, usage=usage, stop=stop)

    async def summarise(self, prompt: Prompt) -> str:
        self._check_size(prompt)
        asked = "\n\n".join(as_text(message["content"]) for message in prompt.messages)
        return summarise(asked, prompt.max_output)

    async def close(self) -> None:
        """Nothing is open."""

    def _flatten(self, prompt: Prompt) -> str:
        """The whole prompt as one text."""
        contents = [message["content"] for message in prompt.messages]
        return "\n".join((prompt.system, self._tools_text(prompt), *map(as_text, contents)))

    def _tools_text(self, prompt: Prompt) -> str:
        if prompt.tools != self._tools[0]:
            self._tools = prompt.tools, as_text(as_dict(prompt)["tools"]) if prompt.tools else ""
        return self._tools[1]

    def _check_size(self, prompt: Prompt) -> int:
        return _checked(
            tokens.of_text(prompt.system) + tokens.of_text(self._tools_text(prompt)) + size_of(prompt.messages),
            self.window,
        )


def size_of(messages: Sequence[Mapping[str, Any]]) -> int:
    """As `tokens.of_messages`. Most messages are texts that were in the prompt before: their prices are remembered."""
    prices: list[float] = []
    for message in messages:
        content = message["content"]
        for block in ({"type": "text", "text": content},) if isinstance(content, str) else content:
            if block.get("type") != "text":
                return tokens.of_messages(messages)
            prices.append(tokens.price_of_text(block["text"]))
    return max(0, round(math.fsum(prices) + tokens.MESSAGE_TOKENS * len(messages)))


def _checked(size: int, window: int) -> int:
    if size > window:
        raise ContextOverflow(f"prompt is too long: {size} tokens > {window} maximum", tokens=size, window=window)
    return size


def _until_stop(
    text: str, call: tuple[str, dict[str, Any]] | None, stops: Sequence[str]
) -> tuple[str, tuple[str, dict[str, Any]] | None]:
    """The answer up to the first of the texts that end it."""
    ends = [at for stop in stops if stop and (at := text.find(stop)) >= 0]
    return (text[: min(ends)], None) if ends else (text, call)


def _cut(text: str, allowed: int, room: int) -> tuple[str, str]:
    """The answer up to its limit, and why it is cut."""
    size = tokens.of_text(text)
    if size <= min(allowed, room):
        return text, ""
    stop = "max_tokens" if allowed <= room else "model_context_window_exceeded"
    return text[: len(text) * min(allowed, room) // size], stop

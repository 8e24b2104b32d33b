"""The contract of a provider: it talks to one model API and translates its errors. It makes no decisions.

A provider raises ContextOverflow on overflow, with the reported numbers if there are any; ProviderBusy if a retry may
help, with retry_after_s if the API named it; ContentRefused if the content is the reason (`core.overflow` decides); and
ProviderRefused for everything else. It does not retry, and raises no other exception.

Pieces come in the order in which the model writes them. A piece of text or thinking continues the block of the piece
before, if that is of the same kind, unless it `begins` another. Pieces of calls name their call. The answer at the end
is what counts: it may hold blocks of which no piece came.
"""

from collections.abc import AsyncGenerator
from typing import Protocol

from msgspec import Struct

from ..core.entries import Assistant, Block
from ..core.prompt import Prompt


class CallPiece(Struct, frozen=True):
    """A piece of a tool call. The first piece of a call may have no input yet."""

    index: int
    """Counts the calls of an answer from 0. Servers may send the pieces of two calls in turns."""
    id: str
    name: str
    input: str = ""
    """JSON; the pieces of one call together are its input."""


class Delta(Struct, frozen=True, kw_only=True):
    """A piece of an unfinished answer."""

    text: str = ""
    thinking: str = ""
    begins: bool = False
    """The text or thinking is the beginning of a new block, though the block before is of the same kind."""
    call: CallPiece | None = None
    signature: str = ""
    """A piece of what the API signs the newest block of thinking with."""
    block: Block | None = None
    """A whole block of another kind: redacted thinking, or a tool that the API ran itself and its result."""
    repairs: tuple[str, ...] = ()
    """The changes that the prompt needed so that the model's API accepts it. If there are any, they come first."""


class Provider(Protocol):
    @property
    def model(self) -> str:
        """The name recorded with each answer: "anthropic:NAME"."""
        ...

    @property
    def window(self) -> int | None:
        """The tokens available for a prompt and its answer; None if unknown."""
        ...

    @property
    def takes(self) -> frozenset[str]:
        """The names of the parameters (`core.parameters`) that it can do. It ignores all others."""
        ...

    def stream(self, prompt: Prompt) -> AsyncGenerator[Delta | Assistant]:
        """Yields pieces and, at the end, the whole answer once: content, usage, stop.

        Closing the iterator early ends the call. `stop` uses Anthropic's words: end_turn, tool_use, max_tokens,
        model_context_window_exceeded, refusal …; `usage` has input_tokens (without cached input) and output_tokens, and
        cache_read_input_tokens and cache_creation_input_tokens if there is a cache.
        """
        ...

    async def summarise(self, prompt: Prompt) -> str: ...
    async def close(self) -> None: ...

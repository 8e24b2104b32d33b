"""The contract of a provider: it talks to one model API and translates its errors; it decides nothing.

Overflow is raised as ContextOverflow, with the reported numbers if there are any; whatever else goes wrong as
ProviderBusy (worth another try, with retry_after_s if the provider named one) or ProviderRefused. Nothing is retried
here, and no other exception leaves a provider.
"""

from collections.abc import AsyncGenerator
from typing import Protocol

from msgspec import Struct

from ..core.entries import Assistant
from ..core.prompt import Prompt


class Delta(Struct, frozen=True, kw_only=True):
    """A piece of an answer under way."""

    text: str = ""
    thinking: str = ""


class Provider(Protocol):
    @property
    def model(self) -> str:
        """What is recorded with each answer: "anthropic:NAME"."""
        ...

    @property
    def window(self) -> int | None:
        """Tokens that a prompt and its answer may take; None where it cannot be known."""
        ...

    def stream(self, prompt: Prompt) -> AsyncGenerator[Delta | Assistant]:
        """Pieces, and at the end the whole answer, once: content, usage, stop.

        Closing the iterator early ends the call. `stop` is Anthropic's word for it: end_turn, tool_use, max_tokens,
        model_context_window_exceeded, refusal …; `usage` has input_tokens (without what came from a cache),
        cache_read_input_tokens, cache_creation_input_tokens and output_tokens.
        """
        ...

    async def summarise(self, prompt: Prompt) -> str: ...
    async def close(self) -> None: ...

"""The contract of a provider: it talks to one model API and translates its errors; it decides nothing.

Overflow is raised as ContextOverflow, with the reported numbers if there are any; whatever else goes wrong as
ProviderBusy or ProviderRefused. Nothing is retried here.
"""

from collections.abc import AsyncIterator
from typing import Protocol

from msgspec import Struct

from ..core.entries import Assistant
from ..core.prompt import Prompt


class Delta(Struct, frozen=True, kw_only=True):
    """A piece of an answer under way."""

    text: str = ""
    thinking: str = ""


class Provider(Protocol):
    def stream(self, prompt: Prompt) -> AsyncIterator[Delta | Assistant]:
        """Pieces, and at the end the whole answer, once."""
        ...

    async def summarise(self, prompt: Prompt) -> str: ...

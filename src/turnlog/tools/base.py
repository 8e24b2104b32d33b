"""What a tool is, what it is handed, and its limits."""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any, TypeAlias

from msgspec import Struct

from ..core import prompt
from ..core.entries import Content, Entry
from ..core.query import Hit

BUILT_IN_MAX_CHARS = 50_000
"""What a tool of ours returns at most; whoever wants more of a file asks for its next part."""

OUTPUT_MAX_CHARS = 2 * 1024 * 1024
"""What is stored of any other tool's text. JSON takes up to 6 bytes for a character, and pictures need room too:
with IMAGES_MAX_CHARS it stays below the 32 MiB of an entry whatever the characters are."""

TIMEOUT_S = 120.0
"""How long a call may take unless its tool says otherwise: a person is waiting."""

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every provider accepts as the name of a tool."""


class Context(Struct, frozen=True, kw_only=True):
    """What a call may know and reach. Whoever makes it has already limited it to one session and its principal."""

    session_id: str
    agent: str
    search: Callable[[str], Awaitable[Sequence[Hit]]]
    """Finds words in this session."""
    read: Callable[[int, int], Awaitable[Sequence[Entry]]]
    """Entries of this session, from the first seq to the last, both included."""
    recall: Callable[[str], Awaitable[Sequence[str]]] | None = None
    """Finds what the memory of this agent and principal holds; None where there is none."""


Run: TypeAlias = Callable[[dict[str, Any], Context], Awaitable[Content]]


class Tool(Struct, frozen=True, kw_only=True):
    """What the model sees of it, and what is done. `run` may raise: the toolbox makes a result of it."""

    spec: prompt.Tool
    run: Run
    parallel: bool = False
    """Calls of one message may run beside each other. Said only by who knows that their order does not matter."""
    timeout_s: float = TIMEOUT_S
    cap_chars: int = OUTPUT_MAX_CHARS


def suggestion(name: str, known: Iterable[str]) -> str:
    """A sentence that leads to the right name."""
    names = list(known)
    near = get_close_matches(name, names, n=1, cutoff=0.4)
    if near:
        return f"Did you mean {near[0]!r}?"
    return f"Known: {', '.join(names)}." if names else "There are none."

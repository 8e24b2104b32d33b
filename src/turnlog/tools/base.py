"""What a tool is, what a call gets, and the limits."""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from ..core import prompt
from ..core.entries import Content, Entry
from ..core.query import Hit

BUILT_IN_MAX_CHARS = 50_000
"""The longest output of a built-in tool; a model that wants more of a file asks for its next part."""

OUTPUT_MAX_CHARS = 2 * 1024 * 1024
"""The longest stored text of any other tool. JSON takes up to 6 bytes per character, and pictures need room too:
together with IMAGES_MAX_CHARS it stays below the 32 MiB of an entry whatever the characters are.
"""

TIMEOUT_S = 120.0
"""The default time limit of a call: a person is waiting."""

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The tool names that every provider accepts."""


class Context(Struct, frozen=True, kw_only=True):
    """What a call may know and reach. Its creator has already limited it to one session and its principal."""

    session_id: str
    agent: str
    search: Callable[[str], Awaitable[Sequence[Hit]]]
    """Finds words in this session."""
    read: Callable[[int, int], Awaitable[Sequence[Entry]]]
    """Entries of this session, from the first seq to the last, both included."""
    state: Callable[[int], str] | None = None
    """What has become of an entry: tail, compacted or rewound."""
    recall: Callable[[str], Awaitable[Sequence[str]]] | None = None
    """Searches the memory of this agent and principal; None if there is none."""


Effect: TypeAlias = Literal["reads", "writes", "runs"]
CallPreview: TypeAlias = Callable[[dict[str, Any]], Awaitable[str]]
"""What a call would change, for the person who is asked to approve it."""
CallCheck: TypeAlias = Callable[[dict[str, Any]], object]
"""Raises UsageError if a call with these arguments cannot run."""
Run: TypeAlias = Callable[[dict[str, Any], Context], Awaitable[Content]]


class Tool(Struct, frozen=True, kw_only=True):
    """A tool: what the model sees of it, and what it does. `run` may raise: the toolbox turns that into a result."""

    spec: prompt.ToolDefinition
    run: Run
    parallel: bool = False
    """Whether calls of one message may run at the same time. Set it only if their order does not matter."""
    timeout_s: float = TIMEOUT_S
    cap_chars: int = OUTPUT_MAX_CHARS
    effects: tuple[Effect, ...] | None = None
    """What its calls do. None: its developer did not say, and its calls need no approval."""
    approval: bool | Callable[[dict[str, Any]], Any] | None = None
    """Whether its calls wait for a person's approval, always or depending on their arguments. None: the effects decide.
    """
    check: CallCheck | None = None
    """Looks at the arguments before anybody is asked for approval. None: the schema decides."""
    preview: CallPreview | None = None
    place: str = ""
    """A digest of where it works, such as a workspace: an approval given for one place does not count in another."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """A sentence that suggests the right name."""
    names = list(known)
    near = get_close_matches(name, names, n=1, cutoff=0.4)
    if near:
        return f"Did you mean {near[0]!r}?"
    return f"Known: {', '.join(names)}." if names else "There are none."

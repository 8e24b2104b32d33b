"""search_history and recall: what was said before, also where the prompt no longer shows it.

search_history looks at this session only, compacted parts included; recall asks the memory, if the agent has one.
Both only read, and quote what they find: it is data, whoever wrote it.
"""

from collections.abc import Sequence
from typing import Annotated

from ..core.entries import Entry
from ..core.history import shorten
from ..core.query import Hit
from ..core.search import Terms, searchable, snippet, terms
from ..errors import UsageError
from .base import BUILT_IN_MAX_CHARS, Context, Tool
from .functions import tool

HITS_MAX = 20
"""More than a model needs to see that it should ask for something rarer."""

HIT_CHARS = 800
"""Around a hit: enough to use what was found without asking again. All hits together stay below the cap."""


def history_tools(*, with_recall: bool = False) -> list[Tool]:
    """`with_recall`: the agent was given that tool, and its contexts have a memory to ask."""
    offered = (search_history, recall) if with_recall else (search_history,)
    return [tool(function, parallel=True, cap_chars=BUILT_IN_MAX_CHARS) for function in offered]


async def search_history(
    query: Annotated[str, 'words that all occur in one message; "a phrase" in quotes; begin* for a beginning'],
    context: Context,
) -> str:
    """Search everything said in this session, also the parts that were summarised and are no longer shown."""
    words = terms(query)
    hits = [hit for hit in await context.search(query) if hit.session_id == context.session_id]
    if not hits:
        return "nothing found"
    lines = [_line(hit, words, await context.read(hit.seq, hit.seq)) for hit in hits[:HITS_MAX]]
    if len(hits) > HITS_MAX:
        lines.append(f"[{len(hits) - HITS_MAX} more; add a word to find fewer]")
    return "\n".join(lines)


def _line(hit: Hit, words: Terms, entries: Sequence[Entry]) -> str:
    """Wider than the store's own snippet, which is made for lists."""
    text = searchable(entries[0]) if entries else ""
    return f"#{hit.seq} {hit.role}: {snippet(words, text, HIT_CHARS) if text else hit.snippet}"


async def recall(query: Annotated[str, "what to look for"], context: Context) -> str:
    """Look into the long-term memory, which holds what was said in other sessions."""
    if context.recall is None:
        raise UsageError("there is no memory here")
    found = await context.recall(query)
    return "\n".join(f"- {shorten(text, HIT_CHARS)}" for text in found[:HITS_MAX]) or "nothing found"

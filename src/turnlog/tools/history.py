"""search_history, read_history and recall: what was said before, even if the prompt no longer shows it.

search_history and read_history look at this session only, including compacted parts; recall searches the memory, if the
agent has one. All three only read, quote what they find as data, and begin with a mark: their answers are never found.
"""

from collections.abc import Sequence
from typing import Annotated

from ..core.entries import Assistant, Compaction, Entry, Received, ToolResult, User, clean
from ..core.history import shorten
from ..core.plain import as_text
from ..core.query import Hit
from ..core.search import Sought, understand
from ..core.searchable import ANSWER_MARK, is_answer, role_of, text_of_entry
from ..core.snippets import excerpt
from ..errors import UsageError
from .base import BUILT_IN_MAX_CHARS, Context, Tool
from .functions import tool

HITS_SHOWN, HITS_MAX = 8, 20
ANSWER_CHARS = 3_000
"""The size of an answer of search_history, shared by its hits."""
HIT_MIN_CHARS, HIT_MAX_CHARS = 160, 800
"""The text around a hit: enough to use it without asking again."""
READ_ENTRIES_MAX = 40
READ_CHARS = 6_000
READ_MIN_CHARS = 200
"""The limits of one answer of read_history: messages, characters in all, and what a long message gets at least."""
RECALLED_CHARS = 800

NOTHING = f"{ANSWER_MARK}\nnothing found"


def history_tools(*, with_recall: bool = False) -> list[Tool]:
    """`with_recall`: whether the agent has that tool, and its contexts have a memory."""
    offered = (search_history, read_history, recall) if with_recall else (search_history, read_history)
    return [tool(function, parallel=True, cap_chars=BUILT_IN_MAX_CHARS) for function in offered]


async def search_history(
    words: Annotated[str, 'words or a question; "a phrase", begin*, -without, from:NAME, after:DATE, before:DATE'],
    context: Context,
    limit: Annotated[int, f"hits to show, 1 to {HITS_MAX}"] = HITS_SHOWN,
) -> str:
    """Search everything said in this session, also the parts that were summarised and are no longer shown."""
    sought = understand(words)
    hits = [hit for hit in await context.search(words) if hit.session_id == context.session_id]
    shown = hits[: max(1, min(limit, HITS_MAX))]
    if not shown:
        return NOTHING
    width = max(HIT_MIN_CHARS, min(HIT_MAX_CHARS, ANSWER_CHARS // len(shown)))
    lines = [_line(hit, sought, await context.read(hit.seq, hit.seq), width) for hit in shown]
    if len(hits) > len(shown):
        lines.append(f"[{len(hits) - len(shown)} more; add a word to find fewer]")
    return "\n".join([ANSWER_MARK, *lines])


def _line(hit: Hit, sought: Sought, entries: Sequence[Entry], width: int) -> str:
    """The text around a hit, longer than the store's own snippet, which is for lists."""
    text = text_of_entry(entries[0], {}) if entries else ""
    found = excerpt(text, sought, width).text if text else hit.snippet
    return f"{_head(hit.seq, hit.role, hit.time, hit.state)}: {clean(found)}"


def _head(seq: int, role: str, time: str, state: str) -> str:
    """What a message is, in few tokens: its day, and its state if it is not simply shown or folded."""
    day = f" {time[:10]}" if time else ""
    return f"#{seq} {role}{day}" + (" (rewound: no longer part of the conversation)" if state == "rewound" else "")


async def read_history(
    from_seq: Annotated[int, "the number (#) of the first message"],
    to_seq: Annotated[int, "the number of the last message"],
    context: Context,
    skip_chars: Annotated[int, "characters to skip of a long first message"] = 0,
) -> str:
    """Read messages of this session in full by their numbers, also summarised ones that are no longer shown."""
    if from_seq < 1 or to_seq < from_seq:
        raise UsageError("from_seq is at least 1, and to_seq at least from_seq", hint="Use the numbers after #.")
    entries = await context.read(from_seq, min(to_seq, from_seq + READ_ENTRIES_MAX - 1))
    told = [(entry, text) for entry in entries if (text := said_in(entry))]
    width = max(READ_MIN_CHARS, READ_CHARS // max(1, len(told)))
    lines: list[str] = []
    left = READ_CHARS
    last = min(to_seq, from_seq + READ_ENTRIES_MAX - 1)
    for n, (entry, text) in enumerate(told):
        if left < READ_MIN_CHARS and lines:
            last = entry.seq - 1
            break
        line = _read_line(context, entry, text, max(width, left // (len(told) - n)), skip_chars if n == 0 else 0)
        lines.append(line)
        left -= len(line)
    if last < to_seq and (entries or last >= from_seq):
        lines.append(f"[go on with from_seq={last + 1}]")
    return "\n".join([ANSWER_MARK, *(lines or ["nothing was said there"])])


def _read_line(context: Context, entry: Entry, text: str, width: int, skip: int) -> str:
    state = context.state(entry.seq) if context.state else ""
    rest = text[max(0, skip) :]
    if len(rest) <= width:
        shown = rest
    elif skip > 0:
        shown = f"{rest[:width]}\n[{len(rest) - width:,} characters more; skip_chars={skip + width}]"
    else:
        shown = f"{shorten(rest, width)}\n[{len(rest):,} characters; read it alone with skip_chars to see the middle]"
    return f"{_head(entry.seq, role_of(entry), entry.ts, state)}: {clean(shown)}"


def said_in(entry: Entry) -> str:
    """What an entry says to somebody who reads the history; nothing, where another entry says it."""
    match entry:
        case User() if entry.from_:
            return ""  # its `received` entries say it
        case User() | Received() | Assistant() | ToolResult():
            text = as_text(entry.content or "").strip()
            return "(an earlier look into the history)" if is_answer(text) else text
        case Compaction():
            return entry.summary
        case _:
            return ""


async def recall(query: Annotated[str, "what to look for"], context: Context) -> str:
    """Look into the long-term memory, which holds what was said in other sessions."""
    if context.recall is None:
        raise UsageError("this agent has no memory")
    found = await context.recall(query)
    lines = [f"- {shorten(text, RECALLED_CHARS)}" for text in found[:HITS_MAX]]
    return "\n".join([ANSWER_MARK, *lines]) if lines else NOTHING

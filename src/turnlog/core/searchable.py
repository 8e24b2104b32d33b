"""Decides what of an entry is searched: texts, inputs of calls, names of tools, results, titles, summaries, file names.

Never found: what a search of the history or the memory answered, and what it was asked for. Otherwise each search would
find the earlier ones, and grow. Such an answer is known by the name of its tool, or by the mark that it begins with,
which survives wherever another program has copied it: as a result, behind a few words of that program, within JSON, or
in the middle of somebody's message, where a second mark ends it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from msgspec import Struct

from .entries import Assistant, Compaction, Content, Entry, Message, Received, Title, ToolResult, User
from .search import facet
from .words import tokenise

ANSWER_MARK = "[found in history]"
"""The first line of every answer of these tools."""
ANSWER_END = "[end of what was found in history]"
"""The last line of an answer that may become a part of somebody's message."""
MARK_WITHIN_CHARS = 300
"""Where the mark of a result is looked for: programs put their own words before what a tool answered."""
ANSWERING_TOOLS = frozenset(("search_history", "read_history", "recall"))
SERVED_TOOLS = ("list_sessions", "search", "read", "context", "recall", "pin", "unpin")
"""The tools that other programs reach through the MCP server."""
_SERVED = re.compile(rf"(?:.*[^a-z0-9])?turnlog[^a-z0-9]{{1,2}}(?:{'|'.join(SERVED_TOOLS)})", re.IGNORECASE | re.DOTALL)
_ANSWER = re.compile(f"{re.escape(ANSWER_MARK)}.*?{re.escape(ANSWER_END)}", re.DOTALL)

PART_CHARS = 50_000
"""A longer text is searched in parts: words have to occur in one part, to be found together."""
PART_BORDER_CHARS = 5_000
"""A part of a long text ends at the last line end or blank within this many characters."""
_DATA_MIN_CHARS = 200

_NAMED = (
    "type id tool_use_id data signature encrypted_content encrypted_index cache_control media_type caller container"
    " is_error file_id index status"
)
_UNSAID = frozenset(_NAMED.split())
"""Fields of a block that say nothing a person would search for."""


class SearchUnit(Struct, frozen=True, gc=False):
    """The unit of search: an entry, or a part of a long one."""

    part: int
    text: str
    role: str
    facets: tuple[str, ...]


def is_answering(tool: str) -> bool:
    """Whether this tool answers from the history; a program may have put the name of a tool server before its name."""
    own = tool.replace("__", ".").replace("/", ".").rpartition(".")[2]
    return own in ANSWERING_TOOLS or _SERVED.fullmatch(tool) is not None


def is_answer(text: str) -> bool:
    """Whether a result is an answer of these tools, whatever the tool was called."""
    return ANSWER_MARK in text[:MARK_WITHIN_CHARS]


def quotable(text: str) -> str:
    """The same text with other brackets around the marks: nothing that an answer quotes ends it."""
    for mark in (ANSWER_MARK, ANSWER_END):
        text = text.replace(mark, f"({mark[1:-1]})")
    return text


def _without_answers(text: str) -> str:
    return _ANSWER.sub("", text) if ANSWER_END in text else text


def calls_in(entry: Entry) -> dict[str, str]:
    """Call → tool, for each call in an answer."""
    if not isinstance(entry, Assistant) or isinstance(entry.content, str):
        return {}
    return {
        str(block["id"]): str(block.get("name"))
        for block in entry.content
        if block.get("type") == "tool_use" and "id" in block
    }


def results_in(entry: Entry) -> list[str]:
    """The calls whose results an entry holds: their tools must be known to say what of it is searched."""
    if isinstance(entry, ToolResult):
        return [entry.tool_use_id]
    if not isinstance(entry, User) or not isinstance(entry.content, list):
        return []
    return [str(block.get("tool_use_id")) for block in entry.content if block.get("type") == "tool_result"]


def units(entry: Entry, tools: Mapping[str, str]) -> list[SearchUnit]:
    """`tools`: call → tool, of the calls that `results_in` names, as far as they are known."""
    role = "" if entry.erased else role_of(entry)
    text = text_of_entry(entry, tools) if role else ""
    if not text.strip():
        return []
    facets = tuple(dict.fromkeys(map(facet, _said_by(entry, role, tools))))
    return [SearchUnit(n, part, role, facets) for n, part in enumerate(parts_of_text(text)) if part.strip()]


def role_of(entry: Entry) -> str:
    """Who said it; "" for an entry without text."""
    match entry:
        case User() | Received():
            return "user"
        case Assistant():
            return "assistant"
        case ToolResult():
            return "tool"
        case Compaction():
            return "summary"
        case Title():
            return "title"
        case _:
            return ""


def text_of_entry(entry: Entry, tools: Mapping[str, str]) -> str:
    match entry:
        case User() if entry.from_:
            return ""  # the `received` entries have it
        case User() | Received() | Assistant():
            return _text(entry.content, tools)
        case ToolResult():
            return _result(entry.content, tools.get(entry.tool_use_id, ""), tools)
        case Compaction():
            return entry.summary
        case Title():
            return entry.title
        case _:
            return ""


def said(message: Message, content: Content, tools: Mapping[str, str]) -> str:
    """The same of a message whose content was put together from several entries, or was cut. An identifier in the input
    of a call is read here as it is; JSON would escape it, and would name the fields too.
    """
    if isinstance(message, ToolResult):
        return _result(content, tools.get(message.tool_use_id, ""), tools)
    return _text(content, tools)


def _said_by(entry: Entry, role: str, tools: Mapping[str, str]) -> Iterator[str]:
    yield role
    name = getattr(entry, "sender", None) or ""
    if isinstance(entry, ToolResult):
        name = tools.get(entry.tool_use_id, "")
    if name:
        yield name
        yield from tokenise(name)


def _text(content: Any, tools: Mapping[str, str]) -> str:
    if isinstance(content, str):
        return _without_answers(content)
    if not isinstance(content, list):
        return ""
    return "\n\n".join(filter(None, (_block(block, tools) for block in cast("list[Any]", content))))


def _block(block: Any, tools: Mapping[str, str]) -> str:
    if not isinstance(block, dict):
        return ""
    fields = cast("dict[str, Any]", block)
    match fields.get("type"):
        case "text":
            text = fields.get("text")
            return _without_answers(text) if isinstance(text, str) else ""
        case "thinking" | "redacted_thinking":
            return ""
        case "tool_result":
            return _result(fields.get("content"), tools.get(str(fields.get("tool_use_id")), ""), tools)
        case "tool_use" if is_answering(str(fields.get("name"))):
            return ""
        case "mcp_tool_use" if is_answering(f"{fields.get('server_name')}.{fields.get('name')}"):
            return ""  # a call that the model's provider made itself
        case "document":
            return "\n".join([*_leaves(fields), *_plain_document(fields.get("source"))])
        case _:
            return "\n".join(_leaves(fields))


def _plain_document(source: Any) -> list[str]:
    match source:
        case {"type": "text", "data": str(text)}:
            return [text]
        case _:
            return []


def _result(content: Any, tool: str, tools: Mapping[str, str]) -> str:
    text = _text(content, tools)
    return "" if is_answering(tool) or is_answer(text) else text


def _leaves(value: Any) -> Iterator[str]:
    """The texts and numbers inside a block, in order."""
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        match item:
            case dict():
                fields = cast("dict[str, Any]", item)
                waiting += [inner for name, inner in reversed(fields.items()) if name not in _UNSAID]
            case list():
                waiting += reversed(cast("list[Any]", item))
            case str() if item and not _is_data(item) and not is_answer(item):
                yield item
            case int() | float() if not isinstance(item, bool):
                yield str(item)
            case _:
                pass


def _is_data(text: str) -> bool:
    """A picture or a file in letters."""
    return text.startswith("data:") and ";base64," in text[:_DATA_MIN_CHARS]


def parts_of_text(text: str) -> list[str]:
    parts: list[str] = []
    start = 0
    while len(text) - start > PART_CHARS:
        end = start + PART_CHARS
        cuts = (text.rfind(sign, end - min(PART_BORDER_CHARS, PART_CHARS // 2), end) for sign in "\n ")
        end = next((cut + 1 for cut in cuts if cut > start), end)
        parts.append(text[start:end])
        start = end
    return [*parts, text[start:]]

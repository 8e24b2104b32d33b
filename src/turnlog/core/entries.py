"""What a transcript is made of.

One frozen Struct per type, told apart by `type`. An entry that is not stored yet has seq 0 and no ts; the store
gives both. Entries say what happened, never what it means: history, session rows and coverage are folds over them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct, field
from msgspec.structs import replace

FORMAT_VERSION = 1
"""Rises when an older reader would misread a transcript; it then refuses with a hint instead."""

ENTRY_MAX_BYTES = 32 * 1024 * 1024
"""One stored entry. Larger things are files, and a line must fit in memory several times over."""

NESTING_MAX = 200
"""Depth of JSON inside an entry. Decoders recurse; a few hundred levels are safe on every platform."""

Block: TypeAlias = dict[str, Any]
Content: TypeAlias = str | list[Block]
Usage: TypeAlias = dict[str, Any]


class Stored(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    seq: int = 0
    ts: str = ""
    after: int | None = None
    """The entry this one follows, where that is not the one before it: a branch in another tool's tree of entries."""


class Origin(Struct, frozen=True, kw_only=True):
    """Where a fork came from."""

    id: str
    seq: int


class Opened(Stored, frozen=True, kw_only=True, tag="session", gc=False):
    version: int = field(default_factory=lambda: FORMAT_VERSION)
    """Made by a factory, so that it is always written and never left out as a default."""
    id: str
    key: str
    agent: str
    channel: str
    label: str | None = None
    forked_from: Origin | None = None


class Selected(Stored, frozen=True, kw_only=True, tag="selected", gc=False):
    n: int


class Received(Stored, frozen=True, kw_only=True, tag="received", gc=False):
    content: Content
    message_id: str | None = None
    dedupe_id: str | None = None
    sender: str | None = None
    mode: str = "steer"


class User(Stored, frozen=True, kw_only=True, tag="user", gc=False):
    content: Content | None = None
    message_id: str | None = None
    dedupe_id: str | None = None
    sender: str | None = None
    from_: tuple[int, ...] = field(default=(), name="from")


class Assistant(Stored, frozen=True, kw_only=True, tag="assistant", gc=False):
    content: Content
    model: str | None = None
    usage: Usage | None = None
    stop: str | None = None


class ToolResult(Stored, frozen=True, kw_only=True, tag="tool_result", gc=False):
    tool_use_id: str
    content: Content
    is_error: bool = False


class Compaction(Stored, frozen=True, kw_only=True, tag="compaction", gc=False):
    summary: str
    first_kept: int
    covers: tuple[int, int]
    tokens_before: int = 0
    tokens_after: int = 0
    trigger: str = "manual"
    model: str | None = None
    focus: str | None = None


class Shortened(Stored, frozen=True, kw_only=True, tag="shortened", gc=False):
    targets: tuple[int, ...]
    limit: int


class Pin(Stored, frozen=True, kw_only=True, tag="pin", gc=False):
    target: int


class Unpin(Stored, frozen=True, kw_only=True, tag="unpin", gc=False):
    target: int


class Rewind(Stored, frozen=True, kw_only=True, tag="rewind", gc=False):
    to: int


class Undo(Stored, frozen=True, kw_only=True, tag="undo", gc=False):
    target: int


class Status(Stored, frozen=True, kw_only=True, tag="status", gc=False):
    value: Literal["active", "inactive", "archived", "trashed"]
    reason: str = ""


class Title(Stored, frozen=True, kw_only=True, tag="title", gc=False):
    title: str
    by: Literal["auto", "user"] = "user"


class Failed(Stored, frozen=True, kw_only=True, tag="failed", gc=False):
    code: str
    reason: str = ""


class Foreign(Stored, frozen=True, kw_only=True, tag="foreign", gc=False):
    raw: Any


Entry: TypeAlias = (
    Opened
    | Selected
    | Received
    | User
    | Assistant
    | ToolResult
    | Compaction
    | Shortened
    | Pin
    | Unpin
    | Rewind
    | Undo
    | Status
    | Title
    | Failed
    | Foreign
)
Transcript: TypeAlias = Sequence[Entry]
Message: TypeAlias = User | Assistant | ToolResult

MESSAGES = (User, Assistant, ToolResult)
NEEDS_LEASE = (User, Assistant, ToolResult, Compaction, Shortened, Undo, Rewind, Failed)
"""What only the holder of the lease may write: everything a running turn builds upon."""


def text_of(content: Any) -> str:
    """The words in it, for titles, search and summaries; tool calls and images have none of their own.

    Inside a block anything may stand where an import or a model put it: what is not text has no words.
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    blocks = cast("list[Any]", content)
    if len(blocks) == 1:  # most answers; this runs in every append
        return _block_text(blocks[0])
    return "\n\n".join(filter(None, map(_block_text, blocks)))


def _block_text(block: Any) -> str:
    if not isinstance(block, dict):
        return ""
    fields = cast("dict[str, Any]", block)
    kind = fields.get("type")
    if kind == "text":
        text = fields.get("text")
        return text if isinstance(text, str) else ""
    return text_of(fields.get("content")) if kind == "tool_result" else ""


def clean(text: str) -> str:
    """Lone surrogates cannot be sent; everything else stays."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def tool_uses(entry: Assistant) -> list[Block]:
    if isinstance(entry.content, str):
        return []
    return [block for block in entry.content if block.get("type") == "tool_use"]


def has_results(entry: User) -> bool:
    return isinstance(entry.content, list) and any(block.get("type") == "tool_result" for block in entry.content)


def parted(entry: Message) -> list[Message]:
    """Some tools write the results of several calls as blocks of one user message: each result, then what is left."""
    if not isinstance(entry, User) or not isinstance(entry.content, list) or not has_results(entry):
        return [entry]
    results: list[Message] = []
    rest: list[Block] = []
    for block in entry.content:
        call_id = block.get("tool_use_id")
        if block.get("type") != "tool_result" or not isinstance(call_id, str):
            rest.append(block)
            continue
        content: Any = block.get("content")
        results.append(
            ToolResult(
                seq=entry.seq,
                ts=entry.ts,
                tool_use_id=call_id,
                content=cast("Content", content) if _is_content(content) else "",
                is_error=block.get("is_error") is True,
            )
        )
    return [*results, replace(entry, content=rest)] if rest else results


def _is_content(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(block, dict) for block in cast("list[Any]", value))
    )


def user_content(entry: User, received: Mapping[int, Received]) -> Content:
    """A user entry may leave its words to the `received` entries it was made from."""
    if entry.content is not None:
        return entry.content
    parts = [received[seq].content for seq in entry.from_ if seq in received]
    return join_content(parts)


def with_words(entries: Transcript) -> list[Entry]:
    """The same entries, but each user entry holds its words itself, as far as its `received` ones are among them."""
    received = {entry.seq: entry for entry in entries if isinstance(entry, Received)}
    return [replace(e, content=user_content(e, received)) if isinstance(e, User) else e for e in entries]


def join_content(parts: Iterable[Content]) -> Content:
    """Texts are joined by a blank line; as soon as one part has blocks, all become blocks and stay so."""
    kept = list(parts)
    texts = [part for part in kept if isinstance(part, str)]
    if len(texts) == len(kept):
        return "\n\n".join(text for text in texts if text)
    blocks: list[Block] = []
    for part in kept:
        if isinstance(part, str):
            blocks.append({"type": "text", "text": part})
        else:
            blocks.extend(part)
    return blocks


def context_tokens(usage: Mapping[str, Any] | None) -> int:
    """What the provider says the prompt and the answer hold, cached input counted once; 0 if it said nothing."""
    if not usage:
        return 0
    taken = 0
    for name in _TAKEN:
        count = usage.get(name)
        if isinstance(count, int):
            taken += count
    given = usage.get("output_tokens")
    # Some servers count what they give and not what they take: that says nothing of the prompt's size.
    return taken + given if taken and isinstance(given, int) else taken


_TAKEN = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")

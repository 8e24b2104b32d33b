"""What a client's request and a session's log have in common: atoms, the smallest things that a wire says.

A message of any wire is translated to the body of an entry. `of` computes the atoms of a body, whether it comes from a
request or from a log, so the three wires give the same atoms for the same conversation. An answer gives its text, then
its calls. A message without any words gives no atom.

Two atoms are equal if their keys are equal: a digest of kind and words. Not part of it: ids, cache marks, thinking,
trailing whitespace, and how JSON was written.
"""

import json
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from .entries import Assistant, Block, Content, Message, ToolResult, User, tool_uses

AtomKind: TypeAlias = Literal["user", "system", "assistant", "call", "result"]
SYSTEM = "system"
"""The sender of a user entry that a client said as a system message in mid-conversation."""
KEY_BYTES = 16
"""The length of a key: two different texts with one digest of 128 bits do not occur."""
UNSHOWN = b"unshown "
"""Before the key of a failed answer's text: history does not show it, so no request is equal to it."""
PARTIAL = ("interrupted", "error")
"""How an answer stopped of which a client may know only the beginning."""

_LEFT_OUT = ("thinking", "redacted_thinking", "tool_use")


class Atom(Struct, frozen=True, gc=False):
    kind: AtomKind
    key: bytes
    own: str | None = None
    """The model, if this server gave it as an answer."""
    size: int = 0
    """Characters of a result."""
    partial: str | None = None
    """The text of an answer that did not end well: a client may know only its beginning."""
    id: str = ""
    """Of a call, or of the call that a result answers."""


def of(body: Message) -> list[Atom]:
    match body:
        case User():
            words = _words(body.content or "")
            kind: AtomKind = "system" if body.sender == SYSTEM else "user"
            return [Atom(kind, _key(kind, words))] if words else []
        case ToolResult():
            words = _words(body.content)
            return [Atom("result", _key("result", words), size=len(words), id=body.tool_use_id)]
        case _:
            return _of_answer(body)


def _of_answer(body: Assistant) -> list[Atom]:
    words = _words(body.content)
    found: list[Atom] = []
    if words:
        key = _key("assistant", words)
        partial = words if body.stop in PARTIAL else None
        found.append(Atom("assistant", UNSHOWN + key if body.stop == "error" else key, body.model, partial=partial))
    calls = tool_uses(body)
    return found + [Atom("call", _key("call", _call(one)), body.model, id=str(one.get("id"))) for one in calls]


def text(body: Message) -> str:
    """The words of its text, in the form in which they are compared."""
    return _words(body.content or "")


def rest_of(body: Message, skipped: int) -> Message:
    """The body without its first atoms, of which it has more."""
    if not skipped or not isinstance(body, Assistant):
        return body
    skipped_calls = skipped - bool(_words(body.content))
    return replace(body, content=tool_uses(body)[skipped_calls:])


def digest(keys: Iterable[bytes]) -> bytes:
    """One digest for a whole list of atoms."""
    return blake2b(b"".join(key.rjust(len(UNSHOWN) + KEY_BYTES) for key in keys), digest_size=KEY_BYTES).digest()


def common(ours: Sequence[bytes], theirs: Sequence[bytes]) -> int:
    """The number of equal keys at the beginning."""
    shorter = min(len(ours), len(theirs))
    if ours[:shorter] == theirs[:shorter]:
        return shorter
    return next(n for n in range(shorter) if ours[n] != theirs[n])


def _key(kind: AtomKind, words: str) -> bytes:
    return blake2b(words.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES, person=kind.encode()).digest()


def _words(content: Content) -> str:
    """All that is compared, as one text. Pictures and files stand in it as a digest between two NUL characters, and a
    NUL of the text itself is doubled.
    """
    if isinstance(content, str):
        return _plain(content).rstrip()
    parts = [words for block in content if (words := _block_words(block))]
    return "\n\n".join(parts).rstrip()


def _plain(words: str) -> str:
    return words.replace("\0", "\0\0") if "\0" in words else words


def _block_words(block: Block) -> str:
    kind = block.get("type")
    if kind == "text" and isinstance(block.get("text"), str):
        words: str = block["text"]
        return "" if words.isspace() else _plain(words)
    if kind in _LEFT_OUT:
        return ""
    return f"\0{kind} {_source_digest(block)}\0"


def _source_digest(block: Block) -> str:
    """A picture or a file by its bytes or its address; any other block by all of it, without its cache mark."""
    source: Any = block.get("source")
    if isinstance(source, dict):
        fields = cast("Block", source)
        said = fields.get("data") or fields.get("url") or fields.get("file_id") or fields
    else:
        said = {name: value for name, value in block.items() if name != "cache_control"}
    return blake2b(_as_json(said).encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).hexdigest()


def _call(block: Block) -> str:
    given: Any = block.get("input")
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            pass  # a model wrote no JSON; it is compared as it is
    return f"{block.get('name')}\0{_as_json(given)}"


def _as_json(value: Any) -> str:
    return json.dumps(_plain_numbers(value), ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _plain_numbers(value: Any) -> Any:
    """JavaScript writes 1.0 as 1."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: _plain_numbers(item) for key, item in cast("dict[str, Any]", value).items()}
        case list():
            return [_plain_numbers(item) for item in cast("list[Any]", value)]
        case _:
            return value

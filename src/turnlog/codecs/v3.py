"""The v3 dialect: the session files of pi and of OpenClaw's file era, and ZyHive's simpler variant without ids.

A line is one entry. Lines form a tree: each names its parent, and a session continues from the last line of the file.
An entry that follows an older line than its predecessor gets `after`. If the parent is missing, or a line has no id, it
follows the line before it, so that damage never hides readable lines.

References between entries are written as ids, because other programs copy lines into new files; if a line has no id, as
its seq. Entries without a v3 type become `custom` lines, which its readers skip.
"""

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from ..core.entries import Compaction, Content, Entry, Opened, Title, ToolResult, User
from ..core.keys import SessionKey, format as format_key
from .lines import OURS, Raw, Reading, completed, content_of, foreign, parse, timestamp
from .v3_messages import bash_text, read_assistant, read_blocks, read_result

CWD_MAX_CHARS = 300
"""The length of a path that becomes part of a key; a key has at most 1,024 characters."""
BRANCH_NOTE = "Summary of a branch of this conversation that was left:"
REFERENCES = ("target", "to", "first_kept", "after")
REFERENCE_LISTS = ("from", "covers", "targets")


class _Unresolved(Exception):
    """The referenced line does not exist."""


def decode(line: bytes, seq: int, reading: Reading) -> Entry:
    raw = parse(line)
    if not isinstance(raw, dict):
        return foreign(raw, seq)
    return understand(cast("Raw", raw), seq, reading)


def understand(raw: Raw, seq: int, reading: Reading) -> Entry:
    """The entry of one parsed line; remembers what later lines refer to."""
    if raw.get("type") == "session":
        ts = timestamp(raw.get("timestamp")) or timestamp(raw.get("createdAt"))
        return _header(raw, ts, reading) if seq == 1 else foreign(raw, seq, ts)
    entry = _read(raw, {"seq": seq, "ts": _time(raw), "after": _after(raw, seq, reading)}, reading)
    note(raw, seq, reading)
    return entry


def note(raw: Mapping[str, Any], seq: int, reading: Reading) -> None:
    line_id = id_of(raw)
    reading.last_id = line_id
    if line_id is not None:
        reading.known.ids[line_id] = seq


def id_of(raw: Mapping[str, Any]) -> str | None:
    line_id = raw.get("id")
    return line_id if isinstance(line_id, str) and line_id and raw.get("type") != "session" else None


def _after(raw: Raw, seq: int, reading: Reading) -> int | None:
    parent = raw.get("parentId", reading.last_id)
    if id_of(raw) is None or reading.last_id is None or parent == reading.last_id:
        return None
    if parent is None:
        return 1
    found = reading.known.seq_of(parent) if isinstance(parent, str) else None
    return found if found is not None and found < seq else None


def _time(raw: Raw) -> str:
    message = raw.get("message")
    inner = cast("Raw", message).get("timestamp") if isinstance(message, dict) else None
    return timestamp(raw.get("timestamp")) or timestamp(inner)


def _header(raw: Raw, ts: str, reading: Reading) -> Entry:
    return completed(replace(_at_cwd(reading.opened, raw.get("cwd")), seq=1, ts=ts), _ours(raw))


def _at_cwd(opened: Opened, cwd: Any) -> Opened:
    """The place of a conversation with pi is the directory it runs in; the name of its file is only similar."""
    if opened.channel != "pi" or not isinstance(cwd, str) or not cwd or len(cwd) > CWD_MAX_CHARS:
        return opened
    return replace(opened, key=format_key(SessionKey(agent=opened.agent, channel="pi", kind="direct", peer=cwd)))


def _ours(raw: Raw) -> Raw:
    ours = raw.get(OURS)
    if not isinstance(ours, dict):
        return {}
    return {name: value for name, value in cast("Raw", ours).items() if name != "until"}


def _read(raw: Raw, at: Raw, reading: Reading) -> Entry:
    """`at`: the fields that every entry has: seq, ts and after."""
    try:
        plain = _plain(raw, at, reading)
        ours = _from_references(_ours(raw), reading)
    except _Unresolved:
        plain, ours = None, {}
    return foreign(raw, **at) if plain is None else completed(plain, ours)


def _plain(raw: Raw, at: Raw, reading: Reading) -> Entry | None:
    """The entry as another reader of this dialect understands it; None if Turnlog has no such entry."""
    match raw:
        case {"type": "message", "message": {"role": str(role), **message}}:
            return _message(role, message, at, reading)
        case {"type": "custom_message"}:
            return User(**at, content=read_blocks(content_of(raw.get("content"))))
        case {"type": "branch_summary", "summary": str(summary)} if summary:
            return User(**at, content=f"{BRANCH_NOTE}\n\n{summary}")
        case {"type": "compaction", "summary": str(summary)} if summary.strip():
            return _compaction(raw, summary, at, reading)
        case {"type": "session_info", "name": str(name)} if name.strip():
            return Title(**at, title=name)
        case {"type": "custom", "customType": "turnlog", "data": {"type": str(kind), **fields}}:
            return _own(kind, fields, at, reading)
        case _:
            return None


def _message(role: str, message: Raw, at: Raw, reading: Reading) -> Entry | None:
    match role:
        case "user" | "custom" | "hookMessage":
            content = read_blocks(content_of(message.get("content")))
            return read_result(content, at) or User(**at, content=content)
        case "assistant":
            entry = read_assistant(message, at)
            _note_calls(entry.content, reading)
            return entry
        case "toolResult":
            content = read_blocks(content_of(message.get("content")))
            call_id, failed = str(message.get("toolCallId")), message.get("isError") is True
            return ToolResult(**at, tool_use_id=call_id, content=_single_text(content), is_error=failed)
        case "bashExecution" if not message.get("excludeFromContext"):
            return User(**at, content=bash_text(message))
        case _:
            return None


def _single_text(content: Content) -> Content:
    """Unwraps a single plain text block, which is how v3 writes a text."""
    match content:
        case [{"type": "text", "text": str(text)} as block] if len(block) == 2:
            return text
        case _:
            return content


def _note_calls(content: Content, reading: Reading) -> None:
    for block in content if isinstance(content, list) else ():
        if block.get("type") == "tool_use":
            reading.known.note_call(block.get("id"), block.get("name"))


def _compaction(raw: Raw, summary: str, at: Raw, reading: Reading) -> Entry:
    first_kept = _first_kept(raw, at["seq"], reading)
    return Compaction(
        **at,
        summary=summary,
        first_kept=first_kept,
        covers=(min(2, first_kept - 1), first_kept - 1),
        tokens_before=_count(raw.get("tokensBefore")),
        tokens_after=_count(raw.get("tokensAfter")),
    )


def _first_kept(raw: Raw, seq: int, reading: Reading) -> int:
    """If it is not found, nothing before the compaction is kept, as in all readers of v3."""
    name, index = raw.get("firstKeptEntryId"), raw.get("firstKeptEntryIndex")
    found = reading.known.seq_of(name) if isinstance(name, str) else None
    if found is None and isinstance(index, int) and not isinstance(index, bool):
        found = index + 1
    return found if found is not None and 1 < found < seq else seq


def _count(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and 0 <= value < 1 << 53 else 0


def _own(kind: str, fields: Raw, at: Raw, reading: Reading) -> Entry | None:
    resolved = _from_references(fields, reading)
    jump = None if kind == "rewind" else at["after"]  # the rewind itself is the jump
    try:
        return msgspec.convert({**resolved, **at, "type": kind, "after": jump}, Entry)
    except (msgspec.ValidationError, RecursionError):
        return None


def _from_references(fields: Raw, reading: Reading) -> Raw:
    out = dict(fields)
    for name in REFERENCES:
        if name in out:
            out[name] = _resolve(out[name], reading)
    for name in REFERENCE_LISTS:
        if isinstance(out.get(name), list):
            out[name] = [_resolve(item, reading) for item in out[name]]
    return out


def _resolve(reference: Any, reading: Reading) -> Any:
    if not isinstance(reference, str):
        return reference
    found = reading.known.seq_of(reference)
    if found is None:
        raise _Unresolved
    return found

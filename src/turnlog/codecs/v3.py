"""The v3 dialect: the session files of pi and of OpenClaw's file era, and ZyHive's simpler variant without ids.

A line is one entry. Lines form a tree: each names its parent, and the last line of a file is where it goes on. What
follows an older line than the one before it gets `after`. A parent that is not there any more, or a line without an
id, counts as following the line before it, so that damage never hides what is still readable.

References between entries are written as ids, because other tools copy lines into new files; where a line has no id,
as its seq. What v3 has no type for is a `custom` line, which its readers skip.
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
"""Of a path that becomes part of a key; a key has at most 1,024."""
BRANCH_NOTE = "Summary of a branch of this conversation that was left:"
REFERENCES = ("target", "to", "first_kept", "after")
REFERENCE_LISTS = ("from", "covers", "targets")


class _Unresolved(Exception):
    """A reference to a line that is not there."""


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
    ts = _time(raw)
    after = _after(raw, seq, reading)
    entry = _read(raw, seq, ts, after, reading)
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
    """The place of a conversation with pi is the directory it runs in; that of its file is only nearly its name."""
    if opened.channel != "pi" or not isinstance(cwd, str) or not cwd or len(cwd) > CWD_MAX_CHARS:
        return opened
    return replace(opened, key=format_key(SessionKey(agent=opened.agent, channel="pi", kind="direct", peer=cwd)))


def _ours(raw: Raw) -> Raw:
    ours = raw.get(OURS)
    if not isinstance(ours, dict):
        return {}
    return {name: value for name, value in cast("Raw", ours).items() if name != "until"}


def _read(raw: Raw, seq: int, ts: str, after: int | None, reading: Reading) -> Entry:
    try:
        plain = _plain(raw, seq, ts, after, reading)
        ours = _from_references(_ours(raw), reading)
    except _Unresolved:
        return foreign(raw, seq, ts, after)
    return foreign(raw, seq, ts, after) if plain is None else completed(plain, ours)


def _plain(raw: Raw, seq: int, ts: str, after: int | None, reading: Reading) -> Entry | None:
    """What another reader of this dialect would understand; None if that is nothing we have an entry for."""
    match raw:
        case {"type": "message", "message": {"role": str(role), **message}}:
            return _message(role, message, seq, ts, after, reading)
        case {"type": "custom_message"}:
            return User(seq=seq, ts=ts, after=after, content=read_blocks(content_of(raw.get("content"))))
        case {"type": "branch_summary", "summary": str(summary)} if summary:
            return User(seq=seq, ts=ts, after=after, content=f"{BRANCH_NOTE}\n\n{summary}")
        case {"type": "compaction", "summary": str(summary)} if summary.strip():
            return _compaction(raw, summary, seq, ts, after, reading)
        case {"type": "session_info", "name": str(name)} if name.strip():
            return Title(seq=seq, ts=ts, after=after, title=name)
        case {"type": "custom", "customType": "turnlog", "data": {"type": str(kind), **fields}}:
            return _own(kind, fields, seq, ts, after, reading)
        case _:
            return None


def _message(role: str, message: Raw, seq: int, ts: str, after: int | None, reading: Reading) -> Entry | None:
    match role:
        case "user" | "custom" | "hookMessage":
            content = read_blocks(content_of(message.get("content")))
            return read_result(content, seq, ts, after) or User(seq=seq, ts=ts, after=after, content=content)
        case "assistant":
            entry = read_assistant(message, seq, ts, after)
            _note_calls(entry.content, reading)
            return entry
        case "toolResult":
            content = read_blocks(content_of(message.get("content")))
            return ToolResult(
                seq=seq, ts=ts, after=after, tool_use_id=str(message.get("toolCallId")), content=_single_text(content),
                is_error=message.get("isError") is True,
            )  # fmt: skip
        case "bashExecution" if not message.get("excludeFromContext"):
            return User(seq=seq, ts=ts, after=after, content=bash_text(message))
        case _:
            return None


def _single_text(content: Content) -> Content:
    """One plain text block is how v3 writes a text."""
    match content:
        case [{"type": "text", "text": str(text)} as block] if len(block) == 2:
            return text
        case _:
            return content


def _note_calls(content: Content, reading: Reading) -> None:
    for block in content if isinstance(content, list) else ():
        if block.get("type") == "tool_use":
            reading.known.note_call(block.get("id"), block.get("name"))


def _compaction(raw: Raw, summary: str, seq: int, ts: str, after: int | None, reading: Reading) -> Entry:
    first_kept = _first_kept(raw, seq, reading)
    return Compaction(
        seq=seq,
        ts=ts,
        after=after,
        summary=summary,
        first_kept=first_kept,
        covers=(min(2, first_kept - 1), first_kept - 1),
        tokens_before=_count(raw.get("tokensBefore")),
        tokens_after=_count(raw.get("tokensAfter")),
    )


def _first_kept(raw: Raw, seq: int, reading: Reading) -> int:
    """Where it is not found, nothing before the compaction is kept: so all of v3's readers have it."""
    name, index = raw.get("firstKeptEntryId"), raw.get("firstKeptEntryIndex")
    found = reading.known.seq_of(name) if isinstance(name, str) else None
    if found is None and isinstance(index, int) and not isinstance(index, bool):
        found = index + 1
    return found if found is not None and 1 < found < seq else seq


def _count(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and 0 <= value < 1 << 53 else 0


def _own(kind: str, fields: Raw, seq: int, ts: str, after: int | None, reading: Reading) -> Entry | None:
    resolved = _from_references(fields, reading)
    jump = None if kind == "rewind" else after  # the jump of a rewind is the rewind itself
    try:
        return msgspec.convert({**resolved, "type": kind, "seq": seq, "ts": ts, "after": jump}, Entry)
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

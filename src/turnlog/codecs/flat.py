"""The flat dialect of claw0: `user`, `assistant`, `tool_use` and `tool_result` lines, no ids, sometimes a header.

Each line is one entry; a `tool_use` line is an assistant message with one call. History puts them together. Entries
without a line of claw0 become lines of type `turnlog`, which both of its readers skip.
"""

from collections.abc import Sequence
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from ..core.entries import Assistant, Block, Entry, Opened, Received, ToolResult, User
from ..core.keys import format as format_key, parse as parse_key
from ..core.user_content import user_content
from ..errors import UsageError
from . import lines
from .lines import OURS, Raw, Reading, content_of


def decode(line: bytes, seq: int, reading: Reading) -> Entry:
    raw = lines.parse(line)
    return understand(cast("Raw", raw), seq, reading) if isinstance(raw, dict) else lines.foreign(raw, seq)


def understand(raw: Raw, seq: int, reading: Reading) -> Entry:
    ts = lines.timestamp(raw.get("ts")) or lines.timestamp(raw.get("created"))
    entry = _header(raw, ts, reading) if raw.get("type") == "session" and seq == 1 else _plain(raw, seq, ts)
    if entry is None:
        return lines.foreign(raw, seq, ts)
    ours = raw.get(OURS)
    fields = cast("Raw", ours) if isinstance(ours, dict) else {}
    return lines.completed(entry, {name: value for name, value in fields.items() if name != "until"})


def _header(raw: Raw, ts: str, reading: Reading) -> Opened:
    opened = reading.opened
    try:
        key = parse_key(str(raw.get("key")), agent=opened.agent)
    except UsageError:
        return replace(opened, seq=1, ts=ts)
    return replace(opened, seq=1, ts=ts, key=format_key(key), agent=key.agent, channel=key.channel)


def _plain(raw: Raw, seq: int, ts: str) -> Entry | None:
    match raw:
        case {"type": "user"}:
            return User(seq=seq, ts=ts, content=content_of(raw.get("content")))
        case {"type": "assistant"}:
            return Assistant(seq=seq, ts=ts, content=content_of(raw.get("content")))
        case {"type": "tool_use"}:
            call: Block = {"id": raw.get("tool_use_id"), "name": raw.get("name"), "input": raw.get("input", {})}
            return Assistant(seq=seq, ts=ts, content=[{"type": "tool_use", **call}])
        case {"type": "tool_result"}:
            output = raw["content"] if "content" in raw else raw.get("output")
            return ToolResult(seq=seq, ts=ts, tool_use_id=str(raw.get("tool_use_id")), content=content_of(output))
        case {"type": "turnlog", "entry": {"type": str(kind), **fields}}:
            return _own(kind, cast("Raw", fields), seq, ts)
        case _:
            return None


def _own(kind: str, fields: Raw, seq: int, ts: str) -> Entry | None:
    try:
        return msgspec.convert({"ts": ts, **fields, "type": kind, "seq": seq}, Entry)
    except (msgspec.ValidationError, RecursionError):
        return None


def encode_append(entries: Sequence[Entry], reading: Reading) -> tuple[bytes, str | None]:
    """The bytes of one append; lines have no ids, so the next append has none to follow."""
    written: dict[int, Raw] = {}
    for entry in entries:
        raw = _line(entry, reading, written)
        missing = lines.unsaid(entry, understand(raw, entry.seq, reading))
        if missing:
            raw[OURS] = missing
        written[entry.seq] = raw
    return lines.framed(list(written.values()), reading.opened.id, entries[-1].seq), None


def _line(entry: Entry, reading: Reading, written: dict[int, Raw]) -> Raw:
    keyed = reading.style == "claw0-keyed"
    ts: Any = entry.ts if keyed else lines.unix_ms(entry.ts) / 1000
    match entry:
        case Opened():
            key = format_key(parse_key(entry.key), "triple") if keyed else entry.key
            return {"type": "session", "id": entry.id, "key": key, "created": ts}
        case User():
            content = user_content(entry, _received(entry, reading, written))
            return {"type": "user", "content": content, "ts": ts}
        case Assistant():
            return {"type": "assistant", "content": entry.content, "ts": ts}
        case ToolResult():
            content = {"output" if keyed else "content": entry.content}
            return {"type": "tool_result", "tool_use_id": entry.tool_use_id, **content, "ts": ts}
        case _:
            fields = {name: value for name, value in lines.meaning_of(entry).items() if name != "ts"}
            return {"type": OURS, "entry": {"type": entry.__struct_config__.tag, **fields}, "ts": ts}


def _received(entry: User, reading: Reading, written: dict[int, Raw]) -> dict[int, Received]:
    """The `received` entries that hold the content of this entry; claw0 must find it in the line itself."""
    found: dict[int, Received] = {}
    for seq in entry.from_ if entry.content is None else ():
        raw = written.get(seq) or lines.raw_at(seq, reading)
        if raw and (one := lines.received(raw.get("entry"))):
            found[seq] = one
    return found

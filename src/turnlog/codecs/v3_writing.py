"""Writes entries as v3 lines: each a child of the last one, with its own id, readable by programs of that dialect.

Every line is read back before it is written; the fields that a reader would miss are added in the field `turnlog`,
which those programs ignore. So nothing is lost, whatever an entry holds.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.entries import Assistant, Compaction, Entry, Opened, Received, Rewind, Title, ToolResult, User
from ..core.keys import decode_part
from ..core.user_content import user_content
from .lines import OURS, Raw, Reading, framed, meaning_of, raw_at, received, timestamp, unix_ms, unsaid
from .v3 import REFERENCE_LISTS, REFERENCES, id_of, understand
from .v3_messages import write_message

VERSION = 3
_ID_STEP = 0x9E3779B1
"""An odd number: repeatedly added, it reaches every id of eight hex digits before it repeats one."""
_IDS = 1 << 32


def encode_append(entries: Sequence[Entry], reading: Reading) -> tuple[bytes, str | None]:
    """The bytes of one append, and the id that the next one follows. `reading` is at the end of the file."""
    reading.known.complete()
    end = _End(reading)
    for entry in entries:
        end.write(entry)
    return framed(list(end.written.values()), reading.opened.id, entries[-1].seq), end.reading.last_id


class _End:
    """The end of a file, and the lines to be appended."""

    def __init__(self, reading: Reading) -> None:
        self.reading = Reading(reading.opened, reading.known, reading.style, reading.last_id)
        self.written: dict[int, Raw] = {}

    def write(self, entry: Entry) -> None:
        raw = self._header(entry) if isinstance(entry, Opened) else self._line(entry)
        self.written[entry.seq] = raw

    def _header(self, entry: Opened) -> Raw:
        raw: Raw = {"type": "session", "version": VERSION, "id": entry.id}
        if self.reading.style == "zyhive":
            raw |= {"agentId": entry.agent, "createdAt": unix_ms(entry.ts)}
        else:
            # The directory in which pi runs is the peer of its keys.
            cwd = decode_part(entry.key.rpartition(":")[2]) if entry.channel == "pi" else ""
            raw |= {"timestamp": entry.ts, "cwd": cwd}
        ours = meaning_of(entry)
        if timestamp(raw.get("timestamp", raw.get("createdAt"))) == entry.ts:
            ours.pop("ts", None)
        raw[OURS] = ours
        return raw

    def _line(self, entry: Entry) -> Raw:
        reading = self.reading
        previous = reading.last_id
        raw: Raw = {
            "type": "",
            "id": self._new_id(entry.seq),
            "parentId": self._parent(entry),
            "timestamp": unix_ms(entry.ts) if reading.style == "zyhive" else entry.ts,
            **self._body(entry),
        }
        understood = understand(raw, entry.seq, reading)
        if type(understood) is not type(entry):
            # Readers of this dialect would ignore it, such as a title without text.
            raw = {name: raw[name] for name in ("type", "id", "parentId", "timestamp")} | self._own(entry)
            reading.last_id = previous
            understood = understand(raw, entry.seq, reading)
        if missing := unsaid(entry, understood):
            raw[OURS] = self._to_references(missing)
        return raw

    def _parent(self, entry: Entry) -> str | None:
        """The parent of a rewind is the entry it goes back to, so that other readers of the tree go back as well."""
        back = entry.to if isinstance(entry, Rewind) else entry.after
        return self.reading.last_id if back is None else self._id_at(back)

    def _new_id(self, seq: int) -> str:
        number = seq % _IDS
        while (line_id := f"{number:08x}") in self.reading.known.ids:
            number = (number + _ID_STEP) % _IDS
        return line_id

    def _id_at(self, seq: int) -> str | None:
        raw = self._raw_at(seq)
        line_id = id_of(raw) if raw else None
        # An id that occurs twice names the later line.
        return line_id if line_id is not None and self.reading.known.ids.get(line_id) == seq else None

    def _raw_at(self, seq: int) -> Raw | None:
        return self.written.get(seq) or raw_at(seq, self.reading)

    def _body(self, entry: Entry) -> Raw:
        match entry:
            case User():
                content = user_content(entry, self._received(entry))
                return {"type": "message", "message": write_message(entry, content, self.reading)}
            case Assistant() | ToolResult():
                return {"type": "message", "message": write_message(entry, entry.content, self.reading)}
            case Compaction():
                return {
                    "type": "compaction",
                    "summary": entry.summary,
                    "firstKeptEntryId": str(self._reference(entry.first_kept)),
                    "tokensBefore": entry.tokens_before,
                    "tokensAfter": entry.tokens_after,
                }
            case Title():
                return {"type": "session_info", "name": entry.title}
            case _:
                return self._own(entry)

    def _own(self, entry: Entry) -> Raw:
        fields = {name: value for name, value in meaning_of(entry).items() if name not in ("ts", "after")}
        data = {"type": entry.__struct_config__.tag, **self._to_references(fields)}
        return {"type": "custom", "customType": OURS, "data": data}

    def _received(self, entry: User) -> dict[int, Received]:
        """The `received` entries that hold the content of this entry; other programs must find it in the
        line itself.
        """
        wanted = entry.from_ if entry.content is None else ()
        found = {seq: received((self._raw_at(seq) or {}).get("data")) for seq in wanted}
        return {seq: one for seq, one in found.items() if one}

    def _to_references(self, fields: Mapping[str, Any]) -> Raw:
        out = dict(fields)
        for name in REFERENCES:
            if isinstance(out.get(name), int):
                out[name] = self._reference(out[name])
        for name in REFERENCE_LISTS:
            if isinstance(out.get(name), list | tuple):
                out[name] = [self._reference(seq) for seq in out[name]]
        return out

    def _reference(self, seq: int) -> str | int:
        line_id = self._id_at(seq)
        return seq if line_id is None else line_id

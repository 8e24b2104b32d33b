"""What a call for a client was made with: its system text, tools and parameters, as the log keeps them.

The newest call follows from the notes in the log and from the live path, so a long log is looked through in parts:
`notes_of` each part, then `newest_call` of all of them, then the entry that it names has the head.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .entries import MESSAGES, Entry, Foreign, Transcript, User
from .outline import bare
from .parameters import NONE, Parameters
from .path import HEAD, REQUEST, note_of, of_log, said_until


class RelayedHead(Struct, frozen=True):
    system: str
    tools: Sequence[dict[str, Any]]
    parameters: Parameters
    max_output: int | None


class RelayedCall(Struct, frozen=True):
    head: int
    """The entry that holds its head."""
    parameters: Any


def notes_of(part: Transcript) -> list[Entry]:
    """What `newest_call` needs of these entries: everything but messages, without words, and the last user message."""
    users = [entry.seq for entry in part if isinstance(entry, User)]
    kept = {part[-1].seq, *users[-1:]}
    found = (entry for entry in part if entry.seq in kept or entry.after is not None or not isinstance(entry, MESSAGES))
    return [_noted(entry) for entry in found]


def _noted(entry: Entry) -> Entry:
    head = note_of(entry, HEAD)
    if isinstance(entry, Foreign) and head is not None:
        return replace(entry, raw={"turnlog": HEAD, "digest": head.get("digest")})
    return entry if note_of(entry, REQUEST) is not None else bare(entry)


def newest_call(log: Transcript) -> RelayedCall | None:
    """None: the newest turn was not a call for a client, or its head is not in the log."""
    path = of_log("", log)
    found = next((entry for entry in log if path.call and entry.seq == path.call.turn), None)
    asked = note_of(found, REQUEST) if found else None
    if path.call is None or asked is None or path.call.is_turn:
        return None
    until = said_until(asked, path.call.turn)
    if any(isinstance(entry, User) and entry.seq > until for entry in log):
        return None  # somebody went on without a client
    head = path.heads.get(str(asked.get("head")))
    return None if head is None else RelayedCall(head, asked.get("parameters"))


def head_of(call: RelayedCall, entry: Entry) -> RelayedHead | None:
    """The head of a call, if this entry holds it."""
    head = note_of(entry, HEAD)
    if head is None:
        return None
    parameters, max_output = _parameters(call.parameters)
    return RelayedHead(str(head.get("system", "")), list(head.get("tools") or ()), parameters, max_output)


def _parameters(stored: Any) -> tuple[Parameters, int | None]:
    given = dict(cast("Mapping[str, Any]", stored)) if isinstance(stored, dict) else {}
    most = given.pop("max_output", None)
    try:
        return msgspec.convert(given, Parameters), most if isinstance(most, int) else None
    except msgspec.ValidationError:
        return NONE, None  # a newer version wrote it

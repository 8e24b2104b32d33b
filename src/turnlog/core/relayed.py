"""What a call for a client was made with: its system text, tools and parameters, as the log keeps them."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from .entries import Transcript, User
from .parameters import NONE, Parameters
from .path import HEAD, REQUEST, note_of, of_log, said_until


class RelayedHead(Struct, frozen=True):
    system: str
    tools: Sequence[dict[str, Any]]
    parameters: Parameters
    max_output: int | None


def newest_head(log: Transcript) -> RelayedHead | None:
    """None: the newest turn was not a call for a client, or its head is not in the log."""
    path = of_log("", log)
    entries = {entry.seq: entry for entry in log}
    asked = note_of(entries[path.call.turn], REQUEST) if path.call else None
    if path.call is None or asked is None or path.call.is_turn:
        return None
    until = said_until(asked, path.call.turn)
    if any(isinstance(entry, User) and entry.seq > until for entry in log):
        return None  # somebody went on without a client
    found = entries.get(path.heads.get(str(asked.get("head")), 0))
    head = note_of(found, HEAD) if found is not None else None
    if head is None:
        return None
    parameters, max_output = _parameters(asked.get("parameters"))
    return RelayedHead(str(head.get("system", "")), list(head.get("tools") or ()), parameters, max_output)


def _parameters(stored: Any) -> tuple[Parameters, int | None]:
    given = dict(cast("Mapping[str, Any]", stored)) if isinstance(stored, dict) else {}
    most = given.pop("max_output", None)
    try:
        return msgspec.convert(given, Parameters), most if isinstance(most, int) else None
    except msgspec.ValidationError:
        return NONE, None  # a newer version wrote it

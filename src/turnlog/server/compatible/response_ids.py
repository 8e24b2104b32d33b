"""Ids of responses, items and conversations. Each says where its object is stored, so no index is needed.

    resp_<session>_<turn>               the call whose own entry has this seq
    msg_, fc_, fco_, rs_<session>_<seq>_<n>   the n-th item of this entry; of a call's own entry: of the call's answer
    cmp_<session>_<seq>_0               everything in the session up to this entry
    conv_<session>

Answers are named after their call, because an item gets its id before it is stored. A principal that may not see the
session gets the same answer as for a session that does not exist.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from hmac import compare_digest

from msgspec import Struct

_SESSION = r"([A-Za-z0-9][A-Za-z0-9_-]{0,63})"
_NUMBER = r"([1-9][0-9]{0,11})"
_RESPONSE = re.compile(rf"resp_{_SESSION}_{_NUMBER}")
_ITEM = re.compile(rf"(?:msg|fc|fco|rs|cmp)_{_SESSION}_{_NUMBER}_(0|[1-9][0-9]{{0,8}})")
_CONVERSATION = re.compile(rf"conv_{_SESSION}")
HANDLE = "tlc1."
"""How the `encrypted_content` of our compactions begins."""
MAC_BYTES = 12


class ItemPlace(Struct, frozen=True):
    session: str
    seq: int
    n: int


class SessionPoint(Struct, frozen=True):
    """Everything in a session up to an entry."""

    session: str
    seq: int
    mac: str = ""


def response(session: str, turn: int) -> str:
    return f"resp_{session}_{turn}"


def conversation(session: str) -> str:
    return f"conv_{session}"


def item(kind: str, session: str, seq: int, n: int) -> str:
    return f"{kind}_{session}_{seq}_{n}"


def response_place(text: str) -> tuple[str, int] | None:
    found = _RESPONSE.fullmatch(text)
    return (found[1], int(found[2])) if found else None


def conversation_session(text: str) -> str | None:
    found = _CONVERSATION.fullmatch(text)
    return found[1] if found else None


def item_place(text: str) -> ItemPlace | None:
    found = _ITEM.fullmatch(text)
    return ItemPlace(found[1], int(found[2]), int(found[3])) if found else None


def handle(session: str, seq: int, incarnation: str) -> str:
    """Stands for everything up to this entry, and holds none of its words."""
    said = f"{session}:{seq}:{_mac(session, seq, incarnation)}"
    return HANDLE + urlsafe_b64encode(said.encode()).decode().rstrip("=")


def read_handle(text: str) -> SessionPoint | None:
    """Not checked yet: `is_ours` needs the session."""
    if not text.startswith(HANDLE):
        return None
    coded = text.removeprefix(HANDLE)
    try:
        session, seq, mac = urlsafe_b64decode(coded + "=" * (-len(coded) % 4)).decode().split(":")
        point = SessionPoint(session, int(seq), mac)
    except ValueError:
        return None
    return point if re.fullmatch(_SESSION, session) and point.seq > 0 else None


def is_ours(point: SessionPoint, incarnation: str) -> bool:
    """Whether this server made it, for this very session and not for a deleted one of the same id."""
    return compare_digest(point.mac.encode(), _mac(point.session, point.seq, incarnation).encode())


def _mac(session: str, seq: int, incarnation: str) -> str:
    key = blake2b(incarnation.encode(), digest_size=32).digest()
    return blake2b(f"{session}:{seq}".encode(), key=key, digest_size=MAC_BYTES).hexdigest()

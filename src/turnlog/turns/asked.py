"""One request of a client: its question, its place, and the facts about it that the log keeps."""

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal

from msgspec import Struct

from ..core import atoms, keys
from ..core.entries import Entry, Foreign, Message
from ..core.keys import SessionKey
from ..core.matching import Decision
from ..core.path import HEAD, REQUEST
from ..core.principals import Principal
from ..core.request_messages import RequestMessages
from ..errors import UsageError

NAME_MAX_CHARS = 256
"""Clients' names are ids of some 40 characters; a name is part of a key, which is an index column."""


class Asked(Struct, frozen=True, kw_only=True):
    """One request, after its wire has been read."""

    principal: Principal
    agent: str = "main"
    name: str | None = None
    """What the client calls its conversation."""
    handle: str | None = None
    """The text of the header Turnlog-Session: the id of a session of this principal, or a name."""
    wire: str
    client: str
    model: str
    system: str = ""
    tools: Sequence[dict[str, Any]] = ()
    parameters: dict[str, Any] = {}
    messages: Sequence[bytes]
    """Each message as the client wrote it, without those of the head."""
    read: Callable[[bytes], Sequence[Message]]
    """Translates one of them."""
    after: tuple[str, int] | None = None
    """(session, turn): the call whose answer `messages` follow, instead of being the whole conversation."""
    again: tuple[str, int] | None = None
    """(session, turn): the call that was made for this very request before."""
    is_stream: bool = False
    is_retry: bool = False
    """Whether the client says that it asked this before."""
    turn_id: str = ""
    """The client's own id of the turn that it asks for."""
    tip: str | None = None
    """The session that `messages` are appended to, whatever it holds."""
    point: tuple[str, int] | None = None
    """(session, seq): the entry up to which everything stands before `messages`."""
    asks: bool = True
    """Whether an answer is asked for; otherwise only that the words are stored."""
    echo: dict[str, Any] | None = None
    """What the wire needs to tell the answer again; kept in the call's own entry."""
    kind: Literal["relay", "agent"] = "relay"
    store: bool = True

    @property
    def says_where(self) -> bool:
        """Whether it names the place where it goes on, and brings only what is new."""
        return self.after is not None or self.tip is not None or self.point is not None

    @property
    def session(self) -> str | None:
        """The id of the session that the request itself names."""
        if self.after is not None or self.point is not None:
            return (self.after or self.point or ("",))[0]
        return self.tip if self.tip is not None else self.handle


def place_of(who: Principal, agent: str, name: str | None) -> SessionKey:
    return SessionKey(agent=agent, channel="api", kind="direct", peer=who.name, thread=name)


def check_name(name: str) -> None:
    if not 1 <= len(name) <= NAME_MAX_CHARS or not name.isprintable():
        raise UsageError(
            "this cannot be the name of a conversation",
            hint=f"Use 1 to {NAME_MAX_CHARS} characters without control characters.",
        )


def key_of(asked: Asked) -> tuple[str, bool]:
    """The key of its place, and whether the client names its conversation."""
    name = asked.handle if asked.handle is not None else asked.name
    if name is not None:
        check_name(name)
    return keys.format(place_of(asked.principal, asked.agent, name)), name is not None


def ask_of(asked: Asked, said: RequestMessages) -> str:
    """Equal for two requests that ask for the same: words, head, model and parameters."""
    words = atoms.digest(said.keys).hex()
    by_id = [asked.after, *([asked.tip, asked.point] if asked.tip or asked.point else [])]
    return _digest([words, asked.system, list(asked.tools), asked.model, asked.parameters, asked.kind, *by_id])


def notes(asked: Asked, decision: Decision, ask: str, heads: Mapping[str, int], said: int) -> list[Entry]:
    """The call's own entry; before it the head, unless the log holds it already. No header is kept.

    `heads`: digest of each head that the log holds, and its entry. `said`: the number of entries that the request
    appends after the call's own.
    """
    head = _digest([asked.system, list(asked.tools)])
    note: dict[str, Any] = {
        "turnlog": REQUEST,
        "wire": asked.wire,
        "client": asked.client,
        "match": decision.kind,
        "model": asked.model,
        "head": head,
        "parameters": asked.parameters,
        "ask": ask,
        "said": said,
    }
    if asked.says_where:
        note["part"] = True
    if not asked.asks:
        note["compacts"] = True
    if asked.kind == "agent":
        note["agent"] = True  # whatever is said then is told to the client as one message
    if asked.echo is not None:
        note["response"] = asked.echo
    if decision.branch:
        note["branch"] = "new" if decision.branch < 0 else decision.branch
    if head in heads:
        return [Foreign(raw={**note, "head_at": heads[head]})]
    whole = {"turnlog": HEAD, "digest": head, "system": asked.system, "tools": list(asked.tools)}
    return [Foreign(raw=whole), Foreign(raw=note)]


def _digest(value: Any) -> str:
    said = json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return blake2b(said.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

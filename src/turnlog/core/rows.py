"""A session's row: the facts that are known without reading its log. Every field is declared here, once.

`Session` is the row that stores keep; `core/session` computes it from the log. `SessionRow` is the part of it that
lists show: HTTP answers, `--json`, pages and `sessions.json` are all made from that class. A store names its columns
after these fields (`stores/sql`), and a query compares the fields that it shares with the row (`core/query`).
"""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct, field

from .arguments import Named
from .entries import Origin
from .marks import Interval, Mark, Shape
from .turns import UNDER_WAY, Role
from .usage import ModelUse

FOLD = 5
"""The version of the rule that makes a row from a log (`core/session`). It rises with every change of that rule: a new
row field, or an entry type that changes a row. A row with another number was made by another version of Turnlog, and is
rebuilt from the log before it is used.
"""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

StatusValue: TypeAlias = Literal["active", "inactive", "archived", "trashed"]


class OpenApproval(Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A call of a paused turn that waits for a person's approval, or has it."""

    call: str
    seq: int
    """Of its request."""
    expires: int = 0
    """Unix ms; 0: never."""
    answer: int = 0
    """The seq of its answer; 0 while it waits."""


class Session(Struct, metaclass=Named, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """The facts of a session that are known without reading its log."""

    id: str
    key: str
    agent: str = field(name="agentId")
    channel: str
    label: str | None = None
    title: str = ""
    title_by: Literal["", "first", "index", "auto", "user"] = ""
    """`first`: the first words. `index`: from another program's index, unless an entry sets a title."""
    status: StatusValue = "inactive"
    message_count: int = 0
    turn_count: int = 0
    created_at: int = 0
    last_at: int = 0
    token_estimate: int = 0
    compactions: int = 0
    forked_from: Origin | None = None
    last_seq: int = 0
    selected_n: int = 0
    last_role: Role = ""
    first_message: int = 0
    boundary: int = 1
    """The first entry kept by the newest active compaction; 1 without one."""
    read_from: int = 1
    """The seq from which a reader sees the boundary and the compaction that set it."""
    marks: tuple[Mark, ...] = ()
    pruned_to: int = 0
    dead_to: int = 0
    pruned_compactions: int = 0
    """These three say which marks are missing; see `Shape`."""
    pins: tuple[Interval, ...] = ()
    """(seq of the pin, seq of its target) of each active pin."""
    received: tuple[int, ...] = ()
    """Messages that no turn has taken yet."""
    heard: tuple[int, ...] = ()
    """The newest messages since the last turn began that ask for no answer (`core/heard`)."""
    waiting: bool = False
    """Whether a call waits for a person's approval."""
    needed_approval: bool = False
    """Whether any call has ever needed a person's approval."""
    approvals: tuple[OpenApproval, ...] = ()
    """The calls of a paused turn that were asked about. Empty: no turn is paused."""
    allowed: tuple[str, ...] = ()
    """Patterns of calls that need no approval in this session (`core/call_patterns`)."""
    peer: str = ""
    """Who or what the agent talks with: the part of the key that names it."""
    model: str = ""
    """The model that was chosen for the next turns, as the settings name it; empty: the agent's own."""
    used: tuple[ModelUse, ...] = ()
    """The tokens of all calls, by model."""
    stamped: str = field(default="", name="incarnation")
    """The value in the log's first entry."""
    fold: int = 0
    """The `FOLD` of the version that made this row."""

    @property
    def shape(self) -> Shape:
        return Shape(self.marks, self.pruned_to, self.dead_to, self.pruned_compactions)

    @property
    def incarnation(self) -> str:
        """Distinguishes this session from a deleted one with the same id. Old logs have none; their creation time is
        used.
        """
        return self.stamped or str(self.created_at)

    @property
    def lacks_copies(self) -> bool:
        """Whether it is a fork of which not all copies are written: its process still writes them, or died."""
        origin = self.forked_from
        return origin is not None and origin.in_parts and self.last_seq < origin.last_copy

    @property
    def under_way(self) -> bool:
        """Whether the last turn has neither an answer nor a `failed` yet: it runs, it is paused, or a crash cut it
        short.
        """
        return self.last_role in UNDER_WAY

    @property
    def paused(self) -> bool:
        """Whether the last turn waits for a person, or to be taken up after the answer. Nobody needs to run it."""
        return bool(self.approvals) and self.under_way

    @property
    def unfinished(self) -> bool:
        """Whether messages wait or a turn is unfinished: a restart has to handle this. Not in a fork whose copies may
        end within a turn.
        """
        return (bool(self.received) or self.under_way) and not self.lacks_copies


class SessionRow(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A session as lists show it."""

    id: str
    agent: str = field(name="agentId")
    key: str
    label: str | None
    title: str
    file_path: str | None = None
    """The file of the transcript, if it has its own; otherwise the field is left out."""
    message_count: int
    turn_count: int
    created_at: int
    last_at: int
    token_estimate: int
    status: StatusValue
    channel: str
    compactions: int
    waiting: bool = False
    """Whether a call waits for a person's approval; left out if none does."""
    model: str = ""
    """The model that was chosen for the next turns; left out if it is the agent's own."""


_PUBLIC = tuple(name for name in SessionRow.__struct_fields__ if name != "file_path")


def public_row(session: Session, *, file_path: str | None = None) -> SessionRow:
    fields: dict[str, Any] = {name: getattr(session, name) for name in _PUBLIC}
    return SessionRow(file_path=file_path, **fields)


_decoder = msgspec.json.Decoder(Session)


def decode_row(line: str | bytes) -> Session:
    """Decodes a stored row. An unknown status counts as inactive: one bad entry must not hide the session.

    If another version wrote the row in an unknown form, only the fields that identify the session are used.
    """
    try:
        return _decoder.decode(line)
    except msgspec.ValidationError:
        return _mended(msgspec.json.decode(line, type=dict[str, Any]))


def _mended(raw: dict[str, Any]) -> Session:
    known = raw.get("status") in get_args(StatusValue)
    try:
        return msgspec.convert(raw if known else {**raw, "status": "inactive"}, Session)
    except msgspec.ValidationError:
        if raw.get("fold") == FOLD:
            raise
        return msgspec.convert({name: raw[name] for name in _IDENTITY if name in raw}, Session)


_IDENTITY = ("id", "key", "agentId", "channel", "createdAt", "lastSeq", "incarnation")


def milliseconds(ts: str) -> int:
    """Converts RFC 3339 UTC with milliseconds, the only form that Turnlog writes, to Unix ms; 0 for anything else."""
    if len(ts) == 24 and ts[19] == "." and ts[23] == "Z" and ts.isascii() and (fraction := ts[20:23]).isdecimal():
        whole = _milliseconds(f"{ts[:19]}Z")  # many times of a log are within the same second
        return whole + int(fraction) if whole else _milliseconds(ts)
    return _milliseconds(ts)


@lru_cache(maxsize=1024)
def _milliseconds(ts: str) -> int:
    try:
        moment = datetime.fromisoformat(ts)
    except ValueError:
        return 0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    delta = moment - _EPOCH
    return delta.days * 86_400_000 + delta.seconds * 1000 + delta.microseconds // 1000

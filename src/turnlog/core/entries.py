"""The entries of a transcript. Every entry type is declared here, once.

One frozen Struct per type, distinguished by `type`. An entry that is not stored yet has seq 0 and no ts; the store sets
both. Entries say what happened, never what it means: history, session rows and coverage are computed from them.

The traits of a type are class variables of `Stored`. Admission, the fold of the row, marks, forks and imports ask the
traits and list no types of their own, so a new type is complete with its class and its place in `Entry`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias, cast, get_args

from msgspec import Struct, field

from .arguments import Named, Typed
from .block_text import blocks_of as blocks_of, clean as clean, text_block as text_block, text_of as text_of

FORMAT_VERSION = 1
"""Rises when an older reader would misread a transcript; that reader then refuses it with a hint."""

ENTRY_MAX_BYTES = 32 * 1024 * 1024
"""The size of one stored entry. Larger things belong in files, and a line must fit in memory several times over."""

NESTING_MAX = 200
"""The depth of JSON inside an entry. Decoders recurse; a few hundred levels are safe on every platform."""

REFUSED_CONTENT = "refused_content"
"""The code of a turn that failed because the model refused its content, which is left out of history from then on."""

ERASED = "[erased]"
"""Stands for the words of an erased message."""

Block: TypeAlias = dict[str, Any]
Content: TypeAlias = str | list[Block]
Usage: TypeAlias = dict[str, Any]


class Stored(Struct, metaclass=Named, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    seq: int = 0
    ts: str = ""
    after: int | None = None
    """The entry that this one follows, if that is not the one before it: a branch in another program's tree of entries.
    """
    unknown: dict[str, Any] | None = None
    """Fields that a newer version wrote and this one does not know. They are written back unchanged; no line has a
    field of this name. On a `foreign` entry, `{"type": …}` is the unknown type, and `raw` the whole line.
    """
    raw: Any = None
    """The item as another program gave it, word for word, if the other fields do not give it back equal. Never sent to
    a model and never searched.
    """
    erased: bool = False
    """Whether its words were erased (`core/erasing`): the line then has none of the fields that are not `lasting`."""

    needs_lease: ClassVar[bool] = False
    """Whether only the holder of the lease may write it, because a running turn depends on it."""
    names: ClassVar[str] = ""
    """The field that names earlier entries by seq, which must exist."""
    mark: ClassVar[str] = ""
    """For a type that changes which entries count: the field that the row remembers (`core/marks`)."""
    sets: ClassVar[tuple[str, str]] = ("", "")
    """(field of the row, field of the entry): the row copies this value, a text cut to a length (`core/names`)."""
    inherited: ClassVar[bool] = True
    """Whether a fork copies it. Otherwise it concerns only its own session."""
    blank: ClassVar[Mapping[str, Any] | None] = None
    """The required fields of an erased entry of this type. None: it holds no words, so it cannot be erased."""
    lasting: ClassVar[tuple[str, ...]] = ()
    """Fields that an erased entry keeps, because other entries depend on them. None of them holds words."""


class Origin(Struct, metaclass=Typed, frozen=True, kw_only=True, omit_defaults=True):
    """The source of a fork."""

    id: str
    seq: int
    compaction: int = 0
    """The compaction of the source whose summary stands here for what was not copied; 0: all of it was copied."""
    copied: int = 0
    """The last entry here that is a copy, if not all of the past was copied."""
    in_parts: bool = False
    """Whether the copies were too large for one append. Until the last of them is written, the fork is in the trash."""

    @property
    def last_copy(self) -> int:
        """The last entry of the fork that is a copy."""
        return self.copied if self.compaction else self.seq


class Opened(Stored, frozen=True, kw_only=True, tag="session", gc=False):
    version: int = field(default_factory=lambda: FORMAT_VERSION)
    """Set by a factory, so that it is always written and never left out as a default."""
    id: str
    key: str
    agent: str
    channel: str
    label: str | None = None
    forked_from: Origin | None = None
    incarnation: str | None = None
    """Set by the store: distinguishes this session from a deleted one with the same id."""


class Selected(Stored, frozen=True, kw_only=True, tag="selected", gc=False):
    inherited = False

    n: int


class Received(Stored, frozen=True, kw_only=True, tag="received", gc=False):
    blank = {"content": ERASED}
    lasting = ("mode",)

    content: Content
    message_id: str | None = None
    dedupe_id: str | None = None
    sender: str | None = None
    mode: str = "steer"


class User(Stored, frozen=True, kw_only=True, tag="user", gc=False):
    needs_lease = True
    names = "from_"
    blank = {"content": ERASED}
    lasting = ("from_",)

    content: Content | None = None
    message_id: str | None = None
    dedupe_id: str | None = None
    sender: str | None = None
    from_: tuple[int, ...] = field(default=(), name="from")


class Assistant(Stored, frozen=True, kw_only=True, tag="assistant", gc=False):
    needs_lease = True
    blank = {"content": ERASED}
    lasting = ("stop",)

    content: Content
    model: str | None = None
    usage: Usage | None = None
    stop: str | None = None

    @property
    def text(self) -> str:
        """Its text, without calls and thinking."""
        return text_of(self.content)

    @property
    def calls(self) -> list[Block]:
        """Its tool calls, each with `id`, `name` and `input`."""
        return tool_uses(self)


class ToolResult(Stored, frozen=True, kw_only=True, tag="tool_result", gc=False):
    needs_lease = True
    blank = {"tool_use_id": "", "content": ERASED}

    tool_use_id: str
    content: Content
    is_error: bool = False


class Compaction(Stored, frozen=True, kw_only=True, tag="compaction", gc=False):
    needs_lease = True
    mark = "first_kept"
    blank = {"summary": ERASED}
    lasting = ("first_kept", "covers", "tokens_before", "tokens_after", "trigger", "model")

    summary: str
    first_kept: int
    covers: tuple[int, int]
    tokens_before: int = 0
    tokens_after: int = 0
    trigger: str = "manual"
    model: str | None = None
    focus: str | None = None


class Shortened(Stored, frozen=True, kw_only=True, tag="shortened", gc=False):
    needs_lease = True
    names = "targets"
    mark = "limit"

    targets: tuple[int, ...]
    limit: int
    plain: bool = False
    """Instead of cutting results to `limit`, everything up to the target is shown as plain text, because it was
    refused.
    """
    by_client: bool = False
    """A client sent the result pruned to this length; it lasts until that client sends more of it."""


class Pin(Stored, frozen=True, kw_only=True, tag="pin", gc=False):
    names = mark = "target"

    target: int


class Unpin(Stored, frozen=True, kw_only=True, tag="unpin", gc=False):
    names = mark = "target"

    target: int


class Rewind(Stored, frozen=True, kw_only=True, tag="rewind", gc=False):
    needs_lease = True
    names = mark = "to"

    to: int


class Undo(Stored, frozen=True, kw_only=True, tag="undo", gc=False):
    needs_lease = True
    mark = "target"

    target: int


class Status(Stored, frozen=True, kw_only=True, tag="status", gc=False):
    sets = ("status", "value")
    inherited = False
    blank = {}
    lasting = ("value",)

    value: Literal["active", "inactive", "archived", "trashed"]
    reason: str = ""


class Title(Stored, frozen=True, kw_only=True, tag="title", gc=False):
    blank = {"title": ""}

    title: str
    by: Literal["auto", "user"] = "user"


class ModelChoice(Stored, frozen=True, kw_only=True, tag="model", gc=False):
    """From the next turn on this model answers, if the agent offers it then."""

    sets = ("model", "model")

    model: str = ""
    """As the settings name it; empty: the agent's own."""


class Failed(Stored, frozen=True, kw_only=True, tag="failed", gc=False):
    needs_lease = True
    blank = {}
    lasting = ("code",)

    code: str
    reason: str = ""


class Approval(Stored, frozen=True, kw_only=True, tag="approval", gc=False):
    """`requested`: a call waits for a person's approval, and its turn is paused. `resumed`: all answers are given, and
    the turn continues from here; a crash after it is a crash of a running turn.
    """

    needs_lease = True
    inherited = False
    blank = {}
    lasting = ("state", "call", "expires")

    state: Literal["requested", "resumed"]
    call: str = ""
    """The id of the tool_use block."""
    tool: str = ""
    input: dict[str, Any] | None = None
    why: str = ""
    preview: str = ""
    """What the call would change, such as the diff of a file, as it was when it was requested."""
    place: str = ""
    """A digest of the place that the tool works in. The answer counts only there."""
    always: str = ""
    """The pattern of calls that an answer may allow for the rest of the session."""
    expires: int = 0
    """Unix ms; then it counts as denied. 0: never."""


class ApprovalAnswer(Stored, frozen=True, kw_only=True, tag="approval_answer", gc=False):
    """A person's answer about a call that waits."""

    inherited = False
    blank = {}
    lasting = ("call", "word", "request")

    call: str
    word: Literal["approved", "denied"]
    request: int = 0
    """The seq of the question that was answered: a model may use an id again. 0: the one that waits under this id."""
    by: str = ""
    words: str = ""
    """The reason of a denial; the model reads it."""
    input: dict[str, Any] | None = None
    """The arguments, if the person changed them."""
    always: str = ""
    """The pattern of calls that need no further approval in this session."""


class Foreign(Stored, frozen=True, kw_only=True, tag="foreign", gc=False):
    blank = {"raw": None}

    raw: Any  # pyright: ignore[reportGeneralTypeIssues] - it is all that a foreign entry has, so it must be given


class Facts(Stored, frozen=True, kw_only=True, tag="facts", gc=False):
    blank = {"app": "", "put": {}}

    app: str
    put: dict[str, Any] = field(default_factory=dict[str, Any])
    drop: tuple[str, ...] = ()


class Erasure(Stored, frozen=True, kw_only=True, tag="erasure", gc=False):
    """Says who erased entries of this session, and when; never what they held."""

    inherited = False

    by: str = ""
    entries: int = 0


Entry: TypeAlias = (
    Opened
    | Selected
    | Received
    | User
    | Assistant
    | ToolResult
    | Compaction
    | Shortened
    | Pin
    | Unpin
    | Rewind
    | Undo
    | Status
    | Title
    | ModelChoice
    | Failed
    | Foreign
    | Facts
    | Approval
    | ApprovalAnswer
    | Erasure
)
Transcript: TypeAlias = Sequence[Entry]
Message: TypeAlias = User | Assistant | ToolResult

TYPES: dict[str, type[Stored]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Entry)}
"""Every type by its name in a line."""
MESSAGES = (User, Assistant, ToolResult)
NEEDS_LEASE = tuple(kind for kind in TYPES.values() if kind.needs_lease)
"""Entries that only the holder of the lease may write: everything that a running turn depends on."""
SHAPING = frozenset(kind for kind in TYPES.values() if kind.mark)
"""Types that change which entries count."""


def kind_of(entry: Entry) -> str:
    """The name of its type, for people."""
    if isinstance(entry, Foreign) and entry.unknown and "type" in entry.unknown:
        return f"unknown: {entry.unknown['type']}"
    return str(entry.__struct_config__.tag)


def named_by(entry: Entry) -> tuple[int, ...]:
    """The earlier entries that it names."""
    value: Any = getattr(entry, entry.names) if entry.names else ()
    return cast("tuple[int, ...]", value) if isinstance(value, tuple) else (value,)


def tool_uses(entry: Assistant) -> list[Block]:
    if isinstance(entry.content, str):
        return []
    return [block for block in entry.content if block.get("type") == "tool_use"]

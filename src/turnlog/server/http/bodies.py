"""What requests carry and what answers hold; OpenAPI is generated from here."""

import base64
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from litestar.params import PathParameter
from msgspec import UNSET, Meta, Struct, UnsetType, field

from ...access.former_files import FormerFile
from ...convlog import Conversation, Record
from ...core import strict_json
from ...core.approvals import WORDS_MAX_CHARS, ApprovalRecord
from ...core.entries import Block, Content
from ...core.pictures import PICTURE_TYPES, form_of
from ...core.rows import SessionRow
from ...errors import UsageError
from ...sessions.erasing_text import EraseReport as EraseReport
from .limits import IMAGES_MAX, TEXT_MAX_BYTES

SESSION_ID = "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
AGENT = "[a-z0-9][a-z0-9_-]{0,63}"
AGENT_ID = f"^{AGENT}$"
_PART = r"([^:/%\s\x00-\x1f\x7f-\x9f]|%[0-9A-Fa-f]{2})+"
KEY = (
    f"^(agent:{AGENT}:{_PART}(:{_PART})?:(direct|group):{_PART}(:thread:{_PART})?"
    f"|thread:{_PART}:{_PART}:{_PART}|{AGENT}:{_PART}:{_PART})$"
)
"""The three ways to write a session key."""
_BASE64 = "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
IMAGE = (
    "^data:image/(png|jpeg|webp|gif);base64,"
    "(iVBORw0KGg[o-r][A-Za-z0-9+/]|/9j/|R0lGOD(dh|lh)|UklGR[g-v][A-Za-z0-9+/]{4}[BFJNRVZdhlptx159]XRUJQ)"
    f"{_BASE64}$"
)
"""The same that `image_block` accepts, for those who read the OpenAPI description."""

AgentId: TypeAlias = Annotated[
    str, PathParameter(description="An agent of the settings.", pattern=AGENT_ID, max_length=64)
]
SessionId: TypeAlias = Annotated[str, PathParameter(description="A session.", pattern=SESSION_ID, max_length=64)]
CallId: TypeAlias = Annotated[str, PathParameter(description="The id of a call that waits.", max_length=200)]
MessageText: TypeAlias = Annotated[str, Meta(extra_json_schema={"maxLength": TEXT_MAX_BYTES})]
ImageUri: TypeAlias = Annotated[str, Meta(extra_json_schema={"pattern": IMAGE})]
SID: TypeAlias = Annotated[str, Meta(pattern=SESSION_ID)]


NOT_BLANK = r"[^\s\x1c-\x1f\x85\ufeff]"
"""What is blank differs from one language's regular expressions to the next; this is blank in none."""
_BLANK = f"Expected `str` matching regex {NOT_BLANK!r}"


class Strict(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A misspelt field is an error: it must not be silently without effect."""


class ChatBody(Strict, frozen=True, kw_only=True):
    """A message. Without sessionId and key a new session is begun."""

    message: Annotated[str, Meta(pattern=NOT_BLANK, description=f"At most {TEXT_MAX_BYTES:,} bytes.")]
    session_id: SID | None = None
    key: Annotated[str, Meta(pattern=KEY, max_length=1024)] | None = None
    context: MessageText | None = None
    """Joins the system prompt of this turn only; is not stored."""
    images: Annotated[list[ImageUri], Meta(max_length=IMAGES_MAX)] = field(default_factory=list[ImageUri])
    """PNG, JPEG, WebP or GIF as data URIs."""
    recall: bool = False
    rewind_to: Annotated[int, Meta(ge=1, description="Ends a turn; 409 if it does not, or while one runs.")] | None = (
        None
    )
    """Go on from this entry: what came after it is rewound."""
    model: Annotated[str, Meta(max_length=200)] | None = None
    """This model answers from now on in the session: one of the agent's models; empty: its own."""


class ModelBody(Strict, frozen=True, kw_only=True):
    model: Annotated[str, Meta(max_length=200)]
    """One of the agent's models; empty: its own."""


class ModelsView(Struct, frozen=True):
    models: list[str]
    """Names that `model` may have; the first is the agent's own."""


class StopBody(Strict, frozen=True, kw_only=True):
    session_id: SID


class TitleBody(Strict, frozen=True, kw_only=True):
    title: Annotated[str, Meta(pattern=NOT_BLANK, max_length=10_000)]
    """Cut to 60 characters."""


class CompactBody(Strict, frozen=True, kw_only=True):
    focus: Annotated[str, Meta(max_length=2_000)] | None = None
    dry_run: bool = False


class ForkBody(Strict, frozen=True, kw_only=True):
    at: Annotated[int, Meta(ge=1)] | None = None
    label: Annotated[str, Meta(min_length=1, max_length=200)] | None = None


class RewindBody(Strict, frozen=True, kw_only=True):
    to: Annotated[int, Meta(ge=1)]


SEQS_MAX = 10_000
"""Entries that one request erases."""
ErasedText: TypeAlias = Annotated[str, Meta(pattern=rf"{NOT_BLANK}[\s\S]+{NOT_BLANK}", max_length=10_000)]
"""At least three characters, without the blanks around them: a shorter text would be found everywhere."""


class EraseBody(Strict, frozen=True, kw_only=True):
    """Words to erase in one session: either `seqs` or `text`."""

    seqs: Annotated[list[Annotated[int, Meta(ge=1)]], Meta(min_length=1, max_length=SEQS_MAX)] | UnsetType = UNSET
    text: ErasedText | UnsetType = UNSET
    redact: bool = False
    """Also what still counts: it is shown as [erased] from then on."""
    derived: bool = False
    """Also summaries, titles, forks and lines of the convlog that were made of it."""
    apply: bool = False
    """Erase for good. Without it, only what would be erased is listed."""


class EraseEverywhereBody(Strict, frozen=True, kw_only=True):
    """Words to erase in all sessions that the token may see."""

    text: ErasedText
    redact: bool = False
    derived: bool = False
    apply: bool = False


class SignInBody(Strict, frozen=True, kw_only=True):
    """The code of a sign-in link, or a token."""

    code: Annotated[str, Meta(max_length=200)] | None = None
    token: Annotated[str, Meta(max_length=200)] | None = None


class SessionList(Struct, frozen=True, kw_only=True):
    sessions: list[SessionRow]
    next: str | None
    """The cursor of the next page."""
    total: int


class SessionView(Struct, frozen=True, kw_only=True):
    session: SessionRow
    entries: list[dict[str, Any]]
    """Oldest first; see docs/reference/entries.md."""
    next: int | None
    """`before` of the page of older entries."""


class StatusView(Struct, frozen=True):
    status: Literal["idle", "running", "queued", "waiting"]
    """`waiting`: a call waits for a person's approval."""


class ApprovalsView(Struct, frozen=True):
    approvals: list[ApprovalRecord]


class FilesView(Struct, frozen=True):
    files: list[FormerFile]


class UndoFileBody(Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(min_length=1, max_length=4_096)] | None = None
    """Without it, the newest change."""
    force: bool = False
    """Also if the file has changed since."""


class ApprovalBody(Struct, frozen=True, forbid_unknown_fields=True):
    word: Literal["approved", "denied"]
    words: Annotated[str, Meta(max_length=WORDS_MAX_CHARS)] = ""
    """The reason of a denial; the model reads it."""
    input: dict[str, Any] | None = None
    """Run the call with these arguments instead."""
    always: bool | Literal["everywhere"] = False
    """Calls that match the pattern of the request need no approval in this session any more; `everywhere`, for
    administrators: in any session, which is written into config.toml.
    """
    seq: Annotated[int, Meta(ge=0, le=2**53)] = 0
    """Of the question that is answered. Without it, the one that waits under this id."""


class StopView(Struct, frozen=True):
    stopped: bool
    """Whether there was a turn to stop."""


class RetryView(Struct, frozen=True):
    turn: int
    """The seq of the user entry that began the turn."""


class CoverageRow(Struct, frozen=True):
    seq: int
    type: str
    state: Literal["tail", "pinned", "compacted", "left_out", "rewound", "erased", "none"]
    by: int | None


class CoverageView(Struct, frozen=True):
    entries: list[CoverageRow]


class PromptView(Struct, frozen=True, omit_defaults=True):
    system: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    parameters: dict[str, Any] = {}
    """How a client wanted its answer; empty unless it said so."""


class CompactionView(Struct, frozen=True):
    summary: str
    first_kept: int
    covers: tuple[int, int]
    tokens_before: int
    tokens_after: int
    applied: bool


class ConversationList(Struct, frozen=True):
    conversations: list[Conversation]
    next: str | None
    total: int


class MessageList(Struct, frozen=True):
    messages: list[Record]
    next: str | None
    total: int


class Health(Struct, frozen=True):
    status: Literal["ok"]


class Liveness(Struct, frozen=True, omit_defaults=True):
    status: Literal["ok", "failing"]
    failing: list[str] = []
    """What in the background has failed for a minute: `outbox`, `expiry`, `channel telegram` …"""


def decode_body(body: bytes, kind: Any) -> Any:
    """As strict as the OpenAPI description; the error names the field."""
    try:
        return strict_json.decode(body, kind)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$")
        field = place.strip("`.")
        if what == _BLANK:
            what = "it is blank"
        raise UsageError(
            f"{field}: {what}" if field else what, hint="See /openapi.json for what is accepted."
        ) from error
    except msgspec.DecodeError as error:
        raise UsageError("the body is not JSON", hint="Send an object, in UTF-8.") from error


def image_block(uri: str) -> Block:
    """The type of a picture is read from its bytes, not from its label."""
    head, _, text = uri.partition(",")
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        data = b""
    kind = form_of(data)
    if kind not in PICTURE_TYPES or head not in [f"data:{one};base64" for one in PICTURE_TYPES]:
        hint = "Send data:image/png;base64,… with a PNG, JPEG, WebP or GIF."
        raise UsageError("an image cannot be read", hint=hint)
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": text}}


def content_of(body: ChatBody) -> Content:
    """Pictures first, then the words."""
    if not body.images:
        return body.message
    return [*map(image_block, body.images), {"type": "text", "text": body.message}]

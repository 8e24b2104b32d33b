"""Turnlog stores the conversations of LLM agents: durable, isolated, and within the model's context window."""

from typing import TYPE_CHECKING, Any

from .core.entries import (
    Approval,
    ApprovalAnswer,
    Assistant,
    Compaction,
    Entry,
    Erasure,
    Facts,
    Failed,
    Foreign,
    ModelChoice,
    Opened,
    Pin,
    Received,
    Rewind,
    Selected,
    Shortened,
    Status,
    Title,
    ToolResult,
    Undo,
    Unpin,
    User,
)
from .core.keys import Inbound, SessionById, SessionKey
from .errors import (
    Ambiguous,
    Busy,
    Conflict,
    ContentRefused,
    ContextOverflow,
    Corrupt,
    Denied,
    MissingExtra,
    NotAStore,
    NotFound,
    ProviderBusy,
    ProviderError,
    ProviderRefused,
    StoreError,
    StoreUnavailable,
    SummaryRefused,
    ToolLimit,
    TurnlogError,
    TurnStopped,
    UnsupportedParameter,
    UsageError,
)

if TYPE_CHECKING:
    from .access import (
        Access as Access,
        CompactionReport as CompactionReport,
        SessionHandle as SessionHandle,
    )
    from .core.compaction import Coverage as Coverage
    from .core.events import (
        ApprovalAnswered as ApprovalAnswered,
        ApprovalRequest as ApprovalRequest,
        CompactionEnd as CompactionEnd,
        CompactionStart as CompactionStart,
        Done as Done,
        ErrorEvent as ErrorEvent,
        Event as Event,
        GuardStage as GuardStage,
        Queued as Queued,
        Snapshot as Snapshot,
        Stopped as Stopped,
        TextDelta as TextDelta,
        ThinkingDelta as ThinkingDelta,
        ToolCall as ToolCall,
        ToolDone as ToolDone,
        UsageReport as UsageReport,
    )
    from .core.facts import Fact as Fact
    from .core.history import History as History
    from .core.principals import Principal as Principal
    from .core.prompt import Prompt as Prompt
    from .core.query import Hit as Hit, Page as Page, Query as Query
    from .core.session import Session as Session
    from .library import Turnlog as Turnlog
    from .sessions import Sessions as Sessions
    from .sessions.copying import copy as copy
    from .shapes import ShapedMessages as ShapedMessages
    from .stores import Lease as Lease, Store as Store, open_store as open_store
    from .sync import (
        SyncAccess as SyncAccess,
        SyncSessionHandle as SyncSessionHandle,
        SyncSessions as SyncSessions,
        SyncTurnlog as SyncTurnlog,
    )
    from .tools import tool as tool
    from .wiring import aconnect as aconnect, connect as connect, open as open

__version__ = "0.1.0"

_LAZY = {
    name: module
    for module, names in {
        "access": "Access CompactionReport SessionHandle",
        "core.compaction": "Coverage",
        "core.events": "ApprovalAnswered ApprovalRequest CompactionEnd CompactionStart Done ErrorEvent Event "
        "GuardStage Queued Snapshot Stopped TextDelta ThinkingDelta ToolCall ToolDone UsageReport",
        "core.facts": "Fact",
        "core.history": "History",
        "core.principals": "Principal",
        "core.prompt": "Prompt",
        "core.query": "Hit Page Query",
        "core.session": "Session",
        "library": "Turnlog",
        "sessions": "Sessions",
        "sessions.copying": "copy",
        "stores": "Lease Store open_store",
        "sync": "SyncAccess SyncSessionHandle SyncSessions SyncTurnlog",
        "shapes": "ShapedMessages",
        "tools": "tool",
        "wiring": "aconnect connect open",
    }.items()
    for name in names.split()
}
"""Name → the module that has it."""

__all__ = [
    "Access",
    "Ambiguous",
    "Approval",
    "ApprovalAnswer",
    "ApprovalAnswered",
    "ApprovalRequest",
    "Assistant",
    "Busy",
    "Compaction",
    "CompactionEnd",
    "CompactionReport",
    "CompactionStart",
    "Conflict",
    "ContentRefused",
    "ContextOverflow",
    "Corrupt",
    "Coverage",
    "Denied",
    "Done",
    "Entry",
    "Erasure",
    "ErrorEvent",
    "Event",
    "Fact",
    "Facts",
    "Failed",
    "Foreign",
    "GuardStage",
    "History",
    "Hit",
    "Inbound",
    "Lease",
    "MissingExtra",
    "ModelChoice",
    "NotAStore",
    "NotFound",
    "Opened",
    "Page",
    "Pin",
    "Principal",
    "Prompt",
    "ProviderBusy",
    "ProviderError",
    "ProviderRefused",
    "Query",
    "Queued",
    "Received",
    "Rewind",
    "Selected",
    "Session",
    "SessionById",
    "SessionHandle",
    "SessionKey",
    "Sessions",
    "ShapedMessages",
    "Shortened",
    "Snapshot",
    "Status",
    "Stopped",
    "Store",
    "StoreError",
    "StoreUnavailable",
    "SummaryRefused",
    "SyncAccess",
    "SyncSessionHandle",
    "SyncSessions",
    "SyncTurnlog",
    "TextDelta",
    "ThinkingDelta",
    "Title",
    "ToolCall",
    "ToolDone",
    "ToolLimit",
    "ToolResult",
    "TurnStopped",
    "Turnlog",
    "TurnlogError",
    "Undo",
    "Unpin",
    "UnsupportedParameter",
    "UsageError",
    "UsageReport",
    "User",
    "__version__",
    "aconnect",
    "connect",
    "copy",
    "open",
    "open_store",
    "tool",
]


def __getattr__(name: str) -> Any:
    """Imports what needs asyncio or a database at its first use, so that `import turnlog` stays fast."""
    if name in _LAZY:
        from importlib import import_module

        value = getattr(import_module(f".{_LAZY[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, so that they are listed before their first use too."""
    return sorted(__all__)

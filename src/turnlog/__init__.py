"""Turnlog keeps conversations between people and LLM agents: durable, isolated, always sendable, never forgotten."""

from typing import TYPE_CHECKING, Any

from .core.entries import (
    Assistant,
    Compaction,
    Entry,
    Failed,
    Foreign,
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
from .core.keys import Inbound, SessionKey
from .errors import (
    Ambiguous,
    Busy,
    Conflict,
    ContextOverflow,
    Corrupt,
    Denied,
    NotFound,
    ProviderBusy,
    ProviderError,
    ProviderRefused,
    StoreError,
    StoreUnavailable,
    ToolLimit,
    TurnlogError,
    UsageError,
)

if TYPE_CHECKING:
    from .copying import copy as copy
    from .core.principals import Principal as Principal
    from .core.query import Hit as Hit, Page as Page, Query as Query
    from .core.session import Session as Session
    from .library import Turnlog as Turnlog
    from .sessions import Sessions as Sessions
    from .stores import Store as Store, open_store as open_store
    from .tools import tool as tool
    from .wiring import open as open

__version__ = "0.1.0"

_LAZY = {
    "Hit": "core.query",
    "Page": "core.query",
    "Query": "core.query",
    "Session": "core.session",
    "copy": "copying",
    "Turnlog": "library",
    "tool": "tools",
    "open": "wiring",
    "open_store": "stores",
    "Store": "stores",
    "Sessions": "sessions",
    "Principal": "core.principals",
}

__all__ = [
    "Ambiguous",
    "Assistant",
    "Busy",
    "Compaction",
    "Conflict",
    "ContextOverflow",
    "Corrupt",
    "Denied",
    "Entry",
    "Failed",
    "Foreign",
    "Hit",
    "Inbound",
    "NotFound",
    "Opened",
    "Page",
    "Pin",
    "Principal",
    "ProviderBusy",
    "ProviderError",
    "ProviderRefused",
    "Query",
    "Received",
    "Rewind",
    "Selected",
    "Session",
    "SessionKey",
    "Sessions",
    "Shortened",
    "Status",
    "Store",
    "StoreError",
    "StoreUnavailable",
    "Title",
    "ToolLimit",
    "ToolResult",
    "Turnlog",
    "TurnlogError",
    "Undo",
    "Unpin",
    "UsageError",
    "User",
    "__version__",
    "copy",
    "open",
    "open_store",
    "tool",
]


def __getattr__(name: str) -> Any:
    """What needs asyncio or a database is imported when it is first used, so that `import turnlog` stays light."""
    if name in _LAZY:
        from importlib import import_module

        value = getattr(import_module(f".{_LAZY[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

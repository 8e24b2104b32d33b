"""Every error Turnlog raises, cut by what the caller should do about it.

    TurnlogError                  has .hint: one sentence on what to do
    ├── UsageError                fix the call
    ├── Denied                    not yours
    ├── NotFound                  no such session
    ├── Conflict                  read again and retry
    │   └── Ambiguous             name it more exactly; .matches lists the candidates
    ├── Busy                      a turn is running, or the queue is full
    ├── ContextOverflow           does not fit even after the whole ladder
    ├── ToolLimit                 a turn used all its rounds of tool calls
    ├── ProviderError             the model's side failed
    │   ├── ProviderBusy          try again after .retry_after_s
    │   └── ProviderRefused       the request itself was refused
    └── StoreError                the storage failed
        ├── StoreUnavailable      disk full, read-only, locked, gone: nothing was written
        └── Corrupt               .path and .line say where; entries .after and .before it are readable

The first line of a class's docstring is its default message. Foreign exceptions stop at the adapter
that met them and are mapped with `raise … from`.
"""

from collections.abc import Sequence


class TurnlogError(Exception):
    """Something went wrong in Turnlog."""

    hint: str = ""

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").splitlines()[0])
        if hint:
            self.hint = hint


class UsageError(TurnlogError):
    """The call cannot be carried out as it is."""

    hint = "Correct the call; nothing was changed."


class Denied(TurnlogError):
    """This is not yours to see or to change."""

    hint = "Use a token with the scope this needs."


class NotFound(TurnlogError):
    """There is no such session."""

    hint = "List the sessions to see which exist; a deleted one does not come back by itself."


class Conflict(TurnlogError):
    """Somebody else wrote in the meantime."""

    hint = "Read again and retry."


class Ambiguous(Conflict):
    """More than one session matches."""

    hint = "Give more of the name."

    def __init__(self, message: str = "", *, hint: str = "", matches: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.matches = tuple(matches)


class Busy(TurnlogError):
    """A turn is running in this session."""

    hint = "Wait for it to end, or stop it."

    def __init__(self, message: str = "", *, hint: str = "", holder: str = "") -> None:
        super().__init__(message, hint=hint)
        self.holder = holder


class ContextOverflow(TurnlogError):
    """The prompt does not fit the model's window, even after shortening, compaction and rescue."""

    hint = "Send a shorter message, unpin something, or use a model with a larger window."

    def __init__(self, message: str = "", *, hint: str = "", tokens: int = 0, window: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.tokens = tokens
        self.window = window


class ToolLimit(TurnlogError):
    """The turn used all its rounds of tool calls and gave no answer."""

    hint = "Ask for a smaller step."


class ProviderError(TurnlogError):
    """The model's provider failed."""

    hint = "Try again; what was said is stored."


class ProviderBusy(ProviderError):
    """The model's provider is overloaded or limits the rate."""

    def __init__(self, message: str = "", *, hint: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class ProviderRefused(ProviderError):
    """The model's provider refused the request."""

    hint = "Check the model's name, the key and the settings."


class StoreError(TurnlogError):
    """The store failed."""


class StoreUnavailable(StoreError):
    """The store cannot be written or reached; nothing was changed."""

    hint = "Check disk space, permissions and the store's address, then retry."


class Corrupt(StoreError):
    """A stored entry is damaged.

    `after` and `before` are the seqs of the nearest readable entries around the damage (0 and None at the
    ends), so that a caller can go on with `read(before=after + 1)` and `read(after=before - 1)`.
    """

    hint = "Nothing was overwritten. The entries before and after it are readable; restore the line from a backup."

    def __init__(
        self,
        message: str = "",
        *,
        hint: str = "",
        path: str = "",
        line: int = 0,
        after: int = 0,
        before: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.line = line
        self.after = after
        self.before = before

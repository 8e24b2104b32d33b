"""Every error that Turnlog raises, grouped by what the caller should do about it.

    TurnlogError                  has .hint, which says what to do
    ├── UsageError                fix the call
    │   ├── MissingExtra          install the extra that .extra names
    │   └── UnsupportedParameter  the model cannot follow the parameter that .name names
    ├── Denied                    the principal may not do this
    ├── NotFound                  no such session
    ├── Conflict                  read again and retry
    │   └── Ambiguous             name it more exactly; .matches lists the candidates
    ├── Busy                      a turn is running, or the queue is full
    ├── ContextOverflow           the prompt does not fit, even after every step of the guard
    ├── ToolLimit                 a turn used all its rounds of tool calls
    ├── TurnStopped               somebody stopped the turn; .text is its text so far
    ├── ProviderError             the model's provider failed
    │   ├── ProviderBusy          try again after .retry_after_s
    │   ├── ProviderRefused       the request itself was refused
    │   │   └── ContentRefused    because of its content
    │   └── SummaryRefused        the model's summary was not good enough
    └── StoreError                the storage failed
        ├── StoreUnavailable      disk full, read-only, locked, gone: nothing was written
        ├── NotAStore             something else is at the store's address; also a UsageError
        └── Corrupt               .path and .line say where; entries .after and .before it are readable

The first line of a class's docstring is its default message. The module that catches an exception of another library
maps it with `raise … from`.
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


class MissingExtra(UsageError):
    """A package is missing that an extra of Turnlog installs."""

    def __init__(self, message: str = "", *, hint: str = "", extra: str = "all") -> None:
        super().__init__(message, hint=hint or f'Install it: pip install "turnlog[{extra}]"')
        self.extra = extra


class UnsupportedParameter(UsageError):
    """The model cannot do what a parameter asks for."""

    def __init__(self, message: str = "", *, hint: str = "", name: str = "") -> None:
        super().__init__(message, hint=hint)
        self.name = name


class Denied(TurnlogError):
    """You may not see or change this."""

    hint = "Use a token, or a principal, with the scope that this needs."


class NotFound(TurnlogError):
    """There is no such session."""

    hint = "List the sessions to see which exist; a deleted session cannot be restored."


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

    hint = "Ask for a smaller task."


class TurnStopped(TurnlogError):
    """The turn was stopped before its answer was complete."""

    hint = "Its text so far is stored. Send another message to continue."

    def __init__(self, message: str = "", *, hint: str = "", text: str = "") -> None:
        super().__init__(message, hint=hint)
        self.text = text


class ProviderError(TurnlogError):
    """The model's provider failed."""

    hint = "Try again; your message is stored."
    status: int = 0
    """The HTTP status that the model's API answered with; 0 if there is none."""


class ProviderBusy(ProviderError):
    """The model's provider is overloaded or limits the rate."""

    def __init__(self, message: str = "", *, hint: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class ProviderRefused(ProviderError):
    """The model's provider refused the request."""

    hint = "Check the model's name, the key and the settings."


class SummaryRefused(ProviderError):
    """The model's summary was not good enough to replace what it covers."""

    hint = "Nothing was changed. Try again, or name another summary_model."


class ContentRefused(ProviderRefused):
    """The model refused the content."""

    hint = "It is left out of the prompt from now on. Retry it, rephrase it, or continue without it."


class StoreError(TurnlogError):
    """The store failed."""

    hint = "Check the disk or the database, then try again."


class StoreUnavailable(StoreError):
    """The store cannot be written or reached; nothing was changed."""

    hint = "Check disk space, permissions and the store's address, then retry."


class NotAStore(StoreError, UsageError):
    """Something other than a Turnlog store is at this address."""

    hint = "Choose another path. Nothing was changed."


class Corrupt(StoreError):
    """A stored entry is damaged.

    `after` and `before` are the seqs of the nearest readable entries around the damage (0 and None at the
    ends), so that a caller can continue with `read(before=after + 1)` and `read(after=before - 1)`.
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

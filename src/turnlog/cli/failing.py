"""What goes wrong, as an exit code and a message: 0 ok, 1 turn failed, 2 usage, 3 store, 4 provider."""

from ..core.events import ErrorEvent, code_of
from ..errors import Conflict, Denied, NotFound, ProviderError, StoreError, TurnlogError, UsageError
from .messages import Words
from .output import warn, warn_json
from .telling import notes_of_error

TURN_FAILED, USAGE, STORE, PROVIDER = 1, 2, 3, 4

_BY_ERROR: tuple[tuple[type[TurnlogError], int], ...] = (
    (StoreError, STORE),
    (ProviderError, PROVIDER),
    (UsageError, USAGE),
    (NotFound, USAGE),
    (Conflict, USAGE),
    (Denied, USAGE),
)
_BY_CODE = {"store": STORE, "provider": PROVIDER, "usage": USAGE}
"""Of a turn that failed."""


def exit_code(error: TurnlogError) -> int:
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), TURN_FAILED)


def exit_code_of_turn(event: ErrorEvent) -> int:
    return _BY_CODE.get(event.code, TURN_FAILED)


def tell(error: str, code: str, hint: str, *, as_json: bool, words: Words) -> None:
    """On stderr, so that stdout holds answers only."""
    if as_json:
        warn_json({"error": error, "code": code, "hint": hint})
        return
    for note in notes_of_error(error, hint, words):
        warn(note.text)


def tell_error(error: TurnlogError, *, as_json: bool, words: Words) -> None:
    code = "not_found" if isinstance(error, NotFound) else code_of(error)
    tell(str(error), code, error.hint, as_json=as_json, words=words)

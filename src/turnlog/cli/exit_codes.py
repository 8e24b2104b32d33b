"""Errors as exit codes and messages: 0 ok, 1 turn failed, 2 usage, 3 store, 4 provider."""

from ..core.events import ErrorEvent, code_of
from ..errors import Conflict, Denied, NotFound, ProviderError, StoreError, TurnlogError, UsageError
from ..texts import Texts
from .chat.notes import notes_of_error
from .output import to_json, warn

TURN_FAILED, USAGE, STORE, PROVIDER = 1, 2, 3, 4

_BY_ERROR: tuple[tuple[type[TurnlogError], int], ...] = (
    (StoreError, STORE),
    (ProviderError, PROVIDER),
    (UsageError, USAGE),
    (NotFound, USAGE),
    (Conflict, USAGE),
    (Denied, USAGE),
)
_BY_CODE = {"store": STORE, "provider": PROVIDER, "refused_content": PROVIDER, "usage": USAGE}
"""By the code of a failed turn."""


def exit_code(error: TurnlogError) -> int:
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), TURN_FAILED)


def exit_code_of_turn(event: ErrorEvent) -> int:
    return _BY_CODE.get(event.code, TURN_FAILED)


def tell(error: str, code: str, hint: str, *, as_json: bool, words: Texts) -> None:
    """Prints to stderr, so that stdout holds answers only."""
    if as_json:
        warn(to_json({"error": error, "code": code, "hint": hint}))
        return
    for note in notes_of_error(error, hint, words):
        warn(note.text)


def tell_error(error: TurnlogError, *, as_json: bool, words: Texts) -> None:
    code = "not_found" if isinstance(error, NotFound) else code_of(error)
    tell(str(error), code, error.hint, as_json=as_json, words=words)

"""Errors as problem documents (RFC 9457): a code for programs, a hint for people, and no internal details."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import msgspec
from litestar.exceptions import HTTPException, ValidationException
from msgspec import Struct
from msgspec.structs import replace

from ... import errors
from ...core.content import encodable
from ...core.entries import REFUSED_CONTENT
from ...errors import TurnlogError, UsageError
from ...texts import Texts

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 1

_TITLES = {
    400: "Bad request",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Took too long",
    409: "Conflict",
    413: "Too large",
    429: "Too many requests",
    500: "Internal error",
    502: "The model's provider failed",
    503: "Not available",
}

_OURS: tuple[tuple[type[TurnlogError], int, str], ...] = (
    (UsageError, 400, "usage"),
    (errors.Denied, 403, "denied"),
    (errors.NotFound, 404, "not_found"),
    (errors.Conflict, 409, "conflict"),
    (errors.Busy, 409, "busy"),
    (errors.ContextOverflow, 413, "overflow"),
    (errors.ProviderBusy, 503, "provider"),
    (errors.ContentRefused, 502, REFUSED_CONTENT),
    (errors.ProviderError, 502, "provider"),
    (errors.StoreUnavailable, 503, "store"),
    (TurnlogError, 500, "store"),
)
_CODES = {400: "usage", 401: "unauthorized", 404: "not_found", 405: "method", 413: "too_large"}


class Problem(Struct, frozen=True, kw_only=True):
    """An answer of media type application/problem+json."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str
    error: str
    """The same as `detail`."""


class Refusal(TurnlogError):
    """The request was refused."""

    hint = "Correct the request."

    def __init__(
        self,
        message: str = "",
        *,
        hint: str = "",
        status: int = 400,
        code: str = "usage",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.code = code
        self.headers = dict(headers or {})


def later(what: str, hint: str, *, status: int, code: str, after_s: int = RETRY_AFTER_S) -> Refusal:
    """Refuses a request that may be sent again after this many seconds."""
    return Refusal(what, hint=hint, status=status, code=code, headers={"Retry-After": str(after_s)})


def unauthorized(message: str, hint: str) -> Refusal:
    return Refusal(
        message, hint=hint, status=401, code="unauthorized", headers={"WWW-Authenticate": 'Bearer realm="turnlog"'}
    )


@contextmanager
def state_conflicts() -> Generator[None]:
    """Turns a UsageError into a Conflict: the request is valid, but the session is not in a state for it."""
    try:
        yield
    except UsageError as error:
        raise errors.Conflict(str(error), hint=error.hint) from error


def of(error: Exception) -> Problem:
    match error:
        case Refusal():
            return make(error.status, error.code, str(error), error.hint)
        case TurnlogError():
            status, code = next((status, code) for kind, status, code in _OURS if isinstance(error, kind))
            return make(status, code, str(error), error.hint)
        case HTTPException():
            status = error.status_code
            return make(status, _CODES.get(status, "http"), _detail(error), "See /openapi.json for what is accepted.")
        case _:
            return make(
                500, "internal", "the server failed", "This is a defect in Turnlog. Your message is stored; try again."
            )


def make(status: int, code: str, detail: str, hint: str) -> Problem:
    return Problem(
        type=f"urn:turnlog:problem:{code}",
        title=_TITLES.get(status, "Error"),
        status=status,
        detail=detail,
        code=code,
        hint=hint,
        error=detail,
    )


def for_people(problem: Problem, t: Texts) -> Problem:
    """The same in the language of the page."""
    detail = t.refusal(problem.detail)
    return replace(problem, detail=detail, hint=t.refusal(problem.hint), error=detail)


def _detail(error: HTTPException) -> str:
    """The field that is wrong, if the framework names it; its own sentence would repeat the URL with its query."""
    if isinstance(error, ValidationException) and isinstance(error.extra, list):
        return "; ".join(map(_finding, cast("list[dict[str, Any]]", error.extra)))
    return error.detail


def _finding(item: dict[str, Any]) -> str:
    key, message = item.get("key"), item.get("message")
    if message == repr(key):  # the framework's KeyError: it was not sent at all
        return "the body is missing" if key == "data" else f"{key} is missing"
    return f"{key}: {message}"


def headers_of(error: Exception) -> dict[str, str]:
    if isinstance(error, Refusal):
        return error.headers
    if isinstance(error, HTTPException):
        return dict(error.headers or {})
    retry = getattr(error, "retry_after_s", None)
    if isinstance(error, errors.StoreUnavailable | errors.ProviderBusy | errors.Busy):
        return {"Retry-After": str(max(1, round(retry or 1)))}
    return {}


def encode(problem: Problem) -> bytes:
    """A request that is refused may be quoted in the reason, with characters that cannot be sent back."""
    return msgspec.json.encode(encodable(msgspec.to_builtins(problem)))

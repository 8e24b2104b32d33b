"""Errors in the shapes of OpenAI and of Anthropic: which status, type and code each of ours becomes.

The hint is part of the message, because these shapes have no other place for it. The texts for a prompt that does not
fit are the vendors' own: clients recognise them. An upstream's 401 is never passed on: the client would throw its own
key away.
"""

from typing import Any, Literal, TypeAlias

import msgspec
from litestar.exceptions import HTTPException
from msgspec import Struct

from ... import errors as ours
from ...core.content import encodable
from ...errors import TurnlogError
from ..http import problems
from ..http.problems import Refusal

Family: TypeAlias = Literal["openai", "anthropic"]
RETRY_AFTER_S = 2
"""Sent with errors that a retry may overcome, if no better value is known."""


class InvalidField(ours.UsageError):
    """A field of the request cannot be used."""

    hint = "Correct the request; nothing was stored."

    def __init__(self, message: str = "", *, hint: str = "", param: str | None = None, code: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.param = param
        self.code = code


class Unknown(ours.NotFound):
    """There is no such model or message."""

    def __init__(self, message: str = "", *, hint: str = "", code: str = "not_found", param: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.param = param


def not_found(what: str, object_id: str, param: str | None = None) -> Unknown:
    """`what`: the name of its kind, such as `Previous response`."""
    text, code = f"{what} with id {object_id[:200]!r} not found.", what.lower().replace(" ", "_")
    hint = "It was deleted, not stored, or is another's."
    return Unknown(text, hint=hint, code=f"{code}_not_found", param=param)


class Told(Struct, frozen=True):
    """An error as both families tell it."""

    status: int
    type: str
    code: str | None = None
    param: str | None = None
    anthropic: str = "invalid_request_error"
    anthropic_status: int = 0
    """0: the same status."""
    passes: bool = False
    """The same request may be answered later."""


_INVALID = "invalid_request_error"
_OF_STATUS: dict[int, Told] = {
    400: Told(400, _INVALID),
    401: Told(401, "authentication_error", "invalid_api_key", anthropic="authentication_error"),
    403: Told(403, "permission_error", anthropic="permission_error"),
    404: Told(404, _INVALID, "not_found", anthropic="not_found_error"),
    405: Told(405, _INVALID, "method_not_allowed"),
    408: Told(408, _INVALID, "timeout", passes=True),
    409: Told(409, "conflict", "conflict", anthropic="rate_limit_error", anthropic_status=429, passes=True),
    413: Told(413, _INVALID, "request_too_large", anthropic="request_too_large"),
    415: Told(415, _INVALID, "unsupported_encoding"),
    426: Told(426, _INVALID, "upgrade_required"),
    429: Told(429, "rate_limit_error", "rate_limit_exceeded", anthropic="rate_limit_error", passes=True),
    503: Told(503, "server_error", "store_unavailable", anthropic="overloaded_error", passes=True),
}
_KEY_REUSED = Told(409, _INVALID, "idempotency_key_reused")
_DEFECT = Told(500, "server_error", "internal", anthropic="api_error", passes=True)
_AWAY = Told(
    503, "server_error", "upstream_unavailable", anthropic="overloaded_error", anthropic_status=529, passes=True
)
_LOCKED = Told(409, "conflict", "conversation_locked", anthropic="rate_limit_error", anthropic_status=429, passes=True)
_UPSTREAM = Told(502, "server_error", "upstream_error", anthropic="api_error")
_UPSTREAM_KEY = Told(502, "server_error", "upstream_auth", anthropic="api_error")
_KINDS: tuple[tuple[type[TurnlogError], Told], ...] = (
    (ours.ContextOverflow, Told(400, _INVALID, "context_length_exceeded", "messages")),
    (ours.Denied, _OF_STATUS[403]),
    (ours.NotFound, _OF_STATUS[404]),
    (ours.Conflict, _OF_STATUS[409]),
    (ours.Busy, _LOCKED),
    (ours.ContentRefused, Told(400, _INVALID, "content_policy_violation")),
    (ours.StoreUnavailable, _OF_STATUS[503]),
    (ours.UsageError, _OF_STATUS[400]),
)
AUTH_STATUSES = (401, 403)


def family_of(path: str, has_version: bool) -> Family:
    """`has_version`: whether the request has the header `anthropic-version`."""
    if path.startswith("/v1/messages"):
        return "anthropic"
    return "anthropic" if has_version and path.startswith("/v1/models") else "openai"


def told(error: Exception) -> Told:
    match error:
        case Refusal():
            return _KEY_REUSED if error.code == "idempotency" else _OF_STATUS.get(error.status, _DEFECT)
        case InvalidField():
            return Told(400, _INVALID, error.code, error.param)
        case ours.UnsupportedParameter():
            return Told(400, _INVALID, "unsupported_parameter", error.name)
        case Unknown():
            return Told(404, _INVALID, error.code, error.param, "not_found_error")
        case ours.ProviderBusy():
            return _OF_STATUS[429] if error.status == 429 else _AWAY
        case ours.ProviderError() if not isinstance(error, ours.ContentRefused):
            return _of_refusal(error)
        case TurnlogError():
            return next((made for kind, made in _KINDS if isinstance(error, kind)), _DEFECT)
        case HTTPException():
            return _OF_STATUS.get(error.status_code, _OF_STATUS[400] if error.status_code < 500 else _DEFECT)
        case _:
            return _DEFECT


def _of_refusal(error: ours.ProviderError) -> Told:
    if error.status == 404:
        return Told(404, _INVALID, "model_not_found", "model", "not_found_error")
    return _UPSTREAM_KEY if error.status in AUTH_STATUSES or "API key" in str(error) else _UPSTREAM


def message_of(error: Exception, family: Family) -> str:
    if isinstance(error, ours.ContextOverflow):
        return _overflow(error, family)
    problem = problems.of(error)
    detail = problem.detail.rstrip()
    return " ".join(
        part for part in (detail if detail.endswith((".", "!", "?")) else f"{detail}.", problem.hint) if part
    )


def _overflow(error: ours.ContextOverflow, family: Family) -> str:
    if family == "anthropic":
        return f"prompt is too long: {error.tokens} tokens > {error.window} maximum"
    return (
        f"This model's maximum context length is {error.window} tokens. However, your messages resulted in "
        f"{error.tokens} tokens. Please reduce the length of the messages."
    )


def body_of(error: Exception, family: Family, request_id: str) -> dict[str, Any]:
    made, message = told(error), message_of(error, family)
    if family == "anthropic":
        inner: dict[str, Any] = {"type": made.anthropic, "message": message}
        if isinstance(error, Unknown) and error.code == "thread_not_found":
            inner["details"] = {"error_code": error.code}
        return {"type": "error", "error": inner, "request_id": request_id}
    return {"error": {"message": message, "type": made.type, "param": made.param, "code": made.code}}


def status_of(error: Exception, family: Family) -> int:
    made = told(error)
    return made.anthropic_status or made.status if family == "anthropic" else made.status


def headers_of(error: Exception) -> dict[str, str]:
    """Without `x-should-retry` clients retry by the status alone, Claude Code even a 401, for three minutes."""
    made = told(error)
    found = {name.lower(): value for name, value in problems.headers_of(error).items()}
    if not made.passes:
        found["x-should-retry"] = "false"
    elif made.status in (409, 429, 503):
        found.setdefault("retry-after", str(RETRY_AFTER_S))
    return found


def answer_of(error: Exception, family: Family, request_id: str) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body as JSON)"""
    return status_of(error, family), headers_of(error), encode(body_of(error, family, request_id))


def encode(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # half a character
        return msgspec.json.encode(encodable(value))

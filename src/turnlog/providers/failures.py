"""What an SDK raised, in our words; what is missing before a call can be made.

The verdict on a refusal is `core.overflow`'s; here is only found out what the provider said. Whatever is not the
provider's word is either the line (busy: worth another try) or the request itself (refused: the same again fails
the same way).
"""

import json
import math
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

from ..core.overflow import BUSY_CODES, OVERFLOW_CODES, classify
from ..errors import ContextOverflow, ProviderBusy, ProviderRefused, TurnlogError, UsageError

MESSAGE_SHOWN_CHARS = 1_000
"""Of what the provider said. A proxy may answer with a whole page."""

RETRY_AFTER_MAX_S = 86_400.0
"""A day. Whoever asks for more has not understood the question, and no turn waits that long."""

AUTH_STATUSES = frozenset({401, 403})
AUTH_CODES = frozenset({"authentication_error", "permission_error", "invalid_api_key"})

_TRANSPORT = frozenset({"httpx", "httpx2", "httpcore", "httpcore2", "anyio", "h11", "h2"})
"""Packages whose exceptions mean that the line broke. SDKs let some of them through while a stream is being read."""


def check_installed(sdk: str) -> None:
    """Found, not imported: the import takes a second or two, and an answer to nothing may be all that is wanted."""
    if find_spec(sdk) is None:
        raise UsageError(f"the package {sdk!r} is not installed", hint=f"pip install turnlog[{sdk}]")


def load(sdk: str) -> Any:
    try:
        return import_module(sdk)
    except ImportError as error:
        raise UsageError(
            f"the package {sdk!r} cannot be imported: {error}", hint=f"pip install turnlog[{sdk}]"
        ) from error


def missing_key(variable: str) -> ProviderRefused:
    return ProviderRefused(f"there is no key: {variable} is not set", hint=f"Set {variable}, or give api_key.")


def cut_short() -> ProviderBusy:
    return ProviderBusy("the provider's answer broke off before its end")


def failure_of(error: Exception, sdk: Any, *, key: str) -> TurnlogError:
    """`sdk`: the module it came from; `key`: the variable that a hint on authentication names."""
    if isinstance(error, TurnlogError):
        return error
    if isinstance(error, sdk.APIConnectionError) or _is_transport(error):
        return ProviderBusy(f"the connection to the provider failed: {_cut(str(error)) or type(error).__name__}")
    if not isinstance(error, sdk.APIError):
        return ProviderRefused(f"the request could not be made: {_cut(str(error)) or type(error).__name__}")
    return _refusal(_status(error), getattr(error, "body", None), _headers(error), key)


def _is_transport(error: Exception) -> bool:
    # A stream that is not JSON, or not UTF-8, was cut or spoilt on its way.
    if isinstance(error, OSError | EOFError | json.JSONDecodeError | UnicodeDecodeError):
        return True
    return any(base.__module__.partition(".")[0] in _TRANSPORT for base in type(error).__mro__)


def _refusal(status: int | None, body: Any, headers: Mapping[str, str], key: str) -> TurnlogError:
    codes, text = _words(body)
    if status is None:
        status = next((int(code) for code in codes if code.isdigit() and 400 <= int(code) < 600), None)
    code = next((code for code in codes if code in OVERFLOW_CODES or code in BUSY_CODES), "")
    verdict = classify(status=status, code=code, text=text)
    message = " ".join(part for part in (_cut(text), f"(HTTP {status})" if status else "") if part)
    match verdict.kind:
        case "overflow":
            return ContextOverflow(message, tokens=verdict.tokens, window=verdict.window)
        case "busy":
            return ProviderBusy(message, retry_after_s=retry_after_s(headers))
        case _:
            is_auth = status in AUTH_STATUSES or not AUTH_CODES.isdisjoint(codes)
            return ProviderRefused(message, hint=f"Check the key in {key}, or api_key." if is_auth else "")


def _status(error: Exception) -> int | None:
    """An error that arrives within a stream carries the status of the stream, which was fine."""
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) and status >= 400 else None


def _headers(error: Exception) -> Mapping[str, str]:
    return getattr(getattr(error, "response", None), "headers", None) or {}


def _words(body: Any) -> tuple[list[str], str]:
    """(codes, text) of a body: {"error": {…}}, the inside of that, a string, or whatever a proxy made up."""
    if isinstance(body, Mapping):
        fields = cast("Mapping[str, Any]", body)
        inner = fields.get("error")
        if inner:
            return _words(inner)
        text = next((fields[name] for name in ("message", "detail") if isinstance(fields.get(name), str)), None)
        codes = [str(fields[name]) for name in ("code", "type", "status") if fields.get(name)]
        return codes, text if text is not None else _as_json(fields)
    return [], body if isinstance(body, str) else _as_json(body)


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str) if value else ""


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """From retry-after-ms, or Retry-After as seconds or as a date; None if neither is there or makes sense."""
    wait = _number(headers.get("retry-after-ms"))
    if wait is not None:
        wait /= 1000
    else:
        value = headers.get("retry-after")
        wait = _number(value)
        if wait is None and value:
            wait = _until(value)
    return None if wait is None else min(max(wait, 0.0), RETRY_AFTER_MAX_S)


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _until(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() - time.time()
    except (ValueError, OverflowError):
        return None


def _cut(text: str) -> str:
    text = text.strip()
    return text if len(text) <= MESSAGE_SHOWN_CHARS else f"{text[:MESSAGE_SHOWN_CHARS]} …"

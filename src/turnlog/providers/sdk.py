"""Maps exceptions of an SDK to Turnlog's errors, and checks what a call needs.

`core.overflow` decides what a refusal means; this module only extracts what the provider said. All other exceptions
mean either that the connection failed (busy: a retry may help) or that the request is wrong (refused: a retry fails the
same way).
"""

import asyncio
import json
import math
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from email.utils import parsedate_to_datetime
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

from ..core.overflow import BUSY_CODES, CONTENT_CODES, OVERFLOW_CODES, classify
from ..errors import ContentRefused, ContextOverflow, MissingExtra, ProviderBusy, ProviderRefused, TurnlogError
from .streaming import refused

CONNECT_TIMEOUT_S = 10.0
"""Distinguishes an address that does not answer from a model that thinks for minutes."""

MESSAGE_SHOWN_CHARS = 1_000
"""The length of a provider's message that is shown. A proxy may answer with a whole page."""

RETRY_AFTER_MAX_S = 86_400.0
"""A day. A longer time is not plausible, and no turn waits that long."""

AUTH_STATUSES = frozenset({401, 403})
AUTH_CODES = frozenset({"authentication_error", "permission_error", "invalid_api_key"})

_TRANSPORT = frozenset({"httpx", "httpx2", "httpcore", "httpcore2", "anyio", "h11", "h2"})
"""Packages whose exceptions mean that the connection broke. SDKs let some of them through while a stream is read."""


async def load(sdk: str) -> Any:
    """Imports in a thread: it takes seconds, and other turns and heartbeats must not wait for it."""
    try:
        return await asyncio.to_thread(import_module, sdk)
    except ImportError as error:
        raise MissingExtra(f"the package {sdk!r} cannot be imported: {error}", extra=sdk) from error


def check_installed(sdk: str) -> None:
    """Without importing it, because that takes a second or two."""
    if find_spec(sdk) is None:
        raise MissingExtra(f"the package {sdk!r} is not installed", extra=sdk)


def unchecked(request: dict[str, Any], *fields: str) -> dict[str, Any]:
    """The same request; these lists reach the API as they are.

    The SDKs walk through every value of an argument by its declared type, which takes longer than everything else that
    is done for a long history. They merge `extra_body` into the body in place, so the bytes are the same.
    """
    given = {field: request[field] for field in fields if field in request}
    return {**request, **dict.fromkeys(given, ()), "extra_body": given}


def missing_key(variable: str) -> ProviderRefused:
    return ProviderRefused(f"there is no API key: {variable} is not set", hint=f"Set {variable}, or give api_key.")


class SdkClient:
    """The client of one SDK, made for the first call. `key`: the variable that a hint on authentication names."""

    def __init__(self, sdk: str, kind: str, *, key: str, timeout_s: float, **options: Any) -> None:
        check_installed(sdk)
        self._sdk, self._kind, self._key = sdk, kind, key
        self._timeout_s = timeout_s
        self._options = options
        self._module: Any = None
        self._client: Any = None

    async def events(self, create: Callable[[Any], Any]) -> AsyncGenerator[dict[str, Any], None]:
        """What the API streams in answer to the request that `create` makes with the client, as plain values."""
        sdk = self._module = self._module or await load(self._sdk)
        if self._client is None:
            timeout = sdk.Timeout(self._timeout_s, connect=min(CONNECT_TIMEOUT_S, self._timeout_s))
            # No retries: the runner retries; retries here would multiply its attempts.
            self._client = getattr(sdk, self._kind)(**self._options, max_retries=0, timeout=timeout)
        try:
            async with await create(self._client) as events:
                async for event in events:
                    yield event.to_dict(mode="json", warnings=False)
        except Exception as error:
            raise failure_of(error, sdk, key=self._key) from error

    async def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()


def failure_of(error: Exception, sdk: Any, *, key: str) -> TurnlogError:
    """`sdk`: the module of the exception; `key`: the variable that a hint on authentication names."""
    if isinstance(error, TurnlogError):
        return error
    if isinstance(error, sdk.APIConnectionError) or _is_transport(error):
        return ProviderBusy(f"the connection to the provider failed: {_cut(str(error)) or type(error).__name__}")
    if not isinstance(error, sdk.APIError):
        return ProviderRefused(f"the request could not be made: {_cut(str(error)) or type(error).__name__}")
    headers: Mapping[str, str] = getattr(getattr(error, "response", None), "headers", None) or {}
    return _refusal(_status(error), getattr(error, "body", None), headers, key)


def refusal_in(error: Exception) -> TurnlogError | None:
    """What an exception of any SDK says about the size or the content of a request; None if it is about neither."""
    if not isinstance(getattr(error, "status_code", None), int):
        return None
    found = _refusal(_status(error), getattr(error, "body", None) or str(error), {}, "")
    return found if isinstance(found, ContextOverflow | ContentRefused) else None


def _is_transport(error: Exception) -> bool:
    # A stream that is not JSON, or not UTF-8, was cut or damaged in transit.
    if isinstance(error, OSError | EOFError | json.JSONDecodeError | UnicodeDecodeError):
        return True
    return any(base.__module__.partition(".")[0] in _TRANSPORT for base in type(error).__mro__)


def _refusal(status: int | None, body: Any, headers: Mapping[str, str], key: str) -> TurnlogError:
    codes, text, param = _words(body)
    if status is None:
        status = next((int(code) for code in codes if code.isdigit() and 400 <= int(code) < 600), None)
    code = next((code for code in codes if code in _TELLING), "")
    verdict = classify(status=status, code=code, text=text, param=param)
    message = " ".join(part for part in (_cut(text), f"(HTTP {status})" if status else "") if part)
    is_auth = status in AUTH_STATUSES or not AUTH_CODES.isdisjoint(codes)
    hint = f"Check the key in {key}, or api_key." if is_auth else ""
    return refused(verdict, message, retry_after_s=retry_after_s(headers), hint=hint, status=status)


def _status(error: Exception) -> int | None:
    """The status; None for an error inside a stream, which carries the status of the stream itself."""
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) and status >= 400 else None


_TELLING = OVERFLOW_CODES | BUSY_CODES | CONTENT_CODES
"""Codes that decide by themselves what a refusal means."""


def _words(body: Any) -> tuple[list[str], str, str]:
    """(codes, text, param) of a body: {"error": {…}}, the inside of that, a string, or whatever a proxy made up."""
    if isinstance(body, Mapping):
        fields = cast("Mapping[str, Any]", body)
        inner = fields.get("error")
        if inner:
            return _words(inner)
        text = next((fields[name] for name in ("message", "detail") if isinstance(fields.get(name), str)), None)
        codes = [str(fields[name]) for name in ("code", "type", "status") if fields.get(name)]
        cause, param = fields.get("innererror"), fields.get("param")
        if isinstance(cause, Mapping):  # Azure names the policy here
            codes += [str(code) for code in [cast("Mapping[str, Any]", cause).get("code")] if code]
        return codes, text if text is not None else _as_json(fields), param if isinstance(param, str) else ""
    return [], body if isinstance(body, str) else _as_json(body), ""


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str) if value else ""


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The seconds from retry-after-ms, or from Retry-After as seconds or as a date; None if neither is usable."""
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

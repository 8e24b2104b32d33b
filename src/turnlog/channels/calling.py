"""Calls to a platform over HTTP: one client a channel, answers as JSON, and every failure as one of two errors.

What the platform can take later is Unsent, what it never will is Rejected. No message of these errors holds an
address: some platforms have their token in it.
"""

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from . import Rejected, Unsent, table

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 20.0
GONE = (400, 403, 404, 410, 413)
"""Statuses that will be the same next time. A wrong token (401) is not among them: settings can be corrected."""


class Caller:
    def __init__(self, base: str, *, headers: Mapping[str, str] | None = None, transport: Any = None) -> None:
        try:
            import httpx
        except ModuleNotFoundError as error:
            raise UsageError("channels need httpx", hint="Install turnlog[channels].") from error
        # At INFO it writes every address it calls, and with it Telegram's token.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        self.base = base.rstrip("/")
        self._client = httpx.AsyncClient(
            headers=dict(headers or {}), transport=transport, timeout=TIMEOUT_S, follow_redirects=False
        )

    async def call(
        self,
        path: str,
        payload: Any = None,
        *,
        content: bytes | None = None,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        gone: Collection[int] = GONE,
        told: Collection[int] = (),
    ) -> dict[str, Any]:
        """The answer's JSON object; {} if it has none. `told`: statuses whose object says more, for the caller."""
        import httpx

        body: dict[str, Any] = {"content": content} if content is not None else {}
        if payload is not None:
            body = {"json": payload}
        try:
            answer = await self._client.request(
                method, f"{self.base}{path}", headers=dict(headers or {}), timeout=timeout_s, **body
            )
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise Unsent(f"the platform cannot be reached ({type(error).__name__})") from error
        found = _json_of(answer)
        if answer.status_code >= 300 and not (found and answer.status_code in told):
            raise _failure(answer, found, gone)
        return found

    async def close(self) -> None:
        await self._client.aclose()


def _json_of(answer: "httpx.Response") -> dict[str, Any]:
    try:
        return table(answer.json())
    except ValueError:
        return {}


def _failure(answer: "httpx.Response", found: Mapping[str, Any], gone: Collection[int]) -> Unsent:
    status = answer.status_code
    said = found.get("description") or found.get("message") or found.get("msg") or found.get("error") or ""
    what = f"the platform answered {status}{f': {said}' if said else ''}"[:300]
    if status in gone:
        return Rejected(what)
    asked = table(found.get("parameters")).get("retry_after") or found.get("retry_after")
    return Unsent(what, retry_after_s=seconds(asked or answer.headers.get("retry-after")))


def seconds(value: Any) -> float | None:
    try:
        return min(max(float(value), 0.0), 3600.0)
    except (TypeError, ValueError):
        return None

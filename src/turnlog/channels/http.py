"""Channels whose platform is called over HTTP: one client for each, JSON responses, and two errors.

Unsent: the platform may take the message later. Rejected: it never will. Neither names the address that was called,
for some platforms have their token in it.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..errors import MissingExtra
from . import Address, Arrival, Rejected, Take, Unsent
from .requests import table

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 20.0
WAIT_MAX_S = 3600.0
"""The longest pause that a platform can ask for."""
GONE = (400, 403, 404, 410, 413)
"""Statuses that another attempt would not change. Not 401: the administrator can correct a wrong token."""
NAMES_MAX = 10_000
"""People whose names are cached."""


class Caller:
    def __init__(self, base: str, *, headers: Mapping[str, str] | None = None, transport: Any = None) -> None:
        try:
            import httpx
        except ModuleNotFoundError as error:
            raise MissingExtra("channels need the package httpx", extra="channels") from error
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
        """The JSON object of the response; {} if it has none. `told`: error statuses whose object the caller reads."""
        import httpx

        body: dict[str, Any] = {"content": content} if content is not None else {}
        if payload is not None:
            body = {"json": payload}
        try:
            answer = await self._client.request(
                method, f"{self.base}{path}", headers=dict(headers or {}), timeout=timeout_s, **body
            )
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:  # or a token is not ASCII
            raise Unsent(f"the platform cannot be reached ({type(error).__name__})") from error
        found = _json_of(answer)
        if answer.status_code >= 300 and not (found and answer.status_code in told):
            raise _failure(answer, found, gone)
        return found

    async def close(self) -> None:
        await self._client.aclose()


class HttpChannel:
    """What the channels of this package have in common; a platform that can do more has methods of its own."""

    def __init__(self, account: str | None, caller: Caller) -> None:
        self._account = account
        self._caller = caller
        self._names: dict[str, str] = {}

    async def complete(self, arrival: Arrival) -> Arrival:
        return arrival

    async def listen(self, take: Take) -> None:
        return

    async def show_typing(self, address: Address) -> None:
        return

    async def close(self) -> None:
        await self._caller.close()

    async def _with_name(self, arrival: Arrival, ask: Callable[[str], Awaitable[str]]) -> Arrival:
        """Asks the platform once for the name of each sender."""
        user = arrival.inbound.sender_id or ""
        if user not in self._names:
            name = await ask(user)
            if len(self._names) >= NAMES_MAX:
                self._names.clear()
            self._names[user] = name
        return replace(arrival, sender_name=self._names[user])


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
    """A pause that a platform asks for, within an hour; None if it is not a number."""
    try:
        asked = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if math.isnan(asked) else min(max(asked, 0.0), WAIT_MAX_S)

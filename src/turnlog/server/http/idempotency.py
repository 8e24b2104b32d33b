"""`Idempotency-Key`: the same request again gets the first answer; the same key with another request is a conflict.

A chat message is claimed together with the id of its session, before either exists; the delivery id of the message does
the rest, so a crash at any point leads to one message and never two. Of a call for a client, only session and turn are
kept, because its answer is in the log. Other answers are short, and are kept whole.
"""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from ...stores import Ledger, facts
from ..service import AnyRequest, service_of, token_of
from .problems import Refusal, later

ANSWERS = "idempotency"
"""The ledger's space."""
TTL_S = 7 * 24 * 3600.0
"""As long as delivery ids are remembered."""
UNDER_WAY_TTL_S = 120.0
"""A request whose process died before its answer was kept may be repeated after this."""
KEY_MAX_CHARS = 200
IDEMPOTENCY_KEY = b"idempotency-key"
T = TypeVar("T", bound=Struct)


class Claim(Struct, frozen=True):
    """A chat message that came with a key."""

    session_id: str
    delivery: str


class StoredRequest(Struct, frozen=True, omit_defaults=True):
    """The fact under a key: a fingerprint of the request, and its session or its answer."""

    print: str
    session: str | None = None
    turn: int | None = None
    """With the session: a call for a client."""
    answer: dict[str, Any] | None = None


def key_of(request: AnyRequest) -> str | None:
    found = next((value for name, value in request.scope["headers"] if name == IDEMPOTENCY_KEY), None)
    key = None if found is None else found.decode("latin-1")
    if key is not None and not 0 < len(key) <= KEY_MAX_CHARS:
        raise Refusal(
            f"an Idempotency-Key has 1 to {KEY_MAX_CHARS} characters", hint="Use a random id, such as a UUID."
        )
    return key


async def claim(request: AnyRequest, session_id: str) -> Claim | None:
    """`session_id`: the one to use if this is the first request. None where there is no key."""
    key = key_of(request)
    if key is None:
        return None
    print_, place = await _fingerprint(request), _place(request, key)
    mine = facts.write(StoredRequest(print_, session_id))
    found = _kept(place, await _ledger(request).put_if_absent(ANSWERS, place, mine, ttl_s=TTL_S) or mine)
    if found.print != print_ or found.session is None:
        raise _other_body()
    delivery = hashlib.sha256(f"{place}|{found.session}".encode()).hexdigest()
    return Claim(found.session, f"idempotency-{delivery}")


class HeldKey:
    """A key that this request holds or held before. `first`: what the first request with it left."""

    def __init__(self, ledger: Ledger, place: str, print_: str, held: Any, first: StoredRequest | None) -> None:
        self.first = first
        self._ledger = ledger
        self._place = place
        self._print = print_
        self._held = held

    @property
    def made(self) -> tuple[str, int] | None:
        """(session, turn) of the first request, if it was a call for a client."""
        first = self.first
        return (first.session, first.turn) if first and first.session is not None and first.turn is not None else None

    async def keep(
        self, *, session: str | None = None, turn: int | None = None, answer: dict[str, Any] | None = None
    ) -> None:
        kept = facts.write(StoredRequest(self._print, session, turn, answer))
        await self._ledger.cas(ANSWERS, self._place, self._held, kept, ttl_s=TTL_S)

    async def drop(self) -> None:
        """The request failed before its words were stored, so it may be tried again."""
        if self.first is None:
            await self._ledger.cas(ANSWERS, self._place, self._held, None)


async def _hold(request: AnyRequest, *, secret: bool = False) -> HeldKey | None:
    """None where there is no key."""
    key = key_of(request)
    if key is None:
        return None
    ledger, place = _ledger(request), _place(request, key)
    print_ = await _fingerprint(request, key if secret else "")
    mine = facts.write(StoredRequest(print_))
    found = await ledger.put_if_absent(ANSWERS, place, mine, ttl_s=UNDER_WAY_TTL_S)
    if found is None:
        return HeldKey(ledger, place, print_, mine, None)
    first = _kept(place, found)
    if first.print != print_:
        raise _other_body()
    return HeldKey(ledger, place, print_, found, first)


async def claim_call(request: AnyRequest) -> HeldKey | None:
    """For a call for a client; None where there is no key."""
    held = await _hold(request)
    if held is not None and held.first is not None and held.made is None:
        raise _still_running()
    return held


async def once(request: AnyRequest, kind: type[T], act: Callable[[], Awaitable[T]], *, secret: bool = False) -> T:
    """Does it, or gives the answer of the first request with this key.

    `secret`: nobody may find out the body from its fingerprint, so the key, of which only a hash is kept, goes into it.
    """
    held = await _hold(request, secret=secret)
    if held is None:
        return await act()
    if held.first is not None:
        if held.first.answer is None:
            raise _still_running()
        return msgspec.convert(held.first.answer, kind)
    try:
        answer = await act()
    except Exception:
        await held.drop()
        raise
    await held.keep(answer=msgspec.to_builtins(answer))
    return answer


def _ledger(request: AnyRequest) -> Ledger:
    return service_of(request).answers


def _kept(place: str, value: Any) -> StoredRequest:
    """A fact that cannot be read counts as another request, because nobody knows whether it was this one."""
    return facts.read(ANSWERS, place, value, StoredRequest) or StoredRequest("")


async def _fingerprint(request: AnyRequest, key: str = "") -> str:
    head = f"{key}{request.method} {request.url.path}\n".encode("utf-8", "replace")
    return hashlib.sha256(head + await request.body()).hexdigest()


def _place(request: AnyRequest, key: str) -> str:
    """Each principal has keys of its own; they are kept as hashes."""
    return hashlib.sha256(f"{token_of(request).name}|{key}".encode("utf-8", "replace")).hexdigest()


def _still_running() -> Refusal:
    what = "the first request with this Idempotency-Key is still running"
    return later(what, "Try again in a moment.", status=409, code="busy")


def _other_body() -> Refusal:
    return Refusal(
        "this Idempotency-Key was used for another request",
        status=409,
        code="idempotency",
        hint="Use a new key for a new request.",
        headers={"x-should-retry": "false"},
    )

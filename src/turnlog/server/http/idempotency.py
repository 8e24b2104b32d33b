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
from .problems import Refusal

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


class CallClaim:
    """A call for a client that came with a key. `made`: (session, turn) of the first request with it."""

    def __init__(self, ledger: Ledger, place: str, print_: str, held: Any, made: tuple[str, int] | None) -> None:
        self.made = made
        self._ledger = ledger
        self._place = place
        self._print = print_
        self._held = held

    async def keep(self, session_id: str, turn: int) -> None:
        if (session_id, turn) != self.made:
            kept = facts.write(StoredRequest(self._print, session_id, turn))
            await self._ledger.cas(ANSWERS, self._place, self._held, kept, ttl_s=TTL_S)

    async def drop(self) -> None:
        """The request failed before its words were stored, so it may be tried again."""
        if self.made is None:
            await self._ledger.cas(ANSWERS, self._place, self._held, None)


async def claim_call(request: AnyRequest) -> CallClaim | None:
    """None where there is no key."""
    key = key_of(request)
    if key is None:
        return None
    ledger, print_, place = _ledger(request), await _fingerprint(request), _place(request, key)
    mine = facts.write(StoredRequest(print_))
    held = await ledger.put_if_absent(ANSWERS, place, mine, ttl_s=UNDER_WAY_TTL_S)
    if held is None:
        return CallClaim(ledger, place, print_, mine, None)
    found = _kept(place, held)
    if found.print != print_:
        raise _other_body()
    if found.session is None or found.turn is None:
        raise _still_running()
    return CallClaim(ledger, place, print_, held, (found.session, found.turn))


async def once(request: AnyRequest, kind: type[T], act: Callable[[], Awaitable[T]], *, secret: bool = False) -> T:
    """Does it, or gives the answer of the first request with this key.

    `secret`: nobody may find out the body from its fingerprint, so the key, of which only a hash is kept, goes into it.
    """
    key = key_of(request)
    if key is None:
        return await act()
    ledger, place = _ledger(request), _place(request, key)
    print_ = await _fingerprint(request, key if secret else "")
    mine = facts.write(StoredRequest(print_))
    found = await ledger.put_if_absent(ANSWERS, place, mine, ttl_s=UNDER_WAY_TTL_S)
    if found is not None:
        return _first_answer(_kept(place, found), print_, kind)
    try:
        answer = await act()
    except Exception:
        await ledger.cas(ANSWERS, place, mine, None)  # a request that failed may be tried again
        raise
    answered = facts.write(StoredRequest(print_, answer=msgspec.to_builtins(answer)))
    await ledger.cas(ANSWERS, place, mine, answered, ttl_s=TTL_S)
    return answer


def _ledger(request: AnyRequest) -> Ledger:
    return service_of(request).answers


def _kept(place: str, value: Any) -> StoredRequest:
    """A fact that cannot be read counts as another request, because nobody knows whether it was this one."""
    return facts.read(ANSWERS, place, value, StoredRequest) or StoredRequest("")


def _first_answer(found: StoredRequest, print_: str, kind: type[T]) -> T:
    if found.print != print_:
        raise _other_body()
    if found.answer is None:
        raise _still_running()
    return msgspec.convert(found.answer, kind)


async def _fingerprint(request: AnyRequest, key: str = "") -> str:
    head = f"{key}{request.method} {request.url.path}\n".encode("utf-8", "replace")
    return hashlib.sha256(head + await request.body()).hexdigest()


def _place(request: AnyRequest, key: str) -> str:
    """Each principal has keys of its own; they are kept as hashes."""
    return hashlib.sha256(f"{token_of(request).name}|{key}".encode("utf-8", "replace")).hexdigest()


def _still_running() -> Refusal:
    return Refusal(
        "the first request with this Idempotency-Key is still running",
        status=409,
        code="busy",
        hint="Try again in a moment.",
        headers={"Retry-After": "1"},
    )


def _other_body() -> Refusal:
    return Refusal(
        "this Idempotency-Key was used for another request",
        status=409,
        code="idempotency",
        hint="Use a new key for a new request.",
        headers={"x-should-retry": "false"},
    )

"""`Idempotency-Key`: the same request again gets the first answer; the same key with another request is a conflict.

A chat is claimed together with the id of its session, before either exists; the message's delivery id does the rest,
so that a crash at any point leads to one message and never two. Other answers are short and are kept themselves.
"""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from ..stores import Ledger
from .problems import Refusal
from .service import Asked, token_of

ANSWERS = "idempotency"
"""The ledger's space."""
TTL_S = 7 * 24 * 3600.0
"""As long as delivery ids are remembered."""
UNDER_WAY_TTL_S = 120.0
"""A request that died before its answer was kept may be made again after this."""
KEY_MAX_CHARS = 200
T = TypeVar("T", bound=Struct)


class Claim(Struct, frozen=True):
    """A chat that was asked for under a key."""

    session_id: str
    delivery: str


def key_of(request: Asked) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is not None and not 0 < len(key) <= KEY_MAX_CHARS:
        raise Refusal(
            f"an Idempotency-Key has 1 to {KEY_MAX_CHARS} characters", hint="Use a random id, such as a UUID."
        )
    return key


async def claim(ledger: Ledger, request: Asked, key: str, session_id: str) -> Claim:
    """`session_id`: the one to use if this is the first request."""
    print_ = await _fingerprint(request)
    fact = {"print": print_, "session": session_id}
    place = _place(request, key)
    found = await ledger.put_if_absent(ANSWERS, place, fact, ttl_s=TTL_S) or fact
    if found["print"] != print_ or "session" not in found:
        raise _other_body()
    delivery = hashlib.sha256(f"{place}|{found['session']}".encode()).hexdigest()
    return Claim(found["session"], f"idempotency-{delivery}")


async def once(ledger: Ledger, request: Asked, kind: type[T], act: Callable[[], Awaitable[T]]) -> T:
    """Does it, or gives the answer that it had."""
    key = key_of(request)
    if key is None:
        return await act()
    print_, place = await _fingerprint(request), _place(request, key)
    mine: dict[str, Any] = {"print": print_}
    found = await ledger.put_if_absent(ANSWERS, place, mine, ttl_s=UNDER_WAY_TTL_S)
    if found is not None:
        return _first_answer(found, print_, kind)
    try:
        answer = await act()
    except Exception:
        await ledger.cas(ANSWERS, place, mine, None)  # what failed may be tried again
        raise
    await ledger.cas(ANSWERS, place, mine, {**mine, "answer": msgspec.to_builtins(answer)}, ttl_s=TTL_S)
    return answer


def _first_answer(found: dict[str, Any], print_: str, kind: type[T]) -> T:
    if found["print"] != print_:
        raise _other_body()
    if "answer" not in found:
        raise Refusal(
            "the first request with this Idempotency-Key is still under way",
            status=409,
            code="busy",
            hint="Try again in a moment.",
            headers={"Retry-After": "1"},
        )
    return msgspec.convert(found["answer"], kind)


async def _fingerprint(request: Asked) -> str:
    head = f"{request.method} {request.url.path}\n".encode()
    return hashlib.sha256(head + await request.body()).hexdigest()


def _place(request: Asked, key: str) -> str:
    """Keys of different principals have nothing to do with one another; and they are not kept as they came."""
    return hashlib.sha256(f"{token_of(request).name}|{key}".encode("utf-8", "replace")).hexdigest()


def _other_body() -> Refusal:
    return Refusal(
        "this Idempotency-Key was used for another request",
        status=409,
        code="idempotency",
        hint="Use a new key for a new request.",
    )

"""How much a client may ask: sizes, and requests a second."""

import time
from collections import OrderedDict
from collections.abc import Callable

from .problems import Refusal

BODY_MAX_BYTES = 24 * 1024 * 1024
"""A request. Pictures are in it, a third larger than they are."""
TEXT_MAX_BYTES = 1024 * 1024
"""Of a message, and of the context that comes with it."""
IMAGES_MAX = 20
"""Of one message; providers take about as many."""
FAILURES_PER_S = 2.0
FAILURES_BURST = 120.0
"""Wrong tokens from one address. Tokens cannot be guessed; this keeps logs and processors free of those who try."""
BUCKETS_MAX = 10_000
"""Clients remembered at once; the one that was quiet longest is forgotten, and begins with a full bucket."""
RETRY_AFTER_S = 1


class Buckets:
    """Token buckets, one a client: `rate` a second, `burst` at once."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> bool:
        """False if the client has to wait."""
        now = self._clock()
        level, since = self._levels.pop(client, (self._burst, now))
        level = min(self._burst, level + (now - since) * self._rate)
        allowed = level >= 1
        self._levels[client] = (level - 1 if allowed else level, now)
        while len(self._levels) > BUCKETS_MAX:
            self._levels.popitem(last=False)
        return allowed


def too_many(what: str = "too many requests") -> Refusal:
    return Refusal(
        what,
        status=429,
        code="rate",
        hint="Wait as long as Retry-After says, then go on more slowly.",
        headers={"Retry-After": str(RETRY_AFTER_S)},
    )


def too_large(what: str, limit: int) -> Refusal:
    return Refusal(f"{what} is larger than {limit:,} bytes", status=413, code="too_large", hint="Send less at once.")


def check_text(what: str, text: str) -> str:
    if len(text) > TEXT_MAX_BYTES or len(text.encode("utf-8", "replace")) > TEXT_MAX_BYTES:
        raise too_large(what, TEXT_MAX_BYTES)
    return text

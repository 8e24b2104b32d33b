"""Limits how often each client may ask."""

import time
from collections import OrderedDict
from collections.abc import Callable

BUCKETS_MAX = 10_000
"""Clients remembered at once; the least recent one is forgotten, and later starts with a full bucket."""


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

"""Calls a provider again after it said that it is busy. Nothing else retries a provider."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..errors import ProviderBusy

T = TypeVar("T")
RETRIES = 3
BACKOFF_S = 1.0
BACKOFF_MAX_S = 60.0
"""If a provider asks for a longer wait, its error is raised instead: nobody waits longer for a reply."""


async def call(
    attempt: Callable[[], Awaitable[T]],
    *,
    may_retry: Callable[[], bool] = lambda: True,
    on_retry: Callable[[], object] = lambda: None,
    backoff_s: float = BACKOFF_S,
) -> T:
    """Waits between attempts as long as the provider asks. Raises the error of the last one.

    `may_retry` is asked after each failure: text that was shown cannot be withdrawn.
    """
    number = 0
    while True:
        try:
            return await attempt()
        except ProviderBusy as error:
            seconds = error.retry_after_s if error.retry_after_s is not None else backoff_s * 2**number
            if number >= RETRIES or seconds > BACKOFF_MAX_S or not may_retry():
                raise
        await asyncio.sleep(seconds)
        on_retry()
        number += 1

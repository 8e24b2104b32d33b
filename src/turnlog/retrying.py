"""When to try again: the only place that retries a provider."""

import asyncio

from .errors import ProviderBusy

RETRIES = 3
BACKOFF_S = 1.0
BACKOFF_MAX_S = 60.0
"""A provider that asks for a longer wait has its error passed on: nobody waits longer for a reply."""


async def pause(error: ProviderBusy, number: int, backoff_s: float = BACKOFF_S) -> None:
    """Waits after the failure of try `number` (from 0), as long as was asked for; raises it when there were enough."""
    seconds = error.retry_after_s if error.retry_after_s is not None else backoff_s * 2**number
    if number >= RETRIES or seconds > BACKOFF_MAX_S:
        raise error
    await asyncio.sleep(seconds)

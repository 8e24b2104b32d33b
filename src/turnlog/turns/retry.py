"""Waits before a provider is called again. Nothing else retries a provider."""

import asyncio

from ..errors import ProviderBusy

RETRIES = 3
BACKOFF_S = 1.0
BACKOFF_MAX_S = 60.0
"""If a provider asks for a longer wait, its error is raised instead: nobody waits longer for a reply."""


async def pause(error: ProviderBusy, number: int, backoff_s: float = BACKOFF_S) -> None:
    """Waits after attempt `number` (from 0) failed, as long as the provider asks. Raises the error of the last one."""
    seconds = error.retry_after_s if error.retry_after_s is not None else backoff_s * 2**number
    if number >= RETRIES or seconds > BACKOFF_MAX_S:
        raise error
    await asyncio.sleep(seconds)

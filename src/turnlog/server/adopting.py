"""What servers of one store owe one another: turns of those that fell silent are taken over, and stopped when asked."""

import asyncio

from ..errors import TurnlogError
from ..stopping import heed
from .service import Service

EVERY_S = 1.0
"""Beside the time a lease takes to run out, what a takeover may take. One cheap statement each time."""


async def keep_adopting(service: Service, every_s: float = EVERY_S) -> None:
    """Until cancelled. While the store is away there is nothing to do, and others say so."""
    while not service.closing:
        await asyncio.sleep(every_s)
        try:
            await service.turnlog.queue.adopt()
            await heed(service.turnlog.store, service.turnlog.queue)
        except TurnlogError as error:
            service.log.warning("adopting", error=str(error))

"""Puts away and deletes sessions whose time is over, hourly, and says so in the log."""

import asyncio

from ..errors import TurnlogError
from ..expiry import expire
from ..stores.stamping import now_ms
from .service import Service

EVERY_S = 3600.0


async def keep_expiring(service: Service, every_s: float = EVERY_S) -> None:
    """Until cancelled. Where sessions live for ever, only what somebody put into the trash is deleted in time."""
    while True:
        try:
            await expire_once(service)
        except TurnlogError as error:
            service.log.error("expiry", error=str(error))
        await asyncio.sleep(every_s)


async def expire_once(service: Service) -> None:
    turnlog, session = service.turnlog, service.turnlog.settings.session
    done = await expire(
        turnlog.sessions, turnlog.store, ttl_days=session.ttl, trash_days=session.trash_days, clock=now_ms, apply=True
    )
    for step in done:
        service.log.info("expired", session=step.session_id, action=step.action, reason=step.reason)

"""What a server does in the background: it takes over the turns of servers that died, expires old
sessions, and counts usage.
"""

from collections.abc import Coroutine
from typing import Any

from ..library import Turnlog
from ..runtime.background import run_forever
from .service import Service

ADOPT_EVERY_S = 1.0
"""A takeover may begin this long after a lease has expired. Each look is one cheap statement."""
ADOPT_MAX_S = 5.0
"""The longest pause after looks that failed: the turns of a server that died wait that long."""
EXPIRE_EVERY_S = 3600.0
COUNT_EVERY_S = 30.0
SHARE_EVERY_S = 5.0


def loops_of(turnlog: Turnlog, service: Service) -> list[Coroutine[Any, Any, None]]:
    async def adopt() -> None:
        if not service.closing:
            await turnlog.adopt()

    async def expire() -> None:
        """Where sessions do not expire, only those that somebody put into the trash are deleted in time."""
        for step in await turnlog.expire(apply=True):
            service.log.info("expired", session=step.session_id, action=step.action, reason=step.reason)

    async def share() -> None:
        service.count_open()
        service.metrics.share()

    return [
        run_forever("expiry", expire, every_s=EXPIRE_EVERY_S),
        run_forever("adopting", adopt, every_s=ADOPT_EVERY_S, max_s=ADOPT_MAX_S),
        # Where nothing was written since the last round, it costs one query.
        run_forever("usage", service.usage.count, every_s=COUNT_EVERY_S),
        run_forever("metrics", share, every_s=SHARE_EVERY_S),
    ]

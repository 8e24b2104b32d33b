"""A future whose outcome is always waited for."""

import asyncio
from typing import Any


class Uncancellable(asyncio.Future[Any]):
    """A future that cannot be cancelled: a task that is cancelled while it waits sees that only when the result is
    known.

    So nobody acts on a write whose result is unknown, and no lock is released during it.
    """

    def cancel(self, msg: Any | None = None) -> bool:
        return False

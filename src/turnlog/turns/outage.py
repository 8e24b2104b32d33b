"""Waits during an outage of the store, as long as the turn's lease can be regained.

A turn whose user message is stored continues while the database is down: the model's reply is kept in memory, and
stored when the database is back and confirms that no other process has taken over the turn. If leases end with their
process, there is nothing to confirm: then the error is raised at once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..errors import StoreUnavailable
from ..stores import Lease

T = TypeVar("T")


class OutageWait:
    def __init__(self, lease: Lease, closing: asyncio.Event) -> None:
        """`closing`: set when the process ends, which ends all waiting."""
        self._lease = lease
        self._closing = closing

    async def retry(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeats the call after each outage until it succeeds."""
        while True:
            try:
                return await call()
            except StoreUnavailable:
                if not await self.is_over():
                    raise

    async def is_over(self) -> bool:
        """Waits until the store answers and the lease is valid (True), or until that can no longer happen (False)."""
        regaining = asyncio.ensure_future(self._lease.regain())
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait({regaining, closing}, return_when=asyncio.FIRST_COMPLETED)
            return regaining.done() and regaining.result() and not closing.done()
        finally:
            regaining.cancel()
            closing.cancel()

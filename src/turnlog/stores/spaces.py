"""A ledger restricted to some of its spaces: code that keeps tokens or answers there cannot change what
sessions need.
"""

from collections.abc import Iterable
from typing import Any

from ..errors import Denied
from . import Ledger, LedgerFact


class LedgerSpaces:
    def __init__(self, ledger: Ledger, spaces: Iterable[str]) -> None:
        self._ledger = ledger
        self._spaces = frozenset(spaces)

    def _named(self, space: str) -> str:
        if space not in self._spaces:
            raise Denied(f"this ledger has no space {space!r}", hint="Add the space where this ledger is created.")
        return space

    async def get(self, space: str, key: str, *, from_memory: bool = False) -> Any:
        return await self._ledger.get(self._named(space), key, from_memory=from_memory)

    async def put_if_absent(self, space: str, key: str, value: Any, *, ttl_s: float | None = None) -> Any:
        return await self._ledger.put_if_absent(self._named(space), key, value, ttl_s=ttl_s)

    async def cas(self, space: str, key: str, old: Any, new: Any, *, ttl_s: float | None = None) -> bool:
        return await self._ledger.cas(self._named(space), key, old, new, ttl_s=ttl_s)

    async def list(self, space: str, *, prefix: str = "", after: str = "", limit: int = 1000) -> list[LedgerFact]:
        return await self._ledger.list(self._named(space), prefix=prefix, after=after, limit=limit)

    async def delete(self, space: str, key: str) -> bool:
        return await self._ledger.delete(self._named(space), key)

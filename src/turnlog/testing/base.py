"""What the parts of the contract share."""

import asyncio
import functools
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from ..stores import Store
from . import answered, opened, said


def claim(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The test gets a place."""

    @functools.wraps(test)
    def run(self: "Contract", tmp_path: Path) -> None:
        asyncio.run(test(self, tmp_path))  # type: ignore[arg-type]

    del run.__wrapped__  # type: ignore[attr-defined]  # runners look at the signature: (self, tmp_path)
    return run


def store_claim(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The test gets an open store."""

    @functools.wraps(test)
    async def with_store(self: "Contract", place: Path) -> None:
        async with self.open(place) as store:
            await test(self, store)

    return claim(with_store)


def session_claim(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The test gets an open store with one session, s1."""

    @functools.wraps(test)
    async def with_session(self: "Contract", place: Path) -> None:
        async with self.with_session(place) as store:
            await test(self, store)

    return claim(with_session)


GIVES_UP_S = 60
"""A test fails if the expected event has not happened by then, even on a slow machine."""


async def enter(manager: AbstractAsyncContextManager[Any]) -> None:
    async with manager:
        pass


class Contract:
    """`durable = False` if nothing survives a close."""

    durable = True

    def open(self, place: Path, **options: Any) -> AbstractAsyncContextManager[Store]:
        """A store at this place; opening the same place again gives the same store. Options: clock."""
        raise NotImplementedError

    @asynccontextmanager
    async def with_session(self, place: Path) -> AsyncGenerator[Store]:
        """A store with one session, s1."""
        async with self.open(place) as store:
            await store.append("s1", [opened("s1")])
            yield store

    async def talk(self, store: Store, session_id: str, turns: int, start: int = 1) -> None:
        async with store.lease(session_id) as lease:
            for n in range(start, start + turns):
                await store.append(session_id, [said(f"question {n}"), answered(f"answer {n}")], lease=lease)

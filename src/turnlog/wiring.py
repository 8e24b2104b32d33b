"""Settings in, ready objects out: the only place that knows all concrete classes."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from .sessions import Sessions
from .settings import Settings, limits_of, load
from .stores import Progress, Store, open_store


class Turnlog(Struct, frozen=True):
    """An opened Turnlog: its settings, its store, and everything that can be done with sessions."""

    settings: Settings
    store: Store
    sessions: Sessions


@asynccontextmanager
async def open(  # noqa: A001 - turnlog.open() is the name people look for
    url: str | None = None, *, home: str | Path | None = None, progress: Progress | None = None, **flags: Any
) -> AsyncGenerator[Turnlog]:
    """`async with turnlog.open() as t:`. Without a URL, the store of the settings.

    Flags are settings with `_` for the dot: `store_durability="os"`, `session_preset="zeroclaw"`. `progress` as in
    `open_store`.
    """
    settings = load(home=home, flags=_dotted({"store_url": url, **flags}))
    async with open_store(
        settings.store_url(),
        durability=settings.store.durability,
        inject=settings.compaction.inject,
        progress=progress,
    ) as store:
        yield Turnlog(settings, store, _sessions(settings, store))


def _sessions(settings: Settings, store: Store) -> Sessions:
    pin_tokens = int(settings.compaction.pin_budget * limits_of(settings).window)
    return Sessions(store, inject=settings.compaction.inject, pin_tokens=pin_tokens)


def _dotted(flags: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", ".", 1): value for name, value in flags.items()}

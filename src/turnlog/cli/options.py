"""The options that every command takes, before or after its name, and what they open."""

import os
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click
from msgspec import Struct

from .messages import words_here
from .output import warn

if TYPE_CHECKING:
    from ..library import Turnlog

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
Work: TypeAlias = "Callable[[Turnlog], Coroutine[Any, Any, T]]"


VALUED = ("--home", "--store", "--preset", "--model", "--agent")
"""Common options that take a value."""


class Flags(Struct, frozen=True, kw_only=True):
    home: str | None = None
    store: str | None = None
    preset: str | None = None
    model: str | None = None
    agent: str | None = None
    json: bool = False

    @property
    def agent_name(self) -> str:
        return self.agent or "main"


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Where it stands last on the line, it counts: the group's own options are read before its command's."""
    if value is not None and value is not False:
        root = ctx.find_root()
        root.obj = {**(root.obj or {}), param.name: value}


def common(command: F) -> F:
    """Adds the options that every command takes."""
    options = (
        click.option("--home", metavar="DIR", help="Where everything is kept [~/.turnlog or $TURNLOG_HOME].", **_KEPT),
        click.option("--store", metavar="URL", help="sqlite:PATH, jsonl:PATH, memory: …", **_KEPT),
        click.option("--preset", metavar="NAME", help="default, zeroclaw, sessions, zyhive, claw0 …", **_KEPT),
        click.option("--model", metavar="MODEL", help="offline, anthropic:NAME, openai:NAME, local:FILE …", **_KEPT),
        click.option("--agent", metavar="NAME", help="Whose sessions [main].", **_KEPT),
        click.option("--json", is_flag=True, help="Output for programs.", **_KEPT),
    )
    for option in reversed(options):
        command = option(command)
    return command


_KEPT: dict[str, Any] = {"callback": _keep, "expose_value": False}


def flags_now() -> Flags:
    return flags_of(click.get_current_context())


def flags_of(ctx: click.Context) -> Flags:
    given: dict[str, Any] = ctx.find_root().obj or {}
    return Flags(**given)


def settings_of(flags: Flags) -> dict[str, Any]:
    """Keyword arguments of `turnlog.open`."""
    return {
        "url": flags.store,
        "home": flags.home,
        "model_name": flags.model,
        "session_preset": flags.preset,
    }


@asynccontextmanager
async def opened(flags: Flags, **more: Any) -> "AsyncGenerator[Turnlog]":
    from ..wiring import open as open_turnlog

    _tell_if_new(flags)
    async with open_turnlog(**settings_of(flags), **more) as turnlog:
        yield turnlog


def _tell_if_new(flags: Flags) -> None:
    """A store given by name that is not there is made; a slip of the pen should not go unnoticed."""
    if flags.store is None:
        return
    scheme, _, rest = flags.store.partition(":")
    path = rest.partition("?")[0]
    if scheme in ("sqlite", "jsonl") and path and not os.path.exists(path) and sys.stderr.isatty():
        warn(words_here()("store_made", path=path))


def run(work: "Work[T]", flags: Flags, **more: Any) -> T:
    """Opens, works, closes: what most commands are."""
    import asyncio

    async def opened_work() -> T:
        async with opened(flags, **more) as turnlog:
            return await work(turnlog)

    return asyncio.run(opened_work())

"""The options that every command takes, before or after its name, and what they open."""

import os
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

import click
from msgspec import Struct

from ..texts import words_here
from .output import warn, write, write_json

if TYPE_CHECKING:
    from ..library import Turnlog

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
P = ParamSpec("P")
Work: TypeAlias = "Callable[[Turnlog], Coroutine[Any, Any, T]]"
Command: TypeAlias = "Callable[Concatenate[Turnlog, Flags, P], Coroutine[Any, Any, int | None]]"


VALUED = ("--home", "--store", "--preset", "--model", "--agent")
"""Common options that take a value."""


class Flags(Struct, frozen=True, kw_only=True):
    home: str | None = None
    store_url: str | None = None
    preset: str | None = None
    model: str | None = None
    agent: str | None = None
    approve: str | None = None
    json: bool = False

    @property
    def agent_name(self) -> str:
        return self.agent or "main"


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """An option of the command wins over the same option of the group, because it is read later."""
    if value is not None and value is not False:
        root = ctx.find_root()
        root.obj = {**(root.obj or {}), param.name: value}


def common(command: F) -> F:
    """Adds the options that every command takes."""
    options = (
        click.option("--home", metavar="DIR", help="Where everything is kept [~/.turnlog or $TURNLOG_HOME].", **KEPT),
        click.option("--store", "store_url", metavar="URL", help="sqlite:PATH, jsonl:PATH, memory: …", **KEPT),
        click.option("--preset", metavar="NAME", help="default, zeroclaw, sessions, zyhive, claw0 …", **KEPT),
        click.option("--model", metavar="MODEL", help="offline, anthropic:NAME, openai:NAME, local:FILE …", **KEPT),
        click.option("--agent", metavar="NAME", help="Whose sessions [main].", **KEPT),
        click.option("--json", is_flag=True, help="Output for programs.", **KEPT),
    )
    for option in reversed(options):
        command = option(command)
    return command


KEPT: dict[str, Any] = {"callback": _keep, "expose_value": False}


def approve_option(command: F) -> F:
    """For commands that run turns."""
    kinds = click.Choice(["writes", "all", "none"])
    return click.option("--approve", type=kinds, help="Which calls wait for your word [writes].", **KEPT)(command)


def flags_now() -> Flags:
    return flags_of(click.get_current_context())


def flags_of(ctx: click.Context) -> Flags:
    given: dict[str, Any] = ctx.find_root().obj or {}
    return Flags(**given)


def report(value: Any, *lines: str) -> None:
    """Prints what a command found: the value for programs (`--json`), otherwise the lines."""
    if flags_now().json:
        write_json(value)
        return
    for line in lines:
        write(line)


def settings_of(flags: Flags) -> dict[str, Any]:
    """The settings that the common options give, by the names that `turnlog.open` and `settings.load` take."""
    return {
        "store_url": flags.store_url,
        "model_name": flags.model,
        "session_preset": flags.preset,
        "tools_approval": flags.approve,
    }


@asynccontextmanager
async def opened(flags: Flags, *, create: bool = True, **more: Any) -> "AsyncGenerator[Turnlog]":
    from ..wiring import open as open_turnlog

    if create:
        _tell_if_new(flags)
    async with open_turnlog(flags.store_url, home=flags.home, **settings_of(flags), create=create, **more) as turnlog:
        yield turnlog


def _tell_if_new(flags: Flags) -> None:
    """A store that `--store` names is created if it is missing; the notice makes a typing error visible."""
    if flags.store_url is None:
        return
    scheme, _, rest = flags.store_url.partition(":")
    path = rest.partition("?")[0]
    if scheme in ("sqlite", "jsonl") and path and not os.path.exists(path) and sys.stderr.isatty():
        warn(words_here()("store_made", path=path))


def with_turnlog(*, create: bool = False, **more: Any) -> "Callable[[Command[P]], Callable[P, int | None]]":
    """Makes a command with the common options of an async function that gets the opened Turnlog and the flags first."""

    def wrap(command: "Command[P]") -> Callable[P, int | None]:
        @wraps(command)
        def start(*args: P.args, **kwargs: P.kwargs) -> int | None:
            flags = flags_now()
            return run(lambda t: command(t, flags, *args, **kwargs), flags, create=create, **more)

        return common(start)

    return wrap


def run(work: "Work[T]", flags: Flags, *, create: bool = False, **more: Any) -> T:
    """Opens Turnlog, does the work, and closes it. Only commands that store something new `create` a store."""
    import asyncio

    async def opened_work() -> T:
        async with opened(flags, create=create, **more) as turnlog:
            return await work(turnlog)

    return asyncio.run(opened_work())

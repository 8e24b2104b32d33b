"""`turnlog serve` and `turnlog token`."""

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...errors import MissingExtra, UsageError
from ..options import KEPT, approve_option, common, flags_now, report, settings_of
from ..output import columns_of_screen, table, write

if TYPE_CHECKING:
    from ...server.http.auth import Token, Tokens

T = TypeVar("T")
DAY_MS = 24 * 3600 * 1000
_UNITS_MS = {"m": 60_000, "h": 3_600_000, "d": DAY_MS, "w": 7 * DAY_MS}


@click.command()
@click.option("--host", metavar="HOST", help="The address to listen on [127.0.0.1].")
@click.option("--port", metavar="PORT", type=int, help="The port to listen on [8600]; 0 takes a free one.")
@click.option("--workers", metavar="N", type=int, default=1, help="Processes that share the port and the store [1].")
@click.option("--worker", hidden=True)
@approve_option
@common
def serve(host: str | None, port: int | None, workers: int, worker: str | None) -> None:
    """Serve the page and the HTTP interface.

    \b
    turnlog serve                     on http://127.0.0.1:8600; the first start prints a sign-in link
    turnlog serve --port 9000
    turnlog serve --workers 2         two processes on one port and one store
    turnlog serve --host 0.0.0.0      behind a proxy that speaks https; see docs/operating/server.md
    """
    try:
        from ...server.logs import log_everything_as_json
        from ...server.main import serve as serve_now
        from ...server.workers import WorkerPlace
    except ModuleNotFoundError as error:
        raise MissingExtra(f"the server needs packages that are not installed ({error})", extra="server") from error
    if workers != 1 and worker is None:
        sys.exit(_supervised(workers, host, port))
    log_everything_as_json()
    place = WorkerPlace(worker) if worker else None
    tell = _tell if place is None or place.number == 0 else _say_nothing
    flags = flags_now()
    given = {"server_host": host, "server_port": port, **settings_of(flags)}
    with asyncio.Runner(loop_factory=_fast_loop()) as runner:
        runner.run(serve_now(home=flags.home, tell=tell, worker=place, **given))


def _supervised(workers: int, host: str | None, port: int | None) -> int:
    from ...server.main import bind
    from ...server.workers import check_workers, supervise
    from ...settings import load

    flags = flags_now()
    settings = load(home=flags.home, flags={"server_host": host, "server_port": port, **settings_of(flags)})
    check_workers(workers, settings)
    listening = bind(settings.server.host, settings.server.port)
    given = {
        "--home": flags.home,
        "--store": flags.store_url,
        "--preset": flags.preset,
        "--model": flags.model,
        "--approve": flags.approve,
        "--host": host,
        "--port": port,
    }
    arguments = [text for name, value in given.items() if value is not None for text in (name, str(value))]
    return asyncio.run(supervise(["serve", *arguments], workers, listening))


def _say_nothing(text: str) -> None:
    """The first worker speaks for all."""


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop, if it is installed: it also joins small writes to a socket."""
    try:
        from uvloop import new_event_loop
    except ModuleNotFoundError:
        return None
    return new_event_loop


@click.group()
@common
def token() -> None:
    """Create, list and revoke tokens for the HTTP interface.

    \b
    turnlog token create ann --scope chat
    turnlog token create grafana --scope read --agent main --expires 30d
    """


@token.command()
@click.argument("name")
@click.option("--scope", "scopes", multiple=True, required=True, metavar="S", help="chat, read or admin; repeatable.")
@click.option("--agent", "agents", multiple=True, metavar="A", help="Only for this agent; repeatable.")
@click.option("--expires", metavar="WHEN", help="30d, 12h, or a time such as 2030-01-31.")
@click.option("--home", metavar="DIR", **KEPT)  # not `common`: --agent has another meaning here
@click.option("--store", "store_url", metavar="URL", **KEPT)
@click.option("--json", is_flag=True, **KEPT)
def create(name: str, scopes: tuple[str, ...], agents: tuple[str, ...], expires: str | None) -> None:
    """Create a token. It is shown only once.

    \b
    turnlog token create ann --scope chat --expires 30d
    """
    until = parse_expiry(expires, datetime.now(UTC)) if expires else None
    made, text = _with_tokens(
        lambda tokens: tokens.create(name, scopes, agents=agents or None, expires_at=until), create=True
    )
    report({"id": made.id, "token": text, "scopes": list(made.scopes)}, text)


@token.command("list")
@common
def list_tokens() -> None:
    """List tokens: their ids and what they may do.

    \b
    turnlog token list --json
    """
    rows = [_row(made) for made in _with_tokens(lambda tokens: tokens.list())]
    report({"tokens": rows}, *table([_cells(row) for row in rows], columns_of_screen()))


@token.command()
@click.argument("id_", metavar="ID")
@common
def revoke(id_: str) -> None:
    """Revoke a token, at once.

    \b
    turnlog token revoke 3f9a12bc77de
    """
    made = _with_tokens(lambda tokens: tokens.revoke(id_))
    report({"id": made.id, "revoked": True}, f"revoked {made.id} ({made.name})")


def _with_tokens(work: "Callable[[Tokens], Awaitable[T]]", *, create: bool = False) -> T:
    from ...server.http.auth import TOKEN_SPACES, Tokens
    from ...wiring import open_ledger

    async def opened_work() -> T:
        flags = flags_now()
        place = {"url": flags.store_url, "home": flags.home}
        async with open_ledger(*TOKEN_SPACES, **place, **settings_of(flags), create=create) as ledger:
            return await work(Tokens(ledger))

    return asyncio.run(opened_work())


def parse_expiry(text: str, now: datetime) -> int:
    """Unix ms: a span from now, or a point in time."""
    if span := re.fullmatch(r"(\d{1,6})([mhdw])", text):
        return round(now.timestamp() * 1000) + int(span[1]) * _UNITS_MS[span[2]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{text[:40]!r} is not a time", hint="Write 30d, 12h or 2030-01-31.") from error
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _row(made: "Token") -> dict[str, Any]:
    return {
        "id": made.id,
        "name": made.name,
        "scopes": list(made.scopes),
        "agents": None if made.agents is None else list(made.agents),
        "createdAt": made.created_at,
        "expiresAt": made.expires_at,
        "revokedAt": made.revoked_at,
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    until = datetime.fromtimestamp(row["expiresAt"] / 1000, UTC).strftime("%Y-%m-%d") if row["expiresAt"] else "-"
    state = "revoked" if row["revokedAt"] else f"until {until}"
    return row["id"], row["name"], ",".join(row["scopes"]), ",".join(row["agents"] or ["*"]), state


def _tell(text: str) -> None:
    write(text)
    sys.stdout.flush()

"""A server from start to end: open the store, make the first token, take up what was left, serve, close in order.

Closing: readiness goes first, new messages are refused, running turns get a while to end, the rest are stopped with
what they said kept, every stream is told; then the sockets and the store are closed. A second signal cuts that short.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from structlog.typing import FilteringBoundLogger

from ..channels.choosing import open_channels
from ..convlog import open_convlog
from ..errors import UsageError
from ..settings import Settings, load
from ..stores.files import make_dir, replace_file
from ..stores.stamping import now_ms
from ..switchboard import Switchboard
from ..wiring import open as open_turnlog
from .adopting import keep_adopting
from .app import create_app
from .expiring import keep_expiring
from .logs import open_log
from .metrics import Metrics
from .service import Service
from .wire import Wire

FAREWELL_S = 0.2
"""For streams of turns that have just been stopped."""
BACKLOG = 2_048
"""Connections that may wait to be taken: many clients come back at once after a restart."""
LAST_WRITES_S = 5
"""After the turns have ended, for streams to be sent out."""
FIRST = "first"
"""The ledger's space for who makes the first token: of several servers that start at once, one."""
FIRST_S = 60.0
"""If that one dies meanwhile, the next start after this does it."""
STARTING_S = 0.005
TOKEN_FILE = "admin.token"  # noqa: S105 - the name of a file


@asynccontextmanager
async def open_service(
    *, home: str | Path | None = None, log: FilteringBoundLogger | None = None, **flags: Any
) -> AsyncGenerator[Service]:
    settings = load(home=home, flags={name.replace("_", ".", 1): value for name, value in flags.items()})
    workspace = settings.home / "workspace"
    make_dir(workspace)
    async with (
        open_convlog(settings.store_url()) as convlog,
        open_turnlog(home=home, workspace=workspace, **flags) as turnlog,
    ):
        service = Service(turnlog, convlog, Metrics(), log or open_log())
        if settings.channels:
            booths = open_channels(settings.channels, agents=service.agents)
            service.switchboard = Switchboard(
                turnlog, convlog, booths, clock=now_ms, log=service.log, tally=service.metrics.channels
            )
        try:
            yield service
        finally:
            await turnlog.queue.close()
            if service.switchboard is not None:
                await service.switchboard.close()
            await service.close()


async def first_link(service: Service) -> str | None:
    """At the very first start: an administrator's token, kept in a file, and the path of a link that signs in once."""
    tokens = service.tokens
    if await tokens.list() or await service.turnlog.store.ledger.put_if_absent(FIRST, FIRST, True, ttl_s=FIRST_S):
        return None
    token, text = await tokens.create("admin", ["admin"])
    replace_file(service.turnlog.settings.home / TOKEN_FILE, text.encode() + b"\n", durable=True)
    return f"/signin?code={await tokens.make_code(token.id)}"


async def serve(*, home: str | Path | None = None, tell: Any = print, **flags: Any) -> None:
    """Until a signal comes. `tell` is called with what a person should read."""
    async with open_service(home=home, **flags) as service:
        settings = service.turnlog.settings
        link = await first_link(service)
        server = Server(service)
        async with server.listening() as port:
            base = f"http://{_shown(settings.server.host)}:{port}"
            if link is not None:
                tell(f"Sign in once at {base}{link}")
                tell(f"The administrator's token is in {settings.home / TOKEN_FILE}")
            tell(f"Turnlog is listening on {base}")
            resumed = await service.turnlog.resume(rerun=True)
            service.log.info("started", base=base, store=_scheme(settings), resumed=resumed)
            if service.switchboard is not None:
                await service.switchboard.start()
            chores = {asyncio.create_task(keep(service)) for keep in (keep_expiring, keep_adopting)}
            await server.until_closed()
            for chore in chores:
                chore.cancel()
            await asyncio.wait(chores)


class Server:
    def __init__(self, service: Service) -> None:
        settings = service.turnlog.settings.server
        config = uvicorn.Config(
            create_app(service),
            host=settings.host,
            port=settings.port,
            http=Wire,
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=LAST_WRITES_S,
        )
        self._service = service
        self._server = _Signalled(config, self._begin_closing)
        self._closing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[int]:
        settings = self._service.turnlog.settings.server
        wire = bind(settings.host, settings.port)
        self._serving = asyncio.create_task(self._server.serve([wire]))
        # A signal that comes before would end the process as if there were nothing to put in order.
        while not self._server.started and not self._serving.done():  # noqa: ASYNC110 - uvicorn has no bell
            await asyncio.sleep(STARTING_S)
        try:
            yield wire.getsockname()[1]
        finally:
            self._server.should_exit = True
            await asyncio.wait({self._serving})

    async def until_closed(self) -> None:
        await self._serving

    def _begin_closing(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())

    async def _close(self) -> None:
        service = self._service
        service.closing = True
        service.log.info("closing")
        if service.switchboard is not None:
            service.switchboard.begin_closing()
        queue = service.turnlog.queue
        try:
            async with asyncio.timeout(service.turnlog.settings.server.drain_s):
                await queue.idle()
        except TimeoutError:
            service.log.info("stopping turns")
        await queue.close()
        await asyncio.sleep(FAREWELL_S)  # streams of turns end by themselves
        for stream in list(service.streams):
            stream.close()
        self._server.should_exit = True


def bind(host: str, port: int) -> socket.socket:
    """Before anything is said: a port that somebody else has is an error now, not a line in a log."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"cannot listen on {host}, port {port}: {error}", hint="Choose another address with --host and --port."
        ) from error
    # Connections inherit it. asyncio sets it only on sockets that it made itself; without it the second packet of
    # every answer waits 40 ms for the client's acknowledgement of the first.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


class _Signalled(uvicorn.Server):
    """The first signal begins an orderly end; the second one is uvicorn's own."""

    def __init__(self, config: uvicorn.Config, begin: Any) -> None:
        super().__init__(config)
        self._begin = begin
        self._begun = False
        self._loop = asyncio.get_running_loop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._begun:
            self.force_exit = True
            super().handle_exit(sig, frame)
            return
        self._begun = True
        self._loop.call_soon_threadsafe(self._begin)


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _scheme(settings: Settings) -> str:
    return settings.store_url().partition(":")[0]

"""Runs a server: opens the store, makes the first token, resumes turns, serves, and closes in order.

Closing: the server is no longer ready and refuses new messages. Running turns get a while to end; the others are
stopped, and their text so far is kept. Every stream gets a last event. Then the sockets and the store are closed. A
second signal ends the process at once.
"""

import asyncio
import gc
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from structlog.typing import FilteringBoundLogger

from ..access.own_files import TOKEN_FILE, WORKSPACE
from ..channels.accounts import open_channels
from ..channels.gateway import Gateway
from ..convlog import open_convlog
from ..errors import UsageError
from ..library import Turnlog
from ..settings import Settings, load
from ..stores.disk.files import make_dir, replace_file
from ..stores.stamping import now_ms
from ..wiring import open as open_turnlog
from .app import create_app
from .background import loops_of
from .compatible.models import check_upstreams, default_model, may_relay
from .daily_usage import USAGE, DailyUsage
from .http.auth import TOKEN_SPACES, Tokens
from .http.head_limit import LimitedConnection
from .http.idempotency import ANSWERS
from .http.listening import Listener
from .logs import open_log
from .metrics import Metrics
from .service import Service
from .workers import WorkerPlace

LAST_EVENTS_S = 0.2
"""For streams of turns that have just been stopped."""
BACKLOG = 2_048
"""Connections that may wait to be accepted: many clients reconnect at once after a restart."""
LAST_WRITES_S = 5
"""For the last bytes of streams, after the turns have ended."""
STARTING_S = 0.005
COLLECT_AFTER = 50_000
"""New objects before Python looks for cycles among them. Its default of 700 makes it look several times in each turn,
which takes a tenth of the turn's time. Each look also visits what the running turns hold, which is gone soon after. A
turn makes few cycles, and those of a thousand turns take a few MB.
"""
COLLECT_OLDER_AFTER = (20, 20)
"""Such looks before one at what survived them, and those before one at everything."""


@asynccontextmanager
async def open_service(
    *, home: str | Path | None = None, log: FilteringBoundLogger | None = None, **flags: Any
) -> AsyncGenerator[tuple[Turnlog, Service]]:
    settings = load(home=home, flags=flags)
    workspace = settings.home / WORKSPACE
    make_dir(workspace)
    async with (
        open_turnlog(home=home, workspace=workspace, **flags) as turnlog,
        open_convlog(settings.store_url()) as convlog,
    ):
        service = Service(
            turnlog,
            convlog,
            Metrics(),
            log or open_log(),
            tokens=Tokens(turnlog.ledger(*TOKEN_SPACES)),
            answers=turnlog.ledger(ANSWERS),
            usage=DailyUsage(turnlog.sessions, turnlog.ledger(USAGE)),
        )
        if settings.channels:
            accounts = open_channels(settings.channels, agents=service.agents)
            service.gateway = Gateway(
                turnlog, convlog, accounts, clock=now_ms, log=service.log, counter=service.metrics.channels
            )
        try:
            yield turnlog, service
        finally:
            await turnlog.end_turns()
            if service.gateway is not None:
                await service.gateway.close()
            await service.close()


async def first_link(service: Service) -> str | None:
    """At the very first start: an administrator's token, kept in a file, and the path of a link that signs in once.

    Tokens that were made by hand before do not count: nobody knows whether their owner still has them.
    """
    async with service.tokens.first() as is_first:
        if not is_first:
            return None
        token, text = await service.tokens.create("admin", ["admin"])
        replace_file(service.settings.home / TOKEN_FILE, text.encode() + b"\n", durable=True)
        return f"/signin?code={await service.tokens.make_code(token.id)}"


async def serve(
    *, home: str | Path | None = None, tell: Any = print, worker: WorkerPlace | None = None, **flags: Any
) -> None:
    """Serves until a signal comes. `tell` is called with lines for the person who started it."""
    async with open_service(home=home, **flags) as (turnlog, service):
        settings = turnlog.settings
        check_upstreams(settings)
        for agent in service.agents:
            turnlog.check_agent(agent)
        link = await first_link(service)
        server = Server(turnlog, service, worker)
        _collect_rarely()
        async with server.listening() as port:
            host = settings.server.host
            base = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            if link is not None:
                tell(f"Sign in once at {base}{link}")
                tell(f"The administrator's token is in {settings.home / TOKEN_FILE}")
            elif (settings.home / TOKEN_FILE).exists():
                tell(f"To sign in, use the administrator's token in {settings.home / TOKEN_FILE}")
            tell(f"Turnlog is listening on {base}")
            for line in lines_for_clients(settings, base):
                tell(line)
            if worker is not None:
                worker.tell_ready()
            resumed = await turnlog.resume(rerun=True)
            service.log.info("started", base=base, store=settings.store_url().partition(":")[0], resumed=resumed)
            if service.gateway is not None:
                await service.gateway.start()
            loops = set(map(asyncio.create_task, loops_of(turnlog, service)))
            await server.serving
            for task in loops:
                task.cancel()
            await asyncio.wait(loops)


def _collect_rarely() -> None:
    """What is loaded by now stays until the end, and is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *COLLECT_OLDER_AFTER)


def lines_for_clients(settings: Settings, base: str) -> list[str]:
    """The three lines that a client of OpenAI's or Anthropic's protocol needs, and which models it may use."""
    if not settings.api.enabled:
        return []
    if may_relay(settings):
        which = f"to {default_model(settings).partition(':')[0]}; [api.models] names others"
    else:
        which = "agent: models only, because the server is not on loopback; [api] relay = true opens the others"
    return [
        f"Clients of OpenAI's or Anthropic's protocol ({which}):",
        f"  export OPENAI_BASE_URL={base}/v1",
        f"  export ANTHROPIC_BASE_URL={base}",
        "  export OPENAI_API_KEY=TOKEN ANTHROPIC_AUTH_TOKEN=TOKEN   # turnlog token create NAME --scope chat",
    ]


class Server:
    def __init__(self, turnlog: Turnlog, service: Service, worker: WorkerPlace | None = None) -> None:
        settings = service.settings.server
        self._worker = worker
        config = uvicorn.Config(
            create_app(service),
            host=settings.host,
            port=settings.port,
            http=LimitedConnection,
            ws="none",
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=list(settings.trusted_proxies),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=LAST_WRITES_S,
        )
        self._turnlog = turnlog
        self._service = service
        self._server = _Signalled(config, self._begin_closing, service)
        self._closing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[int]:
        settings = self._service.settings.server
        listener = self._worker.listening if self._worker else bind(settings.host, settings.port)
        self.serving = asyncio.create_task(self._server.serve([listener]))
        # A signal before uvicorn handles signals would end the process without closing anything.
        while not self._server.started and not self.serving.done():  # noqa: ASYNC110 - uvicorn has no event for this
            await asyncio.sleep(STARTING_S)
        if self._worker:
            self._worker.when_the_parent_ends(self._begin_closing)
        try:
            yield listener.getsockname()[1]
        finally:
            self._server.should_exit = True
            await asyncio.wait({self.serving})

    def _begin_closing(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())

    async def _close(self) -> None:
        service = self._service
        service.closing = True
        service.log.info("closing")
        if service.gateway is not None:
            service.gateway.begin_closing()
        if not await self._turnlog.drain(service.settings.server.drain_s):
            service.log.info("stopping turns")
        await self._turnlog.end_turns()
        await asyncio.sleep(LAST_EVENTS_S)  # streams of turns end by themselves
        for stream in list(service.streams):
            stream.close()
        self._server.should_exit = True


def bind(host: str, port: int) -> socket.socket:
    """Binds the port before the server starts, so that a port in use is an error of the command."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"cannot listen on {host}, port {port}: {error}", hint="Choose another address with --host and --port."
        ) from error
    # Connections inherit this option. asyncio sets it only on sockets that it made itself; without it the second
    # packet of every answer waits 40 ms for the client's acknowledgement of the first.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


class _Signalled(uvicorn.Server):
    """The first signal begins the orderly close; uvicorn handles the second. `Listener` accepts the connections."""

    def __init__(self, config: uvicorn.Config, begin: Any, service: Service) -> None:
        super().__init__(config)
        self._begin = begin
        self._service = service
        self._begun = False
        self._loop = asyncio.get_running_loop()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.servers: Any = [
            Listener(listening, self._make_connection, self._service.connections, self._files_are_short)
            for listening in sockets or ()
        ]
        self.started = True

    def _make_connection(self, peer: str) -> LimitedConnection:
        service = self._service
        return LimitedConnection(
            config=self.config,
            server_state=self.server_state,
            app_state={},
            peer=peer,
            connections=service.connections,
            head_s=service.settings.server.head_s,
        )

    def _files_are_short(self) -> None:
        self._service.log.warning("no file could be opened for a connection", open=len(self._service.connections))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._begun:
            self.force_exit = True
            super().handle_exit(sig, frame)
            return
        self._begun = True
        self._loop.call_soon_threadsafe(self._begin)

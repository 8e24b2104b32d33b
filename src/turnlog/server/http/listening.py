"""Accepts connections a few at a time, so that there are never many more of them than the limits allow.

asyncio's own servers accept everything that waits before our limits are asked: 400 waiting clients would take every
descriptor of a process that may open 256 files.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from .connections import Connections
from .head_limit import LimitedConnection, as_bytes

AT_ONCE = 16
"""Connections accepted before other tasks run, and before the sockets dropped for them are really closed."""
RETRY_S = 0.1
"""The pause after there was no file descriptor for a connection."""
LEFT_MAX_BYTES = 65_536
"""Read from a refused client before closing: unread bytes may make its system drop our answer."""


class Listener:
    """What uvicorn needs of an asyncio.Server: it says when to stop."""

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[str], LimitedConnection],
        connections: Connections,
        short: Callable[[], None],
    ) -> None:
        self._listening = listening
        self._make = make
        self._connections = connections
        self._short = short
        self._loop = asyncio.get_running_loop()
        self._arriving: set[asyncio.Task[None]] = set()
        self._closed = False
        listening.setblocking(False)
        self._loop.add_reader(listening, self._accept)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._listening)

    async def wait_closed(self) -> None:
        if self._arriving:
            await asyncio.wait(self._arriving)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._wait_for_room()
                return
            self._let_in(accepted, str(address[0]))

    def _wait_for_room(self) -> None:
        """No file descriptor is left: closes a connection that nobody needs."""
        self._short()
        self._connections.count("files")
        self._connections.make_room()
        self._loop.remove_reader(self._listening)
        self._loop.call_later(RETRY_S, self._listen_again)

    def _listen_again(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listening, self._accept)

    def _let_in(self, accepted: socket.socket, peer: str) -> None:
        refusal = self._connections.refusal_of(peer)
        if refusal is not None:
            self._connections.count("address" if refusal.status == 429 else "full")
            _answer(accepted, as_bytes(refusal))
            return
        connection = self._make(peer)
        self._connections.add(connection)
        task = asyncio.create_task(self._connect(connection, accepted))
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)

    async def _connect(self, connection: LimitedConnection, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: connection, accepted)
        except OSError:  # the client has already disconnected
            self._connections.remove(connection)
            accepted.close()


def _answer(accepted: socket.socket, said: bytes) -> None:
    with accepted:
        accepted.setblocking(False)
        with suppress(OSError):
            accepted.recv(LEFT_MAX_BYTES)
        with suppress(OSError):
            accepted.send(said)

"""A pooler in transaction mode, as small as it can be: every transaction of a client may run on another server
connection, so whatever a client leaves behind in its session is somebody else's. Each time it takes the connection
that was used longest ago, which is the worst case."""

import asyncio
import struct
import threading
from collections import deque

from ...waiting import GIVES_UP_S


class Pooler:
    def __init__(self, socket_path, size=3):
        self._path = socket_path
        self._size = size
        self.transactions = 0
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self):
        self._thread.start()
        assert self._started.wait(GIVES_UP_S)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(GIVES_UP_S)

    async def _run(self):
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._idle = {}
        self._room = {}
        self._tasks = set()
        listener = await asyncio.start_server(self._client, "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for database in self._idle.values():
            for _, writer in database:
                writer.close()

    async def _client(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader, writer):
        while True:
            (length,) = struct.unpack("!i", await reader.readexactly(4))
            body = await reader.readexactly(length - 4)
            (code,) = struct.unpack("!i", body[:4])
            if code == 196608:
                break
            writer.write(b"N")  # neither TLS nor GSS here
        fields = body[4:].split(b"\0")
        database = dict(zip(fields[::2], fields[1::2], strict=False))[b"database"].decode()
        writer.write(message(b"R", struct.pack("!i", 0)))
        for name, value in (("server_version", "18.0"), ("client_encoding", "UTF8"), ("integer_datetimes", "on")):
            writer.write(message(b"S", name.encode() + b"\0" + value.encode() + b"\0"))
        writer.write(message(b"K", struct.pack("!ii", 1, 1)) + message(b"Z", b"I"))
        server = None
        while True:
            request = b""
            while True:
                kind, whole = await read_message(reader)
                if kind == b"X":
                    return
                request += whole
                if kind in b"SQ":
                    break
            server = server or await self._take(database)
            if await relay(request, server, writer) == b"I":
                self.transactions += 1
                self._give(database, server)
                server = None

    async def _take(self, database):
        room = self._room.setdefault(database, asyncio.Semaphore(self._size))
        await room.acquire()
        idle = self._idle.setdefault(database, deque())
        if len(idle) < 2 or self._size < 2:
            return await self._connect(database)
        return idle.popleft()

    def _give(self, database, server):
        self._idle[database].append(server)
        self._room[database].release()

    async def _connect(self, database):
        reader, writer = await asyncio.open_unix_connection(self._path)
        fields = f"user\0postgres\0database\0{database}\0\0".encode()
        writer.write(struct.pack("!ii", len(fields) + 8, 196608) + fields)
        while (await read_message(reader))[0] != b"Z":
            pass
        return reader, writer


async def relay(request, server, client):
    """The state of the transaction after it."""
    reader, writer = server
    writer.write(request)
    while True:
        kind, whole = await read_message(reader)
        client.write(whole)
        if kind == b"Z":
            await client.drain()
            return whole[5:6]


async def read_message(reader):
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)


def message(kind, body):
    return kind + struct.pack("!i", len(body) + 4) + body

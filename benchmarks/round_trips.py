"""A socket in front of PostgreSQL that counts round trips: how often a client speaks after the server has answered.

Statements that go out together, as a pipeline or as one call of a function, are one round trip, whatever they hold.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

SOCKET = ".s.PGSQL.{port}"
PIECE_BYTES = 65_536


class RoundTrips:
    def __init__(self, behind: Path) -> None:
        self._behind = behind
        self._carried: set[asyncio.Task[None]] = set()
        self.count = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._carry(reader, writer))
        self._carried.add(task)
        task.add_done_callback(self._carried.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it."""
        from_server, to_server = await asyncio.open_unix_connection(self._behind)
        is_answered = True

        async def ask() -> None:
            nonlocal is_answered
            while piece := await reader.read(PIECE_BYTES):
                self.count += is_answered
                is_answered = False
                to_server.write(piece)
            to_server.write_eof()

        async def answer() -> None:
            nonlocal is_answered
            while piece := await from_server.read(PIECE_BYTES):
                is_answered = True
                writer.write(piece)

        try:
            with suppress(ConnectionError):
                await asyncio.gather(ask(), answer())
        finally:
            for one in (writer, to_server):
                one.close()
                with suppress(ConnectionError):
                    await one.wait_closed()

    async def close(self) -> None:
        for task in self._carried:
            task.cancel()
        await asyncio.gather(*self._carried, return_exceptions=True)


@asynccontextmanager
async def counting(behind: str | Path, place: Path, port: int = 5432) -> AsyncGenerator[RoundTrips]:
    """Listens in the folder `place` for a server whose socket is in the folder `behind`."""
    name = SOCKET.format(port=port)
    trips = RoundTrips(Path(behind) / name)
    server = await asyncio.start_unix_server(trips.accept, place / name)
    try:
        yield trips
    finally:
        server.close()
        await trips.close()

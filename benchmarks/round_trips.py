"""A socket in front of PostgreSQL that counts round trips: how often a client speaks after the server has answered.

Statements that go out together, as a pipeline or as one call of a function, are one round trip, whatever they hold.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

SOCKET = ".s.PGSQL.5432"
PIECE_BYTES = 65_536


class RoundTrips:
    def __init__(self, behind: str) -> None:
        self._behind = f"{behind}/{SOCKET}"
        self.count = 0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
            writer.close()

        with suppress(ConnectionError):
            await asyncio.gather(ask(), answer())
        to_server.close()


@asynccontextmanager
async def counting(behind: str, place: Path) -> AsyncGenerator[RoundTrips]:
    """Listens in the folder `place` for a server whose socket is in the folder `behind`."""
    trips = RoundTrips(behind)
    server = await asyncio.start_unix_server(trips.carry, place / SOCKET)
    try:
        yield trips
    finally:
        server.close()

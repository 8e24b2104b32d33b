"""A transport that sends the head of an answer together with what follows it.

The server software writes the head and the first part of the body apart, and each write costs both sides more than
making the event that it carries. A head without a body is sent at the next step of the event loop.
"""

import asyncio
from typing import Any

_HEAD = b"HTTP/1.1 "


class JoinedHead:
    """In all else the transport that it was made for."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""
        self._later: asyncio.Handle | None = None

    def write(self, data: bytes) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._forget_later()
            self._transport.write(head + data)
        elif data.startswith(_HEAD):
            self._head = data
            self._later = self._loop.call_soon(self._send_head)
        else:
            self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._send_head()
        self._transport.close()

    def abort(self) -> None:
        self._head = b""
        self._forget_later()
        self._transport.abort()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + len(self._head)

    def _send_head(self) -> None:
        self._forget_later()
        head, self._head = self._head, b""
        if head and not self._transport.is_closing():
            self._transport.write(head)

    def _forget_later(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

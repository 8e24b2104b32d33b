"""HTTP/1.1 as uvicorn parses it with httptools, with a limit on what is kept of a request that nobody has asked for."""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_MAX_BYTES = 65_536
"""Of a request's line and headers, or of what follows its body. Cookies and tokens need a hundredth of it."""


class Wire(HttpToolsProtocol):
    _held_bytes = 0
    """Received since something was handed on. A body is handed on as it comes, and limited by the front door."""

    def data_received(self, data: bytes) -> None:
        self._held_bytes += len(data)
        super().data_received(data)
        if self._held_bytes > HEAD_MAX_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        self._held_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._held_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._held_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._held_bytes = 0
        super().on_message_complete()

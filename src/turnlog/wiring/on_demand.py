"""Objects that are created at their first use and closed with Turnlog."""

from contextlib import AsyncExitStack

from ..errors import StoreUnavailable


class UntilClosed(AsyncExitStack):
    """Closes these objects; after it is closed, no more are created."""

    def __init__(self) -> None:
        super().__init__()
        self._is_closed = False
        self.callback(self._end)

    def _end(self) -> None:
        self._is_closed = True

    def check_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailable("Turnlog is closed", hint="Open it again.")

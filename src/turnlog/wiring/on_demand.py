"""What is created at its first use and closed with Turnlog."""

from contextlib import AsyncExitStack

from ..errors import StoreUnavailable


class UntilClosed(AsyncExitStack):
    """Holds what is created on demand; after the end nothing more is created."""

    def __init__(self) -> None:
        super().__init__()
        self._is_closed = False
        self.callback(self._end)

    def _end(self) -> None:
        self._is_closed = True

    def check_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailable("Turnlog is closed", hint="Open it again.")

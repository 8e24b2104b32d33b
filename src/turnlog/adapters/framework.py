"""Says which extra to install where a framework is missing."""

from collections.abc import Generator
from contextlib import contextmanager

from ..errors import MissingExtra


class MissingFramework(MissingExtra, ImportError):
    """The framework of this adapter is not installed."""


@contextmanager
def framework(extra: str) -> Generator[None]:
    """Wraps the imports of a framework."""
    try:
        yield
    except ImportError as error:
        message = f'{error}. Install it with: pip install "turnlog[{extra}]"'
        raise MissingFramework(message, extra=extra) from error

"""Structured logs: one JSON object a line, on stderr. Never a body, a query, a header or a token."""

import json
import logging
import sys
from typing import Any, TextIO

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from ..core import masking


def open_log(out: TextIO | None = None) -> FilteringBoundLogger:
    return structlog.wrap_logger(
        structlog.PrintLogger(out or sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _masked,
            structlog.processors.JSONRenderer(_line),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        cache_logger_on_first_use=True,
    )


def _line(event: dict[str, Any], **options: Any) -> str:
    """In ASCII: what somebody put into a path must not move a terminal's cursor."""
    try:
        line = msgspec.json.encode(event, enc_hook=str).decode()
    except UnicodeEncodeError:  # half a character, of a path that is no text
        line = ""
    return line if line and line.isascii() and "\x7f" not in line else json.dumps(event, default=str)


def _masked(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Paths and messages of errors come from outside and may hold anything."""
    return {name: masking.mask(value) if isinstance(value, str) else value for name, value in event.items()}

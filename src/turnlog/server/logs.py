"""Structured logs: one JSON object a line, on stderr. Never a body, a query, a header or a token.

In a server, all other lines are written the same way: those of libraries, of the event loop, of threads that failed,
and warnings. Log collectors lose lines that are not JSON.
"""

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TextIO, cast

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from ..core import masking


def open_log(out: TextIO | None = None) -> FilteringBoundLogger:
    return structlog.wrap_logger(
        structlog.WriteLogger(out or sys.stderr),
        processors=[_render],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        cache_logger_on_first_use=True,
    )


def log_everything_as_json() -> None:
    """Until the process ends: its last lines come after everything is closed."""
    log = open_log()

    def tell_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        log.critical("uncaught", exc_info=(kind, error, trace))

    def tell_thread(found: threading.ExceptHookArgs) -> None:
        if found.exc_value is not None:
            log.error("a thread failed", exc_info=(found.exc_type, found.exc_value, found.exc_traceback))

    def tell_unraisable(found: "sys.UnraisableHookArgs") -> None:
        where = f"{found.err_msg or 'exception ignored in'} {found.object!r}"
        log.error(where, exc_info=found.exc_value)

    logging.getLogger().addHandler(_Handler(log))
    logging.captureWarnings(True)
    sys.excepthook = tell_uncaught
    threading.excepthook = tell_thread
    sys.unraisablehook = tell_unraisable


class _Handler(logging.Handler):
    def __init__(self, log: FilteringBoundLogger) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.log(record.levelno, _message(record), logger=record.name, exc_info=record.exc_info)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        self._log.error("a line could not be written", logger=record.name)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage().strip()
    except Exception:  # noqa: BLE001 - a library logged wrong arguments; its message is kept
        return f"{record.msg} {record.args}"


_LEVELS = {"warn": "warning", "exception": "error"}
"""The levels of methods that are not named after theirs."""


def _render(logger: object, method: str, event: structlog.typing.EventDict) -> str:
    """All that happens to a line, in one step: a busy server writes two lines for each turn."""
    event["level"] = _LEVELS.get(method, method)
    event["timestamp"] = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    if "exc_info" in event:
        event = structlog.processors.format_exc_info(cast("Any", logger), method, event)
    return _line(_masked(event))


def _line(event: structlog.typing.EventDict) -> str:
    """In ASCII: characters of a path must not move the cursor of a terminal."""
    try:
        line = msgspec.json.encode(event, enc_hook=str).decode()
    except UnicodeEncodeError:  # a lone surrogate, from a path that is not UTF-8
        line = ""
    return line if line and line.isascii() and "\x7f" not in line else json.dumps(event, default=str)


def _masked(event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Paths and messages of errors come from outside and may hold anything. Most hold nothing: one look tells that."""
    whole = "\n".join([value for value in event.values() if isinstance(value, str)])
    if masking.mask(whole) == whole:
        return event
    return {name: masking.mask(value) if isinstance(value, str) else value for name, value in event.items()}

"""Spans and measurements through OpenTelemetry's API, where the program has loaded it.

Nothing is imported here. A user who wants traces configures OpenTelemetry's SDK, and that loads the API; in any other
program looking for it is one lookup in a dict. So Turnlog depends on no version of it, and costs nothing without it.

A span is current for the code inside its block, in tasks that are created there, and in threads that get a copy of the
context. Work that is done later, in a task that somebody else created, takes a `TraceParent` along.
"""

import sys
from asyncio import CancelledError
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, Literal, TypeAlias

SCOPE = "turnlog"
STOPPED = "stopped"
"""The error type of work that was cancelled."""

TraceParent: TypeAlias = Any
"""A context of OpenTelemetry; None: there is none."""
SpanKindName: TypeAlias = Literal["internal", "client", "server"]
Attributes: TypeAlias = Mapping[str, Any]
INHERITED = object()
"""The parent is the span that is current."""


class TracedSpan:
    """A span, or what stands for it where nobody traces."""

    def __init__(self, span: Any = None) -> None:
        self._span = span
        self.is_recorded = span is not None and bool(span.is_recording())
        self.error_type = ""

    def put(self, attributes: Attributes) -> None:
        """Values that are None are left out."""
        if self.is_recorded:
            self._span.set_attributes({name: value for name, value in attributes.items() if value is not None})

    def fail(self, error_type: str, description: str | None = None) -> None:
        """Once: the first error is the cause of the others."""
        if self.error_type:
            return
        self.error_type = error_type
        if self.is_recorded:
            status = _trace().Status(_trace().StatusCode.ERROR, description)
            self._span.set_attribute("error.type", error_type)
            self._span.set_status(status)


def _trace() -> Any:
    return sys.modules.get("opentelemetry.trace")


def _is_loaded() -> bool:
    return hasattr(_trace(), "get_tracer")


def is_heard() -> bool:
    """Whether the program has loaded anything that spans or measurements could be told to."""
    return "opentelemetry.trace" in sys.modules or "opentelemetry.metrics" in sys.modules


def current() -> TraceParent:
    """What later work must take along to be a part of this trace."""
    return sys.modules["opentelemetry.context"].get_current() if _is_loaded() else None


@contextmanager
def span(
    name: str, attributes: Attributes, *, kind: SpanKindName = "internal", parent: TraceParent = INHERITED
) -> Generator[TracedSpan]:
    """An error that leaves the block is its status; its text is not recorded, because it may quote what was said."""
    if not _is_loaded():
        yield TracedSpan()
        return
    trace = _trace()
    with trace.get_tracer(SCOPE).start_as_current_span(
        name,
        context=_context(parent),
        kind=trace.SpanKind[kind.upper()],
        attributes={key: value for key, value in attributes.items() if value is not None},
        record_exception=False,
        set_status_on_exception=False,
    ) as started:
        traced = TracedSpan(started)
        try:
            yield traced
        except CancelledError:
            traced.fail(STOPPED)
            raise
        except BaseException as error:
            traced.fail(type(error).__name__)
            raise


def _context(parent: TraceParent) -> Any:
    if parent is INHERITED:
        return None
    return sys.modules["opentelemetry.context"].Context() if parent is None else parent


def continuing(headers: Mapping[str, str]) -> AbstractContextManager[None]:
    """The trace that a request's headers name, unless a span is current already: then a program around this one has
    read them.
    """
    if not headers or not _is_loaded() or _trace().get_current_span().get_span_context().is_valid:
        return nullcontext()
    return _attached(headers)


@contextmanager
def _attached(headers: Mapping[str, str]) -> Generator[None]:
    from opentelemetry import context, propagate

    token = context.attach(propagate.extract(headers))
    try:
        yield
    finally:
        context.detach(token)


def measure(name: str, unit: str, value: float, attributes: Attributes, buckets: tuple[float, ...]) -> None:
    """Adds a value to a histogram, if the program has loaded OpenTelemetry's metrics."""
    if hasattr(sys.modules.get("opentelemetry.metrics"), "get_meter"):
        known = {key: value for key, value in attributes.items() if value is not None}
        _histogram(name, unit, buckets).record(value, known)


@cache
def _histogram(name: str, unit: str, buckets: tuple[float, ...]) -> Any:
    meter = sys.modules["opentelemetry.metrics"].get_meter(SCOPE)
    return meter.create_histogram(name, unit=unit, explicit_bucket_boundaries_advisory=buckets)

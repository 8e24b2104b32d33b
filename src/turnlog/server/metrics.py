"""Counts for Prometheus. No label says who or which session: labels are few, and pages of metrics are read by many."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ..core.events import Done, ErrorEvent, Event

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        here = self._registry
        self.requests = Counter("turnlog_requests_total", "Requests answered", ["method", "status"], registry=here)
        self.request_seconds = Histogram(
            "turnlog_request_seconds", "Time to the first byte of an answer", buckets=_SECONDS, registry=here
        )
        self.refused = Counter("turnlog_refused_total", "Requests refused at the door", ["reason"], registry=here)
        self.turns = Counter("turnlog_turns_total", "Turns ended", ["outcome"], registry=here)
        self.turns_running = Gauge("turnlog_turns_running", "Turns under way", registry=here)
        self.turn_seconds = Histogram("turnlog_turn_seconds", "Length of a turn", buckets=_SECONDS, registry=here)
        self.streams = Gauge("turnlog_streams", "Open event streams", registry=here)
        self.rejoined = Counter("turnlog_streams_rejoined_total", "Streams that clients came back to", registry=here)
        self.channels = ChannelCounts(here)

    @contextmanager
    def turn(self) -> Generator[Callable[[Event], None]]:
        start = time.monotonic()
        self.turns_running.inc()
        try:
            yield self._count_end
        finally:
            self.turns_running.dec()
            self.turn_seconds.observe(time.monotonic() - start)

    def _count_end(self, event: Event) -> None:
        outcome = "done" if isinstance(event, Done) else "error" if isinstance(event, ErrorEvent) else "stopped"
        self.turns.labels(outcome).inc()

    def page(self) -> bytes:
        return generate_latest(self._registry)


class ChannelCounts:
    """What channels bring in and what is sent to them, by the channel's kind: an `outbox.Tally`."""

    def __init__(self, here: CollectorRegistry) -> None:
        how = ["kind", "outcome"]
        self._messages = Counter("turnlog_channel_messages_total", "Deliveries of platforms", how, registry=here)
        self._replies = Counter("turnlog_channel_replies_total", "Replies ended or put off", how, registry=here)
        self._waiting = Gauge("turnlog_channel_replies_waiting", "Replies that wait to be sent", registry=here)

    def message(self, kind: str, outcome: str) -> None:
        self._messages.labels(kind, outcome).inc()

    def reply(self, kind: str, outcome: str) -> None:
        self._replies.labels(kind, outcome).inc()

    def waiting(self, letters: int) -> None:
        self._waiting.set(letters)

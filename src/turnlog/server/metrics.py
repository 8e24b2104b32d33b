"""Metrics for Prometheus. No label names a person or a session: label values must be few, and many people read them."""

import os
import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from ..runtime import background
from ..stores import facts
from .workers import METRICS_DIR

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SUM = "livesum"
"""A gauge of several workers is the sum of those that run."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_OWN = (
    ("turnlog_background_failures", "Failures of what runs in the background", "loop", background.failures),
    ("turnlog_unreadable_facts", "Facts that cannot be read", "space", facts.unreadable),
)
"""(name, meaning, label, counts) of what other modules count for the whole process."""


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        here = self._registry
        self.requests = Counter("turnlog_requests_total", "Requests answered", ["method", "status"], registry=here)
        self.request_seconds = Histogram(
            "turnlog_request_seconds", "Time to the first byte of an answer", buckets=_SECONDS, registry=here
        )
        self.refused = Counter("turnlog_refused_total", "Requests refused before handling", ["reason"], registry=here)
        self.turns = Counter("turnlog_turns_total", "Turns ended", ["outcome"], registry=here)
        self.turns_running = Gauge("turnlog_turns_running", "Turns under way", registry=here, multiprocess_mode=_SUM)
        self.approvals = Counter("turnlog_approvals_total", "Answers to calls that waited", ["word"], registry=here)
        self.turn_seconds = Histogram("turnlog_turn_seconds", "Length of a turn", buckets=_SECONDS, registry=here)
        self.streams = Gauge("turnlog_streams", "Open event streams", registry=here, multiprocess_mode=_SUM)
        self.rejoined = Counter("turnlog_streams_rejoined_total", "Streams that clients came back to", registry=here)
        self.connections = Gauge("turnlog_connections", "Open connections", registry=here, multiprocess_mode=_SUM)
        self._refused_connections = Counter(
            "turnlog_connections_refused_total", "Connections refused or closed early", ["reason"], registry=here
        )
        self.channels = ChannelCounts(here)
        self._is_one_of_several = METRICS_DIR in os.environ
        self._shared: list[tuple[Counter, Callable[[], dict[str, int]], dict[str, int]]] = []
        if self._is_one_of_several:
            self._shared = [(Counter(name, says, [label], registry=here), read, {}) for name, says, label, read in _OWN]
        else:
            here.register(ProcessCounters())

    def count_refused(self, reason: str) -> None:
        self._refused_connections.labels(reason).inc()

    def begin_turn(self) -> float:
        """Gives the time for `end_turn`."""
        self.turns_running.inc()
        return time.monotonic()

    def end_turn(self, begun_at: float) -> None:
        self.turns_running.dec()
        self.turn_seconds.observe(time.monotonic() - begun_at)

    def page(self) -> bytes:
        """Of all workers, if there are several."""
        if not self._is_one_of_several:
            return generate_latest(self._registry)
        self.share()
        together = CollectorRegistry()
        MultiProcessCollector(together)
        return generate_latest(together)

    def share(self) -> None:
        """Tells the other workers what this process has counted by itself."""
        for counter, read, told in self._shared:
            for label, count in read().items():
                counter.labels(label).inc(count - told.get(label, 0))
                told[label] = count


class ProcessCounters(Collector):
    """Reads them when the metrics are requested."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        for name, says, label, read in _OWN:
            family = CounterMetricFamily(name, says, labels=[label])
            for value, count in read().items():
                family.add_metric([value], count)
            yield family


class ChannelCounts:
    """Counts what channels deliver and what is sent to them, by kind of channel: an `outbox.DeliveryCounter`."""

    def __init__(self, here: CollectorRegistry) -> None:
        how = ["kind", "outcome"]
        self._messages = Counter("turnlog_channel_messages_total", "Deliveries of platforms", how, registry=here)
        self._replies = Counter("turnlog_channel_replies_total", "Replies ended or put off", how, registry=here)
        self._waiting = Gauge(
            "turnlog_channel_replies_waiting",
            "Replies that wait to be sent",
            registry=here,
            multiprocess_mode=_SUM,
        )

    def message(self, kind: str, outcome: str) -> None:
        self._messages.labels(kind, outcome).inc()

    def reply(self, kind: str, outcome: str) -> None:
        self._replies.labels(kind, outcome).inc()

    def waiting(self, replies: int) -> None:
        self._waiting.set(replies)

"""A store and its ledger that count the calls made to them, for tests of what a turn costs."""

from contextlib import asynccontextmanager

from turnlog.stores import open_store
from turnlog.turns.stopping import STOPS

CALLS = ("append", "read", "describe", "find", "search", "delete", "lease", "abandoned", "watch")
LEDGER_CALLS = ("get", "put_if_absent", "cas", "list", "delete")


class Counted:
    """Passes everything on, and notes the calls in order. Looks for stop requests go by the clock, not by the turn."""

    def __init__(self, real, names, calls, prefix=""):
        self._real = real
        self._names = names
        self._calls = calls
        self._prefix = prefix
        if not prefix:
            self.ledger = Counted(real.ledger, LEDGER_CALLS, calls, "ledger.")

    def __getattr__(self, name):
        found = getattr(self._real, name)
        if name not in self._names:
            return found

        def call(*args, **options):
            if args[:1] != (STOPS,):
                self._calls.append(f"{self._prefix}{name}" + (f" {args[0]}" if self._prefix else ""))
            return found(*args, **options)

        return call


def count_calls(monkeypatch):
    """The list that the calls to every store opened from now on are noted in."""
    calls = []

    @asynccontextmanager
    async def counted(url, **options):
        async with open_store(url, **options) as store:
            yield Counted(store, CALLS, calls)

    monkeypatch.setattr("turnlog.wiring.open_store", counted)
    return calls

"""Tells a client of a relay what a turn of one of our agents says."""

from ..core import events
from ..core.events import Event, Snapshot, TextDelta, ThinkingDelta
from ..errors import NotFound, ProviderRefused, StoreUnavailable
from ..providers import Delta
from .relay_call import RelayCall


class RelayedTurn:
    """Passes the events of an agent's turn on as pieces."""

    def __init__(self, call: RelayCall) -> None:
        self._call = call
        self._begins = False
        self.error: Exception | None = None

    def __call__(self, event: Event) -> None:
        match event:
            case TextDelta(text=text):
                self._call.add(Delta(text=text, begins=self._begins))
                self._begins = False
            case ThinkingDelta(text=text):
                self._call.add(Delta(thinking=text))
            case events.ErrorEvent():
                self.error = _error_of(event)
                self._call.tell(event)
            case Snapshot() | events.ToolCall():
                self._begins = True
                self._call.tell(event)
            case _:
                self._call.tell(event)


def _error_of(event: events.ErrorEvent) -> Exception:
    kinds = {"provider": ProviderRefused, "store": StoreUnavailable, "deleted": NotFound}
    return kinds.get(event.code, ProviderRefused)(event.error, hint=event.hint)

"""What the next turn of a session answers: a message, messages that waited, or the last message again."""

from msgspec import Struct

from ..core.entries import Received
from ..runtime.tracing import TraceParent
from .journal import Journal
from .tickets import Incoming, Lane, Ticket


class TurnRequest(Struct, frozen=True, kw_only=True):
    """What a turn answers: a new message, messages that waited or, with neither, the last message again."""

    ticket: Ticket | None = None
    """Of a new message, which the turn stores itself, or of the wish to send the last one again."""
    waiting: tuple[Received, ...] = ()
    context: str = ""
    resumes: bool = False
    """The last turn was paused, and every call that waited has its answer."""
    asks: bool = True
    """Whether somebody can be asked for approval."""
    unrecorded: bool = False
    """Nothing of it may be kept anywhere: not in the request log, and not in traces."""
    trace: TraceParent = None
    """Whose message it answers, for traces: the turn runs in a task that somebody else may have created."""

    @property
    def message(self) -> Incoming | None:
        """The new message, if there is one."""
        return self.ticket.incoming if self.ticket and not self.ticket.incoming.retry else None

    @property
    def repeats(self) -> bool:
        """Whether it runs a turn that has begun before."""
        return self.message is None and not self.waiting


def of_ticket(ticket: Ticket) -> TurnRequest:
    incoming = ticket.incoming
    return TurnRequest(ticket=ticket, context=incoming.context, asks=incoming.asks, trace=ticket.trace)


def next_waiting(lane: Lane, journal: Journal) -> TurnRequest:
    chosen = journal.next_waiting()
    tickets = [lane.waiting[entry.seq] for entry in chosen if entry.seq in lane.waiting]
    known = [ticket.incoming for ticket in tickets]
    context = "\n\n".join(filter(None, (incoming.context for incoming in known)))
    trace = tickets[0].trace if tickets else None
    return TurnRequest(waiting=chosen, context=context, asks=all(incoming.asks for incoming in known), trace=trace)

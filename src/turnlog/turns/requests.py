"""What the next turn of a session answers: a message, messages that waited, or the last message again."""

from msgspec import Struct

from ..core.entries import Content, Received
from ..runtime.tracing import TraceParent
from .journal import Journal
from .tickets import Lane, Ticket


class TurnRequest(Struct, frozen=True, kw_only=True):
    """What a turn answers: a new message, messages that waited or, with neither, the last message again."""

    content: Content | None = None
    message_id: str | None = None
    dedupe_id: str | None = None
    sender: str | None = None
    since: int = 0
    """The end of the log when this delivery was first seen."""
    waiting: tuple[Received, ...] = ()
    context: str = ""
    retry: bool = False
    """The last turn failed, and its message is sent again."""
    rewind_to: int | None = None
    """The message follows this entry, which ends a turn."""
    resumes: bool = False
    """The last turn was paused, and every call that waited has its answer."""
    asks: bool = True
    """Whether somebody can be asked for approval."""
    unrecorded: bool = False
    """Nothing of it may be kept anywhere: not in the request log, and not in traces."""
    trace: TraceParent = None
    """Whose message it answers, for traces: the turn runs in a task that somebody else may have created."""

    @property
    def repeats(self) -> bool:
        """Whether it runs a turn that has begun before."""
        return self.content is None and not self.waiting


def of_ticket(ticket: Ticket) -> TurnRequest:
    incoming = ticket.incoming
    if incoming.retry:
        return TurnRequest(retry=True, context=incoming.context, trace=ticket.trace)
    return TurnRequest(
        content=incoming.content,
        message_id=incoming.message_id,
        dedupe_id=incoming.dedupe_id,
        sender=incoming.sender,
        since=ticket.since,
        context=incoming.context,
        asks=incoming.asks,
        trace=ticket.trace,
        rewind_to=incoming.rewind_to,
    )


def next_waiting(lane: Lane, journal: Journal) -> TurnRequest:
    chosen = journal.next_waiting()
    tickets = [lane.waiting[entry.seq] for entry in chosen if entry.seq in lane.waiting]
    known = [ticket.incoming for ticket in tickets]
    context = "\n\n".join(filter(None, (incoming.context for incoming in known)))
    trace = tickets[0].trace if tickets else None
    return TurnRequest(waiting=chosen, context=context, asks=all(incoming.asks for incoming in known), trace=trace)

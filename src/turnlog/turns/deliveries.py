"""Stores each message once, however often its platform delivers it and whichever process dies meanwhile.

A delivery is known by its channel, its account and the id that the platform gave it. Before a message is stored, its
delivery is claimed in the ledger, together with the place where the session's log ends at that moment. A process that
is handed the same delivery again reads the log from there on: either the message is in it, or the process that claimed
it died before storing it.
"""

from contextlib import suppress

from msgspec import Struct

from ..core import answers
from ..core.entries import Received
from ..core.heard import HEARD
from ..core.session import Session
from ..errors import Busy, Conflict, NotFound
from ..stores import Ledger, Store, facts
from .tickets import Incoming, Ticket

DELIVERED = "delivered"
"""The ledger's space for: delivery → its DeliveryClaim."""
DELIVERED_TTL_S = 7 * 24 * 3600.0


class DeliveryClaim(Struct, frozen=True):
    """Where a message went, and where that log ended: written before the message is stored."""

    session: str
    since: int
    incarnation: str | None = None
    """None in facts of an older version."""


def scope_of(channel: str, account: str | None) -> str:
    """Delivery ids are unique within a channel and account."""
    return f"{channel}|{account or ''}"


def delivery_key(scope: str, dedupe_id: str | None) -> str:
    return f"{scope}|{dedupe_id}"


async def claim_of(ledger: Ledger, key: str) -> DeliveryClaim | None:
    return facts.read(DELIVERED, key, await ledger.get(DELIVERED, key), DeliveryClaim)


class Deliveries:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def claim(self, ticket: Ticket) -> bool:
        """Whether this delivery is new, or was claimed by a process that died before storing it.

        In the latter case the ticket is for the session of that claim from then on.
        """
        key = _key(ticket.incoming)
        mine = DeliveryClaim(ticket.session_id, ticket.since, ticket.incarnation)
        older = await self._store.ledger.put_if_absent(DELIVERED, key, facts.write(mine), ttl_s=DELIVERED_TTL_S)
        if older is None:
            return True
        # If the claim cannot be read, the whole log that such messages go to now is searched.
        seen = facts.read(DELIVERED, key, older, DeliveryClaim) or DeliveryClaim(mine.session, 0, mine.incarnation)
        ticket.session_id, ticket.since, ticket.incarnation = seen.session, seen.since, seen.incarnation
        with suppress(NotFound):
            return not await self._is_stored(ticket)
        return False  # its session was deleted since: it does not come back

    async def release(self, ticket: Ticket) -> None:
        """Takes back the claim of a message that was refused: its next delivery must not count as stored."""
        if ticket.incoming.dedupe_id is not None:
            await self._store.ledger.delete(DELIVERED, _key(ticket.incoming))

    async def store(self, ticket: Ticket, mode: str, *, cap: int | None = None) -> int | None:
        """Stores it as `received`, and gives its seq; None: it had been delivered before. Busy if `cap` wait."""
        once = ticket.incoming.dedupe_id is not None
        body = _received(ticket.incoming, mode)
        while True:
            row = await self._store.describe(ticket.session_id, incarnation=ticket.incarnation)
            if cap is not None and len(row.received) >= cap:
                await self.release(ticket)
                raise Busy(
                    f"{len(row.received)} messages wait in this session already",
                    hint="Wait until they are answered, stop the running turn, or raise queue.cap.",
                )
            if once and await self._is_stored(ticket):
                return None
            expect = row.last_seq if once else None
            try:
                [entry] = await self._store.append(row.id, [body], expect=expect, incarnation=ticket.incarnation)
            except Conflict:
                if not once:
                    raise
                continue
            return entry.seq

    async def hear(self, row: Session, incoming: Incoming) -> bool:
        """Stores what was said without asking for an answer (`core/heard`); False: it had been delivered before."""
        ticket = Ticket(row, incoming)
        if incoming.dedupe_id is not None and not await self.claim(ticket):
            return False
        return await self.store(ticket, HEARD) is not None

    async def _is_stored(self, ticket: Ticket) -> bool:
        later = await self._store.read(ticket.session_id, after=ticket.since, incarnation=ticket.incarnation)
        return answers.delivered(later, ticket.incoming.dedupe_id or "") is not None


def _key(incoming: Incoming) -> str:
    return delivery_key(incoming.dedupe_scope, incoming.dedupe_id)


def _received(incoming: Incoming, mode: str) -> Received:
    return Received(
        content=incoming.content,
        message_id=incoming.message_id,
        dedupe_id=incoming.dedupe_id,
        sender=incoming.sender,
        mode=mode,
    )

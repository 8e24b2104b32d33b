"""Messages that continue a session from an earlier entry."""

from msgspec.structs import replace

from ..core.entries import Content
from ..sessions.checking import checked_methods
from ..turns.queue import Incoming, Ticket
from . import finding
from .parts import Where
from .verbs import Verbs, checked_content, delivery_scope


@checked_methods
class RewindingVerbs(Verbs):
    """What an `Access` does at an earlier place of a log."""

    async def accept_after(
        self,
        where: Where,
        to: int,
        content: Content,
        *,
        sender: str | None = None,
        dedupe_id: str | None = None,
        context: str = "",
        recall: bool = False,
    ) -> Ticket:
        """Accepts a message that follows entry `to`, which must end a turn; what came after `to` is rewound.

        The rewind and the message are one append: either both are stored or neither. Busy while a turn runs.
        """
        content = checked_content(content)
        row = finding.untrashed(await self._finder.opened(where, write=True))
        await self.sessions.check_rewind(row, to)
        if recall:
            context = "\n\n".join(filter(None, (context, await self._recalled(row, content))))
        incoming = Incoming(
            content=content,
            dedupe_id=dedupe_id,
            dedupe_scope=delivery_scope(where, row),
            sender=sender,
            context=context,
            rewind_to=to,
        )
        if not self._runner.journal.direct:  # its journal stores the words later, and so in an append of their own
            row = await self.sessions.rewind(row.id, to)
            incoming = replace(incoming, rewind_to=None)
        return await self._queue.accept(row, incoming)

"""Messages that name the place in the log that they follow: an earlier entry, or where the last turn here ended."""

from ..core.entries import Content
from ..core.session import Session
from ..errors import NotFound
from ..sessions.checking import checked_methods
from ..turns.queue import Incoming, Ticket
from . import finding
from .parts import Where
from .verbs import Verbs, checked_content, delivery_scope


@checked_methods
class RewindingVerbs(Verbs):
    """What an `Access` does at a certain place of a log."""

    def left_here(self, session_id: str) -> Session:
        """The row as the last turn in this process left it; others may have changed it since. NotFound if no turn ran
        here, or sessions are not stored.
        """
        row = self._runner.row_here(session_id)
        if row is None or not self._settings.enabled:
            raise NotFound(f"no turn of session {session_id} ran here")
        return self.sessions.admit(row, write=True)

    async def accept_if_unchanged(
        self, row: Session, content: Content, *, sender: str | None = None, context: str = "", recall: bool = False
    ) -> Ticket:
        """Accepts a message if nothing was written to the session since this row was read; otherwise nothing is stored,
        and Conflict, Busy or NotFound is raised.
        """
        content = checked_content(content)
        row = await self._finder.receiving(row)
        context = await self._with_memory(context, row, content) if recall else context
        return await self._queue.accept(
            row, Incoming(content=content, sender=sender, context=context, if_unchanged=True)
        )

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
        context = await self._with_memory(context, row, content) if recall else context
        incoming = Incoming(
            content=content,
            dedupe_id=dedupe_id,
            dedupe_scope=delivery_scope(where, row),
            sender=sender,
            context=context,
            rewind_to=to,
        )
        return await self._queue.accept(row, incoming)

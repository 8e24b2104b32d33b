"""What one principal may do with sessions and turns. Edges get an `Access`, which offers no way around the check.

    Turnlog ── acting_for(principal) ──▶ Access      .sessions: the checked sessions; send, compact, stop, watch, …
                                           └─ session(x) ──▶ SessionHandle: the same about one session

Every method finds its session through `Sessions`, which knows the principal: a session that the principal may not see
is NotFound, one that it may see but not change is Denied. The store, the queue and the runner are private here, and so
is everything that belongs to the process (`Turnlog`: settings, start, close).
"""

from ..core import keys
from ..core.keys import SessionById
from ..errors import UsageError
from ..sessions.checking import checked_methods
from .calling import CallingVerbs
from .finding import meant
from .handle import SessionHandle as SessionHandle
from .parts import (
    AgentModel as AgentModel,
    Agents as Agents,
    BoundSession as BoundSession,
    CompactionReport as CompactionReport,
    Parts as Parts,
    SessionPlace,
    Where as Where,
)


@checked_methods
class Access(CallingVerbs):
    def session(
        self,
        where: Where | None = None,
        *,
        id: str | None = None,  # noqa: A002 - t.session(id=…) is the name people look for
        user: str | None = None,
        agent: str | None = None,
        channel: str | None = None,
    ) -> SessionHandle:
        """A handle of one session, at once; nothing is opened before it is used. `await` it to open the session.

        `t.session("ann")` is the chat with ann; a text of the form `ses-…` is an id, one that begins with `agent:` is a
        key. Use `t.session(user=text)` for a text from outside, which is then never read as an id or a key, and
        `t.session(id=text)` for ids of other forms.
        Example: `chat = t.session(user="ann", agent="main", channel="web")`
        """
        return SessionHandle(self, self._finder, _place_of(where, id, user, agent, channel))


def _place_of(
    where: Where | None, session_id: str | None, user: str | None, agent: str | None, channel: str | None
) -> SessionPlace:
    if sum(given is not None for given in (where, session_id, user)) != 1:
        raise UsageError(
            "a session is named in one way: by a name, a key or a row, by id=, or by user=",
            hint='Write t.session("ann"), t.session(id="…"), or t.session(user="ann", agent="support", channel="web").',
        )
    if user is not None:
        return keys.app_key(user, agent=agent or keys.DEFAULT_AGENT, channel=channel or keys.APP_CHANNEL)
    if agent is not None or channel is not None:
        raise UsageError(
            "agent= and channel= belong to user=", hint='Write t.session(user="ann", agent="support", channel="web").'
        )
    return meant(where) if where is not None else SessionById(keys.check_session_id(session_id or ""))

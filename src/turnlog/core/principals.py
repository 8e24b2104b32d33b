"""Decides who may see and use what. For what a principal may not see, the caller says NotFound, not Denied."""

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Denied, NotFound
from . import keys, query as queries
from .arguments import Typed
from .keys import SessionKey
from .query import Query
from .session import Session


class Principal(Struct, metaclass=Typed, frozen=True):
    """The person or program on whose behalf a call is made. Scopes: chat (own sessions), read (its agents'), admin
    (all).
    """

    name: str
    scopes: frozenset[str] = frozenset({"chat"})
    agents: frozenset[str] | None = None
    """None: every agent."""
    channels: frozenset[str] | None = None
    """None: every channel."""


OWNER = Principal("owner", frozenset({"admin"}))
"""The user who runs Turnlog on their own machine."""
LOCAL_PROGRAM = Principal("owner", frozenset({"admin"}), channels=frozenset({"cli", "app", "api"}))
"""A program that this user connected: it sees what their own programs stored, and nothing of the page or a platform."""


HOMES = ("web", "api")
"""The channels of principals' own sessions: the page, and clients of the compatible endpoints."""


def of_agent(agent: str) -> Principal:
    """An agent acting for itself, as its tools do: it may see its own sessions and change nothing."""
    return Principal(f"agent {agent}", frozenset({"read"}), frozenset({agent}))


def home_key(who: Principal, agent: str) -> SessionKey:
    """The key of a principal's own sessions."""
    return SessionKey(agent=agent, channel="web", kind="direct", peer=who.name)


def homes_of(who: Principal, agent: str) -> tuple[str, ...]:
    """The keys of a principal's own sessions with an agent, on each channel that has them."""
    return tuple(keys.format(replace(home_key(who, agent), channel=one)) for one in HOMES)


def sees(who: Principal, row: Session) -> bool:
    if not _reaches(who, row.agent, row.channel):
        return False
    if not who.scopes.isdisjoint({"admin", "read"}):
        return True
    return "chat" in who.scopes and is_home(who, row)


def _reaches(who: Principal, agent: str, channel: str) -> bool:
    return (who.agents is None or agent in who.agents) and (who.channels is None or channel in who.channels)


def sees_place(who: Principal, key: SessionKey) -> bool:
    """Whether they see the sessions of this place: what the memory keeps of it is theirs too."""
    if not _reaches(who, key.agent, key.channel):
        return False
    if not who.scopes.isdisjoint({"admin", "read"}):
        return True
    own = replace(home_key(who, key.agent), channel=key.channel)
    return "chat" in who.scopes and key.channel in HOMES and replace(key, thread=None) == own


def is_home(who: Principal, row: Session) -> bool:
    """Whether it is the principal's own session: a direct one with their name, on the page or through a client."""
    if row.channel not in HOMES:
        return False
    key = keys.parse(row.key)
    return (key.channel, key.kind, key.peer, key.account) == (row.channel, "direct", who.name, None)


def owns(who: Principal, row: Session) -> bool:
    """Whether the principal may write to it. The scope `read` is not enough, even together with `chat`."""
    if not sees(who, row):
        return False
    return "admin" in who.scopes or ("chat" in who.scopes and is_home(who, row))


def check_agent(who: Principal, agent: str) -> None:
    if who.agents is not None and agent not in who.agents:
        raise NotFound("there is no such agent", hint="Name an agent that you may use.")


def check_key(who: Principal, key: SessionKey) -> None:
    check_agent(who, key.agent)
    if who.channels is not None and key.channel not in who.channels:
        raise NotFound("there is no such key", hint=f"Use one of the channels {', '.join(sorted(who.channels))}.")
    if "admin" in who.scopes or ("chat" in who.scopes and key == home_key(who, key.agent)):
        return
    if "read" in who.scopes:
        raise Denied("you may not use this key")
    raise NotFound("there is no such key", hint="Leave out the key to use your own.")


def narrow(who: Principal, query: Query) -> Query:
    """The same query, restricted to what the principal may see."""
    query = _on_channels(who, query)
    asked = queries.any_of(query.agent)
    theirs = None if who.agents is None else tuple(sorted(who.agents))
    if who.agents is not None and asked is not None and not who.agents.issuperset(asked):
        raise Denied("you may not use these agents", hint="Name your own agents.")
    if who.scopes.isdisjoint({"admin", "read"}):
        return replace(query, homes=homes_of(who, _only(asked or theirs or ("main",))))
    if asked is None and theirs is not None:
        return replace(query, agent=theirs[0] if len(theirs) == 1 else theirs)
    return query


def _on_channels(who: Principal, query: Query) -> Query:
    if who.channels is None:
        return query
    asked = queries.any_of(query.channel)
    if asked is not None and not who.channels.issuperset(asked):
        raise Denied("you may not see these channels", hint=f"Name one of {', '.join(sorted(who.channels))}.")
    return query if asked is not None else replace(query, channel=tuple(sorted(who.channels)))


def _only(agents: tuple[str, ...]) -> str:
    if len(agents) != 1:
        raise Denied("the request does not say which agent it is for", hint="Name one of your agents.")
    return agents[0]

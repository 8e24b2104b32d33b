"""Who may see and use what. What one may not see does not exist for one; the caller says NotFound, not Denied."""

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Denied, NotFound
from . import keys, query as queries
from .keys import SessionKey
from .query import Query
from .session import Session


class Principal(Struct, frozen=True):
    """On whose behalf. Scopes: chat (own sessions), read (its agents'), admin (all)."""

    name: str
    scopes: frozenset[str] = frozenset({"chat"})
    agents: frozenset[str] | None = None
    """None: every agent."""


OWNER = Principal("owner", frozenset({"admin"}))
"""Whoever runs Turnlog on their own machine."""


def home_key(who: Principal, agent: str) -> SessionKey:
    """Where a principal's own sessions are."""
    return SessionKey(agent=agent, channel="web", kind="direct", peer=who.name)


def sees(who: Principal, row: Session) -> bool:
    if who.agents is not None and row.agent not in who.agents:
        return False
    if not who.scopes.isdisjoint({"admin", "read"}):
        return True
    return "chat" in who.scopes and row.key == keys.format(home_key(who, row.agent))


def owns(who: Principal, row: Session) -> bool:
    """May write to it. Seeing it by the scope `read` is not enough, also for one who may chat elsewhere."""
    if not sees(who, row):
        return False
    return "admin" in who.scopes or ("chat" in who.scopes and row.key == keys.format(home_key(who, row.agent)))


def check_key(who: Principal, key: SessionKey) -> None:
    if who.agents is not None and key.agent not in who.agents:
        raise NotFound("there is no such agent")
    if "admin" not in who.scopes and key != home_key(who, key.agent):
        raise Denied("this key belongs to somebody else")


def narrow(who: Principal, query: Query) -> Query:
    """The same question, about what is theirs only."""
    asked = queries.agents(query)
    theirs = None if who.agents is None else tuple(sorted(who.agents))
    if who.agents is not None and asked is not None and not who.agents.issuperset(asked):
        raise Denied("name agents that are yours")
    if who.scopes.isdisjoint({"admin", "read"}):
        return replace(query, key=keys.format(home_key(who, _only(asked or theirs or ("main",)))))
    if asked is None and theirs is not None:
        return replace(query, agent=theirs[0] if len(theirs) == 1 else theirs)
    return query


def _only(agents: tuple[str, ...]) -> str:
    if len(agents) != 1:
        raise Denied("name one of your agents")
    return agents[0]

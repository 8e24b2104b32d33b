"""Who may approve calls in the sessions of channels: the people whom the account's settings name, and nobody else.

Anybody can write to a bot, so a word in a chat counts only from somebody whom the operator has named. Sessions of the
terminal, the page and the library belong to one principal, who may approve in them.
"""

from collections.abc import Mapping
from typing import Any, cast

from ..core import keys
from ..core.session import Session

NAME = "approvers"
"""The setting of an account: ids of senders."""


def approvers(given: Mapping[str, Mapping[str, Any]], row: Session) -> tuple[str, ...] | None:
    """The ids of those who may approve in this session; None if it is not a session of a channel.

    `given`: the tables of `[channels.*]`.
    """
    place = keys.parse(row.key)
    if place.channel == "any":  # one session for several channels (`dm_scope`)
        return tuple(name for kind in given.values() for table in _accounts(kind) for name in _named(table))
    if place.channel not in given:
        return None
    table = given[place.channel]
    return _named(cast("Mapping[str, Any]", table.get(place.account, {})) if place.account else table)


def may_ask(given: Mapping[str, Mapping[str, Any]], row: Session) -> bool:
    """Whether there is anybody who may approve."""
    return approvers(given, row) != ()


def may_approve(given: Mapping[str, Mapping[str, Any]], row: Session, sender: str | None) -> bool:
    found = approvers(given, row)
    return found is None or sender in found


def _accounts(table: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [table, *(cast("Mapping[str, Any]", value) for value in table.values() if isinstance(value, dict))]


def _named(table: Mapping[str, Any]) -> tuple[str, ...]:
    found: Any = table.get(NAME, ())
    return tuple(map(str, cast("list[Any]", found))) if isinstance(found, list | tuple) else ()

"""What `/new` creates, as `session.new_makes` says: each system that a preset imitates names its sessions differently.

session   one more session at the key; the word is its label
id        the same, and the word is its id
label     the same, and it always has a label: the word, or one made from the time
key       a key of its own, made from the time; the word is its label
"""

import time

from ..core import keys
from ..core.keys import SessionKey
from ..core.query import Query
from ..core.session import Session
from ..stores import Clock
from . import Sessions


async def make(
    sessions: Sessions,
    makes: str,
    place: SessionKey,
    clock: Clock,
    *,
    word: str | None = None,
    label: str | None = None,
) -> Session:
    """`word`: the text after `/new`. `label`: a label in any case."""
    match makes:
        case "id":
            return await sessions.new(place, session_id=word, label=label)
        case "label":
            return await sessions.new(place, label=label or word or await _free_label(sessions, place, _moment(clock)))
        case "key":
            return await sessions.open(await _free_key(sessions, place, _moment(clock)), label=label or word)
        case _:
            return await sessions.new(place, label=label or word)


def _moment(clock: Clock) -> str:
    """The time as claw0 writes it into its keys."""
    return time.strftime("%H%M%S", time.localtime(clock() / 1000))


async def _free_label(sessions: Sessions, place: SessionKey, moment: str) -> str:
    label, number = moment, 1
    while (await sessions.list(Query(key=keys.format(place), label=label, limit=1))).items:
        number += 1
        label = f"{moment}_{number}"
    return label


async def _free_key(sessions: Sessions, place: SessionKey, moment: str) -> SessionKey:
    base = f"{place.peer.partition('_')[0]}_{moment}"
    peer, number = base, 1
    while True:
        fresh = SessionKey(agent=place.agent, channel=place.channel, account=place.account, kind=place.kind, peer=peer)
        if not (await sessions.list(Query(key=keys.format(fresh), limit=1))).items:
            return fresh
        number += 1
        peer = f"{base}_{number}"

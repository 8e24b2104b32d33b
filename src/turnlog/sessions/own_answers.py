"""The index of answers that this server gave: how a session is found that is not among the newest of its place.

It is derived: a lost put costs at most a session that is not recognised, and `reindex` makes all of it again. A key is
a digest of the place, the first words and the answer; so the index holds nobody's words.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from ..core.atoms import Atom
from ..core.entries import Foreign
from ..core.path import Path
from ..core.query import Query
from ..stores import Ledger, Store, facts
from ..stores.finding import every_row
from .forking import path_of

SPACE = "own_answers"
TTL_S = 30 * 86_400
"""A client that continues a conversation after a month can name it."""
SESSIONS_KEPT = 16
"""Sessions with the same first words and the same answer; the newest are kept."""
PROBES = 8
"""The number of answers of a request that are looked up, newest first: one is enough, unless the newest were edited."""
RACES_MAX = 10


async def put(ledger: Ledger, key: str, path: Path) -> None:
    """Remembers the newest answer of this session."""
    if (answer := newest_answer(path)) is None:
        return
    name = _name(key, path.keys[0], answer)
    for _ in range(RACES_MAX):
        old = await ledger.get(SPACE, name)
        ids = facts.read(SPACE, name, old, list[str]) or []
        new = [*(one for one in ids if one != path.session_id), path.session_id][-SESSIONS_KEPT:]
        if await ledger.cas(SPACE, name, old, new, ttl_s=TTL_S):
            return


def newest_answer(path: Path) -> bytes | None:
    """The last answer, if this server gave it."""
    for atom in reversed(path.atoms):
        if atom.kind in ("assistant", "call"):
            return atom.key if atom.own is not None else None
    return None


async def find(ledger: Ledger, key: str, said: Sequence[Atom]) -> list[str]:
    """Sessions that may have given an answer of this request, the newest first."""
    found: list[str] = []
    for answer in list(_ends_of_answers(said))[:PROBES]:
        name = _name(key, said[0].key, answer)
        ids = facts.read(SPACE, name, await ledger.get(SPACE, name), list[str]) or []
        found += [one for one in reversed(ids) if one not in found]
    return found


def _ends_of_answers(said: Sequence[Atom]) -> Iterable[bytes]:
    for n in range(len(said) - 2, 0, -1):
        if said[n].kind in ("assistant", "call") and said[n + 1].kind not in ("assistant", "call"):
            yield said[n].key


def _name(key: str, first: bytes, answer: bytes) -> str:
    return blake2b(b"\0".join((key.encode(), first, answer)), digest_size=16).hexdigest()


async def rebuild(store: Store) -> int:
    """Puts the answers of all sessions of clients again; returns the number of sessions."""
    done = 0
    async for row in every_row(store.find, Query(channel="api")):
        log = await store.read(row.id, incarnation=row.incarnation)
        path = await path_of(store, row, log)
        if any(isinstance(entry, Foreign) for entry in log):
            await put(store.ledger, row.key, path)
            done += 1
    return done

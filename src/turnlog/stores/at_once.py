"""An append that is done on the spot, outside of any task, by a store that can do so without waiting.

Most appends of an adapter wait for nothing but the disk: nobody else holds the lease, and no other change is on its
way. On the engine's own loop such an append needs no task. Only the SQLite store offers it.
"""

from collections.abc import Sequence
from typing import Protocol, cast

from ..core.entries import Entry
from . import Appended, Store


class AppendAtOnce(Protocol):
    """`Store.append` with `lease="own"`, without a check of its own arguments: entries are checked as ever.

    None, and nothing was written, if it would have to wait: for the lease, for other changes, or in a loop that has
    other work. Then the caller takes `Store.append`, which also raises what may be raised only after waiting.
    """

    def __call__(
        self, session_id: str, bodies: Sequence[Entry], expect: int | None, incarnation: str
    ) -> Appended | None: ...


def append_at_once(store: Store) -> AppendAtOnce | None:
    return cast("AppendAtOnce | None", getattr(store, "append_at_once", None))

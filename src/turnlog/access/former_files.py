"""The files that the tools of a session wrote: their list, and going back to the former content, for 30 days."""

import asyncio
from typing import Literal

from msgspec import Struct

from ..sessions.checking import checked_methods
from ..tools.kept import KeptFile, KeptFiles
from . import own_files
from .finding import AccessBase
from .parts import Where


class FormerFile(Struct, frozen=True, kw_only=True):
    """A file that a tool wrote, and that can go back to what it was."""

    path: str
    at: int
    """Unix ms at which it was written."""
    was: Literal["created", "replaced"]


@checked_methods
class FileVerbs(AccessBase):
    @property
    def _kept(self) -> KeptFiles:
        return KeptFiles(own_files.kept(self._finder.home))

    async def former_files(self, where: Where) -> list[FormerFile]:
        """The files that tools wrote in this session, the newest change first."""
        row = await self._finder.existing(where)
        records = await asyncio.to_thread(self._kept.records, row.id)
        return [_shown(record) for _, record in records]

    async def undo_file(self, where: Where, path: str | None = None, *, force: bool = False) -> FormerFile:
        """Gives a file its former content, without a path the newest; one that was new is removed. NotFound: there is
        none. Conflict: it has changed since, unless `force`.
        """
        row = await self._finder.existing(where, write=True)
        return _shown(await asyncio.to_thread(self._kept.undo, row.id, path, force=force))


def _shown(record: KeptFile) -> FormerFile:
    return FormerFile(path=record.path, at=record.at, was="created" if record.before is None else "replaced")

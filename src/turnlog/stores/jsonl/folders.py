"""The indexes of all folders of a JSONL store, loaded when they are needed."""

from collections.abc import Callable

from ...core import query as queries
from ...core.query import Query
from .. import Notice, Progress
from ..disk.files import make_dir
from .folder_index import FolderIndex
from .layouts import Place


class FolderIndexes:
    def __init__(
        self,
        place: Place,
        *,
        durable: bool,
        notice: Callable[[Notice], None],
        progress: Progress | None,
        read_only: bool,
    ) -> None:
        self._place = place
        self._durable = durable
        self._notice = notice
        self._progress = progress
        self._read_only = read_only
        self._loaded: dict[str, FolderIndex] = {}

    def all(self) -> list[FolderIndex]:
        """Those that are loaded."""
        return list(self._loaded.values())

    def load(self) -> bool:
        """Loads all folders, including those that others added meanwhile; returns whether there were new ones."""
        before = len(self._loaded)
        for name in self._place.folders():
            self.get(name)
        return len(self._loaded) > before

    def get(self, name: str) -> FolderIndex:
        if name not in self._loaded:
            make_dir(self._place.folder(name))
            index = FolderIndex(
                self._place,
                name,
                durable=self._durable,
                notice=self._notice,
                progress=self._progress,
                read_only=self._read_only,
            )
            index.load()
            self._loaded[name] = index
        return self._loaded[name]

    def home(self, session_id: str) -> FolderIndex | None:
        """The index of the folder that has this session."""
        return self.holder(session_id) or (self.load() and self.holder(session_id)) or None

    def holder(self, session_id: str) -> FolderIndex | None:
        """The same, among those that are loaded."""
        return next((index for index in self._loaded.values() if index.holds(session_id)), None)

    def settled(self, query: Query) -> list[FolderIndex]:
        """The indexes that a query looks at, up to date."""
        self.load()
        indexes = self.all()
        wanted = queries.any_of(query.agent)
        if wanted is not None and self._place.layout.arrangement == "agents":
            indexes = [self._loaded[agent] for agent in dict.fromkeys(wanted) if agent in self._loaded]
        for index in indexes:
            index.settle()
        return indexes

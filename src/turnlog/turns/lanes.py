"""The lanes of this process: one for each session that is being worked on, or that has messages waiting."""

from collections.abc import Iterator

from ..core.session import Session
from .stream import TurnStream
from .tickets import Lane


class Lanes:
    def __init__(self) -> None:
        self._lanes: dict[str, Lane] = {}
        self._replaced: set[Lane] = set()
        """Lanes of deleted sessions whose ids are in use again, until their workers have left."""

    def __iter__(self) -> Iterator[Lane]:
        return iter([*self._lanes.values(), *self._replaced])

    def get(self, session_id: str) -> Lane | None:
        return self._lanes.get(session_id)

    def of(self, row: Session) -> Lane:
        """Of this session, not of a deleted one that had its id."""
        lane = self._lanes.get(row.id)
        if lane is None or lane.incarnation != row.incarnation:
            if lane is not None:
                self._replaced.add(lane)
                lane.cancel_turn()
                lane.abandon()
                self.drop_if_unused(lane)
            lane = self._lanes[row.id] = Lane(row)
        return lane

    def drop_if_unused(self, lane: Lane) -> None:
        if lane.worker is None and not lane.accepting and not lane.waiting and not lane.paused:
            self._replaced.discard(lane)
            if self._lanes.get(lane.session_id) is lane:
                del self._lanes[lane.session_id]

    def running(self, session_id: str) -> TurnStream | None:
        """The turn that runs in this process."""
        lane = self._lanes.get(session_id)
        return lane.stream if lane and lane.stream and not lane.stream.over else None

    def under_way(self) -> list[TurnStream]:
        """All turns that run in this process; paused ones do not run."""
        return [
            lane.stream for lane in self._lanes.values() if lane.stream and not lane.stream.over and not lane.paused
        ]

"""google-adk `DatabaseSessionService` on SQLite: one row and one transaction an event, so a turn is two of them.

Promises: SQLite's defaults (rollback journal, `synchronous=FULL`), on the disk when `append_event` returns; a lock a
session within the process, a stale session is refused.
"""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from google.adk.events import Event
from google.adk.sessions import DatabaseSessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai.types import Content, Part
from sqlalchemy import insert

from benchmarks.workload import make_turns, summarise, time_turns_async

WHO = {"app_name": "bench", "user_id": "user", "session_id": "bench"}


def open_service(place: str) -> DatabaseSessionService:
    return DatabaseSessionService(f"sqlite+aiosqlite:///{Path(place) / 'sessions.db'}")


def events_of(user: str, assistant: str) -> tuple[Event, Event]:
    return (
        Event(author="user", content=Content(role="user", parts=[Part(text=user)])),
        Event(author="main", content=Content(role="model", parts=[Part(text=assistant)])),
    )


async def build(place: str, messages: int) -> dict[str, float]:
    """Rows by SQL: its own way writes one event a transaction and would take minutes."""
    service = open_service(place)
    session = await service.create_session(**WHO)
    stored = service._get_schema_classes().StorageEvent
    names = [column.name for column in stored.__table__.columns]
    distinct = [stored.from_event(session, event) for turn in make_turns() for event in events_of(*turn)]
    patterns = [{name: getattr(row, name) for name in names} for row in distinct]
    oldest = datetime.now(UTC).replace(tzinfo=None) - timedelta(hours=1)
    rows = []
    for number in range(messages):
        pattern, number_id = patterns[number % len(patterns)], f"{number:012d}"
        at = oldest + timedelta(milliseconds=10 * number)
        rows.append(
            pattern | {"id": number_id, "timestamp": at, "event_data": pattern["event_data"] | {"id": number_id}}
        )
    async with service.db_engine.begin() as connection:
        await connection.execute(insert(stored), rows)
    await service.close()
    return {}


async def append(place: str, count: int) -> dict[str, float]:
    service = open_service(place)
    session = await service.get_session(**WHO, config=GetSessionConfig(num_recent_events=1))

    async def one(user: str, assistant: str) -> None:
        for event in events_of(user, assistant):
            await service.append_event(session, event)

    figures = await time_turns_async(one, count, warmup=10)
    await service.close()
    return figures


async def resume(place: str, keep: int | None, times: int) -> dict[str, float]:
    """The newest `keep` events (it has no summary to add), or all of them."""
    samples = []
    for _ in range(times):
        service = open_service(place)
        await service.prepare_tables()
        begin = time.perf_counter_ns()
        session = await service.get_session(**WHO, config=GetSessionConfig(num_recent_events=keep))
        samples.append(time.perf_counter_ns() - begin)
        assert session.events
        await service.close()
    return summarise(samples)

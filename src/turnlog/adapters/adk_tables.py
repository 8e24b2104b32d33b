"""Reads ADK's own session tables through ADK's own services, into sessions of a store."""

from typing import TYPE_CHECKING, Any

from ..errors import TurnlogError
from ..interchange.importing import Imported
from ..library import Turnlog
from .framework import framework
from .google_adk import TurnlogSessionService

if TYPE_CHECKING:
    from google.adk.sessions import BaseSessionService, Session

    from .framework_tables import FrameworkReader


async def import_sessions(t: Turnlog, tables: "FrameworkReader", shown: str, source: str) -> list[Imported]:
    ours = TurnlogSessionService(store=t)
    imported: list[Imported] = []
    places = list(tables.rows("SELECT app_name, user_id, id FROM sessions ORDER BY app_name, user_id, id"))
    theirs = _service(tables, source)
    try:
        for app, user, name in places:
            found = await theirs.get_session(app_name=app, user_id=user, session_id=name)
            if found is not None:
                imported.append(await _imported(ours, found, f"{shown} {app}/{user}/{name}"))
    finally:
        await _close(theirs)
    return imported


async def _close(service: "BaseSessionService") -> None:
    """Not all services and versions have something to close."""
    close = getattr(service, "close", None)
    if close is not None:
        await close()


def _service(tables: "FrameworkReader", source: str) -> "BaseSessionService":
    """A file with `event_data` and without ADK's table of versions is of SqliteSessionService."""
    with framework("adk"):
        if tables.mark == "?" and "event_data" in tables.columns("events") and not tables.columns(_VERSIONS):
            from google.adk.sessions.sqlite_session_service import SqliteSessionService

            return SqliteSessionService(source)
        from google.adk.sessions.database_session_service import DatabaseSessionService
    asynchronous = f"sqlite+aiosqlite:///{source}" if tables.mark == "?" else _driver(source)
    return DatabaseSessionService(asynchronous)


def _driver(url: str) -> str:
    """ADK wants the driver in the address."""
    return f"postgresql+psycopg://{url.partition('://')[2]}"


_VERSIONS = "adk_internal_metadata"


async def _imported(ours: TurnlogSessionService, found: "Session", source: str) -> Imported:
    place: dict[str, Any] = {"app_name": found.app_name, "user_id": found.user_id}
    try:
        there = await ours.get_session(**place, session_id=found.id)
        if there is None:
            there = await ours.create_session(**place, session_id=found.id, state=dict(found.state))
        known = [event.id for event in there.events]
        if known != [event.id for event in found.events[: len(known)]]:
            return Imported(found.id, source, 0, ("the session is there already and differs; nothing was changed",))
        new = found.events[len(known) :]
        for event in new:
            await ours.append_event(there, event)
        return Imported(found.id, source, len(new), ())
    except TurnlogError as error:
        return Imported("", source, 0, (f"not imported: {error}",))

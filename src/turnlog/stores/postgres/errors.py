"""Maps errors of PostgreSQL and its driver to Turnlog's errors by SQLSTATE, and says which calls may be repeated."""

import psycopg

from ...errors import Corrupt, StoreError, StoreUnavailable, TurnlogError, UsageError

READ_ONLY = "25006"
RETRIED = ("40001", "40P01")
"""Serialisation failure and deadlock: the server has rolled back and says to try again."""

_DISK = "Free some space on the database server; the session goes on from where it was."
_LATER = "Check that the database runs at this address. Turns that are running continue when it is back."
_LOGIN = "Check user and password in the store's URL, and pg_hba.conf on the server."

_BY_STATE: dict[str, tuple[type[TurnlogError], str, str]] = {
    "08": (StoreUnavailable, "the connection to the database failed", _LATER),
    "22": (UsageError, "the database cannot store this value", "Check the call for characters PostgreSQL refuses."),
    READ_ONLY: (StoreUnavailable, "the database is read-only", "Use the URL of the primary, or wait for the failover."),
    "28": (UsageError, "the database refuses this login", _LOGIN),
    "3D": (UsageError, "there is no such database", "Create it, or correct its name in the store's URL."),
    "40": (StoreUnavailable, "the database cancelled this change because of another one", "Try again."),
    "42501": (
        UsageError,
        "this user may not do that in the database",
        "Let a user who may create the schema open the store once; then grant what docs/operating/postgresql.md lists.",
    ),
    "42": (StoreError, "the schema in the database is not as expected", "Restore it, or choose another schema."),
    "53100": (StoreUnavailable, "the database's disk is full", _DISK),
    "53300": (StoreUnavailable, "the database accepts no more connections", "Lower pool= or raise max_connections."),
    "53": (StoreUnavailable, "the database lacks memory or another resource", "See the server's log."),
    "54": (UsageError, "this is too large for the database", "Store it as a file."),
    "55": (StoreUnavailable, "another program holds a lock in the database", "Try again."),
    "57": (StoreUnavailable, "the database is stopping or starting", _LATER),
    "58": (StoreUnavailable, "the database's machine reports an error", "See the server's log."),
    "XX001": (Corrupt, "the database is damaged", "Restore a backup."),
    "XX002": (Corrupt, "an index of the database is damaged", "Run REINDEX DATABASE."),
}
"""SQLSTATE, or its class, to (error, meaning, hint). The longer one wins."""


def unanswered(error: psycopg.Error) -> bool:
    """Whether the connection was lost during the call, so that its result is unknown."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state[:2] == "08" or state in ("57P01", "57P02", "57P03", "57P05")


def lost(error: psycopg.Error) -> bool:
    """Whether another connection may work. A connection to a server that became read-only goes to the wrong server."""
    return unanswered(error) or error.sqlstate == READ_ONLY


def mapped(error: BaseException) -> BaseException:
    """Maps an exception of the driver to a TurnlogError with a hint; others stay unchanged."""
    if not isinstance(error, psycopg.Error):
        return error
    ours = _ours(error)
    ours.__cause__ = error
    return ours


def _ours(error: psycopg.Error) -> TurnlogError:
    state = error.sqlstate or ""
    told = _first_line(error)
    known = _BY_STATE.get(state) or _BY_STATE.get(state[:2])
    if known:
        kind, meaning, hint = known
        return kind(f"{meaning} ({told})", hint=hint)
    match error:
        case psycopg.OperationalError() if "password authentication failed" in told or "no password" in told:
            return UsageError(f"the database refuses this login ({told})", hint=_LOGIN)
        case psycopg.OperationalError() if "invalid" in told and " value" in told:
            return UsageError(f"an option in the store's URL is wrong ({told})", hint="Correct the store's URL.")
        case psycopg.OperationalError() if "does not exist" in told:
            return UsageError(f"there is no such database or user ({told})", hint=_BY_STATE["3D"][2])
        case psycopg.OperationalError() | psycopg.InterfaceError():
            return StoreUnavailable(f"the database cannot be reached ({told})", hint=_LATER)
        case psycopg.ProgrammingError() | psycopg.DataError():
            return UsageError(f"the database does not understand the call ({told})", hint="Check the store's URL.")
        case psycopg.NotSupportedError():
            return UsageError(f"this server cannot do that ({told})", hint="Use PostgreSQL 15 or newer.")
        case _:
            return StoreError(f"the database failed ({told})", hint="See the server's log.")


def _first_line(error: psycopg.Error) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__

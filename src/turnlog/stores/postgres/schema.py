"""The address of a PostgreSQL store, and its schemas: numbered .sql files, applied under a lock, in one transaction.

The sessions have the schema of the address. Convlog and memory have their own schemas, so that no statement joins them
with sessions, and permissions can be granted separately.
"""

import re
from collections.abc import Mapping
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from msgspec import Struct
from msgspec.structs import replace
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ...errors import StoreUnavailable, UsageError
from . import row_functions
from .connections import PostgresConnections
from .errors import mapped
from .pool import PATIENCE_S, PostgresPool
from .wire import PostgresConnection, connect, qualified

OPTIONS = ("schema", "pool", "lease_s", "patience_s", "listen", "replica")
"""Options of a URL that belong to the store and not to libpq."""
POOL_SIZE = 8
POOL_MAX = 200
LEASE_S = 8.0
LEASE_MIN_S, LEASE_MAX_S = 0.2, 3600.0
PATIENCE_MIN_S, PATIENCE_MAX_S = 0.0, 3600.0
OLDEST_SERVER = 150_000
"""Statements use ^@ with an index; managed services still offer this version."""
MIGRATION_LOCK = 0x5475726E6C6F67
"""One for all schemas: opening is rare."""

SESSIONS, CONVLOG, MEMORY = "sessions", "convlog", "memory"
"""The parts with tables: the folder of the migrations, and the suffix of the schema's name."""
BESIDE_POOL = 4
"""The most connections of convlog and memory each: they have few calls."""

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,50}")
_DEFAULTS = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    "application_name": "turnlog",
    "client_encoding": "UTF8",
}
"""So that a broken connection is noticed in seconds. Options in the URL win."""


class SchemaAddress(Struct, frozen=True):
    conninfo: str
    schema: str = "turnlog"
    pool: int = POOL_SIZE
    lease_s: float = LEASE_S
    listen: str | None = ""
    """conninfo for LISTEN, or None to poll only."""
    patience_s: float = PATIENCE_S
    replica: str | None = None
    """conninfo of the server that answers lists and searches, if there is one."""


def parse(url: str) -> SchemaAddress:
    """`postgresql://user@host/db?schema=turnlog&pool=8&lease_s=8&patience_s=10&listen=on&replica=host:5432`; other
    options are libpq's.
    """
    try:
        base, _, query = url.partition("?")
        given = dict(parse_qsl(query, keep_blank_values=True))
        options = {name: given.pop(name) for name in OPTIONS if name in given}
        fields = conninfo_to_dict(f"{base}?{urlencode(given, quote_via=quote)}" if given else base)
    except (ValueError, psycopg.Error) as error:
        raise UsageError(
            f"the store's URL is not valid for PostgreSQL ({_without_password(str(error))})",
            hint="Write postgresql://USER:PASSWORD@HOST:PORT/DATABASE; escape special characters as %XX.",
        ) from None
    conninfo = make_conninfo("", **{**_DEFAULTS, **fields})
    schema = options.get("schema", "turnlog")
    if not _NAME.fullmatch(schema) or schema.startswith("pg_") or schema.endswith((f"_{CONVLOG}", f"_{MEMORY}")):
        raise UsageError(
            f"{schema!r} cannot be the schema",
            hint=f"Use small letters, digits and _; names that end in _{CONVLOG} or _{MEMORY} are reserved.",
        )
    return SchemaAddress(
        conninfo,
        schema,
        int(_number(options, "pool", POOL_SIZE, 1, POOL_MAX)),
        _number(options, "lease_s", LEASE_S, LEASE_MIN_S, LEASE_MAX_S),
        _listening(conninfo, options.get("listen", "on")),
        _number(options, "patience_s", PATIENCE_S, PATIENCE_MIN_S, PATIENCE_MAX_S),
        _replica(conninfo, options.get("replica", "")),
    )


def _number(options: Mapping[str, str], name: str, default: float, least: float, most: float) -> float:
    try:
        value = float(options.get(name, default))
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise UsageError(
            f"{name}={options[name]} in the store's URL is not possible", hint=f"Use a number from {least} to {most}."
        )
    return value


def _listening(conninfo: str, told: str) -> str | None:
    if told == "off":
        return None
    if told == "on":
        return conninfo
    return _elsewhere(conninfo, "listen", told, "Use on, off, or HOST:PORT of the server itself.")


def _replica(conninfo: str, told: str) -> str | None:
    if not told:
        return None
    place = _elsewhere(conninfo, "replica", told, "Use HOST:PORT of a standby that answers queries.")
    return make_conninfo(place, target_session_attrs="any")


def _elsewhere(conninfo: str, option: str, told: str, hint: str) -> str:
    host, colon, port = told.rpartition(":")
    if not colon or not port.isdecimal():
        raise UsageError(f"{option}={told} in the store's URL is not possible", hint=hint)
    return make_conninfo(conninfo, host=host, port=port)


def _without_password(text: str) -> str:
    return re.sub(r"//[^@\s]*@", "//…@", text)[:200]


async def open_beside(url: str, part: str) -> PostgresPool:
    """Opens the tables of a part other than the sessions. It shares the connections of the store, if that is open."""
    address = parse(url)
    beside = replace(address, schema=f"{address.schema}_{part}")
    await prepare(beside, part)
    size = min(address.pool, BESIDE_POOL)
    shared = PostgresConnections.offered(beside.conninfo)
    return PostgresPool(
        beside.conninfo, schema=beside.schema, size=size, patience_s=address.patience_s, connections=shared
    )


async def prepare(address: SchemaAddress, part: str = SESSIONS) -> None:
    """Checks first and creates only what is missing, so that a user without the right to create can open a
    ready store.
    """
    steps = migrations(part)
    try:
        connection = await connect(address.conninfo)
        try:
            await _check_server(connection)
            version = await _version(connection, address.schema, len(steps))
            if version < len(steps) or not await _has_functions(connection, address.schema, part):
                await _migrate(connection, address.schema, part)
        finally:
            await connection.close()
    except psycopg.Error as error:
        raise mapped(error) from error


async def _check_server(connection: PostgresConnection) -> None:
    if connection.info.server_version < OLDEST_SERVER:
        raise UsageError(
            f"PostgreSQL {connection.info.server_version // 10_000} is too old", hint="Use PostgreSQL 15 or newer."
        )
    if await _value(connection, "SHOW server_encoding") != "UTF8":
        raise UsageError(
            "the database's encoding is not UTF8", hint="Create it with CREATE DATABASE … ENCODING 'UTF8'."
        )


async def _migrate(connection: PostgresConnection, schema: str, part: str) -> None:
    """Uses a lock of the transaction, because a pooler would pass a session's lock to somebody else."""
    steps = migrations(part)
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
        version = await _version(connection, schema, len(steps))
        if not version and not await _value(connection, _HAS_SCHEMA, (schema,)):
            await connection.execute(f'CREATE SCHEMA "{schema}"'.encode())
        for number, script in enumerate(steps[version:], version + 1):
            await connection.execute(qualified(script, schema))
            await connection.execute(qualified(_SET_VERSION, schema), (number,))
        if not await _has_functions(connection, schema, part):
            await connection.execute(qualified(row_functions.SCRIPT, schema))


async def _has_functions(connection: PostgresConnection, schema: str, part: str) -> bool:
    """Whether the functions that this version needs to write rows exist."""
    sql = (
        "SELECT EXISTS (SELECT FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
        " WHERE n.nspname = %s AND p.proname = %s)"
    )
    return part != SESSIONS or await _value(connection, sql, (schema, row_functions.APPEND))


_HAS_SCHEMA = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %s)"
_SET_VERSION = """
INSERT INTO turnlog.store_facts VALUES ('schema_version', %s)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""


async def _version(connection: PostgresConnection, schema: str, newest: int) -> int:
    tables = await _tables(connection, schema)
    if tables and "store_facts" not in tables:
        raise UsageError(
            f"the schema {schema} belongs to another program", hint="Choose another one: ?schema=NAME in the URL."
        )
    if not tables:
        return 0
    sql = qualified("SELECT value FROM turnlog.store_facts WHERE name = 'schema_version'", schema)
    version = await _value(connection, sql) or 0
    if version > newest:
        raise StoreUnavailable(
            f"the store was made by a newer Turnlog (schema {version}; this one knows {newest})",
            hint="Upgrade Turnlog. Nothing was changed.",
        )
    return int(version)


async def _tables(connection: PostgresConnection, schema: str) -> list[str]:
    """Reads the catalogue's rows: to_regclass answers from a cache, which may not have new tables yet."""
    sql = "SELECT array_agg(relname::text) FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = ("
    return await _value(connection, sql + "SELECT oid FROM pg_namespace WHERE nspname = %s)", (schema,)) or []


async def _value(connection: PostgresConnection, sql: Any, values: tuple[Any, ...] = ()) -> Any:
    row = await (await connection.execute(sql, values)).fetchone()
    return row[0] if row else None


def migrations(part: str = SESSIONS) -> list[str]:
    folder = resources.files("turnlog.stores.postgres" if part == SESSIONS else f"turnlog.{part}") / "sql"
    files = sorted((item for item in folder.iterdir() if item.name.endswith(".sql")), key=lambda item: item.name)
    return [item.read_text(encoding="utf-8") for item in files]

"""The address of a PostgreSQL store, and its schemas: numbered .sql files, applied under a lock, in one transaction.

The sessions have the schema of the address. What is kept beside them (convlog, memory) has one of its own each, so that
no statement can join the two and rights can be granted apart.
"""

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from msgspec import Struct
from msgspec.structs import replace
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ..errors import StoreUnavailable, UsageError
from .postgres_errors import mapped
from .postgres_pool import Connection, Database, connect, qualified

POOL_SIZE = 8
POOL_MAX = 200
LEASE_S = 8.0
LEASE_MIN_S, LEASE_MAX_S = 0.2, 3600.0
OLDEST_SERVER = 150_000
"""What statements use: ^@ with an index, and what managed services still offer."""
MIGRATION_LOCK = 0x5475726E6C6F67
"""One for all schemas: opening is rare."""

SESSIONS, CONVLOG, MEMORY = "sessions", "convlog", "memory"
"""What has tables here: the folder of its migrations, and the end of its schema's name."""
BESIDE_POOL = 4
"""Connections for what is kept beside the sessions, at most: its calls are few and wait for one another."""

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
"""So that a cut cable is noticed in seconds. What the URL says wins."""


class Address(Struct, frozen=True):
    conninfo: str
    schema: str = "turnlog"
    pool: int = POOL_SIZE
    lease_s: float = LEASE_S
    listen: str | None = ""
    """conninfo for LISTEN, or None to poll only."""


def parse(url: str) -> Address:
    """`postgresql://user@host/db?schema=turnlog&pool=8&lease_s=8&listen=on|off|HOST:PORT`, the rest is libpq's."""
    try:
        base, _, query = url.partition("?")
        given = dict(parse_qsl(query, keep_blank_values=True))
        options = {name: given.pop(name) for name in ("schema", "pool", "lease_s", "listen") if name in given}
        fields = conninfo_to_dict(f"{base}?{urlencode(given, quote_via=quote)}" if given else base)
    except (ValueError, psycopg.Error) as error:
        raise UsageError(
            f"the store's URL is not one PostgreSQL understands ({_without_password(str(error))})",
            hint="Write postgresql://USER:PASSWORD@HOST:PORT/DATABASE; escape special characters as %XX.",
        ) from None
    conninfo = make_conninfo("", **{**_DEFAULTS, **fields})
    schema = options.get("schema", "turnlog")
    if not _NAME.fullmatch(schema) or schema.startswith("pg_") or schema.endswith((f"_{CONVLOG}", f"_{MEMORY}")):
        raise UsageError(
            f"{schema!r} cannot be the schema",
            hint=f"Use small letters, digits and _; names that end in _{CONVLOG} or _{MEMORY} are for what is beside.",
        )
    return Address(
        conninfo,
        schema,
        int(_number(options, "pool", POOL_SIZE, 1, POOL_MAX)),
        _number(options, "lease_s", LEASE_S, LEASE_MIN_S, LEASE_MAX_S),
        _listening(conninfo, options.get("listen", "on")),
    )


def _number(options: Mapping[str, str], name: str, default: float, least: float, most: float) -> float:
    try:
        value = float(options.get(name, default))
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise UsageError(f"{name}={options[name]} in the store's URL", hint=f"Use a number from {least} to {most}.")
    return value


def _listening(conninfo: str, told: str) -> str | None:
    if told == "off":
        return None
    if told == "on":
        return conninfo
    host, colon, port = told.rpartition(":")
    if not colon or not port.isdecimal():
        raise UsageError(f"listen={told} in the store's URL", hint="Use on, off, or HOST:PORT of the server itself.")
    return make_conninfo(conninfo, host=host, port=port)


def _without_password(text: str) -> str:
    return re.sub(r"//[^@\s]*@", "//…@", text)[:200]


async def open_beside(url: str, part: str) -> Database:
    """The tables of a part that is not the sessions, ready for use."""
    address = parse(url)
    beside = replace(address, schema=f"{address.schema}_{part}")
    await prepare(beside, part)
    return Database(beside.conninfo, schema=beside.schema, size=min(address.pool, BESIDE_POOL))


async def prepare(address: Address, part: str = SESSIONS) -> None:
    """Looks first; changes only what is missing, so that a user who may not create anything can open a ready store."""
    steps = migrations(part)
    try:
        connection = await connect(address.conninfo)
        try:
            await _check_server(connection)
            version = await _version(connection, address.schema, len(steps))
            if version < len(steps):
                await _migrate(connection, address.schema, steps)
        finally:
            await connection.close()
    except psycopg.Error as error:
        raise mapped(error) from error


async def _check_server(connection: Connection) -> None:
    if connection.info.server_version < OLDEST_SERVER:
        raise UsageError(
            f"the server is PostgreSQL {connection.info.server_version // 10_000}", hint="Use PostgreSQL 15 or newer."
        )
    if await _value(connection, "SHOW server_encoding") != "UTF8":
        raise UsageError("the database's encoding is not UTF8", hint="CREATE DATABASE … ENCODING 'UTF8'.")


async def _migrate(connection: Connection, schema: str, steps: Sequence[str]) -> None:
    """A lock of the transaction, not of the session, which a pooler would hand to somebody else."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
        version = await _version(connection, schema, len(steps))
        if not version and not await _value(connection, _HAS_SCHEMA, (schema,)):
            await connection.execute(f'CREATE SCHEMA "{schema}"'.encode())
        for number, script in enumerate(steps[version:], version + 1):
            await connection.execute(qualified(script, schema))
            await connection.execute(qualified(_SET_VERSION, schema), (number,))


_HAS_SCHEMA = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %s)"
_SET_VERSION = """
INSERT INTO turnlog.store_facts VALUES ('schema_version', %s)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""


async def _version(connection: Connection, schema: str, newest: int) -> int:
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


async def _tables(connection: Connection, schema: str) -> list[str]:
    """From the catalogue's rows: to_regclass answers from a cache, which does not know what was made a moment ago."""
    sql = "SELECT array_agg(relname::text) FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = ("
    return await _value(connection, sql + "SELECT oid FROM pg_namespace WHERE nspname = %s)", (schema,)) or []


async def _value(connection: Connection, sql: Any, values: tuple[Any, ...] = ()) -> Any:
    row = await (await connection.execute(sql, values)).fetchone()
    return row[0] if row else None


def migrations(part: str = SESSIONS) -> list[str]:
    folder = resources.files("turnlog.stores") / ("sql_postgres" if part == SESSIONS else f"sql_postgres_{part}")
    files = sorted((item for item in folder.iterdir() if item.name.endswith(".sql")), key=lambda item: item.name)
    return [item.read_text(encoding="utf-8") for item in files]

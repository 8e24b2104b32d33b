"""The parts of a storm over several servers: who talks, what happens to them, and what must hold afterwards."""

import asyncio
import json
import random
import re
import signal
import time
import uuid
from collections import Counter

import httpx
import psycopg
from httpx_sse import aconnect_sse

from turnlog import open_store
from turnlog.core.entries import Assistant, Failed, Received, ToolResult, User, text_of, tool_uses
from turnlog.core.query import Query
from turnlog.testing import InvalidMessages, check_messages

from .running import CHAT

LEASE_S = 2
PATIENCE_S = 180
"""Of one who sends: a message waits for those before it, and 400 talk at once on a small machine."""


def leases(server, name):
    return server.sql('SELECT extract(epoch FROM expires_at)::float8 FROM "turnlog".leases', name)


class Talker:
    """One who sends messages to one session through any server, and does not give up before it knows how each ended."""

    def __init__(self, servers, session_id, number, ended):
        self.servers = servers
        self.session_id = session_id
        self.number = number
        self.ended = ended
        self.slowest = 0.0

    async def talk(self, quota, storm):
        async with httpx.AsyncClient(timeout=httpx.Timeout(60), trust_env=False) as client:
            sent = 0
            while sent < quota or not storm.done():
                sent += 1
                words = f"message {self.number}.{sent} of {self.session_id};"
                began = time.monotonic()
                async with asyncio.timeout(PATIENCE_S):
                    self.ended[words] = await self._send(client, words)
                self.slowest = max(self.slowest, time.monotonic() - began)

    async def _send(self, client, words):
        key, last = uuid.uuid4().hex, None
        while True:
            server = random.choice(self.servers)
            try:
                last, end = await self._attempt(client, server, words, key, last)
            except (httpx.HTTPError, AssertionError):
                end = None
            if end in ("done", "interrupted"):
                return end
            if end is not None:
                self.ended.setdefault("odd", Counter())[end] += 1
                last = None  # asks again for what became of it
            await asyncio.sleep(0.2)

    async def _attempt(self, client, server, words, key, last):
        headers = {"Authorization": f"Bearer {server.token}"}
        if last:
            url, params = f"{server.base}{CHAT}/stream", {"sessionId": self.session_id}
            opened = aconnect_sse(client, "GET", url, params=params, headers={**headers, "Last-Event-ID": last})
        else:
            body = {"message": words, "sessionId": self.session_id}
            opened = aconnect_sse(
                client, "POST", f"{server.base}{CHAT}", json=body, headers={**headers, "Idempotency-Key": key}
            )
        async with opened as source:
            if source.response.status_code != 200:
                await source.response.aread()
                assert source.response.status_code in (409, 429, 503), source.response.text
                return last, None
            try:
                async for event in source.aiter_sse():
                    if not event.data:
                        continue  # a comment, which keeps the connection open
                    last, told = event.id or last, event.json()
                    match told["type"]:
                        case "done":
                            return last, "done"
                        case "idle":
                            return None, None
                        case "stopped":
                            return None, "stopped"
                        case "error":
                            return last, told["code"]
            except httpx.HTTPError:
                pass
        return last, None


async def see_takeovers(database, name, storm):
    """The longest that an expired lease stayed without a holder while the database was there to ask."""
    longest = 0.0
    while not storm.done() or await asyncio.to_thread(leases, database, name):
        try:
            [(late,)] = await asyncio.to_thread(database.sql, LATENESS, name)
            longest = max(longest, late or 0.0)
        except psycopg.OperationalError:
            pass  # it is stopped just now
        await asyncio.sleep(0.3)
    return longest


LATENESS = """
SELECT extract(epoch FROM max(clock_timestamp() - greatest(expires_at, pg_postmaster_start_time())))::float8
FROM "turnlog".leases WHERE expires_at < clock_timestamp()
"""


async def blow(servers, database, proxy):
    """The storm: everything that may happen to servers, their database and the wire between, one after another."""
    for victim in (servers[1], servers[-1]):
        await asyncio.sleep(0.5)
        victim.kill()
        await asyncio.sleep(0.5)
        await asyncio.to_thread(victim.start)
    servers[-1].process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(LEASE_S + 1)
    servers[-1].process.send_signal(signal.SIGCONT)
    for _ in range(3):
        proxy.cut()
        proxy.cut_answers_after = 5
        await asyncio.sleep(0.4)
    proxy.delay_s = 0.3
    await asyncio.sleep(1)
    proxy.delay_s = 0.0
    proxy.silent = True  # everything is swallowed: for its database this server is gone
    await asyncio.sleep(LEASE_S + 1)
    proxy.cut()
    proxy.silent = False
    await asyncio.to_thread(database.stop)
    await asyncio.to_thread(database.start)
    await asyncio.sleep(1)


def check_requests(server, asked):
    """All of them; counts how often the model was asked about each message."""
    for line in server.requests.read_text().splitlines():
        try:
            request = json.loads(line)
        except ValueError:
            continue  # cut by kill -9
        try:
            if request["kind"] == "turn":
                check_messages(request["messages"])
                asked.update(re.findall(r"message \d+\.\d+ of [^;]*;", str(request["messages"][-1]["content"])))
        except InvalidMessages as error:
            raise AssertionError(line) from error


async def check_logs(url, sessions, ended, asked):
    found = Counter()
    async with open_store(url) as store:
        rows = (await store.find(Query(limit=200))).items
        assert len(rows) == sessions
        for row in rows:
            entries = await store.read(row.id)
            assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
            assert row.last_seq == len(entries)
            assert not row.received
            check_turns(entries)
            check_ends(entries, ended, asked)
            for entry in entries:
                if isinstance(entry, Received) or (isinstance(entry, User) and not entry.from_):
                    found[text_of(entry.content)] += 1
        assert await store.abandoned() == []
    assert {words: found[words] for words in ended} == dict.fromkeys(ended, 1)


def check_ends(entries, ended, asked):
    """What clients were told is what the log says, and `interrupted` only where the turn could not be begun again.

    That is: where a tool had started, or where the second attempt was cut as well; then the model was asked twice.
    """
    said = {e.seq: text_of(e.content) for e in entries if isinstance(e, Received | User) and text_of(e.content)}
    for start in [entry for entry in entries if isinstance(entry, User)]:
        rest = entries[start.seq :]
        turn = rest[: next((n for n, entry in enumerate(rest) if isinstance(entry, User)), len(rest))]
        answers = [entry for entry in turn if isinstance(entry, Assistant)]
        answered = any(not tool_uses(entry) for entry in answers)
        cut = any(isinstance(entry, Failed) and entry.code == "interrupted" for entry in turn)
        for words in [said[seq] for seq in (start.seq, *start.from_) if said.get(seq) in ended]:
            if ended[words] == "done":
                assert answered, (start, turn)
            else:
                assert cut, (start, turn)
                assert not answered, (start, turn)
                assert answers or asked[words] > 1, (start, turn)


def check_turns(entries):
    """One after another: none begins before the one before has ended, and nobody writes who has no turn."""
    state = "over"
    for entry in entries:
        before = "\n".join(map(repr, entries[max(0, entry.seq - 12) : entry.seq]))
        match entry:
            case User():
                assert state != "running", before
                state = "running"
            case Assistant() | ToolResult():
                assert state != "over", before  # one that was cut is begun once more, without a mark of its own
                state = "over" if isinstance(entry, Assistant) and not tool_uses(entry) else "running"
            case Failed():
                assert state == "running", before
                state = "cut" if entry.code == "interrupted" else "over"
            case _:
                pass
    assert state != "running"

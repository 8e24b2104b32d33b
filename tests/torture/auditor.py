"""Records what was acknowledged, in a process of its own, and compares it with the store after each kill.

    run() with sys.argv = [_, FOLDER]

Whoever talks to Turnlog tells the auditor, over the Unix socket FOLDER/socket, what it was told: one JSON line each,
answered by one JSON line.

    {"accepted": TEXT, "session": ID}             the message counts as stored from here on
    {"answered": TEXT, "session": ID, "reply": R}  so does its whole reply
    {"compare": URL, "settled": BOOL}             → {"wrong": [...], "accepted": N, "answered": N}

An acknowledgement is synced to FOLDER/acknowledged.jsonl before the auditor answers, so that neither its own end nor
that of the one who told it forgets it. With `settled`, every accepted message must also have its answer by now.
"""

import asyncio
import json
import os
import socket
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import msgspec

import turnlog
from turnlog.core import history
from turnlog.core.entries import Assistant, Received, User, text_of, tool_uses
from turnlog.core.session import describe
from turnlog.testing import check_messages

NAME = "acknowledged.jsonl"
LISTEN = 64


class Auditor:
    def __init__(self, folder):
        self._folder = Path(folder)
        self._records = []
        self._fd = os.open(self._folder / NAME, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        self._seen = {}
        """Every entry that was ever there, by session: none of them may change or go."""

    async def serve(self):
        server = await asyncio.start_unix_server(self._hear, self._folder / "socket", backlog=LISTEN)
        print("ready", flush=True)
        async with server:
            await server.serve_forever()

    async def _hear(self, reader, writer):
        with suppress(ConnectionError):  # the process that sent it was killed meanwhile
            while line := await reader.readline():
                writer.write(json.dumps(await self._answer(json.loads(line))).encode() + b"\n")
                await writer.drain()
        writer.close()

    async def _answer(self, said):
        if "compare" in said:
            return await self._compare(said["compare"], said["settled"])
        return self._record(said)

    def _record(self, said):
        os.write(self._fd, json.dumps(said).encode() + b"\n")
        os.fsync(self._fd)
        self._records.append(said)
        return {"recorded": len(self._records)}

    async def _compare(self, url, settled):
        wrong = []
        async with turnlog.open_store(url) as store:
            for session_id in sorted({record["session"] for record in self._records}):
                try:
                    wrong += [f"{session_id}: {what}" for what in await self._look(store, session_id, settled)]
                except turnlog.TurnlogError as error:
                    wrong.append(f"{session_id}: {error!r}")
        counts = Counter("accepted" if "accepted" in record else "answered" for record in self._records)
        return {"wrong": wrong, "accepted": counts["accepted"], "answered": counts["answered"]}

    async def _look(self, store, session_id, settled):
        entries = await store.read(session_id)
        row = await store.describe(session_id)
        records = [record for record in self._records if record["session"] == session_id]
        wrong = [*self._changed(session_id, entries), *lost(entries, records)]
        if row != describe(None, entries):
            wrong.append("the row is not what the log says")
        if settled and (row.under_way or row.received):
            wrong.append(f"something was never answered: {row.last_role}, {row.received}")
        messages = history.build(entries).messages
        if messages:  # or it was killed before the first turn began
            check_messages(messages)
        return wrong

    def _changed(self, session_id, entries):
        lines = [msgspec.json.encode(entry) for entry in entries]
        before = self._seen.get(session_id, [])
        self._seen[session_id] = lines
        if [entry.seq for entry in entries] != list(range(1, len(entries) + 1)):
            yield "seqs have gaps"
        if lines[: len(before)] != before:
            yield "entries that were there have changed or are gone"


def lost(entries, records):
    """Every accepted message is there once; every answered one has exactly its reply, after it."""
    received = {entry.seq: entry for entry in entries if isinstance(entry, Received)}
    said = Counter(text_of(e.content) for e in entries if isinstance(e, Received | User) and e.content)
    replies = [(e.seq, text_of(e.content)) for e in entries if isinstance(e, Assistant) and not tool_uses(e)]
    yield from (f"{text!r} is there {times} times" for text, times in said.items() if times > 1)
    for record in records:
        text = record.get("accepted") or record["answered"]
        if text not in said:
            yield f"{text!r} was acknowledged and is not there"
        elif "answered" in record:
            seqs = [e.seq for e in entries if isinstance(e, User) and text in spoken(e, received)]
            if not any(seq > seqs[0] and reply == record["reply"] for seq, reply in replies):
                yield f"the reply to {text!r} was acknowledged and is not there"


def spoken(entry, received):
    parts = [text_of(received[seq].content) for seq in entry.from_ if seq in received]
    return [text_of(entry.content), *parts]


class Teller:
    """One connection to the auditor; what it says returns when it is recorded. For one thread."""

    def __init__(self, folder):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(Path(folder) / "socket"))
        self._file = self._socket.makefile("rw")

    def _say(self, said):
        self._file.write(json.dumps(said) + "\n")
        self._file.flush()
        return json.loads(self._file.readline())

    def accepted(self, session_id, text):
        self._say({"accepted": text, "session": session_id})

    def answered(self, session_id, text, reply):
        self._say({"answered": text, "session": session_id, "reply": reply})

    def compare(self, url, *, settled=False):
        return self._say({"compare": url, "settled": settled})

    def close(self):
        self._file.close()
        self._socket.close()


def run():
    asyncio.run(Auditor(sys.argv[1]).serve())

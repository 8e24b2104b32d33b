"""Models with a window of their own, and talks that grow, for the tests of fitting and folding."""

import re
from pathlib import Path

import apsw
from msgspec.structs import replace

from turnlog import ContextOverflow
from turnlog.core.entries import Compaction, text_of
from turnlog.core.events import Snapshot, TextDelta
from turnlog.core.history import as_text
from turnlog.core.tokens import of_messages
from turnlog.testing import ScriptedProvider, check_messages

from .talk import KEY, ask

TOO_LONG = {"error": {"status": 400, "message": "prompt is too long: 213462 tokens > 200000 maximum"}}
FACT = re.compile(r"FACT-\d+")


class Model(ScriptedProvider):
    """Refuses what is larger than its room, and summarises by listing the facts it was shown."""

    def __init__(self, replies=(), *, room=None, summary_room=None, **options):
        super().__init__(replies, **options)
        self.room = room
        self.summary_room = summary_room

    async def stream(self, prompt):
        if self.room is not None and size_of(prompt) > self.room:
            check_messages(prompt.messages)
            self.prompts.append(prompt)
            raise ContextOverflow("prompt is too long", tokens=size_of(prompt), window=self.room)
        async for piece in super().stream(prompt):
            yield piece

    async def summarise(self, prompt):
        check_messages(prompt.messages)
        self.summary_prompts.append(prompt)
        if self.summary_room is not None and size_of(prompt) > self.summary_room:
            raise ContextOverflow("prompt is too long", tokens=size_of(prompt), window=self.summary_room)
        return "Facts: " + " ".join(dict.fromkeys(FACT.findall(all_text(prompt))))


def size_of(prompt):
    tools = [{"name": t.name, "description": t.description, "input_schema": t.input_schema} for t in prompt.tools]
    return of_messages(prompt.messages, system=prompt.system, tools=tools)


def all_text(prompt):
    return "\n".join([prompt.system, *(as_text(message["content"]) for message in prompt.messages)])


async def chat(t, turns, *, first=1, size=0, where=KEY):
    """Turns that each say a fact of their own, padded to this many characters."""
    for n in range(first, first + turns):
        await ask(t, fact(n, size), where)


def fact(n, size=0):
    text = f"FACT-{n} "
    return text + "word " * ((size - len(text)) // 5) if size else text.strip()


def call(name, call_id="c1", **given):
    return {"tool_calls": [{"id": call_id, "name": name, "input": given}]}


def dump(size: int = 300_000) -> str:
    """Gives a lot of text."""
    return "".join(f"line {n} of the dump\n" for n in range(size // 18 + 1))[:size]


def compactions(entries):
    return [entry for entry in entries if isinstance(entry, Compaction)]


def seen(events):
    """What a client shows in the end: deltas joined, a snapshot in place of all before it."""
    text = ""
    for event in events:
        if isinstance(event, TextDelta):
            text += event.text
        elif isinstance(event, Snapshot):
            text = event.text
    return text


def of_type(events, *types):
    return [event for event in events if isinstance(event, types)]


def texts(prompt):
    return [text_of(message["content"]) for message in prompt.messages]


def place_of(url):
    return Path(url.partition(":")[2])


def stored_bytes(url):
    """What a session is on disk: its files, or its rows."""
    place = place_of(url)
    if url.startswith("jsonl:"):
        return {path.name: path.read_bytes() for path in sorted(place.rglob("ses-*.jsonl"))}
    return {table: rows(url, f"SELECT * FROM {table}") for table in ("sessions", "session_messages", "session_state")}


def rows(url, query):
    """Through the store's own SQLite library: a second one in the same process breaks the locks of the first."""
    db = apsw.Connection(str(place_of(url)), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return db.execute(query).fetchall()
    finally:
        db.close()


async def refine(t, **compactor):
    """The agent of this opening with another compactor: shorter waits than anybody would set."""
    agents = t._parts.agents
    agent = await agents.get("main")
    agents._ready["main", ""] = replace(agent, compactor=replace(agent.compactor, **compactor))

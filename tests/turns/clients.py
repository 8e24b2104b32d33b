"""A client in tests: sends requests to `Places` and stores answers, without a server or a model."""

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path
from weakref import WeakSet

from turnlog.core import history
from turnlog.core.entries import Assistant, ToolResult, User
from turnlog.core.principals import Principal
from turnlog.sessions import Sessions
from turnlog.stores import open_store
from turnlog.turns.places import Asked, Places

RECORDINGS = Path(__file__).parent / "recordings"
NAMES = ("x-session-id", "session-id", "session_id", "x-claude-code-session-id")
ANN, BOB = Principal("ann"), Principal("bob")


def blocks_of(content):
    """The content of any wire's message as blocks, without results."""
    if isinstance(content, str):
        return content
    kinds = {"input_text": "text", "output_text": "text"}
    kept = [block for block in content or [] if block["type"] != "tool_result"]
    return [{**block, "type": kinds.get(block["type"], block["type"])} for block in kept]


def read(raw):
    """One message of any of the three wires as bodies."""
    message = json.loads(raw)
    if message.get("type") == "function_call":
        block = {"id": message["call_id"], "name": message["name"], "input": json.loads(message["arguments"])}
        return [Assistant(content=[{"type": "tool_use", **block}])]
    if message.get("type") == "function_call_output":
        return [ToolResult(tool_use_id=message["call_id"], content=message["output"])]
    role, content = message["role"], message.get("content")
    if role == "tool":
        return [ToolResult(tool_use_id=message["tool_call_id"], content=content)]
    if role == "assistant":
        calls = [
            {
                "type": "tool_use",
                "id": call["id"],
                "name": call["function"]["name"],
                "input": call["function"]["arguments"],
            }
            for call in message.get("tool_calls", ())
        ]
        said = blocks_of(content)
        words = [{"type": "text", "text": said}] if isinstance(said, str) and said else said or []
        return [Assistant(content=[*words, *calls] if calls or not isinstance(said, str) else said)]
    results = [
        ToolResult(tool_use_id=block["tool_use_id"], content=block["content"])
        for block in (content if isinstance(content, list) else ())
        if block["type"] == "tool_result"
    ]
    words = blocks_of(content)
    sender = "system" if role in ("system", "developer") else None
    return [*results, *([User(content=words, sender=sender)] if words else [])]


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


PLACES = WeakSet()
"""Of all clients. The index of answers is written after an answer, by tasks of theirs."""


@asynccontextmanager
async def opened(url, **options):
    """A store. It is closed when all tasks have written to it."""
    async with open_store(url, **options) as store:
        try:
            yield store
        finally:
            await asyncio.gather(*(places.close() for places in PLACES))


class Client:
    """One principal's client. `say` sends a request and stores the answer that is given to it."""

    def __init__(self, store, *, who=ANN, name=None, clock=None, places=None, **more):
        self.store, self.who, self.name, self.more = store, who, name, more
        self.places = places or Places(store, Sessions(store), **({"clock": clock} if clock else {}))
        PLACES.add(self.places)

    def asked(self, messages, **more):
        fields = {"principal": self.who, "name": self.name, "wire": "chat", "client": "test", "model": "m"}
        raw = [message if isinstance(message, bytes) else json.dumps(message).encode() for message in messages]
        return Asked(**{**fields, "messages": raw, "read": read, **self.more, **more})

    @asynccontextmanager
    async def asking(self, *messages, **more):
        async with self.places.enter(self.asked(messages, **more)) as entrance:
            yield entrance

    async def say(self, *messages, answer="Yes.", whole=True, **more):
        """(match, session, the prompt's messages)"""
        async with self.asking(*messages, **more) as entrance:
            if entrance.journal is None:
                return entrance.match, entrance.session_id, None
            shown = history.build(entrance.journal.transcript).messages
            body = answer if isinstance(answer, Assistant) else Assistant(content=answer, model="x", stop="end_turn")
            await entrance.journal.append(body)
        self.places.left(entrance.session_id, entrance.turn, whole=whole)
        return entrance.match, entrance.session_id, shown

    async def log(self, session_id):
        return await self.store.read(session_id)


def answer_of(recorded):
    said = recorded["answered_with"] or {}
    blocks = [{"type": "text", "text": said["text"]}] if said.get("text") else []
    if tool := said.get("tool"):
        blocks.append({"type": "tool_use", "id": tool["id"], "name": tool["name"], "input": tool["input"]})
    return Assistant(content=blocks, model="x", stop="tool_use" if tool else "end_turn")


def split_of(body):
    """(the head, the messages after it) of a recorded body."""
    given = body.get("messages") or body.get("input")
    messages = [user(given)] if isinstance(given, str) else list(given)
    head = [str(body.get("system", "")), str(body.get("instructions", ""))]
    while messages and messages[0].get("role") in ("system", "developer"):
        head.append(json.dumps(messages.pop(0)["content"]))
    return "\n".join(filter(None, head)), messages


def name_of(recorded):
    return next((recorded["headers"][name] for name in NAMES if name in recorded["headers"]), None)


def recording(name):
    return json.loads((RECORDINGS / f"{name}.json").read_text())["requests"]


async def replay(client, name):
    """What each request of a recording matched: (match, session)."""
    found = []
    for recorded in recording(name):
        system, messages = split_of(recorded["body"])
        is_cut = bool((recorded["answered_with"] or {}).get("cut"))
        match, session, _ = await client.say(
            *messages,
            answer=answer_of(recorded),
            whole=not is_cut,
            name=name_of(recorded),
            system=system,
            wire=recorded["path"].split("?")[0].rpartition("/")[2],
        )
        found.append((match, session))
    return found

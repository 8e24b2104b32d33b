"""Contexts for calls, and calls as a model writes them."""

import asyncio

from turnlog.core.entries import Assistant, ToolResult, User
from turnlog.core.query import Hit
from turnlog.core.search import has_all, understand
from turnlog.core.searchable import units
from turnlog.core.snippets import excerpt
from turnlog.core.words import indexed
from turnlog.tools import Context, Toolbox

TALK = (
    User(seq=2, content="the harbour code is QX-7741, keep it"),
    Assistant(seq=3, content=[{"type": "text", "text": "Noted."}]),
    ToolResult(seq=4, tool_use_id="t1", content="灯塔在北边 " + "x" * 3_000),
)


def context(entries=TALK, *, recall=None, session_id="ses-1", extra=()):
    async def search(words):
        sought = understand(words)
        hits = [
            Hit(session_id=session_id, seq=entry.seq, role=unit.role, snippet=excerpt(unit.text, sought).text)
            for entry in entries
            for unit in units(entry, {})
            if has_all(indexed(unit.text), sought.strict)
        ]
        return [*hits, *extra]

    async def read(first, last):
        return [entry for entry in entries if first <= entry.seq <= last]

    return Context(session_id=session_id, agent="main", search=search, read=read, recall=recall)


def call(name, given=None, call_id="call-1"):
    return {"type": "tool_use", "id": call_id, "name": name, "input": {} if given is None else given}


def run(tools, name, given=None, *, known=None):
    box = tools if isinstance(tools, Toolbox) else Toolbox(tools)
    return asyncio.run(box.run(call(name, given), known or context()))

"""What the tests of turns share: a place for each store, and short ways to talk and to look."""

import asyncio
from contextlib import asynccontextmanager

import turnlog
from turnlog.core.entries import MESSAGES, text_of
from turnlog.core.events import TERMINAL, Done
from turnlog.testing import ScriptedProvider, check_messages

KEY = "agent:main:cli:direct:user"


def url_at(kind, place):
    return f"jsonl:{place}/files" if kind == "jsonl" else f"sqlite:{place}/sessions.db"


@asynccontextmanager
async def opened(url, provider=None, *, home=None, **flags):
    provider = provider or ScriptedProvider()
    flags.setdefault("store_durability", "os")
    async with turnlog.open(url, home=home or "/nonexistent", provider=provider, **flags) as t:
        yield t
    for prompt in [*getattr(provider, "prompts", ()), *getattr(provider, "summary_prompts", ())]:
        check_messages(prompt.messages)


async def say(t, text, where=KEY, **options):
    """The events of one turn; exactly one of them is terminal, and it is the last."""
    events = [event async for event in t.send(where, text, **options)]
    assert [isinstance(event, TERMINAL) for event in events] == [False] * (len(events) - 1) + [True]
    return events


async def ask(t, text, where=KEY, **options):
    """The answer's text of a turn that must go well."""
    events = await say(t, text, where, **options)
    assert isinstance(events[-1], Done), events
    return "".join(event.text for event in events if type(event).__name__ == "TextDelta")


async def log(t, where=KEY):
    return await t.store.read((await t.session(where)).id)


def kinds(entries):
    return [str(entry.__struct_config__.tag) for entry in entries]


def words(entries):
    """(kind, text) of messages."""
    return [(str(e.__struct_config__.tag), text_of(e.content)) for e in entries if isinstance(e, MESSAGES)]


def shown(prompt):
    """(role, text) of what was sent."""
    return [(message["role"], text_of(message["content"])) for message in prompt.messages]


HANGS_AFTER_S = 600


def run(main):
    """Nothing here may hang: a test that does is a test that fails."""
    return asyncio.run(asyncio.wait_for(main, HANGS_AFTER_S))

"""The promises of the library as a whole: which errors leave it, and when it can be closed."""

import asyncio
import importlib
import inspect
import pkgutil
import subprocess
import sys
import typing

import pytest

import turnlog
from turnlog.core.query import Query
from turnlog.memory import Memory
from turnlog.stores import Ledger, Store
from turnlog.testing import ScriptedProvider

from .stores.postgres import Urls

EDGES = ("turnlog.server", "turnlog.cli", "turnlog.channels", "turnlog.__main__", "turnlog.adapters")
"""Programs and bots, not the library: they show errors instead of raising them. Errors of adapters are also those of
their frameworks, and are found next to the adapters.
"""
EXIT = """
import asyncio, atexit, sys, threading
import turnlog

loop = asyncio.new_event_loop()
stores = turnlog.open_store(sys.argv[1])

async def begin():
    store = await stores.__aenter__()
    opened = turnlog.Opened(id="s", key="agent:main:cli:direct:user", agent="main", channel="cli")
    await store.append("s", [opened])
    await store.delete("s")

def refuse(thread):
    raise RuntimeError("can't create new thread at interpreter shutdown")  # as Python does from 3.12 on

def close():
    threading.Thread.start = refuse
    loop.run_until_complete(stores.__aexit__(None, None, None))
    print("closed")

atexit.register(close)
loop.run_until_complete(begin())
"""


@pytest.mark.parametrize("url", ["memory:", "jsonl:{}/files", "sqlite:{}/sessions.db"])
def test_a_store_can_be_closed_while_the_interpreter_exits(url, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", EXIT, url.format(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.stderr) == ("closed\n", "")


def test_every_error_class_of_the_library_is_public():
    names = [module.name for module in pkgutil.walk_packages(turnlog.__path__, "turnlog.")]
    for name in names:
        if not name.startswith(EDGES):
            importlib.import_module(name)
    private = [kind for kind in descendants(turnlog.TurnlogError) if kind is not getattr(turnlog, kind.__name__, None)]
    assert [kind.__qualname__ for kind in private if not kind.__module__.startswith(EDGES)] == []


def descendants(kind):
    return {kind}.union(*map(descendants, kind.__subclasses__()))


KEY = "agent:main:cli:direct:user"
URLS = {"memory": "memory:", "jsonl": "jsonl:{}/files", "sqlite": "sqlite:{}/sessions.db", "postgresql": Urls()}
WRONG = [
    object(),
    5,
    -1,
    float("nan"),
    True,
    b"x",
    ["x"],
    [5],
    {"a": 1},
    {5: 1},
    2**80,
    "",
    "no:such",
    "half a character: \ud800",
    "a\0b",
    {"half": "\ud800"},
    print,
    None,
]
VALID = {
    "seqs": [1],
    "where": KEY,
    "content": "hi",
    "session_id": "s1",
    "key": KEY,
    "text": "s1",
    "words": "hi",
    "dedupe_id": "d1",
    "agent": "main",
    "session": "s1",
    "within_s": 0.01,
    "title": "x",
    "value": "inactive",
    "to": 1,
    "target": 1,
    "principal": turnlog.Principal("ann"),
    "tell": print,
    "query": Query(),
    "bodies": [turnlog.Title(title="x")],
    "after": 0,
    "space": "spare",
    "old": None,
    "new": 1,
    "name": "main",
    "row": turnlog.Session(id="s1", key=KEY, agent="main", channel="cli"),
    "place": turnlog.SessionKey(agent="main", channel="cli", kind="direct", peer="user"),
    "call": lambda history: None,
    "function": lambda messages: "an answer",
    "messages": [turnlog.User(content="hi")],
}
"""An argument for each parameter that must be given, whichever method it is of."""
BY_TYPE = {str: "x", int: 1}
"""The same for parameters whose name says nothing."""
NOT_CALLED = {"Entry", "Event", "__version__", "Store", "Lease"}
"""Unions, a text, and protocols, which Python itself keeps from being called."""
RESULTS = {
    *(kind.__name__ for kind in typing.get_args(turnlog.Event)),
    *("CompactionReport", "Coverage", "History", "Prompt", "ShapedMessages"),
}
"""Values that users get and never make."""
LOCAL = {
    *("acting_for", "admit", "own_key", "check_agent", "model", "renewed", "allow"),
    *("running", "on_turn", "ledger", "drain", "close", "aclose", "end_turns", "stop"),
    *("left_here", "accept_if_unchanged"),
}
"""Methods that do not ask the store."""


@pytest.fixture(params=URLS)
def url(request, tmp_path):
    return URLS[request.param].format(tmp_path)


def opened(url):
    return turnlog.open(url, home="/nonexistent", provider=ScriptedProvider(), store_durability="os")


def methods_of(t, memory):
    """(name, bound method) of everything that the library offers on its objects."""
    contracts = {t.store: Store, t.store.ledger: Ledger, memory: Memory}
    for owner in (t, t.sessions, t.store, t.store.ledger, memory):
        for name, method in inspect.getmembers(owner, inspect.ismethod):
            if not name.startswith("_") and hasattr(contracts.get(owner, owner), name):
                yield f"{type(owner).__name__}.{name}", method


def required(method):
    found = inspect.signature(method).parameters.values()
    named = [one for one in found if one.kind is not one.VAR_POSITIONAL]
    needed = [one for one in named if one.default is one.empty or one.name in ("content", "where")]
    return {one.name: VALID[one.name] if one.name in VALID else BY_TYPE[one.annotation] for one in needed}


async def outcome(method, *args, **kwargs):
    """What it raises; None if it does not. Whatever it gives is entered, iterated or awaited."""
    try:
        found = method(*args, **kwargs)
        if inspect.isawaitable(found):
            given = await asyncio.wait_for(found, 10)
            if isinstance(given, turnlog.Turnlog):
                await given.aclose()
        elif isinstance(found, turnlog.SyncTurnlog):
            found.close()
        elif hasattr(found, "__aenter__"):
            async with found:
                pass
        elif hasattr(found, "__anext__"):
            await asyncio.wait_for(anext(found, None), 0.05)
            await found.aclose()
    except TimeoutError:
        return None
    except Exception as error:
        return error
    return None


async def at_hand(t):
    """A session s1 with one message, whatever the call before did to it."""
    try:
        row = await t.store.describe("s1")
        assert row.status == "inactive"
    except (turnlog.NotFound, AssertionError):
        if await outcome(t.store.delete, "s1") is None:
            await t.sessions.acting_for(turnlog.Principal("owner", frozenset({"admin"}))).new(KEY, session_id="s1")


def test_whatever_a_method_is_given_its_error_is_ours(url):
    async def main():
        foreign = []
        async with opened(url) as t:
            for name, method in methods_of(t, await t.memory()):
                if name.endswith((".close", ".aclose", ".end_turns", ".resume", ".reindex")):
                    continue
                names = [one.name for one in inspect.signature(method).parameters.values()]
                for wrong in WRONG:
                    for given in names:
                        await at_hand(t)
                        kwargs = {**required(method), given: wrong}
                        rest = [wrong] if given == "messages" and name == "Turnlog.append" else []
                        kwargs = {key: value for key, value in kwargs.items() if not rest or key != "bodies"}
                        args = [kwargs.pop("where"), *rest] if rest else []
                        error = await outcome(method, *args, **kwargs)
                        if error is not None and not isinstance(error, turnlog.TurnlogError):
                            foreign.append((name, given, wrong, repr(error)))
                for args in ((), (object(),) * 9):
                    error = await outcome(method, *args, nosuch=1)
                    if not isinstance(error, turnlog.UsageError):
                        foreign.append((name, "nosuch", args, repr(error)))
        assert foreign == []

    asyncio.run(main())


def test_after_a_close_every_method_says_that_the_store_is_closed(url):
    async def main():
        async with opened(url) as t:
            await at_hand(t)
            memory = await t.memory()
        answered = {}
        for name, method in methods_of(t, memory):
            error = await outcome(method, **required(method))
            if name.partition(".")[2] not in LOCAL and not isinstance(error, turnlog.StoreUnavailable):
                answered[name] = repr(error)
        assert answered == {}
        await t.store.close()
        await memory.close()
        await t.close()

    asyncio.run(main())


def is_error(name):
    return isinstance(getattr(turnlog, name), type) and issubclass(getattr(turnlog, name), Exception)


@pytest.mark.parametrize(
    "name", [name for name in turnlog.__all__ if not is_error(name) and name not in NOT_CALLED | RESULTS]
)
def test_whatever_a_public_name_is_called_with_its_error_is_ours(name):
    public = getattr(turnlog, name)

    async def main():
        for args in ((), *((wrong,) for wrong in WRONG), *((wrong, wrong) for wrong in WRONG)):
            error = await outcome(public, *args, nosuch=1)
            assert isinstance(error, turnlog.UsageError), (args, error)
            error = await outcome(public, *args)
            assert error is None or isinstance(error, turnlog.TurnlogError), (args, error)

    asyncio.run(main())


def test_entries_are_made_by_naming_their_fields():
    with pytest.raises(turnlog.UsageError, match="positional") as raised:
        turnlog.User("hi")
    assert "User(" in raised.value.hint
    with pytest.raises(turnlog.UsageError, match="nosuch"):
        turnlog.User(nosuch=1)


STARVED = """
import asyncio, resource, sys
import turnlog
from turnlog.testing import opened

async def main():
    kept, foreign, lost = set(), [], 0
    async with turnlog.open_store(sys.argv[1]) as store:
        await store.append("first", [opened("first")])
        here = len(__import__("os").listdir("/proc/self/fd")) if sys.platform == "linux" else 40
        resource.setrlimit(resource.RLIMIT_NOFILE, (here + 12, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        hogs = []
        try:
            while True:
                hogs.append(open("/dev/null"))
        except OSError:
            pass

        async def work(n):
            name = f"s{n}"
            try:
                await store.append(name, [opened(name)])
                kept.add(name)
                async with store.lease(name) as lease:
                    await store.append(name, [turnlog.User(content="hi")], lease=lease)
                await store.read(name)
                await store.find(turnlog.Query())
                await store.search("hi")
                await store.ledger.put_if_absent("space", name, 1)
            except turnlog.StoreUnavailable as error:
                assert error.hint
            except turnlog.TurnlogError:
                raise
            except BaseException as error:
                foreign.append(repr(error))

        for n in range(60):
            await work(n)
        for hog in hogs:
            hog.close()
        assert {row.id for row in (await store.find(turnlog.Query(limit=200))).items} == kept | {"first"}
    print(foreign)

asyncio.run(main())
"""


@pytest.mark.parametrize("url", ["jsonl:{}/files", "sqlite:{}/sessions.db"])
def test_without_free_file_descriptors_the_store_says_that_it_is_unavailable(url, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", STARVED, url.format(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")

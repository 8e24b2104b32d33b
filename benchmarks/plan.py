"""Which measurements there are, on which prepared transcripts, in which order. Nothing is run here."""

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from benchmarks.adapter_ratios import INVOCATIONS, all_rows

KEEP = 40
AT_ONCE = 64
ALL_ROUNDS = 99
SEARCHED = ("jsonl", "sqlite", "postgres")
IN_PLACE_FROM = 100_000
"""Messages in a transcript that is so long that a few rounds more do not change its size."""


@dataclass(frozen=True)
class Scale:
    """How much of it: the quick run has the same shape at a tenth of the size."""

    sizes: tuple[int, ...]
    sessions: tuple[int, ...]
    rounds: int
    some_rounds: int
    slow_rounds: int
    count: int

    @property
    def small(self) -> int:
        return self.sizes[0]

    @property
    def large(self) -> int:
        return self.sizes[-1]


FULL = Scale((1_000, 10_000, 100_000), (100, 1_000, 10_000, 100_000), rounds=7, some_rounds=5, slow_rounds=2, count=500)
QUICK = Scale((1_000, 10_000), (100, 10_000), rounds=3, some_rounds=2, slow_rounds=1, count=200)


@dataclass(frozen=True)
class Fixture:
    """A prepared transcript or store; built once, used in every round."""

    name: str
    side: str
    verb: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One figure of one contestant. `copy`: work on a copy, so that all rounds begin at the same size.

    `rounds`: the most rounds, where a contestant is slow and no ratio depends on it.
    """

    key: str
    side: str
    verb: str
    arguments: dict[str, Any] = field(default_factory=dict)
    fixture: Fixture | None = None
    copy: bool = False
    rounds: int = ALL_ROUNDS


@dataclass(frozen=True)
class Group:
    """`database`: with a PostgreSQL that all its tasks share."""

    name: str
    title: str
    tasks: list[Task]
    database: bool = False


def turnlog_fixture(backend: str, messages: int, keep: int | None = None) -> Fixture:
    name = f"turnlog-{backend}-{messages}" + ("-compacted" if keep else "")
    return Fixture(name, "turnlog_side", "build", {"backend": backend, "messages": messages, "keep": keep})


def peer_fixture(peer: str, messages: int) -> Fixture:
    return Fixture(f"{peer}-{messages}", f"peers.{peer}", "build", {"messages": messages})


def pi_fixture(messages: int, keep: int | None = None) -> Fixture:
    name = f"pi-{messages}" + ("-compacted" if keep else "")
    return Fixture(name, "pi", "build", {"messages": messages, "keep": keep})


def append_group(scale: Scale) -> Group:
    """The fast ones first and next to each other: the closer in time, the more the machine's mood cancels out."""
    fast, slow = [], []
    for size in scale.sizes:
        copy, count = size < IN_PLACE_FROM, {"count": scale.count}
        few = {"count": 2 if size >= IN_PLACE_FROM else 10}
        fast += [
            turnlog_append(f"append/{size}/jsonl", "jsonl", "os", size, scale),
            Task(f"append/{size}/pi", "pi", "append", count, pi_fixture(size), copy),
        ]
        slow += [
            turnlog_append(f"append/{size}/sqlite", "sqlite", "os", size, scale, scale.some_rounds),
            Task(f"append/{size}/write", "limits", "write", count, rounds=scale.some_rounds),
            peer_append(size, "openai_agents", {"count": 300}, scale.some_rounds),
            peer_append(size, "claw0", {"count": 100}, scale.slow_rounds),
            peer_append(size, "langgraph_sqlite", few, scale.slow_rounds),
            peer_append(size, "adk", {"count": 60}, scale.slow_rounds),
        ]
    return Group("append", "append a turn, durability os", [*fast, *slow])


def turnlog_append(key: str, backend: str, durability: str, size: int, scale: Scale, rounds: int = ALL_ROUNDS) -> Task:
    arguments = {"backend": backend, "durability": durability, "count": scale.count}
    fixture = turnlog_fixture(backend, size)
    return Task(key, "turnlog_side", "append", arguments, fixture, size < IN_PLACE_FROM, rounds)


def peer_append(size: int, peer: str, arguments: dict, rounds: int) -> Task:
    key, fixture = f"append/{size}/{peer}", peer_fixture(peer, size)
    return Task(key, f"peers.{peer}", "append", arguments, fixture, size < IN_PLACE_FROM, rounds)


def durable_group(scale: Scale) -> Group:
    size, count, agents = 10_000, {"count": scale.count}, peer_fixture("openai_agents", 10_000)
    tasks = [
        Task("durable/limit", "limits", "sync", count),
        turnlog_append("durable/jsonl", "jsonl", "full", size, scale),
        turnlog_append("durable/sqlite", "sqlite", "full", size, scale),
        Task("durable/openai_agents", "peers.openai_agents", "append", count, agents, True, scale.slow_rounds),
    ]
    return Group("durable", "append a turn, on the disk when it returns", tasks)


def at_once_group(scale: Scale) -> Group:
    each = scale.count // 5
    many = {"sessions": AT_ONCE, "count": each}
    tasks = [Task("at_once/limit", "limits", "sync_threads", {"threads": AT_ONCE, "count": each})]
    for backend in ("jsonl", "sqlite"):
        one = {"sessions": 1, "count": scale.count, "backend": backend}
        tasks += [
            Task(f"at_once/{backend}", "turnlog_side", "append_at_once", many | {"backend": backend}),
            Task(f"serial/{backend}", "turnlog_side", "append_at_once", one),
        ]
    tasks.append(Task("at_once/openai_agents", "peers.openai_agents", "append_at_once", many, rounds=scale.some_rounds))
    return Group("at_once", f"{AT_ONCE} sessions appending durably at once", tasks)


def resume_group(scale: Scale) -> Group:
    tasks = []
    for size in (scale.small, scale.large):
        for backend in ("jsonl", "sqlite"):
            arguments, fixture = {"backend": backend, "times": 15}, turnlog_fixture(backend, size, KEEP)
            tasks.append(
                Task(f"resume/{size}/{backend}", "turnlog_side", "resume", arguments, fixture, rounds=scale.some_rounds)
            )
        newest = {"keep": KEEP, "times": 5}
        agents, adk = peer_fixture("openai_agents", size), peer_fixture("adk", size)
        tasks += [
            Task(f"resume/{size}/pi", "pi", "resume", {"times": 3}, pi_fixture(size, KEEP), rounds=1),
            Task(f"resume/{size}/openai_agents", "peers.openai_agents", "resume", newest, agents, rounds=2),
            Task(f"resume/{size}/adk", "peers.adk", "resume", newest, adk, rounds=1),
        ]
    return Group("resume", f"resume after a compaction that kept {KEEP}", tasks)


def full_group(scale: Scale) -> Group:
    size, few = scale.large, {"times": 3}
    lines = turnlog_fixture("jsonl", size)
    everything = few | {"keep": None}
    agents, adk = peer_fixture("openai_agents", size), peer_fixture("adk", size)
    tasks = [
        Task("full/limit", "limits", "parse", few, lines, rounds=scale.some_rounds),
        Task("full/jsonl", "turnlog_side", "read_all", few | {"backend": "jsonl"}, lines, rounds=scale.some_rounds),
        Task(
            "full/sqlite",
            "turnlog_side",
            "read_all",
            few | {"backend": "sqlite"},
            turnlog_fixture("sqlite", size),
            rounds=scale.some_rounds,
        ),
        Task("full/claw0", "peers.claw0", "resume", few, peer_fixture("claw0", size), rounds=scale.slow_rounds),
        Task("full/openai_agents", "peers.openai_agents", "resume", everything, agents, rounds=scale.slow_rounds),
        Task(
            "full/langgraph_sqlite",
            "peers.langgraph_sqlite",
            "resume",
            few,
            peer_fixture("langgraph_sqlite", size),
            rounds=1,
        ),
        Task("full/adk", "peers.adk", "resume", {"keep": None, "times": 1}, adk, rounds=1),
    ]
    return Group("full", f"resume in full, {size:,} messages", tasks)


def among_group(scale: Scale) -> Group:
    tasks = []
    for sessions in scale.sessions:
        for backend in ("jsonl", "sqlite"):
            name, arguments = f"turnlog-{backend}-among-{sessions}", {"backend": backend, "sessions": sessions}
            fixture = Fixture(name, "turnlog_side", "build_many", arguments)
            arguments = {"backend": backend, "count": scale.count}
            key = f"among/{sessions}/{backend}"
            tasks.append(Task(key, "turnlog_side", "among", arguments, fixture, rounds=scale.some_rounds))
        fixture = Fixture(f"claw0-among-{sessions}", "peers.claw0", "build", {"messages": 2, "sessions": sessions})
        few = {"count": 5 if sessions > 1_000 else 50}
        tasks.append(Task(f"among/{sessions}/claw0", "peers.claw0", "append", few, fixture, rounds=scale.slow_rounds))
    return Group("among", "append among many sessions", tasks)


def search_group(scale: Scale) -> Group:
    tasks = []
    for backend in SEARCHED:
        arguments = {"backend": backend, "messages": scale.large, "searchable": True}
        fixture = Fixture(f"turnlog-search-{backend}-{scale.large}", "turnlog_side", "build", arguments)
        asked = {"backend": backend, "times": 10}
        tasks.append(Task(f"search/{backend}", "turnlog_side", "search", asked, fixture, rounds=scale.some_rounds))
    return Group("search", f"search over {scale.large:,} messages", tasks, database=True)


IMPORTS = {
    "bare": "pass",
    "turnlog": "import turnlog",
    "turnlog_and_store": "from turnlog import Sessions, open_store; import turnlog.stores.sqlite",
    "openai_agents": "from agents import SQLiteSession",
    "langgraph_sqlite": "from langgraph.checkpoint.sqlite import SqliteSaver",
    "adk": "from google.adk.sessions import DatabaseSessionService",
}


def import_group(scale: Scale) -> Group:
    tasks = []
    for name, statement in IMPORTS.items():
        ours = name == "bare" or name.startswith("turnlog")
        arguments = {"statement": statement, "times": 5 if ours else 1}
        tasks.append(Task(f"import/{name}", "limits", "start", arguments, rounds=ALL_ROUNDS if ours else 1))
    return Group("import", "import the library", tasks)


TURNS_SMALL = 10
MANY = {"sessions": 200, "each": 10}


def turns_group(scale: Scale) -> Group:
    tasks = []
    large = scale.large // 10
    for at in (TURNS_SMALL, large):
        for backend in ("jsonl", "sqlite"):
            fixture = Fixture(f"turns-{backend}-{at}", "turnlog_turns", "build", {"backend": backend, "turns": at})
            arguments = {"backend": backend, "count": 100, "at": at}
            key = f"turns/{at}/{backend}"
            tasks.append(Task(key, "turnlog_turns", "turns", arguments, fixture, True, scale.some_rounds))
    tasks.append(Task("turns/plan", "turnlog_turns", "plan", {"messages": large, "times": 5}, rounds=scale.some_rounds))
    tasks += [
        Task(f"turns/many/{backend}", "turnlog_turns", "many", MANY | {"backend": backend}, rounds=1)
        for backend in ("jsonl", "sqlite")
    ]
    return Group("turns", "turns with the offline model, durability os", tasks)


CHAT_SESSIONS = 10_000


def terminal_group(scale: Scale) -> Group:
    arguments = {"backend": "sqlite", "sessions": CHAT_SESSIONS}
    fixture = Fixture(f"turnlog-sqlite-among-{CHAT_SESSIONS}", "turnlog_side", "build_many", arguments)
    tasks = [
        Task("terminal/version", "turnlog_terminal", "version", {"times": 5}, rounds=scale.some_rounds),
        Task("terminal/start", "turnlog_terminal", "open_chat", {"times": 3}, fixture, True, scale.some_rounds),
        Task("terminal/answer", "turnlog_terminal", "answer", {"times": 6}, fixture, True, scale.some_rounds),
        Task("terminal/idle", "turnlog_terminal", "idle", {"seconds": 10}, fixture, True, scale.some_rounds),
    ]
    return Group("terminal", "the terminal", tasks)


CLIENTS = 64
IDLE_STREAMS = 2_000
PAINTED = {10_000: 300, 100_000: 500}
"""Sessions in the store, and the milliseconds within which any page is painted."""


def server_group(scale: Scale) -> Group:
    many, some = {"clients": CLIENTS, "turns": 20}, scale.some_rounds
    at_once = many | {"program": "benchmarks.at_once_model"}
    sessions = scale.sessions[-1]
    chats = Fixture(f"chats-{sessions}", "turnlog_chats", "build", {"sessions": sessions})
    tasks = [
        Task("server/many/sqlite", "turnlog_server", "turns", at_once, rounds=some),
        Task("server/many/bare_server", "bare_server", "turns", many, rounds=some),
        Task("server/many/adk_server", "peers.adk_server", "turns", many | {"turns": 5}, rounds=some),
        Task("server/full/sqlite", "turnlog_server", "turns", at_once | {"durability": "full"}, rounds=some),
        *(
            Task(f"workers/{workers}/sqlite", "turnlog_server", "turns", many | {"workers": workers}, rounds=some)
            for workers in (1, 2)
        ),
        Task("server/one/sqlite", "turnlog_server", "turns", {"clients": 1, "turns": 100}, rounds=some),
        Task("server/idle/sqlite", "turnlog_server", "idle", {"streams": IDLE_STREAMS, "seconds": 5}, rounds=1),
        Task("server/chats/sqlite", "turnlog_chats", "page", {"times": 20}, chats, rounds=some),
    ]
    for painted in PAINTED:
        if painted <= sessions:
            store = Fixture(f"chats-{painted}", "turnlog_chats", "build", {"sessions": painted})
            tasks.append(Task(f"server/paint/{painted}", "turnlog_chats", "paint", {"times": 5}, store, rounds=some))
    return Group("server", "the server and its page, SQLite", tasks)


API_SIZES = {"100 KB": (200, 100_000), "2.7 MB": (8_000, 2_700_000)}
"""Name → messages and bytes of a request that resends everything."""


def api_group(scale: Scale) -> Group:
    some, sides = scale.some_rounds, {"sqlite": "turnlog_api", "litellm": "peers.litellm_proxy"}
    tasks = []
    for name, side in sides.items():
        for size, (messages, size_bytes) in API_SIZES.items():
            asked = {"messages": messages, "size_bytes": size_bytes}
            tasks.append(Task(f"api/added {size}/{name}", side, "added", asked, rounds=some))
        tasks.append(Task(f"api/first/{name}", side, "first", rounds=some))
        tasks.append(Task(f"api/many/{name}", side, "many", {"clients": CLIENTS, "turns": 20}, rounds=some))
    tasks.append(Task("api/many/native", "turnlog_api", "native", {"clients": CLIENTS, "turns": 20}, rounds=some))
    return Group("api", "clients of OpenAI's protocol in front of a stub, SQLite", tasks)


POSTGRES_TURNS = {1: 300, 16: 100, 64: 30}
"""Sessions at once → turns of each; the same for all contestants, since one of them pays for each turn before."""
POSTGRES_SIDES = {
    "postgres": ("turnlog_side", {"backend": "postgres"}),
    "sqlalchemy_session": ("peers.sqlalchemy_session", {}),
    "langgraph_postgres": ("peers.langgraph_postgres", {}),
}
SERVED = {"clients": 32, "turns": 25}


def postgres_group(scale: Scale) -> Group:
    tasks = []
    for sessions, count in POSTGRES_TURNS.items():
        for name, (side, more) in POSTGRES_SIDES.items():
            arguments = more | {"sessions": sessions, "count": count}
            key = f"postgres/{sessions}/{name}"
            tasks.append(Task(key, side, "append_at_once", arguments, rounds=scale.some_rounds))
    one = {"count": POSTGRES_TURNS[1]}
    tasks.append(Task("postgres/1/statement", "turnlog_postgres", "statement", one, rounds=scale.some_rounds))
    for size in (scale.small, scale.large):
        fixture, times = turnlog_fixture("postgres", size, KEEP), {"times": 30}
        key = f"postgres_resume/{size}/postgres"
        tasks.append(Task(key, "turnlog_postgres", "resume", times, fixture, rounds=scale.some_rounds))
    for servers in (1, 2):
        arguments = SERVED | {"servers": servers}
        tasks.append(
            Task(f"served/{servers}/postgres", "turnlog_postgres", "serve", arguments, rounds=scale.some_rounds)
        )
    tasks.append(Task("served/trips/postgres", "turnlog_postgres", "round_trips", {"turns": 100}, rounds=1))
    return Group("postgres", "all on one PostgreSQL", tasks, database=True)


def adapters_group(scale: Scale) -> Group:
    """Each call on the framework's own SQLite store and on Turnlog's adapter, alternating in one process."""
    tasks = [
        Task(
            f"adapters/{row.name}",
            "adapter_ratios",
            "compare",
            {"row": row.name, "rounds": row.rounds},
            Fixture(f"adapters-{row.built}", "adapter_ratios", "build", {"built": row.built}),
            copy=True,
            rounds=scale.some_rounds,
        )
        for row in all_rows()
        if row.goal is not None
    ]
    for name, own in OWN.items():
        disk = {"own": own, "invocations": INVOCATIONS}
        tasks.append(Task(f"adapters/graph/disk/{name}", "adapters_side", "graph_build", disk, rounds=1))
    if find_spec("claude_agent_sdk"):  # 350 MB: `make adapters` installs it
        tasks.append(Task("adapters/claude/append/ours", "adapters_side", "claude_append", {"count": scale.count}))
    return Group("adapters", "sessions of agent frameworks, durable, SQLite", tasks)


OWN = {"own": True, "ours": False}


def groups(scale: Scale) -> list[Group]:
    makers = (
        append_group,
        durable_group,
        at_once_group,
        resume_group,
        full_group,
        among_group,
        search_group,
        import_group,
        turns_group,
        terminal_group,
        server_group,
        api_group,
        postgres_group,
        adapters_group,
    )
    return [make(scale) for make in makers]

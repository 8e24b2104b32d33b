"""What is asked of Turnlog, and whether a run reached it. Pure: results in, verdicts out."""

import statistics
from dataclasses import dataclass
from typing import Literal

from benchmarks.adapter_ratios import THREAD, all_rows
from benchmarks.plan import (
    API_SIZES,
    AT_ONCE,
    CHAT_SESSIONS,
    CLIENTS,
    IDLE_STREAMS,
    IMPORTS,
    KEEP,
    PAINTED,
    SEARCHED,
    SERVED,
    TURNS_SMALL,
    Scale,
)
from benchmarks.workload import QUESTIONS

Results = dict[str, list[dict[str, float]]]

NAMES = {
    "jsonl": "Turnlog JSONL",
    "sqlite": "Turnlog SQLite",
    "pi": "pi",
    "openai_agents": "openai-agents",
    "langgraph_sqlite": "langgraph",
    "adk": "google-adk",
    "claw0": "claw0 design",
    "limit": "limit",
    "write": "one write",
    "bare": "bare interpreter",
    "turnlog_and_store": "Turnlog with a store",
    "adk_server": "google-adk api_server",
    "bare_server": "bare ASGI with two commits",
    "statement": "one connection, one statement",
    "us": "the median",
    "cpu_us": "processor a turn",
    "per_s": "with clients on the same cores",
    "postgres": "Turnlog PostgreSQL",
    "sqlalchemy_session": "openai-agents",
    "langgraph_postgres": "langgraph",
    "servers_us": "processor a turn: servers",
    "postgres_us": "PostgreSQL",
    "clients_us": "clients",
    "percent": "of all cores these take",
    "idle_percent": "idle",
    "searchable_per_s": "searchable as well",
    "indexed_per_s": "indexed as well",
    "slowest_us": "the slowest question",
    "everywhere_us": "a word in every message",
    "before_us": "until the upstream has the request",
    "own": "the framework's own store",
    "own_us": "the framework's own store",
    "ours": "Turnlog's adapter",
}


PEERS_ON_POSTGRES = ("sqlalchemy_session", "langgraph_postgres")


@dataclass(frozen=True)
class Figure:
    key: str
    metric: str = "us"


@dataclass(frozen=True)
class Claim:
    """`ours` over `against` (or minus it, or alone) has to stay within `reach`."""

    work: str
    ours: Figure
    reach: float
    against: Figure | None = None
    how: Literal["ratio", "difference", "alone"] = "ratio"
    at_least: bool = False
    beside: tuple[str | Figure, ...] = ()
    unit: str = "x"


@dataclass(frozen=True)
class Verdict:
    claim: Claim
    value: float | None
    low: float
    high: float

    @property
    def reached(self) -> bool | None:
        if self.value is None:
            return None
        return self.value >= self.claim.reach if self.claim.at_least else self.value <= self.claim.reach


def rounds_of(results: Results, figure: Figure) -> list[float]:
    return [answer[figure.metric] for answer in results.get(figure.key, [])]


def median_of(results: Results, figure: Figure) -> float | None:
    values = rounds_of(results, figure)
    return statistics.median(values) if values else None


def judge(claim: Claim, results: Results) -> Verdict:
    ours = rounds_of(results, claim.ours)
    if claim.against is None:
        values = [value / {"ms": 1e3}.get(claim.unit, 1) for value in ours]
    else:
        # Of one round: both ran within seconds of each other, so the machine's mood cancels out.
        pairs = list(zip(ours, rounds_of(results, claim.against), strict=False))
        if claim.how == "difference":
            values = [(mine - theirs) / 1e3 for mine, theirs in pairs]
        else:
            values = [mine / theirs for mine, theirs in pairs]
    if not values:
        return Verdict(claim, None, 0, 0)
    return Verdict(claim, statistics.median(values), min(values), max(values))


def short(size: int) -> str:
    return f"{size // 1000}k" if size >= 1000 else str(size)


def append_claims(scale: Scale) -> list[Claim]:
    claims = []
    for size in scale.sizes:
        key, work = f"append/{size}", f'append a turn, durability="os", JSONL, at {short(size)} messages'
        rest = tuple(f"{key}/{peer}" for peer in ("claw0", "langgraph_sqlite", "adk", "sqlite", "write"))
        claims += [
            Claim(f"{work}, compared with pi", Figure(f"{key}/jsonl"), 0.8, Figure(f"{key}/pi"), beside=rest),
            Claim(f"{work}, compared with openai-agents", Figure(f"{key}/jsonl"), 0.05, Figure(f"{key}/openai_agents")),
        ]
    for backend, name in (("jsonl", "JSONL"), ("sqlite", "SQLite")):
        small, large = Figure(f"append/{scale.small}/{backend}"), Figure(f"append/{scale.large}/{backend}")
        work = f"flat: {name} append at {short(scale.large)} messages over that at {short(scale.small)}"
        claims.append(Claim(work, large, 1.3, small))
    return claims


def durable_claims() -> list[Claim]:
    limit, agents = Figure("durable/limit"), ("durable/openai_agents",)
    many = f"{AT_ONCE} sessions appending durably at once"
    return [
        Claim(
            "append a turn, durable, JSONL, over write + fdatasync", Figure("durable/jsonl"), 1.5, limit, beside=agents
        ),
        Claim("append a turn, durable, SQLite, over write + fdatasync", Figure("durable/sqlite"), 2.5, limit),
        Claim(
            f"{many}, JSONL, over {AT_ONCE} threads of fdatasync",
            Figure("at_once/jsonl", "per_s"),
            0.6,
            Figure("at_once/limit", "per_s"),
            at_least=True,
            beside=("at_once/openai_agents",),
        ),
        Claim(
            f"{many}, SQLite, over its serial rate",
            Figure("at_once/sqlite", "per_s"),
            5.0,
            Figure("serial/sqlite", "per_s"),
            at_least=True,
        ),
    ]


def resume_claims(scale: Scale) -> list[Claim]:
    claims = []
    for backend, name in (("jsonl", "JSONL"), ("sqlite", "SQLite")):
        large, small = f"resume/{scale.large}", f"resume/{scale.small}"
        work = f"resume after a compaction that kept {KEEP}, {name}, {short(scale.large)} messages"
        ours = Figure(f"{large}/{backend}")
        beside = tuple(f"{large}/{peer}" for peer in ("pi", "openai_agents", "adk"))
        claims += [
            Claim(work, ours, 3.0, how="alone", unit="ms", beside=beside),
            Claim(f"{work}, over {short(scale.small)}", ours, 1.5, Figure(f"{small}/{backend}")),
            Claim(f"{work}, memory added", Figure(ours.key, "mb"), 10.0, how="alone", unit="MB"),
        ]
    limit = Figure("full/limit")
    work = f"resume in full, {short(scale.large)} messages, JSONL"
    beside = tuple(f"full/{peer}" for peer in ("sqlite", "claw0", "openai_agents", "langgraph_sqlite", "adk"))
    claims += [
        Claim(f"{work}: read, over orjson on the lines", Figure("full/jsonl"), 1.5, limit, beside=beside),
        Claim(f"{work}: read and build, over orjson on the lines", Figure("full/jsonl", "built_us"), 3.0, limit),
    ]
    return claims


def among_claims(scale: Scale) -> list[Claim]:
    claims = []
    few, many = scale.sessions[0], scale.sessions[-1]
    for backend, name, opened_ms in (("jsonl", "JSONL", 300), ("sqlite", "SQLite", 500)):
        ours, small = f"among/{many}/{backend}", Figure(f"among/{few}/{backend}")
        work = f"{name} with {short(many)} sessions"
        beside = (f"among/{many}/claw0",)
        claims += [
            Claim(f"{work}: append, over {short(few)} sessions", Figure(ours), 1.3, small, beside=beside),
            Claim(f"{work}: list the newest 50", Figure(ours, "list_us"), 10.0, how="alone", unit="ms"),
            Claim(f"{work}: open the store", Figure(ours, "open_us"), opened_ms, how="alone", unit="ms"),
        ]
    return claims


def other_claims(scale: Scale) -> list[Claim]:
    work = f"over {short(scale.large)} messages, SQLite"
    kinds = {"jsonl": "JSONL", "sqlite": "SQLite", "postgres": "PostgreSQL"}
    bare, imports = Figure("import/bare"), [f"import/{name}" for name in IMPORTS if name not in ("bare", "turnlog")]
    return [
        *(
            Claim(
                f"search {len(QUESTIONS)} questions over {short(scale.large)} messages, {kinds[backend]}: their median",
                Figure(f"search/{backend}"),
                50.0,
                how="alone",
                unit="ms",
                beside=(Figure(f"search/{backend}", "slowest_us"), Figure(f"search/{backend}", "everywhere_us")),
            )
            for backend in SEARCHED
        ),
        Claim(f"search an English word {work}", Figure("search/sqlite", "english_us"), 50.0, how="alone", unit="ms"),
        Claim(f"search a Chinese word {work}", Figure("search/sqlite", "chinese_us"), 50.0, how="alone", unit="ms"),
        Claim(
            "`import turnlog`, over the bare interpreter",
            Figure("import/turnlog"),
            80.0,
            bare,
            how="difference",
            unit="ms",
            beside=tuple(imports),
        ),
    ]


def turn_claims(scale: Scale) -> list[Claim]:
    large = scale.large // 10
    claims = []
    for backend, name, most_ms in (("jsonl", "JSONL", 0.6), ("sqlite", "SQLite", 0.8)):
        small, grown = Figure(f"turns/{TURNS_SMALL}/{backend}"), Figure(f"turns/{large}/{backend}")
        work = f"a turn with the offline model, what the engine adds, {name}"
        claims += [
            Claim(f"{work}, after {TURNS_SMALL} turns", small, most_ms, how="alone", unit="ms"),
            Claim(f"{work}, after {large:,} turns", grown, most_ms, how="alone", unit="ms"),
            Claim(f"{work}, after {large:,} turns over {TURNS_SMALL}", grown, 1.3, small),
        ]
    plan = f"plan a compaction of {large:,} messages"
    return [*claims, Claim(plan, Figure("turns/plan"), 50, how="alone", unit="ms")]


def terminal_claims() -> list[Claim]:
    alone = {"how": "alone", "unit": "ms"}
    return [
        Claim("turnlog --version", Figure("terminal/version"), 150, **alone),
        Claim(f"chat: start to prompt among {CHAT_SESSIONS:,} sessions", Figure("terminal/start"), 400, **alone),
        Claim("chat: first words of the offline model after Enter", Figure("terminal/answer"), 50, **alone),
        Claim(
            "chat: per cent of a core while nobody types",
            Figure("terminal/idle", "percent"),
            0.2,
            how="alone",
            unit="%",
        ),
    ]


def api_claims(scale: Scale) -> list[Claim]:
    alone = {"how": "alone", "unit": "ms"}
    most = dict(zip(API_SIZES, (5.0, 60.0), strict=True))
    added = "/v1: processor time before the upstream is called"
    many, streams = Figure("api/many/sqlite", "per_s"), f"/v1: {CLIENTS} streams"
    native, litellm = Figure("api/many/native", "per_s"), Figure("api/many/litellm", "per_s")
    return [
        *(
            Claim(
                f"{added}, {size}",
                Figure(f"api/added {size}/sqlite", "before_us"),
                most[size],
                **alone,
                beside=(Figure(f"api/added {size}/litellm", "before_us"), f"api/added {size}/sqlite"),
            )
            for size in API_SIZES
        ),
        Claim("/v1: first piece passed on", Figure("api/first/sqlite"), 2.0, **alone, beside=("api/first/litellm",)),
        Claim(f"{streams}, over the native route", many, 0.8, native, at_least=True),
        Claim(f"{streams}, over LiteLLM's proxy", many, 1.0, litellm, at_least=True),
    ]


def server_claims(scale: Scale) -> list[Claim]:
    many, full, chats = "server/many/sqlite", "server/full/sqlite", "server/chats/sqlite"
    turns, page = f"SSE turns of {CLIENTS} clients", f"the page Sessions over {short(scale.sessions[-1])} sessions"
    alone = {"how": "alone", "unit": "ms"}
    return [
        Claim(
            f'{turns}, durability="os", over google-adk `api_server`',
            Figure(many, "per_s"),
            20.0,
            Figure("server/many/adk_server", "per_s"),
            at_least=True,
            beside=(full,),
        ),
        Claim(
            f'{turns}, durability="os", over a bare server with two commits',
            Figure(many, "per_s"),
            0.35,
            Figure("server/many/bare_server", "per_s"),
            at_least=True,
            beside=(Figure(many, "cpu_us"), Figure("server/many/bare_server", "cpu_us")),
        ),
        Claim(f"{turns}: the slowest hundredth over the median", Figure(many, "p99_us"), 3.0, Figure(many)),
        Claim(
            f"{turns}, two workers over one, by the processor time of the server alone",
            Figure("workers/2/sqlite", "own_per_s"),
            1.7,
            Figure("workers/1/sqlite", "own_per_s"),
            at_least=True,
            beside=(Figure("workers/2/sqlite", "per_s"), Figure("workers/2/sqlite", "cpu_us")),
        ),
        Claim(
            f'{turns}, durability="os": the slowest hundredth', Figure(many, "p99_us"), 1_000, **alone, beside=(full,)
        ),
        Claim("one client: to the first event of a turn", Figure("server/one/sqlite", "first_us"), 20, **alone),
        Claim(
            f"{IDLE_STREAMS:,} idle streams: memory of the server",
            Figure("server/idle/sqlite", "mb"),
            300,
            how="alone",
            unit="MB",
            beside=(Figure("server/idle/sqlite", "percent"),),
        ),
        Claim(page, Figure(chats), 100, **alone),
        Claim(f"{page}, one channel", Figure(chats, "filtered_us"), 100, **alone),
        Claim(f"{page}, a keyword", Figure(chats, "keyword_us"), 100, **alone),
        Claim(f"{page}, most tokens first", Figure(chats, "sorted_us"), 100, **alone),
        Claim(f"{page}, the pages for operators", Figure(chats, "operators_us"), 300, **alone),
        *paint_claims(scale),
    ]


def paint_claims(scale: Scale) -> list[Claim]:
    """First paint of the slowest page in Chromium, and what a first load transfers."""
    found: list[Claim] = []
    for sessions, limit_ms in PAINTED.items():
        if sessions <= scale.sessions[-1]:
            what, key = f"first paint of the slowest page over {short(sessions)} sessions", f"server/paint/{sessions}"
            found.append(Claim(what, Figure(key), limit_ms, how="alone", unit="ms"))
            found.append(Claim(f"{what}: first load", Figure(key, "kb"), 150, how="alone", unit="KB"))
    return found


def postgres_claims(scale: Scale) -> list[Claim]:
    more = tuple(f"postgres/{n}/{name}" for n in (1, 64) for name in ("postgres", *PEERS_ON_POSTGRES))
    work = "16 sessions appending at once, PostgreSQL, durability full"
    appends = [
        Claim(
            f"{work}, over {NAMES[peer]}",
            Figure("postgres/16/postgres", "per_s"),
            5.0,
            Figure(f"postgres/16/{peer}", "per_s"),
            at_least=True,
            beside=more if peer == PEERS_ON_POSTGRES[-1] else (Figure("postgres/16/postgres", "searchable_per_s"),),
        )
        for peer in PEERS_ON_POSTGRES
    ]
    appends += [
        Claim(
            f"{work}, made searchable as well, over {NAMES[peer]}",
            Figure("postgres/16/postgres", "searchable_per_s"),
            5.0,
            Figure(f"postgres/16/{peer}", "per_s"),
            at_least=True,
            beside=(Figure("postgres/16/postgres", "indexed_per_s"),),
        )
        for peer in PEERS_ON_POSTGRES
    ]
    one = "one session appending, PostgreSQL, durability full, over one connection and one statement a turn"
    appends.append(
        Claim(
            one,
            Figure("postgres/1/postgres", "per_s"),
            0.5,
            Figure("postgres/1/statement", "per_s"),
            at_least=True,
        )
    )
    large, small = Figure(f"postgres_resume/{scale.large}/postgres"), Figure(f"postgres_resume/{scale.small}/postgres")
    resume = f"resume after a compaction that kept {KEEP}, PostgreSQL, {short(scale.large)} messages"
    spent = ("servers_us", "postgres_us", "clients_us", "percent", "idle_percent")
    return [
        *appends,
        Claim(resume, large, 5.0, how="alone", unit="ms"),
        Claim(f"{resume}, over {short(scale.small)}", large, 1.5, small),
        Claim(
            "an SSE turn, PostgreSQL: round trips", Figure("served/trips/postgres", "trips"), 4.0, how="alone", unit=""
        ),
        Claim(
            f"SSE turns of {SERVED['clients']} clients, PostgreSQL: processor of the server a turn",
            Figure("served/1/postgres", "servers_us"),
            3.0,
            how="alone",
            unit="ms",
            beside=(Figure("served/1/postgres", "postgres_us"),),
        ),
        Claim(
            f"SSE turns of {SERVED['clients']} clients, two servers on one PostgreSQL, over one, where cores allow it",
            Figure("served/2/postgres", "per_s"),
            1.6,
            Figure("served/1/postgres", "per_s"),
            at_least=True,
            beside=tuple(Figure("served/2/postgres", metric) for metric in spent),
        ),
    ]


def adapter_claims() -> list[Claim]:
    """Each over the framework's own SQLite store, both durable."""
    compared = [
        Claim(row.work, Figure(key := f"adapters/{row.name}"), row.goal, Figure(key, "own_us"))
        for row in all_rows()
        if row.goal is not None
    ]
    disk = "adapters/graph/disk"
    return [
        *compared,
        Claim(
            f"LangGraph: bytes on the disk {THREAD}",
            Figure(f"{disk}/ours", "bytes"),
            1 / 15,
            Figure(f"{disk}/own", "bytes"),
        ),
        Claim("Claude Agent SDK: append 20 lines", Figure("adapters/claude/append/ours"), 1.0, how="alone", unit="ms"),
    ]


def claims(scale: Scale) -> list[Claim]:
    return [
        *terminal_claims(),
        *append_claims(scale),
        *durable_claims(),
        *resume_claims(scale),
        *among_claims(scale),
        *other_claims(scale),
        *turn_claims(scale),
        *server_claims(scale),
        *api_claims(scale),
        *postgres_claims(scale),
        *adapter_claims(),
    ]

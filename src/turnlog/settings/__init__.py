"""Declares the settings, and loads them with the source of each value.

Defaults ← preset ← $TURNLOG_HOME/config.toml ← environment TURNLOG_<SECTION>_<KEY> ← flags; later wins. An unknown key
is an error that names the nearest known one, because a misspelt setting must not be ignored silently.
"""

import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from ipaddress import ip_network
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, cast, get_origin

import msgspec
from msgspec import Meta, Struct, field

from ..core import call_patterns, sections
from ..core.arguments import shown
from ..core.compaction import Keep, Trigger, parse_keep, parse_trigger
from ..core.keys import check_agent
from ..core.measuring import KEEP_SHARE, Limits
from ..core.reset import parse_reset
from ..errors import UsageError
from ..providers.opening import public_name
from .presets import PRESETS as PRESETS

DEFAULT_WINDOW = 128_000
"""Used if neither the model nor the settings give a window."""
PAGE = "docs/reference/settings.md"
"""Documents every setting but those of channels and MCP servers."""
Positive = Annotated[int, Meta(ge=1)]


class SessionSettings(Struct, frozen=True):
    enabled: bool = True
    history_limit: Positive = 40
    preset: Literal["default", "zeroclaw", "sessions", "zyhive", "claw0", "claw0-keyed", "openclaw"] = "default"
    ttl: int | None = None
    trash_days: Annotated[int, Meta(ge=0)] = 30
    reset: str = "off"
    key_format: Literal["canonical", "triple", "zeroclaw"] = "canonical"
    stored: Literal["everything", "text"] = "everything"
    user_row: Literal["before", "with_reply"] = "before"
    new_makes: Literal["session", "id", "label", "key"] = "session"


class StoreSettings(Struct, frozen=True):
    url: str = "sqlite:{home}/memory/sessions.db"
    durability: Literal["full", "os"] = "full"


class ModelSettings(Struct, frozen=True):
    name: str | None = None
    window: Annotated[int, Meta(ge=1_000)] | None = None
    max_output: int | None = None
    summary_model: str | None = None
    choices: tuple[str, ...] = ()
    """Models that may be chosen for a session, besides its agent's own."""


class CompactionSettings(Struct, frozen=True):
    triggers: tuple[str, ...] = ("window:16384", "overflow", "manual")
    keep: str | None = None
    inject: Literal["system", "assistant", "pair", "user"] = "user"
    when: Literal["before_turn", "in_loop", "after_turn"] = "before_turn"
    pin_budget: float = 0.1
    estimator: Literal["calibrated", "chars4", "chars16", "bytes4"] = "calibrated"
    summary_tokens: int | None = None
    summary_chars: int | None = None
    summary_words: int | None = None
    identifiers: Literal["append", "require"] = "append"
    """What happens with identifiers that a summary lacks: a list is added, or the summary is refused."""
    history_note: bool = True
    """Whether a line after each summary names search_history and read_history, if the agent has both."""
    summary_timeout_s: Annotated[float, Meta(ge=1)] = 120.0
    """The time limit of one call of the summariser."""


class QueueSettings(Struct, frozen=True):
    mode: Literal["steer", "followup", "collect", "interrupt"] = "steer"
    cap: Positive = 20


class ServerSettings(Struct, frozen=True):
    host: str = "127.0.0.1"
    port: int = 8600
    hosts: tuple[str, ...] = ()
    """Host names of proxies in front of the server; IP addresses and localhost need not be listed."""
    rate: int = 500
    """Requests per second that one token may make."""
    drain_s: int = 20
    """How long running turns may take to finish when the server stops."""
    head_s: Positive = 10
    """How long the head of a request may take to arrive."""
    body_idle_s: Positive = 30
    """How long a body may pause while it arrives."""
    connections: Annotated[int, Meta(ge=2)] | None = None
    """The total; None: half of the files that the process may open."""
    connections_per_token: Positive | None = None
    """Simultaneous requests, including streams; None: a quarter of all connections."""
    connections_per_address: Positive | None = None
    """Connections from one address without a valid token; None: a quarter of all."""
    trusted_proxies: tuple[str, ...] = ("127.0.0.1", "::1")
    """Addresses or networks whose X-Forwarded-For and X-Forwarded-Proto are trusted."""


class ApiSettings(Struct, frozen=True):
    """The routes under /v1, for clients of OpenAI's and Anthropic's protocols."""

    enabled: bool = True
    relay: bool | None = None
    """Whether clients may call models with the server's own keys; None: only while it listens on loopback."""
    store_false: Literal["session", "nothing"] = "session"
    """What `store: false` in a request means."""
    linger_s: Annotated[float, Meta(ge=0)] = 10.0
    """How long a call goes on after its client went away."""
    session_from: tuple[str, ...] = ()
    """Further fields of a request that name its session: user, safety_identifier, prompt_cache_key."""
    announce: bool = True
    """Whether answers have the field `turnlog`."""
    reasoning: Literal["reasoning_content", "none"] = "reasoning_content"
    """Where the thinking of a model is in answers of /v1/chat/completions."""
    models: dict[str, str] = field(default_factory=dict[str, str])
    """Name in a request, or a pattern with *, → PROVIDER:NAME, agent:NAME or default."""


class TelemetrySettings(Struct, frozen=True):
    contents: bool = False
    """Whether traces hold what was said; otherwise sizes, times and names only."""


class ToolsSettings(Struct, frozen=True):
    approval: Literal["writes", "all", "none"] = "writes"
    """Which calls wait for a person's approval."""
    allow: tuple[str, ...] = ()
    """Patterns of calls that need no approval."""
    deny: tuple[str, ...] = ()
    """Patterns of calls that never run."""
    approval_s: Annotated[float, Meta(gt=0)] = 86_400.0
    """How long a call waits before it counts as denied."""


class AgentSettings(Struct, frozen=True):
    system: str = ""
    model: str | None = None
    models: tuple[str, ...] | None = None
    """Instead of `model.choices`."""
    tools: tuple[str, ...] | None = None
    """The names of its tools; None: all."""
    workspace: str | None = None
    approval: Literal["writes", "all", "none"] | None = None
    """Instead of `tools.approval`."""


class Settings(Struct, frozen=True, kw_only=True):
    home: Path
    session: SessionSettings = SessionSettings()
    store: StoreSettings = StoreSettings()
    model: ModelSettings = ModelSettings()
    compaction: CompactionSettings = CompactionSettings()
    queue: QueueSettings = QueueSettings()
    server: ServerSettings = ServerSettings()
    api: ApiSettings = field(default_factory=ApiSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    tools: ToolsSettings = ToolsSettings()
    channels: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    agents: dict[str, AgentSettings] = field(default_factory=dict[str, AgentSettings])
    mcp: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    origins: dict[str, str] = field(default_factory=dict[str, str])
    """"section.key" → the source of its value; a key that is missing here has its default."""

    def store_url(self) -> str:
        return self.store.url.replace("{home}", str(self.home))


SECTIONS: Mapping[str, type[Struct]] = MappingProxyType(
    {
        one.name: one.type
        for one in msgspec.structs.fields(Settings)
        if issubclass(get_origin(one.type) or one.type, Struct)
    }
)
"""Their keys are those of their classes."""
FREE_SECTIONS = ("channels", "agents", "mcp")
"""Sections whose keys the user chooses."""


def load(
    *, home: str | Path | None = None, env: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> Settings:
    """`flags`: from a command line or a call, {"section.key": value} or {"section_key": value}. A section with free
    names, such as `agents`, may be given as a whole. None values are not given.
    """
    env = os.environ if env is None else env
    folder = Path(home or env.get("TURNLOG_HOME") or "~/.turnlog").expanduser().absolute()
    layers = [
        ("config.toml", _from_file(folder / "config.toml")),
        ("environment", _from_env(env)),
        ("flag", _from_flags(flags or {})),
    ]
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, layer in layers:
        for name, value in layer.items():
            values[name] = value
            origins[name] = f"environment {_variable(name)}" if origin == "environment" else origin
    preset = values.get("session.preset", "default")
    if preset not in PRESETS:
        raise sections.unknown("preset", str(preset), PRESETS)
    for name, value in PRESETS[preset].items():
        if name not in values:
            values[name] = value
            origins[name] = f"preset {preset}"
    if home or env.get("TURNLOG_HOME"):
        origins["home"] = "flag" if home else "environment TURNLOG_HOME"
    return _assemble(folder, values, origins)


def _assemble(home: Path, values: Mapping[str, Any], origins: dict[str, str]) -> Settings:
    tables: dict[str, dict[str, Any]] = {section: {} for section in (*SECTIONS, *FREE_SECTIONS)}
    for name, value in values.items():
        section, _, key = name.partition(".")
        if section in FREE_SECTIONS and not isinstance(value, dict):
            raise _not_a_table(name)
        tables[section][key] = value
    agents = {
        check_agent(name): sections.read(f"agents.{name}", own, AgentSettings, page=PAGE)
        for name, own in tables["agents"].items()
    }
    read: dict[str, Any] = {
        section: sections.read(section, tables[section], kind, page=PAGE, origins=origins)
        for section, kind in SECTIONS.items()
    }
    settings = Settings(
        home=home, **read, channels=tables["channels"], mcp=tables["mcp"], agents=agents, origins=origins
    )
    _check(settings)
    return settings


def _check(settings: Settings) -> None:
    for text in settings.compaction.triggers:
        parse_trigger(text)
    if settings.compaction.keep is not None:
        parse_keep(settings.compaction.keep)
    parse_reset(settings.session.reset)
    for pattern in (*settings.tools.allow, *settings.tools.deny):
        call_patterns.parse(pattern)
    for where, names in _choices(settings):
        for name in names:
            _check_model(where, name)
    for proxy in settings.server.trusted_proxies:
        try:
            ip_network(proxy)
        except ValueError as error:
            raise UsageError(
                f"server.trusted_proxies: {error}", hint="Write addresses, or networks such as 10.0.0.0/8."
            ) from error


def _choices(settings: Settings) -> list[tuple[str, tuple[str, ...]]]:
    own = [(f"agents.{name}.models", agent.models or ()) for name, agent in settings.agents.items()]
    return [("model.choices", settings.model.choices), *own]


def _check_model(where: str, name: str) -> None:
    try:
        public_name(name, {})
    except UsageError as error:
        raise UsageError(f"{where}: {error}", hint=error.hint) from error


def _not_a_table(name: str) -> UsageError:
    return UsageError(f"{name} must be a table", hint=f"Write [{name}] on a line of its own.")


def _from_file(path: Path) -> dict[str, Any]:
    try:
        tables = sections.tables(path, path.read_bytes())
    except FileNotFoundError:
        return {}
    values: dict[str, Any] = {}
    for section, table in tables.items():
        if section not in SECTIONS and section not in FREE_SECTIONS:
            raise sections.unknown("section", section, (*SECTIONS, *FREE_SECTIONS))
        if not isinstance(table, dict):
            raise _not_a_table(section)
        for key, value in cast("dict[str, Any]", table).items():
            values[f"{section}.{key}"] = value
    return values


def _from_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in flags.items():
        if name not in FREE_SECTIONS:
            values[_full_name(name)] = value
        elif isinstance(value, Mapping):
            values |= {f"{name}.{own}": dict(given) for own, given in cast("Mapping[str, Any]", value).items()}
        elif value is not None:
            raise UsageError(f"{name} is {shown(value)}", hint=f"Give {name}={{name: {{…}}}}.")
    return {name: value for name, value in values.items() if value is not None}


def _full_name(name: str) -> str:
    """`store.url` for `store.url` and `store_url`. UsageError, with a name of the same form, if it is no setting."""
    full = name if "." in name else name.replace("_", ".", 1)
    known = _all_names()
    if full in known or full.partition(".")[0] in FREE_SECTIONS:
        return full
    raise sections.unknown("setting", name, known if "." in name else [one.replace(".", "_") for one in known])


def _all_names() -> list[str]:
    return [f"{section}.{name}" for section, kind in SECTIONS.items() for name in kind.__struct_fields__]


_LISTS = {
    f"{section}.{one.name}"
    for section, kind in SECTIONS.items()
    for one in msgspec.structs.fields(kind)
    if get_origin(one.type) is tuple
}
"""Their variables hold several values, separated by commas."""
_PREFIX = "TURNLOG_"
_NOT_SETTINGS = {"TURNLOG_HOME", "TURNLOG_REQUEST_LOG", "TURNLOG_SRC", "TURNLOG_TOKEN"}
"""Variables with other readers. TURNLOG_SRC names a checkout for scripts that install and test it; tests inherit it."""


def _from_env(env: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    known = {_variable(name): name for name in _all_names()}
    for variable, text in env.items():
        if not variable.startswith(_PREFIX) or variable in _NOT_SETTINGS:
            continue
        if variable not in known:
            raise _unknown_variable(variable, (*known, *_NOT_SETTINGS))
        name = known[variable]
        values[name] = [part.strip() for part in text.split(",")] if name in _LISTS else text
    return values


def _unknown_variable(variable: str, known: Sequence[str]) -> UsageError:
    """Compares without the common prefix, which would make all names similar."""
    [nearest] = get_close_matches(variable[len(_PREFIX) :], [name[len(_PREFIX) :] for name in known], n=1, cutoff=0)
    return UsageError(
        f"unknown environment variable {variable!r}", hint=f"The nearest known one is {_PREFIX}{nearest}."
    )


def _variable(name: str) -> str:
    return _PREFIX + name.upper().replace(".", "_")


def explain(settings: Settings) -> list[dict[str, Any]]:
    """Each value and its origin, as `turnlog config` prints them."""
    rows: list[dict[str, Any]] = [
        {"key": "home", "value": str(settings.home), "origin": settings.origins.get("home", "default")}
    ]
    for section in SECTIONS:
        for key, value in msgspec.structs.asdict(getattr(settings, section)).items():
            name = f"{section}.{key}"
            rows.append({"key": name, "value": value, "origin": settings.origins.get(name, "default")})
    return rows


def limits_of(settings: Settings, *, window: int | None = None, system: str = "") -> Limits:
    """The guard's limits for a model with this window."""
    room = settings.model.window or window or DEFAULT_WINDOW
    return Limits(
        window=room,
        triggers=tuple(_trigger(settings, text) for text in settings.compaction.triggers),
        keep=_keep(settings, room),
        inject=settings.compaction.inject,
        estimator=settings.compaction.estimator,
        system=system,
        summary_tokens=settings.compaction.summary_tokens or 0,
        identifiers=settings.compaction.identifiers,
    )


def _trigger(settings: Settings, text: str) -> Trigger:
    trigger = parse_trigger(text)
    given = settings.origins.get("compaction.triggers", "preset")
    # history_limit is the number of the message trigger, unless the triggers themselves give a number.
    if trigger.kind == "messages" and given.startswith("preset"):
        return Trigger("messages", settings.session.history_limit)
    return trigger


def _keep(settings: Settings, window: int) -> Keep:
    if settings.compaction.keep is None:
        if any(parse_trigger(text).kind == "messages" for text in settings.compaction.triggers):
            return Keep("messages", max(1, min(24, int(0.6 * settings.session.history_limit))))
        return Keep("tokens", min(20_000, int(KEEP_SHARE * window)))
    keep = parse_keep(settings.compaction.keep)
    return Keep("tokens", min(keep.n, int(KEEP_SHARE * window))) if keep.kind == "tokens" else keep

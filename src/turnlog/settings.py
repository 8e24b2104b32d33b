"""One frozen Settings, where each of its values came from, and the presets.

Defaults ← preset ← $TURNLOG_HOME/config.toml ← environment TURNLOG_<SECTION>_<KEY> ← flags; later wins. A key nobody
knows is an error that names the nearest one: a misspelt setting must not be silently without effect.
"""

import os
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct, field

from .core.compaction import Keep, Trigger, parse_keep, parse_trigger
from .core.guard import Limits
from .core.keys import check_agent
from .errors import UsageError

KEEP_SHARE = 0.4
"""Of the window, what a kept tail may take at most when it is given in tokens."""
DEFAULT_WINDOW = 128_000
"""Where neither the model nor the settings say."""


class SessionSettings(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool = True
    history_limit: int = 40
    preset: Literal["default", "zeroclaw", "sessions", "zyhive", "claw0", "claw0-keyed", "openclaw"] = "default"
    ttl: int | None = None
    trash_days: int = 30
    reset: str = "off"
    key_format: Literal["canonical", "triple", "zeroclaw"] = "canonical"
    stored: Literal["everything", "text"] = "everything"
    user_row: Literal["before", "with_reply"] = "before"
    new_makes: Literal["session", "id", "label", "key"] = "session"


class StoreSettings(Struct, frozen=True, forbid_unknown_fields=True):
    url: str = "sqlite:{home}/memory/sessions.db"
    durability: Literal["full", "os"] = "full"


class ModelSettings(Struct, frozen=True, forbid_unknown_fields=True):
    name: str | None = None
    window: int | None = None
    max_output: int | None = None
    summary_model: str | None = None


class CompactionSettings(Struct, frozen=True, forbid_unknown_fields=True):
    triggers: tuple[str, ...] = ("window:16384", "overflow", "manual")
    keep: str | None = None
    inject: Literal["system", "assistant", "pair", "user"] = "user"
    when: Literal["before_turn", "in_loop", "after_turn"] = "before_turn"
    pin_budget: float = 0.1
    estimator: Literal["calibrated", "chars4", "chars16", "bytes4"] = "calibrated"
    summary_tokens: int | None = None
    summary_chars: int | None = None
    summary_words: int | None = None


class QueueSettings(Struct, frozen=True, forbid_unknown_fields=True):
    mode: Literal["steer", "followup", "collect", "interrupt"] = "steer"
    cap: int = 20


class ServerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    host: str = "127.0.0.1"
    port: int = 8600
    hosts: tuple[str, ...] = ()
    """Names under which a proxy makes the server known; addresses and localhost need not be listed."""
    rate: int = 500
    """Requests a second that one token may make."""
    drain_s: int = 20
    """How long running turns may take to end when the server closes."""


class AgentSettings(Struct, frozen=True, forbid_unknown_fields=True):
    system: str = ""
    model: str | None = None
    tools: tuple[str, ...] | None = None
    """Only these of the tools there are; None: all."""
    workspace: str | None = None


class Settings(Struct, frozen=True, kw_only=True):
    home: Path
    session: SessionSettings = SessionSettings()
    store: StoreSettings = StoreSettings()
    model: ModelSettings = ModelSettings()
    compaction: CompactionSettings = CompactionSettings()
    queue: QueueSettings = QueueSettings()
    server: ServerSettings = ServerSettings()
    channels: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    agents: dict[str, AgentSettings] = field(default_factory=dict[str, AgentSettings])
    mcp: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    origins: dict[str, str] = field(default_factory=dict[str, str])
    """"section.key" → where its value came from; what is not named is a default."""

    def store_url(self) -> str:
        return self.store.url.replace("{home}", str(self.home))


_SECTIONS: Mapping[str, type[Struct]] = MappingProxyType(
    {
        "session": SessionSettings,
        "store": StoreSettings,
        "model": ModelSettings,
        "compaction": CompactionSettings,
        "queue": QueueSettings,
        "server": ServerSettings,
    }
)
_FREE_SECTIONS = ("channels", "agents", "mcp")

_CLAW0: dict[str, Any] = {
    "store.url": "jsonl:{home}?dialect=flat&layout=claw0",
    "compaction.triggers": ("overflow", "manual"),
    "compaction.keep": "fraction:0.5",
    "compaction.inject": "pair",
    "compaction.estimator": "chars4",
    "compaction.summary_tokens": 2_048,
    "model.window": 180_000,
    "model.max_output": 8_096,
    "session.new_makes": "label",
}

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "default": {},
        "zeroclaw": {
            "session.stored": "text",
            "session.user_row": "with_reply",
            "session.key_format": "zeroclaw",
            "compaction.triggers": ("tokens:12000", "overflow", "manual"),
            "compaction.keep": "from_last_user",
            "compaction.inject": "assistant",
            "compaction.when": "in_loop",
            "compaction.estimator": "chars16",
            "compaction.summary_chars": 6_000,
        },
        "sessions": {
            "session.key_format": "zeroclaw",
            "compaction.triggers": ("messages:40", "overflow", "manual"),
            "compaction.inject": "system",
            "compaction.estimator": "chars16",
            "compaction.summary_chars": 6_000,
        },
        "zyhive": {
            "store.url": "jsonl:{home}?dialect=v3&layout=zyhive",
            "compaction.triggers": ("tokens:80000", "overflow", "manual"),
            "compaction.keep": "turns:20",
            "compaction.inject": "system",
            "compaction.when": "after_turn",
            "compaction.estimator": "bytes4",
            "compaction.summary_words": 500,
            "session.new_makes": "id",
        },
        "claw0": _CLAW0,
        "claw0-keyed": {
            **_CLAW0,
            "store.url": "jsonl:{home}?dialect=flat&layout=claw0-keyed",
            "session.key_format": "triple",
            "session.user_row": "with_reply",
            "session.new_makes": "key",
        },
        "openclaw": {
            "store.url": "jsonl:{home}?dialect=v3&layout=openclaw",
            "compaction.triggers": ("window:20000", "overflow", "manual"),
            "session.reset": "daily:04:00",
        },
    }
)


def load(
    *, home: str | Path | None = None, env: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> Settings:
    """`flags`: {"section.key": value} from a command line; None values are not given."""
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
        raise _unknown("preset", str(preset), PRESETS)
    for name, value in PRESETS[preset].items():
        if name not in values:
            values[name] = value
            origins[name] = f"preset {preset}"
    return _assemble(folder, values, origins)


def _assemble(home: Path, values: Mapping[str, Any], origins: dict[str, str]) -> Settings:
    nested: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        section, _, key = name.partition(".")
        nested.setdefault(section, {})[key] = value
    for agent in nested.get("agents", {}):
        check_agent(agent)
    try:
        settings = msgspec.convert(
            {"home": str(home), **nested, "origins": origins}, Settings, strict=False, dec_hook=_hook
        )
    except msgspec.ValidationError as error:
        raise UsageError(
            f"a setting has the wrong form: {error}", hint="See docs/concepts.md for its values."
        ) from error
    _check(settings)
    return settings


def _hook(kind: type, value: Any) -> Any:
    return Path(value) if kind is Path else value


def _check(settings: Settings) -> None:
    for text in settings.compaction.triggers:
        parse_trigger(text)
    if settings.compaction.keep is not None:
        parse_keep(settings.compaction.keep)
    parse_reset(settings.session.reset)
    bounds = (
        ("session.history_limit", settings.session.history_limit, 1),
        ("queue.cap", settings.queue.cap, 1),
        ("model.window", settings.model.window or 1_000, 1_000),
        ("session.trash_days", settings.session.trash_days, 0),
    )
    for name, value, least in bounds:
        if value < least:
            raise UsageError(f"{name} is {value}, but must be at least {least}", hint=f"Correct {name}.")


def parse_reset(text: str) -> tuple[str, int]:
    """("off", 0), ("idle", minutes) or ("daily", minutes after midnight)."""
    kind, _, rest = text.partition(":")
    hour, _, minute = rest.partition(":")
    match kind:
        case "off" if not rest:
            return "off", 0
        case "idle" if rest.isdecimal() and int(rest) > 0:
            return "idle", int(rest)
        case "daily" if hour.isdecimal() and minute.isdecimal() and int(hour) < 24 and int(minute) < 60:
            return "daily", int(hour) * 60 + int(minute)
        case _:
            raise UsageError(f"{text!r} is not a way to reset sessions", hint="Write off, idle:60 or daily:04:00.")


def _from_file(path: Path) -> dict[str, Any]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="Correct that line.") from error
    values: dict[str, Any] = {}
    for section, table in tables.items():
        if section not in _SECTIONS and section not in _FREE_SECTIONS:
            raise _unknown("section", section, (*_SECTIONS, *_FREE_SECTIONS))
        if not isinstance(table, dict):
            raise UsageError(f"[{section}] in {path} must be a table", hint=f"Write [{section}] on a line of its own.")
        for key, value in cast("dict[str, Any]", table).items():
            _known(section, key)
            values[f"{section}.{key}"] = value
    return values


def _from_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    for name in flags:
        section, _, key = name.partition(".")
        if section not in _SECTIONS and section not in _FREE_SECTIONS:
            raise _unknown("setting", name, _all_names())
        _known(section, key)
    return {name: value for name, value in flags.items() if value is not None}


def _all_names() -> list[str]:
    return [f"{section}.{name}" for section, kind in _SECTIONS.items() for name in kind.__struct_fields__]


def _known(section: str, key: str) -> None:
    if section in _SECTIONS and key not in _SECTIONS[section].__struct_fields__:
        raise _unknown(
            "setting", f"{section}.{key}", [f"{section}.{name}" for name in _SECTIONS[section].__struct_fields__]
        )


def _unknown(what: str, name: str, known: Any) -> UsageError:
    near = get_close_matches(name, list(known), n=1, cutoff=0.3)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known)}."
    return UsageError(f"unknown {what} {name!r}", hint=hint)


_LISTS = {"triggers", "hosts"}
"""Their variables hold several values, with commas between them."""
_NOT_SETTINGS = {"TURNLOG_HOME", "TURNLOG_REQUEST_LOG"}


def _from_env(env: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for variable, text in env.items():
        if not variable.startswith("TURNLOG_") or variable in _NOT_SETTINGS:
            continue
        section, _, key = variable[len("TURNLOG_") :].lower().partition("_")
        if section not in _SECTIONS:
            raise _unknown("environment variable", variable, list(map(_variable, _all_names())))
        _known(section, key)
        values[f"{section}.{key}"] = [part.strip() for part in text.split(",")] if key in _LISTS else text
    return values


def _variable(name: str) -> str:
    return "TURNLOG_" + name.upper().replace(".", "_")


def explain(settings: Settings) -> list[dict[str, Any]]:
    """Each value and its origin, as `turnlog config` prints them."""
    rows: list[dict[str, Any]] = [
        {"key": "home", "value": str(settings.home), "origin": "TURNLOG_HOME, --home or default"}
    ]
    for section in _SECTIONS:
        for key, value in msgspec.structs.asdict(getattr(settings, section)).items():
            name = f"{section}.{key}"
            rows.append({"key": name, "value": value, "origin": settings.origins.get(name, "default")})
    return rows


def limits_of(settings: Settings, *, window: int | None = None, system: str = "") -> Limits:
    """The guard's numbers for a model with this window."""
    room = settings.model.window or window or DEFAULT_WINDOW
    return Limits(
        window=room,
        triggers=tuple(_trigger(settings, text) for text in settings.compaction.triggers),
        keep=_keep(settings, room),
        inject=settings.compaction.inject,
        estimator=settings.compaction.estimator,
        system=system,
        summary_tokens=settings.compaction.summary_tokens or 0,
    )


def _trigger(settings: Settings, text: str) -> Trigger:
    trigger = parse_trigger(text)
    given = settings.origins.get("compaction.triggers", "preset")
    # history_limit is the message trigger, unless the triggers were themselves given with a number.
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

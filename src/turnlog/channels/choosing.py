"""Settings to channels: `[channels.telegram]`, and `[channels.telegram.NAME]` for a second account.

A key nobody knows, a missing secret and an agent that is not there are errors at the start that name the setting: a
channel that is half configured must not run open, nor silently not at all.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from types import MappingProxyType
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from ..core.keys import DM_SCOPES, check_agent
from ..errors import UsageError
from . import Channel

KINDS: Mapping[str, str] = MappingProxyType(
    {"telegram": "Telegram", "slack": "Slack", "discord": "Discord", "feishu": "Feishu", "webhook": "Webhook"}
)
"""Kind → its class, in the module of its name."""
ACCOUNT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
_COMMON = ("agent", "dm_scope", "queue")


class Common(Struct, frozen=True, kw_only=True):
    """What every channel takes."""

    agent: str = "main"
    dm_scope: str = "per-account-channel-peer"
    queue: Literal["steer", "followup", "collect", "interrupt"] | None = None


class Booth(Struct, frozen=True, kw_only=True):
    """One account of one platform, ready to be used."""

    kind: str
    account: str | None
    agent: str
    dm_scope: str
    queue: Literal["steer", "followup", "collect", "interrupt"] | None
    channel: Channel


def open_channels(
    given: Mapping[str, Mapping[str, Any]], *, agents: Collection[str] = ("main",), transport: Any = None
) -> list[Booth]:
    """`given`: the tables of `[channels.*]`. `transport`: how they reach their platforms, for tests and trials."""
    return [_open(kind, account, values, agents, transport) for kind, account, values in _accounts(given)]


def _accounts(given: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    for kind, table in given.items():
        if kind not in KINDS:
            raise _unknown("channel", f"channels.{kind}", [f"channels.{name}" for name in KINDS])
        if not isinstance(table, Mapping):
            raise UsageError(f"channels.{kind} must be a table", hint=f"Write [channels.{kind}] on a line of its own.")
        own = {key: value for key, value in table.items() if not isinstance(value, dict)}
        if own:
            yield kind, None, own
        for name, values in table.items():
            if isinstance(values, dict):
                if not ACCOUNT.match(name):
                    raise UsageError(f"{name[:80]!r} is not the name of an account", hint="Use letters and digits.")
                yield kind, name, cast("dict[str, Any]", values)


def _open(kind: str, account: str | None, values: Mapping[str, Any], agents: Collection[str], transport: Any) -> Booth:
    section = f"channels.{kind}" + (f".{account}" if account else "")
    module = import_module(f"turnlog.channels.{kind}")
    shape = getattr(module, f"{KINDS[kind]}Settings")
    known = [*shape.__struct_fields__, *_COMMON]
    for key in values:
        if key not in known:
            raise _unknown("setting", f"{section}.{key}", [f"{section}.{name}" for name in known])
    common = _convert(section, {key: value for key, value in values.items() if key in _COMMON}, Common)
    settings = _convert(section, {key: value for key, value in values.items() if key not in _COMMON}, shape)
    for name in settings.needed():
        if not getattr(settings, name).strip():
            raise UsageError(
                f"[{section}] has no {name}, and does not start without it",
                hint=f"Write {name} into [{section}] of config.toml; see docs/channels.md.",
            )
    _check(section, common, agents)
    channel: Channel = getattr(module, KINDS[kind])(settings, account, transport)
    return Booth(kind=kind, account=account, channel=channel, **msgspec.structs.asdict(common))


def _convert(section: str, values: Mapping[str, Any], shape: Any) -> Any:
    try:
        return msgspec.convert(values, shape)
    except msgspec.ValidationError as error:
        what = f"a setting of [{section}] has the wrong form: {error}"
        raise UsageError(what, hint="See docs/channels.md.") from error


def _check(section: str, common: Common, agents: Collection[str]) -> None:
    if check_agent(common.agent) not in agents:
        raise UsageError(
            f"[{section}] names the agent {common.agent!r}, which is not there",
            hint=f"Write [agents.{common.agent}] into config.toml, or correct it.",
        )
    if common.dm_scope not in DM_SCOPES:
        raise UsageError(f"unknown dm_scope {common.dm_scope!r} in [{section}]", hint=f"Use {', '.join(DM_SCOPES)}.")


def _unknown(what: str, name: str, known: list[str]) -> UsageError:
    near = get_close_matches(name, known, n=1, cutoff=0.3)
    return UsageError(f"unknown {what} {name!r}", hint=f"Did you mean {near[0]!r}?" if near else f"Known: {known}.")

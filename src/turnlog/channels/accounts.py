"""Opens the accounts of `[channels.telegram]`, and of `[channels.telegram.NAME]` for a second account.

An unknown key, a missing secret and an unknown agent are errors at the start that name the setting: a channel that is
half configured must not run without its checks, nor be silently absent.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, cast

from msgspec import Struct

from ..core import sections
from ..core.keys import check_agent
from ..errors import UsageError
from . import AccountSettings, Channel

KINDS: Mapping[str, str] = MappingProxyType(
    {"telegram": "Telegram", "slack": "Slack", "discord": "Discord", "feishu": "Feishu", "webhook": "Webhook"}
)
"""Kind → its class, in the module of its name."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
PAGE = "docs/how-to/channels.md"


class Account(Struct, frozen=True, kw_only=True):
    """One account of one platform, ready to be used."""

    kind: str
    name: str | None
    settings: AccountSettings
    channel: Channel

    @property
    def full_name(self) -> str:
        return f"{self.kind}.{self.name}" if self.name else self.kind


def open_channels(
    given: Mapping[str, Mapping[str, Any]], *, agents: Collection[str] = ("main",), transport: Any = None
) -> list[Account]:
    """`given`: the tables of `[channels.*]`. `transport`: how they reach their platforms, for tests and trials."""
    return [_open(kind, name, values, agents, transport) for kind, name, values in _accounts(given)]


def _accounts(given: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    for kind, table in given.items():
        if kind not in KINDS:
            raise sections.unknown("channel", f"channels.{kind}", [f"channels.{name}" for name in KINDS])
        own = {key: value for key, value in table.items() if not isinstance(value, dict)}
        if own:
            yield kind, None, own
        for name, values in table.items():
            if isinstance(values, dict):
                if not NAME.match(name):
                    raise UsageError(f"{name[:80]!r} is not the name of an account", hint="Use letters and digits.")
                yield kind, name, cast("dict[str, Any]", values)


def _open(kind: str, name: str | None, values: Mapping[str, Any], agents: Collection[str], transport: Any) -> Account:
    section = f"channels.{kind}" + (f".{name}" if name else "")
    module = import_module(f"turnlog.channels.platforms.{kind}")
    settings: Any = sections.read(section, values, getattr(module, f"{KINDS[kind]}Settings"), page=PAGE)
    for needed in settings.needed():
        if not getattr(settings, needed).strip():
            raise UsageError(
                f"[{section}] has no {needed}, which is required",
                hint=f"Write {needed} into [{section}] of config.toml; see {PAGE}.",
            )
    if check_agent(settings.agent) not in agents:
        raise UsageError(
            f"[{section}] names the agent {settings.agent!r}, which does not exist",
            hint=f"Write [agents.{settings.agent}] into config.toml, or correct it.",
        )
    channel: Channel = getattr(module, KINDS[kind])(settings, name, transport)
    return Account(kind=kind, name=name, settings=settings, channel=channel)

"""The agents of the settings, each with its model, its tools and its limits."""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ..access import own_files
from ..core.session import Session
from ..errors import ProviderError, TurnlogError, UsageError
from ..providers import Provider
from ..providers.opening import SHARED, choose, open_provider, public_name, renamed
from ..sessions.checking import checked_methods
from ..settings import DEFAULT_WINDOW, AgentSettings, Settings, limits_of
from ..tools import ApprovalPolicy, Tool, Toolbox, file_tools, history_tools
from ..tools.kept import KeptFiles
from ..turns.agent import Agent, schemas
from ..turns.compactor import Compactor, OnRequest, unlogged
from ..turns.request_log import RequestLog
from ..turns.telemetry import Telemetry
from .on_demand import UntilClosed

OwnTool = Tool | Callable[..., Any]


@checked_methods
class ConfiguredAgents(UntilClosed):
    """Opens an agent at its first turn, so that a missing API key is an error of that turn only."""

    def __init__(
        self,
        settings: Settings,
        *,
        tools: Sequence[OwnTool] = (),
        workspace: str | Path | None = None,
        provider: Provider | None = None,
        log: RequestLog | None = None,
    ) -> None:
        super().__init__()
        self._settings = settings
        self._tools = tools
        self._workspace = workspace
        self._provider = provider
        self._on_request: OnRequest = log.write if log else unlogged
        self._ready: dict[tuple[str, str], Agent] = {}
        """By name, and chosen model: at most one for each that the settings offer."""
        self._toolboxes: dict[str, Toolbox] = {}
        self._opened: dict[tuple[str | None, int | None], Provider] = {}
        self._making = asyncio.Lock()
        self._allowed: list[str] = []
        """Patterns that were added to `tools.allow` since the start."""

    async def get(self, name: str) -> Agent:
        return await self._get(name, "")

    async def of(self, row: Session) -> Agent:
        """With the model that was chosen for the session; with the agent's own, if that one is not offered now.

        A log may come from anywhere, so that what it names is looked up in the settings at every turn.
        """
        return await self._get(row.agent, row.model if row.model in self.offered(row.agent)[1:] else "")

    async def _get(self, name: str, chosen: str) -> Agent:
        self.check_open()
        async with self._making:  # two simultaneous first turns get one agent, with one set of MCP servers
            if (name, chosen) not in self._ready:
                self._ready[name, chosen] = await self._make(name, chosen)
            return self._ready[name, chosen]

    def offered(self, name: str) -> tuple[str, ...]:
        """The models that may be chosen for its sessions, by their public names; the first is its own."""
        self.check_open()
        own = self._own(name)
        if self._provider is not None:
            return (self._provider.model,)
        mine = public_name(own.model or self._settings.model.name, os.environ)
        return tuple(dict.fromkeys((mine, *self._choices(own))))

    def _choices(self, own: AgentSettings) -> dict[str, str]:
        """Public name → name in the settings."""
        names = self._settings.model.choices if own.models is None else own.models
        found: dict[str, str] = {}
        for name in names:
            found.setdefault(public_name(name, os.environ), name)
        return found

    def check(self, name: str) -> None:
        """Raises UsageError if the agent, or the model it names, does not exist: before anything is stored for it.

        Errors that only a call can show, such as a missing API key, are errors of the turn.
        """
        own = self._own(name)
        with suppress(ProviderError):
            self._models(own)

    def allow(self, pattern: str) -> None:
        if pattern not in self._allowed:
            self._allowed.append(pattern)

    async def upstream(self, model: str | None) -> Agent:
        """A model without tools or system prompt: clients of a relay bring their own."""
        self.check_open()
        provider = self._upstream_provider(model)
        summary = self._settings.model.summary_model
        return Agent(
            name="",
            provider=provider,
            compactor=self._compactor(self._open(summary) if summary else provider),
            toolbox=Toolbox([]),
            limits=limits_of(self._settings, window=provider.window),
            max_output=self._settings.model.max_output,
        )

    def _upstream_provider(self, model: str | None) -> Provider:
        """Names of one API share its connections, so that a client's choice of names opens nothing."""
        if self._provider is not None:
            return self._provider
        kind, _, name = (model or "").partition(":")
        known = (self._settings.model.name, *(own.model for own in self._settings.agents.values()))
        if kind in SHARED and name and model not in known:
            return renamed(self._open(kind), name)
        named = model or self._settings.model.name
        if (named or choose(os.environ)) == "offline":
            return self._open(named, DEFAULT_WINDOW)  # its own is smaller than the head of a coding agent
        return self._open(named)

    async def pin_tokens(self, row: Session) -> int:
        """A share of the model's own window, if the model is available."""
        try:
            window = (await self.of(row)).limits.window
        except TurnlogError:
            window = limits_of(self._settings).window
        return int(self._settings.compaction.pin_budget * window)

    async def _make(self, name: str, chosen: str) -> Agent:
        settings = self._settings
        own = self._own(name)
        provider, summariser = self._models(own, chosen)
        if name not in self._toolboxes:
            self._toolboxes[name] = await self._toolbox(own)
        toolbox = self._toolboxes[name]
        limits = limits_of(settings, window=provider.window, system=own.system)
        return Agent(
            name=name,
            provider=provider,
            compactor=self._compactor(summariser),
            toolbox=toolbox,
            limits=replace(limits, tools=schemas(toolbox), history_note=settings.compaction.history_note),
            when=settings.compaction.when,
            max_output=settings.model.max_output,
            approval=ApprovalPolicy(
                mode=own.approval or settings.tools.approval,
                allow=settings.tools.allow,
                added=self._allowed,
                deny=settings.tools.deny,
                expires_s=settings.tools.approval_s,
            ),
            chosen=chosen,
        )

    def _compactor(self, summariser: Provider) -> Compactor:
        return Compactor(
            summarise=summariser.summarise,
            model=summariser.model,
            window=summariser.window,
            words=self._settings.compaction.summary_words,
            chars=self._settings.compaction.summary_chars,
            on_request=self._on_request,
            timeout_s=self._settings.compaction.summary_timeout_s,
            telemetry=Telemetry(contents=self._settings.telemetry.contents),
        )

    def _own(self, name: str) -> AgentSettings:
        agents = self._settings.agents
        if name not in agents and name != "main":
            raise UsageError(f"there is no agent {name!r}", hint=_where_agents_are_named(name, ("main", *agents)))
        return agents.get(name, AgentSettings())

    def _models(self, own: AgentSettings, chosen: str = "") -> tuple[Provider, Provider]:
        """(the model that answers, the model that summarises)"""
        model = self._settings.model
        named = self._choices(own)[chosen] if chosen else own.model or model.name
        provider = self._provider or self._open(named)
        return provider, self._open(model.summary_model) if model.summary_model else provider

    def _open(self, name: str | None, window: int | None = None) -> Provider:
        """`window`: if the settings have none; None: the model's own."""
        place = name, window
        if place not in self._opened:
            model = self._settings.model
            self._opened[place] = open_provider(name, window=model.window or window, max_output=model.max_output)
            self.push_async_callback(self._opened[place].close)
        return self._opened[place]

    async def _toolbox(self, own: AgentSettings) -> Toolbox:
        recalls = own.tools is not None and "recall" in own.tools  # only if the agent has that tool
        there: list[OwnTool] = [*history_tools(with_recall=recalls), *self._tools]
        folder = own.workspace or self._workspace
        if folder is not None:
            fence = own_files.fence(self._settings, os.environ)
            there += file_tools(Path(folder).expanduser(), fence, KeptFiles(own_files.kept(self._settings.home)))
        if self._settings.mcp:
            from ..tools.mcp import mcp_tools

            for name, given in self._settings.mcp.items():
                there += await self.enter_async_context(mcp_tools(name, given))
        toolbox = Toolbox(there)
        return toolbox if own.tools is None else toolbox.subset(own.tools)


def _where_agents_are_named(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, n=1)
    meant = f"Did you mean {near[0]!r}? " if near else ""
    return f"{meant}An agent is made by [agents.{name}] in config.toml."

"""An agent: a named configuration, ready for use. It holds no data of any session."""

from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..core.guard import Limits
from ..core.tokens import Scale
from ..providers import Provider
from ..tools import ApprovalPolicy, Toolbox
from .compactor import Compactor, unlogged
from .telemetry import SILENT

When: TypeAlias = Literal["before_turn", "in_loop", "after_turn"]


class Agent(Struct, frozen=True, kw_only=True):
    name: str
    provider: Provider
    compactor: Compactor
    toolbox: Toolbox
    limits: Limits
    """With its system prompt and the schemas of its tools. The scale belongs to the model and is set for each turn."""
    when: When = "before_turn"
    max_output: int | None = None
    approval: ApprovalPolicy = ApprovalPolicy()
    chosen: str = ""
    """The model that was chosen for the session, if it is not the agent's own."""

    @property
    def place(self) -> str:
        """The address and name of its model: the same name at another `base_url` may be another model."""
        return f"{getattr(self.provider, 'base_url', None) or ''}|{self.provider.model}"

    def narrowed(self, window: int | None) -> "Agent":
        """With this learnt window, if it is smaller than that of the settings."""
        if window is None or window >= self.limits.window:
            return self
        compactor = self.compactor
        if compactor.model == self.provider.model:
            compactor = replace(compactor, window=min(window, compactor.window or window))
        return replace(self, limits=self.limits.narrowed(window), compactor=compactor)

    def unrecorded(self) -> "Agent":
        """For a call of which nothing may be kept."""
        return replace(self, compactor=replace(self.compactor, on_request=unlogged, telemetry=SILENT))

    def scaled(self, scale: Scale, context: str = "") -> Limits:
        """`context` is added to the end of the system prompt, for this turn only."""
        system = "\n\n".join(part for part in (self.limits.system, context) if part)
        return replace(self.limits, scale=scale, system=system)


def schemas(toolbox: Toolbox) -> tuple[dict[str, Any], ...]:
    """The tools as they count towards the size of a prompt."""
    return tuple(
        {"name": spec.name, "description": spec.description, "input_schema": spec.input_schema}
        for spec in toolbox.specs
    )

"""An agent: a named configuration, made ready. It holds nothing of any session."""

from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from .compactor import Compactor
from .core.guard import Limits
from .core.tokens import Scale
from .providers import Provider
from .tools import Toolbox

When: TypeAlias = Literal["before_turn", "in_loop", "after_turn"]


class Agent(Struct, frozen=True, kw_only=True):
    name: str
    provider: Provider
    compactor: Compactor
    toolbox: Toolbox
    limits: Limits
    """Its numbers, its system prompt and its tools' schemas; the scale is the model's and comes with each turn."""
    when: When = "before_turn"
    max_output: int | None = None

    def scaled(self, scale: Scale, context: str = "") -> Limits:
        """`context` joins the system prompt, at its end, of this turn only."""
        system = "\n\n".join(part for part in (self.limits.system, context) if part)
        return replace(self.limits, scale=scale, system=system)


def schemas(toolbox: Toolbox) -> tuple[dict[str, Any], ...]:
    """Tools as they count towards the size of a prompt."""
    return tuple(
        {"name": spec.name, "description": spec.description, "input_schema": spec.input_schema}
        for spec in toolbox.specs
    )

"""Who answers a client's request, and how."""

from msgspec import Struct

from ..core.parameters import NONE, Parameters
from .agent import Agent
from .context_edits import NO_EDITS, ContextEdits


class Upstream(Struct, frozen=True, kw_only=True):
    """Who answers a request, and how."""

    agent: Agent
    """For a relay: a model without tools or a system prompt of its own."""
    is_turn: bool = False
    """Whether the agent runs a turn with its own tools, instead of one call with those of the request."""
    parameters: Parameters = NONE
    max_output: int | None = None
    goes_on: bool = False
    """Whether the call runs to its end even if nobody listens."""
    edits: ContextEdits = NO_EDITS
    """What the client wants to be done to its context first."""
    keeps_pieces: bool = False
    """Whether the log keeps in which pieces the answer came."""

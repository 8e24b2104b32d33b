"""The state that the steps of one turn share."""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from ..core.entries import Assistant
from ..core.events import Tell
from ..core.guard import Limits
from ..core.prompt import Prompt
from . import asking
from .agent import Agent
from .journal import Journal

ROUNDS_MAX = 25
"""Rounds of tool calls in one turn; then the model must answer with what it has."""


OnJoined: TypeAlias = Callable[[Sequence[int]], None]
"""(seqs) of waiting messages that have joined the running turn."""

RoundsEnd: TypeAlias = Literal["answered", "stopped", "paused"]
"""`stopped`: a message waits that interrupts the turn. `paused`: calls wait for a person's approval."""


class Turn:
    def __init__(
        self, journal: Journal, agent: Agent, limits: Limits, began_at: int, tell: Tell, on_joined: OnJoined
    ) -> None:
        self.journal = journal
        self.agent = agent
        self.limits = limits
        self.began_at = began_at
        self.tell = tell
        self.on_joined = on_joined
        self.pieces: list[str] = []
        """Pieces of the streamed text. Joined once, because adding to a text would copy it each time."""
        self.has_streamed = False
        """Whether anything of the call that is being made was shown."""
        self.unrecorded = False
        """Whether nothing of it may be kept: not in the request log, and not in traces."""
        self.rounds = 0
        self.asks = True
        """Whether somebody can be asked for approval."""
        self.asked = asking.Asking(journal, agent)
        self.prompt: Prompt | None = None

    @property
    def may_call(self) -> bool:
        return self.rounds < ROUNDS_MAX

    def partial(self, stop: str) -> Assistant | None:
        """The model's text when it was cut off."""
        text = "".join(self.pieces)
        if not text.strip():
            return None
        return Assistant(content=[{"type": "text", "text": text}], model=self.agent.provider.model, stop=stop)

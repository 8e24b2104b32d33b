"""Decides which messages that a bot only heard in a group join the next turn.

Such a message is stored as `received` with mode `heard`. It is only context: it starts no turn, gets no answer and does
not count as waiting. The next turn takes the newest of them, in order, before the message that it answers; older ones
are never taken.
"""

from collections.abc import Sequence

from . import tokens
from .entries import Received, text_of

HEARD = "heard"
HEARD_MAX = 50
"""The most messages that join one turn: about a screenful of talk before the question."""
HEARD_SHARE = 0.05
"""The share of the window: talk that was not addressed to the bot must not push out the rest."""


def is_heard(entry: Received) -> bool:
    return entry.mode == HEARD


def joining(heard: Sequence[Received], window: int) -> tuple[int, ...]:
    """The seqs of the messages that join a turn, oldest first: the newest without a gap, as far as they fit."""
    room = HEARD_SHARE * window
    chosen: list[int] = []
    for entry in reversed(heard[-HEARD_MAX:]):
        room -= tokens.of_text(text_of(entry.content))
        if room < 0:
            break
        chosen.append(entry.seq)
    return tuple(reversed(chosen))

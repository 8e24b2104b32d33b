"""Who speaks, as the model is told: in groups only, on one line, and so that nobody can pass for another."""

import asyncio

from ..core.history import name_of
from ..core.keys import SessionKey
from . import Arrival, Unsent
from .choosing import Booth

NAME_S = 1.0
"""For asking a platform who somebody is: the message waits for it, and the platform for the message."""


async def named(booth: Booth, arrival: Arrival) -> Arrival:
    try:
        async with asyncio.timeout(NAME_S):
            return await booth.channel.complete(arrival)
    except (Unsent, TimeoutError):
        return arrival  # the sender's id tells people apart as well


def worded(arrival: Arrival, place: SessionKey) -> str:
    """What is stored and shown to the model. In a group every message says who wrote it.

    The name is on one line and in bounds, and no later line of the message can pass for the beginning of another one:
    where several messages become one, a line that begins with `[` begins a message.
    """
    text = arrival.inbound.text
    if place.kind != "group":
        return text
    name = name_of(arrival.sender_name) or name_of(arrival.inbound.sender_id or "")
    safe = name.replace("[", "(").replace("]", ")") or "somebody"
    return f"[{safe}] " + "\n".join(_unlike_a_name(line, n) for n, line in enumerate(text.splitlines()))


def _unlike_a_name(line: str, number: int) -> str:
    return f" {line}" if number and line.startswith("[") else line

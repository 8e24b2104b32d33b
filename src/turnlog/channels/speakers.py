"""Who wrote a message, as the model is told. Only in groups, on one line, and so that nobody can pose as another."""

import asyncio

from ..core.history import name_of
from ..core.keys import SessionKey
from . import Arrival, Unsent
from .accounts import Account

NAME_S = 1.0
"""How long a message waits until its platform says who the sender is. The platform waits for us meanwhile."""


async def with_name(account: Account, arrival: Arrival) -> Arrival:
    try:
        async with asyncio.timeout(NAME_S):
            return await account.channel.complete(arrival)
    except (Unsent, TimeoutError):
        return arrival  # the sender's id tells people apart as well


def text_for_model(arrival: Arrival, place: SessionKey) -> str:
    """The text that is stored and that the model sees. In a group it begins with the sender's name in brackets.

    Several messages may become one prompt message, where a line that begins with `[` begins the next message. So the
    name has no brackets and no line breaks, and later lines that begin with `[` are indented.
    """
    text = arrival.inbound.text
    if place.kind != "group":
        return text
    name = name_of(arrival.sender_name) or name_of(arrival.inbound.sender_id or "")
    safe = name.replace("[", "(").replace("]", ")") or "somebody"
    first, *rest = text.splitlines() or [""]
    return f"[{safe}] " + "\n".join((first, *(f" {line}" if line.startswith("[") else line for line in rest)))

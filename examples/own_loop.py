"""Turnlog in your own agent loop: it stores the session and makes each call fit; you call the model.

    python examples/own_loop.py

The model here is a fake whose window is smaller than expected, so it refuses one call. The guard then compacts the
session, and the call succeeds.
"""

import asyncio

import turnlog
from turnlog.core import tokens
from turnlog.core.history import as_text
from turnlog.core.prompt import Prompt

SYSTEM = "You plan a garden."
BELIEVED_WINDOW = 2_000
REAL_WINDOW = 1_000


async def call_model(messages: turnlog.ShapedMessages) -> str:
    """Your model: an SDK, a local model, anything. If the prompt is too large, raise ContextOverflow."""
    size = tokens.estimate(messages)
    print(f"  send {len(messages) - 1} messages, about {size} tokens")
    if size > REAL_WINDOW:
        print("  refused: too large")
        raise turnlog.ContextOverflow(f"{size} tokens do not fit into {REAL_WINDOW}", tokens=size, window=REAL_WINDOW)
    question = as_text(messages[-1]["content"])
    return f"About {question.split('.')[0]!r}: " + "plant it in the sunny corner, water it, wait. " * 12


async def summarise(prompt: Prompt) -> str:
    """Your summariser; a real one sends the prompt to a model."""
    assert "The record:" in as_text(prompt.messages[0]["content"])
    return "Several plants were placed, all of them in the sunny corner."


async def main() -> None:
    async with turnlog.open("memory:", compaction_keep="turns:2") as t:
        garden = t.session("gardener")
        for plant in ("Tomatoes", "Beans", "Garlic", "Roses", "Thyme", "Pumpkins", "Leeks"):
            print(f"{plant}:")
            question = f"{plant}. Where do they grow best?"
            await garden.call(call_model, question, system=SYSTEM, summarise=summarise, window=BELIEVED_WINDOW)
        row = (await garden).row
        print(f"{row.message_count} messages stored, {row.compactions} compaction, title {row.title!r}")


if __name__ == "__main__":
    asyncio.run(main())

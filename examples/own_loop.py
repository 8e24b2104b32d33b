"""Turnlog under an agent loop of your own: it keeps the session and makes each call fit; you call the model.

    python examples/own_loop.py

The model here is a fake whose window is smaller than we believe, so that one call is refused. The guard around the
call compacts the session, and the call goes through.
"""

import asyncio

import turnlog
from turnlog.core import tokens
from turnlog.core.history import History, as_text
from turnlog.core.prompt import Prompt

KEY = "agent:main:cli:direct:gardener"
BELIEVED_WINDOW = 2_000
REAL_WINDOW = 1_000


async def call_model(history: History) -> str:
    """Yours: an SDK, a local model, anything. Its refusal because of size becomes ContextOverflow."""
    size = tokens.estimate(history.messages, system=history.system)
    print(f"  send {len(history.messages)} messages, about {size} tokens")
    if size > REAL_WINDOW:
        print("  refused: too large")
        raise turnlog.ContextOverflow(f"{size} tokens do not fit into {REAL_WINDOW}", tokens=size, window=REAL_WINDOW)
    question = as_text(history.messages[-1]["content"])
    return f"About {question.split('.')[0]!r}: " + "plant it in the sunny corner, water it, wait. " * 12


async def summarise(prompt: Prompt) -> str:
    """Yours too; a real one sends the prompt to a model."""
    assert "The record:" in as_text(prompt.messages[0]["content"])
    return "Several plants were placed, all of them in the sunny corner."


async def main() -> None:
    async with turnlog.open("memory:", compaction_keep="turns:2") as t:
        for plant in ("Tomatoes", "Beans", "Garlic", "Roses", "Thyme", "Pumpkins", "Leeks"):
            print(f"{plant}:")
            await t.append(KEY, turnlog.User(content=f"{plant}. Where do they grow best?"))
            await t.guard(KEY, call_model, system="You plan a garden.", summarise=summarise, window=BELIEVED_WINDOW)
        row = await t.session(KEY)
        print(f"{row.message_count} messages stored, {row.compactions} compaction, title {row.title!r}")


if __name__ == "__main__":
    asyncio.run(main())

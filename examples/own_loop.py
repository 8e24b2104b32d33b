"""Turnlog under an agent loop of your own: it keeps the session and makes each call fit; you call the model.

    python examples/own_loop.py

The model here is a fake whose window is smaller than we believe, so that one call is refused. The guard says what to
do about it; this loop does it.
"""

import asyncio
from collections.abc import Awaitable, Callable

import turnlog
from turnlog.core import compaction, guard, summaries, tokens
from turnlog.core.compaction import Keep, Plan
from turnlog.core.entries import Assistant, Entry, Failed, User
from turnlog.core.guard import Compact, Limits, Rescue, Send, Shorten
from turnlog.core.history import History, as_text
from turnlog.wiring import Turnlog

LIMITS = Limits(window=2_000, keep=Keep("turns", 2), system="You plan a garden.")
REAL_WINDOW = 1_000


async def call_model(history: History) -> str:
    """Yours: an SDK, a local model, anything. Its refusal because of size becomes ContextOverflow."""
    size = tokens.estimate(history.messages, system=history.system)
    if size > REAL_WINDOW:
        raise turnlog.ContextOverflow(f"{size} tokens do not fit into {REAL_WINDOW}", tokens=size, window=REAL_WINDOW)
    question = as_text(history.messages[-1]["content"])
    return f"About {question.split('.')[0]!r}: " + "plant it in the sunny corner, water it, wait. " * 12


async def summarise(plan: Plan) -> str:
    """Yours too; a real one sends the text of `ask` to a model."""
    ask = summaries.ask(plan.fold, plan.view, previous=plan.previous.summary if plan.previous else "")
    assert "The record:" in ask.text
    return f"{len(plan.fold)} messages about what grows where: everything goes to the sunny corner."


async def turn(t: Turnlog, session_id: str, text: str) -> str:
    async with t.store.lease(session_id) as lease:

        async def append(*bodies: Entry) -> list[Entry]:
            """Durable on return; gives the transcript that results."""
            await t.store.append(session_id, bodies, lease=lease)
            return (await t.sessions.load(session_id)).entries

        steps = guard.protect(await append(User(content=text)), LIMITS)
        try:
            step = next(steps)
            while True:
                match step:
                    case Send():
                        print(f"  send {step.stage}, about {step.tokens} tokens")
                        try:
                            reply = await call_model(step.history)
                        except turnlog.ContextOverflow as overflow:
                            print(f"  refused: {overflow}")
                            step = steps.throw(overflow)
                            continue
                        await append(Assistant(content=reply, model="fake", stop="end_turn"))
                        return reply
                    case Shorten() | Rescue():
                        step = steps.send(await append(*step.bodies))
                    case Compact():
                        step = steps.send(await compact(step, append))
        except turnlog.ContextOverflow as overflow:
            await append(Failed(code="overflow", reason=str(overflow)))
            raise


async def compact(step: Compact, append: Callable[..., Awaitable[list[Entry]]]) -> list[Entry] | None:
    """None: the summary does not count, and the guard goes on without it."""
    summary = await summarise(step.plan)
    if why := summaries.refusal(step.plan, summary, lenient=step.trigger == "overflow"):
        print(f"  summary refused: {why}")
        return None
    body = compaction.complete(
        step.plan,
        summary,
        trigger=step.trigger,
        tokens_before=step.tokens_before,
        tokens_after=guard.floor(step.plan, LIMITS) + tokens.of_text(summary),
        model="fake",
    )
    print(f"  compacted entries {body.covers}: {body.tokens_before} -> {body.tokens_after} tokens")
    return await append(body, *step.along)


async def main() -> None:
    async with turnlog.open("memory:") as t:
        session = await t.sessions.open("agent:main:cli:direct:gardener")
        for plant in ("Tomatoes", "Beans", "Garlic", "Roses", "Thyme", "Pumpkins", "Leeks"):
            print(f"{plant}:")
            await turn(t, session.id, f"{plant}. Where do they grow best?")
        row = await t.sessions.get(session.id)
        print(f"{row.message_count} messages stored, {row.compactions} compaction, title {row.title!r}")


if __name__ == "__main__":
    asyncio.run(main())

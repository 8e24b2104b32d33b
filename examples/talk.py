"""Turns from the library: a message in, events out, everything stored; with a tool of your own.

    python examples/talk.py

The model is the built-in offline one, which needs no key. Name another with model_name="anthropic:NAME" or
"openai:NAME", and set its key in the environment.
"""

import asyncio

import turnlog
from turnlog import Done, TextDelta, ToolCall, ToolDone


def opening_hours(day: str) -> str:
    """Says when the library is open on a day of the week."""
    return "closed" if day.lower() == "sunday" else "9:00 to 18:00"


async def ask(t: turnlog.Turnlog, text: str) -> None:
    print(f"You > {text}")
    async for event in t.session("ada").send(text):
        match event:
            case TextDelta(text=piece):
                print(piece, end="")
            case ToolCall(tool_call=call):
                print(f"[{call.name} {call.input}", end="")
            case ToolDone(text=result):
                print(f" -> {result}]")
            case Done(session_id=session_id):
                print(f"\n(stored in {session_id})")
            case _:
                pass


async def main() -> None:
    async with turnlog.open("sqlite:talk.db", tools=[opening_hours], model_name="offline") as t:
        await ask(t, "My name is Ada.")
        await ask(t, 'call opening_hours {"day": "Sunday"}')
    async with turnlog.open("sqlite:talk.db", tools=[opening_hours], model_name="offline") as t:  # a new start
        await ask(t, "What is my name?")


if __name__ == "__main__":
    asyncio.run(main())

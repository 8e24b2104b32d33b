"""A model that can be told apart from nobody else's: it looks once with a tool, then repeats the newest words.

    python -m tests.turns.echo URL KEY MODE NAME COUNT

sends COUNT messages to one session and prints the events of each as a JSON line. It begins when a line comes in.
"""

import asyncio
import json
import sys

from turnlog.core.entries import Assistant
from turnlog.core.history import as_text
from turnlog.providers import Delta
from turnlog.testing import check_messages

from .talk import opened


def look() -> str:
    """Looks."""
    return "looked"


class Echo:
    model = "echo"
    window = None
    takes = frozenset()

    def __init__(self, delay_s=0.0):
        self.delay_s = delay_s
        self.calls = 0
        self.name = f"{id(self):x}"

    async def stream(self, prompt):
        check_messages(prompt.messages)
        await asyncio.sleep(self.delay_s)
        content = prompt.messages[-1]["content"]
        blocks = [] if isinstance(content, str) else content
        if any(block["type"] == "tool_result" for block in blocks):
            text = f"re: {newest_words(prompt.messages)}"
            yield Delta(text=text)
            yield Assistant(content=[{"type": "text", "text": text}], model=self.model, stop="end_turn")
        else:
            self.calls += 1
            call = {"type": "tool_use", "id": f"{self.name}-{self.calls}", "name": "look", "input": {}}
            yield Assistant(content=[call], model=self.model, stop="tool_use")

    async def summarise(self, prompt):
        return "a summary"

    async def close(self):
        pass


def newest_words(messages):
    """All that was said since the last answer."""
    said = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        texts = [as_text([block]) for block in blocks if block["type"] == "text"]
        if message["role"] == "user":
            said += texts
        elif texts:
            said = []
    return ", ".join(said)


async def main(url, key, mode, name, count):
    async with opened(url, Echo(0.01), tools=[look], queue_mode=mode) as t:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for n in range(int(count)):
            events = [event async for event in t.send(key, f"{name} {n}")]
            kinds = [type(event).__name__ for event in events]
            texts = [event.text for event in events if hasattr(event, "text")]
            print(json.dumps([f"{name} {n}", kinds, texts]), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

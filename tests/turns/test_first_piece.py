"""The first piece of an answer is passed on at once, though the whole answer has come with it."""

import asyncio
from types import SimpleNamespace

from turnlog.core.entries import Assistant
from turnlog.providers import Delta
from turnlog.turns import relay


def test_the_first_piece_is_passed_on_before_the_next_is_read():
    async def main():
        came, heard, heard_before = asyncio.Event(), [], []

        async def stream(prompt):
            yield Delta(text="one")
            heard_before.append(list(heard))
            yield Delta(text="two")
            yield Assistant(content="onetwo", stop="end_turn")

        async def listen():
            await came.wait()
            heard.extend(call.pieces)

        def add(piece):
            call.pieces.append(piece)
            came.set()

        call = SimpleNamespace(pieces=[], add=add)
        listener = asyncio.create_task(listen())
        await asyncio.sleep(0)
        await relay._stream(call, SimpleNamespace(provider=SimpleNamespace(stream=stream)), None, lambda event: None)
        await listener
        assert heard_before == [[Delta(text="one")]]

    asyncio.run(main())

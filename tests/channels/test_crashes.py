"""A store that dies at every single write between a message and its answer: one answer all the same."""

import asyncio

import pytest

from turnlog.errors import StoreUnavailable, TurnlogError
from turnlog.testing import ScriptedProvider

from .scenes import World, desk, run, webhook_hook

WRITES = ("put_if_absent", "cas", "delete")


def dies_at(store, number):
    """From its `number`-th write on nothing is written any more, to the log or to the ledger."""
    count = 0

    def dying(write):
        async def attempt(*args, **options):
            nonlocal count
            count += 1
            if count > number:
                raise StoreUnavailable("the machine is off")
            return await write(*args, **options)

        return attempt

    for name in WRITES:
        setattr(store.ledger, name, dying(getattr(store.ledger, name)))
    store.append = dying(store.append)
    return lambda: count


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
@pytest.mark.parametrize("text", ["hello", "/new"], ids=["message", "command"])
def test_whatever_write_was_the_last_one_the_message_is_answered_once(tmp_path, kind, text):
    async def life(url, world, hook, provider, number):
        """True: nothing died."""
        acknowledged = True
        async with desk(url, world, world.settings("webhook"), provider) as d:
            writes = dies_at(d.t.store, number)
            try:
                await d.bring("webhook", hook)
            except StoreUnavailable:
                acknowledged = False
            while not world.webhook.sent and writes() <= number:
                try:
                    await d.gateway.outbox.deliver_due()
                except TurnlogError:
                    pass
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.02)
            return acknowledged, writes() <= number

    async def main():
        for number in range(40):
            world, provider = World(), ScriptedProvider()
            url = f"sqlite:{tmp_path}/{number}.db" if kind == "sqlite" else f"jsonl:{tmp_path}/{number}"
            hook = webhook_hook({"text": text, "sender_id": "ann"}, delivery="d1")
            acknowledged, finished = await life(url, world, hook, provider, number)
            async with desk(url, world, world.settings("webhook"), provider, start=True) as d:
                if not acknowledged:
                    await d.bring("webhook", hook)
                while not world.webhook.sent:  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(0.01)
                await d.bring("webhook", hook)
                await d.settled()
                await asyncio.sleep(0.05)
                assert len(world.webhook.sent) == 1, f"after {number} writes"
                assert len(await d.users()) == (text == "hello")
            if finished:
                return
        raise AssertionError("it never came to an end")

    run(main())

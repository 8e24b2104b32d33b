"""Unreadable facts, and channels that fail in ways of their own: everything else goes on."""

import asyncio
import json
import re
from pathlib import Path

import apsw
import httpx
import pytest

import turnlog
from turnlog.channels import Address, Unsent
from turnlog.channels.outbox import UNEXPECTED_MAX, UNSENT, WAITING, Outbox, OutgoingReply, replies_in
from turnlog.channels.platforms.telegram import UNEXPECTED_MAX as UPDATES_MAX, Telegram, TelegramSettings
from turnlog.core.splitting import Unit
from turnlog.core.tokens import UNCALIBRATED
from turnlog.runtime import background
from turnlog.server.http.auth import Tokens
from turnlog.stores import facts
from turnlog.testing import FixedClock, ScriptedProvider
from turnlog.turns.calibration import Calibration

from ..stores import postgres
from ..waiting import GIVES_UP_S
from .scenes import desk, run, telegram_hook

KEY = "agent:main:telegram:direct:5"
SPACES = (
    *("tokens", "signin", "cookies", "idempotency", "delivered", "attempts", "selected", "scales", "stops"),
    *("pending", "outbox", "sent", "unsent"),
)
NONSENSE = [
    {"what": 1},
    [1, 2],
    "text",
    5,
    {"id": "../x", "n": {}},
    {"session": 1, "since": "x", "token": [], "seq": ""},
]


async def spoil(url, store):
    """Nonsense in every space, under keys that are asked for and others, as JSON and as what is no JSON."""
    for space in SPACES:
        for number, value in enumerate(NONSENSE):
            await store.ledger.put_if_absent(space, f"k{number}", value)
    await store.ledger.cas("selected", KEY, None, {"id": "../x", "n": 1})
    await store.ledger.cas("scales", "scripted", None, "nonsense")
    await store.close()
    spoil_text(url)


def spoil_text(url):
    scheme, _, path = url.partition(":")
    if scheme == "sqlite":
        db = apsw.Connection(path)
        db.execute("UPDATE ledger SET value_json = '{\"cut' WHERE key = 'k0'")
        db.execute("UPDATE ledger SET value_json = CAST(x'22ff22' AS TEXT) WHERE key = 'k1'")
        db.close()
    elif scheme == "jsonl":
        with (Path(path) / "ledger.jsonl").open("ab") as file:
            file.write(b'["tokens","cut",{"id":\n\xff\xfe nothing at all\n["outbox","k0",{"cut\n')
    else:
        schema = re.search(r"schema=(\w+)", path)[1]
        postgres.server().sql(f"UPDATE {schema}.ledger SET value_json = '{{\"cut' WHERE key = 'k0'")


def test_facts_that_cannot_be_read_stop_nothing_but_themselves(url, world):
    async def main():
        async with turnlog.open_store(url) as store:
            await spoil(url, store)
        provider = ScriptedProvider([{"text": "hello"}, {"text": "again"}])
        async with desk(url, world, world.settings("telegram"), provider, start=True) as here:
            ledger = here.t.store.ledger
            await here.bring("telegram", telegram_hook(world.telegram.update("hi")))
            while not world.telegram.sent:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.02)
            assert [message["text"] for message in world.telegram.sent] == ["hello"]
            assert await Tokens(ledger).list() == []
            assert await Tokens(ledger).find("k0") is None
            token, text = await Tokens(ledger).create("ann", ["chat"])
            assert (await Tokens(ledger).of_bearer(text)).id == token.id
            assert [one.id for one in await Tokens(ledger).list()] == [token.id]
            assert await replies_in(ledger, WAITING, UNSENT) == []
            assert await Calibration(ledger).of("scripted") == UNCALIBRATED
            row = await here.t.sessions.open(KEY)
            assert (await here.t.sessions.new(KEY)).id != row.id
            await here.t.stop_anywhere(row.id)

    run(main())
    assert {"tokens", "pending", "outbox", "selected", "scales"} <= set(facts.unreadable()), "counted"


def test_a_damaged_line_that_revokes_a_token_revives_nothing(tmp_path):
    async def main():
        path = tmp_path / "files"
        async with turnlog.open_store(f"jsonl:{path}") as store:
            token, text = await Tokens(store.ledger).create("ann", ["chat"])
            await Tokens(store.ledger).revoke(token.id)
        file = path / "ledger.jsonl"
        lines = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join(lines[:-1]) + lines[-1].replace(b"revoked_at", b"rev\xffked_at"))
        async with turnlog.open_store(f"jsonl:{path}") as store:
            assert await Tokens(store.ledger).of_bearer(text) is None
            for number in range(1_100):  # until the file is written anew
                await store.ledger.cas("a", "k", number or None, number + 1)
        async with turnlog.open_store(f"jsonl:{path}") as store:
            assert len(file.read_bytes().splitlines()) < 1_000
            assert await Tokens(store.ledger).of_bearer(text) is None

    run(main())


class Odd:
    """A channel of somebody's own, with a mistake in it."""

    kind = "odd"
    limit = 100
    unit: Unit = "chars"

    def __init__(self):
        self.sends = 0
        self.is_mended = False

    async def send(self, outgoing):
        self.sends += 1
        if not self.is_mended:
            raise KeyError("message_id")
        return "1"


def reply(text="hi", chat="5"):
    return OutgoingReply(kind="odd", account=None, agent="main", channel_id=chat, address=Address(chat=chat), text=text)


async def no_note(_):
    return


def test_a_channel_that_raises_something_unexpected_is_tried_ever_later_and_not_for_ever(tmp_path):
    async def main():
        clock, channel = FixedClock(1_000_000), Odd()
        async with turnlog.open_store(f"sqlite:{tmp_path}/s.db", clock=clock) as store:
            outbox = Outbox(store, {("odd", None): channel}, clock=clock, on_delivered=no_note)
            await outbox.put("a", reply())
            for tries in range(1, UNEXPECTED_MAX + 1):
                for _ in range(20):
                    await outbox.deliver_due()
                assert channel.sends == tries, "one attempt, however often it is looked at"
                clock.advance(s=2**tries)
            states = {key: (one.state, one.why) for key, one in await outbox.list()}
            assert states["a"][0] == "refused"
            assert "KeyError" in states["a"][1]
            channel.is_mended = True
            await outbox.put("b", reply("later"))
            await outbox.deliver_due()
            assert {key: one.state for key, one in await outbox.list()}["b"] == "delivered"

    run(main())


def test_a_running_outbox_does_not_spin_on_a_channel_that_fails_and_goes_on_when_it_is_mended(tmp_path):
    async def main():
        clock, channel = FixedClock(1_000_000), Odd()
        before = background.failures().get("channel odd", 0)
        async with turnlog.open_store(f"sqlite:{tmp_path}/s.db", clock=clock) as store:
            told = asyncio.Event()

            async def delivered(_):
                told.set()

            outbox = Outbox(store, {("odd", None): channel}, clock=clock, on_delivered=delivered)
            await outbox.put("a", reply())
            running = asyncio.create_task(outbox.run())
            while channel.sends == 0:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0)
            for number in range(50):  # each wakes it
                await outbox.put(f"n{number}", reply(chat=f"other {number}"))
                await asyncio.sleep(0)
            assert channel.sends <= 51, "one attempt a reply"
            assert background.failures()["channel odd"] - before == channel.sends
            channel.is_mended = True
            clock.advance(s=10)
            await outbox.put("z", reply(chat="z"))
            await told.wait()
            assert not running.done()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    run(main())


def telegram(answers):
    def answer(request):
        method = request.url.path.rpartition("/")[2]
        if method != "getUpdates":
            return httpx.Response(200, json={"ok": True, "result": {}})
        offset = json.loads(request.content)["offset"]
        return httpx.Response(200, json={"ok": True, "result": answers(offset)})

    settings = TelegramSettings(token="1:t", mode="poll", api_url="http://telegram.test")
    return Telegram(settings, transport=httpx.MockTransport(answer))


def update(number, text="hi"):
    return {"update_id": number, "message": {"chat": {"id": 5, "type": "private"}, "from": {"id": 5}, "text": text}}


@pytest.mark.parametrize("number", [None, "abc", [], -7, True, "７"])
def test_updates_without_a_number_are_not_asked_for_without_end(number):
    asked = []

    def answers(offset):
        asked.append(offset)
        return [update(number)]

    async def main():
        channel = telegram(answers)
        with pytest.raises(Unsent, match="no number"):
            await channel.listen(no_note)
        await channel.close()

    run(main())
    assert len(asked) == 1


def test_an_update_that_always_fails_is_left_out_after_some_attempts_and_the_next_is_heard():
    tried, heard = [], asyncio.Event()

    async def take(arrival):
        tried.append(arrival.inbound.text)
        if arrival.inbound.text == "odd":
            raise KeyError("odd")
        heard.set()

    async def main():
        channel = telegram(lambda offset: [one for one in (update(7, "odd"), update(8)) if one["update_id"] >= offset])
        for _ in range(UPDATES_MAX - 1):
            with pytest.raises(KeyError):
                await channel.listen(take)
        listening = asyncio.create_task(channel.listen(take))
        await heard.wait()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await channel.close()

    run(main())
    assert tried == ["odd"] * UPDATES_MAX + ["hi"]


def test_a_platform_that_answers_nonsense_is_asked_again_and_heard_when_it_has_come_to_its_senses(tmp_path, world):
    nonsense = iter([b"<html>", b'{"ok": true, "result": [[], 5, null]}'])

    class Mad(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request):
            if request.url.path.endswith("/getUpdates") and (body := next(nonsense, None)) is not None:
                return httpx.Response(200, content=body)
            return await sane.handle_async_request(request)

    sane = world.transport
    world_like = type("World", (), {"transport": Mad()})

    async def main():
        settings = world.settings("telegram", mode="poll")
        provider = ScriptedProvider([{"text": "hello"}])
        world.telegram.bring(world.telegram.update("hi"))
        async with desk(f"sqlite:{tmp_path}/s.db", world_like, settings, provider, start=True):
            while not world.telegram.sent:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.02)

    before = background.failures().get("channel telegram", 0)
    run(main())
    assert background.failures()["channel telegram"] - before == 2


@pytest.mark.parametrize("steps", range(6))
def test_an_outbox_that_is_cancelled_just_when_it_has_news_ends(tmp_path, steps):
    """Whichever step of the loop lies between the two."""

    async def main():
        clock = FixedClock(1_000_000)
        async with turnlog.open_store(f"sqlite:{tmp_path}/s.db", clock=clock) as store:
            outbox = Outbox(store, {}, clock=clock, on_delivered=no_note)
            waits = asyncio.Event()
            outbox._counter.waiting = lambda _: waits.set()
            running = asyncio.create_task(outbox.run())
            await waits.wait()
            for _ in range(20):  # until it waits for news
                await asyncio.sleep(0)
            outbox._news.set()
            for _ in range(steps):
                await asyncio.sleep(0)
            running.cancel()
            done, _ = await asyncio.wait([running], timeout=GIVES_UP_S)
            assert done

    run(main())

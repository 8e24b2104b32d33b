"""Lines of the convlog: in their order, several in one call, and a failure stops nothing."""

import asyncio
import io
import json

import turnlog
from turnlog.convlog import Filter, open_convlog
from turnlog.core.principals import OWNER
from turnlog.core.session import Session
from turnlog.errors import StoreUnavailable
from turnlog.runtime import background
from turnlog.server import convlog_lines
from turnlog.server.convlog_lines import TOGETHER_MAX, ConvlogLines
from turnlog.server.daily_usage import USAGE, DailyUsage
from turnlog.server.http.auth import TOKEN_SPACES, Tokens
from turnlog.server.http.idempotency import ANSWERS
from turnlog.server.logs import open_log
from turnlog.server.metrics import Metrics
from turnlog.server.service import Service
from turnlog.testing import ScriptedProvider

ROW = Session(id="s1", key="agent:main:web:direct:ann", agent="main", channel="web")
CHANNEL = "web-ann"


async def contents(convlog):
    page = await convlog.messages("main", CHANNEL, Filter(), limit=200)
    return [record.content for record in page.items]


class Counted:
    """A convlog that counts calls, and fails as often as it is told to."""

    def __init__(self, convlog, failures=0):
        self.convlog = convlog
        self.calls = []
        self.failures = failures

    async def write_all(self, lines):
        self.calls.append(len(lines))
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("the disk is full")
        await self.convlog.write_all(lines)


def test_lines_that_come_together_are_written_in_one_call_and_in_their_order():
    asyncio.run(_written_together())


async def _written_together():
    async with open_convlog("memory:") as convlog:
        counted = Counted(convlog)
        lines = ConvlogLines(counted, open_log(io.StringIO()))
        said = [f"line {number}" for number in range(TOGETHER_MAX + 3)]
        for text in said:
            lines.add(ROW, "user", text, sender="ann")
        await lines.finish(10)
        assert await contents(convlog) == said
        assert counted.calls == [TOGETHER_MAX, 3]


def test_lines_that_cannot_be_written_are_reported_and_later_ones_are_written():
    asyncio.run(_written_after_a_failure())


async def _written_after_a_failure():
    async with open_convlog("memory:") as convlog:
        out = io.StringIO()
        lines = ConvlogLines(Counted(convlog, failures=1), open_log(out))
        before = background.failures().get("convlog", 0)
        lines.add(ROW, "user", "lost", sender="ann")
        await lines.finish(10)
        lines.add(ROW, "user", "kept", sender="ann")
        await lines.finish(10)
        assert await contents(convlog) == ["kept"]
        [told] = [json.loads(line) for line in out.getvalue().splitlines()]
        assert (told["event"], told["lines"], told["error"]) == ("convlog", 1, "the disk is full")
        assert background.failures()["convlog"] == before + 1


def test_the_answer_follows_its_message_even_if_it_ends_before_the_message_is_accepted(tmp_path):
    async def go():
        async with (
            turnlog.open("memory:", home=tmp_path, provider=ScriptedProvider([{"text": "answered"}])) as t,
            open_convlog("memory:") as convlog,
        ):
            service = Service(
                t,
                convlog,
                Metrics(),
                open_log(io.StringIO()),
                tokens=Tokens(t.ledger(*TOKEN_SPACES)),
                answers=t.ledger(ANSWERS),
                usage=DailyUsage(t.sessions, t.ledger(USAGE)),
            )
            row = await t.sessions.open(ROW.key)
            access = t.acting_for(OWNER)

            async def accepted_late():
                ticket = await access.accept(row, "asked")
                stream, _ = await ticket.turn
                await stream.ended.wait()
                await asyncio.sleep(0.05)
                return ticket

            await service.accept(row, "asked", "ann", accepted_late)
            await service.close()
            assert await contents(convlog) == ["asked", "answered"]

    asyncio.run(go())


def test_words_in_lines_that_still_wait_are_found_and_erased():
    async def go():
        async with open_convlog("memory:") as convlog:
            lines = ConvlogLines(convlog, open_log(io.StringIO()))
            lines.add(ROW, "user", "my password is hunter2", sender="ann")
            assert await lines.holding(["hunter2"]) == [("main", CHANNEL, 1)]
            lines.add(ROW, "assistant", "hunter2 is no good password", sender="main")
            assert await lines.erase("main", CHANNEL, ["hunter2"]) == 2
            await lines.finish(10)
            assert "hunter2" not in str(await contents(convlog))

    asyncio.run(go())


class StandingStill:
    def __init__(self):
        self.goes_on = asyncio.Event()
        self.written = 0

    async def write_all(self, lines):
        await self.goes_on.wait()
        self.written += len(lines)


def test_a_convlog_that_stands_still_stops_nobody_and_takes_limited_room(monkeypatch):
    monkeypatch.setattr(convlog_lines, "WAITING_CHARS", 20_000)
    monkeypatch.setattr(convlog_lines, "WAITING_MAX_CHARS", 100_000)
    monkeypatch.setattr(convlog_lines, "ROOM_S", 0.01)

    async def go():
        convlog, out = StandingStill(), io.StringIO()
        lines = ConvlogLines(convlog, open_log(out))
        for _ in range(200):
            lines.add(ROW, "user", "x" * 1_000, sender="ann")
            await lines.room()
        await lines.finish(0.01)
        convlog.goes_on.set()
        await lines.flush()
        told = [json.loads(line) for line in out.getvalue().splitlines()]
        assert convlog.written + sum(one["lines"] for one in told if "left out" in one["error"]) == 200
        assert convlog.written <= 100_000 // 2_000 + 1
        assert "not written before the server stopped" in told[0]["error"]

    asyncio.run(go())

"""Coming back to a turn: after a reload, a lost connection, a restart of the server."""

import asyncio
import json
import socket
import time
from pathlib import Path

import pytest
from httpx_sse import connect_sse

from turnlog import Sessions, open_store
from turnlog.access import Access, Parts
from turnlog.core.events import Done, Stopped, TextDelta, ThinkingDelta
from turnlog.errors import UsageError
from turnlog.server.http import sse
from turnlog.server.recent_turns import RecentTurns
from turnlog.server.rejoin import Rejoin
from turnlog.settings import Settings
from turnlog.testing import answered, opened, said
from turnlog.turns.queue import Queue
from turnlog.turns.stream import TurnStream

from ..waiting import GIVES_UP_S, wait_until
from .running import CHAT, SESSIONS, kinds, rejoin, running, talk, text_of, turnlog


def begin(client, message="go", **fields):
    """A session whose turn runs, and the first frames of it; the connection is then dropped."""
    with connect_sse(client, "POST", CHAT, json={"message": message, **fields}) as source:
        told = source.iter_sse()
        first = next(told)
        return source.response.headers["turnlog-session"], [(first.id, first.json())]


def test_whoever_comes_back_gets_every_event_once_and_in_order(tmp_path):
    words = [f"w{n} " for n in range(40)]
    go = tmp_path / "go"
    with running(tmp_path, script=[{"deltas": words, "until": str(go)}]) as server, server.client() as client:
        sid, frames = begin(client)
        for header in (False, True, False):
            with connect_sse(
                client,
                "GET",
                f"{CHAT}/stream",
                params={"sessionId": sid, **({} if header else {"after": frames[-1][0]})},
                headers={"Last-Event-ID": frames[-1][0]} if header else {},
            ) as source:
                for event in source.iter_sse():
                    frames.append((event.id, event.json()))
                    if len(frames) % 12 == 0:
                        break
        go.touch()
        frames += rejoin(client, sid, after=frames[-1][0])
        assert text_of(frames) == "".join(words)
        assert [int(place.partition("-")[2]) for place, _ in frames] == list(range(1, len(frames) + 1))
        assert kinds(frames)[-1] == "done"
        assert kinds(rejoin(client, sid, after=frames[-1][0])) == ["idle"]
        assert kinds(rejoin(client, sid)) == ["idle"]
        assert rejoin(client, sid, after=frames[-3][0]) == frames[-2:]


def test_ten_thousand_deltas_are_all_told_again(tmp_path):
    words = [f"{n} " for n in range(10_000)]
    slow = {"deltas": words, "delay_ms": 0}
    with running(tmp_path, script=[slow]) as server, server.client() as client:
        sid, frames = begin(client)
        wait_until(lambda: client.get(f"{CHAT}/status", params={"sessionId": sid}).json()["status"] == "idle")
        frames += rejoin(client, sid, after=frames[-1][0])
        assert text_of(frames) == "".join(words)
        assert [int(place.partition("-")[2]) for place, _ in frames] == list(range(1, len(frames) + 1))


def test_a_page_that_was_reloaded_gets_the_running_turn_from_its_beginning(tmp_path):
    go = tmp_path / "go"
    script = [{"deltas": ["a", "b", "c"] * 5, "until": str(go)}]
    with running(tmp_path, script=script) as server, server.client() as client:
        sid, _ = begin(client)
        with connect_sse(client, "GET", f"{CHAT}/stream", params={"sessionId": sid}) as source:
            told = source.iter_sse()
            first = next(told)
            go.touch()
            frames = [(event.id, event.json()) for event in (first, *told)]
        assert text_of(frames) == "abc" * 5


def test_after_a_restart_a_turn_without_tools_is_run_again_and_ends_with_done(tmp_path):
    script = [{"deltas": ["never ", "finished"], "until": str(tmp_path / "never")}, {"text": "a new answer"}]
    with running(tmp_path, script=script) as server:
        with server.client() as client:
            sid, frames = begin(client)
            server.restart()
        with server.client() as client:
            again = rejoin(client, sid, last=frames[-1][0])
            assert kinds(again)[0] == "snapshot"
            assert again[0][1]["text"] == ""  # replaces what the client holds
            assert text_of(again) == "a new answer"
            assert kinds(again)[-1] == "done"
            assert {place.partition("-")[0] for place, _ in again} == {frames[0][0].partition("-")[0]}
            assert rejoin(client, sid, last=again[-2][0])[-1] == again[-1]
            entries = client.get(f"{SESSIONS}/{sid}").json()["entries"]
            assert [e["type"] for e in entries if e["type"] in ("user", "assistant")] == ["user", "assistant"]


def test_after_a_restart_a_turn_whose_tool_had_started_ends_as_interrupted(tmp_path):
    call = {"id": "c1", "name": "list_dir", "input": {"path": "."}}
    script = [{"text": "let me look", "tool_calls": [call]}, {"text": "never said", "until": str(tmp_path / "never")}]
    with running(tmp_path, script=script) as server:
        with server.client() as client:
            sid, frames = begin(client)
            wait_until(lambda: "tool_result" in client.get(f"{SESSIONS}/{sid}").text)
            wait_until(lambda: server.begun() == 2)
            server.restart()
        with server.client() as client:
            again = rejoin(client, sid, last=frames[-1][0])
            assert kinds(again) == ["snapshot", "error"]
            assert again[0][1]["text"] == "let me look"
            assert again[-1][1]["code"] == "interrupted"
            assert kinds(rejoin(client, sid, last=again[-1][0])) == ["idle"]
            assert kinds(talk(client, "go on", sessionId=sid))[-1] == "done"


def test_after_a_restart_an_ended_turn_is_told_from_the_log(tmp_path):
    with running(tmp_path, script=[{"text": "all of it"}]) as server:
        with server.client() as client:
            frames = talk(client)
            sid = frames[-1][1]["sessionId"]
            server.restart()
        with server.client() as client:
            again = rejoin(client, sid, last=frames[0][0])
            assert kinds(again) == ["snapshot", "done"]
            assert again[0][1]["text"] == "all of it"
            assert again[-1][1] == frames[-1][1]


def test_messages_that_waited_are_answered_after_a_restart(tmp_path):
    script = [{"text": "slow", "until": str(tmp_path / "never")}]
    with running(tmp_path, script=script, env={"TURNLOG_QUEUE_MODE": "followup"}) as server:
        with server.client() as client, connect_sse(client, "POST", CHAT, json={"message": "first"}) as source:
            sid = source.response.headers["turnlog-session"]
            with connect_sse(client, "POST", CHAT, json={"message": "second", "sessionId": sid}) as other:
                assert next(other.iter_sse()).json()["type"] == "queued"
            wait_until(server.begun)
            server.kill()
        server.start()
        with server.client() as client:
            row = f"{SESSIONS}/{sid}"
            wait_until(lambda: client.get(row).json()["session"]["messageCount"] == 4)
            assert kinds(rejoin(client, sid))[-1] in ("done", "idle")


def test_two_servers_at_one_store_tell_a_turn_from_each_other(tmp_path):
    store = f"sqlite:{tmp_path}/shared/sessions.db"
    call = {"id": "c1", "name": "list_dir", "input": {"path": "."}}
    go = tmp_path / "go"
    script = [{"text": "looking", "tool_calls": [call]}, {"deltas": ["do", "ne"], "until": str(go)}]
    (tmp_path / "b").mkdir()
    with running(tmp_path / "a", script=script, store=store) as one:
        (tmp_path / "b" / "admin.token").write_text(one.token)
        with running(tmp_path / "b", script=[], store=store) as two, one.client() as client, two.client() as other:
            sid, frames = begin(client)
            wait_until(lambda: "tool_result" in other.get(f"{SESSIONS}/{sid}").text)
            place = {"sessionId": sid, "after": frames[-1][0]}
            with connect_sse(other, "GET", f"{CHAT}/stream", params=place) as source:
                coming = source.iter_sse()
                first = next(coming)
                go.touch()
                told = [(event.id, event.json()) for event in (first, *coming)]
            assert kinds(told) == ["snapshot", "snapshot", "done"]
            assert [event["text"] for _, event in told[:2]] == ["looking", "done"]


def test_a_slow_reader_gets_everything_and_others_do_not_wait_for_it(tmp_path):
    words = ["x" * 1000] * 8_000
    soon = {"turnlog.server.http.sse.SLOW_S": 0.05}
    with running(tmp_path, script=[{"deltas": words}], constants=soon) as server, server.client() as client:
        body = json.dumps({"message": "much"}).encode()
        host, _, port = server.base.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=GIVES_UP_S) as lazy:
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            lazy.sendall(
                f"POST {CHAT} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {server.token}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            wait_until(lambda: client.get(SESSIONS).json()["sessions"][:1])
            sid = client.get(SESSIONS).json()["sessions"][0]["id"]
            wait_until(lambda: client.get(f"{CHAT}/status", params={"sessionId": sid}).json()["status"] == "idle")
            time.sleep(0.5)  # ten times as long as makes a reader a slow one
            got = bytearray()
            while b'"done"' not in got[-2000:]:
                piece = lazy.recv(1 << 20)
                assert piece
                got += piece
        assert got.count(b"x") >= 8_000_000
        assert got.count(b"data: ") < 8_000  # joined for it


def test_joining_deltas_loses_no_text_and_keeps_the_last_number():
    events = [
        TextDelta(text="a"),
        TextDelta(text="b"),
        ThinkingDelta(text="t"),
        ThinkingDelta(text="u"),
        TextDelta(text="c"),
    ]
    assert sse._joined(events) == [
        (1, TextDelta(text="ab")),
        (3, ThinkingDelta(text="tu")),
        (4, TextDelta(text="c")),
    ]


def test_a_turn_is_followed_in_batches_by_any_number_of_listeners():
    async def go():
        live = TurnStream("s", 7)
        listeners = [asyncio.create_task(_collect(live)) for _ in range(3)]
        for n in range(1_000):
            live.add(TextDelta(text=str(n)))
            if n % 100 == 0:
                await asyncio.sleep(0)
        live.add(Done(session_id="s", token_estimate=1))
        for got in await asyncio.gather(*listeners):
            assert got.count(b"data: ") == 1_001
            assert got.startswith(b"id: 7-1\n")
            assert b"id: 7-1001\n" in got

    asyncio.run(go())


async def _collect(live):
    return b"".join([chunk async for chunk in sse.follow(live)])


def test_a_place_that_never_was_is_as_good_as_none(tmp_path):
    with running(tmp_path, script=[]) as server, server.client() as client:
        sid = talk(client)[-1][1]["sessionId"]
        for after in ("0-0", "1-1", "2-9", "99-1", "999999999999-1", f"3-{sse.ENDED}"):
            assert kinds(rejoin(client, sid, after=after)) == ["idle"], after
        assert kinds(rejoin(client, sid, after="3-999999")) == ["snapshot", "text_delta", "done"]
        assert client.get(f"{CHAT}/stream", params={"sessionId": sid, "after": "x"}).status_code == 400


def test_an_error_in_mid_stream_is_told_as_one():
    async def broken():
        yield b"data: 1\n\n"
        raise UsageError("gone wrong")

    async def go():
        sent, seen = [], []

        async def send(message):
            sent.append(message)

        async def receive():
            await asyncio.sleep(60)

        async def may_listen():
            return True

        stream = sse.EventStream(broken(), streams=set(), may_listen=may_listen, on_error=seen.append)
        await stream({"type": "http"}, receive, send)
        assert b"gone wrong" in sent[-2]["body"]
        assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
        assert len(seen) == 1

    asyncio.run(go())


class Listener:
    """The server's side of a connection: what was sent, and whether the client is still there."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.left = asyncio.Event()
        self.reminded = asyncio.Event()
        self.has_head = asyncio.Event()
        self.may_listen = True

    async def send(self, message):
        self.sent.append(message.get("body", b""))
        self.has_head.set()
        if self.sent[-1] == b": still here\n\n":
            self.reminded.set()

    async def receive(self):
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def allowed(self):
        return self.may_listen

    def stream(self, frames):
        stream = sse.EventStream(frames, streams=set(), may_listen=self.allowed, on_error=lambda error: None)
        return stream, asyncio.create_task(stream({"type": "http"}, self.receive, self.send))


class Endless:
    """Frames that stop coming after the first one."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def frames(self):
        try:
            yield b"data: 1\n\n"
            await asyncio.Event().wait()
        finally:
            self.ended.set()


def test_a_stream_ends_when_its_client_leaves(monkeypatch):
    monkeypatch.setattr(sse, "ATTEND_S", 0)

    async def go():
        listener, endless = Listener(), Endless()
        _, request = listener.stream(endless.frames())
        listener.left.set()
        await request
        assert endless.ended.is_set()
        assert listener.sent == [b"", b"data: 1\n\n"]  # nothing is sent to a client that has left

    asyncio.run(go())


def test_a_stream_that_is_closed_tells_its_client_to_come_back():
    async def go():
        listener, endless = Listener(), Endless()
        stream, request = listener.stream(endless.frames())
        await asyncio.sleep(0)
        stream.close()
        stream.close()  # twice is as good as once
        await request
        assert endless.ended.is_set()
        assert not request.cancelling()
        assert listener.sent[-1].startswith(b"retry: ")

    asyncio.run(go())


def test_a_listener_that_may_not_listen_any_more_gets_an_end(monkeypatch):
    monkeypatch.setattr(sse, "ATTEND_S", 0)
    monkeypatch.setattr(sse, "KEEPALIVE_S", 0.01)

    async def go():
        listener, endless = Listener(), Endless()
        _, request = listener.stream(endless.frames())
        await listener.reminded.wait()
        listener.may_listen = False
        await request
        assert endless.ended.is_set()
        assert listener.sent[-1] == b""

    asyncio.run(go())


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_request_that_its_server_cancels_is_cancelled(is_closed):
    async def go():
        listener, endless = Listener(), Endless()
        stream, request = listener.stream(endless.frames())
        await asyncio.sleep(0)
        if is_closed:
            stream.close()
        request.cancel()
        await asyncio.wait({request})
        assert request.cancelled()
        assert endless.ended.is_set()

    asyncio.run(go())


def test_the_head_waits_for_the_first_event_only_for_a_while(monkeypatch):
    monkeypatch.setattr(sse, "ATTEND_S", 0)

    async def silent():
        await asyncio.Event().wait()
        yield b""

    async def go():
        listener = Listener()
        stream, request = listener.stream(silent())
        assert listener.sent == []
        await listener.has_head.wait()
        assert listener.sent == [b""]
        stream.close()
        await request

    asyncio.run(go())


def test_events_that_come_soon_after_a_write_share_the_next_one(monkeypatch):
    monkeypatch.setattr(sse, "JOIN_S", 60)

    async def go():
        turn = TurnStream("s", 3)
        chunks = sse.follow(turn)
        turn.add(TextDelta(text="a"))
        first = await anext(chunks)  # at once
        assert first == sse.of_turn(turn, 0, turn.events[0])
        rest = asyncio.ensure_future(anext(chunks))
        turn.add(TextDelta(text="b"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        turn.add(TextDelta(text="c"))
        turn.add(Stopped())  # the end does not wait
        assert await rest == b"".join(sse.of_turn(turn, n, turn.events[n]) for n in (1, 2, 3))
        assert [chunk async for chunk in chunks] == []
        await turn.pause(60)  # it has ended

    asyncio.run(go())


def test_events_wait_for_more_only_for_a_while(monkeypatch):
    monkeypatch.setattr(sse, "JOIN_S", 0.001)

    async def go():
        turn = TurnStream("s", 3)
        chunks = sse.follow(turn)
        for text in ("a", "b"):
            turn.add(TextDelta(text=text))
            assert b'"%b"' % text.encode() in await anext(chunks)
        leaving = asyncio.create_task(turn.pause(60))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait({leaving})
        assert turn._pausing == []
        await chunks.aclose()

    asyncio.run(go())


def test_a_short_stream_needs_no_second_task():
    async def brief():
        yield b"data: 1\n\n"

    async def go():
        listener = Listener()
        _, request = listener.stream(brief())
        before = asyncio.all_tasks()
        await request
        assert asyncio.all_tasks() <= before
        assert listener.sent == [b"", b"data: 1\n\n", b""]

    asyncio.run(go())


def test_a_revoked_token_ends_its_streams(tmp_path):
    script = [{"deltas": ["x ", "y"], "until": str(tmp_path / "never")}]
    with running(tmp_path, script=script, constants={"turnlog.server.http.sse.KEEPALIVE_S": 0.2}) as server:
        token = server.make_token("ann", "--scope", "chat")
        with server.client(token) as client, connect_sse(client, "POST", CHAT, json={"message": "go"}) as source:
            told = source.iter_sse()
            next(told)
            turnlog(["token", "revoke", token.split("_")[1], "--home", str(tmp_path)])
            assert "done" not in [event.json()["type"] for event in told]
        with server.client() as client:
            sid = client.get(SESSIONS).json()["sessions"][0]["id"]
            client.post(f"{CHAT}/stop", json={"sessionId": sid})


@pytest.mark.parametrize("bad", ["", "x", "1", "1-", "-1", "1-2-3", "1-x", "¹-1", "9" * 30 + "-" + "9" * 30])
def test_only_an_event_id_is_an_event_id(bad):
    with pytest.raises(UsageError):
        sse.parse_place(bad)
    assert sse.parse_place("12-7") == sse.EventPosition(12, 7)


class Between:
    """A store whose log goes on right after the first look at it."""

    def __init__(self, store, meanwhile):
        self._store = store
        self._meanwhile = [meanwhile]

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def read(self, *args, **options):
        found = await self._store.read(*args, **options)
        while self._meanwhile:
            await self._meanwhile.pop()()
        return found


def access_to(store):
    made = dict.fromkeys(Parts.__struct_fields__)
    parts = Parts(**{**made, "settings": Settings(home=Path()), "store": store, "queue": Queue(store, None)})
    return Access(parts, Sessions(store))


def test_a_turn_that_ends_between_two_looks_at_its_log_is_told_as_done():
    async def go():
        async with open_store("memory:") as store:
            await store.append("s1", [opened("s1")])
            async with store.lease("s1") as lease:
                [asked] = await store.append("s1", [said("hello")], lease=lease)
                looked = Between(store, lambda: store.append("s1", [answered("an answer")], lease=lease))
                row = await store.describe("s1")
                told = [chunk async for chunk in Rejoin(access_to(looked), RecentTurns()).of_turn(row, asked.seq)]
        assert b"an answer" in b"".join(told)
        assert b'"type":"done"' in told[-1]

    asyncio.run(go())


def test_the_end_of_an_answer_is_sent_with_its_last_event():
    sent = []

    async def send(message):
        sent.append(message)

    async def go():
        stream = TurnStream("s", 1)
        stream.add(TextDelta(text="hi"))
        told = sse.EventStream(
            sse.follow(stream, is_whole=True), streams=set(), may_listen=None, on_error=lambda error: None
        )
        answering = asyncio.create_task(told({}, None, send))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        stream.add(Done(session_id="s", token_estimate=1))
        await answering

    asyncio.run(go())
    start, *bodies = sent
    assert start["type"] == "http.response.start"
    assert [body["more_body"] for body in bodies] == [True, False]
    assert b'"type":"done"' in bodies[-1]["body"]


def test_a_stream_that_is_closed_while_a_slow_reader_keeps_its_end_still_ends():
    async def last():
        yield sse.LastChunk(b"data: done\n\n")

    async def go():
        listener, told, slow = Listener(), [], asyncio.Event()

        async def send(message):
            told.append(message)
            if message.get("body") == b"data: done\n\n":
                slow.set()
                await asyncio.Event().wait()

        listener.send = send
        stream, request = listener.stream(last())
        await slow.wait()
        stream.close()
        await request
        assert told[-1]["more_body"] is False
        assert told[-1]["body"].startswith(b"retry: ")

    asyncio.run(go())

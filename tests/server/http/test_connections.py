"""Connections: deadlines, caps in all, for an address and for a token; people with a token come first."""

import os
import re
import selectors
import socket
import time
from contextlib import ExitStack, contextmanager, suppress

import httpx
import pytest
from httpx_sse import connect_sse

from turnlog.server.http.connections import ConnectionLimits, Connections, limits_of
from turnlog.server.http.problems import Refusal
from turnlog.settings import ServerSettings

from ..running import CHAT, PATIENT, SESSIONS, kinds, running, talk, wait_until

FILES_MAX = 256
ROUNDS = int(os.environ.get("TURNLOG_TEST_FLOODS", "1"))
FLOOD = 400
BODY_IDLE_S = 4
HEAD = b"GET /chat HTTP/1.1\r\nHost: localhost\r\n"
SLOW = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
HALVES = {
    "nothing": b"",
    "half a head": HEAD,
    "half a body without a token": SLOW % CHAT.encode(),
    "half a body of the sign-in": SLOW % b"/api/signin",
    "half a webhook": SLOW % b"/channels/webhook",
}


def address(server):
    host, _, port = server.base.removeprefix("http://").partition(":")
    return host, int(port)


def connected(server, first=b""):
    wire = socket.create_connection(address(server), timeout=120)
    if first:
        try:
            wire.sendall(first)
        except OSError:  # dropped already
            pass
    return wire


@contextmanager
def flooded(server, first):
    """More connections than the server may have descriptors, each with the beginning of a request."""
    with ExitStack() as stack:
        yield [stack.enter_context(connected(server, first)) for _ in range(FLOOD)]


def closed(wires):
    """Those of them that the server has ended."""
    ended = 0
    with selectors.DefaultSelector() as ready:
        for wire in wires:
            ready.register(wire, selectors.EVENT_READ)
        for key, _ in ready.select(0):
            key.fileobj.setblocking(False)
            try:
                while key.fileobj.recv(10_000):
                    pass
                ended += 1
            except ConnectionResetError:
                ended += 1
            except BlockingIOError:
                pass
    return ended


def counted(server, name):
    with server.client() as client:
        page = client.get("/metrics").text
    return {labels: float(value) for labels, value in re.findall(rf"^{name}(\{{.*\}})? (\S+)$", page, re.M)}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home = tmp_path_factory.mktemp("connections")
    with running(home, script=None, files_max=FILES_MAX) as server:
        server.ann = server.make_token("ann", "--scope", "chat")
        yield server


@pytest.mark.parametrize("kind", HALVES)
def test_half_open_connections_shut_nobody_out_who_has_a_token(server, kind):
    for _ in range(ROUNDS):
        with server.client(server.ann) as known, flooded(server, HALVES[kind]) as wires:
            assert kinds(talk(known, "still here?"))[-1] == "done"
            for _ in range(5):
                with server.client(server.ann) as another:
                    assert kinds(talk(another, "and newly connected?"))[-1] == "done"
            wait_until(lambda wires=wires: closed(wires) >= FLOOD - FILES_MAX)
            assert sum(counted(server, "turnlog_connections_refused_total").values()) >= FLOOD - FILES_MAX
    assert httpx.get(f"{server.base}/healthz", **PATIENT).status_code == 200
    assert '"event":"failed"' not in server.log.read_text()


def test_a_stream_of_a_person_with_a_token_outlives_a_flood(server):
    with server.client(server.ann) as client:
        sid = talk(client, "hi")[-1][1]["sessionId"]
        with connect_sse(client, "GET", f"{SESSIONS}/{sid}/events") as source, flooded(server, HEAD):
            with server.client(server.ann) as other:
                talk(other, "a word for the listener", sessionId=sid)
            heard = next(event for event in source.iter_sse() if "a word for the listener" in event.data)
            assert heard


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """One that waits some seconds where others wait ten or thirty: long enough for a busy machine to be in time."""
    home = tmp_path_factory.mktemp("hasty")
    (home / "config.toml").write_text(
        f"[server]\nhead_s = 3\nbody_idle_s = {BODY_IDLE_S}\nconnections_per_token = 4\nconnections_per_address = 2\n"
        'trusted_proxies = ["127.0.0.1"]\n'
    )
    with running(home, script=[]) as server:
        server.ann = server.make_token("ann", "--scope", "chat")
        server.bob = server.make_token("bob", "--scope", "chat")
        yield server


def everything(wire):
    told = b""
    while piece := wire.recv(10_000):
        told += piece
    return told


def test_a_head_that_does_not_arrive_in_time_ends_its_connection(hasty):
    with ExitStack() as stack:
        begun = {first: stack.enter_context(connected(hasty, first)) for first in (b"", b"\r\n", b"GET", HEAD)}
        for first, wire in begun.items():
            assert (b" 408 " in everything(wire)) == first.startswith(b"GET"), first


def test_a_head_that_trickles_in_has_no_more_time(hasty):
    def trickle():
        for letter in HEAD + b"X: " + b"x" * 10_000:
            wire.sendall(bytes([letter]))
            time.sleep(0.01)

    with connected(hasty) as wire, pytest.raises((BrokenPipeError, ConnectionResetError)):
        trickle()


def test_a_second_request_on_a_connection_has_a_deadline_too(hasty):
    with connected(hasty, HEAD.replace(b"/chat", b"/healthz") + b"\r\n") as wire:
        assert b" 200 " in wire.recv(100)
        wire.sendall(HEAD)
        assert b" 408 " in everything(wire)


def test_a_body_that_stops_arriving_is_answered_with_408(hasty):
    slow = SLOW.replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer %b\r\n\r\n")
    paths = (b"/api/signin", CHAT.encode())
    with ExitStack() as stack:
        for wire in [stack.enter_context(connected(hasty, slow % (path, hasty.ann.encode()))) for path in paths]:
            told = everything(wire)
            assert told.startswith(b"HTTP/1.1 408 ")
            assert b'"code":"timeout"' in told


def test_a_body_that_goes_on_arriving_may_take_longer(hasty):
    body = b'{"message": "slowly", "sessionId": "slow-one"}'
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    head += f"Authorization: Bearer {hasty.ann}\r\nContent-Length: {len(body)}\r\n\r\n"
    longest, told = BODY_IDLE_S, b""
    while longest > BODY_IDLE_S / 2:  # again, if the machine let a piece be late: then a 408 is right
        longest = 0.0
        with connected(hasty, head.encode()) as wire, suppress(BrokenPipeError, ConnectionResetError):
            for start in range(0, len(body), 10):
                begun = time.monotonic()
                time.sleep(1)  # all of them take longer than one may
                wire.sendall(body[start : start + 10])
                longest = max(longest, time.monotonic() - begun)
            told = everything(wire)
    assert b'"type":"done"' in told


def test_whoever_was_refused_before_the_end_of_the_body_is_not_waited_for(hasty):
    with connected(hasty, SLOW % CHAT.encode()) as wire:
        assert everything(wire).startswith(b"HTTP/1.1 401 ")


@contextmanager
def listening(server, token, sid, n):
    with ExitStack() as stack:
        streams = []
        for _ in range(n):
            client = stack.enter_context(server.client(token))
            streams.append(stack.enter_context(client.stream("GET", f"{SESSIONS}/{sid}/events")))
        yield streams


def test_one_token_may_have_so_many_streams_and_can_still_ask(hasty):
    with hasty.client(hasty.ann) as client:
        sid = talk(client)[-1][1]["sessionId"]
        known = client.get(f"{SESSIONS}/{sid}").json()["session"]["messageCount"]
        with listening(hasty, hasty.ann, sid, 4) as streams:
            assert [stream.status_code for stream in streams] == [200, 200, 200, 429]
            assert streams[-1].headers["retry-after"]
            refused = client.post(CHAT, json={"message": "not taken in", "sessionId": sid})
            assert (refused.status_code, refused.json()["code"]) == (429, "connections")
            assert client.get(f"{SESSIONS}/{sid}").json()["session"]["messageCount"] == known
            with hasty.client(hasty.bob) as other:
                assert kinds(talk(other))[-1] == "done", "others are not concerned"
        wait_until(lambda: client.post(CHAT, json={"message": "x", "sessionId": sid}).status_code == 200)


def test_one_token_may_have_so_many_requests_under_way(hasty):
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {hasty.bob}\r\nContent-Length: 10\r\n\r\n"

    def refused():
        with ExitStack() as stack, hasty.client(hasty.bob) as client:
            for _ in range(4):
                stack.enter_context(connected(hasty, head.encode()))
            answer = client.get(SESSIONS)
            return answer.status_code == 429 and answer

    assert wait_until(refused).json()["code"] == "connections"
    with hasty.client(hasty.ann) as client:
        assert client.get(SESSIONS).status_code == 200


def test_guests_behind_a_trusted_proxy_are_limited_by_their_own_address(hasty):
    def slow(address):
        told = f"\r\nX-Forwarded-For: {address}\r\n\r\n".encode()
        return connected(hasty, (SLOW % b"/api/signin").replace(b"\r\n\r\n", told))

    def refused():
        with slow("203.0.113.5"), slow("203.0.113.5"), slow("203.0.113.5") as third:
            return third.recv(100).startswith(b"HTTP/1.1 429 ")

    wait_until(refused)
    with slow("203.0.113.5"), slow("203.0.113.5"), slow("203.0.113.6") as another:
        assert everything(another).startswith(b"HTTP/1.1 408 "), "let in, and then too slow"


class Held:
    """A connection that remembers why it was closed."""

    def __init__(self, peer="198.51.100.1"):
        self.peer = peer
        self.signed_in = False
        self.why = None

    def drop(self, why):
        self.why = why.status


def limited(**limits):
    numbers = {"in_all": 6, "guests": 4, "per_address": 3, "per_token": 4, "streams": 4, "streams_per_token": 3}
    return Connections(ConnectionLimits(**{**numbers, **limits}), proxies=["10.0.0.0/8"])


def arrive(connections, *peers):
    came = []
    for peer in peers:
        refusal = connections.refusal_of(peer)
        came.append(Held(peer) if refusal is None else refusal.status)
        if refusal is None:
            connections.add(came[-1])
    return came


def test_one_address_loses_its_oldest_guest_and_others_keep_theirs():
    connections = limited()
    other, *own = arrive(connections, "192.0.2.9", *["198.51.100.1"] * 4)
    assert [one.why for one in (other, *own)] == [None, 429, None, None, None]
    for one in own[1:]:
        connections.set_waiting(one, False)
    assert arrive(connections, "198.51.100.1") == [429], "what is being answered is not given up"


@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "127.5.5.5", "10.1.2.3", "::ffff:127.0.0.1", "::ffff:10.0.0.1"])
def test_this_machine_and_trusted_proxies_are_not_limited_by_address(peer):
    assert [one.why for one in arrive(limited(guests=10, in_all=20), *[peer] * 6)] == [None] * 6


def test_a_network_of_ipv6_counts_as_one_address():
    came = arrive(limited(), *[f"2001:db8:0:1::{n}" for n in range(4)], "2001:db8:0:2::1")
    assert [one.why for one in came] == [429, None, None, None, None]


def test_guests_make_room_first_then_idle_connections_and_what_is_being_answered_never():
    connections = limited(per_address=100)
    people = arrive(connections, *["192.0.2.1"] * 4)
    for one in people:
        connections.set_signed_in(one, True)
        connections.set_waiting(one, True)
    guests = arrive(connections, *["192.0.2.2"] * 3)
    assert [one.why for one in (*people, *guests)] == [None] * 4 + [503, None, None]
    for one in guests[1:]:
        connections.set_waiting(one, False)
    assert arrive(connections, "192.0.2.3")[0].why is None
    assert people[0].why == 503, "idle, and its owner connects again unnoticed"
    for one in people:
        connections.set_waiting(one, False)
    newest = arrive(connections, "192.0.2.3")
    connections.set_waiting(newest[0], False)
    assert arrive(connections, "192.0.2.3") == [503]
    connections.remove(guests[1])
    assert arrive(connections, "192.0.2.3")[0].why is None


def test_the_caps_follow_from_the_files_that_the_process_may_open():
    assert limits_of(ServerSettings(), 1024) == ConnectionLimits(
        in_all=512,
        guests=256,
        per_address=128,
        per_token=128,
        streams=384,
        streams_per_token=96,
        client_streams=64,
    )
    assert limits_of(ServerSettings(), 10**9).client_streams == 64
    assert limits_of(ServerSettings(), 20).client_streams == 6
    assert limits_of(ServerSettings(connections_per_token=200), 1024).client_streams == 150
    assert limits_of(ServerSettings(connections=100), 1024).in_all == 100
    assert limits_of(ServerSettings(), 10**9).in_all < 20_000
    assert limits_of(ServerSettings(), 20).in_all >= 16


def test_a_compatible_client_has_fewer_streams_than_its_token():
    connections = limited(streams=9, streams_per_token=4, client_streams=2)
    with ExitStack() as others, ExitStack() as held:
        for _ in range(2):
            connections.hold_stream("ann", held, of_client=True)
        with pytest.raises(Refusal):
            connections.hold_stream("ann", others, of_client=True)
        connections.hold_stream("ann", others)
        connections.hold_stream("bob", others, of_client=True)
        held.close()
        connections.hold_stream("ann", others, of_client=True)

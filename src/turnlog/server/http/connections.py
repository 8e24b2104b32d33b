"""Which connections may be open, and which of them is closed when there is no room for another.

A connection is a guest's until a request on it has had a valid token. Before the first request arrives, nobody knows
whose connection it is, so refusing new ones at the limit would shut out the people whom the limit protects. Instead a
new connection is accepted, and the guest's connection that has been waiting longest without a request is closed. So a
client that sends its request at once is served, however many half-open connections others hold. A request that is being
answered is never dropped for another connection.

The limits follow from how many files the process may open: half of them are left to the store, models and tools.
"""

import ipaddress
import resource
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Protocol

from msgspec import Struct

from ...settings import ServerSettings
from .problems import Refusal, later

CONNECTIONS_MAX = 16_384
"""The limit where the process may open any number of files: a connection takes memory too."""
CONNECTIONS_MIN = 16
"""Fewer cannot serve two browsers."""
CLIENT_STREAMS = 64
"""Streams of one token on the routes of compatible clients, unless the settings say how many requests it may have."""
CODE = "connections"
IPV6_BLOCK = 64
"""Bits of an IPv6 address that name its network; one client usually has all addresses of a network."""


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    in_all: int
    guests: int
    """All guests together; the rest is kept for requests with a token."""
    per_address: int
    """Guests from one address. Clients with a token are limited by token instead: an office may share one address."""
    per_token: int
    """Running requests of one token, including streams."""
    streams: int
    streams_per_token: int
    """Fewer than requests, so that a client with many streams can still stop a turn."""
    client_streams: int = CLIENT_STREAMS
    """Those of them that one token may have on the routes of compatible clients."""


def limits_of(settings: ServerSettings, files_max: int | None = None) -> ConnectionLimits:
    """The limits of the settings; missing ones follow from how many files the process may open."""
    in_all = settings.connections or min(CONNECTIONS_MAX, max(CONNECTIONS_MIN, (files_max or _files_max()) // 2))
    per_token = settings.connections_per_token or max(CONNECTIONS_MIN // 2, in_all // 4)
    streams_per_token = max(1, per_token * 3 // 4)
    return ConnectionLimits(
        in_all=in_all,
        guests=max(1, in_all // 2),
        per_address=settings.connections_per_address or max(CONNECTIONS_MIN // 2, in_all // 4),
        per_token=per_token,
        streams=max(1, in_all * 3 // 4),
        streams_per_token=streams_per_token,
        client_streams=streams_per_token if settings.connections_per_token else min(CLIENT_STREAMS, streams_per_token),
    )


def _files_max() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2 * CONNECTIONS_MAX if soft == resource.RLIM_INFINITY else soft


class Connection(Protocol):
    peer: str
    signed_in: bool

    def drop(self, why: Refusal) -> None: ...


class Connections:
    def __init__(
        self, limits: ConnectionLimits, *, proxies: Sequence[str] = (), count: Callable[[str], None] = lambda _: None
    ) -> None:
        self.limits = limits
        self.count = count
        self._proxies = [ipaddress.ip_network(proxy) for proxy in proxies]
        self._open: set[Connection] = set()
        self._guests: dict[Connection, str] = {}
        """Each connection with the address it counts for, or None."""
        self._waiting: dict[bool, dict[Connection, None]] = {False: {}, True: {}}
        """By whether they are signed in; the one that has waited longest comes first."""
        self._addresses: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()
        self._client_streams: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def refusal_of(self, peer: str) -> Refusal | None:
        """Makes room for a new connection from there; the reason if that cannot be done."""
        address = self._counted(peer)
        if address and self._addresses[address] >= self.limits.per_address and not self._drop_guest(address):
            return _too_many_from_address()
        if len(self._guests) >= self.limits.guests and not self._drop_guest():
            return _no_room()
        if len(self._open) >= self.limits.in_all and not self.make_room():
            return _no_room()
        return None

    def make_room(self) -> bool:
        """Closes one connection without a running request: a guest's, or one between two requests."""
        return self._drop_guest() or self._drop(next(iter(self._waiting[True]), None), _no_room())

    def add(self, connection: Connection) -> None:
        self._open.add(connection)
        self._add_guest(connection)
        self._waiting[False][connection] = None

    def remove(self, connection: Connection) -> None:
        self._open.discard(connection)
        self._remove_guest(connection)
        for waiting in self._waiting.values():
            waiting.pop(connection, None)

    def set_waiting(self, connection: Connection, waiting: bool) -> None:
        """Marks whether it could be closed without losing an answer. One that is still waiting keeps its place."""
        if connection not in self._open:
            return
        self._waiting[not connection.signed_in].pop(connection, None)
        if not waiting:
            self._waiting[connection.signed_in].pop(connection, None)
        else:
            self._waiting[connection.signed_in].setdefault(connection)

    def set_signed_in(self, connection: Connection, signed_in: bool) -> None:
        if connection not in self._open or connection.signed_in == signed_in:
            return
        connection.signed_in = signed_in
        if signed_in:
            self._remove_guest(connection)
        else:
            self._add_guest(connection)

    def hold_request(self, token_id: str | None, address: str, peer: str, held: ExitStack) -> None:
        """Counts a request until `held` is closed. Guests behind a proxy count by the address that the proxy names."""
        if token_id is not None:
            _hold(self._tokens, token_id, self.limits.per_token, held, _too_many_of_token("requests"))
        elif address != peer and (behind := self._counted(address)):
            _hold(self._addresses, behind, self.limits.per_address, held, _too_many_from_address())

    def hold_stream(self, token_id: str, held: ExitStack, *, of_client: bool = False) -> None:
        """Called before anything is stored: a message that was accepted must not be answered with a refusal."""
        if self._streams.total() >= self.limits.streams:
            raise _no_room()
        if of_client:
            _hold(self._client_streams, token_id, self.limits.client_streams, held, _too_many_of_token("streams"))
        _hold(self._streams, token_id, self.limits.streams_per_token, held, _too_many_of_token("streams"))

    def _counted(self, peer: str) -> str:
        """The address or network that a peer counts for; None for this machine and for trusted proxies."""
        try:
            address = ipaddress.ip_address(peer.partition("%")[0])
        except ValueError:
            return peer
        if isinstance(address, ipaddress.IPv6Address):
            address = address.ipv4_mapped or address
        if address.is_loopback or any(address in proxy for proxy in self._proxies):
            return ""
        if address.version == 6:
            return str(ipaddress.ip_network((address, IPV6_BLOCK), strict=False))
        return str(address)

    def _add_guest(self, connection: Connection) -> None:
        address = self._guests[connection] = self._counted(connection.peer)
        if address:
            self._addresses[address] += 1

    def _remove_guest(self, connection: Connection) -> None:
        if address := self._guests.pop(connection, ""):
            _give_back(self._addresses, address)

    def _drop_guest(self, address: str = "") -> bool:
        found = (guest for guest in self._waiting[False] if not address or self._guests.get(guest) == address)
        return self._drop(next(found, None), _too_many_from_address() if address else _no_room())

    def _drop(self, connection: Connection | None, why: Refusal) -> bool:
        if connection is None:
            return False
        self.remove(connection)
        self.count("dropped")
        connection.drop(why)
        return True


def _hold(counts: Counter[str], name: str, limit: int, held: ExitStack, refusal: Refusal) -> None:
    if counts[name] >= limit:
        raise refusal
    counts[name] += 1
    held.callback(_give_back, counts, name)


def _give_back(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]


def _too_many_from_address() -> Refusal:
    return later("too many connections from this address", "Sign in, or close some of them.", status=429, code=CODE)


def _too_many_of_token(what: str) -> Refusal:
    said = f"too many {what} of this token at once"
    return later(said, "Wait until some of them have ended.", status=429, code=CODE)


def _no_room() -> Refusal:
    return later("the server has no room for another connection", "Try again in a moment.", status=503, code=CODE)

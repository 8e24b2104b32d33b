"""The head of an answer is sent with what follows it, and never later than at the next step of the loop."""

import asyncio

import pytest

from turnlog.server.http.joined_head import JoinedHead

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class Wire:
    """A transport that keeps what is written."""

    def __init__(self):
        self.written = []
        self.closed = ""

    def write(self, data):
        assert not self.closed
        self.written.append(data)

    def is_closing(self):
        return bool(self.closed)

    def close(self):
        self.closed = "closed"

    def abort(self):
        self.closed = "aborted"

    def get_write_buffer_size(self):
        return 5

    def get_extra_info(self, name):
        return name


def joined(act):
    async def go():
        wire = Wire()
        transport = JoinedHead(wire, asyncio.get_running_loop())
        act(transport)
        at_once = list(wire.written)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return at_once, wire

    return asyncio.run(go())


def writing(*parts):
    def act(transport):
        for part in parts:
            transport.write(part)

    return act


def test_the_head_is_sent_with_what_follows_it_at_once():
    at_once, wire = joined(writing(HEAD, b"one", b"two"))
    assert at_once == wire.written == [HEAD + b"one", b"two"]


def test_a_head_that_nothing_follows_is_sent_at_the_next_step():
    at_once, wire = joined(writing(HEAD))
    assert at_once == []
    assert wire.written == [HEAD]


@pytest.mark.parametrize(("end", "sent"), [("close", [HEAD]), ("abort", [])])
def test_a_connection_that_is_closed_sends_its_head_first_and_one_that_is_aborted_does_not(end, sent):
    def act(transport):
        transport.write(HEAD)
        assert transport.get_write_buffer_size() == 5 + len(HEAD)
        getattr(transport, end)()

    at_once, wire = joined(act)
    assert at_once == wire.written == sent
    assert wire.closed


def test_a_head_is_dropped_with_a_connection_that_was_lost():
    def act(transport):
        transport.write(HEAD)
        transport.get_extra_info.__self__.closed = "lost"

    _, wire = joined(act)
    assert wire.written == []

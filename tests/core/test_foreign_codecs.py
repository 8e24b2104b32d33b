"""Entries as lines of other tools' dialects, and back."""

import json
import os

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from msgspec.structs import replace

from turnlog.codecs import flat, lines, native, v3, v3_messages, v3_writing
from turnlog.codecs.dialects import CODECS, NATIVE, Written, detect
from turnlog.codecs.lines import Known, Reading
from turnlog.core import compaction, history, session
from turnlog.core.entries import (
    Assistant,
    Compaction,
    Foreign,
    Opened,
    Pin,
    Received,
    Rewind,
    Title,
    ToolResult,
    User,
)
from turnlog.errors import UsageError
from turnlog.testing import check_messages, entry, opened

from .simulation import Simulation, steps

WAYS = [("v3", "pi"), ("v3", "zyhive"), ("flat", "claw0"), ("flat", "claw0-keyed")]
some = settings(
    max_examples=int(os.environ.get("EXAMPLES", "100")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TS = "2026-01-01T10:00:00.000Z"


class File:
    """A file in memory: what a store does with a codec."""

    def __init__(self, dialect, style, data=b""):
        self.codec = CODECS[dialect]
        self.style = style
        self.data = data
        self.last_id = None

    def read(self):
        reading = self.reading(Known(line_at=self.line_at))
        found = [self.codec.decode(line, seq, reading) for seq, line in enumerate(self.lines(), 1)]
        self.last_id = reading.last_id
        self.known = reading.known
        return found

    def reading(self, known):
        return Reading(opened("s1"), known, self.style)

    def lines(self):
        return self.data.split(b"\n")[:-1]

    def line_at(self, seq):
        return self.lines()[seq - 1]

    def append(self, *entries):
        self.read()
        reading = self.reading(self.known)
        reading.last_id = self.last_id
        data, last_id = self.codec.encode_append(entries, reading)
        self.data += data
        self.read()
        assert self.last_id == last_id
        return [json.loads(line) for line in data.splitlines()]


def written(dialect, style, log, pieces=1):
    file = File(dialect, style)
    for start in range(0, len(log), pieces):
        file.append(*log[start : start + pieces])
    return file


@pytest.mark.parametrize(("dialect", "style"), WAYS)
@some
@given(moves=steps, pieces=st.integers(1, 5))
def test_any_transcript_survives_a_foreign_dialect(dialect, style, moves, pieces):
    sim = Simulation().run(moves)
    back = written(dialect, style, sim.log, pieces).read()
    assert back == sim.log
    assert history.build(back) == history.build(sim.log)

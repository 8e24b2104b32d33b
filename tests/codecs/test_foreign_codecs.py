"""Entries as lines of other tools' dialects, and back."""

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from msgspec.structs import replace

from turnlog.codecs import flat, lines, native, v3
from turnlog.codecs.dialects import CODECS, NATIVE, FileDialect, detect
from turnlog.codecs.lines import FileContext, Reading
from turnlog.core import compaction, earlier_entries, history, session
from turnlog.core.entries import (
    Assistant,
    Compaction,
    Foreign,
    Opened,
    Pin,
    Received,
    Rewind,
    Shortened,
    Title,
    ToolResult,
    User,
)
from turnlog.errors import UsageError
from turnlog.testing import check_messages, opened

from ..core.simulation import Simulation, steps

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
        reading = self.reading(FileContext(line_at=self.line_at))
        found = [self.codec.decode(line, seq, reading) for seq, line in enumerate(self.lines(), 1)]
        self.last_id = reading.last_id
        self.known = reading.known
        return found

    def reading(self, known):
        return Reading(opened("s1"), known, self.style)

    def lines(self):
        return self.data.split(b"\n")[:-1]

    def line_at(self, seq):
        return self.lines()[seq - 1] if seq <= len(self.lines()) else None

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


def reading_of(style="pi", **known):
    return Reading(opened("s1"), FileContext(**known), style)


def v3_line(**fields):
    return v3.decode(json.dumps(fields).encode(), 2, reading_of())


def message(**fields):
    return v3_line(type="message", timestamp=TS, message=fields)


def a_text(words, **more):
    return {"type": "text", "text": words, **more}


PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aa"}}
HIDDEN = {"type": "thinking", "thinking": "", "thinkingSignature": "h", "redacted": True}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "x", "is_error": True}


@pytest.mark.parametrize(
    ("role", "line", "expected"),
    [
        ("user", {"content": "hi"}, User(content="hi")),
        ("user", {"content": None}, User(content="")),
        ("user", {"content": 5}, User(content="5")),
        ("user", {"content": ["a", 1]}, User(content=[a_text("a"), a_text("1")])),
        ("user", {"content": [a_text("a", textSignature="s")]}, User(content=[a_text("a")])),
        ("user", {"content": [RESULT]}, ToolResult(tool_use_id="c", content="x", is_error=True)),
        ("custom", {"customType": "x", "content": "from a tool"}, User(content="from a tool")),
        ("hookMessage", {"content": "from a hook"}, User(content="from a hook")),
        (
            "toolResult",
            {"toolCallId": "c", "content": [{"type": "image", "data": "aa", "mimeType": "image/png"}]},
            ToolResult(tool_use_id="c", content=[PICTURE]),
        ),
        (
            "bashExecution",
            {"command": "ls", "output": "", "cancelled": True},
            User(content="Ran `ls`\n(no output)\n\n(cancelled)"),
        ),
        (
            "bashExecution",
            {"command": "ls", "output": "x", "exitCode": 2},
            User(content="Ran `ls`\n```\nx\n```\n\nExit code 2"),
        ),
        ("assistant", {"content": "a", "stopReason": "aborted"}, Assistant(content="a", stop="interrupted")),
        ("assistant", {"content": "a", "stopReason": "odd", "usage": "odd"}, Assistant(content="a", stop="odd")),
        ("assistant", {"content": [HIDDEN]}, Assistant(content=[{"type": "redacted_thinking", "data": "h"}])),
    ],
)
def test_v3_messages_are_understood(role, line, expected):
    assert message(role=role, **line) == replace(expected, seq=2, ts=TS)


@pytest.mark.parametrize(
    "line",
    [
        {"type": "model_change", "provider": "p", "modelId": "m"},
        {"type": "session", "version": 3, "timestamp": TS},
        {"type": "message", "message": {"role": "bashExecution", "command": "ls", "excludeFromContext": True}},
        {"type": "message", "message": {"role": "robot", "content": "x"}},
        {"type": "message", "message": "odd"},
        {"type": "message", "message": {"content": "nobody"}},
        {"type": "compaction", "summary": " "},
        {"type": "session_info", "name": " "},
        {"type": "branch_summary", "summary": ""},
        {"type": "custom", "customType": "turnlog", "data": {"type": "pin", "target": "gone"}},
        {"type": "custom", "customType": "turnlog", "data": {"type": "pin", "target": None}},
        {"type": "custom", "customType": "turnlog", "data": {"type": "hologram"}},
        {"type": "custom", "customType": "turnlog", "data": "odd"},
        {"kind": "header", "version": 4},
    ],
)
def test_v3_lines_we_do_not_understand_are_kept_as_they_are(line):
    found = v3_line(**line)
    assert isinstance(found, Foreign)
    assert found.raw == line


def reversed_keys(value):
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(list(value))}
    return [reversed_keys(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("dialect", "style"), [("v3", "pi"), ("v3", "zyhive"), ("flat", "claw0")])
def test_the_keys_of_blocks_keep_their_order(dialect, style):
    """Or a prompt would differ after a restart, and its cached beginning be of no use."""
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "tool_use", "id": "c", "name": "n", "input": {"b": {"z": 1, "a": [2, {"y": 0, "x": 0}]}, "a": 1}},
        {"type": "redacted_thinking", "data": "h"},
        {"type": "text", "text": "t", "citations": None},
        PICTURE,
    ]
    for blocks in (content, reversed_keys(content)):
        log = [opened("s1"), Assistant(content=blocks), ToolResult(tool_use_id="c", content=blocks)]
        read = written(dialect, style, [replace(body, seq=n, ts=TS) for n, body in enumerate(log, 1)]).read()
        for entry in read[1:]:
            assert json.dumps(entry.content) == json.dumps(blocks)


def test_a_call_of_pi_without_a_name_or_arguments_is_read():
    found = message(role="assistant", content=[{"type": "toolCall"}])
    assert found.content == [{"type": "tool_use", "id": None, "name": None, "input": {}}]


def test_a_call_with_its_keys_in_another_order_is_not_written_twice():
    call = {"id": "c", "input": {"path": "x" * 1_000}, "name": "n", "type": "tool_use"}
    log = [replace(opened("s1"), seq=1, ts=TS), Assistant(seq=2, ts=TS, content=[call])]
    assert written("v3", "pi", log).data.count(b"x" * 1_000) == 1


@pytest.mark.parametrize("dialect", ["v3", "flat"])
def test_what_is_no_object_is_kept_too(dialect):
    for line, raw in ((b"", ""), (b" \r", ""), (b"[1]", [1]), (b"null", None), (b'"\\ud800"', "\ud800")):
        assert CODECS[dialect].decode(line, 2, reading_of()) == Foreign(seq=2, raw=raw)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"not json", "malformed"),
        (b'{"type":"user","content":"cut of', "truncated"),
        (b"\xff\xfe{\x00", "UTF-16"),
        (b"{\x00\x00\x00", "UTF-16"),
        (b'{"type":"user","content":"gr\xfcn"}', "UTF-8"),
        (b"[" * 100_000, ""),
    ],
)
def test_unreadable_lines_say_why(line, said):
    with pytest.raises(native.Undecodable) as caught:
        lines.parse(line)
    assert said in str(caught.value)


def test_a_mark_of_its_encoding_before_the_first_line_is_no_damage():
    assert lines.parse(b'\xef\xbb\xbf{"a":1}') == {"a": 1}
    assert lines.parse(b'{"a":NaN}')["a"] != 0


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1767261600, "2026-01-01T10:00:00.000Z"),
        (1767261600.5, "2026-01-01T10:00:00.500Z"),
        (1767261600123, "2026-01-01T10:00:00.123Z"),
        ("2026-01-01T10:00:00Z", "2026-01-01T10:00:00.000Z"),
        ("2026-01-01T12:00:00.123456+02:00", "2026-01-01T10:00:00.123Z"),
        ("2026-01-01T10:00:00", "2026-01-01T10:00:00.000Z"),
        *((odd, "") for odd in (None, True, "yesterday", float("inf"), 1e30, -1e30, [], "")),
    ],
)
def test_times_in_any_notation_become_one(value, expected):
    assert lines.timestamp(value) == expected
    assert lines.timestamp(lines.unix_ms(expected)) == (expected or lines.timestamp(0))


def test_times_without_a_zone_are_utc():
    assert lines.unix_ms("2026-01-01T10:00:00") == 1767261600000


TREE = [
    {"type": "session", "version": 3, "id": "u", "timestamp": TS, "cwd": "/home"},
    {"type": "message", "id": "a", "parentId": None, "message": {"role": "user", "content": "root"}},
    {"type": "message", "id": "b", "parentId": "a", "message": {"role": "assistant", "content": "left"}},
    {"type": "message", "id": "c", "parentId": "a", "message": {"role": "assistant", "content": "right"}},
    {"type": "message", "id": "d", "parentId": "c", "message": {"role": "user", "content": "on the right"}},
    {"type": "message", "id": "e", "parentId": "gone", "message": {"role": "assistant", "content": "an orphan"}},
    {"type": "message", "id": "f", "parentId": 7, "message": {"role": "user", "content": "an odd parent"}},
    {"type": "message", "message": {"role": "assistant", "content": "no id"}},
    {"type": "message", "id": "g", "parentId": "b", "message": {"role": "user", "content": "after no id"}},
    {"type": "message", "id": "h", "parentId": None, "message": {"role": "user", "content": "a second root"}},
]


def jsonl(*raws):
    return b"".join(json.dumps(raw).encode() + b"\n" for raw in raws)


def test_a_tree_is_a_log_that_jumps():
    log = File("v3", "pi", jsonl(*TREE)).read()
    assert [entry.after for entry in log] == [None, None, None, 2, None, None, None, None, None, 1]
    row = session.describe(None, log)
    assert session.live_path(row.marks, row.last_seq) == [(10, 10), (1, 1)]
    assert [c.seq for c in compaction.explain(log) if c.state == "rewound"] == list(range(2, 10))
    before = log[:9]
    assert [m["content"] for m in history.build(before[:5]).messages][1] == [{"type": "text", "text": "right"}]
    assert "left" not in str(history.build(before).messages)
    assert session.describe(session.describe(None, log[:3]), log[3:]).last_seq == 10
    check_messages(history.build(log).messages)


def test_an_entry_that_follows_another_is_admitted_like_a_rewind():
    sim = Simulation().run([("user", "text"), ("assistant", "text"), ("user", "text"), ("assistant", "text")])
    sim.add(User(content="instead", after=3))
    assert sim.row == session.describe(None, sim.log)
    assert sim.row.last_role == "user"
    shown = str(history.build(sim.log).messages)
    assert "w0002q" in shown
    assert "w0003q" not in shown
    for wrong in (0, 7, 99):
        with pytest.raises(UsageError):
            sim.add(User(content="x", after=wrong))
    assert earlier_entries.needed(sim.row, [User(content="x", after=3)]) is not None
    assert session.describe(sim.row, [User(seq=7, content="x", after=3)]).last_seq == 7
    for dialect, style in WAYS:
        assert written(dialect, style, sim.log).read() == sim.log


def test_a_compaction_keeps_from_the_entry_it_names_or_nothing():
    def first_kept(**fields):
        found = v3.decode(json.dumps({"type": "compaction", "summary": "s", **fields}).encode(), 9, reading)
        assert found.covers[1] == found.first_kept - 1
        return found.first_kept

    reading = reading_of()
    reading.known.ids["x"] = 5
    reading.known.ids["later"] = 12
    assert first_kept(firstKeptEntryId="x") == 5
    assert first_kept(firstKeptEntryIndex=3) == 4
    for odd in ({"firstKeptEntryId": "turn-3"}, {"firstKeptEntryId": "later"}, {"firstKeptEntryIndex": True}, {}):
        assert first_kept(**odd) == 9
    counts = v3.decode(b'{"type":"compaction","summary":"s","tokensBefore":-1,"tokensAfter":"x"}', 9, reading)
    assert (counts.tokens_before, counts.tokens_after) == (0, 0)


def test_lines_without_ids_are_gone_on_with_by_number():
    old = jsonl(
        {"type": "session", "version": 3, "agentId": "main", "createdAt": 1767261600000},
        {"type": "message", "message": {"role": "user", "content": "one"}, "timestamp": 1767261601000},
        {"type": "message", "message": {"role": "assistant", "content": "two"}, "timestamp": 1767261602000},
    )
    file = File("v3", "zyhive", old)
    new = [
        Pin(seq=4, ts=TS, target=2),
        Compaction(seq=5, ts=TS, summary="s", first_kept=3, covers=(2, 2), trigger="tokens"),
        Rewind(seq=6, ts=TS, to=3),
        User(seq=7, ts=TS, content="on", after=2),
    ]
    (pin,) = file.append(new[0])
    assert pin["data"]["target"] == 2
    assert pin["parentId"] is None
    for one in new[1:]:
        file.append(one)
    assert file.read()[3:] == new


def test_ids_are_never_used_twice():
    taken = [
        {"type": "message", "id": f"{n:08x}", "parentId": None, "message": {"role": "user", "content": "x"}}
        for n in (3, 4)
    ]
    file = File("v3", "pi", jsonl({"type": "session", "version": 3, "id": "u", "timestamp": TS, "cwd": ""}, *taken))
    for n in range(4, 9):
        file.append(User(seq=n, ts=TS, content=f"{n}"))
    ids = [json.loads(line).get("id") for line in file.lines()[1:]]
    assert len(set(ids)) == 7
    assert all(len(one) == 8 and int(one, 16) >= 0 for one in ids)


def test_an_id_that_another_tool_used_twice_is_not_referred_to():
    twice = [{"type": "label", "id": "aaaaaaaa", "parentId": None, "targetId": "x"}] * 2
    file = File("v3", "pi", jsonl({"type": "session", "version": 3, "id": "u", "timestamp": TS, "cwd": ""}, *twice))
    (raw,) = file.append(Pin(seq=4, ts=TS, target=2))
    assert raw["data"]["target"] == 2
    (raw,) = file.append(Pin(seq=5, ts=TS, target=3))
    assert raw["data"]["target"] == "aaaaaaaa"
    assert [entry.target for entry in file.read()[3:]] == [2, 3]


THOUGHT = {"type": "thinking", "thinking": "t"}
ODD = [
    Title(title=" "),
    User(content=[RESULT]),
    User(content="x", sender="Ann", message_id="1", dedupe_id="2"),
    Assistant(content=[THOUGHT], stop="refusal", usage={"input_tokens": 1, "service": "x"}),
    Assistant(content=[{"type": "redacted_thinking", "data": "d"}, {"type": "image", "source": {"type": "url"}}]),
    Assistant(content=[PICTURE], model="gpt-5"),
    ToolResult(tool_use_id="c", content=[a_text("x")]),
    ToolResult(tool_use_id="c", content=[a_text("x", cache=1)]),
    Foreign(raw={"type": "session", "id": "x"}),
    User(content="at an odd time", ts="yesterday"),
    User(content="half a \ud83d"),
    Shortened(targets=(2, 5), limit=9),
    User(from_=(1, 77)),
]


@pytest.mark.parametrize(("dialect", "style"), WAYS)
def test_whatever_an_entry_holds_comes_back(dialect, style):
    head = replace(opened("s1"), label="a label", ts="sometime")
    log = [replace(body, seq=seq, ts=body.ts or TS) for seq, body in enumerate([head, *ODD], 1)]
    assert written(dialect, style, log).read() == log


def test_other_tools_find_the_words_of_a_message_that_waited():
    for dialect, style in WAYS:
        log = [
            replace(opened("s1"), seq=1, ts=TS),
            Received(seq=2, ts=TS, content="these words"),
            User(seq=3, ts=TS, from_=(2,)),
        ]
        for pieces in (1, 3):
            file = written(dialect, style, log, pieces)
            assert file.read() == log
            raw = json.loads(file.lines()[-1])
            assert (raw.get("message") or raw)["content"] == "these words"


def test_results_carry_the_name_of_their_tool():
    call = {"type": "tool_use", "id": "c1", "name": "read_file", "input": {}}
    log = [
        replace(opened("s1"), seq=1, ts=TS),
        Assistant(seq=2, ts=TS, content=[call, {"type": "tool_use", "id": 5, "name": None, "input": {}}]),
        ToolResult(seq=3, ts=TS, tool_use_id="c1", content="x"),
        ToolResult(seq=4, ts=TS, tool_use_id="c2", content="y"),
    ]
    file = written("v3", "pi", log)
    assert [json.loads(line)["message"]["toolName"] for line in file.lines()[2:]] == ["read_file", "unknown"]


def test_only_so_many_names_of_tools_are_remembered(monkeypatch):
    monkeypatch.setattr(lines, "CALLS_KEPT", 2)
    known = FileContext()
    for n in range(4):
        known.note_call(f"c{n}", "x")
    assert list(known.calls) == ["c2", "c3"]


def test_a_field_of_ours_that_makes_no_sense_is_passed_over():
    raw = {"type": "message", "message": {"role": "user", "content": "x"}, "turnlog": {"sender": 5}}
    assert v3_line(**raw) == User(seq=2, content="x")
    assert v3_line(**{**raw, "turnlog": "odd"}) == User(seq=2, content="x")
    assert isinstance(v3_line(**{**raw, "turnlog": {"from": ["gone"]}}), Foreign)
    assert flat.decode(b'{"type":"turnlog","entry":{"type":"pin"}}', 2, reading_of()).raw["type"] == "turnlog"
    assert isinstance(flat.decode(b'{"type":"turnlog","entry":5}', 2, reading_of()), Foreign)


def test_a_header_says_who_and_where():
    def header(codec, opening, **fields):
        reading = Reading(opening, FileContext(), "pi")
        return codec.decode(json.dumps({"type": "session", **fields}).encode(), 1, reading)

    pi = Opened(id="s1", key="agent:main:pi:direct:--x--", agent="main", channel="pi")
    assert header(CODECS["v3"], pi, cwd="/home/ann").key == "agent:main:pi:direct:%2Fhome%2Fann"
    for cwd in (None, "", "x" * 1000):
        assert header(CODECS["v3"], pi, cwd=cwd).key == pi.key
    assert header(CODECS["v3"], opened("s1"), createdAt=1767261600000).ts == TS
    keyed = header(CODECS["flat"], opened("s1"), key="ops:cli:user", created=TS)
    assert (keyed.agent, keyed.key, keyed.ts) == ("ops", "agent:ops:cli:direct:user", TS)
    assert header(CODECS["flat"], opened("s1"), key="?").key == opened("s1").key
    assert isinstance(flat.decode(b'{"type":"session"}', 2, reading_of()), Foreign)
    there = written("v3", "pi", [replace(pi, seq=1, ts=TS, key="agent:main:pi:direct:%2Fhome%2Fann")])
    assert json.loads(there.lines()[0])["cwd"] == "/home/ann"


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (native.encode(replace(opened("s1"), seq=1)), NATIVE),
        (b'rubbish\n{"type":"user","seq":5}', NATIVE),
        (b'{"type":"session","version":3,"id":"u","timestamp":"x","cwd":"/"}', FileDialect("v3", "pi")),
        (b'{"type":"session","version":3,"agentId":"x"}', FileDialect("v3", "zyhive")),
        (b'{"type":"session","version":3,"createdAt":1}', FileDialect("v3", "zyhive")),
        (b'{"type":"message","timestamp":5}', FileDialect("v3", "zyhive")),
        (b'{"type":"label","timestamp":"x"}', FileDialect("v3", "pi")),
        (b'{"type":"session","id":"a","key":"main:cli:user","created":"2026"}', FileDialect("flat", "claw0-keyed")),
        (b'{"type":"session","id":"a","created":5}', FileDialect("flat", "claw0")),
        (b'{"type":"user","content":"x","ts":5}', FileDialect("flat", "claw0")),
        (b'\n[]\n{"type":"tool_use","ts":"2026"}', FileDialect("flat", "claw0-keyed")),
        (b"", None),
        (b'{"type":"hologram"}\n{"x":1}', None),
    ],
)
def test_a_file_tells_its_dialect(head, expected):
    assert detect(head) == expected


@pytest.mark.parametrize(("dialect", "style"), WAYS)
def test_what_cannot_be_written_is_refused(dialect, style):
    deep = "x"
    for _ in range(300):
        deep = [deep]
    deeper = "x"
    for _ in range(50_000):
        deeper = [deeper]
    for wrong in (deep, deeper):
        with pytest.raises(UsageError):
            File(dialect, style).append(Foreign(seq=1, ts=TS, raw=wrong))
    with pytest.raises(UsageError, match="limit"):
        File(dialect, style).append(User(seq=1, ts=TS, content="x" * 34_000_000))
    with pytest.raises(UsageError, match="JSON"):
        lines.dump({"x": object()})


def test_only_lines_of_an_append_that_goes_on_say_so():
    log = [replace(opened("s1"), seq=1, ts=TS), User(seq=2, ts=TS, content="x"), User(seq=3, ts=TS, content="y")]
    for dialect, style in WAYS:
        found = written(dialect, style, log, 3).lines()
        assert [lines.is_unfinished(line, "s1") for line in found] == [True, True, False]
        assert not lines.is_unfinished(found[0], "s2"), "in a copy under another name it means nothing"


def test_ids_are_read_once_and_only_when_one_is_missed():
    asked = []

    def fill(known):
        asked.append(1)
        known.ids["a"] = 3

    known = FileContext(fill=fill)
    known.ids["b"] = 4
    assert known.seq_of("b") == 4
    assert not asked
    assert known.seq_of("a") == 3
    assert known.seq_of("c") is None
    assert len(asked) == 1
    assert known.line_at(1) is None


def test_a_received_entry_that_cannot_be_read_leaves_its_words_out():
    for dialect, style in WAYS:
        codec = CODECS[dialect]
        for line in (b"rubbish", b"[]", b'{"data":5,"entry":5}', None):
            reading = Reading(opened("s1"), FileContext(line_at=lambda seq, line=line: line), style)
            data, _ = codec.encode_append([User(seq=3, ts=TS, from_=(2,))], reading)
            raw = json.loads(data)
            assert (raw.get("message") or raw)["content"] == ""


def test_several_results_in_one_message_are_parted():
    blocks = [
        {"type": "tool_result", "tool_use_id": "a", "content": "one"},
        {"type": "tool_result", "tool_use_id": "b", "content": 5, "is_error": True},
        {"type": "tool_result", "content": "nobody's"},
        {"type": "text", "text": "and words"},
    ]
    calls = [{"type": "tool_use", "id": name, "name": "look", "input": {}} for name in "ab"]
    log = [
        replace(opened("s1"), seq=1, ts=TS),
        User(seq=2, ts=TS, content="go"),
        Assistant(seq=3, ts=TS, content=calls),
        User(seq=4, ts=TS, content=blocks),
        User(seq=5, ts=TS, content=[{"type": "tool_result", "tool_use_id": "a", "content": [a_text("x")]}]),
    ]
    messages = history.build(log).messages
    check_messages(messages)
    assert [block.get("tool_use_id") for block in messages[2]["content"][:2]] == ["a", "b"]
    assert "nobody's" in str(messages)
    row = session.describe(None, log[:4])
    assert (row.turn_count, row.last_role) == (1, "user"), "its words steer the turn"
    assert session.describe(session.describe(None, log[:3]), log[3:4]) == row


def test_the_lines_of_claw0_are_understood():
    def read(**fields):
        return flat.decode(json.dumps(fields).encode(), 2, reading_of("claw0"))

    call = {"type": "tool_use", "id": "t", "name": "read", "input": {"path": "x"}}
    assert read(type="tool_use", tool_use_id="t", name="read", input={"path": "x"}) == Assistant(seq=2, content=[call])
    assert read(type="tool_result", tool_use_id="t", output="o") == ToolResult(seq=2, tool_use_id="t", content="o")
    assert read(type="tool_result", tool_use_id="t", content=["o"], output="no").content == [a_text("o")]
    assert read(type="assistant", content="a", ts=1767261600) == Assistant(seq=2, ts=TS, content="a")
    assert read(type="user") == User(seq=2, content="")


def test_what_extensions_of_pi_say_is_said_to_the_model():
    assert v3_line(type="custom_message", content="look") == User(seq=2, content="look")
    branch = v3_line(type="branch_summary", fromId="root", summary="it was left")
    assert branch.content.endswith("it was left")


def test_references_survive_when_another_tool_copies_lines_into_a_file_of_its_own():
    log = [
        replace(opened("s1"), seq=1, ts=TS),
        Title(seq=2, ts=TS, title="left out"),
        Received(seq=3, ts=TS, content="words"),
        User(seq=4, ts=TS, from_=(3,)),
        ToolResult(seq=5, ts=TS, tool_use_id="c", content="x"),
        Shortened(seq=6, ts=TS, targets=(5,), limit=9),
        Pin(seq=7, ts=TS, target=4),
        Compaction(seq=8, ts=TS, summary="s", first_kept=5, covers=(3, 4)),
    ]
    whole = written("v3", "pi", log).lines()
    found = File("v3", "pi", b"\n".join([whole[0], *whole[2:], b""])).read()
    assert found[2].from_ == (2,)
    assert found[4].targets == (4,)
    assert found[5].target == 3
    assert (found[6].first_kept, found[6].covers) == (4, (2, 3))

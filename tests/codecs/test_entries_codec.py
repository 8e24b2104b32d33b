"""Entries as words, and entries as lines of the native dialect."""

import json
import zlib

import msgspec
import pytest
from msgspec.structs import replace

import turnlog
from turnlog.codecs import native
from turnlog.codecs.native import Undecodable
from turnlog.core import entries, events, tokens, user_content
from turnlog.core.entries import (
    Assistant,
    Compaction,
    Failed,
    Foreign,
    Opened,
    Origin,
    Pin,
    Received,
    Rewind,
    Selected,
    Shortened,
    Status,
    Title,
    ToolResult,
    Undo,
    Unpin,
    User,
)
from turnlog.core.wellformed import accepted
from turnlog.errors import StoreError, UsageError
from turnlog.testing import answered, entry, opened, said

TS = "2030-01-01T00:00:00.000Z"


def log(*bodies):
    return [replace(body, seq=seq, ts="2026-01-02T03:04:05.678Z") for seq, body in enumerate(bodies, 1)]


def text(words):
    return {"type": "text", "text": words}


EVERY_TYPE = [
    opened("s"),
    Opened(id="s", key="k", agent="a", channel="c", label="l", forked_from=Origin(id="t", seq=4)),
    Selected(n=3),
    Received(content="hi", message_id="m", dedupe_id="d", sender="u", mode="followup"),
    Received(content=[text("hi")]),
    User(content="hi", message_id="m", dedupe_id="d", sender="u"),
    User(from_=(2, 3)),
    Assistant(content=[text("a"), {"type": "tool_use", "id": "x", "name": "n", "input": {"k": [1, None, True, 0.5]}}]),
    Assistant(content="plain", model="m", usage={"input_tokens": 3}, stop="end_turn"),
    ToolResult(tool_use_id="x", content="out", is_error=True),
    ToolResult(tool_use_id="x", content=[text("out")]),
    Compaction(summary="s", first_kept=9, covers=(2, 8), tokens_before=5, tokens_after=1, trigger="window", focus="f"),
    Shortened(targets=(4, 7), limit=100),
    Pin(target=2),
    Unpin(target=2),
    Rewind(to=5),
    Undo(target=9),
    Status(value="archived", reason="idle"),
    Title(title="t", by="auto"),
    Failed(code="overflow", reason="r"),
    Foreign(raw={"type": "custom", "deep": [{"a": None}]}),
]


@pytest.mark.parametrize("body", EVERY_TYPE, ids=lambda body: type(body).__name__)
def test_every_entry_survives_its_line(body):
    (stored,) = log(body)
    line = native.encode(stored)
    assert b"\n" not in line
    assert native.decode(line) == stored
    assert native.decode_lines(line + b"\n") == [stored]
    assert json.loads(line)["type"] == body.__struct_config__.tag


@pytest.mark.parametrize("body", EVERY_TYPE, ids=lambda body: type(body).__name__)
def test_the_seq_is_found_without_decoding(body):
    stored = replace(body, seq=123_456_789_012, ts="2026-01-02T03:04:05.678Z")
    assert native.seq_of(native.encode(stored)) == 123_456_789_012


def test_a_line_says_what_the_table_of_the_format_says():
    stored = User(seq=7, ts="2026-01-02T03:04:05.678Z", content="hi", from_=(5, 6))
    assert native.encode(stored) == (
        b'{"type":"user","seq":7,"ts":"2026-01-02T03:04:05.678Z","content":"hi","from":[5,6]}'
    )


def test_an_entry_is_made_from_plain_values_by_its_tag():
    assert msgspec.convert({"type": "user", "content": "hi"}, turnlog.Entry) == said("hi")


def test_an_entry_cannot_be_changed():
    with pytest.raises(AttributeError):
        said("hi").content = "ho"


def test_fields_of_a_newer_writer_are_ignored():
    assert native.decode(b'{"type":"user","seq":1,"content":"hi","mood":"good"}') == User(seq=1, content="hi")


@pytest.mark.parametrize(
    "words",
    ["\ud800", "a\udfffb", "\udc00\ud800", "\x00", "\u2028\u2029\x85", "😀", "\x1b[31m", '"until":5}', "\\ud800"],
)
def test_any_text_is_one_line_of_valid_utf8_and_comes_back(words):
    for body in (
        User(content=words),
        User(content=[text(words)]),
        Assistant(content=[{"type": "tool_use", "id": words, "name": words, "input": {words: [words]}}]),
        ToolResult(tool_use_id=words, content=words),
        Title(title=words),
    ):
        (stored,) = log(body)
        line = native.encode(stored)
        line.decode("utf-8")
        assert line.splitlines() == [line]
        assert native.decode(line) == stored
        assert native.seq_of(line) == 1
        assert native.until_of(line) is None


def test_a_lone_surrogate_inside_an_append_keeps_its_mark():
    data = native.encode_append(log(opened("s"), said("\ud800"), said("b")))
    first, second, third, rest = data.split(b"\n")
    assert rest == b""
    assert [native.until_of(line) for line in (first, second, third)] == [3, 3, None]
    assert native.decode(second).content == "\ud800"


def test_the_entries_of_one_append_say_where_it_ends():
    data = native.encode_append(log(opened("s"), said("a"), answered("b")))
    lines = data.splitlines()
    assert [native.until_of(line) for line in lines] == [3, 3, None]
    assert data.endswith(b"}\n")
    assert [native.decode(line).seq for line in lines] == [1, 2, 3]


@pytest.mark.parametrize("body", EVERY_TYPE, ids=lambda body: type(body).__name__)
def test_a_checksum_covers_the_values_and_not_how_they_are_written(body):
    (stored,) = log(body)
    line = native.encode_stored(stored, 9)
    values = json.loads(line)
    assert [*values][-2:] == ["crc32", "until"]
    for other in (
        json.dumps(values),
        json.dumps(values, sort_keys=True),
        json.dumps(dict(reversed(values.items())), indent=None, separators=(" , ", " : "), ensure_ascii=False),
        "\ufeff " + json.dumps(values) + "\r",
    ):
        assert native.decode(other.encode()) == stored
        assert native.until_of(other.encode().removeprefix(b"\xef\xbb\xbf")) == 9
    with pytest.raises(Undecodable, match="checksum"):
        native.decode(json.dumps(values | {"until": 8}).encode())
    with pytest.raises(Undecodable, match="checksum"):
        native.decode(json.dumps(values | {"ts": "2026-01-02T03:04:05.679Z"}).encode())


def test_no_bit_can_be_flipped_without_notice():
    """Where a line still counts as sound, it says the same."""
    call = {"type": "tool_use", "id": "x", "name": "n", "input": {"k": [1, None, True, 0.5], "at": "中"}}
    stored = log(opened("s"), Received(content="hi"), User(from_=(2,)), Assistant(content=[call]), said("\ud800"))
    data = native.encode_append(stored)
    for place in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        lines = bytes(flipped).split(b"\n")
        try:
            found = [native.decode(line) for line in lines if line]
            native.check_version(found[0], "here")
        except (Undecodable, StoreError):
            continue
        assert found == stored, f"bit {place}"
        assert [native.until_of(line) for line in lines if line] == [5, 5, 5, 5, None], f"bit {place}"


def test_whole_numbers_written_with_or_without_a_fraction_are_the_same_value():
    line = native.encode_stored(Foreign(seq=1, raw={"a": [1.0, -2.0, 2.5], "b": "[1.0]"}))
    assert native.decode(line.replace(b"[1.0,-2.0,", b"[1,-2,")) == native.decode(line)


def test_among_several_lines_a_whole_number_with_a_fraction_is_checked_as_well():
    entries = [User(content="a", seq=1, ts="t"), Foreign(seq=2, ts="t", raw={"x": [1.0, 2]})]
    lines = b"\n".join(native.encode_stored(entry) for entry in entries)
    assert native.decode_lines(lines) == entries
    with pytest.raises(native.Undecodable):
        native.decode_lines(lines.replace(b"1.0", b"3.0"))
    with pytest.raises(native.Undecodable):
        native.decode_lines(b"\n".join([native.encode_stored(entries[0])] * 2).replace(b'"a"', b'"b"', 1))


def test_a_line_of_a_newer_version_with_more_fields_keeps_its_checksum():
    values = {"type": "user", "seq": 1, "content": "hi", "mood": "good"}
    crc = zlib.crc32(b'{"content":"hi","mood":"good","seq":1,"type":"user"}')
    assert native.decode(json.dumps(values | {"crc32": f"{crc:08x}"}).encode()) == User(
        seq=1, content="hi", unknown={"mood": "good"}
    )
    with pytest.raises(Undecodable, match="checksum"):
        native.decode(json.dumps(values | {"mood": "bad", "crc32": f"{crc:08x}"}).encode())


def test_an_entry_of_an_unknown_type_is_kept_as_a_foreign_one():
    values = {"type": "hologram", "seq": 4, "ts": "2030-01-01T00:00:00.000Z", "light": ["\ud800"]}
    assert native.decode(json.dumps(values).encode()) == Foreign(
        seq=4, ts=values["ts"], raw=values, unknown={"type": "hologram"}
    )
    assert native.decode(b'{"type":"hologram","seq":4,"ts":5}').ts == ""


@pytest.mark.parametrize(
    "newer",
    [
        {"type": "user", "seq": 1, "ts": TS, "content": "hi", "mood": {"a": [1, 1.5, None]}},
        {"type": "user", "seq": 1, "ts": TS, "content": "hi", "unknown": 5},
        {"type": "user", "seq": 1, "ts": TS, "content": "hi", "unknown": {"type": "pin"}},
        {"type": "user", "seq": 1, "ts": TS, "content": "hi", "mood": "\ud800"},
        {"type": "foreign", "seq": 1, "ts": TS, "raw": {"type": "user"}, "mood": 1},
        {"type": "hologram", "seq": 1, "ts": TS, "light": [1, "\ud800"], "content": 5},
        {"type": "hologram", "seq": 1, "ts": TS, "after": 0},
    ],
)
def test_what_a_newer_version_wrote_is_written_back_as_it_came(newer):
    crc = native._checksum(newer)
    line = json.dumps({**newer, "crc32": f"{crc:08x}"}, separators=(",", ":")).encode()
    entry = native.decode(line)
    assert entry.unknown
    assert native.encode_stored(entry) == line
    moved = native.encode_stored(msgspec.structs.replace(entry, seq=7))
    assert json.loads(moved) == {**newer, "seq": 7, "crc32": json.loads(moved)["crc32"]}
    assert native.decode(moved).unknown == entry.unknown
    assert native.seq_of(moved[:64]) == 7


def test_an_unknown_field_counts_only_where_a_checksum_covers_it():
    assert native.decode(b'{"type":"user","seq":1,"content":"hi","crc31":"00000000"}') == User(seq=1, content="hi")
    assert native.decode(b'{"type":"user","seq":1,"content":"hi","unknown":{"a":1}}') == User(seq=1, content="hi")


def test_what_is_called_unknown_cannot_take_the_place_of_what_is_known():
    forged = User(seq=1, content="hi", unknown={"type": "hologram", "content": "bye", "seq": 9})
    assert native.decode(native.encode_stored(forged)) == User(seq=1, content="hi")
    for raw in (5, {"light": 1}):
        kept = native.decode(native.encode_stored(Foreign(seq=1, raw=raw, unknown={"type": "pin"})))
        assert kept == Foreign(seq=1, raw=raw)


@pytest.mark.parametrize("unknown", [5, {"a": float("nan")}, {"a": {1}}])
def test_unknown_fields_that_could_not_be_stored_are_refused(unknown):
    with pytest.raises(UsageError, match="unknown"):
        accepted(User(content="hi", unknown=unknown))


def test_no_entry_has_a_field_that_a_line_uses_for_itself():
    names = {field.encode_name for kind in turnlog.Entry.__args__ for field in msgspec.structs.fields(kind)}
    assert not names & {native.CHECKSUM, native.UNTIL}


@pytest.mark.parametrize(
    "body", [Status(value="gone"), User(content=5), User(), Assistant(content=["hi"]), Pin(target="2")]
)
def test_what_could_not_be_read_back_is_refused(body):
    with pytest.raises(UsageError, match="read back"):
        native.encode_stored(body)


@pytest.mark.parametrize("line", [b'{"until":"9"}', b"5", b'{"until":"9","x":"\\ud800"}', b'{"x":"\\ud800'])
def test_what_is_no_number_is_no_mark(line):
    assert native.until_of(line) is None


def test_a_single_entry_needs_no_such_mark():
    assert native.until_of(native.encode_append(log(said("a")))) is None


def test_what_only_looks_like_a_mark_is_none():
    for body in (
        Foreign(raw={"until": 5}),
        Foreign(raw=[{"until": 5}]),
        Assistant(content="x", usage={"until": 5}),
        User(content='"until":5}'),
    ):
        (stored,) = log(body)
        assert native.until_of(native.encode(stored)) is None


def test_a_mark_is_found_at_the_end_of_a_very_long_line():
    lines = native.encode_append(log(said("x" * 100_000), said("b"))).splitlines()
    assert native.until_of(lines[0]) == 2
    assert native.seq_of(lines[0][: native.PEEK_BYTES]) == 1


@pytest.mark.parametrize("line", [b"", b"{", b"null", b'{"type":"user","content":"seq"}', b'{"type":"us'])
def test_a_torn_beginning_has_no_seq(line):
    assert native.seq_of(line) is None


def test_a_number_cut_in_the_middle_is_no_seq():
    assert native.seq_of(b'{"type":"user","seq":12') is None


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"not json",
        b'{"seq":1}',
        b'{"type":"unheard-of","seq":"1"}',
        b'{"type":"unheard-of","seq":0}',
        b'{"type":"user","seq":1}',
        b'{"type":"user","seq":1,"cOntent":"hi"}',
        b'{"type":"user","seq":"one"}',
        b'{"type":"user","seq":1,"content":5}',
        b'{"type":"user","seq":1,"content":[5]}',
        b'{"type":"assistant","seq":1}',
        b'{"type":"status","seq":1,"value":"gone"}',
        b'{"type":"user","seq":1,"content":"\xff"}',
        b'{"type":"user","seq":1,"content":"\\ud800"',
        b'{"type":"user","seq":1,"content":"\\ud800","from":"x"}',
        b'{"type":"unheard-of","content":"\\ud800"}',
        b'{"type":"user","seq":1,"content":"\\ud800\xff"}',
        b'{"type":"foreign","raw":' + b"[" * 100_000,
        b'{"type":"foreign","raw":"\\ud800","x":' + b"[" * 100_000,
        b"[" * 100_000 + b'"\\ud800"',
    ],
)
def test_a_line_that_is_no_entry_is_called_undecodable(line):
    with pytest.raises(Undecodable):
        native.decode(line)
    with pytest.raises(Undecodable):
        native.decode_lines(line + b"\n" + b'{"type":')


def test_several_lines_are_read_at_once():
    stored = log(opened("s"), said("a"), answered("b"))
    data = native.encode_append(stored)
    assert native.decode_lines(data) == native.decode_lines(data[:-1]) == stored
    with pytest.raises(Undecodable):
        native.decode_lines(data.replace(b"\n", b"\n\n", 1))
    assert native.decode_lines(b"") == []


def nested(levels):
    value = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_an_entry_nested_too_deep_is_refused_and_one_at_the_limit_is_read_back():
    fitting = Foreign(seq=1, raw=nested(entries.NESTING_MAX - 1))
    assert native.decode(native.encode(fitting)) == fitting
    for levels in (entries.NESTING_MAX, 5_000, 200_000):
        with pytest.raises(UsageError, match="nested"):
            native.encode(Foreign(raw=nested(levels)))


@pytest.mark.parametrize("levels", [300, 100_000])
def test_a_call_with_an_input_nested_too_deep_is_refused(levels):
    body = Assistant(content=[{"type": "tool_use", "id": "x", "name": "n", "input": {"v": nested(levels)}}])
    with pytest.raises(UsageError, match="nested"):
        native.encode(body)


@pytest.mark.parametrize(
    "body",
    [
        Assistant(content="x", usage={"v": nested(300)}),
        User(content=[{"type": "text", "text": "x", "v": nested(300)}]),
    ],
)
def test_depth_is_limited_wherever_it_hides(body):
    with pytest.raises(UsageError, match="nested"):
        native.encode(body)


def test_depth_is_counted_through_objects_and_arrays():
    assert native.depth("text") == 0
    assert native.depth({}) == 1
    assert native.depth({"a": [1, {"b": []}], "c": 1}) == 4
    assert native.depth(nested(100_000)) == entries.NESTING_MAX + 1


def test_a_short_entry_is_not_searched_for_depth_and_a_long_plain_one_passes():
    assert native.decode(native.encode(User(content="x" * 500))).content == "x" * 500
    blocks = [text("x" * 300), {"type": "image", "source": {"data": "y" * 300}}]
    assert native.decode(native.encode(User(content=blocks))).content == blocks


def test_an_entry_over_the_limit_is_refused_with_its_size():
    with pytest.raises(UsageError, match="33,554"):
        native.encode(User(content="x" * entries.ENTRY_MAX_BYTES))


def test_an_entry_of_20_megabytes_is_stored():
    stored = User(seq=1, content="x" * 20_000_000)
    assert native.decode(native.encode(stored)) == stored


def test_what_json_cannot_say_is_a_usage_error():
    with pytest.raises(UsageError, match="JSON"):
        native.encode(Foreign(raw={"a": object()}))
    with pytest.raises(UsageError, match="JSON"):
        native.encode(Foreign(raw={"a": 1j}))


def test_whole_numbers_of_any_size_come_back():
    body = Foreign(raw={"n": 2**63, "m": -(2**63), "big": 2**70})
    assert native.decode(native.encode(body)) == body


def test_a_newer_format_is_refused_with_a_hint_and_this_one_is_not():
    newer = Opened(version=entries.FORMAT_VERSION + 1, id="s", key="k", agent="a", channel="c")
    with pytest.raises(StoreError, match="version") as caught:
        native.check_version(newer, "file.jsonl")
    assert "Upgrade" in caught.value.hint
    assert "file.jsonl" in str(caught.value)
    native.check_version(opened("s"), "file.jsonl")
    native.check_version(said("no header"), "file.jsonl")


def test_rows_and_other_structs_are_lines_too():
    assert native.encode_plain(Origin(id="\ud800", seq=1)) == b'{"id":"\\ud800","seq":1}'


def test_a_text_block_without_text_has_no_words():
    assert entries.text_of([{"type": "text", "text": None}]) == ""


@pytest.mark.parametrize("content", [{"a": 1}, ["plain"], 5, [["x"]]])
def test_odd_content_of_a_nested_result_does_not_stop_anything(content):
    assert isinstance(entries.text_of([{"type": "tool_result", "content": content}]), str)


def test_texts_are_joined_by_a_blank_line_and_blocks_stay_blocks():
    assert user_content.join_content(["a", "", "b"]) == "a\n\nb"
    assert user_content.join_content([]) == ""
    assert user_content.join_content(["a", [{"type": "image"}], "b"]) == [text("a"), {"type": "image"}, text("b")]


def test_the_calls_of_an_answer():
    call = {"type": "tool_use", "id": "x", "name": "n", "input": {}}
    assert entries.tool_uses(Assistant(content=[text("a"), call])) == [call]
    assert entries.tool_uses(Assistant(content="a")) == []


def test_cached_input_counts_once_and_what_is_not_a_number_does_not_count():
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 1_000,
        "output_tokens": 10_000,
        "total_tokens": 99_999,
        "cache_creation": {"ephemeral_5m_input_tokens": 1_000},
    }
    assert tokens.context_tokens(usage) == 11_110
    assert tokens.context_tokens({"input_tokens": None, "output_tokens": "9"}) == 0
    assert tokens.context_tokens({}) == tokens.context_tokens(None) == 0


def test_events_have_the_names_and_fields_of_the_stream():
    def frame(event):
        return msgspec.to_builtins(event)

    assert frame(events.TextDelta(text="a")) == {"type": "text_delta", "text": "a"}
    assert frame(events.ToolCall(tool_call=events.Call(id="x", name="n", input={}))) == {
        "type": "tool_call",
        "tool_call": {"id": "x", "name": "n", "input": {}},
    }
    assert frame(events.ToolDone(tool_call_id="x", text="t", is_error=True)) == {
        "type": "tool_result",
        "tool_call_id": "x",
        "text": "t",
        "is_error": True,
    }
    assert frame(events.CompactionEnd(tokens_before=2, tokens_after=1)) == {
        "type": "compaction_end",
        "tokens_before": 2,
        "tokens_after": 1,
    }
    assert frame(events.Done(session_id="s", token_estimate=1, title="t")) == {
        "type": "done",
        "sessionId": "s",
        "tokenEstimate": 1,
        "title": "t",
    }
    assert frame(events.Stopped()) == {"type": "stopped"}
    assert {kind.__struct_config__.tag for kind in events.TERMINAL} == {"done", "error", "stopped"}


def test_the_shape_of_an_entry_for_tests_is_the_shape_of_the_file():
    assert entry(type="user", content="hi", **{"from": [2]}) == User(content="hi", from_=(2,))


def test_the_words_of_an_entry():
    mixed = [text("a"), {"type": "image"}, {"type": "tool_result", "content": [text("b")]}, text(""), {"type": "text"}]
    assert entries.text_of(mixed) == "a\n\nb"
    assert entries.text_of("plain") == "plain"
    assert entries.text_of(None) == ""
    assert entries.text_of([{"type": "tool_result"}]) == ""


def test_a_user_entry_leaves_its_words_to_what_was_received():
    received = {2: Received(content="a"), 3: Received(content=[text("b")]), 4: Received(content="c")}
    assert user_content.user_content(User(from_=(2, 4)), received) == "a\n\nc"
    assert user_content.user_content(User(from_=(2, 3)), received) == [text("a"), text("b")]
    assert user_content.user_content(User(from_=(2, 9)), received) == "a"
    assert user_content.user_content(User(content="own", from_=(2,)), received) == "own"


def test_many_lines_are_decoded_in_pieces_and_one_that_is_damaged_is_refused(monkeypatch):
    monkeypatch.setattr(native, "LINES_AT_ONCE", 3)
    said_before = [User(seq=n, ts="2026-01-01T00:00:00.000Z", content=f"message {n}") for n in range(1, 9)]
    lines = [native.encode_stored(one) for one in said_before]
    assert native.decode_each(lines) == said_before
    assert native.decode_each([]) == []
    for damaged in (b"", b"7", lines[6].replace(b"message 7", b"message 8"), lines[6] + b"\n" + lines[6]):
        with pytest.raises(Undecodable):
            native.decode_each([*lines[:6], damaged, lines[7]])

"""What a message may hold: text or known blocks; OpenAI's parts by conversion; nothing else."""

import math

import pytest

from turnlog import Assistant, Compaction, Foreign, Received, Shortened, Status, Title, ToolResult, UsageError, User
from turnlog.codecs import native
from turnlog.core.block_text import blocks_of, text_block
from turnlog.core.content import REQUIRED, accepted, check_json, encodable, is_blank, salvaged
from turnlog.core.entries import Facts
from turnlog.core.wellformed import accepted as accepted_entry

PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
KNOWN = [
    {"type": "text", "text": "x", "citations": None},
    PICTURE,
    {"type": "image", "source": {"type": "url", "url": "https://example.org/x.png"}},
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}, "title": "t"},
    {"type": "document", "source": {"type": "content", "content": "x"}},
    {"type": "thinking", "thinking": "hm", "signature": "s"},
    {"type": "redacted_thinking", "data": "x"},
    {"type": "tool_use", "id": "c", "name": "n", "input": {"deep": [1, 2.5, None, {"a": True}]}},
    {"type": "tool_use", "id": "c", "name": "n", "input": "not JSON"},
    {"type": "tool_result", "tool_use_id": "c", "content": [PICTURE], "is_error": True},
    {"type": "tool_result", "tool_use_id": "c"},
    {"type": "server_tool_use", "id": "c", "name": "web_search", "input": {}},
    {"type": "web_search_tool_result", "tool_use_id": "c", "content": []},
]


@pytest.mark.parametrize("block", KNOWN, ids=lambda block: block["type"])
def test_known_blocks_are_kept_as_they_are(block):
    content = [block]
    assert accepted(content) is content
    assert salvaged(content) == content


@pytest.mark.parametrize(
    ("part", "block"),
    [
        ({"type": "input_text", "text": "a"}, {"type": "text", "text": "a"}),
        ({"type": "output_text", "text": "a", "annotations": []}, {"type": "text", "text": "a"}),
        ({"type": "refusal", "refusal": "no"}, {"type": "text", "text": "no"}),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}, PICTURE),
        ({"type": "input_image", "image_url": "data:image/png;base64,AAAA"}, PICTURE),
        (
            {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}},
            {"type": "image", "source": {"type": "url", "url": "https://example.org/x.png"}},
        ),
        ({"type": "input_image", "file_id": "f"}, {"type": "image", "source": {"type": "file", "file_id": "f"}}),
        (
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA", "filename": "a.pdf"}},
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"},
                "title": "a.pdf",
            },
        ),
        (
            {"type": "input_file", "file_data": "AAAA"},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}},
        ),
        (
            {"type": "input_file", "file_url": "https://example.org/x.pdf"},
            {"type": "document", "source": {"type": "url", "url": "https://example.org/x.pdf"}},
        ),
        (
            {"type": "file", "file": {"file_id": "f"}},
            {"type": "document", "source": {"type": "file", "file_id": "f"}},
        ),
    ],
)
def test_openai_parts_are_converted(part, block):
    assert accepted([part]) == [block]
    assert accepted([{"type": "tool_result", "tool_use_id": "c", "content": [part]}])[0]["content"] == [block]


CIRCLE = {"type": "text"}
CIRCLE["text"] = [CIRCLE, CIRCLE]
DEEP = "x"
for _ in range(300):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (5, "content is an integer"),
        (None, "content is missing"),
        ({"type": "text", "text": "x"}, "content is an object"),
        (b"x", "content is bytes"),
        (("x",), "content is tuple"),
        (["hello"], r"content\[0\] is text, not a block"),
        ([{"text": "x"}], r"content\[0\].type is missing"),
        ([{"type": ["x"]}], r"content\[0\].type is a list"),
        ([{"type": "text", "text": "x"}, {"type": "nosuch"}], r"content\[1\].type is 'nosuch'"),
        ([{"type": "input_audio", "input_audio": {}}], r"content\[0\].type is 'input_audio'"),
        ([{"type": "text"}], r"content\[0\].text is missing"),
        ([{"type": "text", "text": 5}], r"content\[0\].text is an integer; it must be text"),
        ([{"type": "image", "source": "x"}], r"content\[0\].source is text; it must be an object"),
        ([{"type": "image", "source": {}}], r"content\[0\].source.type is None"),
        ([{"type": "image", "source": {"type": "text", "data": "x"}}], r"content\[0\].source.type is 'text'"),
        ([{"type": "image", "source": {"type": "base64", "media_type": 5, "data": "x"}}], r"source.media_type is an"),
        ([{"type": "image", "source": {"type": "base64", "media_type": "a/b", "data": "x"}}], "not a picture"),
        ([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}], "data is empty"),
        ([{"type": "tool_use", "name": "n", "input": {}}], r"content\[0\].id is missing"),
        ([{"type": "tool_use", "id": "c", "name": "", "input": {}}], r"content\[0\].name is empty"),
        ([{"type": "tool_use", "id": "c", "name": "n", "input": {"a": b"x"}}], r"content\[0\].input.a is bytes"),
        ([{"type": "tool_use", "id": "c", "name": "n", "input": [math.nan]}], r"content\[0\].input\[0\] is float"),
        ([{"type": "tool_use", "id": "c", "name": "n", "input": {"n": 5, "x": {1}}}], r"content\[0\].input.x is set"),
        (
            [{"type": "tool_use", "id": "c", "name": "n", "input": 2**64}],
            r"input is an integer of 65 bits",
        ),
        ([{"type": "tool_use", "id": "c", "name": "n", "input": {5: 1}}], "has a key that is not text: 5"),
        ([{"type": "tool_result", "tool_use_id": "c", "is_error": "no"}], r"content\[0\].is_error is text"),
        ([{"type": "tool_result", "tool_use_id": "c", "content": 5}], r"content\[0\].content is an integer"),
        ([{"type": "tool_result", "tool_use_id": "c", "content": ["x"]}], r"content\[0\].content\[0\] is text"),
        (
            [{"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": 5}]}],
            r"content\[0\].content\[0\].text is an integer",
        ),
        (
            [{"type": "document", "source": {"type": "content", "content": 5}}],
            r"content\[0\].source.content is an integer",
        ),
        (
            [{"type": "document", "source": {"type": "content", "content": [{"type": "nosuch"}]}}],
            r"content\[0\].source.content\[0\].type is 'nosuch'",
        ),
        ([{"type": "image_url", "image_url": {}}], r"content\[0\].image_url is missing"),
        ([{"type": "image_url", "image_url": {"url": "ftp://x"}}], "neither a data URI nor an address"),
        ([{"type": "image_url", "image_url": {"url": "data:text/plain;base64,AA"}}], "not a data URI of this kind"),
        ([{"type": "file", "file": {}}], "has no file_data, file_url or file_id"),
        ([{"type": "refusal"}], r"content\[0\].refusal is missing"),
        ([CIRCLE], "nested in itself"),
        ([{"type": "tool_use", "id": "c", "name": "n", "input": DEEP}], "deeper than 200 levels"),
    ],
)
def test_anything_else_is_refused_and_the_place_is_named(content, place):
    with pytest.raises(UsageError, match=place) as raised:
        accepted(content)
    assert raised.value.hint
    assert accepted(salvaged(content)) is not None


def test_every_known_kind_can_be_written_with_its_required_fields():
    sample = {str: "x", dict: {"type": "url", "url": "https://example.org"}, list: []}
    for kind, fields in REQUIRED.items():
        accepted([{"type": kind, **{name: sample[what] for name, what in fields.items()}}])


def test_subclasses_of_plain_values_are_plain_values():
    class Name(str):
        __slots__ = ()

    check_json({"a": (Name("x"), 1.5)}, "value")
    assert accepted(Name("x")) == "x"


@pytest.mark.parametrize("content", ["", " \n", [], [{"type": "text", "text": " "}], [{"type": "text"}]])
def test_blank_content_has_nothing_to_answer(content):
    assert is_blank(content)


@pytest.mark.parametrize("content", ["x", [PICTURE], [{"type": "text", "text": ""}, {"type": "text", "text": "x"}]])
def test_other_content_has(content):
    assert not is_blank(content)


@pytest.mark.parametrize(
    "body",
    [
        {"content": "x"},
        "x",
        None,
        User(),
        User(content=5),
        User(content="x", sender=5),
        User(content="x", from_=[1]),
        User(content="x", from_=(-1,)),
        Received(content=None),
        Assistant(content=None),
        Assistant(content="x", usage=[1]),
        Assistant(content="x", usage={"input_tokens": math.inf}),
        ToolResult(tool_use_id="c", content=5),
        ToolResult(tool_use_id=5, content="x"),
        ToolResult(tool_use_id="c", content="x", is_error="no"),
        Title(title=5),
        Title(title="x", by="nobody"),
        Status(value="nosuch"),
        Status(value=["active"]),
        Shortened(targets=(1,), limit=-1),
        Compaction(summary="s", first_kept=2, covers=(1, 1), tokens_before=-1),
        Compaction(summary="s", first_kept=2, covers=(1, 1, 1)),
        Foreign(raw={1, 2}),
        Foreign(raw=1, after=True),
    ],
    ids=repr,
)
def test_an_entry_that_is_not_what_its_type_says_is_refused(body):
    with pytest.raises(UsageError):
        accepted_entry(body)


OLD = "2026-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    "body",
    [
        User(ts=OLD),
        User(ts=OLD, content=[{"type": "nosuch"}]),
        Assistant(ts=OLD, content=[{"type": "tool_use"}], usage={"x": -1}),
        Compaction(ts=OLD, summary="s", first_kept=2, covers=(1, 1), tokens_before=-1),
    ],
    ids=repr,
)
def test_a_copy_of_an_older_log_is_only_held_to_what_can_be_read(body):
    assert accepted_entry(body) is body


@pytest.mark.parametrize("content", [5, ["x"], [{"type": "x", "v": b"x"}]])
def test_a_copy_that_could_not_be_read_is_refused(content):
    with pytest.raises(UsageError):
        accepted_entry(User(ts=OLD, content=content))


def test_half_characters_are_replaced_wherever_they_are_in_a_value():
    value = {"a\ud800": ["x\udfff", ("y", 1, None, 2.5)]}
    assert encodable(value) == {"a?": ["x?", ["y", 1, None, 2.5]]}


def test_content_as_blocks_is_one_block_for_a_text_and_the_blocks_themselves_otherwise():
    blocks = [text_block("a"), {"type": "image", "source": {}}]
    assert blocks_of("a") == [{"type": "text", "text": "a"}]
    assert blocks_of(blocks) is blocks


@pytest.mark.parametrize(
    "number", [2**64, -(2**63) - 1, 2**4096 - 1, -(2**4096) + 1], ids=["65", "-64", "4096", "-4096"]
)
def test_a_large_integer_is_kept_where_only_its_program_reads_it(number):
    for body in (Foreign(raw={"n": [number]}), User(content="a", raw={"n": number}), Facts(app="a", put={"n": number})):
        assert native.decode(native.encode_stored(accepted_entry(body))) == accepted_entry(body)
    with pytest.raises(UsageError, match="is an integer of"):
        accepted_entry(Assistant(content=[{"type": "tool_use", "id": "c", "name": "n", "input": {"n": number}}]))
    with pytest.raises(UsageError, match="is an integer of"):
        accepted_entry(Assistant(content="a", usage={"input_tokens": number}))


def test_an_integer_that_python_could_not_read_again_is_refused():
    with pytest.raises(UsageError, match=r"raw.n is an integer of 4097 bits"):
        accepted_entry(Foreign(raw={"n": 2**4096}))

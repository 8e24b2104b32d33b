"""What a model API refuses is changed before it is sent, the same way every time, and it is told."""

import base64
import re

import pytest

from turnlog.core import repairs, wires
from turnlog.core.entries import Assistant, ToolResult, User
from turnlog.core.parameters import Parameters
from turnlog.core.prompt import Prompt, ToolDefinition
from turnlog.core.wire_names import Ids, Names, shortened
from turnlog.core.wires import fit

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n....").decode()
GIF = base64.b64encode(b"GIF89a").decode()
WIRES = ("anthropic", "openai")
GO = {"role": "user", "content": "go"}


def text(words):
    return {"type": "text", "text": words}


def image(data=PNG, form="image/png"):
    return {"type": "image", "source": {"type": "base64", "media_type": form, "data": data}}


def at(url):
    return {"type": "image", "source": {"type": "url", "url": url}}


def call(call_id="c", name="look", **given):
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def result(call_id="c", content="out", **more):
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def asked(*blocks):
    return Prompt(system="", messages=[{"role": "user", "content": list(blocks)}])


def answered(*blocks, after="more"):
    return Prompt(
        system="", messages=[GO, {"role": "assistant", "content": list(blocks)}, {"role": "user", "content": after}]
    )


def said(*blocks, wire="anthropic"):
    """What is sent of a user's blocks."""
    return fit(asked(*blocks), wire).prompt.messages[0]["content"]


def answer(*blocks, wire="anthropic"):
    """What is sent of an answer's blocks; [] if it is left out."""
    messages = fit(answered(*blocks), wire).prompt.messages
    return messages[1]["content"] if len(messages) == 3 else []


def output(*parts, wire="anthropic", **more):
    """What is sent of a tool's output."""
    messages = [
        GO,
        {"role": "assistant", "content": [call()]},
        {"role": "user", "content": [result(content=list(parts), **more)]},
    ]
    return fit(Prompt(system="", messages=messages), wire).prompt.messages[2]["content"][0]


ODD_NAMES = ["functions.list_dir", "server.tool", "a b", "n" * 65, "读文件", "\ud800", " ", "tool\n"]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_name_that_is_refused_is_sent_as_another_in_tools_and_calls_and_found_again(name, wire):
    prompt = Prompt(
        system="",
        messages=[GO, {"role": "assistant", "content": [call(name=name)]}, {"role": "user", "content": [result()]}],
        tools=(ToolDefinition(name=name), ToolDefinition(name="read")),
    )
    fitted = fit(prompt, wire)
    sent, plain = (tool.name for tool in fitted.prompt.tools)
    assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", sent)
    assert fitted.prompt.messages[1]["content"][0]["name"] == sent
    assert fitted.names == {sent: name}
    assert plain == "read"
    assert fitted.repairs == (wires.NAMES_REPAIR,)


def test_a_name_is_sent_as_the_same_one_whatever_stands_beside_it():
    alone = Names(["a.b"]).sent("a.b")
    assert Names(["x", "a.b", "a b"]).sent("a.b") == alone == Names([]).sent("a.b")
    assert Names(["a.b", "a b"]).sent("a b") != alone


def test_names_that_are_gone_from_the_tools_are_mapped_and_found_again_too():
    names = Names(["read"])
    assert names.back == {}
    assert names.back[names.sent("old.tool")] == "old.tool"


def test_a_tool_that_is_really_called_so_keeps_its_name():
    taken = Names(["a.b"]).sent("a.b")
    names = Names(["a.b", taken])
    assert names.sent(taken) == taken
    assert names.sent("a.b") != taken
    assert names.back == {names.sent("a.b"): "a.b"}


def test_two_names_never_become_one():
    """Even if their hashes are alike."""
    first = shortened("a.b", 64, set())
    assert shortened("a.b", 64, {first}) != first
    assert len(shortened("x" * 500, 40, set())) == 40


def test_ids_are_changed_only_where_they_must_be_and_never_meet():
    ids = Ids(re.compile("[a-z_0-9]+"), 20)
    made = ids.sent("a.b")
    assert ids.sent("plain") == "plain"
    assert ids.sent("a.b") == made
    assert ids.sent(made) != made
    assert len(ids.sent("x" * 21)) == 20


@pytest.mark.parametrize(("wire", "kept"), [("anthropic", "toolu_1"), ("openai", "functions.read:0")])
def test_calls_and_results_keep_their_ids_in_common(wire, kept):
    for call_id in (kept, "é", "x" * 99):
        messages = [
            GO,
            {"role": "assistant", "content": [call(call_id)]},
            {"role": "user", "content": [result(call_id)]},
        ]
        fitted = fit(Prompt(system="", messages=messages), wire)
        [made], [came] = (message["content"] for message in fitted.prompt.messages[1:])
        assert made["id"] == came["tool_use_id"]
        assert (made["id"] == call_id) == (call_id == kept) == (fitted.repairs == ())


@pytest.mark.parametrize("wire", WIRES)
def test_pictures_and_documents_in_answers_are_notes(wire):
    document = {"type": "document", "title": "Plan", "source": {"type": "base64"}}
    notes = answer(text("see"), image(), document, wire=wire)
    assert notes == [text("see"), text("[image]"), text("[document: Plan; it cannot be shown here]")]
    assert fit(answered(image()), wire).repairs == (wires.PLACE_REPAIR,)


@pytest.mark.parametrize(
    ("block", "source"),
    [
        (image(), image()["source"]),
        (image(GIF, "image/png"), image(GIF, "image/gif")["source"]),
        (image(PNG[:8] + "\n" + PNG[8:]), image()["source"]),
        (image(PNG.rstrip("=")), image()["source"]),
        (image(f"data:image/gif;base64,{PNG}", "image/gif"), image()["source"]),
        (image("AAAA", "IMAGE/JPG"), image("AAAA", "image/jpeg")["source"]),
        (image(base64.b64encode(b"RIFF....WEBPVP8").decode(), "image/gif"), None),
        (at("https://example.com/a.png"), {"type": "url", "url": "https://example.com/a.png"}),
        (at(f"data:image/png;base64,{PNG}"), image()["source"]),
    ],
)
def test_pictures_are_sent_as_what_they_are(block, source):
    [shown] = said(block)
    assert shown["type"] == "image"
    assert shown["source"] == source or shown["source"]["media_type"] == "image/webp"


TIFF = base64.b64encode(b"II*\x00....").decode()


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "block",
    [
        image(TIFF, "image/tiff"),
        image(TIFF, "image/png"),
        image(base64.b64encode(b"<svg/>").decode(), "image/svg+xml"),
        image(base64.b64encode(b"RIFF....WAVE").decode(), "image/webp"),
        image("AAAA", "image/bmp"),
        image("AAAA", None),
        image("%%%"),
        image(""),
        image(base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"." * 20_000_000).decode()),
        at("ftp://example.com/a.png"),
        at("https://example.com/a b.png"),
        at("https://"),
        at("data:image/tiff;base64,SUkqAA=="),
        {"type": "image", "source": {"type": "file", "file_id": "f"}},
        {"type": "image"},
    ],
    ids=lambda block: str(block)[:70],
)
def test_pictures_that_are_refused_are_notes(block, wire):
    assert said(block, wire=wire) == [text("[image]")]
    assert output(block, wire=wire)["content"] == [text("[image]")]
    assert fit(asked(block), wire).repairs == (wires.PICTURES_REPAIR,)


def test_only_openai_takes_pictures_from_plain_http():
    assert said(at("http://example.com/a.png")) == [text("[image]")]
    assert said(at("http://example.com/a.png"), wire="openai")[0]["type"] == "image"


def test_of_too_many_pictures_the_oldest_are_notes_and_some_more_change_nothing_before_them():
    def shown(count):
        messages = [
            GO,
            {"role": "assistant", "content": [call()]},
            {"role": "user", "content": [result(content=[image()] * 60), *[image()] * (count - 60)]},
        ]
        fitted = fit(Prompt(system="", messages=messages), "anthropic")
        blocks = fitted.prompt.messages[2]["content"]
        return [block["type"] for block in (*blocks[0]["content"], *blocks[1:])], fitted.repairs

    assert shown(100) == (["image"] * 100, ())
    assert shown(101) == (["text"] * 25 + ["image"] * 76, (wires.COUNT_REPAIR,))
    assert shown(125)[0] == ["text"] * 25 + ["image"] * 100
    assert shown(126)[0].count("image") == 76


PDF = base64.b64encode(b"%PDF-1.7").decode()


@pytest.mark.parametrize(
    "source",
    [
        {"type": "base64", "media_type": "application/pdf", "data": PDF},
        {"type": "text", "media_type": "text/plain", "data": "words"},
        {"type": "url", "url": "https://example.com/a.pdf"},
        {"type": "content", "content": "words"},
        {"type": "content", "content": [text("words"), image()]},
    ],
)
def test_documents_that_anthropic_takes_are_sent_and_others_see_text(source):
    given = {"type": "document", "source": source, "title": "T", "context": "C"}
    assert said({**given, "x": 1}) == [given]
    [note] = said(given, wire="openai")
    assert note["type"] == "text"
    assert note["text"] == ("words" if source["type"] == "text" else "[document: T; it cannot be shown here]")


@pytest.mark.parametrize(
    "source",
    [
        {"type": "base64", "media_type": "application/pdf", "data": "AAAA"},
        {"type": "base64", "media_type": "application/pdf", "data": "%"},
        {"type": "base64", "media_type": "application/msword", "data": PDF},
        {"type": "text", "data": " "},
        {"type": "url", "url": "file:///etc/passwd"},
        {"type": "content", "content": " "},
        {"type": "content", "content": [text(" "), {"type": "audio"}]},
        None,
    ],
)
def test_documents_that_are_refused_are_notes(source):
    assert said({"type": "document", "source": source}) == [text("[document: untitled; it cannot be shown here]")]
    assert fit(asked({"type": "document", "source": source}), "anthropic").repairs == (wires.DOCUMENTS_REPAIR,)


def test_either_all_documents_may_be_cited_or_none():
    plain = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}}
    found = {"type": "search_result", "source": "s", "title": "t", "content": [text("words")]}
    cited = {"citations": {"enabled": True}}
    assert said(plain, found) == [plain, found]
    assert said({**plain, **cited}, found) == [{**plain, **cited}, {**found, **cited}]
    inside = output(plain, {**found, **cited})["content"]
    assert inside == [{**plain, **cited}, {**found, **cited}]


@pytest.mark.parametrize("content", [[], [text(" ")], [image()], "x"])
def test_search_results_without_words_are_text(content):
    [shown] = said({"type": "search_result", "source": "s", "title": "t", "content": content})
    assert shown["type"] == "text"
    assert (
        said({"type": "search_result", "source": "s", "title": "t", "content": [text("w")]}, wire="openai")[0]["type"]
        == "text"
    )


def test_thinking_goes_back_only_as_it_was_signed_and_only_before_an_answer():
    signed = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    hidden = {"type": "redacted_thinking", "data": "ZW5j"}
    assert answer(signed, hidden, text("yes")) == [signed, hidden, text("yes")]
    assert answer(text("yes"), signed, hidden) == [text("yes")]
    assert answer({"type": "thinking", "thinking": "hm", "signature": '{"id":1}'}, text("yes")) == [text("yes")]
    assert answer({"type": "thinking", "thinking": "hm"}, {"type": "redacted_thinking"}, text("yes")) == [text("yes")]
    assert answer(signed) == []
    assert answer(signed, text("yes"), wire="openai") == [text("yes")]
    assert fit(answered(signed), "anthropic").repairs == (wires.THINKING_REPAIR,)
    assert fit(answered(signed, text("yes")), "openai").repairs == ()


def test_a_message_of_which_nothing_is_left_is_left_out_and_marks_move_along():
    thought = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}
    messages = [GO, thought, {"role": "user", "content": [{"type": "audio"}, text(" "), text("more")]}]
    marks = ((-1, 0), (0, 0), (1, 0), (2, 1), (2, 2))
    fitted = fit(Prompt(system="S", messages=messages, breakpoints=marks), "anthropic").prompt
    assert fitted.messages == [{"role": "user", "content": [text("go"), text('{"type": "audio"}'), text("more")]}]
    assert fitted.breakpoints == ((-1, 0), (0, 0), (0, 1), (0, 2))


def test_the_first_message_is_the_users_and_the_last_one_too_where_it_must():
    thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    messages = [{"role": "user", "content": [thought]}, {"role": "assistant", "content": "yes"}]
    roles = {
        wire: [m["role"] for m in fit(Prompt(system=" ", messages=messages), wire).prompt.messages] for wire in WIRES
    }
    assert roles == {"anthropic": ["user", "assistant", "user"], "openai": ["user", "assistant"]}
    assert fit(Prompt(system=" ", messages=[]), "anthropic").prompt.messages == [
        {"role": "user", "content": [text("(empty message)")]}
    ]
    assert fit(Prompt(system=" ", messages=[]), "anthropic").prompt.system == ""


def test_fields_that_the_api_does_not_know_are_left_out():
    cited = {"type": "char_location", "cited_text": "x"}
    assert answer({**text("yes"), "id": "m1", "citations": [cited, 5, {"type": "other"}]}) == [
        {**text("yes"), "citations": [cited]}
    ]
    assert answer({**text("yes"), "annotations": [], "citations": None}) == [text("yes")]
    assert answer({**text("yes"), "text": 5}, text("no")) == [text("no")]
    assert output(text("x"), toolset_name="t") == result(content=[text("x")])


def test_a_caller_is_sent_back_only_if_it_was_the_model_itself():
    for caller, kept in (({"type": "direct"}, True), ({"type": "code_execution_20250825", "tool_id": "x"}, False)):
        messages = [
            GO,
            {"role": "assistant", "content": [{**call(), "caller": caller}]},
            {"role": "user", "content": [result()]},
        ]
        assert (
            "caller" in fit(Prompt(system="", messages=messages), "anthropic").prompt.messages[1]["content"][0]
        ) == kept


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"a": float("nan")}, {"a": None}),
        ({"b": [1, "x", float("inf"), 1.5]}, {"b": [1, "x", None, 1.5]}),
        ({5: 1}, {"5": 1}),
        ({"a": {1}}, {"a": "{1}"}),
    ],
)
def test_inputs_that_are_no_json_are_made_so(given, sent):
    messages = [
        GO,
        {"role": "assistant", "content": [{**call(), "input": given}]},
        {"role": "user", "content": [result()]},
    ]
    fitted = fit(Prompt(system="", messages=messages), "anthropic")
    assert fitted.prompt.messages[1]["content"][0]["input"] == sent
    assert fitted.repairs == (wires.INPUTS_REPAIR,)


def test_a_failed_result_holds_text_alone_at_anthropic():
    assert output(text("x"), is_error=True) == result(content=[text("x")], is_error=True)
    assert output(text("x"), image(), is_error=True) == result(content=[text("[error]"), text("x"), image()])
    assert output(text("x"), image(), is_error=True, wire="openai")["is_error"] is True


@pytest.mark.parametrize("content", ["", " ", None, [], [text(" ")], [{"type": "thinking", "thinking": "x"}]])
def test_a_result_without_output_says_so(content):
    messages = [GO, {"role": "assistant", "content": [call()]}, {"role": "user", "content": [result(content=content)]}]
    assert fit(Prompt(system="", messages=messages), "anthropic").prompt.messages[2]["content"] == [
        result(content="(no output)")
    ]


def test_blocks_of_unknown_kinds_are_text_from_users_and_tools_and_left_out_of_answers():
    odd = {"type": "audio", "seconds": 3}
    assert said(odd) == output(odd)["content"] == [text('{"type": "audio", "seconds": 3}')]
    assert answer(odd, text("yes")) == [text("yes")]
    assert fit(answered(odd), "openai").repairs == fit(asked(odd), "openai").repairs == (wires.BLOCKS_REPAIR,)
    assert said(text("x"), result())[1]["type"] == "tool_result"


SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


def test_calls_of_tools_that_the_api_runs_itself_go_back_whole_or_not_at_all():
    end = text("so")
    assert answer({**SEARCH, "x": 1}, FOUND, end) == [SEARCH, FOUND, end]
    for broken in (
        [SEARCH],
        [FOUND],
        [SEARCH, SEARCH, FOUND],
        [SEARCH, FOUND, FOUND],
        [{**SEARCH, "name": "web_fetch"}, FOUND],
        [{**SEARCH, "name": None}, FOUND],
        [{**SEARCH, "input": 5}, FOUND],
        [SEARCH, {**FOUND, "content": "x"}],
        [{**SEARCH, "id": "x"}, {**FOUND, "tool_use_id": "x"}],
        [{**SEARCH, "id": 5}, {**FOUND, "tool_use_id": 5}],
    ):
        assert answer(*broken, end) == [end]
    assert answer(SEARCH, FOUND, end, wire="openai") == [end]


def test_nothing_is_changed_or_told_where_nothing_must_be():
    messages = [
        GO,
        {"role": "assistant", "content": [text("I look."), call()]},
        {"role": "user", "content": [result()]},
    ]
    prompt = Prompt(system="S", messages=messages, tools=(ToolDefinition(name="look"),), breakpoints=((-1, 0), (2, 0)))
    for wire in WIRES:
        fitted = fit(prompt, wire)
        assert (fitted.names, fitted.repairs) == ({}, ())
        assert fitted.prompt.messages == [{"role": "user", "content": [text("go")]}, *messages[1:]]
        assert (fitted.prompt.tools, fitted.prompt.breakpoints) == (prompt.tools, prompt.breakpoints)


def test_what_pairing_put_right_is_told_in_words():
    made = Assistant(seq=2, content=[call("a"), call(""), call("b")])
    tail = [User(seq=1, content="go"), made, ToolResult(seq=3, tool_use_id="a", content="x")]
    ghost = ToolResult(seq=4, tool_use_id="ghost", content="y")
    assert repairs.of_tail([tail[0]]) == []
    assert repairs.of_tail([*tail, ghost]) == [repairs.UNANSWERED, repairs.ORPHANS, repairs.MALFORMED]


def test_each_repair_is_told_once_a_session():
    told = repairs.ReportedRepairs(2)
    assert told.news("s1", ["a", "b", "a"]) == ["a", "b"]
    assert told.news("s1", ["a", "c"]) == ["c"]
    assert told.news("s2", ["a"]) == ["a"]
    told.forget("s2")
    assert told.news("s2", ["a"]) == ["a"]
    told.news("s3", [])
    assert told.news("s1", ["a"]) == ["a"]


@pytest.mark.parametrize("wire", WIRES)
def test_the_tool_that_must_be_called_has_the_name_under_which_it_is_offered(wire):
    tool = ToolDefinition(name="server.look", description="", input_schema={"type": "object"})
    parameters = Parameters(tool_choice="named", tool="server.look")
    shown = fit(Prompt(system="", messages=[GO], tools=(tool,), parameters=parameters), wire).prompt
    assert shown.parameters.tool == shown.tools[0].name != "server.look"

"""Reading a query, ranking candidates and cutting snippets, as pure functions; and what of an entry is searched."""

import json
import re
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from turnlog.core import search, snippets, states, words
from turnlog.core.entries import Assistant, Compaction, Foreign, Received, Title, ToolResult, User
from turnlog.core.marks import Mark
from turnlog.core.search import Candidate, Phrase, Term, Wanted, understand
from turnlog.core.searchable import (
    ANSWER_END,
    ANSWER_MARK,
    calls_in,
    facet,
    is_answering,
    quotable,
    results_in,
    role_of,
    text_of_entry,
    units,
)
from turnlog.core.session import describe
from turnlog.core.words import forms_of, indexed, joined_number, parts_of
from turnlog.errors import UsageError
from turnlog.testing import opened


def test_a_date_bounds_the_time_and_two_bounds_of_a_kind_narrow_it():
    sought = understand("x after:2026 after:2026-02-03 before:2026-05-01T10:30 before:2026-04")
    assert (sought.since, sought.until) == (1770076800000, 1775001600000)


def test_a_word_that_is_no_date_is_a_word_and_a_wrong_date_is_an_error():
    assert understand("after:lunch") == understand("after:lunch")
    assert [term.any_of[0].tokens for term in understand("after:lunch").strict] == [("after", "lunch")]
    for wrong in ("after:3pm", "before:2026-13-01", "after:2026-11-16Tnoon"):
        with pytest.raises(UsageError, match="is not a date"):
            understand(f"x {wrong}")


def test_a_minus_before_nothing_that_can_be_searched_excludes_nothing():
    assert understand("word -…").without == ()
    assert understand("word -other").without == (Phrase(("other",)),)


def test_a_query_without_words_or_with_too_many_characters_is_refused():
    for wrong in ("…", "x" * 1_001):
        for reads in (understand, search.phrases):
            with pytest.raises(UsageError):
                reads(wrong)
    assert understand("from:ada").strict == ()
    assert search.phrases('"a b" c*') == (Phrase(("a", "b")), Phrase(("c",), True))
    assert search.found(search.phrases("b a"), "A and B")
    assert not search.found(search.phrases("c"), "A and B")


def test_steps_go_from_all_words_to_pieces_to_any_of_them():
    plain, question = understand("alpha beta"), understand("数据库的端口是多少")
    assert [len(step) for step in search.steps(plain)] == [1, 3]
    assert len(search.steps(question)) >= 2
    assert len(search.steps(understand("alpha"))) == 1
    four = search.steps(understand("alpha beta gamma delta"))[-1]
    assert {len(wanted.terms) for wanted in four} == {1, 2, 3}
    seven = search.steps(understand("alpha beta gamma delta epsilon zeta theta"))[-1]
    assert {len(wanted.terms) for wanted in seven} == {1, 6}


def candidate(seq, *, part=0, at=None, role="user", session="s"):
    return Candidate(session, seq, part, at or seq, role)


def test_rare_words_count_more_and_an_entry_is_ranked_once_by_its_best_part():
    rare, frequent = Term((Phrase(("rare",)),)), Term((Phrase(("frequent",)),))
    found = [
        (Wanted((rare,), 9), [candidate(1)]),
        (
            Wanted((frequent,), 9),
            [
                candidate(5),
                candidate(4, part=1),
                candidate(4),
                candidate(4, part=2),
                candidate(3, part=2),
                candidate(2),
            ],
        ),
        (Wanted((rare, frequent), 9), [candidate(3, part=1)]),
    ]
    ranked = search.rank(found, lambda one: "rewound" if one.seq == 5 else "tail")
    assert [(one.candidate.seq, one.candidate.part) for one in ranked] == [(3, 1), (1, 0), (4, 0), (2, 0), (5, 0)]
    assert [one.state for one in ranked][-1] == "rewound"


def test_messages_come_before_what_repeats_them_and_close_words_before_scattered_ones():
    term = Term((Phrase(("x",)),))
    listed = [candidate(3, role="title"), candidate(2), candidate(1)]
    ranked = search.rank([(Wanted((term,), 9), listed)], lambda _: "tail")
    assert [one.candidate.seq for one in ranked] == [2, 1, 3]
    assert search.closest_first(ranked, [True, False, False]) == [1, 0, 2]
    assert search.newest_first(listed, 2) == listed[:2]


@pytest.mark.parametrize(
    ("tokens", "phrase", "is_there"),
    [
        ("a b c", Phrase(("b", "c")), True),
        ("a b c", Phrase(("c", "b")), False),
        ("a b", Phrase(("b", "c")), False),
        ("a b cd", Phrase(("b", "c"), True), True),
        ("a b cd", Phrase(("b", "c")), False),
        ("abc", Phrase(("ab",), True), True),
        ("b x b c", Phrase(("b", "c")), True),
    ],
)
def test_a_phrase_is_found_as_tokens_in_a_row(tokens, phrase, is_there):
    assert search.has(tokens.split(), phrase) is is_there


def test_sessions_are_named_by_in_and_taken_out_of_the_words():
    assert search.take_sessions('port in:"my chat" of in:ses-1') == ("port   of  ", ["my chat", "ses-1"])
    assert search.take_sessions("begin: here") == ("begin: here", [])


CALL = {"type": "tool_use", "id": "c1", "name": "run", "input": {"path": "a.py", "n": 3, "deep": [{"x": True}, None]}}


def test_what_is_searched_of_each_entry():
    tools = {"c1": "run", "c2": "search_history"}
    blocks = [
        {"type": "text", "text": "words"},
        {"type": "text", "text": 5},
        "no block",
        {"type": "thinking", "thinking": "secret"},
        CALL,
        {"type": "tool_use", "id": "c2", "name": "mcp__turnlog__search_history", "input": {"words": "asked"}},
        {"type": "document", "title": "file.pdf", "source": {"type": "text", "data": "inside"}},
        {"type": "document", "source": {"type": "base64", "data": "AAAA"}},
        {"type": "image", "source": {"url": "data:image/png;base64,AAAA"}},
        {"type": "tool_result", "tool_use_id": "c1", "content": "output"},
        {"type": "tool_result", "tool_use_id": "c2", "content": "answer"},
        {"type": "tool_result", "tool_use_id": "c3", "content": "[found in history]\nanswer"},
    ]
    text = text_of_entry(Assistant(content=blocks), tools)
    assert text.split() == ["words", "run", "a.py", "3", "file.pdf", "inside", "output"]
    assert text_of_entry(User(content=None, from_=(2,)), tools) == ""
    assert text_of_entry(User(content={"no": "content"}), tools) == ""
    assert text_of_entry(ToolResult(tool_use_id="c1", content="out"), tools) == "out"
    assert text_of_entry(Compaction(summary="short", first_kept=2, covers=(1, 1)), tools) == "short"
    assert text_of_entry(Title(title="name"), tools) == "name"
    assert text_of_entry(Foreign(raw={}), tools) == role_of(Foreign(raw={})) == ""


def test_who_said_it_can_be_asked_for():
    by = units(Received(content="hi", sender="Ada Berg", mode="followup"), {})[0]
    assert {facet("user"), facet("Ada Berg"), facet("ada"), facet("berg")} == set(by.facets)
    result = units(ToolResult(tool_use_id="c1", content="out"), {"c1": "read_file"})[0]
    assert facet("read_file") in result.facets
    assert facet("tool") in result.facets
    assert units(User(content="hi"), {})[0].facets == (facet("user"),)
    assert [role_of(entry) for entry in (Title(title="t"), Compaction(summary="s", first_kept=2, covers=(1, 1)))] == [
        "title",
        "summary",
    ]
    assert units(User(content=" "), {}) == units(Foreign(raw={}), {}) == []


def test_calls_and_the_results_that_belong_to_them_are_known_by_their_ids():
    answer = Assistant(content=[CALL, {"type": "tool_use", "name": "no id"}, {"type": "text", "text": "x"}])
    assert calls_in(answer) == {"c1": "run"}
    assert calls_in(User(content="x")) == calls_in(Assistant(content="x")) == {}
    assert results_in(ToolResult(tool_use_id="c1", content="")) == ["c1"]
    mixed = [{"type": "tool_result", "tool_use_id": "c1", "content": ""}, {"type": "text", "text": "x"}]
    assert results_in(User(content=mixed)) == ["c1"]
    assert results_in(User(content="x")) == results_in(answer) == []
    assert is_answering("server/recall")
    assert not is_answering("recall_all")


@pytest.mark.parametrize("tool", ["mcp__turnlog__search", "turnlog_read", "turnlog.context", "x/turnlog/list_sessions"])
def test_a_tool_of_the_mcp_server_is_known_behind_its_servers_name(tool):
    assert is_answering(tool)
    assert is_answering(tool.upper())


@pytest.mark.parametrize(
    "tool", ["search", "mcp__other__search", "turnlog_search_all", "myturnlog_read", "turnlogread"]
)
def test_tools_of_other_servers_are_searched(tool):
    assert not is_answering(tool)


def test_an_answer_is_never_found_wherever_a_program_has_put_it():
    answer = f"{ANSWER_MARK}\nquoted pomegranate\n{ANSWER_END}"
    as_json = json.dumps({"mark": ANSWER_MARK, "hits": ["quoted pomegranate"]})
    results = [answer, as_json, f"Wall time: 0.2 seconds\nOutput:\n{as_json}", f"     1\u2192{answer}", answer[:40]]
    for text in results:
        assert text_of_entry(ToolResult(tool_use_id="c9", content=text), {}).find("pomegranate") == -1
        in_blocks = [{"type": "text", "text": text}, {"type": "text", "text": "more"}]
        assert "pomegranate" not in text_of_entry(ToolResult(tool_use_id="c9", content=in_blocks), {})
    other = {"type": "mcp_tool_result", "tool_use_id": "c9", "content": [{"type": "text", "text": as_json}]}
    called = {"type": "mcp_tool_use", "name": "search", "server_name": "turnlog", "input": {"words": "pomegranate"}}
    assert text_of_entry(Assistant(content=[called, other]), {}) == ""
    foreign = {"type": "mcp_tool_use", "name": "search", "server_name": "web", "input": {"words": "pomegranate"}}
    assert "pomegranate" in text_of_entry(Assistant(content=[foreign]), {})
    attached = f"See <resource>{answer}</resource> and say what you think of plums"
    assert text_of_entry(User(content=attached), {}) == "See <resource></resource> and say what you think of plums"
    assert "plums" in text_of_entry(User(content=[{"type": "text", "text": attached}]), {})


def test_nothing_that_an_answer_quotes_ends_it():
    hostile = f"pear {ANSWER_END} apple {ANSWER_MARK}"
    answer = f"{ANSWER_MARK}\n{quotable(hostile)}\n{ANSWER_END}"
    assert text_of_entry(User(content=f"a {answer} b"), {}) == "a  b"
    assert quotable("plain [text]") == "plain [text]"


@pytest.mark.parametrize(
    ("word", "form"),
    [
        ("policies", "policy"), ("boxes", "box"), ("plans", "plan"), ("planned", "plan"), ("tried", "try"),
        ("making", "make"), ("rest", "resting"), ("class", "classes"), ("study", "studies"), ("make", "making"),
    ],
)  # fmt: skip
def test_regular_forms_of_an_english_word_find_each_other(word, form):
    assert form in forms_of(word)


def test_words_without_regular_forms_stand_alone():
    assert forms_of("ab1c") == ("ab1c",)
    assert "the" not in forms_of("ties")
    assert parts_of("x" * 65 + "Y1") == parts_of("a1b2c3d4") == ()
    assert joined_number("1,2") == ""
    assert "1234567" in indexed("1,234,567")


def test_an_entry_is_in_the_tail_compacted_or_rewound_and_an_undone_compaction_is_rewound():
    row = replace(
        describe(None, [opened("s")]), last_seq=9, boundary=4, marks=(Mark("undo", 8, 5), Mark("rewind", 7, 5))
    )
    judged = states.LogStates(row)
    assert [judged.of(seq) for seq in (2, 4, 5, 6, 9)] == ["compacted", "tail", "rewound", "rewound", "tail"]
    assert states.LogStates(row, ()).of(6) == "tail"
    assert states.is_known(row, 3)
    assert not states.is_known(replace(row, pruned_to=4), 4)


def test_a_phrase_occurs_also_in_the_parts_of_a_word_and_in_a_grouped_number():
    def occurs(text, *tokens, open_ended=False):
        return snippets.occurs(text, text.lower(), Phrase(tokens, open_ended))

    assert occurs("call parseConfig now", "parse", "config")
    assert occurs("about 1,234,567 rows", "1234567")
    assert occurs("planning", "plan", open_ended=True)
    assert not occurs("call parseConfig now", "config", "parse")
    assert not occurs("nothing", "else")


def test_overlapping_matches_are_marked_once_and_frequent_words_near_rare_ones():
    text = "the code of code review is code-review: " + "code " * 500 + "rare code end"
    shown = snippets.excerpt(text, understand("rare code"))
    assert "rare code" in shown.text
    assert [shown.text[start:end] for start, end in shown.matches][-2:] == ["rare", "code"]
    both = snippets.excerpt("alpha beta gamma", understand('"alpha beta" "beta gamma"'))
    assert [both.text[start:end] for start, end in both.matches] == ["alpha beta gamma"]


def test_words_too_far_apart_for_the_width_are_cut_after_the_first_and_half_a_letter_is_no_match():
    far = snippets.excerpt("alpha" + " x" * 100 + " beta", understand("alpha beta"))
    assert far.text.startswith("alpha x")
    assert "beta" not in far.text
    assert not far.scattered
    sharp = snippets.excerpt("ß", understand("s"))
    assert sharp.matches == ((0, 1),)


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("4f9c2ab", "commit 4f9c2ab17d broke it"),
        ("3.18.0", "release v3.18.0-rc2"),
        ("v3.18.0", "release 3.18.0 is out"),
        ("1,284,350", "1284350 dollars"),
    ],
)
def test_a_short_hash_a_version_and_a_number_are_found_however_they_are_written(word, text):
    assert search.has_all(indexed(text), search.understand(word).strict)


@pytest.mark.parametrize(
    ("word", "text"), [("4f9c2a", "4f9c2ab17d"), ("decadef", "decadefgh"), ("1234567", "12345678")]
)
def test_other_words_are_not_found_by_their_beginning(word, text):
    assert not search.has_all(indexed(text), search.understand(word).strict)


@given(st.text(alphabet=[*map(chr, range(128)), "é", "ß", "中", "ก", "１", "\u0301", "\ud800"], max_size=40))
def test_tokens_are_the_same_whichever_way_they_are_split_and_need_no_escaping(text):
    assert words.tokenise(text) == words.TOKEN.findall(words.fold(text))
    plain = words.normal(text)
    parted = {word for word in words._ASCII_WORD.findall(plain) if words.parts_of(word)}
    assert {word for word in words._mixed_words(plain) if words.parts_of(word)} == parted
    for token in words.indexed(text):
        assert token.encode()
        assert not re.search(r"[\s'\\:\0]", token)


@given(st.lists(st.sampled_from(["a", "b", "C", "D", "0", "12", "345", ",", "_", "'", "-", "T", " ", "\n", "é"])))
def test_a_plain_text_has_no_further_readings(pieces):
    text = "".join(pieces)
    found = words.readings(text)
    assert not (words.is_plain(text) and found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "is_plain", lambda _: False)
        assert words.readings(text) == found


def test_prose_is_plain_and_names_and_numbers_are_not():
    assert words.is_plain("The plan of 2026: 12 parcels, see NOTES.")
    for text in ("parseConfig", "HTTPServer", "INV2041", "64GB", "1,234", "2026-12-01T08:00", "naïve"):
        assert not words.is_plain(text)


def _whole_words(phrase):
    """The regular expression that says where a phrase occurs; it takes milliseconds to compile."""
    letter = f"[^\\W_{words.ALONE}]"
    text = re.escape(phrase.tokens[0])
    for before, token in pairwise(phrase.tokens):
        alone = words.SINGLE.match(before[-1]) or words.SINGLE.match(token[0])
        text += (r"[\W_]*" if alone else r"[\W_]+") + re.escape(token)
    before = "" if words.SINGLE.match(phrase.tokens[0]) else f"(?<!{letter})"
    after = "" if phrase.open_ended or words.SINGLE.match(phrase.tokens[-1][-1]) else f"(?!{letter})"
    return re.compile(before + text + (f"{letter}*" if phrase.open_ended else "") + after)


_LETTERS = ["a", "b", "1", "_", " ", "-", "é", "ß", "中", "文", "ก", "\u0e31", "가", "\u0301", "²", "\n"]


@given(st.lists(st.sampled_from(_LETTERS), max_size=14), st.data(), st.booleans())
def test_phrases_occur_where_the_regular_expression_finds_them(letters, data, open_ended):
    text = words.fold("".join(letters))
    tokens = words.tokenise(text) or ["a"]
    start = data.draw(st.integers(0, len(tokens) - 1))
    chosen = tokens[start : start + data.draw(st.integers(1, 3))]
    chosen[-1] = chosen[-1][: data.draw(st.integers(1, len(chosen[-1])))]
    phrase = search.Phrase(tuple(chosen), open_ended)
    pattern = _whole_words(phrase)
    places = [at for at in range(len(text)) if text.startswith(chosen[0], at)]
    expected = [found.span() for at in places if (found := pattern.match(text, at))]
    assert list(snippets._spans(text, phrase, loose=False)) == expected


def test_several_words_inside_longer_ones_are_marked_if_they_stand_nowhere_alone():
    phrase = Phrase(("read", "file"))
    assert list(snippets._spans("the xread_filename here", phrase, loose=False)) == []
    assert list(snippets._spans("the xread_filename here", phrase, loose=True)) == [(5, 14)]

"""Which words are found in which entries, and which sessions a query means."""

import pytest

from turnlog.core import query, search
from turnlog.core.entries import Assistant, Compaction, Received, Title, ToolResult, User
from turnlog.core.query import Query, as_beginning, readings
from turnlog.core.searchable import parts_of_text, role_of, text_of_entry
from turnlog.core.session import Session
from turnlog.core.snippets import SNIPPET_CHARS, excerpt
from turnlog.core.words import indexed
from turnlog.errors import UsageError
from turnlog.testing import answered, opened, said


def finds(words, text):
    return search.has_all(indexed(text), search.understand(words).strict)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("hello", "Hello, world!"),
        ("WORLD", "hello world"),
        ("world hello", "hello big world"),
        ("straße", "STRASSE"),
        ("ＡＢＣ", "abc"),
        ("abc", "ＡＢＣ"),
        ("café", "cafe\u0301"),
        ("don't", "I don't know"),
        ("foo_bar", "call foo_bar now"),
        ("foo bar", "foo_bar"),
        ("v1.2", "release v1.2.3"),
        ("/etc/hosts", "see /etc/hosts there"),
        ('"hello world"', "say hello world now"),
        ("hel*", "hello"),
        ("hello*", "hello"),
        ("hello wor*", "hello world"),
        ("foo-ba*", "foo-bar"),
        ('"unbalanced', "unbalanced quote"),
        ("42", "the answer is 42."),
    ],
)
def test_found(words, text):
    assert finds(words, text)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("hell", "hello"),
        ("ello", "hello"),
        ("ello*", "hello"),
        ("hello planet", "hello world"),
        ('"world hello"', "hello world"),
        ('"hello world"', "hello big world"),
        ("foo_bar", "foo"),
        ("foo_bar", "bar foo"),
        ("foo-ba*", "foo-qux"),
        ('"hel*"', "hello"),
        ("hello", ""),
    ],
)
def test_not_found(words, text):
    assert not finds(words, text)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("北京", "我在北京工作"),
        ("京", "我在北京工作"),
        ("北京 工作", "我在北京努力工作"),
        ("東京都", "これは東京都です"),
        ("です", "これは東京都です"),
        ("カタカナ", "ｶﾀｶﾅ"),
        ("iPhone手机", "我的iphone手机坏了"),
        ("한국", "한국어를 배우다"),
        ("𠮷野", "𠮷野家に行く"),
        ("工作*", "我在北京工作"),
    ],
)
def test_words_of_any_length_are_found_where_no_blanks_stand(words, text):
    assert finds(words, text)


@pytest.mark.parametrize(
    ("words", "text"), [("京北", "我在北京工作"), ("北京", "北方的京城"), ("北京", "北 京".replace(" ", "x"))]
)
def test_characters_of_a_word_must_stand_in_a_row(words, text):
    assert not finds(words, text)


@pytest.mark.parametrize("words", ["", "  ", "!!!", "*", '""', "_"])
def test_a_search_without_a_word_is_a_usage_error(words):
    with pytest.raises(UsageError):
        search.phrases(words)


def test_a_search_has_a_limit():
    search.phrases("x" * search.QUERY_MAX_CHARS)
    with pytest.raises(UsageError):
        search.phrases("x" * (search.QUERY_MAX_CHARS + 1))


def test_terms_are_tokens_in_a_row():
    assert search.phrases('Hello 北京* "two words"') == (
        search.Phrase(("hello",)),
        search.Phrase(("北", "京"), True),
        search.Phrase(("two", "words")),
    )


def test_a_phrase_at_the_end_of_the_text_is_found_and_half_of_one_is_not():
    assert finds('"a b"', "b a b")
    assert not finds('"a b"', "b a")
    assert finds('"a a b"', "a a a b")


def test_long_texts_are_searched_to_their_end_in_parts_that_end_at_lines():
    text = "\n".join(f"line {n}" for n in range(30_000))
    parts = parts_of_text(text)
    assert len(parts) > 2
    assert "".join(parts) == text
    assert all(part.endswith("\n") for part in parts[:-1])


def snippet(words, text):
    return excerpt(text, search.understand(words)).text


def words_of(entry, tools=None):
    return text_of_entry(entry, tools or {})


def test_searching_looks_at_what_was_said_and_done():
    assert words_of(said("a")) == "a"
    assert words_of(answered("b")) == "b"
    assert words_of(ToolResult(tool_use_id="x", content=[{"type": "text", "text": "c"}])) == "c"
    assert words_of(Received(content="d")) == "d"
    assert words_of(User(from_=(3,))) == ""
    assert words_of(opened("s")) == ""
    assert words_of(Title(title="t")) == "t"
    assert words_of(Compaction(summary="s", first_kept=3, covers=(2, 2))) == "s"


def test_inputs_of_calls_and_names_of_files_are_searched_and_data_is_not():
    given = {"path": "src/a.py", "lines": [{"n": 7}, "x"]}
    call = {"type": "tool_use", "id": "c1", "name": "write_file", "input": given}
    assert words_of(Assistant(content=[call])) == "write_file\nsrc/a.py\n7\nx"
    source = {"type": "base64", "media_type": "image/png", "data": "QUJD"}
    assert words_of(User(content=[{"type": "image", "source": source, "name": "map.png"}])) == "map.png"
    paper = {"type": "document", "title": "plan.txt", "source": {"type": "text", "data": "the words"}}
    assert words_of(User(content=[paper])) == "plan.txt\nthe words"
    thought = [{"type": "thinking", "thinking": "hidden", "signature": "x"}, {"type": "text", "text": "said"}]
    assert words_of(Assistant(content=thought)) == "said"


@pytest.mark.parametrize("tool", ["search_history", "read_history", "recall", "mcp__turnlog__search_history"])
def test_a_search_never_finds_searches(tool):
    asked = {"type": "tool_use", "id": "c1", "name": tool, "input": {"words": "needle"}}
    assert words_of(Assistant(content=[asked])) == ""
    assert words_of(ToolResult(tool_use_id="c1", content="#2 needle"), {"c1": tool}) == ""
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "#2 needle"}
    assert words_of(User(content=[result]), {"c1": tool}) == ""
    assert words_of(ToolResult(tool_use_id="c9", content="[found in history]\n#2 needle")) == ""
    assert words_of(ToolResult(tool_use_id="c9", content="#2 needle"), {"c9": "grep"}) == "#2 needle"


def test_a_user_entry_made_from_received_ones_is_found_by_them_and_not_twice():
    assert words_of(User(content="the same words", from_=(3,))) == ""


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("payment.py", "see src/payment.py:42"),
        ("src/payment.py", "see src/payment.py:42"),
        ("config", "call parseConfig()"),
        ("parse_config", "call parseConfig()"),
        ("parseConfig", "call parse_config()"),
        ("server", "class HTTPServer2:"),
        ("2041", "invoice INV2041"),
        ("QX7741", "the code QX-7741"),
        ("1234567", "1,234,567 units"),
        ("1,234,567", "1234567 units"),
        ("invoices", "one invoice"),
        ("plan", "it was planned"),
        ("decided", "we decide now"),
        ("example.org", "https://www.example.org/a?b=1"),
        ("회의실", "회의실은 3층"),
        ("โครงการ", "งบประมาณโครงการคือ"),
    ],
)
def test_identifiers_and_forms_of_words_are_found(words, text):
    assert finds(words, text)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("What is the budget of the Harbour project?", "Harbour project: budget 40k"),
        ("who's Ann's boss", "the boss of Ann is Bo"),
        ("海港项目的预算是多少？", "海港项目今年预算为 40 万"),
        ("為什麼支付失敗了", "支付失敗的原因"),
        ("東京支社の予算はいくらですか", "東京支社、予算 40"),
        ("예산은 얼마인가요", "올해 예산이 얼마인지 40"),
    ],
)
def test_words_that_only_ask_need_not_match(question, text):
    assert search.has_all(indexed(text), search.understand(question).split)


def test_filters_are_read_and_dates_are_checked():
    sought = search.understand('from:"Ann Lee" after:2026-11-16 before:2026-12 -old -"no more" word')
    assert sought.facets == (search.facet("ann lee"),)
    assert (sought.since, sought.until) == (1_794_787_200_000, 1_796_083_200_000)
    assert [phrase.tokens for phrase in sought.without] == [("old",), ("no", "more")]
    assert [term.any_of[0].tokens for term in sought.strict] == [("word",)]
    with pytest.raises(UsageError, match="not a date"):
        search.understand("after:2026-13-01 x")
    assert search.understand("push --force").without == ()
    assert search.understand("in:ses-1 x").strict[0].any_of[0].tokens == ("in", "ses", "1")
    assert search.take_sessions('a in:ses-1 b in:"my label"') == ("a   b  ", ["ses-1", "my label"])


def test_the_order_is_by_terms_then_newest_and_what_was_rewound_is_last():
    rare, common = (search.Term((search.Phrase((word,)),)) for word in ("rare", "common"))
    old, new, gone = (search.Candidate("s", seq, 0, seq, "user") for seq in (2, 3, 4))
    summary = search.Candidate("s", 9, 0, 9, "summary")
    lists = [
        (search.Wanted((common,), 9), [summary, gone, new, old]),
        (search.Wanted((rare,), 9), [gone, old]),
    ]
    ranked = search.rank(lists, lambda one: "rewound" if one.seq == 4 else "tail")
    assert [one.candidate.seq for one in ranked] == [2, 3, 9, 4]


def test_a_snippet_shows_where_the_words_are_close_together_and_marks_them():
    text = "\n".join(f"node-{n} disk usage {n % 97} percent" for n in range(3_000))
    found = excerpt(text, search.understand("disk usage node-2077"))
    assert "node-2077 disk usage 40 percent" in found.text
    assert not found.scattered
    assert {found.text[start:end] for start, end in found.matches} >= {"node-2077", "disk", "usage"}
    family = "👨‍👩‍👧" * 200
    cut = excerpt(f"{family} needle {family}", search.understand("needle")).text
    assert cut.strip("…").replace("👨‍👩‍👧", "").strip() == "needle"
    folded = excerpt("ﬁne Straße\n1,234,567 of it", search.understand("strasse 1234567"))
    assert [folded.text[start:end] for start, end in folded.matches] == ["Straße", "1,234,567"]


def test_a_hit_says_whose_words_it_is():
    assert role_of(said("a")) == role_of(Received(content="a")) == "user"
    assert role_of(Assistant(content="a")) == "assistant"
    assert role_of(ToolResult(tool_use_id="x", content="a")) == "tool"


def test_a_snippet_is_one_line_around_the_first_word():
    text = "start " * 100 + "needle\nand " + "more " * 100
    cut = snippet("needle", text)
    assert cut.startswith("…")
    assert cut.endswith("…")
    assert "needle and" in cut
    assert len(cut) <= SNIPPET_CHARS + 2
    assert snippet("needle", "a needle") == "a needle"
    assert snippet("needle", "needle " + "x" * 500).startswith("needle")
    assert snippet("absent", "other words") == "other words"
    assert snippet("工作", "我在北京工作") == "我在北京工作"


def test_a_snippet_shows_the_word_that_was_found_however_it_is_written():
    text = "start " * 100 + "ＮＥＥＤＬＥ"
    assert finds("needle", text)
    assert "ＮＥＥＤＬＥ" in snippet("needle", text)


# Queries


def row(**fields):
    given = {"id": "ses-1", "key": "agent:main:cli:direct:user", "agent": "main", "channel": "cli"}
    return Session(**{**given, **fields})


@pytest.mark.parametrize(
    ("asked", "holds"),
    [
        ({}, True),
        ({"ids": ("ses-0", "ses-1")}, True),
        ({"ids": ("ses-2",)}, False),
        ({"key": "agent:main:cli:direct:user"}, True),
        ({"key": "agent:main:cli:direct:use"}, False),
        ({"agent": "main"}, True),
        ({"agent": "other"}, False),
        ({"channel": "cli"}, True),
        ({"channel": "web"}, False),
        ({"label": "Project"}, True),
        ({"label": "Proj"}, False),
        ({"status": "archived"}, True),
        ({"status": "active"}, False),
        ({"homes": ("agent:main:cli:direct:user",)}, True),
        ({"homes": ("agent:main:cli:direct:u", "agent:main:api:direct:user")}, False),
        ({"prefix": "ses-"}, True),
        ({"prefix": "agent:main"}, True),
        ({"prefix": "Pro"}, True),
        ({"prefix": "pro"}, False),
        ({"prefix": "oject"}, False),
        ({"q": "plan"}, True),
        ({"q": "PLAN proj"}, True),
        ({"q": "plan absent"}, False),
        ({"q": "straße"}, True),
        ({"q": "ses-1 cli"}, False),
        ({"q": " "}, True),
        ({"agent": "main", "status": "active"}, False),
    ],
)
def test_all_that_is_given_must_hold(asked, holds):
    there = row(label="Project", title="The Plan for STRASSE", status="archived")
    assert query.matcher(Query(**asked))(there) is holds


def test_threads_belong_to_the_home_of_a_person_and_not_to_one_whose_name_begins_alike():
    thread = row(key="agent:main:api:direct:ann:thread:x")
    assert query.matcher(Query(homes=("agent:main:api:direct:ann",)))(thread)
    assert not query.matcher(Query(homes=("agent:main:api:direct:an",)))(thread)


def test_a_session_without_a_label_is_not_found_by_one():
    assert not query.matcher(Query(label=""))(row())
    assert not query.matcher(Query(prefix="x"))(row())


@pytest.mark.parametrize("limit", [1, 50, 200])
def test_a_page_holds_1_to_200_sessions(limit):
    asked = Query(limit=limit, status="active")
    assert query.check(asked) is asked


@pytest.mark.parametrize("limit", [0, -1, 201])
def test_any_other_page_is_a_usage_error(limit):
    with pytest.raises(UsageError):
        query.check(Query(limit=limit))


@pytest.mark.parametrize("status", ["gone", ("active", "gone"), ()])
def test_an_unknown_status_is_a_usage_error(status):
    with pytest.raises(UsageError):
        query.check(Query(status=status))


def test_any_of_several_statuses_is_enough():
    assert query.matcher(Query(status=query.UNTRASHED))(row(status="archived"))
    assert not query.matcher(Query(status=query.UNTRASHED))(row(status="trashed"))
    assert query.matcher(Query(status="trashed"))(row(status="trashed"))


def test_any_of_several_agents_is_enough():
    assert query.matcher(Query(agent=("main", "ops")))(row(agent="ops"))
    assert query.matcher(Query(agent="ops"))(row(agent="ops"))
    assert not query.matcher(Query(agent=()))(row(agent="ops"))


def test_people_name_what_they_want_to_see():
    assert query.named_status("untrashed") == query.UNTRASHED
    assert query.named_status("all") is None
    assert query.named_status("trashed") == "trashed"


def test_a_page_leads_on_only_if_there_is_more():
    rows = [row(id=name, last_at=9) for name in ("c", "b", "a")]
    there = query.page(Query(limit=2), rows, 7)
    assert ([item.id for item in there.items], there.next, there.total) == (["c", "b"], "9.b", 7)
    assert query.page(Query(limit=3), rows, 3).next is None
    assert query.page(Query(limit=3), [], 0).items == []


def test_an_unknown_order_is_a_usage_error():
    with pytest.raises(UsageError):
        query.check(Query(sort="loudest"))


ORDERS = ("newest", "messages", "tokens", "id")


@pytest.mark.parametrize("sort", ORDERS)
def test_a_cursor_leads_back_to_the_place_it_was_made_at(sort):
    for there in (row(last_at=1_700_000_000_000, message_count=3, token_estimate=9), row(last_at=0)):
        cursor = query.cursor_after(there, sort)
        assert query.place(Query(sort=sort, cursor=cursor)) == query.rank(sort, there)
        for other in ORDERS:
            if other != sort:
                with pytest.raises(UsageError):
                    query.place(Query(sort=other, cursor=cursor))


@pytest.mark.parametrize("sort", ORDERS)
@pytest.mark.parametrize(
    "cursor",
    [
        "",
        ".",
        "1",
        "1.",
        ".x",
        "x.y",
        "-1.x",
        " 1.x",
        "1.a.b",
        "1.a b",
        "٣.x",
        f"{10**15}.x",
        "1.\ud800",
        "m1.2",
        "m.1.x",
    ],
)
def test_what_is_not_a_cursor_is_a_usage_error(cursor, sort):
    with pytest.raises(UsageError):
        query.check(Query(cursor=cursor, sort=sort))


def test_a_plain_query_restricts_agent_and_status_only():
    assert query.is_plain(Query())
    assert query.is_plain(Query(agent="a", status="active", limit=3, cursor="1.x"))
    for asked in ({"ids": ("x",)}, {"key": "k"}, {"channel": "c"}, {"label": "l"}, {"prefix": "p"}, {"q": "q"}):
        assert not query.is_plain(Query(**asked))


@pytest.mark.parametrize("field", ["key", "channel", "label"])
def test_an_empty_key_channel_or_label_restricts_too(field):
    assert not query.matcher(Query(**{field: ""}))(row())
    assert not query.is_plain(Query(**{field: ""}))


def test_a_name_is_read_as_an_id_a_key_a_label_and_a_beginning_in_this_order():
    within = Query(agent="main", limit=200)
    found = readings("main:cli:ann", within)
    assert [(q.ids, q.key, q.label, q.prefix) for q in found] == [
        ((), "agent:main:cli:direct:ann", None, None),
        ((), None, "main:cli:ann", None),
        ((), None, None, "main:cli:ann"),
    ]
    assert [q.ids for q in readings("my-chat", within)] == [("my-chat",), (), ()]
    assert readings("", within) == []


def test_one_word_may_be_the_beginning_of_an_id_and_several_may_not():
    asked = Query(q=" ses-17 ", agent="main")
    assert as_beginning(asked) == Query(prefix="ses-17", agent="main")
    assert as_beginning(Query(q="two words")) is None
    assert as_beginning(Query()) is None
    assert as_beginning(Query(q="word", prefix="x")) is None

"""Which words are found in which entries, and which sessions a query means."""

import pytest

from turnlog.core import query, search
from turnlog.core.entries import Assistant, Compaction, Received, Title, ToolResult, User
from turnlog.core.query import Query
from turnlog.core.session import Session
from turnlog.errors import UsageError
from turnlog.testing import answered, opened, said


def finds(words, text):
    return search.found(search.terms(words), text)


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
        ("hello there", "hello world"),
        ('"world hello"', "hello world"),
        ('"hello world"', "hello big world"),
        ("don't", "don is t"),
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
        search.terms(words)


def test_a_search_has_a_limit():
    search.terms("x" * search.QUERY_MAX_CHARS)
    with pytest.raises(UsageError):
        search.terms("x" * (search.QUERY_MAX_CHARS + 1))


def test_terms_are_tokens_in_a_row():
    assert search.terms('Hello 北京* "two words"') == (
        search.Term(("hello",)),
        search.Term(("北", "京"), True),
        search.Term(("two", "words")),
    )


def test_a_phrase_at_the_end_of_the_text_is_found_and_half_of_one_is_not():
    assert finds('"a b"', "b a b")
    assert not finds('"a b"', "b a")
    assert finds('"a a b"', "a a a b")


def test_only_the_first_million_characters_are_searched():
    far = "x " * (search.TEXT_MAX_CHARS // 2)
    assert not finds("needle", far + "needle")
    assert finds("needle", far[:-10] + " needle")


def test_searching_looks_at_what_was_said_and_done():
    assert search.searchable(said("a")) == "a"
    assert search.searchable(answered("b")) == "b"
    assert search.searchable(ToolResult(tool_use_id="x", content=[{"type": "text", "text": "c"}])) == "c"
    assert search.searchable(Received(content="d")) == "d"
    assert search.searchable(User(from_=(3,))) == ""
    for other in (opened("s"), Title(title="t"), Compaction(summary="s", first_kept=3, covers=(2, 2))):
        assert search.searchable(other) == ""


def test_a_user_entry_made_from_received_ones_is_found_by_them_and_not_twice():
    assert search.searchable(User(content="the same words", from_=(3,))) == ""


def test_a_hit_says_whose_words_it_is():
    assert search.role_of(said("a")) == search.role_of(Received(content="a")) == "user"
    assert search.role_of(Assistant(content="a")) == "assistant"
    assert search.role_of(ToolResult(tool_use_id="x", content="a")) == "tool"


def test_a_snippet_is_one_line_around_the_first_word():
    text = "start " * 100 + "needle\nand " + "more " * 100
    cut = search.snippet(search.terms("needle"), text)
    assert cut.startswith("…")
    assert cut.endswith("…")
    assert "needle and" in cut
    assert len(cut) <= search.SNIPPET_CHARS + 2
    assert search.snippet(search.terms("needle"), "a needle") == "a needle"
    assert search.snippet(search.terms("needle"), "needle " + "x" * 500).startswith("needle")
    assert search.snippet(search.terms("absent"), "other words") == "other words"
    assert search.snippet(search.terms("工作"), "我在北京工作") == "我在北京工作"


def test_a_snippet_shows_the_word_that_was_found_however_it_is_written():
    text = "start " * 100 + "ＮＥＥＤＬＥ"
    assert finds("needle", text)
    assert "ＮＥＥＤＬＥ" in search.snippet(search.terms("needle"), text)


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
        ({"prefix": "ses-"}, True),
        ({"prefix": "agent:main"}, True),
        ({"prefix": "Pro"}, True),
        ({"prefix": "pro"}, False),
        ({"prefix": "oject"}, False),
        ({"q": "plan"}, True),
        ({"q": "PLAN proj"}, True),
        ({"q": "plan absent"}, False),
        ({"q": "straße"}, True),
        ({"q": "ses-1 cli"}, True),
        ({"q": " "}, True),
        ({"agent": "main", "status": "active"}, False),
    ],
)
def test_all_that_is_given_must_hold(asked, holds):
    there = row(label="Project", title="The Plan for STRASSE", status="archived")
    assert query.matches(Query(**asked), there) is holds


def test_a_session_without_a_label_is_not_found_by_one():
    assert not query.matches(Query(label=""), row())
    assert not query.matches(Query(prefix="x"), row())


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
    assert query.matches(Query(status=query.UNTRASHED), row(status="archived"))
    assert not query.matches(Query(status=query.UNTRASHED), row(status="trashed"))
    assert query.matches(Query(status="trashed"), row(status="trashed"))


def test_any_of_several_agents_is_enough():
    assert query.matches(Query(agent=("main", "ops")), row(agent="ops"))
    assert query.matches(Query(agent="ops"), row(agent="ops"))
    assert not query.matches(Query(agent=()), row(agent="ops"))


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


ORDERS = ("newest", "messages", "tokens")


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
    assert not query.matches(Query(**{field: ""}), row())
    assert not query.is_plain(Query(**{field: ""}))

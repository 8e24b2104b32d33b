"""What was said before, found by the tools."""

from turnlog.core.entries import User
from turnlog.core.query import Hit
from turnlog.tools import BUILT_IN_MAX_CHARS, Toolbox, history_tools

from .contexts import context, run


def test_search_history_gives_seq_role_and_the_words_around():
    box = Toolbox(history_tools())
    assert run(box, "search_history", {"query": "harbour"}).content == "#2 user: the harbour code is QX-7741, keep it"
    found = run(box, "search_history", {"query": "灯塔"}).content
    assert found.startswith("#4 tool: 灯塔在北边")
    assert 500 < len(found) < 1_000


def test_search_history_says_when_nothing_is_found_or_nothing_was_asked():
    box = Toolbox(history_tools())
    assert run(box, "search_history", {"query": "walrus"}).content == "nothing found"
    assert run(box, "search_history", {"query": "  "}).is_error
    assert run(box, "search_history", {"query": "x" * 2_000}).is_error


def test_search_history_shows_nothing_of_another_session():
    foreign = Hit(session_id="ses-2", seq=99, role="user", snippet="harbour of somebody else")
    result = run(Toolbox(history_tools()), "search_history", {"query": "harbour"}, known=context(extra=[foreign]))
    assert "somebody else" not in result.content


def test_many_hits_stay_in_bounds_and_are_counted():
    entries = [User(seq=n, content=f"needle {n} " + "hay " * 5_000) for n in range(1, 60)]
    result = run(Toolbox(history_tools()), "search_history", {"query": "needle"}, known=context(entries))
    assert len(result.content) <= BUILT_IN_MAX_CHARS
    assert result.content.splitlines()[-1] == "[39 more; add a word to find fewer]"
    assert len(result.content.splitlines()) == 21


def test_recall_is_there_only_if_it_was_given():
    async def remember(query):
        return [f"you like {query}", "x" * 100_000]

    assert [spec.name for spec in Toolbox(history_tools()).specs] == ["search_history"]
    box = Toolbox(history_tools(with_recall=True))
    found = run(box, "recall", {"query": "tea"}, known=context(recall=remember)).content
    assert found.startswith("- you like tea\n- xxx")
    assert len(found) < 2_000
    assert run(box, "recall", {"query": "tea"}).is_error

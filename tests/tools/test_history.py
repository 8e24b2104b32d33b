"""What was said before, found by the tools."""

from turnlog.core.entries import User
from turnlog.core.query import Hit
from turnlog.tools import BUILT_IN_MAX_CHARS, Toolbox, history_tools

from .contexts import context, run


def test_search_history_gives_seq_role_and_the_words_around():
    box = Toolbox(history_tools())
    found = run(box, "search_history", {"words": "harbour"}).content
    assert found == "[found in history]\n#2 user: the harbour code is QX-7741, keep it"
    found = run(box, "search_history", {"words": "灯塔"}).content
    assert found.startswith("[found in history]\n#4 tool: 灯塔在北边")
    assert 500 < len(found) < 1_000


def test_search_history_says_when_nothing_is_found_or_nothing_was_asked():
    box = Toolbox(history_tools())
    assert run(box, "search_history", {"words": "walrus"}).content == "[found in history]\nnothing found"
    assert run(box, "search_history", {"words": "  "}).is_error
    assert run(box, "search_history", {"words": "x" * 2_000}).is_error


def test_search_history_shows_nothing_of_another_session():
    foreign = Hit(session_id="ses-2", seq=99, role="user", snippet="harbour of somebody else")
    result = run(Toolbox(history_tools()), "search_history", {"words": "harbour"}, known=context(extra=[foreign]))
    assert "somebody else" not in result.content


def test_many_hits_stay_in_bounds_and_are_counted():
    entries = [User(seq=n, content=f"needle {n} " + "hay " * 5_000) for n in range(1, 60)]
    result = run(Toolbox(history_tools()), "search_history", {"words": "needle"}, known=context(entries))
    assert len(result.content) <= BUILT_IN_MAX_CHARS
    assert result.content.splitlines()[-1] == "[51 more; add a word to find fewer]"
    assert len(result.content.splitlines()) == 10
    assert len(result.content) < 4_000
    more = run(Toolbox(history_tools()), "search_history", {"words": "needle", "limit": 99}, known=context(entries))
    assert len(more.content.splitlines()) == 22


def test_read_history_shows_the_originals_within_a_limit():
    box = Toolbox(history_tools())
    assert run(box, "read_history", {"from_seq": 2, "to_seq": 3}).content.splitlines() == [
        "[found in history]",
        "#2 user: the harbour code is QX-7741, keep it",
        "#3 assistant: Noted.",
    ]
    entries = [User(seq=n, content=f"needle {n} " + "hay " * 5_000) for n in range(1, 60)]
    found = run(box, "read_history", {"from_seq": 1, "to_seq": 59}, known=context(entries)).content
    assert len(found) < 12_000
    assert found.splitlines()[-1].startswith("[go on with from_seq=")
    alone = run(box, "read_history", {"from_seq": 7, "to_seq": 7, "skip_chars": 8_000}, known=context(entries)).content
    assert "skip_chars=14000" in alone
    assert run(box, "read_history", {"from_seq": 0, "to_seq": 3}).is_error
    assert "nothing was said there" in run(box, "read_history", {"from_seq": 90, "to_seq": 91}).content


def test_recall_is_there_only_if_it_was_given():
    async def remember(query):
        return [f"you like {query}", "x" * 100_000]

    assert [spec.name for spec in Toolbox(history_tools()).specs] == ["read_history", "search_history"]
    box = Toolbox(history_tools(with_recall=True))
    found = run(box, "recall", {"query": "tea"}, known=context(recall=remember)).content
    assert found.startswith("[found in history]\n- you like tea\n- xxx")
    assert len(found) < 2_000
    assert run(box, "recall", {"query": "tea"}).is_error

"""A history built with a cache is the history built without one, however the log grew."""

import os

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st
from msgspec.structs import replace

from turnlog.core import history
from turnlog.core.history import TailCache
from turnlog.testing import answered, entry, said

from .simulation import Simulation, steps

many = settings(
    max_examples=int(os.environ.get("EXAMPLES", "100")), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
injects = st.sampled_from(history.INJECTS)


def assert_equal_at_every_end(log, inject="user"):
    cache = TailCache()
    for end in range(len(log) + 1):
        view = cache.survey(log[:end])
        assert view == history.survey(log[:end])
        shown = history.build(log[:end], inject=inject, view=view, cache=cache)
        assert shown == history.build(log[:end], inject=inject)


@many
@example([("assistant", "text"), ("user", "text"), ("rewind", 1), ("assistant", "text")], "system")
@given(steps, injects)
def test_a_log_that_grows_entry_by_entry_is_shown_as_if_it_was_built_at_once(moves, inject):
    assert_equal_at_every_end(Simulation().run(moves).log, inject)


ids = st.sampled_from(["a", "a_2", "b", "b\x00", ""])
calls = st.builds(
    lambda used, text: entry(
        type="assistant",
        content=[
            *([{"type": "text", "text": text}] if text else []),
            *({"type": "tool_use", "id": one, "name": name, "input": {"n": n}} for one, name, n in used),
        ],
        stop="tool_use",
    ),
    st.lists(st.tuples(ids, st.sampled_from(["f", ""]), st.integers(0, 1)), max_size=2),
    st.sampled_from(["", "words"]),
)
results = st.builds(
    lambda one, text: entry(type="tool_result", tool_use_id=one, content=text), ids, st.sampled_from("xy")
)
words = st.sampled_from([said("hello"), said(" "), answered("fine"), entry(type="failed", code="refused_content")])


@many
@given(st.lists(st.one_of(words, words, calls, results), max_size=14), injects)
def test_whatever_ids_calls_and_results_share(bodies, inject):
    assert_equal_at_every_end([replace(body, seq=n) for n, body in enumerate(bodies, 1)], inject)


def talk(turns, start=1):
    bodies = [body for n in range(turns) for body in (said(f"question {n}"), answered(f"answer {n}"))]
    return [replace(body, seq=start + n) for n, body in enumerate(bodies)]


def test_a_longer_log_writes_only_what_is_new(monkeypatch):
    cache, log = TailCache(), talk(50)
    history.build(log, cache=cache)
    written = []
    clean = history.MessageWriter.add_user
    monkeypatch.setattr(history.MessageWriter, "add_user", lambda w, c: (written.append(c), clean(w, c)))
    longer = [*log, *talk(1, start=101)]
    built = history.build(longer, cache=cache)
    assert written == ["question 49", "question 0"]
    assert len(built.messages) == 102


@pytest.mark.parametrize("kind", ["compaction", "other log", "rewound log", "shorter log"])
def test_a_change_before_the_end_is_shown(kind):
    cache, log = TailCache(), talk(10)
    history.build(log, view=cache.survey(log), cache=cache)
    changed = {
        "compaction": [*log, entry(type="compaction", seq=21, summary="S", first_kept=19, covers=(1, 18))],
        "other log": [replace(log[0], content="other"), *log[1:]],
        "rewound log": [*log[:7], replace(said("instead"), seq=21, after=7)],
        "shorter log": log[:9],
    }[kind]
    assert cache.survey(changed) == history.survey(changed)
    assert history.build(changed, cache=cache) == history.build(changed)
    assert history.build(changed, cache=cache).messages != history.build(log).messages


def test_a_result_that_comes_late_belongs_to_the_call_before_the_cut():
    call = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    bodies = [said("go"), entry(type="assistant", content=[call]), said("and?"), answered("well"), said("now?")]
    log = [replace(body, seq=n) for n, body in enumerate([*bodies, answered("so")], 1)]
    cache = TailCache()
    history.build(log, cache=cache)
    late = [*log, entry(type="tool_result", seq=7, tool_use_id="a", content="LATE"), replace(said("ok"), seq=8)]
    assert history.build(late, cache=cache) == history.build(late)


def call(*names):
    return entry(
        type="assistant", content=[{"type": "tool_use", "id": name, "name": "f", "input": {}} for name in names]
    )


def result(name, text="r"):
    return entry(type="tool_result", tool_use_id=name, content=text)


TURN = [said("more"), answered("well")]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([said("a"), result("orphan"), answered("b")], []),
        ([said("a"), call("x"), answered("no result"), said("b"), answered("c")], [result("x", "late")]),
        ([said("a"), call("x"), result("x"), call("x"), result("x"), answered("b")], []),
        ([said("a"), call("x"), result("x"), answered("b")], [call("x"), result("x", "other")]),
        ([said("a"), call("x_2"), result("x_2"), answered("b")], [call("x"), result("x"), call("x"), result("x")]),
        ([said("a"), call("x", "y"), result("x"), result("y"), answered("b")], [call("z"), result("z")]),
        ([said("a"), call(""), answered("b")], [call("")]),
        ([said("a"), entry(type="assistant", content="plain")], [entry(type="assistant", content="cut", stop="error")]),
    ],
)
def test_ids_that_one_side_of_a_cut_shares_with_the_other(before, after):
    bodies = [*before, *TURN, said("next"), *after, answered("end"), *TURN]
    assert_equal_at_every_end([replace(body, seq=n) for n, body in enumerate(bodies, 1)])

"""The small form of `make fidelity`: what is left after compactions, with a summariser that cheats."""

import asyncio

import pytest
from benchmarks.fidelity import __main__ as fidelity, peers
from benchmarks.fidelity.measuring import measure
from benchmarks.fidelity.transcripts import make

from .talk import url_at


@pytest.mark.parametrize(("language", "kind"), [("en", "sqlite"), ("zh", "jsonl")])
def test_every_goal_is_met_after_three_compactions_with_a_summariser_that_drops_two_fifths(language, kind, tmp_path):
    marked = make(language, 210)
    found = []
    for summariser in ("offline", "sly"):
        figures = asyncio.run(
            measure(url_at(kind, tmp_path / summariser), marked, summariser, 3, fidelity.QUICK.window)
        )
        found.append((language, 3, summariser, figures))
    assert list(fidelity.missed(found)) == []
    assert found[1][3].changed > 3
    assert len("\n".join(fidelity.lines(found)).splitlines()) == 4


def test_two_runs_make_the_same_transcript_and_the_same_figures_of_peers():
    first, second = make("mixed", 210), make("mixed", 210)
    assert first == second
    assert make("mixed", 210, seed=17) != first
    for rule in peers.RULES:
        figures = peers.simulate(rule, first, 3, fidelity.QUICK.window)
        assert figures == peers.simulate(rule, second, 3, fidelity.QUICK.window)
        assert figures.found["question"] < fidelity.QUESTION_GOAL

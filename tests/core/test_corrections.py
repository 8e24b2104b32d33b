"""What was corrected is found, by cue words and by subject, in English and Chinese."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from turnlog.core import corrections
from turnlog.core.corrections import corrected, lacking

PAIRS = {
    "cue and subject": ("The port of alpha is 5432.", "Correction: the port of alpha is 7001, not 5432."),
    "subject only": ("The budget for Oslo is 1,200 USD.", "The budget for Oslo is now 1,500 USD."),
    "wrong": ("The ticket of Berlin is KX-1001.", "I was wrong: the ticket of Berlin is KX-2002."),
    "moved": ("Deploy to web-01.", "We moved from web-01 to web-02."),
    "no identifiers": ("My favourite colour is green.", "Actually my favourite colour is blue."),
    "chinese cue": ("alpha 的端口是 5432。", "更正：alpha 的端口是 7001，不是 5432。"),
    "chinese subject": ("仓库甲的负责人是张伟。", "仓库甲的负责人改为李娜。"),
    "chinese changed": ("会议时间是3月14日。", "会议时间改到3月20日。"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_correction_is_found_and_a_summary_with_the_old_value_alone_lacks_it(name):
    old, new = PAIRS[name]
    found = corrected(["hello", old, "noted", new])
    assert found.sentences == (new,)
    assert lacking(f"- user: {old}", new)
    assert not lacking(f"- user: {old}\n- user: {new}", new)
    assert not lacking("they spoke of other things", new)


@pytest.mark.parametrize(("name", "stale"), [("cue and subject", "5432"), ("subject only", "1,200 USD"),
    ("wrong", "KX-1001"), ("moved", "web-01"), ("chinese cue", "5432"), ("chinese subject", "张伟")])  # fmt: skip
def test_the_old_value_is_stale_and_the_new_one_is_not(name, stale):
    assert corrected(PAIRS[name]).stale == {stale}


def test_a_value_that_holds_for_something_else_is_not_stale():
    said = ["The port of alpha is 5432.", "The port of beta is 5432.", "Correction: the port of alpha is 7001."]
    assert corrected(said).stale == frozenset()


def test_of_several_corrections_of_one_subject_the_newest_counts():
    said = [f"The limit of gamma is {n} MB." for n in (10, 20, 30)]
    found = corrected(said)
    assert found.sentences == (said[2],)
    assert found.superseded == set(said[:2])
    assert found.stale == {"10 MB", "20 MB"}


def test_repetitions_questions_and_pronouns_are_no_corrections():
    said = [
        "The port is 5432.",
        "the port is 5432",
        "Is the port 5432, not 7001?",
        "It is late.",
        "It is early.",
        "x" * 400,
    ]
    assert corrected(said).sentences == ()


def test_earlier_statements_are_corrected_by_new_ones_and_earlier_corrections_stay():
    found = corrected(["The port of beta is 9001."], ["- user: The port of beta is 5000."], ["更正：甲的端口是 7001。"])
    assert found.sentences == ("更正：甲的端口是 7001。", "The port of beta is 9001.")
    assert found.superseded == {"- user: The port of beta is 5000."}


def test_an_earlier_statement_that_names_the_value_it_replaces_stays_a_correction():
    """Otherwise the old value, which a list may still have, would count as valid after the next compaction."""
    earlier = "Correction: the port of alpha is 7001, not 5432."
    found = corrected(["Nothing new."], [earlier])
    assert found.sentences == (earlier,)
    assert found.replaced == {"5432": earlier}


def test_the_newest_correction_is_the_one_that_replaces_all_older_values():
    said = [f"The limit of gamma is {n} MB." for n in (10, 20, 30)]
    assert corrected(said).replaced == {"10 MB": said[2], "20 MB": said[2]}


CORRECTION = "Correction: the folder of Oslo is KX-2002, not KX-1001."


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ("They mentioned KX-1001.", True),
        ("They mentioned KX-1001, KX-1500, KX-2002, KX-3000.", True),
        (f"- {CORRECTION}", False),
        ("The folder is KX-2002 (was KX-1001).", False),
        ("The folder moved from KX-1001 to KX-2002.", False),
        ("Oslo 的文件夹原来是 KX-1001，现在是 KX-2002。", False),
        (f"{CORRECTION}\n{'so it goes. ' * 60}\nAgain: KX-1001", True),
        ("KX-10012 is another one.", False),
        ("Nothing at all.", False),
    ],
)
def test_an_old_value_is_alone_unless_it_is_said_there_that_it_was_corrected(text, alone):
    assert corrections.is_alone("KX-1001", CORRECTION, text) == alone


def test_a_value_is_taken_out_as_a_whole():
    assert corrections.without("KX-1", "KX-1, KX-11 and KX-1.") == "…, KX-11 and …."
    assert corrections.without("张伟", "负责人是张伟。") == "负责人是…。"


def test_an_earlier_statement_alone_is_no_correction():
    assert corrected([], ["Actually the port of beta is 5000."]).sentences == ()


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(corrections, "SUBJECTS_MAX", 10)
    assert len(corrected([f"Correction: the port of s{n} is {n}" for n in range(100)]).sentences) == 10


@given(st.lists(st.text(max_size=80), max_size=5), st.text(max_size=80))
def test_any_text_can_be_read(said, summary):
    for one in corrected(said, said, said).sentences:
        lacking(summary, one)

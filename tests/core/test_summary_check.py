"""A summary is checked against the fold and the previous summary, and gets what it lacks."""

import pytest

from turnlog.core import compaction, tokens
from turnlog.core.compaction import Keep
from turnlog.core.entries import Pin
from turnlog.core.summary_check import CORRECTED_HEADING, LIST_LEAD, completed, known, lacks, missing

from .test_compaction import answered, folded, log, opened, said, turn


def of(*bodies, keep="from_last_user", n=0):
    return known(compaction.plan(log(opened("s"), *bodies), Keep(keep, n)), tokens.of_text)


TALK = [
    body for n in range(30) for body in (said(f"look at ticket PAY-10{n:03}, it has words"), answered("I did look"))
]


def test_older_messages_than_the_last_four_are_checked_too():
    checked = of(*TALK, said("now"))
    assert checked.names[0] == "PAY-10029"
    assert "PAY-10000" in checked.names
    reason = lacks(checked, "tickets PAY-10000", 1_000, tokens.of_text)
    assert "29 of 30" in reason
    assert "PAY-10029" in reason
    assert lacks(checked, " ".join(checked.names[:20]), 1_000, tokens.of_text) == ""


def test_what_the_tail_or_a_pin_shows_is_not_missing():
    assert of(*TALK[:4], said("now to PAY-10001")).names == ("PAY-10000",)


def test_the_previous_summary_and_its_lists_are_checked_too():
    previous = (
        f"they met Ada Berg in Oslo\n\n{CORRECTED_HEADING}\n- The port of beta is 9001.\n{LIST_LEAD}odd name; AB-1"
    )
    bodies = (*turn(1), *turn(2), folded(4, summary=previous), *turn(3), *turn(4))
    checked = of(*bodies, keep="turns", n=1)
    assert {"Ada Berg", "Oslo", "odd name", "AB-1", "9001"} <= set(checked.names)
    assert checked.corrected.sentences == ("The port of beta is 9001.",)
    assert CORRECTED_HEADING in completed(checked, "The port of beta is 5000.", 1_000, tokens.of_text)


@pytest.mark.parametrize("room", [60, 100, 200, 5_000])
def test_the_list_fits_its_room_and_newer_ones_come_first(room):
    checked = of(*TALK, said("now"))
    text = completed(checked, "they looked", room, tokens.of_text)
    assert tokens.of_text(text) <= room
    listed = text.partition(LIST_LEAD)[2].split("; ")
    assert listed == list(checked.names[: len(listed)])
    assert missing(checked, text) == len(checked.names) - len(listed)


def test_a_summary_that_lacks_nothing_stays_as_it_is():
    checked = of(*TALK[:4], said("now"))
    assert completed(checked, "PAY-10000 PAY-10001", 1_000, tokens.of_text) == "PAY-10000 PAY-10001"


def test_a_stale_claim_gets_its_correction_and_no_list_shows_the_old_value():
    bodies = (said("The port of alpha is 5432."), answered("noted"), said("Correction: the port of alpha is 7001."))
    checked = of(*bodies, *TALK, said("now"))
    text = completed(checked, "The port of alpha is 5432.", 2_000, tokens.of_text)
    assert f"{CORRECTED_HEADING}\n- Correction: the port of alpha is 7001." in text
    assert "5432" not in completed(checked, "they spoke", 2_000, tokens.of_text)


CHANGED = (
    said("The folder of Oslo is KX-1001."),
    answered("noted"),
    said("Correction: the folder of Oslo is KX-2002, not KX-1001."),
    answered("noted"),
)


def test_two_values_in_a_list_do_not_say_which_one_holds():
    text = completed(of(*CHANGED, *TALK, said("now")), "They mentioned KX-1001, KX-2002.", 2_000, tokens.of_text)
    assert f"{CORRECTED_HEADING}\n- Correction: the folder of Oslo is KX-2002, not KX-1001." in text


def test_what_a_pin_still_claims_is_corrected_after_every_summary():
    bodies = (*CHANGED[:1], Pin(target=2), *CHANGED[1:], *TALK)
    text = completed(of(*bodies, said("now")), "They spoke.", 2_000, tokens.of_text)
    assert "- Correction: the folder of Oslo is KX-2002, not KX-1001." in text
    boundary = len(bodies) + 2  # the opening is the first entry, the summary the last one
    again = of(*bodies, said("more"), folded(boundary, summary=text), *TALK, said("now"))
    assert "KX-2002, not KX-1001" in completed(again, "They spoke on.", 2_000, tokens.of_text)


def test_a_corrected_value_is_taken_out_where_its_correction_does_not_fit():
    checked = of(*CHANGED, *TALK, said("now"))
    assert completed(checked, "The folder is KX-1001.", 0, tokens.of_text) == "The folder is …."


def test_what_is_added_costs_at_most_half_of_what_is_replaced():
    checked = of(said("AB-1001 AB-1002 AB-1003 AB-1004 AB-1005 AB-1006"), answered("ok"), said("now"))
    added = completed(checked, "-", 9_000, tokens.of_text)
    assert tokens.of_text(added) <= checked.replaced // 2 + 5

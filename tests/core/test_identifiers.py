"""What counts as an identifier, in English and Chinese, in time that grows with the text alone."""

import time

import hypothesis.strategies as st
import pytest
from hypothesis import given

from turnlog.core import identifiers
from turnlog.core.identifiers import found_in, is_in, missing_from, weighed


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("plain words only, nothing else.", set()),
        ("See src/payment.py, /etc/app/x.yml and C:\\Temp\\a.txt.", {"src/payment.py", "/etc/app/x.yml",
                                                                     "C:\\Temp\\a.txt"}),
        ("read https://x.test/a?b=1, please", {"https://x.test/a?b=1"}),
        ("请看https://x.test/路径，谢谢", {"https://x.test/路径"}),
        ("write to ada.berg@mail.example.org now", {"ada.berg@mail.example.org"}),
        ("on 2025-03-14T09:30:00Z, 14 March 2025, 10:30 pm", {"2025-03-14T09:30:00Z", "14 March 2025", "10:30 pm"}),
        ("before March 14, 2025, or by 2025/3/14", {"March 14, 2025", "2025/3/14"}),
        ("会议在2025年3月14日，或者3月20日", {"2025年3月14日", "3月20日"}),
        ("v1.2 of 10.0.0.17:5432 and 3.11.7-rc1", {"v1.2", "10.0.0.17:5432", "3.11.7-rc1"}),
        ("it takes 3 GB, 250ms, 20% and $1,200.50", {"3 GB", "250ms", "20%", "$1,200.50"}),
        ("预算是3.5万元，一共25台，用了￥300", {"3.5万元", "25台", "￥300"}),
        ("ticket PAY-10442, #4711, commit 9f8e7d6c, port 5432", {"PAY-10442", "#4711", "9f8e7d6c", "5432"}),
        ("call foo_bar() in MyClass.run or openStore, ask @alice", {"foo_bar()", "MyClass.run", "openStore", "@alice"}),
        ("We met Ada Berg in Oslo. The Blue Heron sank", {"Ada Berg", "Oslo", "Blue Heron"}),
        ("我叫李雷，请张伟负责，代号雪松", {"李雷", "张伟", "雪松"}),
        ('name it "quiet river", “蓝鹭” or 《运维手册》', {"quiet river", "蓝鹭", "运维手册"}),
        ("it's Ada's; don't", set()),
        ('either "x; y" or "a,"', set()),
        ("he said The and Please", set()),
        ('{"path": "a", "limit": 30}', set()),
        ("x" * 201 + "1", set()),
        ("a.b e.g. i.e. 12 345", set()),
    ],
)  # fmt: skip
def test_what_is_found(text, found):
    assert set(found_in(text)) == found


HOSTILE = {
    letters: letters * (200_000 // len(letters))
    for letters in ("x", "a.", "/a", "Aa ", "1,", "a_", "-a1", "a@", "a://", '"a', "'a ", "张伟说", "1", "1.", "A-",
                    "`", "a a1 ")
}  # fmt: skip


@pytest.mark.parametrize("letters", HOSTILE)
def test_no_text_takes_long(letters):
    took = []
    for _ in range(3):
        began = time.thread_time()
        sum(1 for _ in found_in(HOSTILE[letters]))
        took.append(time.thread_time() - began)
    assert min(took) < 0.8  # 0.3 s at most on a quiet machine; a quadratic form takes minutes


@given(st.text(max_size=300))
def test_any_text_can_be_read_and_what_is_found_is_in_it(text):
    for name in found_in(text):
        assert name in text
        assert 2 <= len(name) <= identifiers.NAME_MAX_CHARS


def test_a_long_output_does_not_displace_what_people_said():
    dump = " ".join(f"row {n}" for n in range(100_000, 100_400))
    weights = list(weighed(["The folder is KX-2002.", dump]))
    assert weights[0] == "KX-2002"
    assert len(weights) == 401


def test_newer_and_more_often_used_ones_come_first():
    texts = ["AB-1001", "AB-1002 AB-1003", "AB-1003", "AB-1004"]
    assert list(weighed(texts, ["OLD-1"], half=2)) == ["AB-1003", "AB-1004", "AB-1002", "AB-1001", "OLD-1"]


def test_one_message_counts_once_however_often_it_repeats_a_name():
    assert list(weighed(["AB-1001 " * 50, "AB-1002"], half=1)) == ["AB-1002", "AB-1001"]


def test_the_order_does_not_depend_on_the_process():
    assert list(weighed(["zz-1001 aa-1001 mm-1001"])) == ["aa-1001", "mm-1001", "zz-1001"]


def test_memory_is_bounded_and_the_newest_stay(monkeypatch):
    monkeypatch.setattr(identifiers, "MENTIONS_MAX", 100)
    kept = weighed((f"AB-{n:05}" for n in range(1_000)), half=500)
    assert len(kept) <= 100
    assert "AB-00999" in kept
    assert "AB-00001" not in kept


def test_of_a_very_long_message_beginning_and_end_are_read():
    text = "FIRST-1 " + "word " * 30_000 + "MIDDLE-1 " + "word " * 30_000 + "LAST-1"
    assert set(weighed([text])) == {"FIRST-1", "LAST-1"}


@pytest.mark.parametrize(
    ("name", "text", "there"),
    [
        ("v1.2", "uses v1.25", False),
        ("v1.2", "v1.25, then v1.2.", True),
        ("5432", "port 54321", False),
        ("张伟", "请张伟负责", True),
        ("25台", "共125台", False),
        ("a.py", "src/a.py", True),
        ("x", "", False),
    ],
)
def test_a_name_is_there_only_as_a_whole(name, text, there):
    assert is_in(name, text) is there


def test_those_that_are_missing_keep_their_order():
    assert missing_from("AB-1 and ‘CD-22x’", ["EF-3", "CD-22x", "AB-1", "CD-2"]) == ["EF-3", "CD-2"]

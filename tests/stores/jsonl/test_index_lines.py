"""The lines of a JSONL index: a whole log is decoded faster than line by line, with the same result."""

import random

import pytest

from turnlog.core.session import FOLD, Session
from turnlog.stores.jsonl.index_lines import IndexLine, decode_log, decoder, encode
from turnlog.stores.jsonl.row_table import RowTable


def row(name, *, last_seq=1, fold=FOLD, title='\n{"dirty":"a"}'):
    return Session(
        id=name, key=f"k:{name}", agent="main", channel="cli", last_seq=last_seq, fold=fold, stamped=name, title=title
    )


def log(*lines):
    return b"".join(encode(line) + b"\n" for line in (IndexLine(index=1, boot="b"), *lines))


def rows(*names, **fields):
    return [IndexLine(row=row(name, **fields), size=9, ino=3) for name in names]


def taken(data):
    """What the table holds, with the rows taken from the beginning of the log at once."""
    table = RowTable()
    outdated = table.take(decode_log(data))
    return {name: (kept.row, kept.size, kept.ino) for name, kept in table.rows.items()}, outdated


def taken_line_by_line(data):
    known, outdated = {}, False
    for line in decoder.decode_lines(data)[1:]:
        if line.row is not None:
            known.pop(line.row.id, None)
            if line.row.fold == FOLD:
                known[line.row.id] = (line.row, line.size, line.ino)
            outdated = outdated or line.row.fold < FOLD
        elif line.deleted is not None and line.incarnation in ("", known.get(line.deleted, (row(""),))[0].incarnation):
            known.pop(line.deleted, None)
    return known, outdated


def test_the_rows_at_the_beginning_of_a_rewritten_log_are_taken_at_once():
    found = decode_log(log(*rows("a", "b"), IndexLine(dirty="a", by="1.2"), *rows("a", last_seq=2)))
    assert list(found.rows) == ["a", "b"]
    assert [line.dirty for line in found.rest] == ["a", None]
    assert found.first.boot == "b"


def test_a_log_of_one_line_has_no_rows():
    assert (decode_log(log()).rows, decode_log(log()).rest) == ({}, [])


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(rows("a", "b") + rows("a", last_seq=2), id="a session twice: the later row counts"),
        pytest.param(rows("a", "b") + rows("a", fold=FOLD - 1), id="an older version wrote the later row"),
        pytest.param(rows("a") + rows("b", fold=FOLD + 1), id="a newer version wrote a row"),
        pytest.param([*rows("a"), IndexLine(index=1), *rows("b")], id="a line of another kind among the rows"),
        pytest.param([*rows("a"), IndexLine(row=row("b"))], id="a row without the size of its file"),
    ],
)
def test_what_cannot_be_taken_at_once_is_taken_line_by_line(lines):
    data = log(*lines, IndexLine(dirty="a", by="1.2"), IndexLine(deleted="b", incarnation="b"), *rows("c"))
    assert taken(data) == taken_line_by_line(data)
    assert not decode_log(data).rows


@pytest.mark.parametrize("seed", range(200))
def test_every_log_gives_the_rows_that_its_lines_give_one_by_one(seed):
    choose = random.Random(seed)
    lines = rows(*"abcd"[: choose.randrange(5)])
    for _ in range(choose.randrange(8)):
        name = choose.choice("abcdef")
        lines += choose.choice(
            (
                rows(name, last_seq=choose.randrange(9), fold=choose.choice((FOLD, FOLD, FOLD - 1, FOLD + 1))),
                [IndexLine(dirty=name, by="1.2")],
                [IndexLine(deleted=name, incarnation=choose.choice(("", name, "other")))],
            )
        )
    found, expected = taken(log(*lines)), taken_line_by_line(log(*lines))
    assert found == expected
    assert list(found[0]) == list(expected[0])

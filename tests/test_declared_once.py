"""A row's fields and an entry type's traits are declared once: what is not made from there is compared with it here."""

import asyncio
import re
from typing import get_args, get_type_hints

import msgspec
import pytest
from msgspec.structs import replace

import turnlog
from turnlog.core.entries import TYPES, Stored
from turnlog.core.marks import MarkKind
from turnlog.core.query import RANKS, Query, compared
from turnlog.core.rows import FOLD, Session, SessionRow, public_row
from turnlog.stores import open_store, sql
from turnlog.stores.postgres import row_functions
from turnlog.stores.sqlite.connection import SqliteConnection
from turnlog.texts import LANGUAGES
from turnlog.texts.page import PAGE

from . import generated
from .stores import postgres

ROW = Session(id="s", key="k", agent="a", channel="c")
OTHERWISE = {"ids", "prefix", "key_prefix", "homes", "q", "unfinished", "sort", "limit", "cursor"}
"""Query fields that are not compared with a field of the row."""


def test_the_public_row_has_fields_of_the_row_under_the_same_names():
    names = {one.name: one.encode_name for one in msgspec.structs.fields(Session)}
    hints = get_type_hints(Session)
    for one in msgspec.structs.fields(SessionRow):
        if one.name != "file_path":
            assert names[one.name] == one.encode_name
            assert get_type_hints(SessionRow)[one.name] == hints[one.name]
    assert list(msgspec.to_builtins(public_row(replace(ROW, waiting=True, model="m"), file_path="f"))) == [
        one.encode_name for one in msgspec.structs.fields(SessionRow)
    ]


@pytest.mark.parametrize("name", sorted(set(Query.__struct_fields__) - OTHERWISE))
def test_every_other_query_field_is_compared_with_the_row(name):
    value = True if bool in get_args(get_type_hints(Query)[name]) else "x"
    assert compared(Query(**{name: value})) == [(name, (value,))]
    assert hasattr(ROW, name)


def test_orders_are_of_fields_of_the_row():
    assert all(hasattr(ROW, name) for fields in RANKS.values() for name in fields)


@pytest.mark.parametrize("kind", TYPES.values())
def test_the_traits_of_a_type_name_its_fields_and_fields_of_the_row(kind):
    own = set(kind.__struct_fields__)
    assert {kind.names, kind.mark, kind.sets[1]} - {""} <= own
    assert kind.sets[0] in {"", *Session.__struct_fields__}
    assert own.isdisjoint({"needs_lease", "names", "mark", "sets", "inherited"})


def test_marks_are_of_the_types_that_have_one():
    assert {name for name, kind in TYPES.items() if kind.mark} == set(get_args(MarkKind))


def test_every_type_is_public():
    assert {kind.__name__ for kind in TYPES.values()} <= set(turnlog.__all__)


CARDS = {"received", "user", "assistant", "tool_result", "compaction"}
"""Types that a page shows as what they are, not as a note."""


@pytest.mark.parametrize("name", sorted(TYPES.keys() - CARDS))
def test_every_other_type_has_a_note_on_pages_made_of_its_fields(name):
    fields = {*TYPES[name].__struct_fields__, "n"} - set(Stored.__struct_fields__)
    for text, _ in zip(PAGE[f"note_{name}"], LANGUAGES, strict=True):
        assert set(re.findall(r"{(\w+)}", text)) <= fields


def test_the_tables_of_both_databases_have_the_columns_that_rows_are_made_into(tmp_path):
    here = postgres.server()
    name = here.database(tmp_path)

    async def create():
        for url in (f"sqlite:{tmp_path}/s.db", here.url(name)):
            async with open_store(url):
                pass

    asyncio.run(create())
    db = SqliteConnection(tmp_path / "s.db")
    assert {row[1] for row in db.all("PRAGMA table_info(sessions)")} == {*sql.COLUMNS, "haystack"}
    plan = db.all(f"EXPLAIN QUERY PLAN SELECT 1 FROM sessions WHERE {sql.OLDER_ROWS} LIMIT 1")
    assert f"sessions_fold_{FOLD}" in plan[0][3]
    db.close()
    columns = "SELECT column_name FROM information_schema.columns WHERE table_schema = 'turnlog' AND table_name = "
    found = {row[0] for row in here.sql(columns + "'sessions'", name)}
    assert found == {*row_functions.COLUMNS, "session_no", "searched_to", "indexed_to"}


def test_what_is_generated_is_what_the_generator_writes():
    for path, text in generated.generated().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is old: run python -m tests.generated"

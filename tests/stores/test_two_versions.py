"""How formats grow: two versions of Turnlog on one store. The newer one is real: see `newer`."""

import asyncio
import json

import pytest
from msgspec import to_builtins

import turnlog
from turnlog.core.compaction import explain
from turnlog.core.entries import Foreign, Title
from turnlog.core.query import Query
from turnlog.core.session import FOLD, describe
from turnlog.interchange import doctor
from turnlog.interchange.exporting import export
from turnlog.server.pages.timeline import timeline
from turnlog.sessions.copying import copy
from turnlog.stores import open_store
from turnlog.testing import answered, entry, opened, said

from . import postgres
from .newer import Newer, source_tree


@pytest.fixture(scope="module")
def newer_tree(tmp_path_factory):
    return source_tree(tmp_path_factory.mktemp("newer"))


def url_of(kind, place):
    if kind == "postgres":
        here = postgres.server()
        return here.url(here.database(place))
    return f"sqlite:{place}/s.db" if kind == "sqlite" else f"jsonl:{place}/s"


async def begin(store):
    await store.append("s1", [opened("s1")])
    async with store.lease("s1") as lease:
        await store.append("s1", [said("hi"), answered("hello")], lease=lease)


@pytest.mark.parametrize("kind", ["jsonl", "sqlite", "postgres"])
def test_what_an_older_writer_does_not_know_is_still_right_in_the_row_of_the_newer(kind, newer_tree, tmp_path):
    url = url_of(kind, tmp_path)

    async def both():
        async with open_store(url, durability="os") as store:
            await begin(store)
            with Newer(newer_tree, url) as newer:
                assert newer("starred") == []
                assert newer("star", "s1", True)
                older = await store.append("s1", [Title(title="older")])
                assert older.row.fold == FOLD
                assert newer("starred") == ["s1"]
                row = newer("row", "s1")
                assert (row["starred"], row["title"], row["lastSeq"]) == (True, "older", 5)
                assert newer("star", "s1", False) is False
                await store.append("s1", [entry(type="status", value="archived")])
                assert newer("starred") == []
                assert newer("row", "s1")["status"] == "archived"
                assert await store.describe("s1") == describe(None, await store.read("s1"))
                assert [row.status for row in (await store.find(Query())).items] == ["archived"]

    asyncio.run(both())


@pytest.mark.parametrize("kind", ["jsonl", "sqlite", "postgres"])
def test_two_versions_may_take_turns_at_one_store(kind, newer_tree, tmp_path):
    url = url_of(kind, tmp_path)

    async def older():
        async with open_store(url, durability="os") as store:
            if not (await store.find(Query())).total:
                await begin(store)
            row = (await store.append("s1", [entry(type="title", title="older")])).row
            assert row == await store.describe("s1") == (await store.find(Query())).items[0]
            return row.last_seq

    asyncio.run(older())
    with Newer(newer_tree, url) as newer:
        assert newer("starred") == []
        assert newer("star", "s1", True)
        for _ in range(3):
            last = asyncio.run(older())
            assert newer("starred") == ["s1"]
            assert newer("row", "s1")["lastSeq"] == last
    with Newer(newer_tree, url) as newer:
        assert newer("starred") == ["s1"]


@pytest.mark.parametrize("kind", ["jsonl", "sqlite", "postgres"])
def test_types_and_fields_of_a_newer_version_are_kept_in_forks_and_copies(kind, newer_tree, tmp_path):
    url = url_of(kind, tmp_path / "here")

    async def work():
        async with open_store(url, durability="os") as store, open_store(url_of("jsonl", tmp_path)) as other:
            await begin(store)
            with Newer(newer_tree, url) as newer:
                newer("star", "s1", True)
                newer("title", "s1", "grown", "good")
                written = newer("entries", "s1")
                sessions = turnlog.Sessions(store)
                fork = await sessions.fork("s1")
                forked = newer("entries", fork.id)
                assert [{**e, "ts": ""} for e in forked[3:]] == [{**e, "ts": ""} for e in written[3:]]
                assert newer("row", fork.id)["starred"]
                assert sorted(newer("starred")) == sorted(["s1", fork.id])
            await copy(store, other)
            entries = await store.read("s1")
            assert [type(e) for e in entries[3:]] == [Foreign, Title]
            assert entries[4].unknown == {"mood": "good"}
            return written, entries

    written, entries = asyncio.run(work())
    with Newer(newer_tree, url_of("jsonl", tmp_path)) as newer:
        copied = newer("entries", "s1")
        assert copied[1:] == written[1:]
        assert "s1" in newer("starred")
    shown(entries)
    exported(entries, written)


def shown(entries):
    """As unknown, wherever people look."""
    row = describe(None, entries)
    assert [(one.type, one.state) for one in explain(entries)][3] == ("unknown: starred", "none")
    star, title = timeline(row, entries)[-2:]
    assert (star.note, star.values) == ("note_unknown", {"type": "starred"})
    assert title.tags == ("newer_fields",)


def exported(entries, written):
    lines = [json.loads(line) for line in "".join(export(entries, describe(None, entries), "native")).splitlines()]
    assert [{**line, "crc32": ""} for line in lines[3:]] == [{**line, "crc32": ""} for line in written[3:]]


def test_the_doctor_names_what_a_newer_version_wrote_and_repairs_nothing(newer_tree, tmp_path):
    url = url_of("jsonl", tmp_path)

    async def work():
        async with open_store(url) as store:
            await begin(store)

    asyncio.run(work())
    with Newer(newer_tree, url) as newer:
        newer("star", "s1", True)
        newer("title", "s1", "grown", "good")
    found = [to_builtins(problem) for problem in doctor.examine(tmp_path / "s").problems]
    told = {problem["what"]: problem["repair"] for problem in found if "unknown" in problem["what"]}
    assert list(told) == ["unknown type: starred", "unknown field: mood"]
    assert all(repair.startswith("none needed") for repair in told.values())

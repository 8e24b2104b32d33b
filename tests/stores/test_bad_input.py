"""Damage, foreign places and hostile names: a clear error with a hint, or correct; never a silent skip."""

import asyncio
import json
import os
import sqlite3
import stat
import threading

import apsw
import pytest

import turnlog
from turnlog import open_store
from turnlog.stores.jsonl.folder import Folder
from turnlog.stores.jsonl.layouts import place_at
from turnlog.stores.sqlite import connection, opening, writer
from turnlog.testing import answered, entry, opened, raises, said

from ..waiting import GIVES_UP_S

SESSIONS = "agents/main/sessions"


def run(coroutine):
    return asyncio.run(coroutine)


async def talk(url, turns=5, session_id="s1"):
    async with open_store(url, durability="os") as store:
        await store.append(session_id, [opened(session_id)])
        async with store.lease(session_id) as lease:
            for n in range(turns):
                await store.append(session_id, [said(f"q{n}"), answered(f"a{n}")], lease=lease)
        return await store.read(session_id)


def damage(path, line, text):
    lines = path.read_bytes().split(b"\n")
    lines[line - 1] = text
    path.write_bytes(b"\n".join(lines))


@pytest.mark.parametrize(
    "rubbish",
    [
        b'{"type":"user","seq":5,"ts":"x","content":"cut of',
        b"\x00" * 40,
        b"\xff\xfe\xfd",
        b'{"type":"hologram","ts":"x","content":"?"}',
        b'{"type":"user","seq":5,"ts":"x","cOntent":"q1"}',
        b'{"seq":5}',
        b"[]",
        b"",
        b'{"type":"user","seq":5,"content":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
def test_damage_in_the_middle_is_named_with_its_line_and_the_rest_is_readable(tmp_path, rubbish):
    entries = run(talk(f"jsonl:{tmp_path}"))
    path = tmp_path / SESSIONS / "s1.jsonl"
    damage(path, 5, rubbish)
    broken = path.read_bytes()

    async def look():
        async with open_store(f"jsonl:{tmp_path}", durability="os") as store:
            error = await raises(turnlog.Corrupt, store.read("s1"))
            assert error.line == 5
            assert str(path) in str(error)
            assert (error.after, error.before) == (4, 6)
            assert await store.read("s1", before=5) == entries[:4]
            assert await store.read("s1", after=5) == entries[5:]
            assert await store.read("s1", limit=4) == entries[:4]
            loaded = await turnlog.Sessions(store).load("s1")
            assert loaded.entries == [e for e in entries if e.seq != 5]
            assert [d.line for d in loaded.damage] == [5]
            assert path.read_bytes() == broken
            assert [r.id for r in (await store.find(turnlog.Query())).items] == ["s1"]
            new = await store.append("s1", [entry(type="title", title="on")])
            assert new[0].seq == 12
        assert path.read_bytes().startswith(broken)

    run(look())
    (tmp_path / SESSIONS / "sessions.index.jsonl").unlink()
    run(look_again(tmp_path))


async def look_again(root):
    async with open_store(f"jsonl:{root}") as store:
        row = await store.describe("s1")
        assert row.last_seq == 12
        assert row.title == "on"
        await raises(turnlog.Corrupt, store.read("s1"))


@pytest.mark.parametrize("line", [1, 11])
def test_a_damaged_first_or_last_line_costs_that_line_only(tmp_path, line):
    entries = run(talk(f"jsonl:{tmp_path}"))
    damage(tmp_path / SESSIONS / "s1.jsonl", line, b"rubbish")
    (tmp_path / SESSIONS / "sessions.index.jsonl").unlink()

    async def look():
        async with open_store(f"jsonl:{tmp_path}") as store:
            assert (await raises(turnlog.Corrupt, store.read("s1"))).line == line
            loaded = await turnlog.Sessions(store).transcript("s1")
            assert loaded.entries == [e for e in entries if e.seq != line]
            assert (await store.find(turnlog.Query())).total == 1
            assert (await store.append("s1", [entry(type="title", title="x")]))[0].seq == 12

    run(look())


def test_a_line_taken_out_is_noticed(tmp_path):
    run(talk(f"jsonl:{tmp_path}"))
    path = tmp_path / SESSIONS / "s1.jsonl"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join(lines[:4] + lines[6:]))

    async def look():
        async with open_store(f"jsonl:{tmp_path}") as store:
            error = await raises(turnlog.Corrupt, store.read("s1"))
            assert "5 to 6" in str(error)
            assert (error.after, error.before) == (4, 7)

    run(look())


MOVED = {
    "written twice": lambda lines: [*lines[:5], lines[4], *lines[5:]],
    "written twice, all of it": lambda lines: [*lines, *lines],
    "two lines changed places": lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]],
    "an early one again at the end": lambda lines: [*lines, lines[2]],
    "an early one again in the middle": lambda lines: [*lines[:8], lines[1], *lines[8:]],
    "something else in between": lambda lines: [*lines[:5], b"rubbish", *lines[5:]],
    "much else in between": lambda lines: [*lines[:5], b"rubbish", b"[]", b"{}", *lines[5:7], b"", *lines[7:]],
}


@pytest.mark.parametrize("moved", MOVED)
@pytest.mark.parametrize("indexed", [True, False])
def test_lines_that_are_there_twice_or_in_another_order_stop_nothing(tmp_path, moved, indexed):
    entries = run(talk(f"jsonl:{tmp_path}"))
    path = tmp_path / SESSIONS / "s1.jsonl"
    path.write_bytes(b"\n".join([*MOVED[moved](path.read_bytes().split(b"\n")[:-1]), b""]))
    if not indexed:
        for index in path.parent.glob("sessions.index*"):
            index.unlink()

    async def look():
        async with open_store(f"jsonl:{tmp_path}", durability="os") as store:
            sessions = turnlog.Sessions(store)
            loaded = await sessions.transcript("s1")
            lost = {5} if moved == "two lines changed places" else set()
            assert [e for e in loaded.entries if e.seq <= 11] == [e for e in entries if e.seq not in lost]
            assert bool(loaded.damage) == (moved not in ("written twice, all of it", "an early one again at the end"))
            async with store.lease("s1") as lease:
                [added] = await store.append("s1", [said("more")], lease=lease)
            assert added.seq > len(entries)
            later = await sessions.transcript("s1")
            assert later.entries == [*loaded.entries, added]
            assert (await store.describe("s1")).last_seq == added.seq
            for after in range(12):
                found = await sessions.transcript("s1", after=after)
                assert found.entries == [e for e in later.entries if e.seq > after]

    run(look())


@pytest.mark.parametrize("line", ["""'{"type":"hologram"}'""", "CAST(x'7b2261223a22ff227d' AS TEXT)", "7"])
def test_damage_in_a_database_is_named_and_the_rest_is_readable(tmp_path, line):
    entries = run(talk(f"sqlite:{tmp_path}/s.db"))
    db = apsw.Connection(str(tmp_path / "s.db"))
    db.execute(f"UPDATE session_messages SET meta_json = {line} WHERE seq = 5")
    db.close()

    async def look():
        async with open_store(f"sqlite:{tmp_path}/s.db") as store:
            error = await raises(turnlog.Corrupt, store.read("s1"))
            assert (error.line, error.after, error.before) == (5, 4, 6)
            loaded = await turnlog.Sessions(store).load("s1")
            assert loaded.entries == [e for e in entries if e.seq != 5]
            await store.search("q4")

    run(look())
    db = apsw.Connection(str(tmp_path / "s.db"))
    db.execute("DELETE FROM session_messages WHERE seq = 5")
    db.close()

    async def look_for_gap():
        async with open_store(f"sqlite:{tmp_path}/s.db") as store:
            error = await raises(turnlog.Corrupt, store.read("s1"))
            assert (error.after, error.before) == (4, 6)

    run(look_for_gap())


@pytest.mark.parametrize("harm", ["UPDATE session_messages SET meta_json = '{}'", "DELETE FROM session_messages"])
def test_going_back_past_damage_in_a_database_works_and_counts_the_rest(tmp_path, harm):
    url = f"sqlite:{tmp_path}/s.db"
    run(talk(url))
    db = apsw.Connection(str(tmp_path / "s.db"))
    db.execute(f"{harm} WHERE seq = 9")
    db.close()

    async def go_back():
        async with open_store(url, durability="os") as store, store.lease("s1") as lease:
            before = (await store.describe("s1")).token_estimate
            row = (await store.append("s1", [turnlog.Rewind(to=7)], lease=lease)).row
            assert (row.last_seq, row.last_role) == (12, "assistant")
            assert row.token_estimate < before

    run(go_back())


@pytest.mark.parametrize(
    "index",
    [None, b"", b"garbage\n", b"\x00" * 100, b'{"index":99}\n', b'{"index":1,"boot":"x"}\n{"row":{"id"', b"[]\n" * 3],
)
def test_whatever_happens_to_the_index_every_session_is_listed(tmp_path, index):
    for n in range(5):
        run(talk(f"jsonl:{tmp_path}", turns=n, session_id=f"s{n}"))
    paths = [tmp_path / SESSIONS / name for name in ("sessions.index.jsonl", "sessions.json")]
    before = json.loads(paths[1].read_bytes())
    for path in paths:
        path.unlink() if index is None else path.write_bytes(index)

    async def rows():
        async with open_store(f"jsonl:{tmp_path}") as store:
            return {row.id: (row.message_count, row.title) for row in (await store.find(turnlog.Query())).items}

    assert run(rows()) == {f"s{n}": (2 * n, "q0" if n else "") for n in range(5)}
    assert json.loads(paths[1].read_bytes()) == before


def test_an_index_that_lies_is_corrected_from_the_files(tmp_path):
    """A transcript restored from a backup, one removed and one added by hand, while nobody was looking."""
    for n in range(3):
        run(talk(f"jsonl:{tmp_path}", turns=3, session_id=f"s{n}"))
    folder = tmp_path / SESSIONS
    shorter = b"\n".join((folder / "s0.jsonl").read_bytes().split(b"\n")[:3]) + b"\n"
    (folder / "s0.jsonl").write_bytes(shorter)
    (folder / "s1.jsonl").rename(folder / "s9.jsonl")

    async def look():
        async with open_store(f"jsonl:{tmp_path}") as store:
            assert sorted(r.id for r in (await store.find(turnlog.Query())).items) == ["s0", "s2", "s9"]
            assert (await store.describe("s0")).last_seq == 3
            await raises(turnlog.NotFound, store.read("s1"))
            assert (await store.describe("s9")).last_seq == 7
            assert await store.reindex() == 3

    run(look())


def test_sessions_json_is_a_copy_with_the_promised_fields(tmp_path):
    run(talk(f"jsonl:{tmp_path}", turns=2))
    rows = json.loads((tmp_path / SESSIONS / "sessions.json").read_bytes())["sessions"]
    assert list(rows) == ["s1"]
    row = rows["s1"]
    names = "id agentId key label title filePath messageCount turnCount createdAt lastAt tokenEstimate status channel"
    assert list(row) == [*names.split(), "compactions"]
    assert (row["messageCount"], row["turnCount"], row["filePath"]) == (4, 2, "s1.jsonl")


@pytest.mark.parametrize("kind", ["jsonl:{}/store", "sqlite:{}/memory/sessions.db"])
def test_files_are_private_from_creation(tmp_path, kind):
    old = os.umask(0)
    try:
        run(talk(kind.format(tmp_path / "deep" / "down")))
    finally:
        os.umask(old)
    for folder, _, files in os.walk(tmp_path / "deep"):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700, folder
        for name in files:
            assert stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) == 0o600, name


async def refused(url, error=turnlog.UsageError, **options):
    return await raises(error, open_store(url, **options).__aenter__())


def test_a_directory_of_another_kind_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    error = run(refused(f"jsonl:{tmp_path}"))
    assert "thesis.tex" in str(error)
    assert os.listdir(tmp_path) == ["thesis.tex"]
    (tmp_path / "file").write_text("x")
    run(refused(f"jsonl:{tmp_path}/file"))
    run(refused(f"jsonl:{tmp_path}/file/below", turnlog.TurnlogError))


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "other.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE precious (x)")
    db.commit()
    db.close()
    before = path.read_bytes()
    run(refused(f"sqlite:{path}"))
    assert path.read_bytes() == before
    (tmp_path / "text.db").write_bytes(b"this is no database, whatever its name says" * 50)
    run(refused(f"sqlite:{tmp_path}/text.db"))
    assert (tmp_path / "text.db").read_bytes().startswith(b"this is no")


def test_what_a_newer_turnlog_made_is_refused_with_the_hint_to_upgrade(tmp_path):
    run(talk(f"sqlite:{tmp_path}/s.db"))
    db = apsw.Connection(str(tmp_path / "s.db"))
    db.pragma("user_version", 99)
    db.close()
    assert "Upgrade" in run(refused(f"sqlite:{tmp_path}/s.db", turnlog.StoreError)).hint
    run(talk(f"jsonl:{tmp_path}/j"))
    marker = tmp_path / "j/turnlog.json"
    marker.write_text('{"turnlog": 99}')
    assert "Upgrade" in run(refused(f"jsonl:{tmp_path}/j", turnlog.StoreError)).hint
    marker.write_text("rubbish")
    run(refused(f"jsonl:{tmp_path}/j"))
    marker.unlink()

    async def look():
        path = tmp_path / "j" / SESSIONS / "s1.jsonl"
        path.write_bytes(path.read_bytes().replace(b'"version":1,', b'"version":99,', 1))
        notices = []
        async with open_store(f"jsonl:{tmp_path}/j", on_notice=notices.append) as store:
            before = path.read_bytes()
            assert "Upgrade" in (await raises(turnlog.StoreError, store.read("s1"))).hint
            title = [entry(type="title", title="x")]
            assert "Upgrade" in (await raises(turnlog.StoreError, store.append("s1", title))).hint
            assert path.read_bytes() == before

    (tmp_path / "j" / SESSIONS / "sessions.index.jsonl").unlink()
    run(look())


def test_a_folder_says_which_files_came_and_went_whatever_else_lies_there(tmp_path):
    """The same as comparing a list of its files, which costs twice as much with many of them."""
    root = tmp_path / "j"

    async def plant():
        async with open_store(f"jsonl:{root}") as store:
            for name in ("a", "b", "c"):
                await store.append(name, [opened(name)])

    asyncio.run(plant())
    here = root / SESSIONS
    for name in ("new.jsonl", "not an id.jsonl", "notes.txt", ".hidden.jsonl"):
        (here / name).write_bytes(b"")
    (here / "folder.jsonl").mkdir()
    (here / "linked.jsonl").symlink_to(here / "a.jsonl")
    (here / "b.jsonl").unlink()
    (here / "c.jsonl").unlink()
    (here / "c.jsonl").symlink_to(here / "a.jsonl")
    folder = Folder(place_at(root, None, None), "main", lambda notice: None)
    known = {"a": 1, "b": 2, "c": 3}.keys()
    files = folder.list(known).keys()
    assert folder.compare(known) == (files - known, known - files) == ({"new"}, {"b", "c"})
    assert folder.compare(files) == (set(), set())


def test_symbolic_links_are_not_followed(tmp_path):
    run(talk(f"jsonl:{tmp_path}/j"))
    secret = tmp_path / "secret.jsonl"
    secret.write_bytes((tmp_path / "j" / SESSIONS / "s1.jsonl").read_bytes())
    (tmp_path / "j" / SESSIONS / "evil.jsonl").symlink_to(secret)

    async def look():
        async with open_store(f"jsonl:{tmp_path}/j") as store:
            await raises(turnlog.TurnlogError, store.read("evil"))
            assert [r.id for r in (await store.find(turnlog.Query())).items] == ["s1"]

    run(look())


@pytest.mark.parametrize(
    "url", ["", "nonsense", "ftp:x", "jsonl:", "sqlite:", "jsonl:/tmp/x?dialect=klingon", "sqlite:/tmp/x?y=1", "memory"]
)
def test_a_wrong_url_is_a_usage_error(url):
    run(refused(url))


def test_an_unknown_durability_is_a_usage_error():
    run(refused("memory:", durability="maybe"))


def test_agents_with_hostile_names_get_no_directory(tmp_path):
    async def look():
        async with open_store(f"jsonl:{tmp_path}/j") as store:
            for agent in ("../../evil", "A", "", "a b", "x" * 65):
                body = entry(type="session", version=1, id="s1", key="k", agent=agent, channel="cli")
                await raises(turnlog.UsageError, store.append("s1", [body]))
            other = entry(type="session", version=1, id="other", key="k", agent="main", channel="cli")
            await raises(turnlog.UsageError, store.append("s1", [other]))
            assert (await store.find(turnlog.Query())).total == 0

    run(look())
    assert not [name for name in os.listdir(tmp_path) if name != "j"]


def test_a_session_deleted_elsewhere_is_gone_here_too(tmp_path):
    for url in (f"jsonl:{tmp_path}/j", f"sqlite:{tmp_path}/s.db"):

        async def look(url=url):
            async with open_store(url) as one, open_store(url) as two:
                await one.append("s1", [opened("s1")])
                async with two.lease("s1") as lease:
                    await two.append("s1", [said("hi")], lease=lease)
                    await one.delete("s1")
                    await raises(turnlog.NotFound, two.append("s1", [answered("late")], lease=lease))
                    await raises(turnlog.NotFound, two.read("s1"))
                    await raises(turnlog.NotFound, two.describe("s1"))
                assert (await two.find(turnlog.Query())).total == 0

        run(look())


@pytest.mark.parametrize("kind", ["jsonl:{}/store", "sqlite:{}/sessions.db"])
def test_a_deleted_session_leaves_none_of_its_words_behind(tmp_path, kind):
    secret = "zebrafisch"

    async def go():
        async with open_store(kind.format(tmp_path)) as store:
            for n in range(3):
                await store.append(f"s{n}", [opened(f"s{n}")])
                async with store.lease(f"s{n}") as lease:
                    word = secret if n == 1 else "harmless"
                    await store.append(f"s{n}", [said(f"{word} {n}"), answered(f"{word} again")], lease=lease)
            assert len(await store.search(secret)) == 2
            await store.delete("s1")
            assert await store.search(secret) == []
            assert len(await store.search("harmless")) == 4

    run(go())
    for folder, _, files in os.walk(tmp_path):
        for name in files:
            with open(os.path.join(folder, name), "rb") as file:
                assert secret.encode() not in file.read().lower(), name


def test_every_exception_of_the_driver_is_mapped():
    kinds = [kind for kind in vars(apsw).values() if isinstance(kind, type) and issubclass(kind, apsw.Error)]
    assert len(kinds) > 25
    for kind in kinds:
        ours = writer.mapped(kind("why"))
        assert isinstance(ours, turnlog.TurnlogError), kind
        assert isinstance(ours.__cause__, kind)


def test_migrations_build_the_schema_step_by_step_and_at_once(tmp_path):
    steps = opening.migrations()
    at_once = connection.SqliteConnection(":memory:")
    opening.migrate(at_once, "here")
    by_steps = connection.SqliteConnection(":memory:")
    for step in steps:
        by_steps.run(step)
    # Not the index of words, which stores/word_index makes.
    query = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE tbl_name NOT LIKE 'search_%' ORDER BY type, name"
    assert at_once.all(query) == by_steps.all(query)
    assert at_once.pragma("user_version") == len(steps)
    opening.migrate(at_once, "here")


def test_the_tables_say_what_the_spec_says(tmp_path):
    async def fold():
        async with open_store(f"sqlite:{tmp_path}/s.db", inject="assistant") as store:
            await store.append("s1", [opened("s1"), entry(type="selected", n=1)])
            async with store.lease("s1") as lease:
                await store.append("s1", [said("u1"), answered("a1"), said("u2")], lease=lease)
                body = entry(type="compaction", summary="so far", first_kept=5, covers=[3, 4], model="m")
                await store.append("s1", [body], lease=lease)
                await store.append("s1", [entry(type="tool_result", tool_use_id="x", content=[])], lease=lease)

    async def undo():
        async with open_store(f"sqlite:{tmp_path}/s.db") as store, store.lease("s1") as lease:
            await store.append("s1", [entry(type="undo", target=6)], lease=lease)

    run(fold())
    db = sqlite3.connect(tmp_path / "s.db")
    rows = db.execute("SELECT id, seq, role, content FROM session_messages ORDER BY id").fetchall()
    assert [(row[1], row[2], row[3]) for row in rows] == [
        (1, None, None),
        (2, None, None),
        (3, "user", "u1"),
        (4, "assistant", "a1"),
        (5, "user", "u2"),
        (6, "assistant", "[Session Compaction Summary]\nso far"),
        (7, "tool", "[]"),
    ]
    facts = {key: json.loads(value) for key, value in db.execute("SELECT key, value_json FROM session_state")}
    assert facts == {"compaction_after_message_id": rows[3][0], "compaction_summary": "so far"}
    key = "agent:main:cli:direct:user"
    assert db.execute("SELECT session_key, active_session_id FROM session_index").fetchall() == [(key, "s1")]
    assert db.execute("SELECT status, title, message_count, boundary FROM sessions").fetchall() == [
        ("active", "u1", 3, 5)
    ]
    db.close()  # two SQLite libraries must not have one file open at the same time
    run(undo())
    db = sqlite3.connect(tmp_path / "s.db")
    assert db.execute("SELECT count(*) FROM session_state").fetchone() == (0,)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    db.close()


@pytest.mark.parametrize("url", ["memory:", "jsonl:{}/files", "sqlite:{}/s.db"])
def test_the_ledger_takes_keys_and_facts_with_characters_that_no_file_can_hold(tmp_path, url):
    keys = ("chat \ud800", "chat \udfff", "chat \0", "chat \\0x")

    async def main():
        async with open_store(url.format(tmp_path), durability="os") as store:
            for number, key in enumerate(keys):
                fact = {"chat": "\ud800", "n": number}
                assert await store.ledger.put_if_absent("spare", key, fact) is None
                assert await store.ledger.cas("spare", key, fact, {**fact, "n": number + 1})
                assert (await store.ledger.get("spare", key))["n"] == number + 1
            found = await store.ledger.list("spare", prefix="chat \ud800")
            assert [fact.value["n"] for fact in found] == [1]
            assert await store.ledger.delete("spare", found[0].key)
            assert len(await store.ledger.list("spare", prefix="chat ")) == len(keys) - 1

    run(main())


def test_a_store_that_is_closed_while_somebody_reads_lets_them_finish(tmp_path):
    async def work():
        begun, goes_on = threading.Event(), threading.Event()

        def slow(db):
            begun.set()
            goes_on.wait(GIVES_UP_S)
            numbers = "WITH RECURSIVE n(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM n LIMIT 300000)"
            return db.one(f"{numbers} SELECT max(x) FROM n")

        async with open_store(f"sqlite:{tmp_path}/s.db") as store:
            reading = asyncio.create_task(store._look_aside(slow))
            await asyncio.to_thread(begun.wait, GIVES_UP_S)
            asyncio.get_running_loop().call_later(0.05, goes_on.set)
        return await reading

    assert run(work()) == 300_000

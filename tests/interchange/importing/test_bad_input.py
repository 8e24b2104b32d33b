"""Files that are not what they seem: clear words, nothing overwritten, nothing followed out of the tree."""

import asyncio
import json
import os
import subprocess
import sys
import tracemalloc

import apsw
import pytest

import turnlog
from turnlog.interchange.importing import databases, documents, import_path, lines
from turnlog.interchange.importing.draft import Draft

from .conftest import make_zeroclaw

USER = {"type": "user", "content": "hi", "ts": 1771100000}


def write(path, *values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


def refused(run, path):
    with pytest.raises(turnlog.UsageError) as caught:
        run(path)
    assert caught.value.hint
    return str(caught.value)


def test_a_directory_of_another_kind_is_refused_in_clear_words(tmp_path, run):
    (tmp_path / "package.json").write_text('{"name": "x"}')
    (tmp_path / "readme.txt").write_text("hello")
    assert "not a transcript of a known kind" in refused(run, tmp_path)


def test_a_path_that_is_not_there_is_said_to_be_missing(tmp_path, run):
    with pytest.raises(turnlog.NotFound):
        run(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"type": "user"}\n'.encode("utf-16"), "UTF-16"),
        (b"\x28\xb5\x2f\xfd\x00\x00", "zstd"),
        (b"\x1f\x8b\x08\x00", "gzip"),
        (b"", "empty"),
        (b"\x00\x01\x02", "not text"),
        (b"just words\n", "not a transcript of a known kind"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path, run, content, words):
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    assert words in refused(run, path)


def test_bytes_that_are_not_utf8_cost_themselves_only(tmp_path, run):
    path = tmp_path / "aaaabbbbcccc.jsonl"
    path.write_bytes(b'{"type":"user","content":"caf\xe9 and more","ts":1771100000}\n')
    result = run(path)
    assert result.history()[0]["content"] == "caf\ufffd and more"
    assert "line 1: not UTF-8" in result.notes()


def test_blocks_of_zeros_that_a_power_cut_left_cost_themselves_only(tmp_path, run):
    path = write(tmp_path / "aaaabbbbcccc.jsonl", USER, {**USER, "content": "on"})
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + b"\0" * 4096 + b"\n" + second + b"\0" * 4096)
    result = run(path)
    assert result.history()[0]["content"] == "hi\n\non"
    assert "line 2: not readable" in result.notes()
    assert "line 4: the end is torn" in result.notes()


def test_symbolic_links_are_not_followed(tmp_path, run):
    outside = tmp_path / "outside"
    outside.mkdir()
    write(outside / "secret99999999.jsonl", USER)
    tree = tmp_path / "tree"
    tree.mkdir()
    write(tree / "aaaabbbbcccc.jsonl", USER)
    (tree / "link11111111.jsonl").symlink_to(outside / "secret99999999.jsonl")
    (tree / "folder").symlink_to(outside)
    (tree / "sessions.json").symlink_to(outside / "secret99999999.jsonl")
    result = run(tree)
    assert len(result.logs) == 1
    assert result.notes().count("symbolic link") == 3
    assert "symbolic link" in refused(run, tree / "link11111111.jsonl")


def test_a_pipe_is_not_waited_for(tmp_path, run):
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert "not a regular file" in refused(run, tmp_path)


@pytest.mark.parametrize("chunk", [64, 1 << 20])
def test_a_line_that_is_too_long_costs_that_line_and_is_never_held(tmp_path, run, monkeypatch, chunk):
    monkeypatch.setattr(lines, "LINE_MAX_BYTES", 1000)
    monkeypatch.setattr(lines, "CHUNK", chunk)
    path = write(tmp_path / "aaaabbbbcccc.jsonl", USER, {**USER, "content": "x" * 5000}, {**USER, "content": "after"})
    result = run(path)
    assert "line 2: not readable (longer than 1,000 bytes)" in result.notes()
    assert "after" in str(result.history())


def test_of_a_line_that_is_too_long_only_a_part_is_held(monkeypatch):
    monkeypatch.setattr(lines, "LINE_MAX_BYTES", 1000)
    tracemalloc.start()
    found = list(lines._lines(b"x" * 100_000 for _ in range(200)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == [(1, None, False)]
    assert peak < 2_000_000


def test_what_no_store_would_take_keeps_its_place_and_is_named(tmp_path, run):
    deep = "x"
    for _ in range(300):
        deep = [deep]
    path = write(
        tmp_path / "aaaabbbbcccc.jsonl",
        USER,
        {**USER, "content": [{"type": "odd", "v": deep}]},
        {**USER, "content": "on"},
    )
    result = run(path)
    assert "could not be stored" in result.notes()
    assert "on" in str(result.history())
    huge = write(tmp_path / "bbbbccccdddd.jsonl", {"type": "x", "n": 10**400}, USER)
    assert run(huge).history()


def test_lone_surrogates_and_nuls_survive(tmp_path, run):
    path = tmp_path / "aaaabbbbcccc.jsonl"
    path.write_text('{"type":"user","content":"a\\ud800b\\u0000","ts":1}\n', encoding="utf-8")
    first, second = run(path, path)
    assert first.log()[2].content == "a\ud800b\x00"
    assert second.only().entries == 0


def test_a_document_cut_in_the_middle_gives_what_is_whole(tmp_path, run):
    whole = json.dumps([{"role": "user", "content": f"m{n}"} for n in range(20)])
    path = tmp_path / "cut12345678.json"
    path.write_text(whole[:-25], encoding="utf-8")
    result = run(path)
    assert "m17" in str(result.history())
    assert "torn or still being written" in result.notes()


@pytest.mark.parametrize("size", [1, 7, 64, 1 << 20])
def test_documents_are_read_the_same_in_pieces_of_any_size(tmp_path, monkeypatch, size):
    monkeypatch.setattr(lines, "CHUNK", size)
    value = {"a": [1, {"b": 'ü\\"'}], "messages": [{"role": "user", "content": "é" * 50}, {"n": -1.5e3}, 7], "z": 12345}
    path = tmp_path / "d.json"
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")
    found = list(documents.records(path))
    assert [record.value for record in found if not record.field] == value["messages"]
    assert {record.field: record.value for record in found if record.field} == {"a": value["a"], "z": 12345}


def test_a_database_that_its_owner_is_writing_is_read_beside_it(tmp_path, run):
    path = tmp_path / "sessions.db"
    make_zeroclaw(path)
    owner = apsw.Connection(str(path))
    owner.pragma("journal_mode", "wal")
    owner.execute(
        "INSERT INTO session_messages (session_id, role, content, created_at) VALUES ('n', 'user', 'new', '')"
    )
    before = sorted(p.name for p in tmp_path.iterdir())
    result = run(path)
    assert any("new" in str(result.history(session_id)) for session_id in result.logs)
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    owner.execute("INSERT INTO session_messages (session_id, role, content, created_at) VALUES ('n', 'user', 'on', '')")
    owner.close()


def test_a_database_that_nobody_has_open_gets_no_files_beside_it(tmp_path, run):
    path = tmp_path / "sessions.db"
    make_zeroclaw(path)
    owner = apsw.Connection(str(path))
    owner.pragma("journal_mode", "wal")
    owner.close()
    assert len(run(path).logs) == 3
    assert [p.name for p in tmp_path.iterdir()] == ["sessions.db"]


def test_a_log_that_a_crash_left_is_read_from_a_copy(tmp_path, run):
    path = tmp_path / "live" / "sessions.db"
    path.parent.mkdir()
    make_zeroclaw(path)
    owner = apsw.Connection(str(path))
    owner.pragma("journal_mode", "wal")
    owner.execute(
        "INSERT INTO session_messages (session_id, role, content, created_at) VALUES ('n', 'user', 'new', '')"
    )
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("sessions.db", "sessions.db-wal"):
        (copy / name).write_bytes((path.parent / name).read_bytes())
    result = run(copy / "sessions.db")
    assert any("new" in str(result.history(session_id)) for session_id in result.logs)
    assert sorted(p.name for p in copy.iterdir()) == ["sessions.db", "sessions.db-wal"], "no -shm was made"
    owner.close()


def test_a_damaged_database_and_one_of_another_program_are_named(tmp_path, run):
    path = tmp_path / "sessions.db"
    path.write_bytes(databases.MAGIC + b"\xff" * 5000)
    assert "damaged" in refused(run, path)
    other = tmp_path / "other.db"
    apsw.Connection(str(other)).execute("CREATE TABLE x (y)")
    assert "another program" in refused(run, other)
    asyncio.run(make_store(tmp_path / "ours.db"))
    assert "is a Turnlog store" in refused(run, tmp_path / "ours.db")


async def make_store(path):
    async with turnlog.open(f"sqlite:{path}") as t:
        await t.sessions.open("agent:main:cli:direct:user")


def test_many_small_files_are_imported_one_by_one(tmp_path, run):
    for n in range(300):
        write(tmp_path / f"session-{n:012d}.jsonl", {**USER, "content": f"number {n}"})
    seen = []
    result = run(tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert len(result.logs) == 300
    assert seen[-1][0] == seen[-1][1] > 0
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


MEASURED = """
import asyncio, resource, sys
import turnlog
from turnlog.interchange.importing import import_path
async def go():
    calls = []
    async with turnlog.open_store(f"sqlite:{sys.argv[2]}", durability="os") as store:
        (warm,) = await import_path(store, sys.argv[3])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        (result,) = await import_path(store, sys.argv[1], progress=lambda done, total: calls.append((done, total)))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(result.entries, grown, len(calls), calls[-1][0] == calls[-1][1])
asyncio.run(go())
"""


def test_a_large_file_is_read_in_bounded_memory_and_shows_progress(tmp_path):
    small = write(tmp_path / "aaaabbbbcccc.jsonl", USER)
    large = tmp_path / "bbbbccccdddd.jsonl"
    count, size = 6_000, 10_000
    with large.open("w", encoding="utf-8") as file:
        for n in range(count):
            file.write(json.dumps({**USER, "content": f"{n} " + "x" * size}) + "\n")
    command = [sys.executable, "-c", MEASURED, str(large), str(tmp_path / "s.db"), str(small)]
    done = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert int(done[0]) > count
    assert int(done[1]) < 48 * 1024, f"{done[1]} KiB more for a file of {large.stat().st_size >> 10} KiB"
    assert int(done[2]) > 20
    assert done[3] == "True"


def test_notes_stay_short_however_often_something_happens():
    draft = Draft("pi")
    for n in range(1000):
        draft.note("odd", f"line {n}")
    assert draft.notes() == ("line 0, line 1, line 2, line 3, line 4 and 995 more: odd",)


def test_an_agent_or_key_that_is_none_is_refused_before_anything_is_read(tmp_path):
    async def go():
        async with turnlog.open_store("memory:") as store:
            with pytest.raises(turnlog.UsageError):
                await import_path(store, tmp_path, agent="No Agent")
            with pytest.raises(turnlog.UsageError):
                await import_path(store, tmp_path, key="nonsense")

    asyncio.run(go())


@pytest.mark.parametrize("key", ["agent:../../x:cli:direct:user", "nonsense", "agent:..:cli:direct:u", ""])
def test_a_forged_transcript_cannot_choose_a_path(tmp_path, run, key):
    header = {"type": "session", "seq": 1, "id": "s1", "key": key, "agent": "../../x", "channel": "cli"}
    path = write(tmp_path / "x.jsonl", header, {"type": "user", "seq": 2, "content": "hi"})
    result = run(path, url=f"jsonl:{tmp_path}/deep/er/store")
    (row,) = result.rows.values()
    assert (row.agent, row.key) == ("main", "agent:main:native:direct:import")
    assert [p.name for p in (tmp_path / "deep" / "er").iterdir()] == ["store"]


def test_a_forged_id_is_not_used(tmp_path, run):
    header = {
        "type": "session",
        "seq": 1,
        "id": "../evil",
        "key": "agent:main:cli:direct:u",
        "agent": "main",
        "channel": "c",
    }
    result = run(write(tmp_path / "x.jsonl", header, {"type": "user", "seq": 2, "content": "hi"}))
    assert result.only().id.startswith("imp-")


def test_forged_seqs_cannot_make_an_import_endless(tmp_path, run):
    header = {
        "type": "session",
        "seq": 1,
        "id": "s1",
        "key": "agent:main:cli:direct:u",
        "agent": "main",
        "channel": "cli",
    }
    users = [{"type": "user", "seq": seq, "content": f"n{seq}"} for seq in (2, 2, 10**15, 1, 5)]
    result = run(write(tmp_path / "x.jsonl", header, *users, {"type": "rewind", "seq": 6, "to": 99}))
    assert [message["content"] for message in result.history()] == ["n2\n\nn5"]
    assert "out of order" in result.notes()
    assert "kept and without effect: it names entry 99" in result.notes()


def test_a_subagents_own_file_is_a_conversation_of_its_own(tmp_path, run):
    lines_ = [
        {
            "parentUuid": None,
            "isSidechain": True,
            "type": "user",
            "uuid": "a",
            "message": {"role": "user", "content": "go"},
        },
        {
            "parentUuid": "a",
            "isSidechain": True,
            "type": "assistant",
            "uuid": "b",
            "message": {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
        },
    ]
    assert len(run(write(tmp_path / "agent-12345678.jsonl", *lines_)).history()) == 2

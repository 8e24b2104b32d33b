"""The doctor only reads, names every known kind of damage with its place, and can take back what it did."""

import asyncio
import json
import os
import shutil
from pathlib import Path

import apsw
import msgspec
import pytest

import turnlog
from turnlog.interchange import doctor
from turnlog.interchange.doctor.databases import verdict

FIXTURES = Path(__file__).parents[1] / "transcripts" / "import"


@pytest.fixture
def foreign(tmp_path):
    root = tmp_path / "foreign"
    shutil.copytree(FIXTURES, root)
    db = apsw.Connection(str(root / "zeroclaw" / "sessions.db"))
    db.execute((root / "zeroclaw" / "schema.sql").read_text(encoding="utf-8"))
    db.close()
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return root


def snapshot(root):
    found = {}
    for path in [root, *sorted(root.rglob("*"))]:
        there = path.stat()
        found[str(path)] = (there.st_mode, path.is_file() and (there.st_mtime_ns, path.read_bytes()))
    return found


def told(path):
    return [f"{p.where}: {p.what} -> {p.repair}" for p in doctor.examine(path).problems]


def names(path, *words):
    return any(all(word in line for word in words) for line in told(path))


def test_examining_changes_nothing(foreign):
    before = snapshot(foreign)
    doctor.examine(foreign)
    assert snapshot(foreign) == before


def test_the_report_has_the_documented_shape(foreign):
    report = msgspec.to_builtins(doctor.examine(foreign))
    assert set(report) == {"problems", "sqlite"}
    assert all(set(problem) == {"where", "what", "repair"} for problem in report["problems"])
    assert set(report["sqlite"]) == {"library", "verdict", "databases"}
    json.dumps(report)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("pi", ("line 17", "unreadable line")),
        ("pi", ("line 18", "dangling parent", "let it follow 0000000f")),
        ("pi", ("line 19", "torn line", "cut it off")),
        ("openclaw", ("line 4", "duplicate id: aaaaaaab is also in line 3")),
        ("openclaw", ("line 6", "call without a result: call-9")),
        ("zyhive", ("line 8", "second header")),
        ("zyhive", ("no header",)),
        ("zyhive", ("index drift: 1 transcripts are not in it and 1 rows have no transcript",)),
        ("claw0", ("line 3", "call written twice")),
        ("claw0", ("no newline at the end",)),
        ("claw0-keyed", ("line 2", "result before its call")),
        ("claw0-keyed", ("index drift: the index cannot be read",)),
        ("zeroclaw", ("index drift: 1 messages of sessions that are not there",)),
        ("zeroclaw", ("index drift: 1 keys of sessions that are not there",)),
        ("opencode", ("message 2", "call without a result: toolu_8")),
        ("pi", ("permissions: others may read 1 files and list 2 directories",)),
    ],
)
def test_known_damage_is_named_with_its_place_and_what_could_be_done(foreign, kind, words):
    assert names(foreign / kind, *words), told(foreign / kind)


def test_an_orphan_result_and_a_half_copied_document_are_named(tmp_path):
    path = tmp_path / "aaaabbbbcccc.jsonl"
    path.write_text('{"type":"user","content":"hi"}\n{"type":"tool_result","tool_use_id":"t9","content":"x"}\n')
    assert names(path, "line 2", "result without a call: t9")
    document = tmp_path / "cut.json"
    document.write_text('[{"role": "user", "content": "hi"}, {"role": "assis')
    assert names(document, "message 2", "torn document")


def test_repairs_mend_what_they_say_and_leave_the_rest(foreign):
    before = doctor.examine(foreign)
    repaired = doctor.apply(foreign)
    after = doctor.examine(foreign)
    assert [problem for problem in after.problems if not problem.repair.startswith("none")] == []
    assert {problem.what for problem in repaired.problems} == {problem.what for problem in after.problems}
    assert len(after.problems) < len(before.problems)
    index = json.loads((foreign / "claw0-keyed/.sessions/sessions.json").read_text())
    assert index["main:cli:user"]["transcript_file"] == "main_cli_user_0a1b2c3d4e5f.jsonl"
    index = json.loads((foreign / "zyhive/agents/scout/sessions/sessions.json").read_text())["sessions"]
    assert index["ses-1771000000000"]["tokenEstimate"] == 812, "a row that is there keeps what it says"
    assert index["ses-1771000009000"]["messageCount"] == 2
    assert "ses-1771000000001" not in index
    assert (foreign / "pi").stat().st_mode & 0o777 == 0o700
    (pi,) = (foreign / "pi").rglob("*.jsonl")
    lines = pi.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 18
    assert json.loads(lines[17])["parentId"] == "0000000f"
    assert lines[:17] == (FIXTURES / pi.relative_to(foreign)).read_text(encoding="utf-8").splitlines()[:17]


def test_reverting_puts_every_byte_mode_and_time_back(foreign):
    before = snapshot(foreign)
    repaired = doctor.apply(foreign)
    assert snapshot(foreign) != before
    assert Path(repaired.backup).stat().st_mode & 0o777 == 0o700
    assert set(doctor.revert(foreign)) == set(repaired.changed)
    assert snapshot(foreign) == before
    assert not Path(repaired.backup).exists()
    with pytest.raises(turnlog.NotFound):
        doctor.revert(foreign)


def test_repairs_are_taken_back_one_by_one_newest_first(foreign):
    first = snapshot(foreign)
    doctor.apply(foreign)
    second = snapshot(foreign)
    (pi,) = (foreign / "pi").rglob("*.jsonl")
    with pi.open("a", encoding="utf-8") as file:
        file.write('{"torn')
    third = snapshot(foreign)
    doctor.apply(foreign)
    doctor.revert(foreign)
    assert snapshot(foreign) == third
    pi.write_bytes(second[str(pi)][1][1])
    os.utime(pi, ns=(second[str(pi)][1][0],) * 2)
    doctor.revert(foreign)
    assert snapshot(foreign) == first


def test_a_file_that_changed_since_the_repair_is_not_overwritten_by_a_revert(foreign):
    doctor.apply(foreign)
    (pi,) = (foreign / "pi").rglob("*.jsonl")
    with pi.open("a", encoding="utf-8") as file:
        file.write('{"type":"message"}\n')
    before = snapshot(foreign)
    with pytest.raises(turnlog.Conflict, match="has changed since"):
        doctor.revert(foreign)
    assert snapshot(foreign) == before


def test_a_repair_that_died_before_it_changed_anything_is_cleared_away(foreign):
    leftover = foreign.with_name("foreign.doctor-1")
    leftover.mkdir()
    (leftover / "1").write_text("copy")
    assert doctor.revert(foreign) == ()
    assert not leftover.exists()


def test_a_repair_that_died_half_way_can_be_reverted(foreign, monkeypatch):
    from turnlog.interchange.doctor import repairs

    before = snapshot(foreign)
    real, calls = repairs._put, []

    def dying(*args):
        calls.append(1)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(*args)

    monkeypatch.setattr(repairs, "_put", dying)
    with pytest.raises(turnlog.StoreUnavailable):
        doctor.apply(foreign)
    monkeypatch.undo()
    assert snapshot(foreign) != before
    doctor.revert(foreign)
    assert snapshot(foreign) == before


def test_a_damaged_manifest_is_said_to_be_damaged_and_nothing_is_touched(foreign):
    repaired = doctor.apply(foreign)
    (Path(repaired.backup) / "manifest.json").write_text("nonsense")
    before = snapshot(foreign)
    with pytest.raises(turnlog.UsageError, match="cannot be read"):
        doctor.revert(foreign)
    assert snapshot(foreign) == before


def test_nothing_to_repair_makes_no_backup(tmp_path):
    path = tmp_path / "aaaabbbbcccc.jsonl"
    path.write_text('{"type":"user","content":"hi"}\n')
    path.chmod(0o600)
    assert doctor.examine(path).problems == ()
    assert doctor.apply(path) == doctor.Repaired((), "", ())
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_symbolic_links_are_named_and_neither_followed_nor_changed(foreign, tmp_path):
    outside = tmp_path / "outside.jsonl"
    outside.write_text('{"type":"user","content":"hi"}')
    outside.chmod(0o644)
    (foreign / "claw0" / "link11112222.jsonl").symlink_to(outside)
    assert names(foreign / "claw0", "link11112222.jsonl", "symbolic link")
    doctor.apply(foreign / "claw0")
    assert outside.read_text() == '{"type":"user","content":"hi"}'
    assert outside.stat().st_mode & 0o777 == 0o644


def test_a_path_of_another_kind_is_refused(tmp_path):
    (tmp_path / "x.txt").write_text("hello")
    with pytest.raises(turnlog.UsageError, match="nothing of a known kind"):
        doctor.examine(tmp_path)
    with pytest.raises(turnlog.NotFound):
        doctor.examine(tmp_path / "missing")


@pytest.mark.parametrize("url", ["sqlite:{}/sessions.db", "jsonl:{}"])
def test_our_own_stores_are_found_healthy_and_their_damage_is_named(tmp_path, url):
    root = tmp_path / "store"
    root.mkdir(mode=0o700)

    async def make():
        async with turnlog.open(url.format(root)) as t:
            row = await t.sessions.open("agent:main:cli:direct:user")
            return row.id

    session_id = asyncio.run(make())
    assert doctor.examine(root).problems == ()
    if url.startswith("jsonl"):
        path = root / "agents/main/sessions" / f"{session_id}.jsonl"
        before = path.read_bytes()
        path.write_bytes(before + b"garbage\n" + b'{"type":"user","se')
        assert names(root, "line 3", "unreadable line")
        assert names(root, "line 4", "torn line", "none needed")
        doctor.apply(root)
        assert path.read_bytes().startswith(before + b"garbage\n"), "what the store mends itself is left to it"


def test_a_damaged_database_is_named_and_never_touched(foreign):
    path = foreign / "zeroclaw" / "sessions.db"
    data = bytearray(path.read_bytes())
    data[4096 : 4096 * 2] = b"\xff" * 4096
    path.write_bytes(data)
    path.chmod(0o600)
    assert names(path, "damage")
    assert doctor.apply(path).changed == ()
    assert path.read_bytes() == data


def test_databases_say_their_version_mode_and_integrity(foreign):
    db = apsw.Connection(str(foreign / "zeroclaw" / "sessions.db"))
    db.pragma("journal_mode", "wal")
    db.close()
    (database,) = doctor.examine(foreign / "zeroclaw").sqlite.databases
    assert (database.user_version, database.journal_mode, database.integrity) == (4, "wal", "ok")


@pytest.mark.parametrize(
    ("version", "word"),
    [
        ((3, 40, 1), "WAL-reset"),
        ((3, 51, 2), "WAL-reset"),
        ((3, 51, 3), "good"),
        ((3, 52, 0), "withdrawn"),
        ((3, 54, 1), "good"),
    ],
)
def test_the_versions_of_sqlite_that_can_damage_a_database_are_known(version, word):
    assert word in verdict(version)


def test_the_library_in_use_is_a_good_one():
    assert verdict(tuple(map(int, apsw.sqlite_lib_version().split(".")))) == "good"


def test_bloat_is_named(tmp_path, monkeypatch):
    from turnlog.interchange.doctor import transcripts

    monkeypatch.setattr(transcripts, "LINE_LARGE_BYTES", 100)
    monkeypatch.setattr(transcripts, "FILE_LARGE_BYTES", 200)
    path = tmp_path / "aaaabbbbcccc.jsonl"
    path.write_text(json.dumps({"type": "user", "content": "x" * 300}) + "\n")
    assert names(path, "bloat", "in one file")
    assert names(path, "bloat", "a line of")


def test_many_findings_of_one_kind_are_counted(tmp_path):
    path = tmp_path / "aaaabbbbcccc.jsonl"
    path.write_text('{"type":"user","content":"hi"}\n' + "nonsense\n" * 300)
    path.chmod(0o600)
    lines = told(path)
    assert len(lines) == 101
    assert "200 more" in lines[-1]


def test_progress_is_told(foreign):
    seen = []
    doctor.examine(foreign, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] == len(seen)


def test_a_missing_index_is_written_and_taken_away_again(foreign):
    index = foreign / "claw0/.sessions/agents/main/sessions.json"
    index.unlink()
    before = snapshot(foreign)
    assert names(foreign / "claw0", "1 transcripts are not in it")
    doctor.apply(foreign / "claw0")
    assert json.loads(index.read_text())["3f2a1b4c5d6e"]["message_count"] == 5
    doctor.revert(foreign / "claw0")
    assert snapshot(foreign) == before

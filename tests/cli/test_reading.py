"""Commands that only read: they make no store, open one that cannot be written, and name a damaged file."""

import asyncio
import json
import os
import subprocess
import sys

import pytest

import turnlog
from turnlog.cli import app
from turnlog.convlog import open_convlog
from turnlog.memory import open_memory, place_of
from turnlog.testing import answered, opened, said

from ..stores.test_faults import mounted, quiet

READING = [
    ("sessions", "list"),
    ("sessions", "show", "s1"),
    ("sessions", "search", "question"),
    ("sessions", "export", "s1", "--format", "native"),
    ("prompt", "s1"),
    ("explain", "s1"),
    ("memory", "list"),
    ("memory", "search", "question"),
    ("token", "list"),
    ("sessions", "expire", "--dry-run"),
]
LISTS = [command for command in READING if "s1" not in command]


@pytest.fixture
def here(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TURNLOG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TURNLOG_MODEL_NAME", "offline")
    monkeypatch.setenv("TURNLOG_STORE_DURABILITY", "os")  # nothing is written that a crash could take
    monkeypatch.delenv("TURNLOG_STORE_URL", raising=False)
    monkeypatch.chdir(tmp_path)

    def call(*args):
        code = app.run([str(arg) for arg in args])
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


def talk(url):
    async def work():
        async with turnlog.open_store(url) as store:
            await store.append("s1", [opened("s1")])
            async with store.lease("s1") as lease:
                await store.append("s1", [said("a question"), answered("an answer")], lease=lease)

    asyncio.run(work())


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
@pytest.mark.parametrize("slashes", ["//", "///", "////"])
def test_an_address_with_two_or_three_slashes_is_refused_with_a_hint(here, tmp_path, kind, slashes):
    code, _, err = here("sessions", "list", "--store", f"{kind}:{slashes}data")
    assert code == 2
    assert f"{kind}:/data" in err
    assert f"{kind}:data" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("url", ["sqlite:{}/s.db", "sqlite:rel.db", "jsonl:{}/files", "jsonl:files"])
def test_an_address_with_an_absolute_or_a_relative_path_stays(here, tmp_path, url):
    talk(url.format(tmp_path))
    assert json.loads(here("sessions", "list", "--json", "--store", url.format(tmp_path))[1])["total"] == 1


@pytest.mark.parametrize("command", READING, ids=" ".join)
@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_a_store_given_by_name_that_is_not_there_is_an_error_and_is_not_made(here, tmp_path, command, kind):
    code, out, err = here(*command, "--store", f"{kind}:{tmp_path}/gone/s.db")
    assert (code, out) == (3, "")
    assert f"there is no store at {tmp_path}/gone/s.db" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", LISTS, ids=" ".join)
@pytest.mark.parametrize("url", [None, "sqlite:gone/s.db", "jsonl:gone"])
def test_a_store_of_the_settings_that_is_not_there_yet_lists_empty_and_is_not_made(
    here, tmp_path, command, url, monkeypatch
):
    if url:
        monkeypatch.setenv("TURNLOG_STORE_URL", url)
    code, _, err = here(*command, "--json")
    assert (code, err) == (0, "")
    assert not list(tmp_path.iterdir())


def test_a_session_of_a_store_that_is_not_there_yet_is_not_found(here, tmp_path):
    code, _, err = here("sessions", "show", "s1")
    assert code == 2
    assert "s1" in err
    assert here("config")[0] == 0
    assert not list(tmp_path.iterdir())


def test_an_empty_directory_is_no_store_to_read_and_stays_empty(here, tmp_path):
    (tmp_path / "empty").mkdir()
    assert here("sessions", "list", "--store", "jsonl:empty")[0] == 3
    assert not list((tmp_path / "empty").iterdir())


def test_a_copy_does_not_make_its_source(here, tmp_path):
    code, _, err = here("copy", "sqlite:gone.db", f"jsonl:{tmp_path}/new")
    assert code == 3
    assert "gone.db" in err
    assert not os.path.exists("gone.db")


def one_line(err):
    """An error is told, not thrown: no traceback, and not a defect."""
    return "Traceback" not in err and "defect" not in err


@pytest.mark.parametrize("name", ["memory.db", "convlog.db"])
@pytest.mark.parametrize("damage", [b"garbage, not a database at all " * 200, b"SQLite format 3\0" + b"\xff" * 8_000])
def test_a_corrupt_database_beside_the_sessions_is_named(here, tmp_path, name, damage):
    talk(f"sqlite:{tmp_path}/s.db")
    (tmp_path / name).write_bytes(damage)
    if name == "memory.db":
        code, _, err = here("memory", "list", "--store", f"sqlite:{tmp_path}/s.db")
        assert code == 3
        assert one_line(err)
    else:
        with pytest.raises(turnlog.StoreError) as caught:
            asyncio.run(enter(open_convlog(f"sqlite:{tmp_path}/s.db")))
        err = str(caught.value)
    assert str(tmp_path / name) in err
    assert (tmp_path / name).read_bytes() == damage


async def enter(manager):
    async with manager:
        pass


def test_a_damaged_page_of_the_sessions_is_named_by_every_command(here, tmp_path):
    """Each page in turn; what does not touch the damaged page is answered."""
    path = tmp_path / "s.db"
    talk(f"sqlite:{path}")
    whole = path.read_bytes()
    seen = set()
    for page in range(0, len(whole), 4096):
        for rubbish in (b"\xff" * 4096, b"\0" * 2048 + whole[page + 2048 : page + 4096]):
            for command in READING:
                path.write_bytes(whole[:page] + rubbish + whole[page + 4096 :])
                for end in ("-wal", "-shm"):
                    (tmp_path / f"s.db{end}").unlink(missing_ok=True)
                code, _, err = here(*command, "--store", f"sqlite:{path}")
                assert code in (0, 2, 3), (page, command, err)
                assert one_line(err), (page, command, err)
                assert code != 3 or str(path) in err, (page, command, err)
                seen.add(code)
    assert 3 in seen


def test_flipped_bits_of_the_sessions_are_never_a_traceback(here, tmp_path):
    path = tmp_path / "s.db"
    talk(f"sqlite:{path}")
    whole = path.read_bytes()
    texts = [place for place in range(len(whole)) if whole[place : place + 1].isalnum()]
    for place in texts[:: max(1, len(texts) // 40)]:
        for bit in (0x20, 0x80):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
            for command in (("sessions", "list"), ("sessions", "show", "s1"), ("sessions", "search", "question")):
                code, _, err = here(*command, "--store", f"sqlite:{path}")
                assert code in (0, 2, 3), (place, command, err)
                assert one_line(err), (place, command, err)


@pytest.mark.parametrize("left", ["closed", "killed"])
@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_a_store_on_a_read_only_disk_is_read_by_every_reading_command(here, tmp_path, kind, left):
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=8m", "tmpfs") as disk:
        place = disk / "store" if kind == "jsonl" else disk / "s.db"
        talk(f"{kind}:{place}")
        remember(f"{kind}:{place}")
        if left == "killed" and kind == "sqlite":
            leave_a_log(place)
        (disk / "store" / "agents/main/sessions/sessions.index.jsonl").unlink(missing_ok=True)
        before = snapshot(disk)
        if quiet("mount", "-o", "remount,ro", str(disk)).returncode:
            pytest.skip("this machine does not allow remounting")
        for command in READING:
            code, out, err = here(*command, "--store", f"{kind}:{place}")
            assert (code, err) == (0, ""), command
            assert command[1] not in ("show", "search") or "question" in out, command
        code, _, err = here("chat", "-p", "hi", "--store", f"{kind}:{place}")
        assert code == 3
        assert "read" in err.lower()
        code, _, err = here("sessions", "rename", "s1", "new", "--store", f"{kind}:{place}")
        assert code == 3
        assert one_line(err)
        assert snapshot(disk) == before


def snapshot(root):
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def remember(url):
    async def work():
        async with open_memory(place_of(url)) as memory:
            await memory.save("main", "cli|user", "a question of old")

    asyncio.run(work())


def leave_a_log(path):
    """As a process leaves the database that is killed: the newest change is in the log only."""
    change = (
        "import apsw, os, sys; db = apsw.Connection(sys.argv[1]);"
        "db.execute(\"INSERT INTO ledger VALUES ('x', 'y', '1', NULL)\"); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", change, str(path)], check=True)
    assert path.with_name(f"{path.name}-wal").stat().st_size
    path.with_name(f"{path.name}-shm").unlink()

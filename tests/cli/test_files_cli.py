"""Sessions as files and files as sessions, the doctor, and what the machine can be tried with."""

import asyncio
import json
import os
import stat
import subprocess
import sys

import msgspec
import pytest

import turnlog
from turnlog.cli import app, output
from turnlog.core import paging
from turnlog.core.entries import Assistant, Compaction, Opened, Received, User, text_of
from turnlog.testing import check_messages
from turnlog.testing.torture import KINDS, Witness, breach

from ..waiting import wait_until
from .running import run
from .terminals import terminal

KEY = "agent:main:cli:direct:user"
SECRET = "sk-ant-api03-" + "Ab1" * 20
FLAT = [
    {"type": "user", "content": "What time is it?", "ts": 1771100000},
    {"type": "assistant", "content": "Noon.", "ts": 1771100003},
]


@pytest.fixture
def here(tmp_path, monkeypatch, capsys):
    """`turnlog ARGS` in this process: (exit code, stdout, stderr), read as JSON where it was asked for."""
    monkeypatch.setenv("TURNLOG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LANG", "C.UTF-8")
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "LC_ALL", "LC_MESSAGES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def call(*args):
        code = app.run([str(arg) for arg in args])
        out, err = capsys.readouterr()
        if "--json" in args:
            out, err = (json.loads(text) if text else text for text in (out, err))
        return code, out, err

    return call


@pytest.fixture
def talk(here):
    """A session with the label `talk`, in which a secret was said."""
    assert here("chat", "-p", f"my key is {SECRET}", "--new", "--label", "talk")[0] == 0
    return here


def lines_in(path, values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


def entries_of(here, *args):
    return here("sessions", "show", "talk", "--json", *args)[1]["entries"]


@pytest.mark.parametrize("form", ["native", "v3", "flat"])
def test_an_exact_export_imported_elsewhere_holds_the_same_entries(talk, tmp_path, form):
    code, out, err = talk("sessions", "export", "talk", "--format", form, "-o", "talk.jsonl")
    assert (code, out, err) == (0, "", "")
    elsewhere = ("--store", f"sqlite:{tmp_path}/elsewhere.db")
    code, told, err = talk("sessions", "import", "talk.jsonl", "--json", *elsewhere)
    assert (code, err) == (0, "")
    [row] = told["sessions"]
    assert row["source"] == "talk.jsonl"
    assert row["entries"]
    there = talk("sessions", "show", row["id"], "--json", *elsewhere)[1]["entries"]
    said = [e for e in there if e["type"] in ("user", "assistant")]
    assert said == [e for e in entries_of(talk) if e["type"] in ("user", "assistant")]


def test_a_file_is_private_whole_and_never_replaced_unasked(talk, tmp_path):
    file = tmp_path / "talk.md"
    assert talk("sessions", "export", "talk", "-o", file)[0] == 0
    first = file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert talk("chat", "-p", "more", "--session", "talk")[0] == 0
    code, _, err = talk("sessions", "export", "talk", "-o", file)
    assert code == 2
    assert "exists already" in err
    assert "--force" in err
    assert file.read_bytes() == first
    file.chmod(0o644)
    assert talk("sessions", "export", "talk", "-o", file, "--force")[0] == 0
    assert b"more" in file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir() if path.name != "home"] == ["talk.md"]


@pytest.mark.parametrize("make", ["folder", "link", "pipe", "nowhere"])
def test_what_is_no_file_of_ones_own_is_not_written_to_even_by_force(talk, tmp_path, make):
    target = tmp_path / "target"
    (tmp_path / "kept").write_text("kept")
    match make:
        case "folder":
            target.mkdir()
        case "link":
            target.symlink_to(tmp_path / "kept")
        case "pipe":
            os.mkfifo(target)
        case _:
            target = tmp_path / "missing" / "target"
    code, _, err = talk("sessions", "export", "talk", "-o", target, "--force")
    assert code == 2
    assert "not a regular file" in err or "cannot be written" in err
    assert (tmp_path / "kept").read_text() == "kept"


def test_what_a_format_cannot_hold_is_a_note_on_standard_error(talk):
    code, out, err = talk("sessions", "export", "talk", "--format", "md")
    assert code == 0
    assert out.startswith("# ")
    assert err == "note: it cannot be imported again\n"
    assert "note:" not in out
    told = talk("sessions", "export", "talk", "--format", "md", "--json")
    assert told[1]["notes"] == ["it cannot be imported again"]
    assert told[1]["text"] == out
    assert told[2] == ""


@pytest.mark.parametrize(
    ("form", "masked"), [("md", True), ("html", True), ("json", True), ("native", False), ("v3", False)]
)
def test_secrets_leave_only_in_exact_formats_and_only_unless_asked(talk, form, masked):
    out = talk("sessions", "export", "talk", "--format", form)[1]
    assert (SECRET not in out) == masked
    assert SECRET not in talk("sessions", "export", "talk", "--format", form, "--mask")[1]


def test_messages_come_in_the_shape_that_was_asked_for(talk):
    check_messages(json.loads(talk("sessions", "export", "talk", "--format", "json")[1])["messages"])
    other = json.loads(talk("sessions", "export", "talk", "--format", "json", "--shape", "openai", "-o", "-")[1])
    assert other["shape"] == "openai"


def test_a_damaged_place_is_left_out_of_an_export_and_named(here, tmp_path):
    store = ("--store", f"jsonl:{tmp_path}/store")
    for text in ("one", "two"):
        here("chat", "-p", text, *store)
    [file] = (tmp_path / "store").rglob("ses-*.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    lines[3] = b"#" * (len(lines[3]) - 1) + b"\n"
    file.write_bytes(b"".join(lines))
    code, out, err = here("sessions", "export", KEY, "--format", "md", *store)
    assert code == 0
    assert "two" in out
    assert "left out, because it cannot be read" in err


def test_an_export_cannot_act_on_the_terminal_it_is_shown_on(tmp_path):
    """A control character that JSON may hold as it is: a pipe gets it, a terminal does not."""
    run("chat", "-p", "\x9b31mowned", "--new", "--label", "evil", home=tmp_path)
    with terminal("sessions", "export", "evil", "--format", "native", home=tmp_path) as screen:
        screen.see("owned")
        assert screen.end() == 0
        assert "\x9b" not in screen.raw
    assert "\x9b" in run("sessions", "export", "evil", "--format", "native", home=tmp_path).stdout


@pytest.mark.parametrize(("language", "written"), [("en_GB.UTF-8", "Written: "), ("zh_CN.UTF-8", "已写入：")])
def test_the_chat_writes_its_session_to_a_new_file_each_time(tmp_path, language, written):
    lines = "/new talk\nhello\n/export md\n/export jsonl\n/EXPORT HTML\n/export md\n/export pdf\nquit\n"
    done = run("chat", home=tmp_path, stdin=lines, LANG=language)
    assert done.returncode == 0
    assert done.stdout.count(written) == 4
    assert "/export md|jsonl|html" in done.stdout
    [session_id] = {path.name.partition(".")[0] for path in tmp_path.glob("ses-*.jsonl")}
    names = {path.name for path in tmp_path.glob("ses-*")}
    assert names == {f"{session_id}{end}" for end in (".md", "-2.md", ".jsonl", ".html")}
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in names} == {0o600}
    opened = json.loads((tmp_path / f"{session_id}.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert opened["id"] == session_id


def test_an_import_tells_what_became_of_each_file_and_repeated_adds_nothing(here, tmp_path):
    source = tmp_path / "old"
    source.mkdir()
    lines_in(source / "3f2a1b4c5d6e.jsonl", FLAT)
    lines_in(source / "4f2a1b4c5d6e.jsonl", [*FLAT, {"type": "user", "content": "And now?", "ts": 1771100009}])
    code, out, err = here("sessions", "import", source)
    assert (code, err) == (0, "")
    assert out.count("entries added:") == 3
    assert "3f2a1b4c5d6e.jsonl: imp-" in out
    assert "the file has no header" in out
    assert out.endswith("left out: 0\n")
    code, told, err = here("sessions", "import", source, "--json")
    assert (code, err) == (0, "")
    assert [row["entries"] for row in told["sessions"]] == [0, 0]
    assert {*told["sessions"][0]} == {"id", "source", "entries", "notes"}
    assert here("sessions", "list", "--json")[1]["total"] == 2


def test_an_import_that_leaves_a_file_out_says_so_and_its_exit_code_too(here, tmp_path):
    source = tmp_path / "old"
    source.mkdir()
    lines_in(source / "3f2a1b4c5d6e.jsonl", FLAT)
    (source / "5f2a1b4c5d6e.jsonl").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(40))
    code, out, _ = here("sessions", "import", source)
    assert code == 1
    assert "5f2a1b4c5d6e.jsonl: left out\n  not imported: " in out
    assert out.endswith("left out: 1\n")


def test_an_import_goes_to_the_agent_and_key_that_are_named(here, tmp_path):
    source = lines_in(tmp_path / "3f2a1b4c5d6e.jsonl", FLAT)
    assert here("sessions", "import", source, "--key", KEY)[0] == 0
    assert here("sessions", "list", "--json")[1]["sessions"][0]["key"] == KEY
    assert here("sessions", "import", source, "--agent", "bob")[0] == 0
    assert here("sessions", "list", "--agent", "bob", "--json")[1]["sessions"][0]["key"].startswith("agent:bob:claw0:")


def test_an_import_of_nothing_or_into_nothing_is_refused(here, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    assert here("sessions", "import", tmp_path / "empty")[0] == 2
    assert here("sessions", "import", tmp_path / "missing")[0] == 2
    monkeypatch.setenv("TURNLOG_SESSION_ENABLED", "false")
    code, _, err = here("sessions", "import", lines_in(tmp_path / "3f2a1b4c5d6e.jsonl", FLAT))
    assert code == 2
    assert "sessions are switched off" in err


@pytest.fixture
def torn(tmp_path):
    """A file of claw0 with a torn end, which others may read."""
    path = lines_in(tmp_path / "3f2a1b4c5d6e.jsonl", FLAT)
    with path.open("ab") as file:
        file.write(b'{"type": "user", "content": "And n')
    path.chmod(0o644)
    return path


def test_the_doctor_names_problems_and_changes_nothing_unasked(here, torn):
    before = torn.read_bytes()
    code, told, _ = here("doctor", torn, "--json")
    assert code == 1
    assert {*told} == {"problems", "sqlite"}
    assert {*told["problems"][0]} == {"where", "what", "repair"}
    assert any("torn line" in problem["what"] for problem in told["problems"])
    assert {*told["sqlite"]} == {"library", "verdict", "databases"}
    assert torn.read_bytes() == before
    out = here("doctor", torn)[1]
    assert "torn line" in out
    assert f"Problems: {len(told['problems'])}\n" in out


def test_repairs_are_carried_out_looked_at_again_and_taken_back(here, torn):
    before = torn.read_bytes()
    found = here("doctor", torn, "--json")[1]["problems"]
    code, told, _ = here("doctor", torn, "--apply", "--json")
    assert torn.read_bytes() == before[: before.rindex(b'{"type": "user"')]
    assert told["changed"] == [str(torn)]
    assert os.path.isdir(told["backup"])
    assert len(told["problems"]) < len(found)
    assert code == (1 if any(not p["repair"].startswith("none needed") for p in told["problems"]) else 0)
    code, told, _ = here("doctor", torn, "--revert", "--json")
    assert (code, told) == (0, {"restored": [str(torn)]})
    assert torn.read_bytes() == before
    assert here("doctor", torn, "--revert")[0] == 2
    assert here("doctor", torn, "--apply", "--revert")[0] == 2


def test_the_doctor_finds_nothing_in_a_store_of_ours(talk, tmp_path):
    code, out, _ = talk("doctor", tmp_path / "home")
    assert code == 0
    assert "No problems." in out
    assert "integrity ok" in out


def test_on_a_terminal_repairs_are_asked_about(tmp_path, torn):
    before = torn.read_bytes()
    with terminal("doctor", str(torn), "--apply", home=tmp_path, columns=200) as screen:
        screen.see("torn line", "Carry out the repairs")
        screen.type("n\r")
        assert screen.end() == 2
        assert "nothing was changed" in screen.text
    assert torn.read_bytes() == before
    with terminal("doctor", str(torn), "--apply", "--yes", home=tmp_path, columns=200) as screen:
        screen.see("repaired:")
        screen.end()
    assert torn.read_bytes() != before


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_a_bench_measures_and_leaves_nothing_behind(here, tmp_path, kind):
    (tmp_path / "disk").mkdir()
    code, told, _ = here("bench", "--kind", kind, "--messages", 100, "--dir", tmp_path / "disk", "--json")
    assert code == 0
    assert told["kind"] == kind
    assert len(told["figures"]) == 6
    for figure in told["figures"]:
        assert 0 < figure["median_ms"] <= figure["slowest_ms"]
        assert figure["count"] >= 20
    assert not list((tmp_path / "disk").iterdir())
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("command", ["bench", "torture"])
def test_neither_bench_nor_torture_touches_a_store_that_is_named(here, tmp_path, command):
    code, _, err = here(command, "--store", f"sqlite:{tmp_path}/mine.db")
    assert code == 2
    assert "--kind" in err
    assert not (tmp_path / "mine.db").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_torture_kills_processes_and_nothing_is_lost(tmp_path, kind):
    (tmp_path / "disk").mkdir()
    args = ("torture", "--kind", kind, "--kills", "6", "--dir", str(tmp_path / "disk"), "--json")

    def answered():
        """On a busy machine all six may die before their first answer."""
        done = run(*args, home=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        told = json.loads(done.stdout)
        assert told["kills"] == 6
        assert told["accepted"] >= told["answered"]
        assert not list((tmp_path / "disk").iterdir())
        return told["answered"]

    assert wait_until(answered) > 0


LYING = """
import sys
from pathlib import Path
from turnlog.cli import app
from turnlog.testing import torture

kill = torture.kill_once

def lose_the_end(kind, folder, witness, rng):
    kill(kind, folder, witness, rng)
    for file in folder.rglob("ses-*.jsonl"):
        lines = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join(lines[:4]))

torture.kill_once = lose_the_end
sys.exit(app.run(["torture", "--kind", "jsonl", "--kills", "20", "--dir", sys.argv[1]]))
"""


def test_torture_notices_a_disk_that_forgets_and_keeps_the_evidence(tmp_path):
    (tmp_path / "disk").mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    command = [sys.executable, "-c", LYING, str(tmp_path / "disk")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 3, done.stdout
    assert "Error: after kill" in done.stderr
    assert "The store is kept in" in done.stderr
    assert list((tmp_path / "disk").rglob("ses-*.jsonl"))


def seen(*bodies):
    return [msgspec.structs.replace(body, seq=seq) for seq, body in enumerate(bodies, 1)]


OPENED = Opened(id="s", key=KEY, agent="main", channel="cli")
WHOLE = seen(OPENED, User(content="message 1"), Assistant(content="a"), Received(content="message 2"))


@pytest.mark.parametrize(
    ("witness", "entries", "wrong"),
    [
        (Witness(accepted={1, 2}, answered={1: 3}), WHOLE, ""),
        (Witness(accepted={1, 2}, entries=WHOLE[:3]), [*WHOLE, *seen(User(from_=(4,)))], "missing in between"),
        (Witness(accepted={1, 3}), WHOLE, "message 3 was acknowledged and is not there"),
        (Witness(), [*WHOLE, msgspec.structs.replace(WHOLE[1], seq=5)], "message 1 is there 2 times"),
        (Witness(entries=WHOLE), WHOLE[:3], "changed or are gone"),
        (Witness(answered={2: 4}), WHOLE, "the answer to message 2"),
    ],
)
def test_each_broken_promise_is_noticed(witness, entries, wrong):
    assert wrong in breach(witness, entries)
    assert bool(breach(witness, entries)) == bool(wrong)


async def fold_received(url):
    """A session in which folded questions were made of messages that had waited, one from before what is folded."""
    async with turnlog.open(url, model_name="offline") as t:
        row = await t.sessions.new(KEY, label="talk")
        async with t.store.lease(row.id) as lease:
            bodies = [
                Received(content="waited first"),
                User(content="plain"),
                Assistant(content="a1", stop="end_turn"),
                Received(content="waited too"),
                User(from_=(row.last_seq + 1, row.last_seq + 4)),
                Assistant(content="a2", stop="end_turn"),
                User(content="kept"),
                Assistant(content="a3", stop="end_turn"),
            ]
            stored = await t.store.append(row.id, bodies, lease=lease)
            fold = Compaction(
                summary="short",
                first_kept=stored[6].seq,
                covers=(stored[1].seq, stored[5].seq),
                tokens_before=9,
                tokens_after=1,
            )
            await t.store.append(row.id, [fold], lease=lease)
        return await t.sessions.expand(row.id)


async def _pages(items, size):
    for at in range(0, len(items), size):
        yield items[at : at + size]


@pytest.mark.parametrize("items", [[], [1], [{"a": "é\x85"}, "b", None]])
def test_a_list_that_is_streamed_has_the_same_bytes(items, capsys):
    output.write_json({"a": 1, "list": items})
    whole = capsys.readouterr().out
    for size in (1, 2):
        before = output.to_json({"a": 1, "list": []}).removesuffix("]}")
        asyncio.run(output.stream_json(before, _pages(items, size), "]}"))
        assert capsys.readouterr().out == whole


def test_what_is_shown_in_parts_is_what_is_shown_at_once(here, tmp_path, monkeypatch):
    url = f"sqlite:{tmp_path}/s.db"
    asyncio.run(fold_received(url))
    commands = [("sessions", "show"), ("expand",), ("explain",), ("prompt",)]
    calls = [(*command, "talk", "--store", url, *more) for command in commands for more in ((), ("--json",))]
    whole = [here(*call) for call in calls]
    assert all(code == 0 for code, _, _ in whole)
    assert "waited first" in whole[0][1]
    monkeypatch.setattr(paging, "FIRST_ENTRIES", 1)
    monkeypatch.setattr(paging, "PAGE_ENTRIES", 2)
    assert [here(*call) for call in calls] == whole
    assert here("expand", "talk", "1", "--store", url, "--json")[1] == ""  # and no half of a list


def test_what_is_expanded_holds_the_words_of_messages_that_waited(here, tmp_path):
    url = f"sqlite:{tmp_path}/s.db"
    entries = asyncio.run(fold_received(url))
    assert [text_of(entry.content) for entry in entries] == ["plain", "a1", "waited first\n\nwaited too", "a2"]
    out = here("expand", "talk", "--store", url)[1]
    assert "waited first" in out
    assert "waited too" in out
    told = here("expand", "talk", "--store", url, "--json")[1]
    assert [entry["type"] for entry in told] == ["user", "assistant", "user", "assistant"]
    chat = run("chat", "--store", url, "--session", "talk", home=tmp_path, stdin="/expand\n/history\nquit\n")
    assert chat.stdout.count("waited first") == 2


def test_limits_are_those_of_the_next_turn(tmp_path):
    async def main():
        async with turnlog.open(f"sqlite:{tmp_path}/s.db", home=tmp_path, model_name="offline") as t:
            limits = await t.limits(KEY)
            assert (await t.model("main")).name == "offline"
            assert limits.window == 8_000
            assert limits == await t.limits(await t.session(KEY))

    asyncio.run(main())

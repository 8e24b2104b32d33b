"""The examples run as a newcomer would run them, and print what they promise."""

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name, *args, home, code=0):
    """In an empty directory, with a home of its own, and with every warning an error."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TURNLOG_")}
    environment |= {"TURNLOG_HOME": str(home / "turnlog"), "TMPDIR": str(home), "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *args],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def step(printed, number):
    return re.search(rf"^{number}\. .*?(?=^{number + 1}\. |\Z)", printed, re.MULTILINE | re.DOTALL)[0]


def test_the_quickstart_kills_resumes_marks_compacts_and_undoes(tmp_path):
    printed = run("quickstart.py", home=tmp_path)
    assert "stored up to entry 10; the tool is running" in step(printed, 1)
    assert "killed with SIGKILL" in step(printed, 1)
    assert "8 messages" in step(printed, 2)
    assert "[called run_tests" in step(printed, 2)
    assert "interrupted: no result of this call was recorded" in step(printed, 3)
    assert "Are you still there?" in step(printed, 3)
    assert "Summary of the earlier part" in step(printed, 4)
    assert "Noted: release-7." not in step(printed, 4)
    undone, before = step(printed, 5).splitlines()[1:], step(printed, 3).splitlines()[1:]
    assert undone == before, "undoing shows what was there before"
    assert re.search(r"\d+ lines of JSON in\n  \S+/ses-\d{13}-\w{6}\.jsonl", step(printed, 6))


def test_the_quickstart_leaves_nothing_behind(tmp_path):
    run("quickstart.py", home=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_quickstart_keeps_a_directory_it_is_given_and_resumes_there(tmp_path):
    first = run("quickstart.py", "kept", home=tmp_path)
    path = Path(re.search(r"cat (\S+)$", first, re.MULTILINE)[1])
    before = path.read_bytes()
    assert f"{len(before.splitlines())} lines of JSON" in first
    second = run("quickstart.py", "kept", home=tmp_path)
    assert str(path) in second, "the same session"
    assert path.read_bytes().startswith(before), "only appended to"


def test_the_own_loop_is_refused_once_and_answers_every_turn(tmp_path):
    printed = run("own_loop.py", home=tmp_path)
    assert printed.count("refused:") == 1
    assert printed.count("  send ") == 8
    assert "14 messages stored, 1 compaction" in printed
    assert list(tmp_path.iterdir()) == []


def test_the_talk_streams_calls_a_tool_and_remembers_after_a_new_start(tmp_path):
    printed = run("talk.py", home=tmp_path)
    assert "[opening_hours {'day': 'Sunday'} -> closed]" in printed
    assert "“My name is Ada.”" in printed.rpartition("You > ")[2]
    assert len(set(re.findall(r"\(stored in (\S+)\)", printed))) == 1


def test_a_store_is_copied_once_and_a_second_copy_adds_nothing(tmp_path):
    run("quickstart.py", "source", home=tmp_path)
    first = run("copy_store.py", "jsonl:source", "sqlite:target.db", home=tmp_path)
    assert re.match(r"1 sessions, \d\d entries written, 1 facts\ndigest [0-9a-f]{64}\n\Z", first)
    again = run("copy_store.py", "jsonl:source", "sqlite:target.db", home=tmp_path)
    assert again.startswith("1 sessions, 0 entries written, 0 facts")
    assert again.splitlines()[1] == first.splitlines()[1]


def test_copying_says_what_is_wrong_with_a_url_and_how_it_is_called(tmp_path):
    assert "is not a store URL" in run("copy_store.py", "nonsense", "memory:", home=tmp_path, code=1)
    assert "usage:" in run("copy_store.py", home=tmp_path, code=1)

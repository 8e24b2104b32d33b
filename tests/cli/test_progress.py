"""A progress bar: on a terminal, for long work; otherwise silent."""

import os
import pty
import subprocess
import sys

from ..waiting import GIVES_UP_S

CODE = """
from types import SimpleNamespace
from turnlog.cli import progress
now_s = 0
progress.time = SimpleNamespace(monotonic=lambda: now_s)
with progress.bar("Copying sessions") as report:
    for n in range(1, 4):
        report(n, 3)
        now_s += {pause_s}
"""
"""By a clock of its own, which stands still while the machine is busy."""


def run_on_a_terminal(pause_s):
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", CODE.format(pause_s=pause_s)], stderr=theirs, stdout=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # Linux says EIO when the other side is gone
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    assert process.wait(timeout=GIVES_UP_S) == 0
    return shown.decode()


def test_long_work_on_a_terminal_shows_what_is_done_and_how_much_there_is():
    shown = run_on_a_terminal(0.4)
    assert "Copying sessions" in shown
    assert "/3" in shown


def test_short_work_shows_nothing():
    assert run_on_a_terminal(0) == ""


def test_where_there_is_no_terminal_nothing_is_shown():
    done = subprocess.run([sys.executable, "-c", CODE.format(pause_s=0.4)], capture_output=True, check=True)
    assert done.stderr == done.stdout == b""

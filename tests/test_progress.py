"""A progress bar: on a terminal, for long work; otherwise silent."""

import os
import pty
import subprocess
import sys

CODE = """
import time
from turnlog.progress import bar
with bar("Copying sessions") as progress:
    for n in range(1, 4):
        progress(n, 3)
        time.sleep({pause})
"""


def run_on_a_terminal(pause):
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", CODE.format(pause=pause)], stderr=theirs, stdout=theirs)
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
    assert process.wait(timeout=10) == 0
    return shown.decode()


def test_long_work_on_a_terminal_shows_what_is_done_and_how_much_there_is():
    shown = run_on_a_terminal(0.4)
    assert "Copying sessions" in shown
    assert "/3" in shown


def test_short_work_shows_nothing():
    assert run_on_a_terminal(0) == ""


def test_where_there_is_no_terminal_nothing_is_shown():
    done = subprocess.run([sys.executable, "-c", CODE.format(pause=0.3)], capture_output=True, check=True)
    assert done.stderr == done.stdout == b""

"""A real terminal for tests: a process behind a pseudo-terminal, and the screen it draws."""

import os
import signal
import sys
import time
from contextlib import contextmanager

import pexpect
import pyte

from ..waiting import GIVES_UP_S


class Terminal:
    """What a person would see and type."""

    def __init__(self, *args, home, columns=80, rows=30, cwd=None, code=None, **env):
        variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "TURNLOG_HOME": str(home),
            **env,
        }
        self.raw = ""
        self.screen = pyte.HistoryScreen(columns, rows, history=5_000)
        self._stream = pyte.Stream(self.screen)
        self.child = pexpect.spawn(
            sys.executable,
            [*(["-c", code] if code else ["-m", "turnlog"]), *args],
            env=variables,
            cwd=str(cwd or home),
            dimensions=(rows, columns),
            encoding="utf-8",
            timeout=GIVES_UP_S,
        )
        self.child.delaybeforesend = None

    @property
    def lines(self):
        """The scrollback and the screen."""
        above = ["".join(line[x].data for x in range(self.screen.columns)) for line in self.screen.history.top]
        return [line.rstrip() for line in (*above, *self.screen.display)]

    @property
    def text(self):
        return "\n".join(self.lines).rstrip()

    def read(self, for_s=0.05):
        """Draws what has come in; False at the end of the process."""
        try:
            piece = self.child.read_nonblocking(65_536, timeout=for_s)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.raw += piece
        self._stream.feed(piece)
        return True

    def wait(self, holds, what):
        end = time.monotonic() + GIVES_UP_S
        while not holds():
            alive = self.read()
            late = time.monotonic() > end or (not alive and not holds())
            assert not late, f"waited for {what}; the screen:\n{self.text}"

    def see(self, *texts):
        """Waits until all of these are on the screen or above it."""
        for text in texts:
            self.wait(lambda text=text: text in self.text, repr(text))

    def prompt(self, count=None):
        """Waits until there are this many prompts, and the last one is empty, with only the status line below it."""
        self.wait(lambda: self._prompts() >= (count or 1) and self._is_ready(), f"prompt {count or ''}")

    def _prompts(self):
        return sum(line.startswith("You >") for line in self.lines)

    def _is_ready(self):
        shown = [line for line in self.screen.display if line.strip()]
        return any(line.rstrip() == "You >" for line in shown[-2:])

    def type(self, keys):
        self.child.send(keys)

    def say(self, line):
        """A line and Enter, and what it led to, up to the next prompt."""
        before = self._prompts()
        self.type(line)
        self.wait(lambda: line[-5:] in self.text, line)
        self.type("\r")
        self.wait(lambda: self._prompts() > before and self._is_ready(), f"a prompt after {line!r}")

    def resize(self, columns, rows):
        self.screen.resize(rows, columns)
        self.child.setwinsize(rows, columns)

    def end(self):
        """Reads to the end of the process; its exit code."""
        while self.read():
            pass
        self.child.wait()
        self.child.close()
        return self.child.exitstatus


@contextmanager
def terminal(*args, **options):
    opened = Terminal(*args, **options)
    try:
        yield opened
    finally:
        if opened.child.isalive():
            opened.child.kill(signal.SIGKILL)
            opened.child.wait()
        opened.child.close()

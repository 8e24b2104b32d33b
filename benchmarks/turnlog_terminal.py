"""The terminal, through a pseudo-terminal: how soon it asks, how soon it answers, what it costs while nobody types."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from benchmarks.workload import summarise

PYTHON = os.environ.get("RUN_PYTHON", sys.executable)
WAIT_S = 30
ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>]")


async def version(place: str, times: int) -> dict[str, float]:
    samples = []
    for _ in range(times):
        begin = time.perf_counter_ns()
        subprocess.run([PYTHON, "-m", "turnlog", "--version"], check=True, capture_output=True)
        samples.append(time.perf_counter_ns() - begin)
    return summarise(samples)


class Screen:
    def __init__(self, place: str) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("TURNLOG_", "ANTHROPIC", "OPENAI"))}
        environment |= {"TURNLOG_HOME": f"{place}/home", "TERM": "xterm-256color", "LANG": "C.UTF-8", "COLUMNS": "100"}
        command = [PYTHON, "-m", "turnlog", "chat", "--store", f"sqlite:{place}/sessions.db", "--model", "offline"]
        self.begun = time.perf_counter_ns()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, environment)
        self.seen = b""

    def until(self, wanted: bytes) -> int:
        """Nanoseconds until this is on the screen; from now on only what comes later counts."""
        begin = time.perf_counter_ns()
        while wanted not in ESCAPES.sub(b"", self.seen):
            ready, _, _ = select.select([self.fd], [], [], WAIT_S)
            if not ready:
                raise TimeoutError(f"{wanted!r} did not come: {self.seen[-300:]!r}")
            self.seen += os.read(self.fd, 65536)
        self.seen = b""
        return time.perf_counter_ns() - begin

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def screen(place: str):
    shown = Screen(place)
    try:
        yield shown
    finally:
        os.kill(shown.pid, signal.SIGKILL)
        os.waitpid(shown.pid, 0)
        os.close(shown.fd)


async def open_chat(place: str, times: int) -> dict[str, float]:
    samples = []
    for _ in range(times):
        with screen(place) as shown:
            shown.until(b"You > ")
            samples.append(time.perf_counter_ns() - shown.begun)
    return summarise(samples)


async def answer(place: str, times: int) -> dict[str, float]:
    """From Enter to the first word of the answer on the screen."""
    samples = []
    with screen(place) as shown:
        shown.until(b"You > ")
        for number in range(times):
            shown.type(f"how many messages do you see, number {number}?")
            time.sleep(0.3)
            shown.seen = b""
            drain(shown)
            shown.type("\r")
            samples.append(shown.until(b"I see"))
            time.sleep(0.5)
            drain(shown)
    return summarise(samples[1:])


def drain(shown: Screen) -> None:
    while select.select([shown.fd], [], [], 0)[0]:
        os.read(shown.fd, 65536)
    shown.seen = b""


async def idle(place: str, seconds: float) -> dict[str, float]:
    """Per cent of a core that a chat uses while nobody types, at a store whose messages are all searchable."""
    store, home = f"sqlite:{place}/sessions.db", f"{place}/home"
    search = [PYTHON, "-m", "turnlog", "sessions", "search", "nothing", "--store", store, "--home", home]
    subprocess.run(search, check=True, capture_output=True)
    with screen(place) as shown:
        shown.until(b"You > ")
        time.sleep(2)
        drain(shown)
        before = shown.cpu_s()
        time.sleep(seconds)
        return {"percent": (shown.cpu_s() - before) / seconds * 100}

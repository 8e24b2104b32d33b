"""A session of hundreds of megabytes that was never compacted: what each verb takes in time and in memory.

    python -m benchmarks.large_session [--mb 500] [--store jsonl|sqlite|postgres …] [--verbs turn,search …]

Every verb is a process of its own, and its peak is what the operating system says. The first turn answers, with the
offline model; everything else leaves the session as it was.
"""

import argparse
import asyncio
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct

from benchmarks import postgres_server
from turnlog import open_store
from turnlog.core.entries import Assistant, Entry, Opened, Selected, ToolResult, User

KEY = "agent:main:cli:direct:user"
SESSION = "ses-large"
MB = 1_000_000
BATCH_BYTES = 4 * MB
TURN_BYTES = 12_000
"""A question, a call, a long result, an answer."""
STORES = ("jsonl", "sqlite", "postgres")
WORDS = (
    "the invoice of {n} from Zürich names /srv/data/{n}/report-{n}.csv, order QX-{n}7 and 第{n}号发票 among others; "
)


class Figures(Struct, frozen=True):
    wall_s: float
    processor_s: float
    peak_mb: float
    failed: str = ""


def turn_of(number: int) -> list[Entry]:
    text = WORDS.format(n=number)
    call = {"type": "tool_use", "id": f"call-{number}", "name": "read_file", "input": {"path": f"/srv/{number}"}}
    return [
        User(content=f"What does file {number} say? {text * 3}"),
        Assistant(content=[{"type": "text", "text": "I look."}, call], stop="tool_use"),
        ToolResult(tool_use_id=f"call-{number}", content=text * (TURN_BYTES * 3 // 4 // len(text))),
        Assistant(content=f"It says: {text * 10}", stop="end_turn"),
    ]


async def build(url: str, size: int) -> int:
    """The number of entries. They are appended as turns would be, many at once."""
    opening = Opened(id=SESSION, key=KEY, agent="main", channel="cli", label="large")
    written = 0
    number = 0
    async with open_store(url, durability="os") as store, store.lease(SESSION) as lease:
        row = (await store.append(SESSION, [opening, Selected(n=1)], expect=0, lease=lease)).row
        while written < size:
            batch: list[Entry] = []
            for _ in range(BATCH_BYTES // TURN_BYTES):
                batch += turn_of(number)
                number += 1
            row = (await store.append(SESSION, batch, lease=lease, incarnation=row.incarnation)).row
            written += BATCH_BYTES
    return row.last_seq


async def first_fold(url: str) -> int:
    """The compaction that the first turn made: it covers nearly everything."""
    async with open_store(url, create=False) as store:
        marks = (await store.describe(SESSION)).marks
    return next(mark.seq for mark in marks if mark.kind == "compaction")


STARTER = """
import json, os, subprocess, sys
child = subprocess.Popen(sys.argv[2:])
_, status, used = os.wait4(child.pid, 0)
with open(sys.argv[1], "w") as file:
    json.dump([os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss], file)
"""
"""Starts a command from a small process: the peak of a child includes what its parent holds."""


def measured(arguments: list[str], home: Path, output: Path | None = None) -> Figures:
    """One command in a process of its own."""
    began = time.perf_counter()
    command = [sys.executable, "-S", "-c", STARTER, str(home / "used"), sys.executable, "-m", "turnlog", *arguments]
    with (output or home / "out").open("wb") as out, (home / "err").open("w+b") as err:
        subprocess.run(command, stdout=out, stderr=err, check=True)
        code, processor_s, peak_kb = json.loads((home / "used").read_text())
        err.seek(0)
        failed = err.read().decode(errors="replace")[-400:] if code else ""
    return Figures(time.perf_counter() - began, processor_s, peak_kb * 1024 / MB, failed)


def page(home: Path, url: str) -> Figures:
    """The session's pages, its transcript from the end to the beginning in pages, and its lists."""
    began = time.perf_counter()
    common = ["--home", str(home), "--store", url]
    token = json.loads(_said(["token", "create", "bench", "--scope", "admin", "--json", *common]))["token"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (home / "served").open("w+b") as out:
        child = subprocess.Popen(
            [sys.executable, "-m", "turnlog", "serve", "--port", str(port), *common], stdout=out, stderr=out
        )
        try:
            get = _getter(port, token)
            failed = _look_through(get)
            status = Path(f"/proc/{child.pid}/status").read_text(encoding="utf-8")
            peak = next(int(line.split()[1]) * 1024 / MB for line in status.splitlines() if line.startswith("VmHWM"))
        finally:
            child.terminate()
            _, _, used = os.wait4(child.pid, 0)
            child.returncode = 0
    return Figures(time.perf_counter() - began, used.ru_utime + used.ru_stime, peak, failed)


def _said(arguments: list[str]) -> str:
    done = subprocess.run([sys.executable, "-m", "turnlog", *arguments], capture_output=True, check=True, text=True)
    return done.stdout


Get = Callable[[str], tuple[int, bytes]]


def _getter(port: int, token: str) -> Get:
    def get(path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    for _ in range(600):
        try:
            get("/healthz")
            return get
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the server did not start")


API = f"/api/agents/main/sessions/{SESSION}"
PAGES = (
    *(f"/session/main/{SESSION}", f"/chat/main/{SESSION}", "/chats", "/usage", "/well"),
    *(f"{API}/coverage", f"{API}/prompt", f"{API}/prompt?at=1000"),
)
API_PAGES = 20


def _look_through(get: Get) -> str:
    """What was not answered with 200, or ""."""
    failed = [f"{path}: {status}" for path in PAGES if (status := get(path)[0]) != 200]
    path, before = f"{API}?limit=200", None
    for _ in range(API_PAGES):
        status, body = get(path if before is None else f"{path}&before={before}")
        if status != 200:
            return "; ".join([*failed, f"{path}: {status}"])
        before = json.loads(body)["next"]
        if before is None:
            break
    return "; ".join(failed)


@contextmanager
def stores(names: list[str], place: Path) -> Iterator[dict[str, str]]:
    with ExitStack() as stack:
        found = {name: f"{name}:{place / name}" for name in names if name != "postgres"}
        if "postgres" in names:
            stack.enter_context(postgres_server.serving(os.environ))
            (place / "postgres").mkdir()
            found["postgres"] = postgres_server.url(postgres_server.database(str(place / "postgres")))
        yield found


def verbs(url: str, home: Path) -> dict[str, Callable[[], Figures]]:
    """In this order: the turn is among the last, since it compacts the session."""
    common = ["--home", str(home), "--store", url]
    other = home / "other"
    is_server = url.startswith("postgres")  # which its own tools check

    def command(*arguments: str, output: Path | None = None) -> Callable[[], Figures]:
        return lambda: measured([*arguments, *common], home, output)

    def clean(then: Callable[[], Figures]) -> Callable[[], Figures]:
        def run() -> Figures:
            shutil.rmtree(other, ignore_errors=True)
            other.mkdir()
            return then()

        return run

    def measured_with(target: str, *arguments: str) -> Callable[[], Figures]:
        return lambda: measured([*arguments, "--home", str(home), "--store", target], home)

    exported = home / "export"
    return {
        "list": command("sessions", "list"),
        "search": command("sessions", "search", "report-77.csv"),
        "show": command("sessions", "show", SESSION),
        "show json": command("sessions", "show", SESSION, "--json"),
        **{
            f"export {kind}": command("sessions", "export", SESSION, "--format", kind, "-o", str(exported) + "." + kind)
            for kind in ("md", "html", "json", "flat", "v3", "native")
        },
        "import": clean(measured_with(f"sqlite:{other}/store.db", "sessions", "import", str(exported) + ".native")),
        "import json": clean(measured_with(f"sqlite:{other}/store.db", "sessions", "import", str(exported) + ".json")),
        "import v3": clean(measured_with(f"jsonl:{other}/store", "sessions", "import", str(exported) + ".v3")),
        "copy": clean(lambda: measured(["copy", url, f"jsonl:{other}/store", "--home", str(home)], home)),
        "backup": command("backup", str(home / "all.backup")),
        "restore": clean(measured_with(f"sqlite:{other}/store.db", "restore", str(home / "all.backup"))),
        **({} if is_server else {"doctor": lambda: measured(["doctor", url.partition(":")[2]], home)}),
        "reindex": command("sessions", "reindex"),
        "fork": command("sessions", "fork", SESSION, "--label", "forked"),
        "explain": command("explain", SESSION),
        "prompt": command("prompt", SESSION, "--json"),
        "pin": command("sessions", "pin", SESSION, "4"),
        "prompt then": command("prompt", SESSION, "--at", "1000"),
        "page": lambda: page(home, url),
        "turn": command("chat", "--session", SESSION, "-p", "And what did file 7 say?"),
        "next turn": command("chat", "--session", SESSION, "-p", "And file 8?"),
        "expand": lambda: command("expand", SESSION, str(asyncio.run(first_fold(url))))(),
        "expand json": lambda: command("expand", SESSION, str(asyncio.run(first_fold(url))), "--json")(),
        "fidelity": command("fidelity", SESSION),
        "erase": command("sessions", "erase", SESSION, "--text", "QX-777", "--redact", "--derived", "--yes"),
        "erase seq": command("sessions", "erase", SESSION, "--seq", "40", "--redact", "--derived", "--yes"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=500)
    parser.add_argument("--store", nargs="*", default=list(STORES), choices=STORES)
    parser.add_argument("--verbs", default="")
    parser.add_argument("--place", type=Path, help="where to build it (default: a directory that is removed)")
    asked = parser.parse_args()
    chosen = [name for name in asked.verbs.split(",") if name]
    place = Path(tempfile.mkdtemp(prefix="large-", dir=asked.place))
    try:
        with stores(asked.store, place) as urls:
            for name, url in urls.items():
                home = place / f"home-{name}"
                home.mkdir()
                began = time.perf_counter()
                entries = asyncio.run(build(url, asked.mb * MB))
                print(f"\n{name}: {asked.mb} MB, {entries:,} entries, built in {time.perf_counter() - began:.0f} s")
                print(f"{'':>12} {'wall s':>8} {'processor s':>12} {'peak MB':>8}", flush=True)
                for verb, run in verbs(url, home).items():
                    if not chosen or verb.split()[0] in chosen or verb in chosen:
                        one = run()
                        print(
                            f"{verb:>12} {one.wall_s:8.1f} {one.processor_s:12.1f} {one.peak_mb:8.0f} {one.failed}",
                            flush=True,
                        )
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()

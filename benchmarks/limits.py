"""What the machine itself can do: nothing that keeps transcripts can be faster than these.

`write` is one write to an open file; `sync` adds fdatasync, alone or from many threads with a file each; `parse` is
orjson over the lines of a transcript; `start` is the time of an interpreter that runs one statement.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.workload import TURN_MESSAGES, WARMUP_TURNS, summarise, time_turns, turns


def encode(user: str, assistant: str) -> bytes:
    """Two lines of the size that a stored turn has, bookkeeping included."""
    stamp = "2026-01-01T00:00:00.000Z"
    usage = {"input_tokens": 1200, "output_tokens": 210}
    block = [{"type": "text", "text": assistant}]
    lines = (
        {"seq": 100000, "ts": stamp, "type": "user", "content": user},
        {
            "seq": 100001,
            "ts": stamp,
            "type": "assistant",
            "content": block,
            "model": "m",
            "usage": usage,
            "stop": "end",
        },
    )
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)


def encoded(count: int) -> Iterator[bytes]:
    return iter([encode(*turn) for turn in turns(WARMUP_TURNS + count)])


def open_log(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def write(place: str, count: int) -> dict[str, float]:
    log = open_log(Path(place) / "write.jsonl")
    blobs = encoded(count)
    return time_turns(lambda user, assistant: os.write(log, next(blobs)), count)


def sync(place: str, count: int) -> dict[str, float]:
    log = open_log(Path(place) / "sync.jsonl")
    blobs = encoded(count)

    def append(user: str, assistant: str) -> None:
        os.write(log, next(blobs))
        os.fdatasync(log)

    return time_turns(append, count)


def sync_threads(place: str, threads: int, count: int) -> dict[str, float]:
    """Turns a second of `threads` threads, each appending `count` turns to its own file, each turn synced."""
    blobs = [encode(*turn) for turn in turns(count)]
    ready = threading.Barrier(threads + 1)

    def run(number: int) -> None:
        log = open_log(Path(place) / f"thread-{number}.jsonl")
        ready.wait()
        for blob in blobs:
            os.write(log, blob)
            os.fdatasync(log)

    workers = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    ready.wait()
    begin = time.perf_counter()
    for worker in workers:
        worker.join()
    return {"per_s": threads * count / (time.perf_counter() - begin)}


def parse(place: str, times: int) -> dict[str, float]:
    """orjson over each line of the largest transcript below `place`."""
    import orjson

    path = max(Path(place).rglob("*.jsonl"), key=lambda file: file.stat().st_size)
    samples = []
    for _ in range(times):
        begin = time.perf_counter_ns()
        with path.open("rb") as file:
            lines = [orjson.loads(line) for line in file]
        samples.append(time.perf_counter_ns() - begin)
        assert len(lines) > TURN_MESSAGES
    return summarise(samples)


def start(statement: str, times: int) -> dict[str, float]:
    samples = []
    for _ in range(times + 1):
        begin = time.perf_counter_ns()
        subprocess.run([sys.executable, "-c", statement], check=True)
        samples.append(time.perf_counter_ns() - begin)
    return summarise(samples[1:])

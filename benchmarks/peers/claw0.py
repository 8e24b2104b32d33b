"""The JSONL design of the seeds: open, append, close for each record, then the whole `sessions.json` written anew.

Promises: neither a lock nor a sync; a crash while the index is written loses the index. Our own few lines, after the
description of the design, not its code.
"""

import json
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.workload import summarise, time_turns, turns

SESSION = "bench"


def records(user: str, assistant: str) -> list[dict]:
    now = time.time()
    return [
        {"type": "user", "content": user, "ts": now},
        {"type": "assistant", "content": [{"type": "text", "text": assistant}], "ts": now},
    ]


def row(number: int) -> dict:
    now = datetime.now(UTC).isoformat()
    return {"label": f"session {number}", "created_at": now, "last_active": now, "message_count": 2}


def transcript(place: str) -> Path:
    return Path(place) / "agents" / "main" / "sessions" / f"{SESSION}.jsonl"


def index(place: str) -> Path:
    return Path(place) / "agents" / "main" / "sessions.json"


def build(place: str, messages: int, sessions: int = 1) -> dict[str, float]:
    """The transcripts of the other sessions are left out: this design never looks at them while it appends."""
    transcript(place).parent.mkdir(parents=True)
    lines = [json.dumps(record) for turn in turns(messages // 2) for record in records(*turn)]
    transcript(place).write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = {f"other-{number:06d}": row(number) for number in range(sessions - 1)} | {SESSION: row(0)}
    index(place).write_text(json.dumps(rows, indent=2), encoding="utf-8")
    return {}


def append(place: str, count: int) -> dict[str, float]:
    path, index_path = transcript(place), index(place)
    rows = json.loads(index_path.read_text(encoding="utf-8"))

    def one(user: str, assistant: str) -> None:
        for record in records(user, assistant):
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
            rows[SESSION]["last_active"] = datetime.now(UTC).isoformat()
            rows[SESSION]["message_count"] += 1
            index_path.write_text(json.dumps(rows, indent=2, ensure_ascii=False), encoding="utf-8")

    return time_turns(one, count, warmup=min(20, count))


def resume(place: str, times: int) -> dict[str, float]:
    samples = []
    for _ in range(times):
        begin = time.perf_counter_ns()
        text = transcript(place).read_text(encoding="utf-8")
        messages = [json.loads(line) for line in text.strip().split("\n")]
        samples.append(time.perf_counter_ns() - begin)
        assert messages
    return summarise(samples)

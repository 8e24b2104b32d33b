"""`turnlog` as a process of its own, and scripts for its model."""

import json
import os
import subprocess
import sys


def run(*args, home, stdin=None, **env):
    variables = {"PATH": os.environ["PATH"], "HOME": str(home), "TURNLOG_HOME": str(home), "LANG": "C.UTF-8", **env}
    return subprocess.run(
        [sys.executable, "-m", "turnlog", *args],
        input=stdin if stdin is not None else "",
        capture_output=True,
        text=True,
        env=variables,
        cwd=home,
        timeout=60,
    )


def script(folder, *replies):
    """The --model that gives these answers, in order."""
    path = folder / f"answers-{len(list(folder.glob('answers-*.jsonl')))}.jsonl"
    path.write_text("".join(json.dumps(reply) + "\n" for reply in replies), encoding="utf-8")
    return f"scripted:{path}"


def requests(log):
    if not log.exists():
        return []
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]

"""`turnlog` as a process of its own, and scripts for its model."""

import json
import os

from .. import warm


def run(*args, home, stdin="", cwd=None, **env):
    variables = {"PATH": os.environ["PATH"], "HOME": str(home), "TURNLOG_HOME": str(home), "LANG": "C.UTF-8", **env}
    return warm.run(*args, stdin=stdin, env=variables, cwd=cwd or home)


def workspace(home, **files):
    """The directory in which file tools may work, with these files in it."""
    folder = home / "workspace"
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return folder


def script(folder, *replies):
    """The --model that gives these answers, in order."""
    path = folder / f"answers-{len(list(folder.glob('answers-*.jsonl')))}.jsonl"
    path.write_text("".join(json.dumps(reply) + "\n" for reply in replies), encoding="utf-8")
    return f"scripted:{path}"


def requests(log):
    if not log.exists():
        return []
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]

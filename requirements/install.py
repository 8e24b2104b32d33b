"""Runs an installer and shows how far it is: `python install.py WHAT COMMAND…`. Needs the standard library only.

On a terminal this is one line that changes, elsewhere one line at the beginning and one at the end. The installer's own
output is shown only if it fails.
"""

import re
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

COUNTED = re.compile(r"^(?:Collecting|Requirement already satisfied:) ([\w.-]+)")
KEPT_LINES = 40


def pinned(command: tuple[str, ...]) -> int:
    """How many packages the requirements files of a command name."""
    files = [file for option, file in pairwise(command) if option == "-r"]
    return sum(len(re.findall(r"^\S+==", Path(file).read_text(encoding="utf-8"), re.MULTILINE)) for file in files)


def main(what: str, *command: str) -> int:
    total, done, started = pinned(command), 0, time.monotonic()
    title = f"Installing {what}" + (f" ({total} packages)" if total else "")
    live = sys.stdout.isatty()
    print(f"{title} …", end="" if live else "\n", flush=True)
    kept: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            kept = [*kept[1 - KEPT_LINES :], line]
            if found := COUNTED.match(line.strip()):
                done = min(done + 1, total)
                if live:
                    print(f"\r\033[K{title} … {done} of {total}: {found[1]}", end="", flush=True)
            elif live and line.startswith("Installing collected"):
                print(f"\r\033[K{title} … writing files", end="", flush=True)
    start_of_line = "\r\033[K" if live else ""
    if process.returncode:
        print(f"{start_of_line}{title}: failed\n{''.join(kept)}", flush=True)
    else:
        print(f"{start_of_line}{title}: done in {time.monotonic() - started:.0f} s", flush=True)
    return process.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

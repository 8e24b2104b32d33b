"""Waiting for something to happen, however slow the machine is at the moment."""

import asyncio
import time
from pathlib import Path

GIVES_UP_S = 120
"""What has not happened by then does not happen."""
LOOK_S = 0.02


def wait_until(check, seconds=GIVES_UP_S):
    """What `check` found."""
    end = time.monotonic() + seconds
    while True:
        if found := check():
            return found
        assert time.monotonic() < end, "waited in vain"
        time.sleep(LOOK_S)


async def until(check):
    """The same in an event loop."""
    async with asyncio.timeout(GIVES_UP_S):
        while not (found := check()):  # noqa: ASYNC110 - what is waited for is outside this process
            await asyncio.sleep(LOOK_S)
    return found


def is_alive(pid):
    """Whether a process runs. It may end while it is looked at, which reading its file tells in two ways."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False

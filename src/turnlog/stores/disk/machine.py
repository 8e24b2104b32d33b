"""Facts of the machine: whether it has been restarted, and whether a writer's process still runs."""

import os
from pathlib import Path


def is_alive(writer: str) -> bool:
    """`writer`: begins with its process id and a dot."""
    try:
        os.kill(int(writer.partition(".")[0]), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""

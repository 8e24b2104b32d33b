"""Logs every request to a model as one JSON line, to show what was really sent.

A line is one write to a file opened for appending, so that any number of processes can share the file. Its content is
as private as the sessions, so only its owner may read it.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from ..core.prompt import Prompt, as_dict
from ..errors import StoreUnavailable

VARIABLE = "TURNLOG_REQUEST_LOG"


class RequestLog:
    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def write(self, kind: Literal["turn", "summary"], session_id: str, prompt: Prompt) -> None:
        request = {"kind": kind, "session": session_id, **as_dict(prompt)}
        text = json.dumps(request, ensure_ascii=False, default=str) + "\n"
        try:
            line = text.encode()
        except UnicodeEncodeError:
            # A lone surrogate has no UTF-8, but JSON can escape it.
            line = (json.dumps(request, default=str) + "\n").encode()
        self._append(line)

    def _append(self, line: bytes) -> None:
        # Opened each time, so that a log that was moved or deleted is created again instead of growing unseen.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            fd = os.open(self._path, flags, 0o600)
            try:
                written = os.write(fd, line)
            finally:
                os.close(fd)
        except OSError as error:
            raise StoreUnavailable(
                f"cannot write the request log {self._path}: {error.strerror or error}",
                hint=f"Set {VARIABLE} to a file that can be written, or unset it.",
            ) from error
        if written < len(line):
            raise StoreUnavailable(f"the request log {self._path} is cut short: the disk is full")


def from_env(env: Mapping[str, str]) -> RequestLog | None:
    path = env.get(VARIABLE)
    return RequestLog(Path(path).expanduser()) if path else None

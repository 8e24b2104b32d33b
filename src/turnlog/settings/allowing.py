"""Adds a pattern to `tools.allow` of config.toml. Nothing else in the file changes: comments and order stay.

The new file takes the place of the old one at once, and only if reading it gives the old settings and this pattern.
Two processes that write at the same time wait for each other.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from ..core import call_patterns, sections
from ..errors import MissingExtra, UsageError
from ..stores.disk import files

CONFIG = "config.toml"
LOCK = "config.lock"
"""Next to it, and locked while it is written: a lock on the file itself would be lost when the file is replaced."""


def allow_always(home: Path, pattern: str) -> bool:
    """Whether the pattern is new there. Durable on return."""
    call_patterns.parse(pattern)
    path = Path(os.path.realpath(home / CONFIG))  # a link stays a link
    with files.disk_errors(f"{path} cannot be written"), _locked(path.parent):
        before = path.read_bytes() if path.exists() else b""
        given = sections.tables(path, before)
        if pattern in _allowed(path, given):
            return False
        after = _added(before.decode(), pattern).encode()
        if sections.tables(path, after) != _with(given, pattern):
            raise UsageError(
                f"{path} cannot be changed safely", hint=f"Write {pattern} into allow of [tools] yourself."
            )
        files.replace_file(path, after, durable=True)
    return True


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    files.make_dir(folder)
    fd = files.open_private(folder / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        files.lock(fd)
        yield
    finally:
        os.close(fd)


def _allowed(path: Path, given: dict[str, Any]) -> list[Any]:
    tools: Any = given.get("tools", {})
    allowed: Any = cast("dict[str, Any]", tools).get("allow", []) if isinstance(tools, dict) else None
    if not isinstance(allowed, list):
        raise UsageError(f"{path} cannot be read: tools.allow is not a list", hint="Correct that line.")
    return cast("list[Any]", allowed)


def _with(given: dict[str, Any], pattern: str) -> dict[str, Any]:
    tools = cast("dict[str, Any]", given.get("tools", {}))
    return {**given, "tools": {**tools, "allow": [*tools.get("allow", ()), pattern]}}


def _added(text: str, pattern: str) -> str:
    """Line ends stay as they are in a file that has one kind of them."""
    is_dos = text.count("\r\n") == text.count("\n") > 0
    document = _tomlkit().parse(text.replace("\r\n", "\n") if is_dos else text)
    if "tools" not in document:
        blank = "" if not text.strip() else "\n" if text.endswith("\n") else "\n\n"
        added = f"{text}{blank}[tools]\nallow = [{_tomlkit().item(pattern).as_string()}]\n"
        return added.replace("\r\n", "\n").replace("\n", "\r\n") if is_dos else added
    tools: Any = document["tools"]
    if "allow" in tools:
        tools["allow"].append(pattern)
    else:
        tools["allow"] = [pattern]
    written = cast("str", document.as_string())
    return written.replace("\n", "\r\n") if is_dos else written


def _tomlkit() -> Any:
    try:
        import tomlkit
    except ModuleNotFoundError as error:
        raise MissingExtra("writing config.toml needs the package tomlkit", extra="cli") from error
    return tomlkit

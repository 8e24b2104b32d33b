"""Reversible repairs: every file is copied before it is changed, and replaced as a whole.

The copies and a manifest are in a directory next to the given path, `PATH.doctor-1` and so on. The manifest is written
before the first file is replaced, so that an interrupted repair can be reverted too.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from ...errors import Conflict, NotFound, UsageError
from ...stores.disk.files import DIR_MODE, FILE_MODE, disk_errors, open_private, replace_file, sync_dir, write_all
from ..importing.lines import opened
from .findings import Finding, Fix, ProblemKind

MANIFEST = "manifest.json"
CHUNK = 1 << 20


class Repaired(Struct, frozen=True):
    changed: tuple[str, ...]
    backup: str
    """The directory of the copies; empty if nothing had to be changed."""
    problems: tuple[ProblemKind, ...]
    """The problems that were not repaired."""


class Saved(Struct, frozen=True):
    """The previous state of one file. Its copy is named `number`, its new content `number.new`."""

    path: str
    number: int
    before: str
    """Digest of the copy; empty if there was no such file, or only its mode was changed."""
    after: str
    """Digest of the new content; empty if only the mode was changed."""
    mode: int
    mtime_ns: int


def apply(path: Path, findings: Sequence[Finding]) -> Repaired:
    left = tuple(finding.problem for finding in findings if not finding.fixes)
    plans = _merged(fix for finding in findings for fix in finding.fixes)
    if not plans:
        return Repaired((), "", left)
    with disk_errors(f"{path} cannot be repaired"):
        backup = _new_backup(path)
        saved = [_save(plan, backup, number) for number, plan in enumerate(plans, 1)]
        replace_file(backup / MANIFEST, msgspec.json.encode(saved), durable=True)
        for plan, old in zip(plans, saved, strict=True):
            _carry_out(plan, old, backup)
    return Repaired(tuple(str(plan.path) for plan in plans), str(backup), left)


def _merged(fixes: Iterator[Fix]) -> list[Fix]:
    """One change per file. Directories come last, so that their files are still reachable."""
    plans: dict[Path, Fix] = {}
    for fix in fixes:
        old = plans.get(fix.path, Fix(path=fix.path))
        asked = {name: value for name, value in asdict(fix).items() if value not in (False, None)}
        plans[fix.path] = replace(old, **asked | {"parents": (*old.parents, *fix.parents)})
    return sorted(plans.values(), key=lambda plan: (plan.path.is_dir(), str(plan.path)))


def _backups(path: Path) -> list[Path]:
    found = [p for p in path.parent.glob(f"{path.name}.doctor-*") if p.name.rpartition("-")[2].isdigit()]
    return sorted(found, key=lambda p: int(p.name.rpartition("-")[2]))


def _new_backup(path: Path) -> Path:
    known = _backups(path.absolute())
    number = int(known[-1].name.rpartition("-")[2]) + 1 if known else 1
    backup = path.absolute().with_name(f"{path.name}.doctor-{number}")
    os.mkdir(backup, DIR_MODE)
    sync_dir(backup.parent)
    return backup


def _save(plan: Fix, backup: Path, number: int) -> Saved:
    """Copies the file, and writes its new content next to the copy."""
    path = plan.path.absolute()
    there = path.lstat() if path.exists() else None
    before = after = ""
    if plan.content is not None or plan.drop_last or plan.end_last or plan.parents:
        if there:
            with opened(path) as fd:
                before = _fill(backup / str(number), _pieces(fd))
        after = _fill(backup / f"{number}.new", _new_content(plan))
    mode, mtime_ns = (there.st_mode & 0o7777, there.st_mtime_ns) if there else (FILE_MODE, 0)
    return Saved(str(path), number, before, after, mode, mtime_ns)


def _fill(path: Path, pieces: Iterator[bytes]) -> str:
    """Writes a new private file with this content, synced; returns its digest."""
    total = hashlib.sha256()
    fd = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        for piece in pieces:
            total.update(piece)
            write_all(fd, piece)
        os.fsync(fd)
    finally:
        os.close(fd)
    return total.hexdigest()


def _pieces(fd: int) -> Iterator[bytes]:
    while data := os.read(fd, CHUNK):
        yield data


def _digest(path: Path) -> str:
    with opened(path) as fd, open(fd, "rb", closefd=False) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _new_content(plan: Fix) -> Iterator[bytes]:
    if plan.content is not None:
        yield plan.content
        return
    parents = dict(plan.parents)
    with open(plan.path, "rb") as file:
        for number, line in enumerate(file, 1):
            ended = line.endswith(b"\n")
            if not ended and plan.drop_last:
                return
            yield _relinked(line, parents[number]) if number in parents else line
            if not ended and plan.end_last:
                yield b"\n"


def _relinked(line: bytes, parent: str) -> bytes:
    raw: dict[str, Any] = json.loads(line)
    raw["parentId"] = parent
    ending = b"\n" if line.endswith(b"\n") else b""
    return json.dumps(raw, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + ending


def _carry_out(plan: Fix, old: Saved, backup: Path) -> None:
    path = Path(old.path)
    if old.before and _digest(path) != old.before:
        raise Conflict(f"{path} was written while it was being repaired", hint="Close its program, then try again.")
    if old.after:
        _put(backup / f"{old.number}.new", path, old.mode, old.mtime_ns)
    if plan.mode is not None:
        path.chmod(plan.mode)


def _put(source: Path, path: Path, mode: int, mtime_ns: int) -> None:
    """Puts the content of `source` at `path` atomically, and sets its time, because some programs use it."""
    temporary = path.with_name(f".{path.name}.doctor")
    shutil.copyfile(source, temporary)
    os.chmod(temporary, mode)
    if mtime_ns:
        os.utime(temporary, ns=(mtime_ns, mtime_ns))
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_dir(path.parent)


def revert(path: Path) -> tuple[str, ...]:
    backups = _backups(path.absolute())
    if not backups:
        raise NotFound(
            f"there is no repair of {path} to revert", hint="Nothing was applied here, or it was reverted already."
        )
    backup = backups[-1]
    with disk_errors(f"{path} cannot be put back"):
        if not (backup / MANIFEST).exists():  # it died before it changed anything
            shutil.rmtree(backup)
            return ()
        saved = _manifest(backup)
        for old in saved:
            _check_unchanged(old)
        for old in saved:
            _restore(old, backup)
        shutil.rmtree(backup)
    return tuple(old.path for old in saved)


def _manifest(backup: Path) -> list[Saved]:
    try:
        return msgspec.json.decode((backup / MANIFEST).read_bytes(), type=list[Saved])
    except msgspec.DecodeError as error:
        raise UsageError(
            f"{backup / MANIFEST} cannot be read", hint="The copies next to it are complete; restore them by hand."
        ) from error


def _check_unchanged(old: Saved) -> None:
    path = Path(old.path)
    if not old.after or (not path.exists() and not old.before):
        return
    if not path.exists() or _digest(path) not in (old.before, old.after):
        raise Conflict(
            f"{path} has changed since it was repaired",
            hint="Nothing was restored. The copies of the repair are next to it.",
        )


def _restore(old: Saved, backup: Path) -> None:
    path = Path(old.path)
    if old.before:
        _put(backup / str(old.number), path, old.mode, old.mtime_ns)
    elif old.after:
        path.unlink(missing_ok=True)
    else:
        path.chmod(old.mode)

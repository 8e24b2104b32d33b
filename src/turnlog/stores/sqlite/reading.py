"""Finds out how to read a SQLite database so that no file next to it is written.

Without a write-ahead log nobody is writing: the file is opened as immutable, which creates no `-shm`. With a log and
its `-shm` the owner is running, and a read-only connection works. A log without `-shm` was left by a crash; opening it
in place would create one, so a private copy is read instead.
"""

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ..disk.files import unavailable

COPY = "mode=rw"


@contextmanager
def to_read(path: Path) -> Generator[tuple[Path, str]]:
    """(the file to read, the options of its URI)."""
    path = path.parent.resolve() / path.name  # the file must not be a link; its directory may be
    wal, shm = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    if not wal.exists() or not wal.stat().st_size:
        yield path, "mode=ro&immutable=1"
    elif shm.exists():
        yield path, "mode=ro"
    else:
        with tempfile.TemporaryDirectory(prefix="turnlog-") as folder:
            yield _copied(path, wal, Path(folder)), COPY


def _copied(path: Path, wal: Path, folder: Path) -> Path:
    os.chmod(folder, 0o700)
    try:
        shutil.copyfile(path, folder / path.name, follow_symlinks=False)
        shutil.copyfile(wal, folder / wal.name, follow_symlinks=False)
    except OSError as error:
        raise unavailable(f"{path} cannot be copied for reading", error) from error
    return folder / path.name

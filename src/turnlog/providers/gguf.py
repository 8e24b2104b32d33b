"""Reads the context length of the model in a GGUF file from the file's head, without loading it."""

import struct
from pathlib import Path
from typing import BinaryIO

from ..errors import UsageError

HEAD_MAX_BYTES = 256 * 1024 * 1024
"""No vocabulary is larger; a number beyond it is damage."""

_STRING, _ARRAY = 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""The size in bytes of each kind of number."""


def context_length(path: Path) -> int:
    hint = "Use local:PATH.gguf with a file that llama.cpp can load."
    try:
        with path.open("rb") as file:
            return _search(file)
    except OSError as error:
        raise UsageError(f"cannot read the model {path}: {error.strerror or error}", hint=hint) from error
    except (ValueError, struct.error, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not a GGUF model, or is incomplete", hint=hint) from error


def _search(file: BinaryIO) -> int:
    if file.read(4) != b"GGUF" or _number(file, "<I") < 2:
        raise ValueError("another format")
    _number(file, "<Q")  # tensors
    for _ in range(_number(file, "<Q")):
        name = file.read(_length(file)).decode()
        kind = _number(file, "<I")
        if name.endswith(".context_length"):
            return int.from_bytes(file.read(_SIZES[kind]), "little") if kind in _SIZES else _missing()
        _skip(file, kind)
    return _missing()


def _missing() -> int:
    raise ValueError("no context length")


def _number(file: BinaryIO, form: str) -> int:
    return struct.unpack(form, file.read(struct.calcsize(form)))[0]


def _length(file: BinaryIO) -> int:
    length = _number(file, "<Q")
    if length > HEAD_MAX_BYTES:
        raise ValueError("damaged")
    return length


def _skip(file: BinaryIO, kind: int, count: int = 1) -> None:
    if kind in _SIZES:
        file.seek(_SIZES[kind] * count, 1)
        return
    if kind not in (_STRING, _ARRAY):
        raise ValueError("unknown kind")
    for _ in range(count):
        if kind == _STRING:
            file.seek(_length(file), 1)
        else:
            inner = _number(file, "<I")
            _skip(file, inner, _length(file))

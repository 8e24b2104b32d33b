"""Reads JSON documents in bounded memory: a list of messages, or an object with one, message by message.

An export may have hundreds of megabytes; only one message is held at a time.
"""

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import UsageError
from .draft import SourceRecord
from .lines import LINE_MAX_BYTES, Read, chunks, opened

_BLANK = " \t\r\n"
_decoder = json.JSONDecoder()


def records(path: Path, items: str = "messages", read: Read | None = None) -> Iterator[SourceRecord]:
    """The elements of a top-level list, or of the list under `items`; also the object's other fields."""
    with opened(path) as fd:
        text = _Text(chunks(fd, path, read), path)
        opening = text.peek()
        if opening == "[":
            yield from _elements(text)
        elif opening == "{":
            yield from _fields(text, items)
        else:
            raise UsageError(f"{path} is not a JSON document", hint="Name an export or a list of messages.")


def _fields(text: "_Text", items: str) -> Iterator[SourceRecord]:
    text.skip()
    while text.peek() not in ("}", ""):
        try:
            name = text.value()
            if text.peek() != ":":
                raise ValueError("a field without a value")
            text.skip()
            if name == items and text.peek() == "[":
                yield from _elements(text)
            else:
                yield SourceRecord(f"field {name}", text.value(), field=str(name))
        except ValueError as error:
            yield SourceRecord(text.place(), None, f"no JSON: {error}", last=True)
            return
        if text.peek() == ",":
            text.skip()


def _elements(text: "_Text") -> Iterator[SourceRecord]:
    text.skip()
    number = 0
    while (char := text.peek()) != "]":
        number += 1
        place = f"message {number}"
        try:
            if not char:
                raise ValueError("the document ends here")
            value = text.value()
        except ValueError as error:
            # Without the end of this message the beginning of the next cannot be found.
            yield SourceRecord(place, None, f"no JSON: {error}", last=True)
            return
        yield SourceRecord(place, value) if isinstance(value, dict) else SourceRecord(place, value, "no JSON object")
        if text.peek() == ",":
            text.skip()
    text.skip()


class _Text:
    """The part of the document's text that one value needs."""

    def __init__(self, data: Iterator[bytes], path: Path) -> None:
        self._data = data
        self._path = path
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        self._text = ""
        self._at = 0
        self._passed = 0

    def place(self) -> str:
        return f"character {self._passed + self._at + 1}"

    def skip(self) -> None:
        self._at += 1

    def peek(self) -> str:
        """The next character that is not blank; empty at the end."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _BLANK:
                    return self._text[self._at]
                self._at += 1
            if not self._more():
                return ""

    def value(self) -> Any:
        self.peek()
        wanted = 0
        while True:
            try:
                value, end = _decoder.raw_decode(self._text, self._at)
            except RecursionError:
                raise ValueError("nested too deep") from None
            except ValueError:
                wanted = max(2 * wanted, 2 * (len(self._text) - self._at))
                if not self._fill(wanted):
                    raise
                continue
            if end < len(self._text) or not self._more():  # a number may continue in the next piece
                self._at = end
                return value

    def _fill(self, wanted: int) -> bool:
        """Reads until this much is there, doubling, so that a large value is not parsed again for every piece."""
        if len(self._text) - self._at > LINE_MAX_BYTES:
            raise ValueError(f"longer than {LINE_MAX_BYTES:,} characters")
        grown = False
        while len(self._text) - self._at <= wanted and self._more():
            grown = True
        return grown

    def _more(self) -> bool:
        data = next(self._data, None)
        if data is None:
            return False
        self._passed += self._at
        self._text, self._at = self._text[self._at :] + self._decode(data), 0
        return True

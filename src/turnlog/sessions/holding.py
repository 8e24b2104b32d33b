"""Whether a value holds words that are to be erased: in any text or bytes in it, as a person would read them.

Case and the way that Unicode writes a letter do not matter. Tools return JSON, and frameworks store it, so a text that
is JSON is also looked at without its escapes.
"""

import re
import unicodedata
from base64 import b64decode
from collections.abc import Collection, Iterable
from typing import Any, cast

NESTED_MAX = 3
"""JSON in a text of JSON in a text of JSON."""
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_MEANING = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def holds(value: Any, text: str) -> bool:
    """Whether a text in the value contains these words."""
    wanted = _folded(text)
    return any(wanted in form for found in _texts(value) for form in _forms(_decoded(found)))


def repeats(value: Any, texts: Collection[str]) -> bool:
    """Whether one of these texts is in the value as a whole: equal to a text there, or in bytes after its length, as
    binary formats write it.
    """
    written = [text.encode("utf-8", "surrogatepass") for text in texts]
    return any(
        any(_has_whole(found, one) for one in written) if isinstance(found, bytes) else found in texts
        for found in _texts(value)
    )


def _texts(value: Any) -> Iterable[str | bytes]:
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            fields = cast("dict[str, Any]", item)
            data = fields.get("$bytes")
            if len(fields) == 1 and isinstance(data, str):
                yield _bytes_of(data)
            else:
                waiting += [*fields.keys(), *fields.values()]
        elif isinstance(item, list):
            waiting += cast("list[Any]", item)


def _bytes_of(data: str) -> str | bytes:
    try:
        return b64decode(data, validate=True)
    except ValueError:
        return data


def _decoded(found: str | bytes) -> str:
    return found.decode("utf-8", "ignore") if isinstance(found, bytes) else found


def _folded(text: str) -> str:
    if text.isascii():
        return text.casefold()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _forms(text: str) -> Iterable[str]:
    """The text as it is, and without its escapes."""
    yield _folded(text)
    for _ in range(NESTED_MAX):
        before, text = text, _ESCAPE.sub(_meant, text)
        if text == before:
            return
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # joins the halves of a letter
        yield _folded(text)


def _meant(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else _MEANING.get(escape[2], escape[2])


def _has_whole(data: bytes, text: bytes) -> bool:
    size = len(text)
    lengths = [size.to_bytes(n, "big") for n in (1, 2, 4) if size < 256**n]
    lengths += [bytes([0xA0 | size])] if size < 32 else []  # MessagePack's shortest form
    return any(length + text in data for length in lengths)

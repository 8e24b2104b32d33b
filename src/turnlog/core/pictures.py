"""Decides which pictures and documents a model API accepts, and in what form.

The first bytes of a picture count more than its declared type: an API refuses the whole request because of a PNG that
is declared as a JPEG. Nothing is converted. For media that cannot be sent the result is None, and the caller shows a
note.
"""

import binascii
import re
from typing import Any, cast

from msgspec import Struct

from .entries import Block, clean

PICTURE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")

_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"BM", "image/bmp"),
    (b"%PDF", "application/pdf"),
    (b"\x00\x00\x01\x00", "image/x-icon"),
    (b"<svg", "image/svg+xml"),
    (b"<?xml", "image/svg+xml"),
    (b"\x89PNG", ""),
    (b"RIFF", ""),
)
"""The last two mean: damaged, or another kind of media."""
_PDF_WITHIN_BYTES = 1024
"""PDF readers allow this many bytes before its signature."""
_DATA_ADDRESS = re.compile(r"data:(?P<form>[^;,]*)(?:;[^;,]*)*;base64,(?P<data>.*)", re.DOTALL)


class PictureLimits(Struct, frozen=True):
    """The media that one API accepts."""

    max_bytes: int
    schemes: tuple[str, ...]


def picture(block: Block, limits: PictureLimits) -> Block | None:
    match block.get("source"):
        case {"type": "base64", "data": str(data), **rest}:
            source = _encoded(data, rest.get("media_type"), limits)
        case {"type": "url", "url": str(url)}:
            source = _addressed(url, limits)
        case _:
            source = None
    return source and {"type": "image", "source": source}


def _addressed(url: str, limits: PictureLimits) -> Block | None:
    if found := _DATA_ADDRESS.fullmatch(url):
        return _encoded(found["data"], found["form"], limits)
    return {"type": "url", "url": url} if _is_address(url, limits) else None


def _is_address(url: str, limits: PictureLimits) -> bool:
    scheme, _, rest = url.partition("://")
    return scheme in limits.schemes and bool(rest) and url.isprintable() and not re.search(r"\s", url)


def _encoded(data: str, form: Any, limits: PictureLimits) -> Block | None:
    whole = _whole(data)
    if whole is None:
        return None
    encoded, raw = whole
    found = form_of(raw, form)
    if found not in PICTURE_TYPES or len(raw) > limits.max_bytes:
        return None
    return {"type": "base64", "media_type": found, "data": encoded}


def _whole(data: str) -> tuple[str, bytes] | None:
    """Base64 as APIs read it, and the decoded bytes. Other programs split it into lines, or leave out the padding."""
    if found := _DATA_ADDRESS.fullmatch(data):
        data = found["data"]
    try:
        raw = binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        data = "".join(data.split())
        data = data.rstrip("=") + "=" * (-len(data.rstrip("=")) % 4)
        try:
            raw = binascii.a2b_base64(data, strict_mode=True)
        except ValueError:
            return None
    return (data, raw) if raw else None


def form_of(raw: bytes, form: Any = "") -> str:
    if raw.startswith(b"RIFF") and raw[8:12] == b"WEBP":
        return "image/webp"
    for beginning, found in _BEGINNINGS:
        if raw.startswith(beginning):
            return found
    said = form.strip().lower() if isinstance(form, str) else ""
    return "image/jpeg" if said == "image/jpg" else said


def document(block: Block, limits: PictureLimits, *, cited: bool) -> Block | None:
    source = _document_source(block.get("source"), limits)
    if source is None:
        return None
    shown: Block = {"type": "document", "source": source}
    for name in ("title", "context"):
        words = block.get(name)
        if isinstance(words, str) and words.strip():
            shown[name] = clean(words)
    return {**shown, "citations": {"enabled": True}} if cited else shown


def _document_source(source: Any, limits: PictureLimits) -> Block | None:
    match source:
        case {"type": "base64", "media_type": "application/pdf", "data": str(data)}:
            whole = _whole(data)
            if whole is None or b"%PDF" not in whole[1][:_PDF_WITHIN_BYTES]:
                return None
            return {"type": "base64", "media_type": "application/pdf", "data": whole[0]}
        case {"type": "text", "data": str(text)} if text.strip():
            return {"type": "text", "media_type": "text/plain", "data": clean(text)}
        case {"type": "url", "url": str(url)} if _is_address(url, limits):
            return {"type": "url", "url": url}
        case {"type": "content", "content": str(text)} if text.strip():
            return {"type": "content", "content": clean(text)}
        case {"type": "content", "content": [*parts]}:
            shown = [good for part in parts if (good := _document_part(part, limits))]
            return {"type": "content", "content": shown} if shown else None
        case _:
            return None


def _document_part(part: Any, limits: PictureLimits) -> Block | None:
    match part:
        case {"type": "text", "text": str(text)} if text.strip():
            return {"type": "text", "text": clean(text)}
        case {"type": "image"}:
            return picture(cast("Block", part), limits)
        case _:
            return None

"""The files of the page. They are a fixed set: no path of a request is used to open a file."""

from functools import lru_cache

from litestar import Response, get

from ...errors import NotFound
from .view import WEB

KINDS = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "htmx.min.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "htmx.LICENSE.txt": "text/plain",
}
KEEP = {"Cache-Control": "public, max-age=31536000, immutable"}
"""Their URLs contain a digest, so a changed file has another URL."""


@get("/static/{name:str}", sync_to_thread=False)
def static_file(name: str) -> Response[bytes]:
    return _answer(name)


@get("/favicon.ico", sync_to_thread=False)
def icon() -> Response[bytes]:
    return _answer("icon.svg")


def _answer(name: str) -> Response[bytes]:
    if name not in KINDS:
        raise NotFound("there is no such file", hint="The page names the files that it has.")
    return Response(_content(name), media_type=KINDS[name], headers=KEEP)


@lru_cache(maxsize=16)
def _content(name: str) -> bytes:
    return (WEB / "static" / name).read_bytes()

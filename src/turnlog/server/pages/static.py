"""The files of the page. They are a fixed set: no path of a request is used to open a file.

Their URLs contain a digest of all of them, as a folder: modules import each other by relative names, so a page never
mixes files of two versions, and browsers may keep each file for ever.
"""

import gzip
from functools import lru_cache

from litestar import Response, get

from ...errors import NotFound
from ..service import AnyRequest
from .view import ASSETS, WEB, takes_gzip, version

TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".txt": "text/plain"}
KEEP = {"Cache-Control": "public, max-age=31536000, immutable"}
ASK_AGAIN = {"Cache-Control": "no-cache"}


@get("/static/{folder:str}/{name:str}", sync_to_thread=False)
def static_file(request: AnyRequest, folder: str, name: str) -> Response[bytes]:
    return _answer(request, name, is_current=folder == version())


@get("/favicon.ico", sync_to_thread=False)
def icon(request: AnyRequest) -> Response[bytes]:
    return _answer(request, "icon.svg", is_current=False)


def _answer(request: AnyRequest, name: str, *, is_current: bool) -> Response[bytes]:
    if name not in ASSETS:
        raise NotFound("there is no such file", hint="The page names the files that it has.")
    zipped = takes_gzip(request)
    headers = {**(KEEP if is_current else ASK_AGAIN), "Vary": "Accept-Encoding"}
    headers |= {"Content-Encoding": "gzip"} if zipped else {}
    return Response(_content(name, zipped), media_type=TYPES[name[name.rindex(".") :]], headers=headers)


@lru_cache(maxsize=2 * len(ASSETS))
def _content(name: str, zipped: bool) -> bytes:
    content = (WEB / "static" / name).read_bytes()
    return gzip.compress(content, 9, mtime=0) if zipped else content

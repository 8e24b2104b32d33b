"""Lists Turnlog's own files, which an agent's file tools cannot reach, whatever its workspace is.

These are the data directory with the configuration and the administrator's token, the store with its companion files,
and the request log. An agent's workspace inside the data directory stays open, unless it contains transcripts.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from ..memory import place_of
from ..settings import Settings
from ..stores import parse_url
from ..stores.jsonl.layouts import OWN, place_at
from ..tools.fence import Fence, companions
from ..turns import request_log

WORKSPACE = "workspace"
"""In the data directory: the default workspace of a server's agents."""
TOKEN_FILE = "admin.token"  # noqa: S105 - the name of a file
"""In the data directory: the token that the first start of `turnlog serve` creates."""
_DATABASE_TAILS = ("-*", ".doctor-*")
"""-wal, -shm, -journal and -leases; copies of repairs."""
_IN_DIRECTORY = ("agents", "transcripts", "leases", "ledger.jsonl", "turnlog.json", "sessions.json", OWN)
"""The files of a JSONL store, or of another program, in its directory. Other files there do not belong to it."""
_OF_AGENT = ("sessions", "convlogs", "sessions.json")
"""Below agents/NAME."""
_LINKED = ("agents/*", *(f"agents/*/{name}" for name in _OF_AGENT))
"""Names that people replace by links to a larger disk; in the data directory any other name too."""


def kept(home: Path) -> Path:
    """Where the former contents of files are kept that an agent has replaced."""
    return home / "former-files"


def fence(settings: Settings, env: Mapping[str, str]) -> Fence:
    home = settings.home
    held, patterns = _store(settings.store_url())
    logged = env.get(request_log.VARIABLE)
    own = [home, home / "config.toml", home / TOKEN_FILE, *([Path(logged).absolute()] if logged else [])]
    given = [agent.workspace for agent in settings.agents.values() if agent.workspace]
    workspaces = [home / WORKSPACE, *(Path(path).expanduser().absolute() for path in given)]
    return Fence(
        closed=(*own, *held),
        patterns=tuple(patterns),
        open=tuple(path for path in workspaces if not _is_among(path, held)),
        linked=(*((home, pattern) for pattern in ("*", *_LINKED)), *_links(settings.store_url())),
    )


def _links(url: str) -> list[tuple[Path, str]]:
    scheme, path, options = parse_url(url)
    if scheme != "jsonl":
        return []
    place = place_at(Path(path).expanduser().absolute(), options.get("layout"), options.get("dialect"))
    names = ("*", *_LINKED) if place.layout.arrangement == "folders" else _LINKED
    return [(place.base, name) for name in names]


def _store(url: str) -> tuple[list[Path], list[Path]]:
    """(exact places, patterns)"""
    scheme, path, options = parse_url(url)
    root = Path(path).expanduser().absolute()
    match scheme:
        case "sqlite":
            files = [root, root.with_name("convlog.db"), Path(place_of(url)).expanduser().absolute()]
            return files, [companions(file, tail) for file in files for tail in _DATABASE_TAILS]
        case "jsonl":
            place = place_at(root, options.get("layout"), options.get("dialect"))
            memory = Path(place_of(url)).expanduser().absolute()
            whole = bool(place.layout.base) or place.layout.arrangement == "folders"
            inside = [place.base] if whole else [root / name for name in _IN_DIRECTORY]
            return [*inside, memory], [companions(memory, "-*"), companions(root, ".doctor-*")]
        case _:
            return [], []


def _is_among(workspace: Path, places: list[Path]) -> bool:
    """Whether a workspace contains transcripts. agents/NAME/workspace does not: other programs keep it there."""
    found = Path(os.path.realpath(workspace))
    for place in map(Path, map(os.path.realpath, places)):
        if found == place or place in found.parents:
            below = found.relative_to(place).parts
            if place.name != "agents" or len(below) < 2 or below[1] in _OF_AGENT:
                return True
    return False

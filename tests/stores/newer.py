"""A newer version of Turnlog: the source tree with one more entry type, row field, query field and entry field.

It runs in a process of its own, with a store open, and does what it is asked line by line.
"""

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
import turnlog

SOURCE = Path(turnlog.__file__).parent
EDITS = {
    "core/entries.py": [
        (
            "Entry: TypeAlias = (\n",
            'class Starred(Stored, frozen=True, kw_only=True, tag="starred", gc=False):\n'
            '    sets = ("starred", "value")\n\n    value: bool\n\n\nEntry: TypeAlias = (\n',
        ),
        ("\n)\nTranscript: TypeAlias", "\n    | Starred\n)\nTranscript: TypeAlias"),
        ("    title: str\n", "    title: str\n    mood: str | None = None\n"),
    ],
    "core/rows.py": [
        ("FOLD = 5\n", "FOLD = 6\n"),
        ("    compactions: int = 0\n", "    compactions: int = 0\n    starred: bool = False\n"),
        ("    compactions: int\n", "    compactions: int\n    starred: bool\n"),
    ],
    "core/query.py": [
        ("    label: str | None = None\n", "    label: str | None = None\n    starred: bool | None = None\n")
    ],
}


def source_tree(folder):
    """The newer version's package, below `folder`."""
    tree = folder / "turnlog"
    shutil.copytree(SOURCE, tree, ignore=shutil.ignore_patterns("__pycache__"))
    for name, edits in EDITS.items():
        text = (tree / name).read_text(encoding="utf-8")
        for old, new in edits:
            assert text.count(old) == 1, f"{name}: {old!r}"
            text = text.replace(old, new)
        (tree / name).write_text(text, encoding="utf-8")
    return folder


class Newer:
    """`with Newer(folder, url) as newer: newer("star", "s1")`."""

    def __init__(self, folder, url):
        self._arguments = [sys.executable, "-P", str(Path(__file__)), str(folder), url]

    def __enter__(self):
        self._process = subprocess.Popen(self._arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __call__(self, *asked):
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def __exit__(self, *_):
        self._process.stdin.close()
        assert self._process.wait(120) == 0
        self._process.stdout.close()


async def _serve(url):
    from msgspec import to_builtins

    from turnlog.core.entries import Starred, Title
    from turnlog.core.query import Query

    async with turnlog.open_store(url, durability="os") as store:
        for line in iter(sys.stdin.readline, ""):
            match json.loads(line):
                case ["star", session_id, value]:
                    answer = (await store.append(session_id, [Starred(value=value)])).row.starred
                case ["title", session_id, title, mood]:
                    answer = (await store.append(session_id, [Title(title=title, mood=mood)])).row.title
                case ["row", session_id]:
                    answer = to_builtins(await store.describe(session_id))
                case ["entries", session_id]:
                    answer = to_builtins(await store.read(session_id))
                case ["starred"]:
                    answer = [row.id for row in (await store.find(Query(starred=True))).items]
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[2]))

"""A large session that was never compacted, in processes of their own: a verb takes no more memory because of it.
`make torture` runs the long form: 500 MB, all verbs, all stores.
"""

import asyncio
import os
import sys

import pytest
from benchmarks import large_session

from tests.stores import postgres

LARGE_MB = int(os.environ.get("LARGE_MB", "30"))
SMALL_MB = 1
MORE_MB = 100
"""More than a session of one megabyte takes. Before it was bounded, thirty megabytes took 150 to 400 more."""
LIMIT_MB = 400
FIRST_TURN_S = 30.0
LONG = (
    *("search", "export", "import", "backup", "restore", "copy", "doctor", "page", "turn"),
    *("show", "reindex", "fork", "explain", "prompt", "expand", "pin", "erase"),
)
SHORT = {
    "jsonl": ("fork", "prompt", "turn", "expand json", "erase"),
    "sqlite": ("show json", "export json", "fork", "explain", "pin", "page", "turn", "erase seq"),
    "postgresql": ("show", "export native", "fork", "prompt", "turn", "erase"),
}


@pytest.fixture(params=["jsonl", "sqlite", "postgres"])
def urls(request, tmp_path):
    """Of a small and of a large session."""
    if request.param == "postgres":
        return [postgres.url_of(f"{tmp_path.name}-{name}") for name in ("small", "large")]
    return [f"{request.param}:{tmp_path / name}" for name in ("small", "large")]


def test_no_verb_takes_more_memory_because_the_session_is_large(urls, tmp_path):
    found = []
    for url, size in zip(urls, (SMALL_MB, LARGE_MB), strict=True):
        home = tmp_path / f"home-{size}"
        home.mkdir()
        asyncio.run(large_session.build(url, size * large_session.MB))
        verbs = large_session.verbs(url, home)
        short = SHORT[url.partition(":")[0]]
        wanted = [name for name in verbs if (name.split()[0] in LONG if LARGE_MB > 100 else name in short)]
        found.append({name: verbs[name]() for name in wanted})
    small, large = found
    for name, figures in large.items():
        assert not figures.failed, (name, figures)
        most = min(LIMIT_MB, small[name].peak_mb + MORE_MB)
        assert figures.peak_mb <= most, (name, figures, small[name])
    if LARGE_MB > 100:  # the goal is stated for a size, and there the processor says how long it took
        assert large["turn"].processor_s <= FIRST_TURN_S
        print(*(f"{name}: {figures}" for name, figures in large.items()), sep="\n", file=sys.stderr)

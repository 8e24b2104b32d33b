"""Names of tools and ids of calls in the form that a model API accepts, and the mapping back.

A refused name is replaced by its own letters and a hash of the whole name. So it is the same in every request, whatever
other tools there are, and caches keep working. Only a tool that really has that name takes precedence.
"""

import hashlib
import re
from collections.abc import Iterable

NAME_MAX_CHARS = 64
"""OpenAI's limit. Anthropic accepts 128 now, but accepted 64 before, and servers that speak its format still do."""

HASH_CHARS = 12
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


class Names:
    """`tools`: the names of the tools that may be called."""

    def __init__(self, tools: Iterable[str]) -> None:
        wanted = list(tools)
        self._taken = {name for name in wanted if _NAME.fullmatch(name)}
        self._sent: dict[str, str] = {}
        self.back: dict[str, str] = {}
        """Name as sent → own name; only those that differ."""
        for name in wanted:
            self._taken.add(self.sent(name))

    def sent(self, name: str) -> str:
        if _NAME.fullmatch(name):
            return name
        if name not in self._sent:
            self._sent[name] = shortened(name, NAME_MAX_CHARS, self._taken)
            self.back.setdefault(self._sent[name], name)
        return self._sent[name]


class Ids:
    """The ids of calls within one request; each depends only on those before it."""

    def __init__(self, allowed: re.Pattern[str], max_chars: int) -> None:
        self._allowed = allowed
        self._max_chars = max_chars
        self._sent: dict[str, str] = {}
        self._used: set[str] = set()

    def sent(self, call_id: str) -> str:
        if call_id not in self._sent:
            fits = self._allowed.fullmatch(call_id) and len(call_id) <= self._max_chars
            made = call_id if fits else ""
            if not made or made in self._used:
                made = shortened(call_id, self._max_chars, self._used)
            self._sent[call_id] = made
            self._used.add(made)
        return self._sent[call_id]


def shortened(text: str, max_chars: int, taken: set[str]) -> str:
    """Its letters and digits, and a hash of the whole text; hashed again while another text has that result."""
    head = _NOT_IN_NAMES.sub("_", text)[: max_chars - HASH_CHARS - 1]
    digest = text.encode("utf-8", "surrogatepass")
    while True:
        hashed = hashlib.sha256(digest).hexdigest()
        name = f"{head}_{hashed[:HASH_CHARS]}"
        if name not in taken:
            return name
        digest = hashed.encode()

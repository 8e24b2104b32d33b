"""The adapters on PostgreSQL, for suites that only know URLs of memory and files.

Each URL that a suite names is a schema of its own in the database of PEER_POSTGRES; `memory:` is a new one for each
object. A suite imports this module by its name alone, because its own tests are the package `tests` there.
"""

import hashlib
import os
import threading
import weakref
from functools import cache
from importlib import import_module
from queue import SimpleQueue

MODULES = {"TurnlogSession": "openai_agents", "TurnlogSaver": "langgraph", "TurnlogSessionStore": "claude_agent_sdk"}
FIRST = {"TurnlogSession": 1}
"""The place of the URL among the arguments, where it is not the first."""


def __getattr__(name):
    if name not in MODULES:
        raise AttributeError(name)
    return on_postgres(name)


@cache
def on_postgres(name):
    adapter = getattr(import_module(f"turnlog.adapters.{MODULES[name]}"), name)
    place = FIRST.get(name, 0)

    class OnPostgres(adapter):
        def __init__(self, *args, **kwargs):
            url = args[place] if len(args) > place else kwargs.pop("url", None)
            super().__init__(*args[:place], address(url), *args[place + 1 :], **kwargs)
            holder = self.holder if hasattr(self, "holder") else self._holder
            weakref.finalize(self, forgotten().put, holder)

    return OnPostgres


def address(url):
    place = os.urandom(8).hex() if url in (None, "memory:") else url
    return f"{os.environ['PEER_POSTGRES']}&schema=t_{hashlib.sha256(place.encode()).hexdigest()[:20]}"


@cache
def forgotten():
    """Stores whose object is gone are closed, or their connections would use up the server's."""
    queue = SimpleQueue()

    def close():
        while True:
            queue.get().close()

    threading.Thread(target=close, daemon=True).start()
    return queue

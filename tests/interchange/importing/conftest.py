import asyncio
import shutil
from pathlib import Path

import apsw
import pytest

import turnlog
from turnlog.core import history
from turnlog.interchange.importing import import_path
from turnlog.testing import check_messages

FIXTURES = Path(__file__).parents[2] / "transcripts" / "import"


@pytest.fixture
def foreign(tmp_path):
    """A copy of the hand-made files of other programs, with ZeroClaw's database built from its schema."""
    root = tmp_path / "foreign"
    shutil.copytree(FIXTURES, root)
    make_zeroclaw(root / "zeroclaw" / "sessions.db")
    return root


def make_zeroclaw(path):
    db = apsw.Connection(str(path))
    db.execute((FIXTURES / "zeroclaw" / "schema.sql").read_text(encoding="utf-8"))
    db.close()


class Outcome:
    """What an import into a fresh store gave."""

    def __init__(self, imported, logs, rows):
        self.imported = imported
        self.logs = logs
        self.rows = rows

    def only(self):
        (result,) = self.imported
        return result

    def history(self, session_id=None):
        log = self.logs[session_id or next(iter(self.logs))]
        messages = history.build(log).messages
        if messages:
            check_messages(messages)
        return messages

    def log(self):
        (log,) = self.logs.values()
        return log

    def notes(self):
        return "\n".join(note for result in self.imported for note in result.notes)


async def outcome(store, path, **options):
    imported = await import_path(store, path, **options)
    ids = [result.id for result in imported if result.id]
    logs = {session_id: await store.read(session_id) for session_id in ids}
    return Outcome(imported, logs, {session_id: await store.describe(session_id) for session_id in ids})


@pytest.fixture
def run():
    """Imports each path in turn into one store; the outcomes."""

    def imported(*paths, url="memory:", **options):
        async def go():
            async with turnlog.open_store(url) as store:
                return [await outcome(store, path() if callable(path) else path, **options) for path in paths]

        results = asyncio.run(go())
        return results[0] if len(results) == 1 else results

    return imported

"""What holds for every test: no property fails because the machine was busy, no run shares a directory with another,
and the tests that take longest begin first."""

import gc
import shutil
import tempfile
from itertools import cycle

import pytest
from hypothesis import settings

from .opened_sockets import pytest_runtest_makereport as pytest_runtest_makereport

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

LONGEST = (
    (
        "tests/web/test_operating.py",
        "tests/web/test_every_page.py",
        "tests/web/test_chat_page.py",
        "tests/web/test_browser.py",
        "tests/web/test_approvals.py",
        "tests/web/test_picks.py",
        "tests/web/test_unsent.py",
        "tests/web/test_erasing.py",
        "tests/web/test_pages.py",
    ),
    (
        "tests/server/test_cluster.py",
        "tests/channels/test_cluster.py",
        "tests/turns/test_absence.py",
        "tests/stores/postgres/test_failover.py",
        "tests/server/http/test_connections.py",
        "tests/torture/test_audit.py",
        "tests/server/compatible/test_requests.py",
        "tests/turns/test_approval_outage.py",
        "tests/channels/test_serving.py",
        "tests/server/test_rejoin.py",
        "tests/cli/test_terminal.py",
    ),
    (
        "tests/test_large_sessions.py",
        "tests/turns/test_real_models.py",
        "tests/cli/test_reading.py",
        "tests/server/test_workers.py",
        "tests/stores/jsonl/test_pi.py",
        "tests/stores/test_crash.py",
        "tests/turns/test_crash_points.py",
        "tests/stores/test_torn.py",
        "tests/server/http/test_openapi.py",
        "tests/stores/postgres/test_store.py",
        "tests/server/test_load.py",
        "tests/providers/test_local.py",
        "tests/tools/test_mcp.py",
    ),
)
"""Files with tests of several seconds: one that began last would keep a single worker busy. A group is for one worker:
tests that need the browser, tests that wait most of the time, tests that compute.
"""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    if config.option.basetemp is None:
        config.option.basetemp = tempfile.mkdtemp(prefix="turnlog-tests-")
        config.stash[OWN_FOLDER] = config.option.basetemp


OWN_FOLDER = pytest.StashKey[str]()


def pytest_sessionfinish(session, exitstatus):
    """What failed tests left is kept, to be looked at."""
    if exitstatus == pytest.ExitCode.OK and OWN_FOLDER in session.config.stash:
        shutil.rmtree(session.config.stash[OWN_FOLDER], ignore_errors=True)


def pytest_collection(session):
    """What is imported and collected stays until the end: looking through all of it for garbage takes long."""
    gc.disable()


def pytest_collection_finish(session):
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Each worker is given one run of the list, and takes from the ends of others' when it has done its own. So the
    list is made of as many parts of one length as there are workers, and each begins with its share of what is long."""
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    files = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    parts = [[] for _ in range(workers)]
    for part, names in zip(cycle(parts), LONGEST):
        for name in names:
            part += files.pop(name, ())
    rest = [item for found in files.values() for item in found]
    length = -(-len(items) // workers)
    for part in parts:
        missing = max(0, length - len(part))
        part += rest[:missing]
        del rest[:missing]
    items[:] = [item for part in parts for item in part] + rest

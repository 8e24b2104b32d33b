"""Real clients against a real server. A run of its own (`make test-clients`): `make test` fetches and runs none."""

import os

import pytest

collect_ignore_glob = [] if os.environ.get("TURNLOG_REAL_CLIENTS") else ["test_*.py"]


@pytest.fixture
def relay(tmp_path):
    from tests.server.compatible.serving import serving

    with serving(tmp_path / "server") as found:
        yield found

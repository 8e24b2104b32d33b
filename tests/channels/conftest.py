import pytest

from .scenes import World


@pytest.fixture(params=["sqlite", "jsonl"])
def url(request, tmp_path):
    return f"jsonl:{tmp_path}/files" if request.param == "jsonl" else f"sqlite:{tmp_path}/sessions.db"


@pytest.fixture
def world():
    return World()

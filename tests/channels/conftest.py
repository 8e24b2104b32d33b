import pytest

from ..stores import postgres
from .scenes import World


@pytest.fixture(params=["sqlite", "jsonl", "postgresql"])
def url(request, tmp_path):
    if request.param == "postgresql":
        return postgres.url_of(tmp_path)
    return f"jsonl:{tmp_path}/files" if request.param == "jsonl" else f"sqlite:{tmp_path}/sessions.db"


@pytest.fixture
def world():
    return World()

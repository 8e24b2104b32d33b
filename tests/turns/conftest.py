import pytest

from .talk import url_at


@pytest.fixture(params=["jsonl", "sqlite"])
def url(request, tmp_path):
    return url_at(request.param, tmp_path)

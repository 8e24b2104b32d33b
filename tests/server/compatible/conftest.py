import pytest

from .serving import serving


@pytest.fixture(scope="module")
def relay(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("relay")) as found:
        yield found

import pytest

from .browsing import close_browser


@pytest.fixture(scope="session", autouse=True)
def browser():
    yield
    close_browser()

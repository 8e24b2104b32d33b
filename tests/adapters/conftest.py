"""What all tests of adapters share."""

import pytest

from turnlog.adapters import resident


@pytest.fixture(autouse=True)
def shared_stores_are_closed():
    """Many tests leave their stores open, as programs do: with its files, each would stay open until the end."""
    yield
    for place, store in list(resident._shared.items()):
        if store.entered is not None and store.entered.is_open:
            store.entered.exit()
        resident._shared.pop(place, None)

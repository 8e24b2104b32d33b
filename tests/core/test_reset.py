"""When sessions are reset, as the setting says it."""

import pytest

from turnlog import UsageError
from turnlog.core.reset import parse_reset


def test_reset_is_read_in_minutes():
    assert parse_reset("off") == ("off", 0)
    assert parse_reset("idle:60") == ("idle", 60)
    assert parse_reset("daily:04:30") == ("daily", 270)


@pytest.mark.parametrize("text", ["", "off:1", "idle", "idle:0", "idle:x", "daily", "daily:24:00", "daily:4", "weekly"])
def test_another_way_to_reset_is_refused(text):
    with pytest.raises(UsageError, match="way to reset"):
        parse_reset(text)

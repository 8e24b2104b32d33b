"""The error for what JSON cannot hold."""

import math
from typing import Any, cast

from ..errors import UsageError


class NotStorable(UsageError, TypeError):
    """JSON cannot hold this."""

    hint = "Give plain JSON values; nothing was stored."


def is_endless(value: Any) -> bool:
    """Whether NaN or an infinity is somewhere in it. Serializers write null instead, and say nothing."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(is_endless, cast("dict[Any, Any]", value).values()))
    return isinstance(value, _LISTS) and any(map(is_endless, cast("list[Any]", value)))


_LISTS = (list, tuple, set, frozenset)

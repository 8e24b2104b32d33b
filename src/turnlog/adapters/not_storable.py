"""The error for what JSON cannot hold."""

import math
from typing import Any, cast

from ..errors import UsageError


class NotStorable(UsageError, TypeError):
    """JSON cannot hold this."""

    hint = "Give plain JSON values; nothing was stored."


def is_endless(value: Any) -> bool:
    """Whether NaN or an infinity is somewhere in it. Serializers write null instead, and say nothing."""
    match value:
        case float():
            return not math.isfinite(value)
        case dict():
            return any(map(is_endless, cast("dict[Any, Any]", value).values()))
        case list() | tuple():
            return any(map(is_endless, cast("list[Any]", value)))
        case _:
            return False

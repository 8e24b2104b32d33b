"""Lists of items, page by page: `after`, `limit` and `order` of a query, and the fields around a page."""

from collections.abc import Sequence
from typing import Any

from ..service import AnyRequest
from .errors import InvalidField, Unknown
from .response_items import ResponseItem

LIMIT_MAX = 100
LIMIT = 20
NUMBER_MAX = 2**53


def number_of(request: AnyRequest, name: str, default: int) -> int:
    given = request.query_params.get(name)
    if given is None or given == "":
        return default
    if not given.isascii() or not given.isdecimal() or len(given) > 16 or int(given) > NUMBER_MAX:
        raise InvalidField(f"{name} is a number", param=name)
    return int(given)


def page(request: AnyRequest, items: Sequence[ResponseItem]) -> dict[str, Any]:
    """`items`: all of them, the oldest first. The newest come first unless the query says otherwise."""
    limit, order = number_of(request, "limit", LIMIT), request.query_params.get("order", "desc")
    if not 1 <= limit <= LIMIT_MAX:
        raise InvalidField(f"limit must be between 1 and {LIMIT_MAX}", param="limit")
    if order not in ("asc", "desc"):
        raise InvalidField("order is asc or desc", param="order")
    ordered = list(items) if order == "asc" else list(reversed(items))
    if after := request.query_params.get("after"):
        at = next((number for number, item in enumerate(ordered) if item["id"] == after), None)
        if at is None:
            raise Unknown(f"Item with id {after[:200]!r} not found.", code="item_not_found", param="after")
        ordered = ordered[at + 1 :]
    return listed(ordered[:limit], has_more=len(ordered) > limit)


def listed(items: Sequence[ResponseItem], *, has_more: bool = False) -> dict[str, Any]:
    return {
        "object": "list",
        "data": list(items),
        "first_id": items[0]["id"] if items else "",
        "last_id": items[-1]["id"] if items else "",
        "has_more": has_more,
    }

"""Requests of platforms: verifying them, reading their fields, which platforms add and change, and answering them."""

import hmac
import re
from typing import Any, cast

import msgspec

from ..core import strict_json
from ..errors import Denied, UsageError
from . import REPLAY_S, Answer, Hook


def same(given: str, expected: str) -> bool:
    """Compares secrets in constant time. An empty `expected` equals nothing."""
    return bool(expected) and hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def check_age(hook: Hook, stamp: str) -> None:
    """Denied unless a timestamp in seconds is within REPLAY_S of now."""
    if not stamp.isascii() or not stamp.isdecimal() or len(stamp) > 12 or abs(hook.now_s - int(stamp)) > REPLAY_S:
        raise Denied("the request is too old, or has no timestamp", hint="Check the clocks of both sides.")


def wrong_signature() -> Denied:
    return Denied("the signature is wrong", hint="Use the secret of this channel's settings.")


def parsed(body: bytes) -> dict[str, Any]:
    try:
        found = strict_json.decode(body)
    except msgspec.DecodeError as error:
        raise UsageError("the body is not JSON", hint="Send an object, in UTF-8.") from error
    if not isinstance(found, dict):
        raise UsageError("the body is not an object", hint="Send an object.")
    return cast("dict[str, Any]", found)


table = strict_json.fields_in
"""The value if it is an object, else an empty one."""


def tables(value: Any) -> list[dict[str, Any]]:
    """The items of a list, each as `table` reads it; none if the value is not a list."""
    return list(map(table, strict_json.list_in(value)))


def text(value: Any) -> str:
    """An id or a text as a string; "" if it is neither."""
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def without_mention(words: str, mark: re.Pattern[str]) -> str:
    """The text without the bot's name, with which messages to a bot often begin."""
    words = words.strip()
    while found := mark.match(words):
        words = words[found.end() :].lstrip()
    return words


def as_json(value: Any, status: int = 200) -> Answer:
    return Answer(status=status, body=msgspec.json.encode(value), media_type="application/json")

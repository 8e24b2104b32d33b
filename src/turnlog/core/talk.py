"""Recognises plain talk, which most appends are: a question or an answer that holds only texts and counts, and in `raw`
perhaps what a framework says about it.

A plain entry is well-formed (`core/wellformed`), is not nested deep, and reads back from its line as it is. So the
general checks, which cost more than storing the entry, need not run. Anything unusual is not plain, also where it is
valid.
"""

from collections.abc import Iterable
from math import isfinite
from types import NoneType
from typing import Any

from .content import INT_MAX, INT_MIN
from .entries import Assistant, User
from .kinds import SEQ_MAX

RAW_DEPTH_MAX = 6
_TEXT = frozenset((str, NoneType))
_WHOLE = frozenset((str, NoneType, bool))


def is_plain_talk(entry: Any) -> bool:
    """Compares classes exactly: a subclass of `str` or `int` may be written in its own way."""
    kind = entry.__class__
    if kind is User:
        if (
            (entry.content.__class__ is not str and not _are_texts(entry.content))
            or entry.message_id.__class__ not in _TEXT
            or entry.dedupe_id.__class__ not in _TEXT
            or entry.sender.__class__ not in _TEXT
            or entry.from_ != ()
        ):
            return False
    elif kind is Assistant:
        if (
            (entry.content.__class__ is not str and not _are_texts(entry.content))
            or (entry.usage is not None and not _are_counts(entry.usage))
            or entry.model.__class__ not in _TEXT
            or entry.stop.__class__ not in _TEXT
        ):
            return False
    else:
        return False
    return (
        entry.seq.__class__ is int
        and 0 <= entry.seq <= SEQ_MAX
        and entry.ts.__class__ is str
        and entry.erased is False
        and entry.after is None
        and entry.unknown is None
        and (entry.raw is None or _are_plain((entry.raw,), RAW_DEPTH_MAX))
    )


def _are_texts(content: Any) -> bool:
    if content.__class__ is not list:
        return False
    for block in content:
        if block.__class__ is not dict or len(block) != 2:
            return False
        kind, text = block.get("type"), block.get("text")
        if kind.__class__ is not str or kind != "text" or text.__class__ is not str:
            return False
    return True


def _are_plain(values: Iterable[Any], depth: int) -> bool:
    """Whether JSON gives these values back as they are. `depth`: how deep they may be nested."""
    for value in values:
        kind = value.__class__
        if kind in _WHOLE:
            continue
        if kind is dict:
            if not depth or not _are_names(value) or not _are_plain(value.values(), depth - 1):
                return False
        elif kind is list:
            if not depth or not _are_plain(value, depth - 1):
                return False
        elif kind is float:
            if not isfinite(value):
                return False
        elif kind is not int or not INT_MIN <= value <= INT_MAX:
            return False
    return True


def _are_names(fields: Iterable[Any]) -> bool:
    for name in fields:  # noqa: SIM110 - a generator takes longer than what it would look at
        if name.__class__ is not str:
            return False
    return True


def _are_counts(usage: Any) -> bool:
    if usage.__class__ is not dict:
        return False
    for name, count in usage.items():
        if name.__class__ is not str or count.__class__ is not int or not INT_MIN <= count <= INT_MAX:
            return False
    return True

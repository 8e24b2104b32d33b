"""Checks that an entry matches its type, so that everything stored can be read again.

New entries must follow all rules. Entries that already have a time are copies of a log (a fork, an import, another
store) and must only be readable, because a copy that refuses what the original holds would lose it.
"""

from typing import Any, cast

from msgspec.structs import astuple, replace

from ..errors import UsageError
from . import content as contents, erasing, facts, kinds
from .arguments import FieldCheck, checks_of, shown
from .entries import TYPES, Assistant, Entry, Facts, User
from .talk import is_plain_talk

_OWN_RULES = ("content", "usage", "raw", "unknown", "put", "input")
_WITH_CONTENT = frozenset(kind for kind in TYPES.values() if "content" in kind.__struct_fields__)


_WITH_INPUT = frozenset(kind for kind in TYPES.values() if "input" in kind.__struct_fields__)

_CHECKS: dict[type, list[FieldCheck | None]] = {
    kind: [None if check[0] in _OWN_RULES else check for check in checks_of(kind)] for kind in TYPES.values()
}
"""One for each field, in their order; None: a rule of its own."""


def accepted(body: Any) -> Entry:
    """Returns the entry to store: the same object, unless parts of its content had to be converted."""
    if is_plain_talk(body):
        return cast("Entry", body)
    kind = cast("type[Any]", body.__class__)
    checks = _CHECKS.get(kind)
    if checks is None:
        raise UsageError(f"{shown(body)} is not an entry", hint="Append entries such as turnlog.User(content='…').")
    new = not body.ts
    for value, check in zip(astuple(body), checks, strict=True):
        if check is None or value is check[1] or type(value) in check[2]:  # none of these classes has negative values
            continue
        name, _, _, fits, hint = check
        if not fits(value) or (new and _is_negative(value)):
            raise UsageError(f"{kind.__name__}.{name} is {shown(value)}", hint=f"It must be {kinds.name_of(hint)}.")
    if body.erased:
        return erasing.emptied(body)
    if body.unknown is not None:
        _check_unknown(body.unknown)
    if body.raw is not None:
        contents.check_json(body.raw, "raw", wide=True)
    if kind in _WITH_CONTENT:
        return _with_content(body, new)
    if kind in _WITH_INPUT and body.input is not None:
        _check_input(kind.__name__, body.input)
    return _with_facts(body, new) if kind is Facts else body


def _check_input(name: str, given: Any) -> None:
    if not _is_object(given):
        raise UsageError(f"{name}.input is {shown(given)}", hint="It must be an object: names and values, or None.")
    contents.check_json(given, "input")


def _with_facts(body: Facts, new: bool) -> Entry:
    if not _is_object(body.put):
        raise UsageError(f"Facts.put is {shown(body.put)}", hint="It must be an object: names and values.")
    if new:
        return facts.accepted(body)
    contents.check_json({**body.put}, "put", wide=True)
    return body


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(key, str) for key in cast("dict[Any, Any]", value))


def _with_content(body: Any, new: bool) -> Entry:
    content = body.content
    if content.__class__ is not str:
        kept = _content(body, content, new)
        body = body if kept is content else replace(body, content=kept)
    if isinstance(body, Assistant) and body.usage is not None:
        _check_usage(body.usage)
    return body


def _check_unknown(unknown: Any) -> None:
    if not isinstance(unknown, dict):
        raise UsageError(f"unknown is {shown(unknown)}", hint="It must be an object, or None.")
    contents.check_json(unknown, "unknown", wide=True)


def _check_usage(usage: Any) -> None:
    if not isinstance(usage, dict):
        raise UsageError(f"Assistant.usage is {shown(usage)}", hint="It must be an object, or None.")
    contents.check_json(usage, "usage")


def _content(body: Any, content: Any, new: bool) -> Any:
    if content is None and isinstance(body, User) and (body.from_ or not new):
        return None
    if new:
        return contents.accepted(content)
    if isinstance(content, list) and all(isinstance(block, dict) for block in cast("list[Any]", content)):
        contents.check_json(content, "content")
        return cast("list[Any]", content)
    return contents.accepted(content)  # this names the error


def _is_negative(value: Any) -> bool:
    """Numbers in entries are seqs and counts."""
    if isinstance(value, tuple):
        return any(_is_negative(item) for item in cast("tuple[Any, ...]", value))
    return isinstance(value, int) and value < 0

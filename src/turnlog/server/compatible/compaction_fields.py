"""What requests of both vendors say about compaction: `context_management`, and compactions that come back.

A block of ours carries a handle, which stands for everything up to that compaction; everything before it in the request
is then left out.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from ...access.relaying import Relaying
from ...core.clearing import KEPT_USES, ClearRule
from ...turns.context_edits import NO_EDITS, ContextEdits
from . import reading, response_ids as ids
from .errors import InvalidField
from .reading import RequestFields, whole_number

FIELD = "context_management"
THRESHOLD_MIN = 1_000
COMPACT = "compact_20260112"
CLEAR_TOOLS = "clear_tool_uses_20250919"
CLEAR_THINKING = "clear_thinking_20251015"
COMPACT_AT = 150_000
"""Where Anthropic compacts if the request does not say."""
CLEAR_AT = 100_000


def of_responses(fields: RequestFields) -> ContextEdits:
    given = fields.take(FIELD, list[Any], []) or []
    edits = NO_EDITS
    for number, rule in enumerate(given):
        where = f"{FIELD}[{number}]"
        match rule:
            case {"type": "compaction"}:
                edits = ContextEdits(compact_at=_tokens(rule.get("compact_threshold"), where, COMPACT_AT))
            case _:
                raise InvalidField(f"{where} is of type compaction", param=where)
    return edits


def _tokens(given: Any, where: str, default: int, least: int = THRESHOLD_MIN) -> int:
    if given is None:
        return default
    given = whole_number(given)
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise InvalidField(f"{where} needs a number of at least {least:,}", param=where)
    return given


def of_messages(fields: RequestFields, ignored: list[str]) -> tuple[ContextEdits, tuple[str, ...]]:
    """(the edits, the types that the answer tells about). A type that is not known is ignored: the call fits anyway."""
    given = fields.take(FIELD, dict[str, Any], {}) or {}
    rules: Any = given.get("edits") or []
    if not isinstance(rules, list):
        raise InvalidField(f"{FIELD}.edits is a list", param=f"{FIELD}.edits")
    edits = NO_EDITS
    kinds: list[str] = []
    for number, rule in enumerate(cast("list[Any]", rules)):
        where = f"{FIELD}.edits[{number}]"
        if not isinstance(rule, dict):
            raise InvalidField(f"{where} is an object", param=where)
        given_rule = cast("dict[str, Any]", rule)
        kind = str(given_rule.get("type"))
        if kind in (COMPACT, CLEAR_TOOLS, CLEAR_THINKING):
            edits = _with_edit(edits, kind, given_rule, where)
            kinds.append(kind)
        elif FIELD not in ignored:
            ignored.append(FIELD)
    return edits, tuple(kinds)


def _with_edit(edits: ContextEdits, kind: str, rule: dict[str, Any], where: str) -> ContextEdits:
    if kind == CLEAR_THINKING:
        return edits  # it is kept, and sent only to the upstream that made it
    if kind == CLEAR_TOOLS:
        return replace(edits, clear=_clear_rule(rule, where))
    compact_at = _value(rule.get("trigger"), "input_tokens", where, COMPACT_AT, THRESHOLD_MIN)
    focus, pauses = _text(rule.get("instructions"), where), rule.get("pause_after_compaction") is True
    return replace(edits, compact_at=compact_at, focus=focus, pauses=pauses)


def _clear_rule(rule: Mapping[str, Any], where: str) -> ClearRule:
    trigger = rule.get("trigger")
    by_uses = isinstance(trigger, dict) and cast("dict[str, Any]", trigger).get("type") == "tool_uses"
    excluded: Any = rule.get("exclude_tools") or []
    if not isinstance(excluded, list):
        raise InvalidField(f"{where}.exclude_tools is a list of names", param=where)
    return ClearRule(
        over_tokens=None if by_uses else _value(trigger, "input_tokens", where, CLEAR_AT),
        over_uses=_value(trigger, "tool_uses", where, 0) if by_uses else 0,
        keep=_value(rule.get("keep"), "tool_uses", where, KEPT_USES),
        least=_value(rule.get("clear_at_least"), "input_tokens", where, 0),
        excluded=tuple(str(name) for name in cast("list[Any]", excluded)),
    )


def _value(given: Any, kind: str, where: str, default: int, least: int = 0) -> int:
    match given:
        case None:
            return default
        case {"type": str(found), "value": value} if found == kind:
            return _tokens(value, where, default, least)
        case _:
            raise InvalidField(f"{where} needs {{type: {kind}, value: …}}", param=where)


def _text(given: Any, where: str) -> str:
    if given is not None and not isinstance(given, str):
        raise InvalidField(f"{where}.instructions is a text", param=where)
    return given or ""


async def after_handle(relaying: Relaying, coded: str, where: str) -> tuple[str, int]:
    """The session and the entry that a handle stands for. 400 unless it was made here, for this principal."""
    point = ids.read_handle(coded)
    row = await relaying.own_session(point.session) if point is not None else None
    if point is None or row is None or not ids.is_ours(point, row.incarnation) or point.seq > row.last_seq:
        raise InvalidField(
            "the compaction was not made here, or its session is gone",
            hint="Send the messages that it stands for.",
            param=where,
            code="invalid_compaction",
        )
    return point.session, point.seq


def last_block(messages: Sequence[bytes]) -> tuple[int, str] | None:
    """(number of the message, handle) of the last block of compaction that has a handle of ours."""
    for number in range(len(messages) - 1, -1, -1):
        if ids.HANDLE.encode() not in messages[number]:
            continue
        message = reading.decode(messages[number], Any, f"messages[{number}]")
        content = cast("dict[str, Any]", message).get("content") if isinstance(message, dict) else None
        for block in reversed(cast("list[Any]", content) if isinstance(content, list) else []):
            match block:
                case {"type": "compaction", "encrypted_content": str(coded)} if coded.startswith(ids.HANDLE):
                    return number, coded
                case _:
                    pass
    return None


def without_block(raw: bytes) -> bytes | None:
    """A message without its blocks of compaction; None if nothing is left."""
    message = cast("dict[str, Any]", json.loads(raw))
    kept = [block for block in message["content"] if block.get("type") != "compaction"]
    return reading.encoded({**message, "content": kept}) if kept else None

"""POST /v1/responses: reads a request. `response_events` writes the answer, `response_items` reads the items.

An item that stands for others is looked up by the caller, who knows the principal: `item_reference`, and a compaction
of ours, which stands for everything before it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from ...core.parameters import JSON_OBJECT, Parameters
from ...settings import ApiSettings
from ...turns.context_edits import NO_EDITS, ContextEdits
from . import compaction_fields, reading, response_ids as ids, response_items as items, response_tools
from .chat_completions import choice_of, effort_of, format_of
from .errors import InvalidField, not_found
from .reading import RequestFields, WireRequest
from .response_items import HEAD_ROLES, ItemHead

SUMMARIES = ("auto", "concise", "detailed", "none")
TRUNCATIONS = ("auto", "disabled")
ENCRYPTED = "reasoning.encrypted_content"
TRIGGER = "compaction_trigger"
NAMES = {
    "effort": "reasoning.effort",
    "parallel": "parallel_tool_calls",
    "format": "text.format",
    JSON_OBJECT: "text.format",
    "system": "instructions",
}
METADATA_MAX = 16
METADATA_KEY_MAX_CHARS = 64
METADATA_VALUE_MAX_CHARS = 512


class InputItems(Struct, frozen=True, kw_only=True):
    """The input of a request, item by item."""

    raws: list[bytes]
    heads: list[ItemHead]

    @property
    def references(self) -> list[tuple[int, str]]:
        """(number, id) of items that stand for stored ones."""
        found: list[tuple[int, str]] = []
        for number, (raw, head) in enumerate(zip(self.raws, self.heads, strict=True)):
            is_bare = head.type is None and head.role is None
            if head.type == "item_reference" or is_bare:
                item_id = cast("dict[str, Any]", reading.decode(raw, dict[str, Any], f"input[{number}]")).get("id")
                if not isinstance(item_id, str):
                    raise InvalidField("an item has neither a type nor a role", param=f"input[{number}]")
                found.append((number, item_id))
        return found

    @property
    def compaction(self) -> tuple[int, str] | None:
        """The number and the content of the last compaction: what is before it need not be read."""
        at = next((n for n in range(len(self.heads) - 1, -1, -1) if self.heads[n].type == "compaction"), None)
        if at is None:
            return None
        item = cast("dict[str, Any]", reading.decode(self.raws[at], dict[str, Any], f"input[{at}]"))
        return at, str(item.get("encrypted_content"))


def of_raws(raws: Sequence[bytes]) -> InputItems:
    return InputItems(raws=list(raws), heads=[items.head_of(raw, f"input[{n}]") for n, raw in enumerate(raws)])


def input_of(fields: RequestFields) -> InputItems:
    given = fields.raw("input")
    if given is None or given.lstrip()[:1] == b'"':
        text = fields.take("input", str, "") or ""
        raws = [reading.encoded({"role": "user", "content": text})] if text.strip() else []
        return of_raws(raws)
    return of_raws(fields.messages("input", may_be_empty=True))


class ReadInput(Struct, frozen=True, kw_only=True):
    """Where a request goes on, and the rest of its input."""

    given: InputItems
    after: tuple[str, int] | None = None
    tip: str | None = None
    point: tuple[str, int] | None = None


def read(fields: RequestFields, found: ReadInput, headers: Mapping[str, str], api: ApiSettings) -> WireRequest:
    """`found`: the input, in which references and compactions are looked up already."""
    model = fields.needed("model", str)
    fields.refuse("prompt")
    is_compaction = bool(found.given.heads) and found.given.heads[-1].type == TRIGGER
    raws, heads, more_tools = _without_tools(found.given)
    if is_compaction:
        raws, heads = raws[:-1], heads[:-1]
    instructions = fields.take("instructions", str, "") or ""
    texts, first = _head(raws, heads)
    _check_rest(heads, first, found, is_compaction=is_compaction)
    messages, starts = items.grouped(raws[first:], heads[first:])
    ignored: list[str] = []
    tools = response_tools.read([*(fields.take("tools", list[Any], []) or []), *more_tools], ignored)
    named = {name: value for name in api.session_from if (value := fields.take(name, str))}
    metadata = metadata_of(fields)
    store = fields.take("store", bool)
    edits = compaction_fields.of_responses(fields)
    if is_compaction:
        edits = ContextEdits(compacts_now=True)
    echo = _echo(fields, found, instructions, metadata, store, ignored)
    if edits != NO_EDITS:
        echo["compaction"] = True
    return WireRequest(
        model=model,
        is_stream=bool(fields.take("stream", bool, False)),
        system="\n\n".join(part for part in (instructions, *texts) if part),
        tools=tools,
        parameters=_parameters(fields, ignored),
        param_names=NAMES,
        max_output=fields.count("max_output_tokens"),
        messages=messages,
        read=reading.reader(messages, items.read_message, "input", [start + first for start in starts]),
        name=reading.session_name(headers, metadata, named),
        is_stored=reading.is_stored(headers, store, api.store_false),
        ignored=(*ignored, *fields.rest()),
        after=found.after,
        tip=found.tip,
        point=found.point,
        echo=echo,
        edits=edits,
    )


def _without_tools(given: InputItems) -> tuple[list[bytes], list[ItemHead], list[Any]]:
    """(items, their heads, the tools that other items bring)"""
    rest = [n for n, head in enumerate(given.heads) if head.type != response_tools.ADDITIONAL]
    tools: list[Any] = []
    for number in sorted({*range(len(given.raws))} - {*rest}):
        item = cast("dict[str, Any]", reading.decode(given.raws[number], dict[str, Any], f"input[{number}]"))
        if not isinstance(more := item.get("tools"), list):
            raise InvalidField("additional_tools needs tools", param=f"input[{number}]")
        tools += cast("list[Any]", more)
    return [given.raws[n] for n in rest], [given.heads[n] for n in rest], tools


def _head(raws: Sequence[bytes], heads: Sequence[ItemHead]) -> tuple[list[str], int]:
    """The texts of leading system messages, and the number of these messages."""
    texts: list[str] = []
    for number, (raw, head) in enumerate(zip(raws, heads, strict=True)):
        if items.kind_of(head) != "message" or head.role not in HEAD_ROLES:
            return texts, number
        item = cast("dict[str, Any]", reading.decode(raw, dict[str, Any], f"input[{number}]"))
        with reading.located(f"input[{number}]"):
            texts += reading.system_text(item.get("content"))
    return texts, len(raws)


def _check_rest(heads: Sequence[ItemHead], first: int, found: ReadInput, *, is_compaction: bool) -> None:
    """The last item must be one that can be answered."""
    if is_compaction and (len(heads) > first or found.after or found.tip or found.point):
        return
    if len(heads) == first:
        raise InvalidField("the input says nothing new", hint="Add a message of the user.", param="input")
    if not is_compaction and items.is_answer(heads[-1]):
        hint = "End with a message of the user or the output of a call."
        reading.check_last("assistant", len(heads) - 1, hint, "input")


def _echo(
    fields: RequestFields,
    found: ReadInput,
    instructions: str,
    metadata: dict[str, str],
    store: bool | None,
    ignored: list[str],
) -> dict[str, Any]:
    """What the log keeps of a request so that the response can be told again."""
    truncation = fields.take("truncation", str)
    if truncation not in (None, *TRUNCATIONS):
        raise InvalidField("truncation is auto or disabled", param="truncation")
    background = bool(fields.take("background", bool, False))
    if background and store is False:
        raise InvalidField("a background response must be stored", hint="Leave out store.", param="background")
    include = fields.take("include", list[str], []) or []
    if any(name != ENCRYPTED for name in include):
        ignored.append("include")
    reasoning = fields.take("reasoning", dict[str, Any], {}) or {}
    summary = reasoning.get("summary") or reasoning.get("generate_summary")
    if summary is not None and summary not in SUMMARIES:
        raise InvalidField(f"reasoning.summary must be one of {', '.join(SUMMARIES)}", param="reasoning.summary")
    echo: dict[str, Any] = {
        "metadata": metadata,
        "instructions": len(instructions),
        "background": background,
        "truncation": truncation,
        "summary": summary,
        "seals": ENCRYPTED in include,
        "previous": fields.take("previous_response_id", str),
        "conversation": ids.conversation(found.tip) if found.tip else None,
    }
    kept = {name: value for name, value in echo.items() if value}
    return {**kept, "store": False} if store is False else kept


def metadata_of(fields: RequestFields) -> dict[str, str]:
    given = fields.take("metadata", dict[str, Any], {}) or {}
    if len(given) > METADATA_MAX:
        raise InvalidField(f"metadata holds at most {METADATA_MAX} pairs", param="metadata")
    for key, value in given.items():
        is_name = 0 < len(key) <= METADATA_KEY_MAX_CHARS
        if not is_name or not isinstance(value, str) or len(value) > METADATA_VALUE_MAX_CHARS:
            raise InvalidField(
                f"metadata is text of at most {METADATA_VALUE_MAX_CHARS} characters, "
                f"under names of 1 to {METADATA_KEY_MAX_CHARS}",
                param="metadata",
            )
    return cast("dict[str, str]", given)


def _parameters(fields: RequestFields, ignored: list[str]) -> Parameters:
    reasoning = fields.take("reasoning", dict[str, Any], {}) or {}
    text = fields.take("text", dict[str, Any], {}) or {}
    if text.get("verbosity") is not None:
        ignored.append("text.verbosity")
    choice, tool = choice_of(fields.take("tool_choice", object))
    return Parameters(
        temperature=fields.number("temperature", 0, 2),
        top_p=fields.number("top_p", 0, 1),
        tool_choice=choice,
        tool=tool,
        parallel=fields.take("parallel_tool_calls", bool),
        format=format_of(text.get("format"), "text.format"),
        effort=effort_of(reasoning.get("effort"), "reasoning.effort"),
        cache_key=fields.take("prompt_cache_key", str),
    )


def previous_of(fields: RequestFields) -> tuple[str, int] | None:
    given = fields.take("previous_response_id", str)
    if given is None:
        return None
    found = ids.response_place(given)
    if found is None:
        raise not_found("Previous response", given, "previous_response_id")
    return found


def conversation_of(fields: RequestFields) -> str | None:
    match fields.take("conversation", object):
        case None:
            return None
        case str(given) | {"id": str(given)}:
            found = ids.conversation_session(given)
            if found is None:
                raise not_found("Conversation", given)
            return found
        case _:
            raise InvalidField("conversation is an id", param="conversation")


def read_compaction(
    fields: RequestFields, found: ReadInput, headers: Mapping[str, str], api: ApiSettings
) -> WireRequest:
    """POST /v1/responses/compact: the input is compacted, and `instructions` say what the summary should keep."""
    model, focus = fields.needed("model", str), fields.take("instructions", str, "") or ""
    raws, heads, _ = _without_tools(found.given)
    texts, first = _head(raws, heads)
    if len(heads) == first and not (found.after or found.point):
        raise InvalidField("there is nothing to compact", param="input")
    messages, starts = items.grouped(raws[first:], heads[first:])
    return WireRequest(
        model=model,
        system="\n\n".join(texts),
        messages=messages,
        read=reading.reader(messages, items.read_message, "input", [start + first for start in starts]),
        name=reading.session_name(headers, {}, {}),
        is_stored=reading.is_stored(headers, None, api.store_false),
        ignored=tuple(fields.rest()),
        after=found.after,
        point=found.point,
        echo={"compaction": True},
        edits=ContextEdits(compacts_now=True, focus=focus),
    )

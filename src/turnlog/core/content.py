"""What a message may hold: text, or a list of known blocks. Content is checked when it is appended, never when it is
read.

Blocks have the shape of Anthropic's API. The parts of OpenAI's APIs are converted to it. Anything else is a UsageError
that names the place (`content[2].source.media_type`). A block may have more fields than are checked here, as long as
they are JSON. Content that was stored before these rules, or by other programs, is not checked again: readers must
accept it.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, cast

from ..errors import UsageError
from .entries import NESTING_MAX, Block, Content, clean, text_block

SHAPES = "Give text, or a list of blocks such as {'type': 'text', 'text': '…'}."
INT_MIN, INT_MAX = -(2**63), 2**64 - 1
"""The integers that JSON decoders of most languages accept."""
WIDE_BITS = 4_096
"""Of integers in values that are only given back to their program. Python reads no number of more than 4,300 digits."""

_CALL = {"id": str, "name": str}
"""The input may be anything: if a model wrote no valid JSON, it is kept as it is, and history shows it as an object."""
_RESULT = {"tool_use_id": str}
REQUIRED: Mapping[str, Mapping[str, type]] = {
    "text": {"text": str},
    "image": {"source": dict},
    "document": {"source": dict},
    "search_result": {"source": str, "title": str, "content": list},
    "thinking": {"thinking": str},
    "redacted_thinking": {"data": str},
    "tool_use": _CALL,
    "tool_result": _RESULT,
    "tool_reference": {"tool_name": str},
    "server_tool_use": _CALL,
    "mcp_tool_use": _CALL,
    "mcp_tool_result": _RESULT,
    "web_search_tool_result": _RESULT,
    "web_fetch_tool_result": _RESULT,
    "code_execution_tool_result": _RESULT,
    "bash_code_execution_tool_result": _RESULT,
    "text_editor_code_execution_tool_result": _RESULT,
    "tool_search_tool_result": _RESULT,
    "advisor_tool_result": _RESULT,
    "container_upload": {"file_id": str},
}
"""The known kinds of blocks, and the fields that each must have."""
_OPTIONAL: Mapping[str, tuple[type, ...]] = {
    "is_error": (bool,),
    "signature": (str,),
    "citations": (list, dict),
    "cache_control": (dict,),
}
_NOT_EMPTY = ("id", "name", "tool_use_id", "media_type", "data", "url", "file_id")
_SOURCES: Mapping[str, Mapping[str, type]] = {
    "base64": {"media_type": str, "data": str},
    "url": {"url": str},
    "file": {"file_id": str},
    "text": {"data": str},
    "content": {},
}
_WITH_CONTENT = ("tool_result", "search_result")
_SOURCES_OF = {"image": ("base64", "url", "file"), "document": tuple(_SOURCES)}
_NAMES: Mapping[type, str] = {str: "text", dict: "an object", list: "a list", bool: "true or false", int: "an integer"}


def accepted(content: Any, where: str = "content") -> Content:
    """Returns the content to store: the same object, unless parts of it had to be converted."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise UsageError(f"{where} is {_kind_name(content)}, not text or blocks", hint=SHAPES)
    given = cast("list[Any]", content)
    if all(map(_is_plain_text, given)):
        return given
    blocks = [_accepted_block(block, f"{where}[{index}]") for index, block in enumerate(given)]
    changed = any(block is not part for block, part in zip(blocks, given, strict=True))
    return blocks if changed else given


def salvaged(content: Any) -> Content:
    """Like `accepted`, for content that must not be refused, such as imports: other blocks become their
    JSON as text.
    """
    if not isinstance(content, list):
        return content if isinstance(content, str) else _as_json(content)
    return [_salvaged_block(block) for block in cast("list[Any]", content)]


def _salvaged_block(block: Any) -> Block:
    try:
        return _accepted_block(block, "")
    except UsageError:
        return text_block(block if isinstance(block, str) else _as_json(block))


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, TypeError, RecursionError):  # a circular reference, keys that are not text, or too deep
        return str(value)


def is_blank(content: Content) -> bool:
    """Whether it has nothing to answer."""
    if isinstance(content, str):
        return not content or content.isspace()
    return all(block.get("type") == "text" and is_blank(block.get("text") or "") for block in content)


def check_json(value: Any, where: str, *, wide: bool = False) -> None:
    """Refuses values that JSON cannot hold: bytes, NaN, sets, keys that are not text, circular references.

    `wide`: integers of more than 64 bits are accepted, because no model and no other program will read them.
    """
    if not _is_json(value, 0):
        _check_json(value, where, (), wide)


def _is_json(value: Any, depth: int) -> bool:
    """Like `check_json`, but does not say where: this runs in every append."""
    kind = value.__class__
    if kind is str or value is None or kind is bool:
        return True
    if kind is int:
        return INT_MIN <= value <= INT_MAX
    if kind is dict and depth <= NESTING_MAX:
        return all(key.__class__ is str and _is_json(item, depth + 1) for key, item in value.items())
    if (kind is list or kind is tuple) and depth <= NESTING_MAX:
        return all(item.__class__ is str or _is_json(item, depth + 1) for item in value)
    return kind is float and math.isfinite(value)


def _check_json(value: Any, where: str, around: tuple[int, ...], wide: bool) -> None:
    match value:
        case None | bool() | str():
            return
        case int() if INT_MIN <= value <= INT_MAX or (wide and value.bit_length() <= WIDE_BITS):
            return
        case int():
            raise UsageError(f"{where} is an integer of {value.bit_length()} bits", hint="Give it as text.")
        case float() if math.isfinite(value):
            return
        case dict() | list() | tuple() if id(cast("Any", value)) in around or len(around) > NESTING_MAX:
            raise UsageError(f"{where} is nested in itself or deeper than {NESTING_MAX} levels", hint="Flatten it.")
        case dict():
            for key, item in cast("dict[Any, Any]", value).items():
                if not isinstance(key, str):
                    raise UsageError(f"{where} has a key that is not text: {key!r}", hint="Use plain JSON values.")
                _check_json(item, f"{where}.{key}", (*around, id(cast("Any", value))), wide)
        case list() | tuple():
            for index, item in enumerate(cast("list[Any]", value)):
                _check_json(item, f"{where}[{index}]", (*around, id(cast("Any", value))), wide)
        case _:
            raise UsageError(f"{where} is {_kind_name(value)}, which JSON cannot hold", hint="Use plain JSON values.")


def encodable(value: Any) -> Any:
    """The same JSON with half characters replaced, which no UTF-8 can hold."""
    match value:
        case str():
            return clean(value)
        case dict():
            return {clean(key): encodable(item) for key, item in cast("dict[str, Any]", value).items()}
        case list() | tuple():
            return [encodable(item) for item in cast("list[Any]", value)]
        case _:
            return value


def _is_plain_text(block: Any) -> bool:
    """A quick test for the most common block: this runs in every append."""
    if block.__class__ is not dict or len(block) != 2 or block.get("type") != "text":
        return False
    return block.get("text").__class__ is str


def _accepted_block(block: Any, where: str) -> Block:
    if not isinstance(block, dict):
        raise UsageError(f"{where} is {_kind_name(block)}, not a block", hint=SHAPES)
    fields = cast("Block", block)
    kind = fields.get("type")
    if not isinstance(kind, str):
        raise UsageError(f"{where}.type is {_kind_name(kind)}, not text", hint=SHAPES)
    check_json(fields, where)
    if convert := _CONVERTED.get(kind):
        return convert(fields, where)
    if kind not in REQUIRED:
        known = ", ".join(REQUIRED)
        raise UsageError(f"{where}.type is {kind[:80]!r}, which is not a known kind", hint=f"Use one of {known}.")
    _check_fields(fields, REQUIRED[kind], where)
    if kind in _SOURCES_OF:
        _check_source(fields["source"], kind, f"{where}.source")
        source = _with_accepted_inner(fields["source"], f"{where}.source")
        return fields if source is fields["source"] else {**fields, "source": source}
    return _with_accepted_inner(fields, where) if kind in _WITH_CONTENT else fields


def _check_fields(fields: Block, required: Mapping[str, type], where: str) -> None:
    for name, kind in required.items():
        value = fields.get(name)
        if not isinstance(value, kind):
            raise UsageError(
                f"{where}.{name} is {_kind_name(value) if name in fields else 'missing'}; it must be {_NAMES[kind]}"
            )
        if not value and name in _NOT_EMPTY:
            raise UsageError(f"{where}.{name} is empty")
    for name, kinds in _OPTIONAL.items():
        value = fields.get(name)
        if value is not None and not isinstance(value, kinds):
            raise UsageError(f"{where}.{name} is {_kind_name(value)}; it must be {_NAMES[kinds[0]]}")


def _check_source(source: Block, kind: str, where: str) -> None:
    allowed = _SOURCES_OF[kind]
    if source.get("type") not in allowed:
        raise UsageError(f"{where}.type is {source.get('type')!r}", hint=f"Use one of {', '.join(allowed)}.")
    _check_fields(source, _SOURCES[source["type"]], where)
    media_type = source.get("media_type")
    if kind == "image" and isinstance(media_type, str) and not media_type.startswith("image/"):
        raise UsageError(f"{where}.media_type is {media_type[:80]!r}, not a picture", hint="Use image/png or the like.")


def _with_accepted_inner(block: Block, where: str) -> Block:
    """Content inside a block or inside its source follows the same rules."""
    inner = block.get("content")
    if inner is None:
        return block
    content = accepted(inner, f"{where}.content")
    return block if content is inner else {**block, "content": content}


def _worded(field: str) -> Callable[[Block, str], Block]:
    def convert(part: Block, where: str) -> Block:
        _check_fields(part, {field: str}, where)
        return text_block(part[field])

    return convert


def _picture(part: Block, where: str) -> Block:
    """`image_url` of Chat Completions, `input_image` of Responses."""
    given: Any = part.get("image_url")
    url = cast("Block", given).get("url") if isinstance(given, dict) else given
    if isinstance(url, str) and url:
        return {"type": "image", "source": _of_url(url, "image/", f"{where}.image_url")}
    if isinstance(part.get("file_id"), str) and part["file_id"]:
        return {"type": "image", "source": {"type": "file", "file_id": part["file_id"]}}
    raise UsageError(f"{where}.image_url is missing", hint="Give a data URI, or an https address.")


def _of_url(url: str, media: str, where: str) -> Block:
    if not url.startswith("data:"):
        if url.startswith(("https://", "http://")):
            return {"type": "url", "url": url}
        raise UsageError(f"{where} is neither a data URI nor an address", hint="Use data:…;base64,… or https://….")
    media_type, coded, data = url[5:].partition(";base64,")
    if not coded or not data or not media_type.startswith(media):
        raise UsageError(f"{where} is not a data URI of this kind", hint=f"Write data:{media or 'TYPE/'}…;base64,….")
    return {"type": "base64", "media_type": media_type, "data": data}


def _document(part: Block, where: str) -> Block:
    """`file` of Chat Completions has its fields in a nested object, `input_file` of Responses next to its type."""
    inner = part.get("file")
    fields = cast("Block", inner) if isinstance(inner, dict) else part
    source = _file_source(fields, where)
    name = fields.get("filename")
    return {"type": "document", "source": source, **({"title": name} if isinstance(name, str) and name else {})}


def _file_source(fields: Block, where: str) -> Block:
    for name in ("file_data", "file_url", "file_id"):
        value = fields.get(name)
        if not isinstance(value, str) or not value:
            continue
        if name == "file_id":
            return {"type": "file", "file_id": value}
        coded = name == "file_data" and not value.startswith("data:")
        return _of_url(f"data:application/pdf;base64,{value}" if coded else value, "", f"{where}.{name}")
    raise UsageError(f"{where} has no file_data, file_url or file_id", hint="Give one of them.")


_CONVERTED: Mapping[str, Callable[[Block, str], Block]] = {
    "input_text": _worded("text"),
    "output_text": _worded("text"),
    "refusal": _worded("refusal"),
    "image_url": _picture,
    "input_image": _picture,
    "file": _document,
    "input_file": _document,
}


def _kind_name(value: object) -> str:
    return "missing" if value is None else _NAMES.get(value.__class__, value.__class__.__name__)

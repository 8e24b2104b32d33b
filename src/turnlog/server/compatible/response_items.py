"""Items of the Responses API, and the messages that they are in a log.

Items of one answer (reasoning, message, calls) are one message, because they are one entry of the log. Two messages of
the assistant in a row are two answers. Reasoning is kept with its signature, so the upstream that made it can get it
back; no other API is sent it (`core/wires`).
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import Struct

from ...core.entries import Assistant, Block, Content, Message, ToolResult, User
from ...core.strict_json import list_in
from ...providers.tool_input import read_input
from ...shapes.writing import input_part
from ...turns.relay_call import written_input
from . import reading, response_ids as ids, response_tools
from .errors import InvalidField

ResponseItem: TypeAlias = dict[str, Any]
REASONING = "tlr1."
"""How the `encrypted_content` of reasoning begins if this server sealed it: it holds a signed block of the upstream."""
HEAD_ROLES = ("system", "developer")
ANSWER_KINDS = ("function_call", "custom_tool_call", "reasoning")
OUTPUT_KINDS = ("function_call_output", "custom_tool_call_output")


class ItemHead(Struct):
    """What tells the kind of an item."""

    type: Any = None
    role: Any = None


_HEADS = msgspec.json.Decoder(ItemHead)


def head_of(raw: bytes, where: str) -> ItemHead:
    try:
        return _HEADS.decode(raw)
    except msgspec.MsgspecError:
        return cast("ItemHead", reading.decode(raw, ItemHead, where))


def kind_of(head: ItemHead) -> str:
    """A message may leave out its type."""
    return "message" if head.type is None and head.role is not None else str(head.type)


def is_answer(head: ItemHead) -> bool:
    """Whether it is the assistant's."""
    kind = kind_of(head)
    return kind in ANSWER_KINDS or (kind == "message" and head.role == "assistant")


def grouped(raws: Sequence[bytes], heads: Sequence[ItemHead]) -> tuple[list[bytes], list[int]]:
    """Each message as JSON: one item, or a list of the items of one answer; and the number of its first item."""
    groups: list[list[bytes]] = []
    starts: list[int] = []
    last: ItemHead | None = None
    for number, (raw, head) in enumerate(zip(raws, heads, strict=True)):
        are_messages = last is not None and kind_of(last) == kind_of(head) == "message"
        if last is not None and is_answer(head) and is_answer(last) and not are_messages:
            groups[-1].append(raw)
        else:
            groups.append([raw])
            starts.append(number)
        last = head
    return [group[0] if len(group) == 1 else b"[%b]" % b",".join(group) for group in groups], starts


def read_message(raw: bytes) -> list[Message]:
    """One message of `grouped` as entries."""
    found = reading.decode(raw, Any, "input")
    items = cast("list[Any]", found) if isinstance(found, list) else [found]
    if len(items) == 1:
        return [_message(_fields(items[0]))]
    return [Assistant(content=[block for item in items for block in _answer_blocks(_fields(item))])]


def _fields(item: Any) -> ResponseItem:
    if not isinstance(item, dict):
        raise InvalidField("an item of the input is an object")
    return cast("ResponseItem", item)


def _message(item: ResponseItem) -> Message:
    match item:
        case {"type": kind} if kind in OUTPUT_KINDS:
            return _output(item)
        case {"role": "user"} if item.get("type") in (None, "message"):
            return User(content=reading.content_of(item.get("content")))
        case {"role": "system" | "developer"} if item.get("type") in (None, "message"):
            return User(content="\n\n".join(reading.system_text(item.get("content"))), sender="system")
        case _:
            return Assistant(content=_answer_blocks(item))


def _output(item: ResponseItem) -> ToolResult:
    call_id = item.get("call_id")
    if not isinstance(call_id, str) or not call_id:
        raise InvalidField(f"{item['type']} needs call_id")
    return ToolResult(tool_use_id=call_id, content=reading.content_of(item.get("output")))


def _answer_blocks(item: ResponseItem) -> list[Block]:
    match item:
        case {"type": "function_call", "call_id": str(call_id), "name": str(name), "arguments": str(written)} if (
            call_id and name
        ):
            return [_call_block(item, call_id, name, read_input(written))]
        case {"type": "custom_tool_call", "call_id": str(call_id), "name": str(name), "input": str(text)} if (
            call_id and name
        ):
            return [_call_block(item, call_id, name, {response_tools.INPUT: text})]
        case {"type": "function_call"}:
            raise InvalidField("function_call needs call_id, name and arguments")
        case {"type": "custom_tool_call"}:
            raise InvalidField("custom_tool_call needs call_id, name and input")
        case {"type": "reasoning"}:
            return _reasoning_blocks(item)
        case {"role": "assistant"} if item.get("type") in (None, "message"):
            content = reading.content_of(item.get("content"))
            return [{"type": "text", "text": content}] if isinstance(content, str) else content
        case {"role": role} if item.get("type") in (None, "message"):
            raise InvalidField(f"the role {str(role)[:40]!r} is not known", hint="Use user, assistant or developer.")
        case _:
            raise unsupported(item.get("type"))


def _call_block(item: ResponseItem, call_id: str, name: str, given: Any) -> Block:
    named = response_tools.flat(name, item.get("namespace"))
    return {"type": "tool_use", "id": call_id, "name": named, "input": given}


def unsupported(kind: Any) -> InvalidField:
    return InvalidField(f"items of type {str(kind)[:40]!r} are not supported", code="unsupported_item")


def _reasoning_blocks(item: ResponseItem) -> list[Block]:
    """Reasoning that this server sealed becomes the original block; of other reasoning the summary is kept."""
    coded = item.get("encrypted_content")
    if isinstance(coded, str) and coded.startswith(REASONING):
        return [_signed_block(coded)]
    parts = [_fields(part) for part in (*list_in(item.get("summary")), *list_in(item.get("content")))]
    words = "\n\n".join(str(part["text"]) for part in parts if part.get("text"))
    kept = {"encrypted_content": coded} if isinstance(coded, str) and coded else {}
    return cast("list[Block]", reading.content_of([{"type": "thinking", "thinking": words, **kept}]))


def _signed_block(coded: str) -> Block:
    data = coded.removeprefix(REASONING)
    try:
        block: Any = json.loads(urlsafe_b64decode(data + "=" * (-len(data) % 4)))
    except (ValueError, RecursionError) as error:
        raise InvalidField("the reasoning was not made here", code="invalid_encrypted_content") from error
    if not isinstance(block, dict) or cast("Block", block).get("type") not in ("thinking", "redacted_thinking"):
        raise InvalidField("the reasoning was not made here", code="invalid_encrypted_content")
    return cast("list[Block]", reading.content_of([block]))[0]


def sealed(block: Block) -> str:
    """A block of reasoning for a client that keeps it."""
    return REASONING + urlsafe_b64encode(json.dumps(block).encode()).decode().rstrip("=")


class AnswerItem(Struct, frozen=True):
    """The blocks of an answer that one item shows."""

    kind: str
    blocks: list[Block]


def parted(content: Content) -> list[AnswerItem]:
    """An answer as items: reasoning, runs of text, calls. Other blocks have no item."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    found: list[AnswerItem] = []
    for block in blocks:
        match block.get("type"):
            case "text" if block.get("text"):
                if found and found[-1].kind == "msg":
                    found[-1].blocks.append(block)
                else:
                    found.append(AnswerItem("msg", [block]))
            case "tool_use":
                found.append(AnswerItem("fc", [block]))
            case "thinking" | "redacted_thinking":
                found.append(AnswerItem("rs", [block]))
            case _:
                pass
    return found


def answer_items(
    content: Content,
    session: str,
    seq: int,
    *,
    first: int = 0,
    seals: bool = False,
    called: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> list[ResponseItem]:
    """`first`: the number of the first item. `seals`: whether reasoning carries what its upstream signed. `called`: as
    `response_tools.called` gives it.
    """
    return [
        _answer_item(part, ids.item(part.kind, session, seq, n), seals, called)
        for n, part in enumerate(parted(content), first)
    ]


def _answer_item(part: AnswerItem, item_id: str, seals: bool, called: Mapping[str, Mapping[str, Any]]) -> ResponseItem:
    block = part.blocks[0]
    match part.kind:
        case "msg":
            texts = [text_part(str(one["text"])) for one in part.blocks]
            return {"id": item_id, "type": "message", "status": "completed", "role": "assistant", "content": texts}
        case "fc":
            name = str(block.get("name"))
            return call_item(item_id, str(block.get("id")), name, written_input(block), "completed", called.get(name))
        case _:
            return reasoning_item(item_id, str(block.get("thinking") or ""), _sealed_of(block) if seals else None)


def _sealed_of(block: Block) -> str | None:
    foreign = block.get("encrypted_content")
    is_signed = block.get("signature") or block.get("data")
    return sealed(block) if is_signed else foreign if isinstance(foreign, str) else None


def text_part(text: str) -> ResponseItem:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def call_item(
    item_id: str, call_id: str, name: str, arguments: str, status: str, called: Mapping[str, Any] | None = None
) -> ResponseItem:
    """`called`: how the client calls the tool."""
    named = {"call_id": call_id, "name": name, **(called or {})}
    if named.pop("type", "") == response_tools.CUSTOM:
        text = response_tools.text_of(arguments) if arguments else ""
        return {"id": item_id, "type": "custom_tool_call", "status": status, **named, "input": text}
    return {"id": item_id, "type": "function_call", "status": status, **named, "arguments": arguments}


def reasoning_item(item_id: str, words: str, coded: str | None) -> ResponseItem:
    summary = [{"type": "summary_text", "text": words}] if words else []
    return {"id": item_id, "type": "reasoning", "summary": summary, "encrypted_content": coded}


def compaction_item(session: str, seq: int, incarnation: str) -> ResponseItem:
    coded = ids.handle(session, seq, incarnation)
    return {"id": ids.item("cmp", session, seq, 0), "type": "compaction", "encrypted_content": coded}


def items_of(entry: Message, session: str) -> list[ResponseItem]:
    """The items of a message that is no answer of a call."""
    at, content = entry.seq, entry.content or ""
    match entry:
        case Assistant():
            return answer_items(content, session, at, seals=True)
        case ToolResult():
            output = content if isinstance(content, str) else [_input_part(block) for block in content]
            named = {"id": ids.item("fco", session, at, 0), "type": "function_call_output"}
            return [{**named, "call_id": entry.tool_use_id, "output": output, "status": "completed"}]
        case _:
            role = "system" if entry.sender == "system" else "user"
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            named = {"id": ids.item("msg", session, at, 0), "type": "message", "status": "completed", "role": role}
            return [{**named, "content": [_input_part(block) for block in blocks]}]


def _input_part(block: Block) -> ResponseItem:
    match block:
        case {"type": "document", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
            name = block.get("title") or "file"
            return {"type": "input_file", "filename": name, "file_data": f"data:{kind};base64,{data}"}
        case {"type": "document", "source": {"type": "url", "url": str(url)}}:
            return {"type": "input_file", "file_url": url}
        case {"type": "image" | "document", "source": {"type": "file", "file_id": str(file_id)}}:
            return {"type": "input_image" if block["type"] == "image" else "input_file", "file_id": file_id}
        case _:
            return input_part(block)

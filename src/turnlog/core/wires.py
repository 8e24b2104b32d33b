"""Adapts a prompt to one model API right before sending, and says what was changed.

`history` handles order and pairing, which all APIs share. This module handles what single APIs refuse: names, ids,
kinds of media, misplaced blocks, unknown fields, an answer that ends in thinking. How a block is changed depends only
on the block and on what came before it, so the request of a longer session begins like that of the shorter one; two
exceptions are named below. The log is not changed: the next request, or another API, starts from it again.
"""

import math
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from . import pictures, server_calls
from .entries import Block, clean, text_block
from .history import CONTINUES, EMPTY, NO_OUTPUT, ApiMessage, as_text
from .prompt import Prompt
from .strict_json import fields_in, list_in
from .wire_names import Ids, Names

Wire: TypeAlias = Literal["anthropic", "openai"]

PICTURES_STEP = 25
"""If there are too many pictures, this many of the oldest are dropped at once, so that the next few pictures change
nothing before them.
"""

NAMES_REPAIR = "tool names that this model's API refuses are sent under others"
IDS_REPAIR = "ids of tool calls that this model's API refuses are sent as others"
PICTURES_REPAIR = "pictures that this model's API refuses are shown as notes"
PLACE_REPAIR = "pictures and documents in answers are shown as notes"
COUNT_REPAIR = "the oldest pictures are shown as notes: there are more than this model's API takes"
DOCUMENTS_REPAIR = "documents that this model's API refuses are shown as text"
THINKING_REPAIR = "thinking that this model's API did not sign, or that no answer follows, is left out"
BLOCKS_REPAIR = "blocks of kinds that this model's API does not know are shown as text or left out"
ERRORS_REPAIR = "failed tool results with pictures are marked as failed in words"
INPUTS_REPAIR = "numbers that JSON does not know, in inputs of tool calls, are sent as null"


class Rules(Struct, frozen=True):
    media: pictures.PictureLimits
    ids: re.Pattern[str]
    id_max_chars: int
    pictures_max: int
    own_blocks: bool
    """Whether it accepts documents, search results, its own thinking, and calls of tools that it runs itself."""
    errors_are_text: bool
    """Whether a failed result may only contain text."""
    last_is_user: bool
    """Whether the last message must be the user's."""


RULES: dict[Wire, Rules] = {
    "anthropic": Rules(
        media=pictures.PictureLimits(max_bytes=5_000_000, schemes=("https",)),
        ids=re.compile(r"[a-zA-Z0-9_-]+"),
        id_max_chars=64,
        pictures_max=100,
        own_blocks=True,
        errors_are_text=True,
        last_is_user=True,
    ),
    "openai": Rules(
        media=pictures.PictureLimits(max_bytes=20_000_000, schemes=("https", "http")),
        ids=re.compile(r"[!-~]+"),
        id_max_chars=40,
        pictures_max=500,
        own_blocks=False,
        errors_are_text=False,
        last_is_user=False,
    ),
}


class Fitted(Struct, frozen=True):
    """`prompt`: all contents are lists of blocks."""

    prompt: Prompt
    names: dict[str, str]
    """Tool name as sent → own name; only those that differ."""
    repairs: tuple[str, ...]


def fit(prompt: Prompt, wire: Wire) -> Fitted:
    gate = _Adapter(prompt, RULES[wire])
    messages, places = gate.messages(prompt.messages, frozenset(prompt.breakpoints))
    tools = tuple(
        replace(tool, name=gate.name(tool.name), description=clean(tool.description)) for tool in prompt.tools
    )
    marks = [mark if mark[0] == -1 else places[mark] for mark in prompt.breakpoints if mark[0] == -1 or mark in places]
    shown = replace(
        prompt,
        system=clean(prompt.system) if prompt.system.strip() else "",
        messages=messages,
        tools=tools,
        breakpoints=tuple(dict.fromkeys(marks)),
    )
    if prompt.parameters.tool:
        shown = replace(shown, parameters=replace(prompt.parameters, tool=gate.name(prompt.parameters.tool)))
    return Fitted(shown, gate.names.back, tuple(gate.repairs))


BlockPosition: TypeAlias = tuple[int, int]
"""(message, block)"""


class _Adapter:
    """The state that the blocks of one request share."""

    def __init__(self, prompt: Prompt, rules: Rules) -> None:
        self._rules = rules
        self._ids = Ids(rules.ids, rules.id_max_chars)
        self.names = Names(tool.name for tool in prompt.tools)
        self.repairs: dict[str, None] = {}
        self._cited = _is_cited(prompt.messages)

    def name(self, name: str) -> str:
        sent = self.names.sent(name)
        if sent != name:
            self.repairs[NAMES_REPAIR] = None
        return sent

    def messages(
        self, given: Sequence[ApiMessage], marked: Collection[BlockPosition]
    ) -> tuple[list[ApiMessage], dict[BlockPosition, BlockPosition]]:
        """Also where the marked blocks are now. A message of which nothing remains is left out, and its neighbours,
        which have one role, are merged.
        """
        indexes = {index for index, _ in marked}
        shown: list[ApiMessage] = []
        places: dict[BlockPosition, BlockPosition] = {}
        for index, message in enumerate(given):
            blocks, ends = self._message(message)
            if not blocks:
                continue
            if not shown and message["role"] == "assistant":
                shown.append(_words("user", CONTINUES))
            if not shown or shown[-1]["role"] != message["role"]:
                shown.append({"role": message["role"], "content": []})
            content = cast("list[Block]", shown[-1]["content"])
            before = len(content) - 1
            for number, end in enumerate(ends if index in indexes else ()):
                places |= {(index, number): (len(shown) - 1, before + min(end, len(blocks)))} if end else {}
            content.extend(blocks)
        self._close(shown)
        self._leave_out_pictures(shown)
        return shown, places

    def _message(self, message: ApiMessage) -> tuple[list[Block], list[int]]:
        """Its blocks, and for each given block the number of blocks after it is shown."""
        content: Any = message["content"]
        given = cast("list[Block]", [{"type": "text", "text": content}] if isinstance(content, str) else content)
        if len(given) == 1 and _is_plain_text(given[0]):  # most messages, and every call sends all of them
            return [*given], [1]
        role = str(message["role"])
        paired = (
            server_calls.complete_calls(given) if role == "assistant" and self._rules.own_blocks else frozenset[int]()
        )
        blocks: list[Block] = []
        ends: list[int] = []
        for block in given:
            blocks.extend(
                [{name: block[name] for name in server_calls.FIELDS if name in block}]
                if id(block) in paired
                else self._shown(role, block)
            )
            ends.append(len(blocks))
        while blocks and blocks[-1]["type"] in _THINKING:
            blocks.pop()
            self.repairs[THINKING_REPAIR] = None
        return blocks, ends

    def _close(self, shown: list[ApiMessage]) -> None:
        if not shown:
            shown.append(_words("user", EMPTY))
        if self._rules.last_is_user and shown[-1]["role"] == "assistant":
            shown.append(_words("user", CONTINUES))

    def _leave_out_pictures(self, shown: Sequence[ApiMessage]) -> None:
        """The first exception: the limit depends on all pictures of the request."""
        places = list(_pictures(shown))
        over = len(places) - self._rules.pictures_max
        if over > 0:
            self.repairs[COUNT_REPAIR] = None
            for blocks, number in places[: math.ceil(over / PICTURES_STEP) * PICTURES_STEP]:
                blocks[number] = text_block("[image]")

    def _shown(self, role: str, block: Block) -> Iterator[Block]:
        match block.get("type"):
            case "text":
                yield from self._text(block)
            case "tool_use" if role == "assistant":
                yield self._call(block)
            case "tool_result" if role == "user":
                yield self._result(block)
            case "thinking" | "redacted_thinking":
                yield from self._thinking(role, block)
            case "image" | "document" if role == "assistant":
                self.repairs[PLACE_REPAIR] = None
                yield text_block(as_text([block]) if block["type"] == "image" else _document_note(block))
            case _ if role == "user":
                yield from self._said(block)
            case _:
                self.repairs[BLOCKS_REPAIR] = None  # content that another provider signed or encrypted has no text

    def _text(self, block: Block) -> Iterator[Block]:
        text = block.get("text")
        if not isinstance(text, str) or _is_blank(text):
            return
        citations = _citations(block)
        if citations:
            yield {"type": "text", "text": clean(text), "citations": citations}
        else:
            yield block if len(block) == 2 else {"type": "text", "text": clean(text)}

    def _call(self, block: Block) -> Block:
        given = _as_json(block["input"])
        if given != block["input"]:
            self.repairs[INPUTS_REPAIR] = None
        call: Block = {
            "type": "tool_use",
            "id": self._id(block["id"]),
            "name": self.name(block["name"]),
            "input": given,
        }
        if block.get("caller") == {"type": "direct"}:
            call["caller"] = block["caller"]
        return call

    def _id(self, call_id: str) -> str:
        sent = self._ids.sent(call_id)
        if sent != call_id:
            self.repairs[IDS_REPAIR] = None
        return sent

    def _result(self, block: Block) -> Block:
        content: Any = block.get("content")
        result: Block = {"type": "tool_result", "tool_use_id": self._id(block["tool_use_id"])}
        if isinstance(content, list):
            parts = [shown for part in cast("list[Block]", content) for shown in self._said(part)]
            if block.get("is_error") and self._rules.errors_are_text and any(part["type"] != "text" for part in parts):
                self.repairs[ERRORS_REPAIR] = None
                return {**result, "content": [text_block("[error]"), *parts]}
            result["content"] = parts or NO_OUTPUT
        else:
            result["content"] = clean(as_text(content)) if content and as_text(content).strip() else NO_OUTPUT
        return {**result, "is_error": True} if block.get("is_error") else result

    def _thinking(self, role: str, block: Block) -> Iterator[Block]:
        if not self._rules.own_blocks or role != "assistant":
            return  # no other API accepts it back, so this is not a repair
        match block:
            case {"type": "thinking", "thinking": str(words), "signature": str(signature)} if _is_signed(signature):
                yield {"type": "thinking", "thinking": words, "signature": signature}
            case {"type": "redacted_thinking", "data": str(data)} if _is_signed(data):
                yield {"type": "redacted_thinking", "data": data}
            case _:
                self.repairs[THINKING_REPAIR] = None

    def _said(self, block: Block) -> Iterator[Block]:
        """The blocks that a user or a tool may send."""
        match block.get("type"):
            case "text":
                yield from self._text(block)
            case "image":
                shown = pictures.picture(block, self._rules.media)
                if shown is None:
                    self.repairs[PICTURES_REPAIR] = None
                yield shown or text_block("[image]")
            case "document":
                yield self._document(block)
            case "search_result" if self._rules.own_blocks and (good := self._found(block)):
                yield good
            case _:
                if words := clean(as_text([block])):
                    self.repairs[BLOCKS_REPAIR] = None
                    yield text_block(words)

    def _document(self, block: Block) -> Block:
        shown = pictures.document(block, self._rules.media, cited=self._cited) if self._rules.own_blocks else None
        if shown is None:
            self.repairs[DOCUMENTS_REPAIR] = None
        return shown or text_block(_document_note(block))

    def _found(self, block: Block) -> Block | None:
        match block:
            case {"source": str(source), "title": str(title), "content": [*parts]}:
                words = [part for given in parts for part in self._only_text(given)]
            case _:
                return None
        cited = {"citations": {"enabled": True}} if self._cited else {}
        found = {"type": "search_result", "source": clean(source), "title": clean(title), "content": words, **cited}
        return found if words else None

    def _only_text(self, given: Any) -> Iterator[Block]:
        if isinstance(given, dict) and cast("Block", given).get("type") == "text":
            for block in self._text(cast("Block", given)):
                yield text_block(block["text"])


_THINKING = ("thinking", "redacted_thinking")
_SIGNATURE = re.compile(r"[A-Za-z0-9+/=_-]+")
_CITATIONS = tuple(
    f"{what}_location" for what in ("char", "page", "content_block", "web_search_result", "search_result")
)


def _words(role: str, text: str) -> ApiMessage:
    return {"role": role, "content": [text_block(text)]}


def _is_signed(signature: str) -> bool:
    """Anthropic's signatures are base64. Other programs store other things there, such as a provider's whole item as
    JSON.
    """
    return _SIGNATURE.fullmatch(signature) is not None


def _citations(block: Block) -> list[Block]:
    given = block.get("citations")
    citations = cast("list[Any]", given) if isinstance(given, list) else []
    return [one for one in citations if isinstance(one, dict) and cast("Block", one).get("type") in _CITATIONS]


def _document_note(block: Block) -> str:
    match block.get("source"):
        case {"type": "text", "data": str(text)} if text.strip():
            return clean(text)
        case _:
            title = block.get("title")
            name = title if isinstance(title, str) and title.strip() else "untitled"
            return clean(f"[document: {name}; it cannot be shown here]")


def _is_plain_text(block: Block) -> bool:
    """Whether it is shown as it is."""
    text = block.get("text")
    return block.get("type") == "text" and len(block) == 2 and isinstance(text, str) and not _is_blank(text)


def _is_blank(text: str) -> bool:
    return not text or text.isspace()


def _is_cited(messages: Sequence[ApiMessage]) -> bool:
    """The second exception: either all documents of a request may be cited, or none."""
    for message in messages:
        for block in list_in(message["content"]):
            if isinstance(block, dict) and cast("Block", block).get("type") == "text":
                continue  # most blocks
            if _asks_to_cite(block) or any(map(_asks_to_cite, _inner(block))):
                return True
    return False


def _asks_to_cite(block: Any) -> bool:
    fields = cast("Block", block) if isinstance(block, dict) else {}
    return fields.get("type") in ("document", "search_result") and fields.get("citations") == {"enabled": True}


def _inner(block: Any) -> list[Any]:
    fields = fields_in(block)
    return list_in(fields.get("content")) if fields.get("type") == "tool_result" else []


def _pictures(shown: Sequence[ApiMessage]) -> Iterator[tuple[list[Block], int]]:
    for message in shown:
        for number, block in enumerate(blocks := cast("list[Block]", message["content"])):
            if block["type"] == "image":
                yield blocks, number
            elif block["type"] == "tool_result" and isinstance(block["content"], list):
                parts = cast("list[Block]", block["content"])
                yield from ((parts, at) for at, part in enumerate(parts) if part["type"] == "image")


def _as_json(value: Any) -> Any:
    match value:
        case dict():
            return {str(name): _as_json(inner) for name, inner in cast("dict[Any, Any]", value).items()}
        case list():
            return [_as_json(inner) for inner in cast("list[Any]", value)]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value if value is None or isinstance(value, str | int | float) else str(value)

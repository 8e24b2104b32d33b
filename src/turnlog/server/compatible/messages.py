"""POST /v1/messages: reads a request of Anthropic's Messages API. `message_events` writes the answer."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

from ...core.content import check_json
from ...core.entries import Assistant, Block, Content, Message, ToolResult, User
from ...core.parameters import Parameters, ToolChoice
from ...settings import ApiSettings
from ...turns.context_edits import NO_EDITS
from . import compaction_fields, reading
from .errors import InvalidField, Unknown
from .reading import RequestFields, WireRequest, whole_number

VERSIONS = ("2023-06-01", "2026-10-21")
BILLING = "x-anthropic-billing-header:"
"""A system block that begins like this is for Anthropic's own accounting."""
BETAS = (
    "claude-code-",
    "context-1m-",
    "effort-",
    "extended-cache-ttl-",
    "fine-grained-tool-streaming-",
    "interleaved-thinking-",
    "output-128k-",
    "search-results-",
    "structured-outputs-",
    "token-efficient-tools-",
    "web-fetch-",
)
"""Beginnings of beta names that an Anthropic upstream may be sent: none of them changes the form of requests."""
SAMPLING = ("temperature", "top_p", "top_k")
NAMES = {
    "effort": "output_config.effort",
    "format": "output_config.format",
    "parallel": "tool_choice.disable_parallel_tool_use",
    "server_tools": "tools",
    "stop": "stop_sequences",
}
CHOICES: dict[str, ToolChoice] = {"auto": "auto", "any": "required", "none": "none", "tool": "named"}
MESSAGE_ID = re.compile(r"msg_([A-Za-z0-9][A-Za-z0-9_-]{0,63})_([1-9][0-9]{0,11})")


def version_of(headers: Mapping[str, str]) -> str:
    version = headers.get("anthropic-version", VERSIONS[0])
    if version not in VERSIONS:
        raise InvalidField(
            f"anthropic-version {version[:40]!r} is not known", hint=f"Use one of {', '.join(VERSIONS)}."
        )
    return version


def read(
    fields: RequestFields,
    messages: list[bytes],
    headers: Mapping[str, str],
    api: ApiSettings,
    *,
    counts: bool = False,
    point: tuple[str, int] | None = None,
) -> WireRequest:
    """`counts`: for /count_tokens, which needs no max_tokens and knows no threads. `point`: the session and the entry
    that stand before the messages.
    """
    version = version_of(headers)
    if version != VERSIONS[0]:
        for name in SAMPLING:
            if fields.take(name, object) is not None:
                raise InvalidField(f"{name} is not supported with anthropic-version {version}", param=name)
    model = fields.needed("model", str)
    read_one = reading.reader(messages, partial(read_message, version=version))
    reading.check_last(_message(messages[-1]).get("role"), len(messages) - 1, "End with a message of the user.")
    system, vendor_system = _system(fields.take("system", object))
    tools, server_tools = _tools(fields.take("tools", list[Any], []) or [])
    metadata = fields.take("metadata", dict[str, Any], {}) or {}
    max_output = fields.count("max_tokens") if counts else _needed_count(fields)
    fields.take("cache_control", object)
    parameters = _parameters(fields, metadata, server_tools, headers)
    ignored: list[str] = []
    edits, edit_kinds = compaction_fields.of_messages(fields, ignored)
    after = None if counts else _thread(fields.take("thread", dict[str, Any]))
    return WireRequest(
        model=model,
        is_stream=bool(fields.take("stream", bool, False)),
        system=system,
        vendor_system=vendor_system,
        tools=tools,
        parameters=parameters,
        param_names=NAMES,
        max_output=max_output,
        messages=messages,
        read=read_one,
        name=reading.session_name(headers, metadata, {}),
        is_stored=reading.is_stored(headers, None, api.store_false),
        ignored=(*ignored, *fields.rest()),
        after=after,
        point=point,
        edits=NO_EDITS if counts else edits,
        edit_kinds=edit_kinds,
    )


def _needed_count(fields: RequestFields) -> int:
    found = fields.count("max_tokens")
    if found is None:
        raise InvalidField("max_tokens is required", param="max_tokens")
    return found


def _message(raw: bytes) -> dict[str, Any]:
    found = reading.decode(raw, Any, "messages")
    if not isinstance(found, dict):
        raise InvalidField("a message is an object", param="messages")
    return cast("dict[str, Any]", found)


def read_message(raw: bytes, *, version: str = VERSIONS[0]) -> list[Message]:
    """One message as entries: results first, each an entry of its own, then what the user says."""
    message = _message(raw)
    match message.get("role"):
        case "user":
            return _user(_content(message.get("content"), version))
        case "system":
            return [User(content="\n\n".join(reading.system_text(message.get("content"))), sender="system")]
        case "assistant":
            content = _content(message.get("content"), version)
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            if version != VERSIONS[0] and any(block.get("type") == "document" for block in blocks):
                raise InvalidField("a document cannot stand in an assistant message")
            return [Assistant(content=[block for block in blocks if not _is_empty(block)])]
        case role:
            raise InvalidField(f"the role {str(role)[:40]!r} is not known", hint="Use user or assistant.")


def _user(content: Content) -> list[Message]:
    if isinstance(content, str):
        return [User(content=content)]
    made: list[Message] = [_result(block) for block in content if block.get("type") == "tool_result"]
    rest = [block for block in content if block.get("type") != "tool_result" and not _is_empty(block)]
    if any(block.get("type") in ("tool_use", "thinking", "redacted_thinking") for block in rest):
        raise InvalidField("a user message holds no calls and no thinking")
    if rest or not made:
        made.append(User(content=rest or ""))
    return made


def _result(block: Block) -> ToolResult:
    inner = block.get("content")
    content = "" if inner is None else cast("Content", inner)
    return ToolResult(tool_use_id=block["tool_use_id"], content=content, is_error=block.get("is_error") is True)


def _is_empty(block: Block) -> bool:
    return block.get("type") == "text" and not str(block.get("text") or "").strip()


def _content(value: Any, version: str) -> Content:
    if isinstance(value, list):
        value = [_plain(block) for block in cast("list[Any]", value)]
    content = reading.content_of(value)
    if version != VERSIONS[0] and not isinstance(content, str):
        for block in content:
            if block.get("type") == "text" and block.get("citations"):
                raise InvalidField("citations cannot be sent in text with this anthropic-version")
    return content


def _plain(block: Any) -> Any:
    """Without cache marks, which are set anew for each request; a compaction is its text."""
    if not isinstance(block, dict):
        return block
    fields = cast("Block", block)
    if fields.get("type") == "compaction":
        return {"type": "text", "text": str(fields.get("content") or "")}
    kept = {name: value for name, value in fields.items() if name != "cache_control" and value is not None}
    if isinstance(kept.get("content"), list):
        kept["content"] = [_plain(inner) for inner in kept["content"]]
    return kept


def _system(given: Any) -> tuple[str, str]:
    """(the system text, what only Anthropic is sent)"""
    if given is None:
        return "", ""
    texts = reading.system_text(
        [_plain(block) for block in cast("list[Any]", given)] if isinstance(given, list) else given
    )
    vendor = [text for text in texts if text.startswith(BILLING)]
    return "\n\n".join(text for text in texts if text not in vendor), "\n\n".join(vendor)


def _tools(given: list[Any]) -> tuple[list[dict[str, Any]], tuple[dict[str, Any], ...]]:
    """(the client's own tools, those that only Anthropic's API knows)"""
    reading.check_tools(given)
    tools: list[dict[str, Any]] = []
    server_tools: list[dict[str, Any]] = []
    for number, tool in enumerate(given):
        where = f"tools[{number}]"
        if not isinstance(tool, dict):
            raise InvalidField("a tool is an object", param=where)
        fields = cast("dict[str, Any]", tool)
        if fields.get("type") in (None, "custom"):
            tools.append(
                reading.own_tool(fields.get("name"), fields.get("description"), fields.get("input_schema"), where)
            )
        else:
            check_json(fields, where)
            server_tools.append({name: value for name, value in fields.items() if name != "cache_control"})
    reading.check_names(tools)
    return tools, tuple(server_tools)


def _parameters(
    fields: RequestFields,
    metadata: Mapping[str, Any],
    server_tools: tuple[dict[str, Any], ...],
    headers: Mapping[str, str],
) -> Parameters:
    output = fields.take("output_config", dict[str, Any], {}) or {}
    wanted = output.get("format") or fields.take("output_format", dict[str, Any])
    effort = output.get("effort")
    if effort is not None and effort not in ("low", "medium", "high", "xhigh", "max"):
        raise InvalidField("output_config.effort is low, medium, high, xhigh or max", param="output_config.effort")
    choice, tool, parallel = _choice(fields.take("tool_choice", dict[str, Any]))
    user = metadata.get("user_id")
    return Parameters(
        temperature=fields.number("temperature", 0, 1),
        top_p=fields.number("top_p", 0, 1),
        top_k=fields.take("top_k", int),
        stop=tuple(stop for stop in fields.take("stop_sequences", list[str], []) or () if stop),
        tool_choice=choice,
        tool=tool,
        parallel=parallel,
        format=_format(wanted),
        effort=effort,
        thinking=_thinking(fields.take("thinking", dict[str, Any])),
        user=user if isinstance(user, str) and user else None,
        betas=_betas(headers),
        server_tools=server_tools,
    )


def _choice(given: dict[str, Any] | None) -> tuple[ToolChoice | None, str, bool | None]:
    if given is None:
        return None, "", None
    name = given.get("name")
    if given.get("type") not in CHOICES or (given["type"] == "tool" and not (isinstance(name, str) and name)):
        raise InvalidField("tool_choice is of type auto, any, none, or tool with a name", param="tool_choice")
    parallel = False if given.get("disable_parallel_tool_use") is True else None
    return CHOICES[given["type"]], str(name) if given["type"] == "tool" else "", parallel


def _format(given: Any) -> dict[str, Any] | None:
    match given:
        case None:
            return None
        case {"type": "json_schema", "schema": {**schema}}:
            return {"type": "json_schema", "schema": schema}
        case _:
            raise InvalidField("output_config.format is a json_schema", param="output_config.format")


def _thinking(given: dict[str, Any] | None) -> dict[str, Any] | None:
    if given is not None and "budget_tokens" in given:
        given = {**given, "budget_tokens": whole_number(given["budget_tokens"])}
    match given:
        case None | {"type": "adaptive" | "disabled"}:
            return given
        case {"type": "enabled", "budget_tokens": int(budget)} if budget > 0:
            return given
        case {"type": str(kind)} if kind != "enabled":
            return given
        case _:
            raise InvalidField("thinking is of type enabled with budget_tokens, adaptive or disabled", param="thinking")


def _betas(headers: Mapping[str, str]) -> tuple[str, ...]:
    given = (name.strip() for name in headers.get("anthropic-beta", "").split(","))
    return tuple(dict.fromkeys(name for name in given if name.startswith(BETAS) and len(name) <= 64))


def _thread(given: dict[str, Any] | None) -> tuple[str, int] | None:
    match given:
        case None | {"type": "create"}:
            return None
        case {"type": "continue", "previous_message_id": str(message_id)}:
            found = MESSAGE_ID.fullmatch(message_id)
            if found is None:
                raise thread_not_found()
            return found[1], int(found[2])
        case _:
            raise InvalidField("thread is of type create, or continue with previous_message_id", param="thread")


def thread_not_found() -> Unknown:
    return Unknown("there is no such thread", hint="Create it again.", code="thread_not_found", param="thread")

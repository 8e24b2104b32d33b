"""POST /v1/chat/completions: reads a request, and writes an answer whole or as a stream. It decides nothing else."""

from collections.abc import Mapping
from typing import Any, cast

from ...core.entries import Assistant, Block, Message, ToolResult, User, text_of, tool_uses
from ...core.parameters import JSON_OBJECT, Parameters, ToolChoice
from ...providers import Delta
from ...providers.tool_input import read_input
from ...settings import ApiSettings
from ...turns.relay_call import RelayCall, written_input
from . import errors, reading, response_objects as objects
from .errors import InvalidField
from .reading import RequestFields, WireRequest

HEAD_ROLES = ("system", "developer")
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
FINISHES = {
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
NAMES = {
    "effort": "reasoning_effort",
    "parallel": "parallel_tool_calls",
    "format": "response_format",
    JSON_OBJECT: "response_format",
}
STOPS_MAX = 16


def read(body: bytes, headers: Mapping[str, str], api: ApiSettings) -> WireRequest:
    fields = RequestFields(body)
    model = fields.needed("model", str)
    fields.refuse("audio", "logprobs", "top_logprobs", "functions", "function_call", "web_search_options")
    if fields.take("n", int, 1) != 1:
        raise reading.unsupported("n", "Send the request n times.")
    if "audio" in fields.take("modalities", list[str], []):  # type: ignore[operator]
        raise reading.unsupported("modalities")
    messages = fields.messages()
    system, head = _head(messages)
    ignored: list[str] = []
    tools = _tools(fields.take("tools", list[Any], []) or [], ignored)
    parameters, named = _parameters(fields)
    metadata = fields.take("metadata", dict[str, Any], {}) or {}
    max_output = fields.count("max_completion_tokens")
    options = fields.take("stream_options", dict[str, Any], {}) or {}
    store = fields.take("store", bool)
    found = WireRequest(
        model=model,
        is_stream=bool(fields.take("stream", bool, False)),
        system=system,
        tools=tools,
        parameters=parameters,
        param_names=NAMES,
        max_output=fields.count("max_tokens") if max_output is None else max_output,
        messages=messages[head:],
        read=reading.reader(messages, read_message),
        name=reading.session_name(headers, metadata, {name: named[name] for name in api.session_from if name in named}),
        is_stored=reading.is_stored(headers, store, api.store_false),
        ignored=(*ignored, *fields.rest()),
        includes_usage=options.get("include_usage") is True,
    )
    last = len(messages) - 1
    reading.check_last(_message(messages[last], last).get("role"), last, "End with a message of the user or a tool.")
    return found


def _head(messages: list[bytes]) -> tuple[str, int]:
    """The system text, and the number of messages that it is made of."""
    texts: list[str] = []
    for number, raw in enumerate(messages):
        message = _message(raw, number)
        if message.get("role") not in HEAD_ROLES:
            return "\n\n".join(texts), number
        with reading.located(f"messages[{number}]"):
            texts += reading.system_text(message.get("content"))
    raise InvalidField("there is no message of a user", param="messages")


def _message(raw: bytes, number: int) -> dict[str, Any]:
    found = reading.decode(raw, Any, f"messages[{number}]")
    if not isinstance(found, dict):
        raise InvalidField(f"messages[{number}] is not an object", param=f"messages[{number}]")
    return cast("dict[str, Any]", found)


def read_message(raw: bytes) -> list[Message]:
    """One message as entries."""
    message = _message(raw, 0)
    match message.get("role"):
        case "user":
            return [User(content=reading.content_of(message.get("content")))]
        case "system" | "developer":
            return [User(content="\n\n".join(reading.system_text(message.get("content"))), sender="system")]
        case "assistant":
            return [_assistant(message)]
        case "tool":
            call_id = message.get("tool_call_id")
            if not isinstance(call_id, str) or not call_id:
                raise InvalidField("a message of a tool needs tool_call_id")
            return [ToolResult(tool_use_id=call_id, content=reading.content_of(message.get("content")))]
        case role:
            raise InvalidField(f"the role {str(role)[:40]!r} is not known", hint="Use user, assistant, system or tool.")


def _assistant(message: dict[str, Any]) -> Assistant:
    blocks: list[Block] = []
    thinking = message.get("reasoning_content")
    if isinstance(thinking, str) and thinking:
        blocks.append({"type": "thinking", "thinking": thinking})
    content = message.get("content")
    if content is None:
        content = message.get("refusal") or ""
    accepted = reading.content_of(content)
    blocks += [{"type": "text", "text": accepted}] if isinstance(accepted, str) and accepted else []
    blocks += accepted if isinstance(accepted, list) else []
    calls: Any = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise InvalidField("tool_calls is not a list")
    return Assistant(content=[*blocks, *(_call(call) for call in cast("list[Any]", calls or []))])


def _call(call: Any) -> Block:
    match call:
        case {"id": str(call_id), "function": {"name": str(name), "arguments": str(written)}} if call_id and name:
            return {"type": "tool_use", "id": call_id, "name": name, "input": read_input(written)}
        case _:
            raise InvalidField("a tool call needs an id and a function with name and arguments")


def _tools(given: list[Any], ignored: list[str]) -> list[dict[str, Any]]:
    reading.check_tools(given)
    tools: list[dict[str, Any]] = []
    for number, tool in enumerate(given):
        where = f"tools[{number}]"
        match tool:
            case {"type": "function", "function": {**function}}:
                made = cast("dict[str, Any]", function)
                tools.append(reading.own_tool(made.get("name"), made.get("description"), made.get("parameters"), where))
                if made.get("strict"):
                    ignored.append("tools.strict")
            case {"type": str(kind)} if kind != "function":
                raise InvalidField(
                    f"tools of type {kind[:40]!r} are not supported", param=where, code="unsupported_parameter"
                )
            case _:
                raise InvalidField("a tool is {type: function, function: {name, …}}", param=where)
    reading.check_names(tools)
    return tools


def _parameters(fields: RequestFields) -> tuple[Parameters, dict[str, str]]:
    """The parameters, and the fields that the settings may allow as names of a session."""
    named = {name: value for name in reading.NAMING_FIELDS if (value := fields.take(name, str))}
    choice, tool = choice_of(fields.take("tool_choice", object))
    return Parameters(
        temperature=fields.number("temperature", 0, 2),
        top_p=fields.number("top_p", 0, 1),
        seed=fields.take("seed", int),
        presence_penalty=fields.number("presence_penalty", -2, 2),
        frequency_penalty=fields.number("frequency_penalty", -2, 2),
        stop=_stops(fields.take("stop", str | list[str])),  # type: ignore[arg-type]
        tool_choice=choice,
        tool=tool,
        parallel=fields.take("parallel_tool_calls", bool),
        format=format_of(fields.take("response_format", dict[str, Any]), "response_format"),
        effort=effort_of(fields.take("reasoning_effort", str), "reasoning_effort"),
        user=named.get("safety_identifier") or named.get("user"),
        cache_key=named.get("prompt_cache_key"),
    ), named


def _stops(given: Any) -> tuple[str, ...]:
    stops = [given] if isinstance(given, str) else cast("list[str]", given or [])
    if len(stops) > STOPS_MAX:
        raise InvalidField(f"stop holds at most {STOPS_MAX} texts", param="stop")
    return tuple(stop for stop in stops if stop)


def effort_of(given: Any, where: str) -> str | None:
    """The effort of a request to OpenAI's APIs."""
    if given is not None and given not in EFFORTS:
        raise InvalidField(f"{where} must be one of {', '.join(EFFORTS)}", param=where)
    return given


def choice_of(given: Any) -> tuple[ToolChoice | None, str]:
    """The tool choice of OpenAI's APIs, and the tool. Chat Completions nests the name of a function."""
    match given:
        case None:
            return None, ""
        case "auto" | "none" | "required":
            return given, ""
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function", "name": str(name)} if name:
            return "named", name
        case {"type": str(kind)} if kind != "function":
            raise reading.unsupported("tool_choice", "Use none, auto, required or a function.")
        case _:
            raise InvalidField("tool_choice is none, auto, required or a function", param="tool_choice")


def format_of(given: Any, where: str) -> dict[str, Any] | None:
    """The form of an answer in OpenAI's APIs. Chat Completions nests the fields of a schema."""
    match given:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return {"type": JSON_OBJECT}
        case {"type": "json_schema", "json_schema": {"schema": {**schema}, **more}} | {
            "type": "json_schema",
            "schema": {**schema},
            **more,
        }:
            kept = {name: more[name] for name in ("name", "description", "strict") if more.get(name) is not None}
            return {"type": "json_schema", "schema": schema, **kept}
        case _:
            raise InvalidField(f"{where} is text, json_object or json_schema", param=where)


def usage_of(reply: Assistant) -> dict[str, Any]:
    usage = objects.usage_of(reply)
    return {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
        "prompt_tokens_details": {"cached_tokens": usage["input_tokens_details"]["cached_tokens"], "audio_tokens": 0},
        "completion_tokens_details": {**usage["output_tokens_details"], "audio_tokens": 0},
    }


def _thinking(reply: Assistant) -> str:
    blocks = reply.content if isinstance(reply.content, list) else []
    return "\n\n".join(str(block["thinking"]) for block in blocks if block.get("type") == "thinking")


class ChatWriter:
    """Writes the answer of a call for this wire."""

    keepalive = b": still here\n\n"

    def __init__(self, call: RelayCall, request: WireRequest, api: ApiSettings, created: int) -> None:
        self._call = call
        self._request = request
        self._shows_thinking = api.reasoning == "reasoning_content"
        self._has_text = False
        self._newest = ""
        self._told: set[int] = set()
        """The calls that were begun."""
        self._base = {
            "id": f"chatcmpl-{call.session_id}_{call.turn}",
            "object": "chat.completion.chunk",
            "created": created,
            "model": request.model,
        }

    def whole(self, reply: Assistant, note: dict[str, Any] | None) -> bytes:
        message: dict[str, Any] = {"role": "assistant", "content": text_of(reply.content) or None, "refusal": None}
        if self._shows_thinking and (words := _thinking(reply)):
            message["reasoning_content"] = words
        if calls := tool_uses(reply):
            message["tool_calls"] = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": written_input(call)},
                }
                for call in calls
            ]
        elif message["content"] is None:
            message["content"] = ""
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(reply)}
        body = {**self._base, "object": "chat.completion", "choices": [choice], "usage": usage_of(reply)}
        return errors.encode({**body, "turnlog": note} if note else body)

    def begin(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, piece: Delta) -> bytes:
        frames = b""
        if piece.thinking and self._shows_thinking:
            frames += self._chunk({"reasoning_content": piece.thinking})
        if piece.text:
            apart = self._has_text and (piece.begins or self._newest != "text")
            frames += self._chunk({"content": f"\n\n{piece.text}" if apart else piece.text})
            self._has_text = True
        if piece.call is not None:
            frames += self._call_piece(piece.call.index, piece.call.id, piece.call.name, piece.call.input)
        self._newest = "text" if piece.text else "thinking" if piece.thinking or piece.signature else "other"
        return frames

    def _call_piece(self, index: int, call_id: str, name: str, written: str) -> bytes:
        frames = b""
        if index not in self._told:
            self._told.add(index)
            function = {"name": name, "arguments": ""}
            frames = self._chunk(
                {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
            )
        if written:
            frames += self._chunk({"tool_calls": [{"index": index, "function": {"arguments": written}}]})
        return frames

    def end(self, reply: Assistant, note: dict[str, Any] | None) -> bytes:
        frames = b""
        for index, call in enumerate(tool_uses(reply)):
            if index not in self._told:  # its pieces did not come
                frames += self._call_piece(index, call["id"], call["name"], written_input(call))
        frames += self._chunk({}, finish=_finish(reply), **({"turnlog": note} if note else {}))
        if self._request.includes_usage:
            frames += _frame({**self._base, "choices": [], "usage": usage_of(reply)})
        return frames + b"data: [DONE]\n\n"

    def failed(self, error: Exception, request_id: str) -> bytes:
        return _frame(errors.body_of(error, "openai", request_id))

    def _chunk(self, delta: dict[str, Any], *, finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self._request.includes_usage else {}
        return _frame({**self._base, "choices": [choice], **usage, **more})


def _finish(reply: Assistant) -> str:
    return FINISHES.get(reply.stop or "", "stop")


def _frame(value: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % errors.encode(value)

"""A server on 127.0.0.1 that speaks both wire formats as the real ones do, and says what it was told to say.

    with Wire() as wire:
        wire.say(Said(text="Hello"), Refused(429, {"error": {"type": "rate_limit_error", "message": "slow down"}}))
        provider = AnthropicProvider("claude-opus-5-5", api_key="k", base_url=wire.anthropic_url)
        …
        wire.requests[0].body["messages"]

Replies are used in order, whichever format is asked for; past the end: Said(text="ok"). Like the real ones it refuses
(400) whatever breaks a rule that `check_messages` knows, so that a test which sends such a thing cannot pass by
accident.
"""

import asyncio
import json
import threading
from collections import deque
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from turnlog.testing import InvalidMessages, check_messages

STALL_MAX_S = 20.0
"""A stalled reply ends by itself after this, so that a failing test cannot hang."""


@dataclass(frozen=True)
class Said:
    """An answer, in whichever format is asked for. Each text in `texts` is one piece of the stream."""

    text: str = ""
    texts: tuple[str, ...] = ()
    thinking: str = ""
    signature: str = "c2lnbmVk"
    redacted: str = ""
    calls: tuple[dict[str, Any], ...] = ()
    """{"id", "name", "input"}; `input` as an object, or as a string sent as it is."""
    usage: Mapping[str, int] = field(default_factory=dict)
    """input_tokens, cache_read_input_tokens, cache_creation_input_tokens, output_tokens"""
    stop: str = ""
    """Anthropic's word; by default what fits."""
    breaks: str = ""
    """"hang_up": the connection breaks after the first piece; "end": the stream ends there, properly but too early;
    "stall": nothing more comes."""
    error: dict[str, Any] | None = None
    """Sent within the stream, after the first piece, instead of the rest."""


@dataclass(frozen=True)
class Refused:
    status: int
    body: Any = None
    """JSON, or a string sent as it is, or None for no body at all."""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Streamed:
    """Frames exactly as given; what `frame` and `event` make, or bytes of any kind."""

    frames: tuple[bytes, ...]
    hang_up: bool = False


@dataclass(frozen=True)
class Stalled:
    """The request is taken and nothing is answered."""


@dataclass(frozen=True)
class Request:
    path: str
    headers: Mapping[str, str]
    raw: bytes
    body: Any


RUN_MAX_S = 120.0
"""A test that waits longer waits for nothing."""

SETTINGS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL")
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, RUN_MAX_S))


async def ask(provider: Any, *prompts: Any) -> list[Any]:
    """Everything that the provider gives for each prompt, in order; the provider is closed afterwards."""
    try:
        return [piece for prompt in prompts async for piece in provider.stream(prompt)]
    finally:
        await provider.close()


async def failure(provider: Any, prompt: Any) -> Any:
    """The error that the provider raises."""
    try:
        await ask(provider, prompt)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def every(kind: type[Exception]) -> set[type[Exception]]:
    """A class of exceptions and all below it."""
    return {kind, *(leaf for child in kind.__subclasses__() for leaf in every(child))}


def made(kind: type[Exception]) -> Exception:
    """One of them, whatever its constructor asks for."""
    import httpx2

    request = httpx2.Request("POST", "http://127.0.0.1/")
    status = getattr(kind, "status_code", None)
    response = httpx2.Response(status if isinstance(status, int) else 500, request=request)
    for options in ({"response": response, "body": None}, {"request": request, "body": None}, {"request": request}, {}):
        for words in (("words",), ()):
            try:
                return kind(*words, **options)
            except (TypeError, AttributeError):
                pass
    return kind.__new__(kind)


def frame(payload: Any) -> bytes:
    return b"data: " + (payload if isinstance(payload, str) else json.dumps(payload)).encode() + b"\n\n"


def event(payload: dict[str, Any]) -> bytes:
    return f"event: {payload['type']}\n".encode() + frame(payload)


class Wire:
    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.asked = threading.Event()
        """Set when the first request is in."""
        self.left = threading.Event()
        """Set when a client went away before it had everything."""
        self._script: deque[Any] = deque()
        self._closing = threading.Event()
        wire = self

        class Handler(_Handler):
            owner = wire

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def anthropic_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def openai_url(self) -> str:
        return f"{self.anthropic_url}/v1"

    def say(self, *replies: Any) -> None:
        self._script.extend(replies)

    def next_reply(self) -> Any:
        return self._script.popleft() if self._script else Said(text="ok")

    def stall(self) -> None:
        self._closing.wait(STALL_MAX_S)

    def __enter__(self) -> "Wire":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    owner: Wire
    protocol_version = "HTTP/1.1"

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        pass  # a test's output is its own

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        request = Request(
            self.path, {name.lower(): value for name, value in self.headers.items()}, raw, json.loads(raw)
        )
        self.owner.requests.append(request)
        self.owner.asked.set()
        render, complaint = _formats[self.path]
        wrong = complaint(request.body)
        reply = Refused(400, {"error": {"type": "invalid_request_error", "message": wrong}}) if wrong else None
        try:
            self._answer(reply or self.owner.next_reply(), render)
        except OSError:
            self.owner.left.set()
            self.close_connection = True

    def _answer(self, reply: Any, render: Any) -> None:
        match reply:
            case Refused():
                self._refuse(reply)
            case Stalled():
                self.owner.stall()
                self.close_connection = True
            case Streamed(frames, hang_up):
                self._begin()
                for piece in frames:
                    self._send(piece)
                self._end(hang_up)
            case Said():
                self._begin()
                self._say(reply, list(render(reply)))

    def _say(self, reply: Said, frames: list[bytes]) -> None:
        if reply.error is not None:
            for piece in frames[: _first_piece(frames) + 1]:
                self._send(piece)
            self._send(b"event: error\n" + frame({"type": "error", "error": reply.error}))
            self._end(False)
        elif reply.breaks:
            for piece in frames[: _first_piece(frames) + 1]:
                self._send(piece)
            while reply.breaks == "stall" and not self.owner._closing.wait(0.02):
                self._send(b": still here\n\n")
            self._end(reply.breaks == "hang_up")
        else:
            for piece in frames:
                self._send(piece)
            self._end(False)

    def _refuse(self, reply: Refused) -> None:
        body = b"" if reply.body is None else reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
        sent = body.encode() if isinstance(body, str) else body
        self.send_response(reply.status)
        self.send_header("content-type", "text/plain" if isinstance(reply.body, str) else "application/json")
        self.send_header("content-length", str(len(sent)))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(sent)

    def _begin(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def _send(self, piece: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.flush()

    def _end(self, hang_up: bool) -> None:
        if not hang_up:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = hang_up


def _first_piece(frames: list[bytes]) -> int:
    marks = (b"text_delta", b"thinking_delta", b'"content": "', b'"reasoning_content": "')
    return next((number for number, sent in enumerate(frames) if any(mark in sent for mark in marks)), 0)


def claude(reply: Said) -> Iterator[bytes]:
    """The frames of Anthropic's Messages API."""
    usage = dict.fromkeys(("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"), 0)
    usage.update({name: count for name, count in reply.usage.items() if name in usage})
    yield event(
        {
            "type": "message_start",
            "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "claude",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {**usage, "output_tokens": 1},
            },
        }
    )
    yield event({"type": "ping"})
    for index, (start, deltas) in enumerate(_claude_blocks(reply)):
        yield event({"type": "content_block_start", "index": index, "content_block": start})
        for delta in deltas:
            yield event({"type": "content_block_delta", "index": index, "delta": delta})
        yield event({"type": "content_block_stop", "index": index})
    stop = reply.stop or ("tool_use" if reply.calls else "end_turn")
    counted = {"output_tokens": reply.usage.get("output_tokens", 5)}
    yield event({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": counted})
    yield event({"type": "message_stop"})


def _claude_blocks(reply: Said) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    if reply.thinking:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _halves(reply.thinking)]
        signed = {"type": "signature_delta", "signature": reply.signature}
        yield {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed]
    if reply.redacted:
        yield {"type": "redacted_thinking", "data": reply.redacted}, []
    if pieces := reply.texts or _halves(reply.text):
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
        yield {"type": "text", "text": "", "citations": None}, deltas
    for call in reply.calls:
        start = {"type": "tool_use", "id": call["id"], "name": call["name"], "input": {}}
        pieces = ("", *_halves(_written(call["input"])))
        yield start, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]


def gpt(reply: Said) -> Iterator[bytes]:
    """The frames of Chat Completions."""
    yield chunk({"role": "assistant", "content": None})
    for piece in _halves(reply.thinking):
        yield chunk({"reasoning_content": piece})
    for piece in reply.texts or _halves(reply.text):
        yield chunk({"content": piece})
    for index, call in enumerate(reply.calls):
        opening = {"name": call["name"], "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": opening}]})
        for piece in _halves(_written(call["input"])):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    words = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}
    stop = reply.stop or ("tool_use" if reply.calls else "end_turn")
    yield chunk({}, finish=words.get(stop, stop))
    cached = reply.usage.get("cache_read_input_tokens", 0)
    written = reply.usage.get("cache_creation_input_tokens", 0)
    usage = {
        "prompt_tokens": reply.usage.get("input_tokens", 0) + cached + written,
        "completion_tokens": reply.usage.get("output_tokens", 5),
        "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
    }
    yield chunk(None, usage=usage)
    yield frame("[DONE]")


def chunk(delta: dict[str, Any] | None, *, finish: str | None = None, **more: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return frame(
        {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **more}
    )


def _halves(text: str) -> tuple[str, ...]:
    middle = len(text) // 2
    return tuple(piece for piece in (text[:middle], text[middle:]) if piece)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def claude_complaint(body: dict[str, Any]) -> str:
    try:
        check_messages(body["messages"], "anthropic", tools=body.get("tools", ()))
    except InvalidMessages as error:
        return str(error)
    if count_marks(body) > 4:
        return "A maximum of 4 blocks with cache_control may be provided"
    return "" if body["max_tokens"] > 0 and body.get("stream", True) else "max_tokens and stream are required"


def count_marks(value: Any) -> int:
    if isinstance(value, dict):
        return ("cache_control" in value) + sum(map(count_marks, value.values()))
    return sum(map(count_marks, value)) if isinstance(value, list) else 0


def gpt_complaint(body: dict[str, Any]) -> str:
    """What OpenAI and the stricter chat templates refuse."""
    try:
        check_messages(body["messages"], "openai", tools=body.get("tools", ()))
    except InvalidMessages as error:
        return str(error)
    return ""


_formats = {"/v1/messages": (claude, claude_complaint), "/v1/chat/completions": (gpt, gpt_complaint)}

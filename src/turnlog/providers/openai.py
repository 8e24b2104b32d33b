"""Chat Completions through OpenAI's SDK, for OpenAI and for whatever else speaks it: Ollama, vLLM, llama.cpp …

Servers differ in what they leave out. What can be told from the rest is; what cannot is unknown, not guessed. Nothing
is retried here.
"""

import json
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import uuid4

from msgspec.structs import replace

from ..core.entries import Assistant, Block, Usage, text_of
from ..core.prompt import INVALID_INPUT, Prompt
from . import Delta
from .calls import read_input
from .chat_messages import messages_of, tools_of
from .failures import check_installed, cut_short, failure_of, load, missing_key
from .windows import of_gpt

KEY = "OPENAI_API_KEY"
ADDRESS = "OPENAI_BASE_URL"
NO_KEY = "none"
"""The SDK must be given something; a server without keys does not look at it."""

CONNECT_TIMEOUT_S = 10.0
"""An address that does not answer is told from a model that thinks for minutes."""

STOPS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
    "model_length": "model_context_window_exceeded",
}
"""Their word → ours; another word stays as it is."""

UNNAMED = "unnamed"
"""A call whose name never came. It gets one, so that it can be answered as a call of an unknown tool."""


class OpenAIProvider:
    def __init__(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        window: int | None = None,
        max_output: int | None = None,
        timeout_s: float = 600,
    ) -> None:
        check_installed("openai")
        self._name = name
        self._base_url = base_url or os.environ.get(ADDRESS) or None
        self._is_official = self._base_url is None or _is_openai(self._base_url)
        self._key = api_key or os.environ.get(KEY) or ("" if self._base_url is None else NO_KEY)
        if not self._key:
            raise missing_key(KEY)
        self._window = window or (of_gpt(name) if self._is_official else None)
        self._max_output = max_output
        self._timeout_s = timeout_s
        self._opened: Any = None

    @property
    def model(self) -> str:
        return f"openai:{self._name}"

    @property
    def window(self) -> int | None:
        return self._window

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Delta | Assistant, None]:
        answer = ChatAnswer()
        async with aclosing(self._chunks(self._request(prompt))) as chunks:
            async for chunk in chunks:
                for delta in answer.take(chunk):
                    yield delta
        yield answer.finish(self.model)

    async def summarise(self, prompt: Prompt) -> str:
        async with aclosing(self.stream(replace(prompt, may_call=False))) as pieces:
            async for piece in pieces:
                if isinstance(piece, Assistant):
                    return text_of(piece.content)
        raise cut_short()

    async def close(self) -> None:
        if self._opened is not None:
            opened, self._opened = self._opened, None
            await opened.close()

    def _client(self, sdk: Any) -> Any:
        if self._opened is None:
            self._opened = sdk.AsyncOpenAI(
                api_key=self._key,
                base_url=self._base_url,
                max_retries=0,  # the runner retries; twice would be six times as often
                timeout=sdk.Timeout(self._timeout_s, connect=min(CONNECT_TIMEOUT_S, self._timeout_s)),
            )
        return self._opened

    async def _chunks(self, request: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        sdk = load("openai")
        try:
            async with await self._client(sdk).chat.completions.create(**request) as chunks:
                async for chunk in chunks:
                    yield chunk.to_dict(mode="json", warnings=False)
        except Exception as error:
            raise failure_of(error, sdk, key=KEY) from error

    def _request(self, prompt: Prompt) -> dict[str, Any]:
        """The body, as the SDK takes it. The same prompt gives the same bytes."""
        request: dict[str, Any] = {
            "model": self._name,
            "messages": messages_of(prompt),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if prompt.tools:
            request["tools"] = tools_of(prompt)
            if not prompt.may_call:
                request["tool_choice"] = "none"
        if limit := prompt.max_output or self._max_output:
            # OpenAI's reasoning models refuse max_tokens; many other servers know nothing else, and some ignore
            # the new name without a word, which would leave the answer without a limit.
            request["max_completion_tokens" if self._is_official else "max_tokens"] = limit
        return request


def _is_openai(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host == "openai.com" or host.endswith(".openai.com")


class _Call:
    """One tool call as it arrives."""

    def __init__(self, index: Any) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self._pieces: list[str] = []

    def add(self, call_id: str, name: str, arguments: Any) -> None:
        self.id = self.id or call_id
        self.name = self.name or name
        if arguments is not None:
            self._pieces.append(arguments if isinstance(arguments, str) else json.dumps(arguments))

    def goes_on_with(self, call_id: str, name: str) -> bool:
        """By the rules a name comes once, with the first piece. Some servers repeat it, with the same id and while
        the arguments are unfinished; what comes with another id or name, or after the end, is another call."""
        if not name:
            return True
        return self.id in ("", call_id) and self.name in ("", name) and not self._is_whole()

    def _is_whole(self) -> bool:
        written = "".join(self._pieces)
        return bool(written.strip()) and INVALID_INPUT not in read_input(written)

    def as_block(self, call_id: str) -> Block:
        written = read_input("".join(self._pieces))
        return {"type": "tool_use", "id": call_id, "name": self.name or UNNAMED, "input": written}


class ChatAnswer:
    """One answer as it arrives."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[_Call] = []
        self._usage: dict[str, Any] = {}
        self._timings: dict[str, Any] = {}
        self._finish = ""

    def take(self, chunk: dict[str, Any]) -> list[Delta]:
        self._usage = _fields(chunk.get("usage")) or self._usage
        self._timings = _fields(chunk.get("timings")) or self._timings
        deltas: list[Delta] = []
        for choice in _items(chunk.get("choices")):
            self._finish = str(choice.get("finish_reason") or self._finish)
            deltas += self._add(_fields(choice.get("delta")) or _fields(choice.get("message")))
        return deltas

    def _add(self, delta: dict[str, Any]) -> list[Delta]:
        for piece in _items(delta.get("tool_calls")):
            function = _fields(piece.get("function"))
            call_id, name = str(piece.get("id") or ""), str(function.get("name") or "")
            self._call_of(piece.get("index"), call_id, name).add(call_id, name, function.get("arguments"))
        thinking = text_of(delta.get("reasoning_content") or delta.get("reasoning"))
        text = text_of(delta.get("content")) or text_of(delta.get("refusal"))
        self._thinking += [thinking] if thinking else []
        self._text += [text] if text else []
        return [Delta(text=text, thinking=thinking)] if text or thinking else []

    def _call_of(self, index: Any, call_id: str, name: str) -> _Call:
        """The call that a piece goes on with, or a new one. Some servers leave the index out, or say 0 of every call;
        then the id tells, and where there is none, the newest call goes on."""
        if index is not None:
            known = [call for call in self._calls if call.index == index]
        else:
            known = [call for call in self._calls if call_id in ("", call.id)]
        if known and known[-1].goes_on_with(call_id, name):
            return known[-1]
        self._calls.append(_Call(index))
        return self._calls[-1]

    def finish(self, model: str) -> Assistant:
        if not self._finish:
            raise cut_short()
        content: list[Block] = []
        if thinking := "".join(self._thinking):
            content.append({"type": "thinking", "thinking": thinking})
        if text := "".join(self._text):
            content.append({"type": "text", "text": text})
        content += self._tool_uses()
        return Assistant(content=content, model=model, usage=usage_of(self._usage, self._timings), stop=self._stop())

    def _tool_uses(self) -> list[Block]:
        uses: dict[str, Block] = {}
        for call in self._calls:
            call_id = call.id if call.id and call.id not in uses else f"call_{uuid4().hex[:24]}"
            uses[call_id] = call.as_block(call_id)
        return list(uses.values())

    def _stop(self) -> str:
        """A server may say "stop" after calls, or "tool_calls" after none; the calls themselves are believed."""
        stop = STOPS.get(self._finish, self._finish)
        if stop in ("end_turn", "tool_use"):
            return "tool_use" if self._calls else "end_turn"
        return stop


def usage_of(usage: dict[str, Any], timings: dict[str, Any]) -> Usage | None:
    """Theirs counts cached input within the input, ours beside it; llama.cpp's timings know where usage does not."""
    details = _fields(usage.get("prompt_tokens_details"))
    read = _first(details.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"), timings.get("cache_n"))
    written = _first(details.get("cache_write_tokens"))
    if "prompt_tokens" in usage:
        fresh = max(0, _first(usage["prompt_tokens"]) - read - written)
    elif timings:
        fresh = _first(timings.get("prompt_n"))
    else:
        return None
    return {
        "input_tokens": fresh,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": _first(usage.get("completion_tokens"), timings.get("predicted_n")),
    }


def _first(*counts: Any) -> int:
    return next((count for count in counts if isinstance(count, int)), 0)


def _fields(value: Any) -> dict[str, Any]:
    """A server may put anything anywhere; what is no object has no fields."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _items(value: Any) -> list[dict[str, Any]]:
    return [_fields(item) for item in cast("list[Any]", value)] if isinstance(value, list) else []

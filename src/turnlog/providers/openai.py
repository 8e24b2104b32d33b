"""Chat Completions through OpenAI's SDK, for OpenAI and every compatible server: Ollama, vLLM, llama.cpp …

Servers leave out different fields. What follows from the other fields is filled in; the rest is unknown, not guessed.
Nothing is retried here.
"""

import json
import os
from collections.abc import AsyncGenerator, Collection
from copy import copy
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from msgspec.structs import replace

from ..core.entries import Assistant, Block, Usage, text_of
from ..core.parameters import JSON_OBJECT, Parameters, effort_of
from ..core.prompt import INVALID_INPUT, Prompt
from ..core.strict_json import fields_in, list_in
from . import CallPiece, Delta
from .chat_messages import messages_of, tools_of
from .sdk import SdkClient, missing_key, unchecked
from .streaming import answered, cut_short, summary_from
from .tool_input import read_input
from .windows import of_gpt

KEY = "OPENAI_API_KEY"
ADDRESS = "OPENAI_BASE_URL"
NO_KEY = "none"
"""The SDK requires a key; a server without keys ignores it."""

STOPS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
    "model_length": "model_context_window_exceeded",
}
"""OpenAI's stop reason → Turnlog's; other words stay unchanged."""

SAMPLING = ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty")
"""Parameters that have the same name in this API."""
REASONING = ("o1", "o3", "o4", "gpt-5", "gpt-6")
"""OpenAI's models that think before they answer. They refuse most sampling parameters and stop texts."""
CHATTING = ("gpt-5-chat", "gpt-5.1-chat", "gpt-5.2-chat")
OF_ALL = frozenset({"seed", "tool_choice", "parallel", "format", JSON_OBJECT, "user", "cache_key"})
OF_CHATTING = OF_ALL | {"temperature", "top_p", "presence_penalty", "frequency_penalty", "stop"}
CHOICES = {"auto": "auto", "required": "required", "none": "none"}

UNNAMED = "unnamed"
"""The name of a call whose name never came, so that it can be answered as a call of an unknown tool."""


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
        self.base_url = base_url or os.environ.get(ADDRESS) or None
        """None: the provider's own address."""
        self._given_window = window
        self._is_official = self.base_url is None or _is_openai(self.base_url)
        self._choose(name)
        key = api_key or os.environ.get(KEY) or ("" if self.base_url is None else NO_KEY)
        self._client = SdkClient(
            "openai", "AsyncOpenAI", key=KEY, timeout_s=timeout_s, base_url=self.base_url, api_key=key
        )
        if not key:
            raise missing_key(KEY)
        self._max_output = max_output

    def _choose(self, name: str) -> None:
        self.model, self._name = f"openai:{name}", name
        self.window = self._given_window or (of_gpt(name) if self._is_official else None)
        self.takes = _takes(name, self._is_official)

    def named(self, name: str) -> "OpenAIProvider":
        """Another model of this API, with the same connections; closing one closes both."""
        named = copy(self)
        named._choose(name)
        return named

    def stream(self, prompt: Prompt) -> AsyncGenerator[Delta | Assistant, None]:
        return answered(prompt, "openai", self.model, ChatAnswer(), self._chunks)

    async def summarise(self, prompt: Prompt) -> str:
        return await summary_from(self.stream(replace(prompt, may_call=False)))

    async def close(self) -> None:
        await self._client.close()

    def _chunks(self, prompt: Prompt) -> AsyncGenerator[dict[str, Any], None]:
        request = unchecked(self._request(prompt), "messages", "tools")
        return self._client.events(lambda client: client.chat.completions.create(**request))

    def _request(self, prompt: Prompt) -> dict[str, Any]:
        """The request body for the SDK, from an adapted prompt. The same prompt gives the same bytes."""
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
            # OpenAI's reasoning models refuse max_tokens. Many other servers know only that name, and some silently
            # ignore the new one, which would leave the answer without a limit.
            request["max_completion_tokens" if self._is_official else "max_tokens"] = limit
        request.update(parameters_of(prompt))
        if self._is_official:
            request.update(_names_of(prompt.parameters))
        return request


def parameters_of(prompt: Prompt) -> dict[str, Any]:
    """The parameters of a prompt in the names of Chat Completions."""
    given = prompt.parameters
    made = {name: getattr(given, name) for name in SAMPLING if getattr(given, name) is not None}
    if given.stop:
        made["stop"] = list(given.stop)
    if effort := effort_of(given):
        made["reasoning_effort"] = effort
    if given.format is not None:
        made["response_format"] = _format(given.format)
    if prompt.tools and prompt.may_call:
        if given.tool_choice == "named":
            made["tool_choice"] = {"type": "function", "function": {"name": given.tool}}
        elif given.tool_choice:
            made["tool_choice"] = CHOICES[given.tool_choice]
        if given.parallel is not None:
            made["parallel_tool_calls"] = given.parallel
    return made


def _format(given: dict[str, Any]) -> dict[str, Any]:
    if "schema" not in given:
        return {"type": JSON_OBJECT}
    known = ("description", "schema", "strict")
    named = {"name": given.get("name") or "answer", **{name: given[name] for name in known if name in given}}
    return {"type": "json_schema", "json_schema": named}


def _names_of(given: Parameters) -> dict[str, Any]:
    """The names of caches and users. Only OpenAI gets them: other servers may refuse the fields."""
    named = {"prompt_cache_key": given.cache_key, "safety_identifier": given.user}
    return {name: value for name, value in named.items() if value}


def _takes(name: str, is_official: bool) -> frozenset[str]:
    if not is_official:
        return OF_CHATTING | {"effort", "thinking"}
    if name.startswith(REASONING) and not name.startswith(CHATTING):
        return OF_ALL | {"effort", "thinking"}
    return OF_CHATTING


def _is_openai(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host == "openai.com" or host.endswith(".openai.com")


class _Call:
    """One tool call as it arrives."""

    def __init__(self, index: Any, number: int) -> None:
        self.index = index
        self.number = number
        self.id = ""
        """As the server says; it may be missing, or be that of another call."""
        self.name = ""
        self.sent_id = ""
        """The id that the call gets: known from its first piece with a name on."""
        self._pieces: list[str] = []
        self._told = 0
        """The pieces that were passed on."""

    def add(self, call_id: str, name: str, arguments: Any) -> None:
        self.id = self.id or call_id
        self.name = self.name or name
        if arguments is not None:
            self._pieces.append(arguments if isinstance(arguments, str) else json.dumps(arguments))

    def name_id(self, taken: Collection[str]) -> str:
        """The id of the server, or a new one if it gave none or that of another call."""
        self.sent_id = self.sent_id or (self.id if self.id and self.id not in taken else f"call_{uuid4().hex[:24]}")
        return self.sent_id

    def news(self) -> list[Delta]:
        """What came since it was last asked."""
        is_first, fresh = not self._told, "".join(self._pieces[self._told :])
        self._told = len(self._pieces)
        if is_first or fresh:
            return [Delta(call=CallPiece(self.number, self.sent_id, self.name, fresh))]
        return []

    def goes_on_with(self, call_id: str, name: str) -> bool:
        """Whether a piece belongs to this call. By the rules the name comes once, with the first piece. Some servers
        repeat it with the same id while the arguments are unfinished; another id or name, or a piece after the end, is
        another call.
        """
        if not name:
            return True
        return self.id in ("", call_id) and self.name in ("", name) and not self._is_whole()

    def _is_whole(self) -> bool:
        written = "".join(self._pieces)
        return bool(written.strip()) and INVALID_INPUT not in read_input(written)

    def as_block(self) -> Block:
        written = read_input("".join(self._pieces))
        return {"type": "tool_use", "id": self.sent_id, "name": self.name or UNNAMED, "input": written}


class ChatAnswer:
    """One answer as it arrives."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[_Call] = []
        self._usage: dict[str, Any] = {}
        self._timings: dict[str, Any] = {}
        self._finish = ""

    def take(self, event: dict[str, Any]) -> list[Delta]:
        self._usage = fields_in(event.get("usage")) or self._usage
        self._timings = fields_in(event.get("timings")) or self._timings
        deltas: list[Delta] = []
        for choice in _items(event.get("choices")):
            self._finish = str(choice.get("finish_reason") or self._finish)
            deltas += self._add(fields_in(choice.get("delta")) or fields_in(choice.get("message")))
        return deltas

    def _add(self, delta: dict[str, Any]) -> list[Delta]:
        thinking = text_of(delta.get("reasoning_content") or delta.get("reasoning"))
        text = text_of(delta.get("content")) or text_of(delta.get("refusal"))
        self._thinking += [thinking] if thinking else []
        self._text += [text] if text else []
        words = [Delta(text=text, thinking=thinking)] if text or thinking else []
        return [*words, *(news for piece in _items(delta.get("tool_calls")) for news in self._add_call(piece))]

    def _add_call(self, piece: dict[str, Any]) -> list[Delta]:
        function = fields_in(piece.get("function"))
        call_id, name = str(piece.get("id") or ""), str(function.get("name") or "")
        call = self._call_of(piece.get("index"), call_id, name)
        call.add(call_id, name, function.get("arguments"))
        if not call.name:
            return []  # without its name, nobody can be told of it
        self._name(call)
        return call.news()

    def _name(self, call: _Call) -> None:
        call.name_id({other.sent_id for other in self._calls if other is not call})

    def _call_of(self, index: Any, call_id: str, name: str) -> _Call:
        """The call that a piece belongs to, or a new one. Some servers leave out the index, or say 0 for every call.
        Then the id decides, and without an id the piece belongs to the newest call.
        """
        if index is not None:
            known = [call for call in self._calls if call.index == index]
        else:
            known = [call for call in self._calls if call_id in ("", call.id)]
        if known and known[-1].goes_on_with(call_id, name):
            return known[-1]
        self._calls.append(_Call(index, len(self._calls)))
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
        for call in self._calls:
            self._name(call)
        return [call.as_block() for call in self._calls]

    def _stop(self) -> str:
        """A server may say "stop" after calls, or "tool_calls" without any; the calls themselves decide."""
        stop = STOPS.get(self._finish, self._finish)
        if stop in ("end_turn", "tool_use"):
            return "tool_use" if self._calls else "end_turn"
        return stop


def usage_of(usage: dict[str, Any], timings: dict[str, Any]) -> Usage | None:
    """Converts the usage: OpenAI includes cached input in the input, Turnlog counts it separately. llama.cpp's timings
    are used if there is no usage.
    """
    details = fields_in(usage.get("prompt_tokens_details"))
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


def _items(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; a server may send anything."""
    return [fields_in(item) for item in list_in(value)]

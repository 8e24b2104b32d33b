"""Both SDKs against a server that speaks their wire formats: what holds for the two alike, beyond the contract."""

import importlib
import subprocess
import sys
import time
from email.utils import formatdate

import pytest

from tests.core.test_overflow import CONTENT, LATER, NO, NOT_CONTENT, TOO_LARGE
from tests.providers.wire import (
    PROXIES,
    SETTINGS,
    Refused,
    Said,
    Stalled,
    Streamed,
    Wire,
    ask,
    every,
    failure,
    made,
    run,
)
from turnlog.core.overflow import classify
from turnlog.core.prompt import Prompt, ToolDefinition
from turnlog.core.wires import NAMES_REPAIR
from turnlog.errors import ContentRefused, ContextOverflow, ProviderBusy, ProviderRefused, TurnlogError, UsageError
from turnlog.providers.anthropic import AnthropicProvider
from turnlog.providers.openai import OpenAIProvider
from turnlog.providers.sdk import failure_of, retry_after_s

READ = ToolDefinition(name="read", input_schema={"type": "object", "properties": {"path": {"type": "string"}}})
PIXEL = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
KINDS = {"overflow": ContextOverflow, "busy": ProviderBusy, "content": ContentRefused, "refused": ProviderRefused}


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in (*SETTINGS, *PROXIES):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def wire():
    with Wire() as server:
        yield server


class Anthropic:
    name, key, none = "anthropic", "ANTHROPIC_API_KEY", {"type": "none"}
    make = AnthropicProvider

    @staticmethod
    def open(wire, **options):
        return AnthropicProvider("claude-opus-5-5", api_key="key", base_url=wire.anthropic_url, **options)

    @staticmethod
    def tool(body):
        return body["tools"][0]

    @staticmethod
    def error(code, text, param):
        return {"type": code or "invalid_request_error", "message": text}


class OpenAI:
    name, key, none = "openai", "OPENAI_API_KEY", "none"
    make = OpenAIProvider

    @staticmethod
    def open(wire, **options):
        return OpenAIProvider("qwen3", base_url=wire.openai_url, **options)

    @staticmethod
    def tool(body):
        return body["tools"][0]["function"]

    @staticmethod
    def error(code, text, param):
        return {"message": text, "type": "invalid_request_error", "param": param or None, "code": code or None}


@pytest.fixture(params=[Anthropic, OpenAI], ids=lambda api: api.name)
def api(request):
    return request.param


def said(text="Hi", **more):
    return Prompt(system="Be kind.", messages=[{"role": "user", "content": text}], **more)


def test_every_refusal_means_what_the_core_says_and_is_not_retried(wire, api):
    sdk = importlib.import_module(api.name)
    cases = [*((*case, "") for case in (*(large[:3] for large in TOO_LARGE), *LATER, *NO)), *CONTENT, *NOT_CONTENT]
    for number, (status, code, text, param) in enumerate(cases, 1):
        error = api.error(code, text, param)
        in_stream = Said(text="x", error=error)
        wire.say(Refused(status, {"error": error} if code or text else None) if status else in_stream)
        raised = run(failure(api.open(wire), said()))
        told = classify(status=status, code=code, text=text, param=param if api is OpenAI else "")
        assert type(raised) is KINDS[told.kind], (status, code, text)
        assert isinstance(raised.__cause__, sdk.APIError)
        assert (api.key in raised.hint) == (status in (401, 403) and told.kind == "refused"), (status, code, text)
        assert "HTTP 200" not in str(raised), "an error within a stream has no status of its own"
        if isinstance(raised, ContextOverflow) and told.window:
            assert (raised.tokens, raised.window) == (told.tokens, told.window)
        assert len(wire.requests) == number, "the SDK must not retry"


@pytest.mark.parametrize(
    ("headers", "wait"),
    [({"Retry-After": "7"}, 7), ({"Retry-After": "0.5"}, 0.5), ({"retry-after-ms": "1500", "Retry-After": "9"}, 1.5)],
)
def test_how_long_to_wait_is_told(wire, api, headers, wait):
    wire.say(Refused(529, {"error": api.error("overloaded_error", "Overloaded", "")}, headers))
    assert run(failure(api.open(wire), said())).retry_after_s == wait


def test_a_date_to_wait_for_becomes_seconds_and_nonsense_none():
    assert 0 < retry_after_s({"retry-after": formatdate(time.time() + 60, usegmt=True)}) <= 60
    assert retry_after_s({"retry-after": formatdate(time.time() - 60, usegmt=True)}) == 0
    assert retry_after_s({"retry-after": "1e9"}) == 86_400
    assert [retry_after_s({"retry-after": text}) for text in ("soon", "nan", "", "inf")] == [None] * 4


@pytest.mark.parametrize(
    "reply",
    [
        *(Said(texts=("a", "b", "c"), breaks=breaks) for breaks in ("hang_up", "end")),
        *(Streamed((f,)) for f in (b"data: {oops\n\n", b"event: message_start\ndata: {oops\n\n", b"<html></html>")),
        *(Streamed((f,)) for f in (b"data: \xff\n\n", b"\xff\xfe\n\n")),
        Streamed(()),
        Stalled(),
    ],
    ids=lambda reply: str(reply)[:40],
)
def test_an_answer_that_breaks_off_is_no_stream_or_never_comes_is_busy(wire, api, reply):
    wire.say(reply)
    options = {"timeout_s": 0.3} if isinstance(reply, Stalled) else {}
    assert type(run(failure(api.open(wire, **options), said()))) is ProviderBusy


def test_an_address_where_nobody_listens_is_busy(api):
    lost = api.make("m", api_key="k", base_url="http://127.0.0.1:9/v1")
    assert type(run(failure(lost, said()))) is ProviderBusy


def test_a_request_that_cannot_be_written_is_refused(wire, api):
    bad = said(tools=(ToolDefinition(name="t", input_schema={"description": "\ud800"}),))
    assert type(run(failure(api.open(wire), bad))) is ProviderRefused


def test_the_same_prompt_makes_the_same_bytes(wire, api):
    call = {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "ü", "a": 1}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "A"}, PIXEL]}
    messages = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]},
        {"role": "user", "content": [result, {"type": "text", "text": "and?"}]},
    ]
    prompt = Prompt(system="S", messages=messages, tools=(READ,), breakpoints=((-1, 0), (0, 0), (2, 1)))
    run(ask(api.open(wire), prompt, prompt))
    assert wire.requests[0].raw == wire.requests[1].raw
    assert (b"cache_control" in wire.requests[0].raw) is (api is Anthropic)


def test_a_summary_leaves_out_thoughts_and_no_tool_may_be_called(wire, api):
    async def summarise():
        provider = api.open(wire)
        try:
            return await provider.summarise(said(tools=(READ,)))
        finally:
            await provider.close()

    wire.say(Said(thinking="hm", text="They met."))
    assert run(summarise()) == "They met."
    assert wire.requests[0].body["tool_choice"] == api.none


def test_a_missing_sdk_is_told_with_the_command_that_helps(monkeypatch, api):
    monkeypatch.setitem(sys.modules, api.name, None)
    with pytest.raises(UsageError) as caught:
        api.make("m", api_key="k")
    assert caught.value.hint == f'Install it: pip install "turnlog[{api.name}]"'


def test_importing_and_making_a_provider_does_not_import_the_sdk(api):
    code = (
        f"import sys; from {api.make.__module__} import {api.make.__name__} as make; make('m', api_key='k');"
        f"print([name for name in ({api.name!r}, 'httpx', 'httpx2', 'pydantic') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_every_exception_of_the_sdk_is_mapped(api):
    sdk = importlib.import_module(api.name)
    for kind in every(sdk.AnthropicError if api is Anthropic else sdk.OpenAIError):
        error = failure_of(made(kind), sdk, key=api.key)
        assert isinstance(error, TurnlogError), kind
        assert error.hint, kind
        assert str(error), kind


@pytest.mark.parametrize("name", ["functions.list_dir", "server.tool", "a b", "n" * 65, "读文件"])
def test_a_tool_name_that_this_api_refuses_is_sent_as_another_and_comes_back_as_itself(wire, api, name):
    tools = (ToolDefinition(name=name), ToolDefinition(name="read"))
    wire.say(Said(text="first"))
    run(ask(api.open(wire), said(tools=tools)))
    sent_name = api.tool(wire.requests[0].body)["name"]
    wire.say(Said(calls=({"id": "t1", "name": sent_name, "input": {}}, {"id": "t2", "name": "read", "input": {}})))
    told, *pieces, answer = run(ask(api.open(wire), said(tools=tools)))
    assert {piece.call.name for piece in pieces} == {name, "read"}
    assert [call["name"] for call in answer.content] == [name, "read"]
    assert told.repairs == (NAMES_REPAIR,)
    results = [{"type": "tool_result", "tool_use_id": call["id"], "content": "x"} for call in answer.content]
    messages = [
        *said().messages,
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": results},
    ]
    run(ask(api.open(wire), Prompt(system="", messages=messages)))
    assert sent_name in str(wire.requests[-1].body["messages"]), "also where the tool is gone"


def test_pictures_of_other_kinds_and_thoughts_at_the_end_are_not_sent(wire, api):
    tiff = {"type": "image", "source": {"type": "base64", "media_type": "image/tiff", "data": "SUkqAA=="}}
    thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "look"}, tiff]},
        {"role": "assistant", "content": [{"type": "text", "text": "yes"}, PIXEL, thought]},
        {"role": "user", "content": "more"},
    ]
    told, *_ = run(ask(api.open(wire), Prompt(system="", messages=messages)))
    assert len(told.repairs) >= 2
    assert "SUkqAA" not in wire.requests[0].raw.decode()
    assert "iVBOR" not in wire.requests[0].raw.decode()

"""Parameters on the wires: each API gets what it knows under its own names, and nothing that it would refuse."""

import pytest

from tests.providers.wire import PROXIES, SETTINGS, Said, Wire, ask, run
from turnlog.core.parameters import Parameters, fitting
from turnlog.core.prompt import Prompt, ToolDefinition
from turnlog.core.wires import fit
from turnlog.providers import CallPiece
from turnlog.providers.anthropic import AnthropicProvider
from turnlog.providers.offline import OfflineProvider
from turnlog.providers.openai import OpenAIProvider

LOOK = ToolDefinition(name="look.at", input_schema={"type": "object"})
SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
FORMAT = {"type": "json_schema", "name": "plan", "schema": SCHEMA, "strict": True}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in (*SETTINGS, *PROXIES):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def wire():
    with Wire() as server:
        yield server


def said(tools=(LOOK,), **given):
    return Prompt(system="", messages=[{"role": "user", "content": "Hi"}], tools=tools, parameters=Parameters(**given))


def claude(wire, prompt, name="claude-opus-5-5"):
    run(ask(AnthropicProvider(name, api_key="k", base_url=wire.anthropic_url), prompt))
    return wire.requests[-1].body


def gpt(wire, prompt):
    run(ask(OpenAIProvider("qwen3", base_url=wire.openai_url), prompt))
    return wire.requests[-1].body


def test_anthropic_gets_its_own_names(wire):
    prompt = said(
        stop=("END",),
        tool_choice="required",
        parallel=False,
        format=FORMAT,
        effort="minimal",
        thinking={"type": "adaptive"},
        user="u1",
        betas=("context-1m", "x"),
        server_tools=(SEARCH,),
    )
    body = claude(wire, prompt)
    assert body["stop_sequences"] == ["END"]
    assert body["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
    assert body["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}}
    assert body["thinking"] == {"type": "adaptive"}
    assert body["metadata"] == {"user_id": "u1"}
    assert body["tools"][-1] == SEARCH
    assert wire.requests[-1].headers["anthropic-beta"] == "context-1m,x"


def test_no_effort_is_no_thinking_for_anthropic(wire):
    body = claude(wire, said(effort="none"))
    assert body["thinking"] == {"type": "disabled"}
    assert "output_config" not in body


def test_openai_gets_its_own_names(wire):
    thinking = {"type": "enabled", "budget_tokens": 9_000}
    sampling = {"temperature": 0.0, "top_p": 0.5, "seed": 7, "stop": ("END",), "thinking": thinking}
    prompt = said(**sampling, tool_choice="required", parallel=False, format=FORMAT, user="u", cache_key="k")
    body = gpt(wire, prompt)
    expected = {
        "temperature": 0.0,
        "top_p": 0.5,
        "seed": 7,
        "stop": ["END"],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "reasoning_effort": "medium",
        "response_format": {"type": "json_schema", "json_schema": {"name": "plan", "schema": SCHEMA, "strict": True}},
    }
    assert {name: body[name] for name in expected} == expected
    assert {"user", "safety_identifier", "prompt_cache_key"}.isdisjoint(body), "other servers may refuse these"


def test_a_chosen_tool_is_named_as_it_is_sent(wire):
    chosen = said(tool_choice="named", tool="look.at")
    body = gpt(wire, chosen)
    assert body["tool_choice"]["function"]["name"] == body["tools"][0]["function"]["name"] != "look.at"
    body = claude(wire, chosen)
    assert body["tool_choice"] == {"type": "tool", "name": body["tools"][0]["name"]}


def test_a_choice_without_tools_is_not_sent(wire):
    assert "tool_choice" not in gpt(wire, said(tools=(), tool_choice="auto", parallel=True))
    assert "tool_choice" not in claude(wire, said(tools=(), tool_choice="auto", parallel=False))


def test_openai_itself_is_told_the_names_of_caches_and_users():
    provider = OpenAIProvider("gpt-6", api_key="k")
    request = provider._request(fit(said(user="u", cache_key="k"), "openai").prompt)
    assert (request["safety_identifier"], request["prompt_cache_key"]) == ("u", "k")


@pytest.mark.parametrize(
    ("provider", "left_out"),
    [
        (OpenAIProvider("gpt-6", api_key="k"), ("stop", "temperature", "top_k")),
        (OpenAIProvider("gpt-4.1", api_key="k"), ("effort", "top_k")),
        (OpenAIProvider("qwen", base_url="http://127.0.0.1:1/v1"), ("top_k",)),
        (AnthropicProvider("claude-opus-5-5", api_key="k"), ("seed", "temperature", "top_k")),
        (AnthropicProvider("claude-sonnet-4-5", api_key="k"), ("effort", "seed", "temperature", "top_k")),
        (AnthropicProvider("claude-sonnet-4-6", api_key="k"), ("seed", "temperature", "top_k")),
        (OfflineProvider(), ("effort", "seed", "temperature", "top_k")),
    ],
    ids=lambda it: getattr(it, "model", None),
)
def test_what_a_model_would_refuse_is_left_out(provider, left_out):
    wanted = Parameters(temperature=0.5, top_k=3, seed=1, stop=("x",), effort="low")
    assert fitting(wanted, provider.takes)[1] == left_out


def test_calls_that_come_in_turns_keep_their_pieces_apart(wire):
    call = {"id": "a", "name": "look", "input": {"x": 1}}
    wire.say(Said(calls=(call, {**call, "id": "b"})))
    *pieces, _ = run(ask(OpenAIProvider("qwen3", base_url=wire.openai_url), said(tools=())))
    assert [piece.call.index for piece in pieces] == [0, 0, 0, 1, 1, 1]
    assert pieces[0].call == CallPiece(0, "a", "look", "")


def test_a_block_that_anthropic_alone_knows_comes_whole_and_in_its_place(wire):
    wire.say(Said(thinking="hm", redacted="c2VjcmV0", text="Yes"))
    provider = AnthropicProvider("claude-opus-5-5", api_key="k", base_url=wire.anthropic_url)
    *pieces, answer = run(ask(provider, said(tools=())))
    kinds = [next(k for k in ("thinking", "signature", "block", "text") if getattr(p, k)) for p in pieces]
    assert kinds == ["thinking", "thinking", "signature", "block", "text", "text"]
    assert next(piece.block for piece in pieces if piece.block) == answer.content[1]


def test_the_offline_model_stops_where_it_is_told_to(wire):
    async def go():
        whole = (await ask(OfflineProvider(), said(tools=())))[-1].content[0]["text"]
        cut = (await ask(OfflineProvider(), said(tools=(), stop=("see",))))[-1].content[0]["text"]
        assert whole.startswith(cut)
        assert "see" not in cut

    run(go())

"""Whatever a transcript holds, both model APIs take what is sent of it. TRANSCRIPTS says how many are tried."""

import json
import os
from itertools import pairwise

import pytest
from msgspec.structs import replace

from tests.prompts import of_transcript
from tests.providers.wire import PROXIES, SETTINGS, Wire, ask, run
from turnlog.core import history
from turnlog.core.entries import Assistant, Failed, ToolResult, User, text_of
from turnlog.core.wires import fit
from turnlog.providers.anthropic import AnthropicProvider, request_of
from turnlog.providers.chat_messages import messages_of, tools_of
from turnlog.providers.openai import OpenAIProvider
from turnlog.testing import InvalidMessages, check_messages

from .hostile import Hostile

TRANSCRIPTS = int(os.environ.get("TRANSCRIPTS", "3000"))
PARTS = 4
"""Tests run side by side; each takes every fourth seed."""
SENT = 40
"""Of them, through the real SDKs to a server."""


def anthropic_body(prompt):
    fitted = fit(prompt, "anthropic")
    return fitted, request_of(fitted.prompt, "m", 100)


def openai_body(prompt):
    fitted = fit(prompt, "openai")
    return fitted, {"messages": messages_of(fitted.prompt), "tools": tools_of(fitted.prompt)}


BODIES = {"anthropic": anthropic_body, "openai": openai_body}


def prompt_of(hostile):
    return of_transcript(hostile.log, system=hostile.system, inject=hostile.inject, tools=hostile.tools)


@pytest.mark.parametrize("part", range(PARTS))
def test_any_transcript_is_sent_as_both_apis_take_it(part):
    for seed in range(part, TRANSCRIPTS, PARTS):
        hostile = Hostile(seed)
        prompt = prompt_of(hostile)
        for wire, body_of in BODIES.items():
            fitted, body = body_of(prompt)
            try:
                check_messages(body["messages"], wire, tools=body.get("tools", ()))
            except InvalidMessages as error:
                pytest.fail(f"seed {seed}, {wire}: {error}")
            check_names(hostile, fitted)
            check_words(hostile, body, seed)


def check_names(hostile, fitted):
    back = [fitted.names.get(tool.name, tool.name) for tool in fitted.prompt.tools]
    assert back == [tool.name for tool in hostile.tools]


def check_words(hostile, body, seed):
    """What a user said, and counts, reaches the model."""
    if any(isinstance(entry, Failed) for entry in hostile.log):
        return
    flat = json.dumps(body["messages"], ensure_ascii=False)
    for entry in history.survey(hostile.log).tail:
        if isinstance(entry, User) and isinstance(entry.content, str):
            assert text_of(entry.content).strip()[:9] in flat, f"seed {seed}: {entry}"


@pytest.fixture
def wire(monkeypatch):
    for name in (*SETTINGS, *PROXIES):
        monkeypatch.delenv(name, raising=False)
    with Wire() as server:
        yield server


def test_the_real_sdks_send_them_and_the_server_takes_them(wire):
    prompts = [prompt_of(Hostile(seed)) for seed in range(SENT)]
    run(ask(AnthropicProvider("m", api_key="k", base_url=wire.anthropic_url), *prompts))
    run(ask(OpenAIProvider("m", api_key="k", base_url=wire.openai_url), *prompts))
    assert len(wire.requests) == 2 * SENT


@pytest.mark.parametrize("wire_name", BODIES)
def test_the_next_request_begins_with_this_one_whatever_is_in_it(wire_name):
    for seed in range(max(100, TRANSCRIPTS // 20)):
        sent = [BODIES[wire_name](history_alone(log))[1]["messages"] for log in growing(seed)]
        for before, after in pairwise(sent):
            assert after[: len(before)] == before, f"seed {seed}"


def history_alone(log):
    """Without cache marks: they move on."""
    return replace(of_transcript(log), breakpoints=())


def growing(seed):
    """A session whose turns are in order, at each call of the model."""
    hostile = Hostile(seed)
    log = [hostile.log[0]]

    def add(body):
        log.append(replace(body, seq=len(log) + 1))

    for turn in range(4):
        add(User(content=[{"type": "text", "text": "go"}, *uncited(hostile.blocks())]))
        for number in range(hostile.random.randrange(3)):
            yield list(log)
            calls = [{**hostile.call(), "id": f"{hostile.random.choice(('a.b', 'é', 'x' * 70))}{turn}.{number}"}]
            add(Assistant(content=[*uncited(hostile.blocks()), {"type": "text", "text": "I look."}, *calls]))
            add(ToolResult(tool_use_id=calls[0]["id"], content=uncited(hostile.blocks())))
        yield list(log)
        add(Assistant(content=[*uncited(hostile.blocks()), {"type": "text", "text": "Done."}]))


def uncited(blocks):
    """Whether documents may be cited is decided for all of a request, and calls here have their own place."""
    kept = [block for block in blocks if block.get("type") not in ("tool_use", "tool_result", "server_tool_use")]
    return [{name: value for name, value in block.items() if name != "citations"} for block in kept]

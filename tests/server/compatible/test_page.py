"""The page and sessions of clients: whose they are, how they were matched, and what a client needs to connect."""

from contextlib import contextmanager

import httpx

from tests.providers.wire import Said
from tests.server.running import PATIENT

from .serving import CHAT_TOOL, HI


@contextmanager
def browser(relay):
    with httpx.Client(base_url=relay.server.base, **PATIENT) as client:
        client.post("/api/signin", json={"token": relay.server.token})
        yield client


def test_a_session_shows_its_client_and_how_each_request_was_matched(relay):
    relay.say(Said(text="Hello"))
    body = {"model": "m", "messages": [{"role": "user", "content": "Who am I?"}]}
    answer = relay.post("/v1/chat/completions", body, user_agent="claude-cli/2.1 <b>")
    with browser(relay) as client:
        page = client.get(f"/session/main/{answer.headers['turnlog-session']}").text
    assert "claude-cli/2.1 &lt;b&gt;" in page
    assert "<b>" not in page
    assert ": new" in page


def test_the_chat_page_shows_the_lines_for_a_client_with_the_tokens_name(relay):
    with browser(relay) as client:
        page = client.get("/chat/main").text
    assert f"OPENAI_BASE_URL={relay.server.base}/v1" in page
    assert "admin" in page
    assert relay.server.token not in page


def test_a_session_whose_client_runs_a_tool_is_not_running(relay):
    relay.say(Said(calls=({"id": "c1", "name": "look", "input": {}},)))
    session = relay.chat(messages=[*HI, *HI], tools=[CHAT_TOOL]).headers["turnlog-session"]
    with relay.server.client() as client:
        found = client.get("/api/agents/main/chat/status", params={"sessionId": session}).json()
    assert found == {"status": "idle"}

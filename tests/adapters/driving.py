"""Each adapter behind the same two calls, for tests of what all of them promise: write a value under an id, read it."""

import asyncio
from importlib.util import find_spec

import pytest


class OpenAiAgents:
    package, framework = "agents", "openai_agents"

    def __init__(self, url):
        self.url = url

    def _session(self, name):
        from turnlog.adapters.openai_agents import TurnlogSession

        return TurnlogSession(name, self.url)

    async def write(self, name, value):
        await self._session(name).add_items([{"role": "user", "content": "hi", "value": value}])

    async def read(self, name):
        return [item["value"] for item in await self._session(name).get_items()]


class LangGraph:
    package, framework = "langgraph", "langgraph"

    def __init__(self, url):
        from turnlog.adapters.langgraph import TurnlogSaver

        self.saver = TurnlogSaver(url)

    async def write(self, name, value):
        from langgraph.checkpoint.base import empty_checkpoint

        checkpoint = empty_checkpoint()
        before = await self.saver.aget_tuple({"configurable": {"thread_id": name, "checkpoint_ns": ""}})
        version = self.saver.get_next_version(before and before.checkpoint["channel_versions"]["v"], None)
        checkpoint |= {"channel_values": {"v": value}, "channel_versions": {"v": version}}
        config = before.config if before else {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
        await self.saver.aput(config, checkpoint, {}, {"v": version})

    async def read(self, name):
        found = [one async for one in self.saver.alist({"configurable": {"thread_id": name}})]
        return [one.checkpoint["channel_values"]["v"] for one in reversed(found)]


class GoogleAdk:
    package, framework = "google.adk", "google_adk"

    def __init__(self, url):
        from turnlog.adapters.google_adk import TurnlogSessionService

        self.service = TurnlogSessionService(url)

    async def write(self, name, value):
        from google.adk.events import Event, EventActions

        place = {"app_name": "app", "user_id": "ann", "session_id": name}
        session = await self.service.get_session(**place) or await self.service.create_session(**place)
        event = Event(author="user", invocation_id="i", actions=EventActions(state_delta={"v": value}))
        await self.service.append_event(session, event)

    async def read(self, name):
        found = await self.service.get_session(app_name="app", user_id="ann", session_id=name)
        return [event.actions.state_delta["v"] for event in found.events] if found else []


class PydanticAi:
    package, framework = "pydantic_ai", "pydantic_ai"

    def __init__(self, url):
        from turnlog.adapters.pydantic_ai import TurnlogConversationStore

        self.store = TurnlogConversationStore(url)

    async def write(self, name, value):
        from pydantic_ai.conversation import Conversation
        from pydantic_ai.messages import ModelRequest, UserPromptPart

        talk = await self.store.load(name) or Conversation(conversation_id=name)
        talk.messages.append(ModelRequest(parts=[UserPromptPart("hi")], metadata={"value": value}))
        await self.store.save(talk)

    async def read(self, name):
        talk = await self.store.load(name)
        return [message.metadata["value"] for message in talk.messages] if talk else []


class ClaudeAgentSdk:
    package, framework = "claude_agent_sdk", "claude_agent_sdk"

    def __init__(self, url):
        from turnlog.adapters.claude_agent_sdk import TurnlogSessionStore

        self.store = TurnlogSessionStore(url)

    async def write(self, name, value):
        line = {"type": "user", "message": {"role": "user", "content": "hi"}, "value": value}
        await self.store.append({"project_key": "p", "session_id": name}, [line])

    async def read(self, name):
        lines = await self.store.load({"project_key": "p", "session_id": name})
        return [line["value"] for line in lines or ()]


ADAPTERS = (OpenAiAgents, LangGraph, GoogleAdk, PydanticAi, ClaudeAgentSdk)
every_adapter = pytest.mark.parametrize(
    "adapter",
    [
        pytest.param(kind, marks=pytest.mark.skipif(find_spec(kind.package.split(".")[0]) is None, reason=kind.package))
        for kind in ADAPTERS
    ],
    ids=lambda kind: kind.framework,
)


def run(work):
    return asyncio.run(work)

"""pydantic-ai: two turns with a tool."""

import json
import os

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url=os.environ["U"] + "/v1", api_key=os.environ["T"])
agent = Agent(OpenAIChatModel("m", provider=provider), instructions="be brief")


@agent.tool_plain
def hours(day: str) -> str:
    """Hours."""
    return "closed"


first = agent.run_sync("When open?")
second = agent.run_sync("And again?", message_history=first.all_messages())
print(json.dumps([first.output, second.output]))

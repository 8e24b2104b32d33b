"""claude-agent-sdk: one question."""

import asyncio
import json
import os

from claude_agent_sdk import ClaudeAgentOptions, query

env = {
    "ANTHROPIC_BASE_URL": os.environ["U"],
    "ANTHROPIC_AUTH_TOKEN": os.environ["T"],
    "ANTHROPIC_MODEL": "m",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "HOME": os.environ["HOME"],
}


async def main() -> None:
    result = None
    async for message in query(prompt="Say hi.", options=ClaudeAgentOptions(env=env)):
        result = getattr(message, "result", result)
    print(json.dumps(result))


asyncio.run(main())

"""claude-agent-sdk: one question. Prints its answer, or the error that a user would see."""

import asyncio
import json
import os

from claude_agent_sdk import ClaudeAgentOptions, query

env = {
    "ANTHROPIC_BASE_URL": os.environ["U"],
    "ANTHROPIC_AUTH_TOKEN": os.environ["T"],
    "ANTHROPIC_MODEL": os.environ.get("MODEL", "m"),
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "HOME": os.environ["HOME"],
}
options = ClaudeAgentOptions(env=env, continue_conversation="GOES_ON" in os.environ)


async def main() -> None:
    result = None
    try:
        async for message in query(prompt=os.environ.get("QUESTION", "Say hi."), options=options):
            result = getattr(message, "result", result)
    except Exception as error:
        result = f"{result or ''} {error}"
    print(json.dumps(result))


asyncio.run(main())

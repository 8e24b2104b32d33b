"""langchain-openai: two turns with a tool."""

import json
import os

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def hours(day: str) -> str:
    """Hours."""
    return "closed"


by_responses = {"use_responses_api": True, "use_previous_response_id": True} if os.environ.get("WIRE") else {}
model = ChatOpenAI(model="m", base_url=os.environ["U"] + "/v1", api_key=os.environ["T"], **by_responses)
model = model.bind_tools([hours])
said = []
for question in ("When open?", "And again?"):
    said.append(HumanMessage(question))
    while True:
        answer = model.invoke(said)
        said.append(answer)
        if not answer.tool_calls:
            break
        said += [ToolMessage(hours.invoke(call["args"]), tool_call_id=call["id"]) for call in answer.tool_calls]
print(json.dumps([message.text for message in said if message.type == "ai"]))

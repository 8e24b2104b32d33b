"""anthropic: two calls of a tool, the stream helper, count_tokens, models."""

import json
import os

import anthropic

client = anthropic.Anthropic(base_url=os.environ["U"], api_key=os.environ["T"])
schema = {"type": "object", "properties": {"day": {"type": "string"}}}
asked = {
    "model": "m",
    "max_tokens": 100,
    "system": "be brief",
    "tools": [{"name": "hours", "description": "Hours.", "input_schema": schema}],
}
said = [{"role": "user", "content": "hi"}]
found = {"version": anthropic.__version__}

first = client.messages.create(messages=said, **asked)
calls = [block for block in first.content if block.type == "tool_use"]
found["calls"] = [block.name for block in calls]
said.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in first.content]})
results = [{"type": "tool_result", "tool_use_id": block.id, "content": "closed"} for block in calls]
said.append({"role": "user", "content": results})

with client.messages.stream(messages=said, **asked) as stream:
    found["text"] = "".join(stream.text_stream)
    found["final"] = stream.get_final_message().content[0].text
found["tokens"] = client.messages.count_tokens(model="m", messages=said).input_tokens
found["models"] = [model.id for model in client.models.list()]
print(json.dumps(found))

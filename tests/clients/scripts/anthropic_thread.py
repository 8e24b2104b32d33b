"""anthropic 2.x: a thread that the server keeps, by the SDK's helper; with PREVIOUS, a thread goes on."""

import json
import os

import anthropic

client = anthropic.Anthropic(base_url=os.environ["U"], api_key=os.environ["T"])
asked = {"model": "m", "max_tokens": 100}
if "PREVIOUS" in os.environ:
    thread = {"type": "continue", "previous_message_id": os.environ["PREVIOUS"]}
    said = [{"role": "user", "content": "third"}]
    reply = client.beta.messages.create(messages=said, thread=thread, **asked)
    found = [reply.content[0].text]
else:
    thread = client.beta.messages.thread(system="be brief", **asked)
    found = [thread.send({"role": "user", "content": words}).content[0].text for words in ("first", "second")]
    reply = None
print(json.dumps([found, reply.id if reply else thread.previous_message_id]))

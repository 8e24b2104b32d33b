"""openai: responses, plain, streamed, continued, retrieved, counted, compacted; conversations and their items."""

import json
import os

from openai import NotFoundError, OpenAI

client = OpenAI(base_url=os.environ["U"] + "/v1", api_key=os.environ["T"])
found = {}

plain = client.responses.create(model="m", input="first", instructions="be brief")
found["plain"] = plain.output_text
found["request_id"] = bool(plain._request_id)

events = client.responses.create(model="m", input="second", previous_response_id=plain.id, stream=True)
told = list(events)
found["streamed"] = told[-1].response.output_text
with client.responses.stream(model="m", input="third", previous_response_id=told[-1].response.id) as stream:
    for _ in stream:
        pass
    last = stream.get_final_response()
found["helped"] = last.output_text

found["retrieved"] = client.responses.retrieve(last.id).output_text
resumed = list(client.responses.retrieve(told[-1].response.id, stream=True, starting_after=2))
found["resumed"] = [event.sequence_number for event in resumed] == [event.sequence_number for event in told[3:]]
found["input"] = [item.content[0].text for item in client.responses.input_items.list(last.id, order="asc")]
found["tokens"] = client.responses.input_tokens.count(model="m", previous_response_id=last.id, input="x").input_tokens
found["compacted"] = client.responses.compact(model="m", previous_response_id=last.id).output[-1].type

made = client.conversations.create(items=[{"type": "message", "role": "user", "content": "kept"}])
asked = client.responses.create(model="m", input="in it", conversation=made.id)
found["in_conversation"] = asked.output_text
found["items"] = len(list(client.conversations.items.list(made.id)))
client.conversations.delete(made.id)

client.responses.delete(last.id)
try:
    client.responses.retrieve(last.id)
except NotFoundError as error:
    found["gone"] = error.code
print(json.dumps(found))

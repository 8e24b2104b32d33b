"""openai: models, one conversation plain, streamed and with the stream helper."""

import json
import os

from openai import OpenAI

client = OpenAI(base_url=os.environ["U"] + "/v1", api_key=os.environ["T"])
said = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
found = {"models": [model.id for model in client.models.list()]}

plain = client.chat.completions.create(model="m", messages=said)
found["plain"] = plain.choices[0].message.content
found["request_id"] = bool(plain._request_id)

said += [{"role": "assistant", "content": found["plain"]}, {"role": "user", "content": "again"}]
chunks = client.chat.completions.create(model="m", messages=said, stream=True)
found["streamed"] = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)

said += [{"role": "assistant", "content": found["streamed"]}, {"role": "user", "content": "helper"}]
with client.chat.completions.stream(model="m", messages=said) as stream:
    for _ in stream:
        pass
    found["helped"] = stream.get_final_completion().choices[0].message.content
print(json.dumps(found))

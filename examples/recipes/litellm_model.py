"""LiteLLM: any provider that it knows; it speaks OpenAI's shape."""

import litellm

import turnlog


def model(messages):
    return litellm.completion(model="openai/gpt-5.5", messages=messages, stream=True)


with turnlog.connect() as t:
    chat = t.session("ann")
    print(chat.call(model, "My name is Ann.").text)
    print(chat.call(model, "And what is my name?").text)

"""OpenAI's SDK: your own client, your own parameters; Turnlog stores the conversation and makes each call fit."""

import openai

import turnlog

client = openai.OpenAI()


def model(messages):
    return client.chat.completions.create(model="gpt-5.5", messages=messages, stream=True)


with turnlog.connect() as t:
    chat = t.session("ann")
    print(chat.call(model, "My name is Ann.", system="Be brief.").text)
    for event in chat.stream(model, "And what is my name?", system="Be brief."):
        if event.type == "text_delta":
            print(event.text, end="", flush=True)

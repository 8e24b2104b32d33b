"""Anthropic's SDK: the system prompt is not among the messages, so it is given apart."""

import anthropic

import turnlog

client = anthropic.Anthropic()


def model(messages):
    return client.messages.create(model="claude-sonnet-5", max_tokens=1000, system=messages.system, messages=messages)


with turnlog.connect() as t:
    chat = t.session("ann")
    print(chat.call(model, "My name is Ann.", shape="anthropic", system="Be brief.").text)
    print(chat.call(model, "And what is my name?", shape="anthropic", system="Be brief.").text)

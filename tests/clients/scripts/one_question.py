"""One question by the library that KIND names. Prints its answer, or the error that a user would see."""

import json
import os

BASE, TOKEN, KIND = os.environ["U"], os.environ["T"], os.environ["KIND"]
RETRIES, MODEL = int(os.environ.get("RETRIES", "2")), os.environ.get("MODEL", "m")
QUESTION = os.environ.get("QUESTION", "Say hi.")


def openai() -> str:
    from openai import OpenAI

    client = OpenAI(base_url=BASE + "/v1", api_key=TOKEN, max_retries=RETRIES)
    said = [{"role": "user", "content": QUESTION}]
    return client.chat.completions.create(model=MODEL, messages=said).choices[0].message.content


def anthropic() -> str:
    from anthropic import Anthropic

    client = Anthropic(base_url=BASE, api_key=TOKEN, max_retries=RETRIES)
    said = [{"role": "user", "content": QUESTION}]
    return client.messages.create(model=MODEL, max_tokens=100, messages=said).content[0].text


def langchain() -> str:
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model=MODEL, base_url=BASE + "/v1", api_key=TOKEN, max_retries=RETRIES)
    return model.invoke(QUESTION).content


def pydantic_ai() -> str:
    from openai import AsyncOpenAI
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = AsyncOpenAI(base_url=BASE + "/v1", api_key=TOKEN, max_retries=RETRIES)
    return Agent(OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=client))).run_sync(QUESTION).output


try:
    print(json.dumps({"answer": globals()[KIND]()}))
except Exception as error:
    print(json.dumps({"error": f"{type(error).__name__}: {error}"}))

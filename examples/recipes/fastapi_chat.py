"""A chat with FastAPI: the answer is streamed, and a client that goes away does not stop its turn."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.responses import StreamingResponse

import turnlog


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with turnlog.open() as app.state.turnlog:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/chat/{user}")
async def chat(user: str, text: str) -> StreamingResponse:
    events = app.state.turnlog.session(user=user).send(text)
    return StreamingResponse(event.text async for event in events if event.type == "text_delta")

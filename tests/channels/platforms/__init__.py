"""The platforms that only our own tests play, and a way to serve any of them for a platform's own SDK."""

import asyncio
import threading
from contextlib import contextmanager

from ...waiting import GIVES_UP_S


@contextmanager
def served(app):
    """The address of an application on 127.0.0.1, served by a thread."""
    import uvicorn

    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, lifespan="off", ws="none")
    server = uvicorn.Server(config)
    ready = threading.Event()

    async def serve():
        task = asyncio.ensure_future(server.serve())
        while not server.started and not task.done():  # noqa: ASYNC110 - uvicorn has no event for this
            await asyncio.sleep(0.01)
        ready.set()
        await task

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    try:
        assert ready.wait(GIVES_UP_S), "the platform did not start"
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(GIVES_UP_S)

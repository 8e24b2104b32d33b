"""`python -m benchmarks.at_once_model serve …`: `turnlog serve` with a model that costs nothing.

google-adk's server is measured with such a model, and the bare server has none. The offline model counts, remembers
and summarises: a ratio with it would compare models, not servers.
"""

import asyncio
from collections.abc import AsyncGenerator

from benchmarks.workload import answer_pieces


def main() -> None:
    from turnlog.cli.main import main as run
    from turnlog.core.entries import Assistant
    from turnlog.providers import Delta
    from turnlog.wiring import agents

    pieces = answer_pieces()

    class AtOnce:
        model = "at-once"
        window = 200_000
        takes: frozenset[str] = frozenset()

        async def stream(self, prompt) -> AsyncGenerator[Delta | Assistant]:
            for piece in pieces:
                yield Delta(text=piece)
                await asyncio.sleep(0)
            said = [{"type": "text", "text": "".join(pieces)}]
            yield Assistant(
                content=said, model=self.model, usage={"input_tokens": 40, "output_tokens": 25}, stop="end_turn"
            )

        async def summarise(self, prompt) -> str:
            return "nothing"

        async def close(self) -> None:
            """Nothing is open."""

    agents.open_provider = lambda *_, **__: AtOnce()
    run()


if __name__ == "__main__":
    main()

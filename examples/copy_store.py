"""Copy every session from one store to another, and prove it.

    python examples/copy_store.py jsonl:SOURCE sqlite:TARGET.db

An interrupted copy continues where it stopped; a repeated copy writes nothing.
"""

import asyncio
import sys

import turnlog
from turnlog.cli.progress import bar


async def copy(source_url: str, target_url: str) -> None:
    async with turnlog.open_store(source_url) as source, turnlog.open_store(target_url) as target:
        with bar("Copying sessions") as progress:
            report = await turnlog.copy(source, target, progress=progress)
    print(f"{report.sessions} sessions, {report.entries} entries written, {report.facts} facts")
    print(f"digest {report.digest}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: copy_store.py SOURCE_URL TARGET_URL")
    try:
        asyncio.run(copy(sys.argv[1], sys.argv[2]))
    except turnlog.TurnlogError as error:
        sys.exit(f"{error}\n{error.hint}")

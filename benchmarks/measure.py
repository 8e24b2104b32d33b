"""One measurement in one fresh process: `python -m benchmarks.measure MODULE VERB JSON`; JSON on stdout."""

import asyncio
import importlib
import inspect
import json
import sys


def main() -> None:
    module, verb, arguments = sys.argv[1:]
    answer = getattr(importlib.import_module(f"benchmarks.{module}"), verb)(**json.loads(arguments))
    if inspect.iscoroutine(answer):
        answer = asyncio.run(answer)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()

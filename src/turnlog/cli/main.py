"""The entry point. `turnlog --version` is answered before anything is imported that takes time."""

import sys

from .. import __version__


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"turnlog {__version__}\n")
        return
    try:
        from .app import run
    except ModuleNotFoundError as error:
        sys.exit(f"turnlog: {error.name} is missing; install the extra: turnlog[cli]")
    sys.exit(run(sys.argv[1:]))

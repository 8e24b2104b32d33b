"""The entry point. `turnlog --version` is answered before anything is imported that takes time."""

import sys

from .. import __version__


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"turnlog {__version__}\n")
        return
    from .app import run

    sys.exit(run(sys.argv[1:]))

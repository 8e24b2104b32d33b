"""The entry point. Answers `turnlog --version` before slow imports, and says what to install if a package is missing.

The base package has no packages of the command line, but every installation has the command `turnlog`.
"""

import sys
from typing import NoReturn

from .. import __version__
from ..errors import MissingExtra

PACKAGES = frozenset({"click", "prompt_toolkit", "rich"})
"""Installed by the extra `cli`."""
USAGE = 2
"""As in `exit_codes`, which cannot be imported here: it needs these packages."""


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"turnlog {__version__}\n")
        return
    try:
        from .app import run

        sys.exit(run(sys.argv[1:]))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in PACKAGES:
            raise
        leave(MissingExtra(f"the command turnlog needs the package {package}, which is not installed", extra="cli"))


def leave(error: MissingExtra) -> NoReturn:
    if "--json" in sys.argv:
        import json

        sys.stderr.write(json.dumps({"error": str(error), "code": "usage", "hint": error.hint}) + "\n")
    else:
        sys.stderr.write(f"Error: {error}\n  {error.hint}\n")
    sys.exit(USAGE)

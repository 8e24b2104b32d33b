"""The command line: every command hung up in its place, and the outermost edge where errors become exit codes."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from io import TextIOWrapper

import click

from .. import __version__
from ..errors import TurnlogError
from .failing import TURN_FAILED, USAGE, exit_code, tell, tell_error
from .messages import words_here
from .options import VALUED, common

EXTENSIONS = {
    "turnlog.importing": "import_cli",
    "turnlog.exporting": "export_cli",
    "turnlog.doctor": "doctor_cli",
    "turnlog.expiry": "expire_cli",
    "turnlog.memory": "memory_cli",
    "turnlog.server": "serve_cli",
    "turnlog.channels": "channels_cli",
}
"""Library module → the module here that gives it commands, by `register(cli, sessions)`; only where both are there."""


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Each command has examples: turnlog chat --help.",
)
@click.version_option(__version__, prog_name="turnlog", message="%(prog)s %(version)s")
@common
def cli() -> None:
    """Conversations with LLM agents that are never lost.

    \b
    turnlog chat                         go on where you left off
    turnlog chat -p "what did we say?"   one answer, on stdout
    turnlog sessions list                what there is
    turnlog explain SESSION              what became of each message
    """


COMMANDS = {
    "chat": "chat_cli",
    "sessions": "sessions_cli",
    "copy": "sessions_cli",
    "prompt": "history_cli",
    "explain": "history_cli",
    "compact": "history_cli",
    "undo-compact": "history_cli",
    "expand": "history_cli",
    "config": "settings_cli",
    "completion": "settings_cli",
    "bench": "bench_cli",
    "torture": "torture_cli",
}
"""Command → its module. Only what a line names is imported, so that the chat is there at once."""


def hang_up(name: str = "") -> click.Group:
    """The group with the command of this name; with all of them, where others add to it or it is not ours."""
    alone = name in COMMANDS and name != "sessions"
    for each in (name,) if alone else COMMANDS:
        module = import_module(f"turnlog.cli.{COMMANDS[each]}")
        cli.add_command(getattr(module, each.replace("-", "_")))
    if not alone:
        for library, module in EXTENSIONS.items():
            if find_spec(library) and find_spec(f"turnlog.cli.{module}"):
                import_module(f"turnlog.cli.{module}").register(cli, cli.commands["sessions"])
    return cli


def command_in(args: Sequence[str]) -> str:
    """The first word that is neither an option nor its value."""
    words = iter(args)
    for word in words:
        if word in VALUED:
            next(words, None)
        elif not word.startswith("-"):
            return word
    return ""


def run(args: Sequence[str]) -> int:
    """Carries out a command line; its exit code."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a sign, a pipe that holds no text
    words = words_here()
    as_json = "--json" in args
    try:
        code = hang_up(command_in(args)).main(list(args), prog_name="turnlog", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        hint = error.ctx.get_usage() if isinstance(error, click.UsageError) and error.ctx else ""
        tell(error.format_message(), "usage", hint, as_json=as_json, words=words)
        return USAGE
    except TurnlogError as error:
        tell_error(error, as_json=as_json, words=words)
        return exit_code(error)
    except BrokenPipeError:
        # Who reads has seen enough. Python would complain once more while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KeyboardInterrupt, click.Abort):
        return TURN_FAILED

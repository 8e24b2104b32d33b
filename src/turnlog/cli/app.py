"""The command line: registers the commands, and turns errors into exit codes."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import cast

import click

from .. import __version__
from ..errors import TurnlogError
from ..texts import words_here
from .exit_codes import TURN_FAILED, USAGE, exit_code, tell, tell_error
from .options import VALUED, common


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Each command has examples: turnlog chat --help.",
)
@click.version_option(__version__, prog_name="turnlog", message="%(prog)s %(version)s")
@common
def cli() -> None:
    """Chat with LLM agents, and store every conversation.

    \b
    turnlog chat                         continue your last conversation
    turnlog chat -p "what did we say?"   print one answer
    turnlog sessions list                list your sessions
    turnlog explain SESSION              say how the model sees each message
    """


COMMANDS = {
    "chat": "chat",
    "sessions": "sessions",
    "copy": "sessions",
    "backup": "backup",
    "restore": "backup",
    "prompt": "history",
    "explain": "history",
    "compact": "history",
    "undo-compact": "history",
    "expand": "history",
    "fidelity": "history",
    "files": "files",
    "mcp": "mcp",
    "config": "settings",
    "completion": "settings",
    "bench": "bench",
    "torture": "torture",
    "doctor": "doctor",
    "memory": "memory",
    "serve": "serve",
    "token": "serve",
    "channels": "channels",
}
"""Command → its module. Only the module of the command is imported, so that the chat starts quickly."""
OF_SESSIONS = {
    "import_sessions": "importing",
    "export_session": "exporting",
    "expire": "expire",
    "trash": "expire",
    "restore": "expire",
}
"""The commands of `turnlog sessions` that are in other modules than the others."""


def register_commands(name: str = "") -> click.Group:
    """The group with the command of this name; with all commands if it is `sessions` or not in `COMMANDS`."""
    alone = name in COMMANDS and name != "sessions"
    for each in (name,) if alone else COMMANDS:
        cli.add_command(_command(each.replace("-", "_"), COMMANDS[each]))
    if not alone:
        sessions = cast("click.Group", cli.commands["sessions"])
        for each, module in OF_SESSIONS.items():
            sessions.add_command(_command(each, module))
    return cli


def _command(name: str, module: str) -> click.Command:
    return getattr(import_module(f"turnlog.cli.commands.{module}"), name)


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
    """Runs a command line, and gives its exit code."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack a character; a pipe may not be text
    words = words_here()
    as_json = "--json" in args
    try:
        code = register_commands(command_in(args)).main(list(args), prog_name="turnlog", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.ClickException as error:
        hint = error.ctx.get_usage() if isinstance(error, click.UsageError) and error.ctx else ""
        tell(error.format_message(), "usage", hint, as_json=as_json, words=words)
        return USAGE
    except TurnlogError as error:
        tell_error(error, as_json=as_json, words=words)
        return exit_code(error)
    except BrokenPipeError:
        # The reader closed the pipe. Without this, Python would report it again while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KeyboardInterrupt, click.Abort):
        return TURN_FAILED

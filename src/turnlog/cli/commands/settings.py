"""`turnlog config` and `turnlog completion`."""

import click

from ..options import common, flags_now, report, settings_of
from ..output import columns_of_screen, table, write


@click.command()
@common
def config() -> None:
    """Print every setting, its value and its source.

    \b
    turnlog config                    all of them
    turnlog config --json | jq .      for programs
    TURNLOG_MODEL_NAME=offline turnlog config --preset claw0
    """
    from ...settings import explain, load

    flags = flags_now()
    rows = explain(load(home=flags.home, flags=settings_of(flags)))
    report(rows, *table([(row["key"], row["origin"], str(row["value"])) for row in rows], columns_of_screen()))


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@common
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    eval "$(turnlog completion bash)"                       now
    turnlog completion fish > ~/.config/fish/completions/turnlog.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # the choice above names only shells that click knows
    root = click.get_current_context().find_root().command
    write(kind(root, {}, "turnlog", "_TURNLOG_COMPLETE").source())

"""`turnlog mcp`: serves the sessions to another program's model, on standard input and output."""

import click

from ..options import common, flags_now, run

TOKEN_VARIABLE = "TURNLOG_TOKEN"  # noqa: S105 - the name of a variable


@click.command()
@click.option("--token", metavar="TOKEN", envvar=TOKEN_VARIABLE, help=f"Whose sessions [${TOKEN_VARIABLE}].")
@common
def mcp(token: str | None) -> None:
    """Let another program's model look into sessions (MCP, on standard input and output).

    The program starts this command; people do not. With a token, it sees what the token sees. Without one, it sees
    your sessions of the channels cli, app and api.

    \b
    claude mcp add turnlog -- turnlog mcp
    codex mcp add turnlog -- turnlog mcp
    """
    from ...server.mcp import importing, stdio

    importing.check_installed()
    flags = flags_now()

    # The default store is made if it is missing: this process may run for days, and would never see it otherwise.
    run(lambda turnlog: stdio.serve(turnlog, token or None), flags, create=flags.store_url is None)

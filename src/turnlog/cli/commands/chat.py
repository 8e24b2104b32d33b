"""`turnlog chat`: decides between one turn, a dialogue through a pipe, and a terminal."""

import sys

import click

from ...errors import UsageError
from ..chat.session_choice import QUIT_WORDS, SessionChoice
from ..options import approve_option, common, flags_now


@click.command()
@click.option("-p", "text", metavar="TEXT", help="One turn: send TEXT, print the reply. `-` reads it from stdin.")
@click.option("--session", metavar="SESSION", help="This one: an id, key or label, or the beginning of one.")
@click.option("--new", is_flag=True, help="A new session.")
@click.option("--label", metavar="L", help="A name for the new session.")
@click.option("--key", metavar="KEY", help="The session of this key [agent:main:cli:direct:user].")
@click.option("-r", "pick", is_flag=True, help="Choose among your sessions first.")
@approve_option
@common
def chat(text: str | None, session: str | None, new: bool, label: str | None, key: str | None, pick: bool) -> int:
    """Chat; continue where you left off. Every message is stored before it is answered.

    \b
    turnlog chat                              the most recent session
    turnlog chat -r                           choose one
    turnlog chat --new --label invoices       a new one
    turnlog chat -p "and in euros?"           one answer, on stdout
    git diff | turnlog chat -p -              stdin is the message
    turnlog chat -p hello --json | jq .type   events, one per line

    Exit codes: 0 ok, 1 the turn failed, 2 usage, 3 store, 4 the model's provider.
    """
    import asyncio

    flags, choice = flags_now(), SessionChoice(session=session, key=key, new=new, label=label)
    lines: list[str] = []
    if text == "-":
        text = sys.stdin.read()
    elif text is None and not pick and not sys.stdin.isatty():
        text, lines = read_piped()
    if text is not None:
        from ..chat.once import answer

        return asyncio.run(answer(flags, choice, text))
    if flags.json:
        raise UsageError("--json needs a message", hint="Give -p TEXT, or -p - for stdin.")
    from ..chat.start import converse

    return asyncio.run(converse(flags, choice, lines, pick=pick))


def read_piped() -> tuple[str | None, list[str]]:
    """Standard input as one message; or as a dialogue, the lines of it read so far.

    It is a dialogue if its first or its last line is a command. Where the first one is, the rest is not waited for:
    a program may want to see the answer before it goes on.
    """
    first = sys.stdin.readline()
    if _is_command(first):
        return None, [first.rstrip("\n")]
    whole = first + sys.stdin.read()
    lines = [line for line in whole.splitlines() if line.strip()]
    return (None, lines) if lines and _is_command(lines[-1]) else (whole, [])


def _is_command(line: str) -> bool:
    return line.startswith("/") or line.strip().lower() in QUIT_WORDS

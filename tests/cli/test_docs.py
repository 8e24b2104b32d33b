"""The page about the terminal says what the terminal does: its tables are the code's, its commands run."""

import contextlib
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import click
import pytest

from turnlog.cli import app
from turnlog.cli.chat import slash
from turnlog.cli.options import VALUED
from turnlog.texts import Texts

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
COMMANDS = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LEFT_OUT = " || test $? = 1"
"""`import` and `doctor` say by 1 that they found something; a page about another program explains it."""
EXPECTED = {
    "cli.md": "Tom",
    "index.md": "Ann",
    "zeroclaw.md": "imp-",
    "zyhive.md": "Harbours",
    "claw0.md": "What time is it?",
    "openclaw.md": "Ann's calendar",
    "claude-code.md": "Reading files",
    "codex.md": "Run the tests.",
}
"""What the commands of a page print, among other things."""
OTHERS = {"serve", "token", "memory", "channels"}
"""Commands that other pages are about: they have options of their own."""


def rows(first_heading):
    table = PAGE[PAGE.index(f"| {first_heading} ") :].partition("\n\n")[0]
    cells = [re.split(r"(?<!\\) ?\| ?", line.strip("|").strip()) for line in table.splitlines()[2:]]
    return [[cell.strip().replace("\\|", "|") for cell in row] for row in cells]


def all_commands(group, *path):
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from all_commands(command, *path, name)
        else:
            yield " ".join((*path, name))


def test_the_table_of_chat_commands_is_the_one_that_help_prints():
    documented = [(row[0].strip("`"), row[1]) for row in rows("command | does")]
    assert documented == [(command.usage, command.line(Texts("terminal"))) for command in slash.TABLE]


def test_help_has_a_line_for_each_command_in_both_languages():
    for language in ("en", "zh"):
        words = Texts("terminal", language)
        lines = slash.help_lines(words)
        assert len(lines) == len(slash.TABLE)
        assert all(command.line(words) in line for command, line in zip(slash.TABLE, lines, strict=True))
    assert all(command.usage.startswith(f"/{command.name}") for command in slash.TABLE)


def test_every_command_of_the_shell_is_on_the_page_and_no_other():
    documented = {row[0].strip("`").removeprefix("turnlog ") for row in rows("command | what it does")}
    assert documented == set(all_commands(app.register_commands()))


def test_every_command_teaches_by_an_example_or_one_line_and_takes_the_common_options():
    group = app.register_commands()
    for name in all_commands(group):
        command = group
        for word in name.split():
            command = command.commands[word]
        assert command.help, name
        if name.split()[0] not in OTHERS:
            options = {option for param in command.params for option in param.opts}
            assert options >= {*VALUED, "--json"}, name


def pages_with_commands():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return {str(page.relative_to(ROOT)): page for page in pages if COMMANDS.search(page.read_text(encoding="utf-8"))}


def place_old_files(page, folder):
    """On pages about another program, `old` is a directory of that program."""
    source = ROOT / "tests" / "transcripts" / "import" / page.stem
    if page.parent.name == "migrating":
        shutil.copytree(source, folder / "old")
        if (schema := folder / "old" / "schema.sql").exists():
            with contextlib.closing(sqlite3.connect(folder / "old" / "sessions.db")) as database:
                database.executescript(schema.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", pages_with_commands())
def test_the_commands_on_a_page_run(name, tmp_path):
    page = pages_with_commands()[name]
    place_old_files(page, tmp_path)
    block = "".join(COMMANDS.findall(page.read_text(encoding="utf-8")))
    left_out = LEFT_OUT if page.parent.name == "migrating" else ""
    script = f'turnlog() {{ "{sys.executable}" -m turnlog "$@"{left_out}; }}\nset -eo pipefail\n{block}'
    env = {name: os.environ[name] for name in ("PATH",) if name in os.environ} | {"HOME": str(tmp_path)}
    options = {"cwd": tmp_path, "env": env, "timeout": 240, "stdin": subprocess.DEVNULL}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in done.stderr.splitlines() if not line.startswith("note: ")] == []
    assert EXPECTED.get(page.name, "") in done.stdout

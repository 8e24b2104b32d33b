"""The page about the terminal says what the terminal does: its tables are the code's, its commands run."""

import os
import re
import string
import subprocess
import sys
from pathlib import Path

import click
import pytest

from turnlog.cli import app, commands
from turnlog.cli.messages import CATALOGUE, Words, language_of
from turnlog.cli.options import VALUED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
OTHERS = {"serve", "token", "memory", "channels"}
"""Commands that other pages are about."""


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
    assert documented == [(command.usage, command.english) for command in commands.TABLE]


def test_help_has_a_line_for_each_command_in_both_languages():
    for language in ("en", "zh"):
        lines = commands.help_lines(Words(language))
        assert len(lines) == len(commands.TABLE)
        assert all(command.line(Words(language)) in line for command, line in zip(commands.TABLE, lines, strict=True))
    assert all(command.usage.startswith(f"/{command.name}") for command in commands.TABLE)


def test_every_command_of_the_shell_is_on_the_page_and_no_other():
    documented = {row[0].strip("`").removeprefix("turnlog ") for row in rows("command | prints")}
    there = {name for name in all_commands(app.hang_up()) if name.split()[0] not in OTHERS}
    extra = {"sessions expire"}
    assert documented | extra >= there
    assert documented <= there


def test_every_command_teaches_by_an_example_or_one_line_and_takes_the_common_options():
    group = app.hang_up()
    for name in all_commands(group):
        command = group
        for word in name.split():
            command = command.commands[word]
        assert command.help, name
        if name.split()[0] not in OTHERS:
            options = {option for param in command.params for option in param.opts}
            assert options >= {*VALUED, "--json"}, name


def test_the_commands_on_the_page_run(tmp_path):
    block = re.search(r"```bash\n(.*?)```", PAGE, re.DOTALL)[1]
    script = f'turnlog() {{ "{sys.executable}" -m turnlog "$@"; }}\nset -eo pipefail\n{block}'
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    options = {"cwd": tmp_path, "env": env, "timeout": 120, "stdin": subprocess.DEVNULL}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    assert "Tom" in done.stdout
    assert done.stderr == ""


def fields(text):
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("name", CATALOGUE)
def test_both_languages_say_the_same_thing(name):
    english, chinese = CATALOGUE[name]
    assert fields(english) == fields(chinese)
    assert english
    assert chinese


def test_every_message_is_said_somewhere():
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/turnlog/cli").glob("*.py"))
    for name in CATALOGUE:
        others = source.count(f'"{name}"') + source.count(f"'{name}'") - 1
        assert others or name.startswith("guard_"), name


@pytest.mark.parametrize(
    ("env", "language"),
    [
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LC_ALL": "en_GB.UTF-8", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LC_MESSAGES": "zh_TW"}, "zh"),
        ({}, "en"),
    ],
)
def test_the_locale_decides_the_language(env, language):
    assert language_of(env) == language

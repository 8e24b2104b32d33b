"""A pattern is added to config.toml, and nothing else in the file changes."""

import os
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor

import pytest

import turnlog
from turnlog import Denied, UsageError
from turnlog.core.principals import Principal
from turnlog.settings import load
from turnlog.settings.allowing import allow_always
from turnlog.testing import ScriptedProvider

from .turns.talk import run

PATTERN = 'write_file(path="docs/*")'
WRITTEN = 'allow = ["write_file(path=\\"docs/*\\")"]'


def config(home, text):
    (home / "config.toml").write_bytes(text.encode())
    return home / "config.toml"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"[tools]\n{WRITTEN}\n"),
        ("# mine\n", f"# mine\n\n[tools]\n{WRITTEN}\n"),
        ("# mine", f"# mine\n\n[tools]\n{WRITTEN}\n"),
        (
            '[tools] # a\n# b\napproval="all"  # c\n\n[model]\nname = "你好"\n',
            f'[tools] # a\n# b\napproval="all"  # c\n{WRITTEN}\n\n[model]\nname = "你好"\n',
        ),
        (
            '[tools]\nallow = [\n  "list_dir", # first\n  # second\n  "read_file"\n]\ndeny = ["x"]\n',
            '[tools]\nallow = [\n  "list_dir", # first\n  # second\n  "read_file",\n'
            '  "write_file(path=\\"docs/*\\")"\n]\ndeny = ["x"]\n',
        ),
        ('tools.approval = "all"\n', f'tools.approval = "all"\ntools.{WRITTEN}\n'),
        ('[model]\r\nname = "x"\r\n', f'[model]\r\nname = "x"\r\n\r\n[tools]\r\n{WRITTEN}\r\n'),
        ('[tools]\r\napproval = "all"\r\n', f'[tools]\r\napproval = "all"\r\n{WRITTEN}\r\n'),
        ('[agents.tools]\nmodel = "offline"\n', f'[agents.tools]\nmodel = "offline"\n\n[tools]\n{WRITTEN}\n'),
    ],
)
def test_everything_else_stays_byte_for_byte(tmp_path, before, after):
    path = config(tmp_path, before)
    assert allow_always(tmp_path, PATTERN)
    assert path.read_bytes().decode() == after
    assert not allow_always(tmp_path, PATTERN)
    assert path.read_bytes().decode() == after
    assert load(home=tmp_path, env={}).tools.allow[-1] == PATTERN


def test_the_file_is_private_and_made_where_there_is_none(tmp_path):
    home = tmp_path / "new" / "home"
    assert allow_always(home, PATTERN)
    assert (home / "config.toml").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in home.iterdir()) == ["config.lock", "config.toml"]


def test_a_link_stays_a_link(tmp_path):
    real = config(tmp_path, "# real\n")
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").symlink_to(real)
    assert allow_always(home, PATTERN)
    assert (home / "config.toml").is_symlink()
    assert PATTERN in tomllib.loads(real.read_text())["tools"]["allow"]


@pytest.mark.parametrize("text", ["[tools\n", "tools = 5\n", '[tools]\nallow = "x"\n'])
def test_a_file_that_cannot_be_read_is_not_changed(tmp_path, text):
    path = config(tmp_path, text)
    with pytest.raises(UsageError):
        allow_always(tmp_path, PATTERN)
    assert path.read_text() == text


def test_what_is_no_pattern_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UsageError):
        allow_always(tmp_path, 'write_file(path="docs/*"')
    assert not (tmp_path / "config.toml").exists()


def test_many_who_write_at_once_lose_nothing(tmp_path):
    config(tmp_path, "# mine\n")
    code = "import sys, pathlib; from turnlog.settings.allowing import allow_always as a\n"
    code += "for n in range(5): a(pathlib.Path(sys.argv[1]), f'tool_{sys.argv[2]}_{n}')"

    def write(n):
        subprocess.run([sys.executable, "-c", code, str(tmp_path), str(n)], check=True, env={**os.environ})

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(3)))
    found = load(home=tmp_path, env={}).tools.allow
    assert sorted(found) == sorted(f"tool_{who}_{n}" for who in range(3) for n in range(5))
    assert (tmp_path / "config.toml").read_text().startswith("# mine\n")


def call(name):
    return {"tool_calls": [{"id": name, "name": "write_file", "input": {"path": "docs/a.txt", "content": name}}]}


def test_always_everywhere_counts_at_once_in_every_session_and_after_a_restart(tmp_path):
    home, place = tmp_path / "home", tmp_path / "place"
    place.mkdir()

    async def main():
        replies = [call("c1"), {"text": "one."}, call("c2"), {"text": "two."}]
        async with turnlog.open(home=home, provider=ScriptedProvider(replies), workspace=place) as t:
            asked = []

            async def approve(request):
                asked.append(request.call_id)
                await t.approve("ann", request.call_id, always="everywhere", request=request.seq)

            await t.ask("ann", "go", approve=approve)
            await t.ask("bob", "go")
            assert asked == ["c1"]
            assert (place / "docs" / "a.txt").read_text() == "c2"
        async with turnlog.open(
            home=home, provider=ScriptedProvider([call("c3"), {"text": "x"}]), workspace=place
        ) as t:
            await t.ask("carl", "go")
            assert (place / "docs" / "a.txt").read_text() == "c3"

    run(main())


@pytest.mark.parametrize(
    "who",
    [
        Principal("ann"),
        Principal("ann", frozenset({"read"})),
        Principal("a", frozenset({"admin"}), frozenset({"main"})),
    ],
)
def test_only_an_administrator_of_all_agents_may_allow_everywhere(tmp_path, who):
    async def main():
        async with turnlog.open("memory:", home=tmp_path, provider=ScriptedProvider()) as t:
            with pytest.raises(Denied):
                await t.acting_for(who).allow(PATTERN)
            with pytest.raises(Denied):
                await t.acting_for(who).approve("x", "c1", always="everywhere")
        assert not (tmp_path / "config.toml").exists()

    run(main())

"""Two languages: every text is there in both, takes the same values, and is used."""

import re
from string import Formatter

import pytest

from turnlog.channels.questions import question_text
from turnlog.cli.chat.notes import question
from turnlog.core.entries import Approval
from turnlog.core.events import of_request
from turnlog.server.pages.turn_view import question as questions_of_the_page
from turnlog.server.pages.view import WEB
from turnlog.texts import TABLE, Texts, of_header, of_locale
from turnlog.texts.approval import REASONS

SRC = WEB.parent
MADE_UP = {
    "page": (
        *("note_", "trigger_", "status_", "sort_", "try_", "type_", "one_", "reply_state_", "replies_"),
        *("command_", "said_", "hint_", "erased_", "audit_", "file_"),
        *("state_", "did_many_", "per_day_", "by_", "scope_", "loop_", "export_"),
    ),
    "terminal": ("guard_", "slash_"),
    "channel": (),
}
"""Beginnings of names that the code puts together."""
FOLDERS = {"page": ("web/templates", "server/pages"), "terminal": ("cli",), "channel": ("channels",)}


def values_of(text):
    return {(name, form) for _, name, form, _ in Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("part", TABLE)
def test_both_languages_have_every_text_with_the_same_placeholders(part):
    for name, (english, chinese) in TABLE[part].items():
        assert english, name
        assert chinese, name
        assert values_of(english) == values_of(chinese), name


@pytest.mark.parametrize("part", TABLE)
def test_every_text_that_is_named_is_there_and_every_text_is_named(part):
    files = [
        path for folder in FOLDERS[part] for path in (SRC / folder).rglob("*.*") if path.suffix in (".py", ".html")
    ]
    source = "\n".join(path.read_text(encoding="utf-8") for path in files)
    unused = [name for name in TABLE[part] if not re.search(rf"""["']{name}["']""", source)]
    assert [name for name in unused if not name.startswith(MADE_UP[part])] == []
    calls = {
        "page": r"\bt\('(\w+)'[,)]",
        "terminal": r"\bwords(?:_here\(\))?\(\"(\w+)\"",
        "channel": r"\bsay\(\"(\w+)\"",
    }
    assert set(re.findall(calls[part], source)) <= set(TABLE[part])


def test_no_two_texts_of_a_part_are_the_same_by_mistake():
    """What may be said in two places for two reasons is listed here."""
    twice = {"signin_button", "type_session", "type_trash", "last_active"}
    twice |= {"tool_failed", "status_archived", "status_trashed"}  # states of a tool, of a session and of a row
    for part, texts in TABLE.items():
        first = {}
        same = {name for name, text in texts.items() if first.setdefault(text, name) != name}
        assert same <= twice, part


def test_a_text_takes_its_values_and_is_in_the_language():
    assert Texts("page")("total", n=3) == "3 in all"
    assert Texts("page", "zh")("total", n=3) == "共 3 个"
    assert Texts("page").known("total")
    assert not Texts("page").known("nonsense")


@pytest.mark.parametrize(
    ("chosen", "accepted", "language"),
    [
        (None, "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        (None, "de, zh;q=0.5", "zh"),
        (None, "fr", "en"),
        (None, "", "en"),
        ("en", "zh", "en"),
        ("zh", "en", "zh"),
        ("../etc", "en", "en"),
    ],
)
def test_a_choice_counts_before_what_the_browser_likes(chosen, accepted, language):
    assert of_header(chosen, accepted) == language


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
    assert of_locale(env) == language


def test_why_a_call_waits_is_said_in_the_readers_language():
    made = re.findall(r'"((?:this|every|it) [a-z ]+)"', (SRC / "tools" / "approval.py").read_text(encoding="utf-8"))
    assert set(made) == set(REASONS)
    request = Approval(seq=3, state="requested", call="c", tool="write_file", input={}, why="it changes something")
    for language, why in (("en", "it changes something"), ("zh", "会更改内容")):
        event = of_request(request)
        assert why in question(event, Texts("terminal", language))[0].text
        assert why in question_text(request, language)
        assert questions_of_the_page(event, Texts("page", language))["why"] == why
    assert Texts("page", "zh").reason("the words of a tool") == "the words of a tool"

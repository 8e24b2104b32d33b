"""The page in two languages."""

import re
from string import Formatter

import pytest

from turnlog.server.pages_view import WEB
from turnlog.web.texts import CATALOGUE, TEXTS, choose


def fields(text):
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("name", CATALOGUE)
def test_both_languages_name_the_same_fields(name):
    english, chinese = CATALOGUE[name]
    assert english
    assert chinese
    assert fields(english) == fields(chinese)


def test_every_text_that_a_template_names_is_there_and_every_text_is_named():
    source = "\n".join(path.read_text() for path in sorted((WEB / "templates").glob("*.html")))
    timeline = (WEB.parent / "server" / "pages_timeline.py").read_text()
    named = set(re.findall(r"\bt\('(\w+)'[,)]", source)) | set(re.findall(r'"(\w+)"', timeline))
    assert set(re.findall(r"\bt\('(\w+)'[,)]", source)) <= set(CATALOGUE)
    made_up = ("trigger_", "status_", "sort_", "try_", "type_", "one_", "reply_state_", "replies_")
    assert [name for name in CATALOGUE if name not in named and not name.startswith(made_up)] == []


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
    assert choose(chosen, accepted) is TEXTS[language]

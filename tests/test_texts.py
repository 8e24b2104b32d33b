"""Two languages: every text is there in both, takes the same values, and is used."""

import ast
import re
from string import Formatter

import pytest

from turnlog.channels.accounts import KINDS
from turnlog.channels.questions import question_text
from turnlog.cli.chat.notes import TurnNotes, question
from turnlog.core import events
from turnlog.core.entries import Approval
from turnlog.core.events import ApprovalAnswered, of_request
from turnlog.server.pages.turn_view import question as questions_of_the_page
from turnlog.server.pages.view import WEB
from turnlog.texts import TABLE, Texts, of_header, of_locale
from turnlog.texts.approval import REASONS
from turnlog.texts.refusals import REFUSALS, in_chinese

SRC = WEB.parent
MADE_UP = {
    "page": (
        *("note_", "trigger_", "status_", "sort_", "try_", "type_", "one_", "reply_state_", "replies_"),
        *("command_", "said_", "code_", "hint_", "erased_", "audit_", "file_"),
        *("state_", "did_many_", "per_day_", "by_", "scope_", "loop_", "export_"),
    ),
    "terminal": ("guard_", "slash_"),
    "channel": (),
}
"""Beginnings of names that the code puts together."""
FOLDERS = {"page": ("web/templates", "server/pages"), "terminal": ("cli",), "channel": ("channels",)}


NAMES_OF_JOBS = ("Loop", "going_on", "report", "run_forever", "run_until_done")


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


ERRORS = "UsageError|Denied|NotFound|Conflict|Busy|Refusal|later|unauthorized"


def said(node):
    """A text of the source, with {} for each value."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in parts)
    return None


def blank(text):
    return re.sub(r"\{\w*\}", "{}", text)


def test_every_refusal_that_is_translated_is_said_somewhere():
    sources = [path.read_text(encoding="utf-8") for path in SRC.rglob("*.py") if path.name != "refusals.py"]
    trees = [ast.parse(source) for source in sources]
    texts = {blank(text) for tree in trees for node in ast.walk(tree) if (text := said(node))}
    texts |= {(ast.get_docstring(node) or "").split("\n")[0] for tree in trees for node in tree.body if is_class(node)}
    made = {  # put together from parts
        *("message: it is blank", "{} is empty", "{} is not a transcript of a known kind"),
        *("the model returned nothing",),
    }
    assert {blank(english) for english in REFUSALS} - texts <= made


def is_class(node):
    return isinstance(node, ast.ClassDef)


@pytest.mark.parametrize("folder", ["server/pages", "sessions/__init__.py", "sessions/pins.py", "access/approving.py"])
def test_what_the_page_refuses_is_said_in_chinese_too(folder):
    place = SRC / folder
    paths = sorted(place.glob("*.py")) if place.is_dir() else [place]
    known = {blank(english) for english in REFUSALS}
    api_only = {"only the owner may act for others", "only an administrator may rebuild the index"}
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not re.fullmatch(ERRORS, getattr(node.func, "id", "")):
                continue
            given = [*node.args[:1], *(one.value for one in node.keywords if one.arg == "hint")]
            for text in filter(None, map(said, given)):
                assert blank(text) in known | api_only, f"{path.name}: {text}"


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("a title cannot be empty", "标题不能为空"),
        ("there is no session ses-1", "没有会话 ses-1"),
        ("the message is larger than 1,048,576 bytes", "消息超过 1,048,576 字节"),
        ("20 messages wait in this session already", "此会话中已有 20 条消息在等待"),
        ("a turn is running in session s (process 7)", "会话 s 正在进行一轮对话（process 7）"),
        ("entry 3 was rewound, so it cannot be pinned", "条目 3 已被回退，无法固定"),
        ("there is no agent {x}", "没有智能体 {x}"),
        ("rate_limit: the words of a provider", "rate_limit: the words of a provider"),
        ("", ""),
    ],
)
def test_a_refusal_keeps_its_values_in_chinese(english, chinese):
    assert in_chinese(english) == chinese
    assert Texts("page", "zh").refusal(english) == chinese
    assert Texts("page").refusal(english) == english


def test_refusals_have_the_same_values_in_both_languages():
    for english, chinese in REFUSALS.items():
        assert values_of(chinese) <= values_of(english), english


@pytest.mark.parametrize(("language", "told"), [("en", "denied without an answer"), ("zh", "未获答复，已拒绝")])
def test_a_call_that_nobody_answered_names_nobody(language, told):
    answered = ApprovalAnswered(call_id="c", word="denied")
    (note,) = TurnNotes(Texts("terminal", language)).of(answered)
    assert note.text == f"· {told}"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_code_of_a_failed_turn_is_said_in_words(language):
    texts = Texts("page", language)
    codes = {code for _, code in events._CODES} | {"internal", "interrupted", "stopped"}
    for code in codes:
        assert texts.known(f"code_{code}"), code
        assert texts(f"code_{code}") != code or code in ("stopped", "refused")


def names_of_jobs(module):
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            named = node.args[0] if node.args else None
            if function in NAMES_OF_JOBS and isinstance(named, ast.Constant) and named.value:
                yield named.value
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "LOOP":
            yield node.value.value


def test_every_background_job_has_a_text_on_the_page():
    parts = ("channels", "server", "stores", "turns")
    files = [path for part in parts for path in (SRC / part).rglob("*.py")]
    names = {name for path in files for name in names_of_jobs(ast.parse(path.read_text(encoding="utf-8")))}
    names |= {f"channel {kind}" for kind in KINDS}
    assert {"metrics", "outbox", "postgres heartbeat"} <= names
    assert {name for name in names if f"loop_{name.replace(' ', '_')}" not in TABLE["page"]} == set()

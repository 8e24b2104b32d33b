"""Markdown and HTML for people: complete, masked, and unable to do anything."""

import re
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from turnlog.core.session import describe
from turnlog.interchange.exporting import export
from turnlog.testing import entry

TS = "2026-01-01T10:00:00.000Z"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[click](javascript:alert(1))",
    "[click](data:text/html;base64,PHNjcmlwdD4=)",
    "![spy](https://tracker.example/pixel.png)",
    '<a href="https://x.example" onclick="alert(1)">x</a>',
    "<svg><animate onbegin=alert(1)></svg>",
    "</section></main><style>body{display:none}</style>",
    '<iframe src="https://evil.example"></iframe>',
    "<math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "[ref]: javascript:alert(1)\n\n[ref]",
    "<javascript:alert(1)>",
    "`<script>`",
    "```\n</pre><script>alert(1)</script>\n```",
    '"><script>alert(1)</script>',
]


def log(*bodies):
    first = entry(type="session", id="s1", key="agent:main:cli:direct:user", agent="main", channel="cli")
    return [replace(body, seq=n, ts=TS) for n, body in enumerate((first, *bodies), 1)]


def page(form, *bodies):
    entries = log(*bodies)
    return "".join(export(entries, describe(None, entries), form))


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def tags(html):
    parser = Tags()
    parser.feed(html)
    return parser.found


def everywhere(text):
    return [
        entry(type="title", title=text),
        entry(type="user", content=text, sender=text),
        entry(
            type="assistant",
            content=[
                {"type": "text", "text": text},
                {"type": "tool_use", "id": "c", "name": text, "input": {"a": text}},
            ],
        ),
        entry(type="tool_result", tool_use_id="c", content=text),
        entry(type="compaction", summary=text, first_kept=6, covers=[2, 5]),
        entry(type="failed", code=text, reason=text),
    ]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_was_said_can_act_in_the_page(text):
    html = page("html", *everywhere(text))
    for tag, attributes in tags(html):
        assert tag not in ("script", "iframe", "form", "svg", "math", "object", "embed", "base", "link")
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("href", "src"):
            value = attributes.get(name) or ""
            assert not re.match(r"\s*(javascript|data:text|vbscript)", value, re.IGNORECASE)
            assert name == "href" or value.startswith("data:image/") or not value
    assert html.count("<style>") == 1


def test_the_page_loads_nothing_and_says_so_in_its_policy():
    html = page("html", entry(type="user", content="![x](https://a.example/b.png) [a](https://a.example)"))
    assert "default-src 'none'" in html
    assert [attributes for tag, attributes in tags(html) if tag == "img"] == [{"alt": "x"}]
    (link,) = [attributes for tag, attributes in tags(html) if tag == "a"]
    assert link["rel"] == "noopener noreferrer nofollow"


def test_pictures_are_in_the_page_itself_and_only_pictures():
    def image(kind):
        source = {"type": "base64", "media_type": kind, "data": PIXEL}
        return page("html", entry(type="user", content=[{"type": "image", "source": source}]))

    assert f'src="data:image/png;base64,{PIXEL}"' in image("image/png")
    assert "src=" not in image("image/svg+xml").partition("<main>")[2]
    assert "src=" not in image('png" onerror="x').partition("<main>")[2]


def test_markdown_is_rendered_and_calls_results_and_markers_are_shown():
    bodies = [
        entry(type="user", content="Do **this**:\n\n| a | b |\n|---|---|\n| 1 | 2 |", sender="Ann"),
        entry(type="assistant", content=[{"type": "tool_use", "id": "c", "name": "look", "input": {"at": 1}}]),
        entry(type="tool_result", tool_use_id="c", content="seen", is_error=True),
        entry(type="assistant", content="Done."),
        entry(
            type="compaction", summary="It was done.", first_kept=5, covers=[2, 4], tokens_before=900, tokens_after=90
        ),
        entry(type="failed", code="provider", reason="busy"),
    ]
    html = page("html", *bodies)
    for part in ("<strong>this</strong>", "<td>1</td>", "Ann", "Call: look", "seen", "Result (an error)", "No answer"):
        assert part in html
    assert "Compacted: entries 2 to 4, 900 → 90 tokens" in html
    assert "It was done." in html
    text = page("md", *bodies)
    for part in (
        "## Ann · 2026",
        "**this**",
        "**Call: look**",
        "```\nseen\n```",
        "**Compacted: entries 2 to 4",
        "busy",
    ):
        assert part in text


def test_an_undone_compaction_is_shown_as_undone_and_a_rewound_turn_is_not_shown():
    text = page(
        "md",
        entry(type="user", content="one"),
        entry(type="assistant", content="two"),
        entry(type="compaction", summary="both", first_kept=4, covers=[2, 3]),
        entry(type="undo", target=4),
        entry(type="user", content="gone"),
        entry(type="assistant", content="gone too"),
        entry(type="rewind", to=5),
    )
    assert "Compacted, then undone" in text
    assert "gone" not in text
    assert "one" in text


def test_control_characters_and_turned_text_reach_neither_terminal_nor_page():
    text = "a\x1b[31mred\x07\x9b2J \u202etxt.exe\r\nnext\ttab"
    for form in ("md", "html"):
        shown = page(form, *everywhere(text))
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
        assert "next\ttab" in shown


def test_a_quotation_cannot_be_closed_from_inside():
    text = page("md", entry(type="tool_result", tool_use_id="c", content="```\n# not a heading\n````"))
    assert "`````\n```\n# not a heading\n````\n`````" in text


def test_an_empty_session_has_a_page_too():
    assert "<h1>s1</h1>" in page("html")
    assert page("md").startswith("# s1\n")


@pytest.mark.parametrize("form", ["md", "html"])
def test_who_approved_what_and_when_is_told(form):
    log = [
        entry(type="session", version=1, id="s", key="agent:main:cli:direct:user", agent="main", channel="cli"),
        entry(type="user", content="write it"),
        entry(type="approval", state="requested", call="c", tool="write_file", why="it changes something"),
        entry(type="approval_answer", call="c", word="denied", by="ann", words="not today"),
    ]
    log = [replace(one, seq=n, ts=TS) for n, one in enumerate(log, 1)]
    text = "".join(export(log, describe(None, log), form))
    assert "Asked for approval of write_file" in text
    assert f"denied by ann at {TS}; not today" in text

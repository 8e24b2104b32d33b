"""Text of people, models and tools as safe HTML.

Markdown is rendered to HTML, and the HTML is sanitised on the server, as the last step. Pictures become links, because
fetching a picture tells its owner who reads the page. Characters that change the direction of writing are shown by
their names.
"""

import re
import unicodedata
from collections.abc import Mapping, MutableMapping, Sequence
from functools import lru_cache
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape

MARKDOWN_MAX_CHARS = 12_000
"""Longer texts are shown without markdown: parsing them is slow, which could be used for an attack."""
SHOWN_MAX_CHARS = 30_000
"""Of one text in a page; the whole text has a URL of its own."""
CACHED = 1_000
"""Rendered texts kept in memory, because a conversation is shown many times."""
CACHED_MAX_CHARS = 8_000

TAGS = frozenset(
    (
        *("a", "blockquote", "br", "code", "del", "em", "hr", "li", "ol", "p", "pre", "s", "strong", "ul"),
        *("h1", "h2", "h3", "h4", "h5", "h6", "table", "tbody", "td", "th", "thead", "tr"),
    )
)
ATTRIBUTES: Mapping[str, frozenset[str]] = {
    "a": frozenset({"href", "title"}),
    "ol": frozenset({"start"}),
    "td": frozenset({"align"}),
    "th": frozenset({"align"}),
}
SCHEMES = frozenset({"http", "https", "mailto"})

_TURNING = re.compile("[\u202a-\u202e\u2066-\u2069\u061c]")
_UNSEEN = re.compile(
    "[\u00ad\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028\u2029\u2060-\u206f\u3164\ufeff\uffa0]"
)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def render(text: str) -> Markup:
    """Markdown as safe HTML."""
    return _render_kept(text) if len(text) <= CACHED_MAX_CHARS else _render(text)


def _render(text: str) -> Markup:
    shown = honest(text)
    if len(shown) > MARKDOWN_MAX_CHARS:
        return Markup('<p class="plain">{}</p>').format(shown[:SHOWN_MAX_CHARS])
    return Markup(_sanitise(_parser().render(shown)))  # noqa: S704 - sanitised on this line


_render_kept = lru_cache(maxsize=CACHED)(_render)


def _sanitise(html: str) -> str:
    return nh3.clean(
        html,
        tags=set(TAGS),
        attributes={tag: set(names) for tag, names in ATTRIBUTES.items()},
        url_schemes=set(SCHEMES),
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}},
    )


def honest(text: str) -> str:
    """With control characters made visible, and lone surrogates replaced, which cannot be encoded."""
    if text.isascii() and not _CONTROL.search(text):
        return text
    clean = text.encode("utf-8", "replace").decode()
    return _TURNING.sub(_named, _CONTROL.sub("\ufffd", clean))


def _named(found: re.Match[str]) -> str:
    return f"[U+{ord(found[0]):04X}]"


def name(text: str | None, limit: int = 200) -> str:
    """A title, a sender or a channel on one line, cut to a limit; "" if it has no visible character."""
    line = _UNSEEN.sub("", honest((text or "")[: limit * 4]))
    line = " ".join(line.split())
    if not any(unicodedata.category(char)[0] in "LNPS" for char in line):
        return ""
    return line if len(line) <= limit else line[: limit - 1] + "…"


def plain(text: str, limit: int = SHOWN_MAX_CHARS) -> Markup:
    """Tool output and similar texts: no markdown, cut if they are long."""
    return escape(honest(text[: limit + 1])[:limit])


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    parser.add_render_rule("image", _picture_as_link)
    return parser


def _picture_as_link(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    token = tokens[index]
    address = escape(str(token.attrGet("src") or ""))
    alt = renderer.renderInlineAsText(token.children, options, env) if token.children else ""
    return f'<a href="{address}">[{escape(alt) or address}]</a>'

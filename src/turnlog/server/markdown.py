"""Text of people, models and tools as HTML that can do no harm.

Markdown is turned into HTML, and what comes out is sanitised: last, here, on the server, with nothing done to it
afterwards. Pictures become links, for a picture that is fetched tells its owner who reads what. Characters that turn
the direction of writing around are shown by their names instead of being obeyed.
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
"""Longer texts are dumps, and parsing gets slow in ways that somebody could use: they are shown as they are."""
SHOWN_MAX_CHARS = 30_000
"""Of one text in a page; the whole of it has an address of its own."""
CACHED = 1_000
"""Rendered texts kept; a conversation is looked at many times."""
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
    """Markdown as harmless HTML."""
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
    """Control characters shown, not obeyed; lone surrogates cannot be sent."""
    if text.isascii() and not _CONTROL.search(text):
        return text
    clean = text.encode("utf-8", "replace").decode()
    return _TURNING.sub(_named, _CONTROL.sub("\ufffd", clean))


def _named(found: re.Match[str]) -> str:
    return f"[U+{ord(found[0]):04X}]"


def name(text: str | None, limit: int = 200) -> str:
    """A title, a sender, a channel: one line, in bounds, of characters that can be seen; "" if there are none."""
    line = _UNSEEN.sub("", honest((text or "")[: limit * 4]))
    line = " ".join(line.split())
    if not any(unicodedata.category(char)[0] in "LNPS" for char in line):
        return ""
    return line if len(line) <= limit else line[: limit - 1] + "…"


def plain(text: str, limit: int = SHOWN_MAX_CHARS) -> Markup:
    """Tool output and the like: no markdown, cut where it gets long."""
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

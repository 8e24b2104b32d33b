"""Text of people, models and tools as safe HTML.

Markdown is rendered to HTML, and the HTML is sanitised on the server, as the last step. Pictures become links, because
fetching a picture tells its owner who reads the page. Characters that change the direction of writing are shown by
their names. Formulas stay text.

A text is rendered block by block (a paragraph, a list, a table, a piece of code), one element each. A block is final
once another one follows it, so a text that is still being written (`GrowingText`) renders only its last block again,
and ends with the same HTML as `render` gives for the whole text.
"""

import copy
import re
import unicodedata
from collections.abc import Mapping, MutableMapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markupsafe import Markup, escape
from msgspec import Struct

from .highlighting import coloured

MARKDOWN_MAX_CHARS = 12_000
"""Longer blocks are shown without markdown: parsing them is slow, which could be used for an attack."""
SHOWN_MAX_CHARS = 60_000
"""Of one text in a page; the whole text has a URL of its own."""
CACHED = 1_000
"""Rendered texts kept in memory, because a conversation is shown many times."""
CACHED_MAX_CHARS = 8_000
FORMULA_MAX_CHARS = 1_000

TAGS = frozenset(
    (
        *("a", "blockquote", "br", "code", "del", "em", "hr", "li", "ol", "p", "pre", "s", "strong", "ul"),
        *("h1", "h2", "h3", "h4", "h5", "h6", "table", "tbody", "td", "th", "thead", "tr", "div", "span"),
    )
)
ATTRIBUTES: Mapping[str, frozenset[str]] = {
    "a": frozenset({"href", "title"}),
    "div": frozenset({"tabindex"}),
    "ol": frozenset({"start"}),
    "pre": frozenset({"tabindex"}),
    "td": frozenset({"align"}),
    "th": frozenset({"align"}),
}
CLASSES: Mapping[str, frozenset[str]] = {
    "div": frozenset({"code", "code-head", "table-scroll"}),
    "p": frozenset({"plain"}),
    "span": frozenset("ckmsfbido"),
}
"""The page's own classes; none of them comes from a text."""
_CODE_HEAD = '<div class="code-head">'
COPY = '<button type="button" class="code-copy" data-copy-code></button>'
"""Put into each head of code after sanitising; the page's script gives it its label."""
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
    growing = GrowingText()
    return Markup("\n").join(growing.blocks(text))


_render_kept = lru_cache(maxsize=CACHED)(_render)


class GrowingText:
    """A text that is added to: `blocks` gives the HTML of its blocks so far, and parses only what is not final."""

    def __init__(self) -> None:
        self._final: list[Markup] = []
        self._from = 0
        """Where the first block begins that is not final."""
        self._env: dict[str, Any] = {}
        """The addresses that links in later blocks may refer to."""

    def blocks(self, text: str) -> list[Markup]:
        """`text`: all of it, which begins with what was given before."""
        shown = honest(text[: SHOWN_MAX_CHARS + 1])[:SHOWN_MAX_CHARS]
        # The last line may go on, and then belong to the block before: it makes nothing final.
        lines = shown.rfind("\n") + 1
        while (found := _next_blocks(shown[self._from : lines], self._env)).final_chars:
            self._final += found.blocks
            self._from += found.final_chars
        rest = _rest(shown[self._from :], copy.deepcopy(self._env))
        return [*self._final, *rest]


def _rest(text: str, env: dict[str, Any]) -> list[Markup]:
    blocks: list[Markup] = []
    while True:
        found = _next_blocks(text, env)
        blocks += found.blocks
        if not found.final_chars:
            return blocks
        text = text[found.final_chars :]


class _Blocks(Struct, frozen=True):
    blocks: list[Markup]
    final_chars: int
    """What these blocks take, if more follows and nothing can change them; 0: they are the rest."""


def _next_blocks(rest: str, env: dict[str, Any]) -> _Blocks:
    window = rest if len(rest) <= MARKDOWN_MAX_CHARS else rest[: rest.rfind("\n", 0, MARKDOWN_MAX_CHARS) + 1]
    if not window:
        return _long_block(rest, None)
    tokens = _parser().parse(window, env)
    tops = [index for index, token in enumerate(tokens) if token.level == 0 and token.nesting >= 0]
    if len(tops) > 1:
        place = tokens[tops[-1]].map
        last = place[0] if place else 0
        blocks = [_html(tokens[start:end], env) for start, end in pairwise(tops)]
        return _Blocks(blocks, sum(len(line) + 1 for line in window.split("\n", last)[:last]))
    if len(window) < len(rest):
        return _long_block(rest, tokens[0] if tokens else None)
    return _Blocks([_html(tokens, env)] if tops else [], 0)


def _long_block(rest: str, first: Token | None) -> _Blocks:
    """A block that is too long to be parsed: code stays code, everything else is shown as it was written."""
    if first is not None and first.type == "fence":
        closing = re.compile(rf"^ {{0,3}}{re.escape(first.markup)}[`~]*[ \t]*$", re.MULTILINE)
        found = closing.search(rest, rest.find("\n"))
        body = rest[rest.find("\n") + 1 : found.start() if found else len(rest)]
        end = found.end() + 1 if found else len(rest)
        return _Blocks([_finished(_code(body, first.info))], end if end < len(rest) else 0)
    gap = re.compile(r"\n[ \t]*\n").search(rest, MARKDOWN_MAX_CHARS)
    end = gap.end() if gap else len(rest)
    html = Markup('<p class="plain">{}</p>').format(rest[:end].rstrip("\n"))
    return _Blocks([html], end if end < len(rest) else 0)


def _html(tokens: Sequence[Token], env: MutableMapping[str, Any]) -> Markup:
    parser = _parser()
    return _finished(parser.renderer.render(tokens, parser.options, env))


def _finished(html: str) -> Markup:
    return Markup(_sanitise(html.strip()).replace(_CODE_HEAD, _CODE_HEAD + COPY))  # noqa: S704 - sanitised on this line


def _sanitise(html: str) -> str:
    return nh3.clean(
        html,
        tags=set(TAGS),
        attributes={tag: set(names) for tag, names in ATTRIBUTES.items()},
        allowed_classes={tag: set(names) for tag, names in CLASSES.items()},
        url_schemes=set(SCHEMES),
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}},
    )


def honest(text: str) -> str:
    """With control characters made visible, and lone surrogates replaced, which cannot be encoded."""
    if text.isascii() and not _CONTROL.search(text):
        return text
    clean = text.encode("utf-8", "replace").decode()
    return _TURNING.sub(lambda found: f"[U+{ord(found[0]):04X}]", _CONTROL.sub("\ufffd", clean))


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
    parser.inline.ruler.before("escape", "formula", _take_formula)
    parser.add_render_rule("image", _picture_as_link)
    parser.add_render_rule("fence", _render_code)
    parser.add_render_rule("code_block", _render_code)
    parser.add_render_rule("table_open", lambda *_: '<div class="table-scroll" tabindex="0"><table>\n')
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return parser


def _render_code(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    return _code(tokens[index].content, tokens[index].info)


def _code(code: str, info: str) -> str:
    language = info.split(maxsplit=1)[0] if info.strip() else ""
    return (
        f'<div class="code">{_CODE_HEAD}<span>{escape(language[:40])}</span></div>'
        f'<pre tabindex="0"><code>{coloured(code, language)}</code></pre></div>\n'
    )


def _picture_as_link(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    token = tokens[index]
    address = escape(str(token.attrGet("src") or ""))
    alt = renderer.renderInlineAsText(token.children, options, env) if token.children else ""
    return f'<a href="{address}">[{escape(alt) or address}]</a>'


_FORMULA = re.compile(
    r"\$\$(?:[^$\\]|\\.)+\$\$"
    r"|\$(?!\s)(?:[^$\\\n]|\\.)+(?<!\s)\$(?!\d)"
    r"|\\\((?:[^\\]|\\(?!\)).)+?\\\)"
    r"|\\\[(?:[^\\]|\\(?!\]).)+?\\\]",
    re.DOTALL,
)
r"""`$$…$$`, `\(…\)`, `\[…\]`, or `$…$` without a blank at its inner edges and without a digit after it, so that prices
are not formulas. It ends in the paragraph in which it begins.
"""


def _take_formula(state: StateInline, silent: bool) -> bool:
    """Keeps a formula as it was written: markdown would drop its backslashes and read its underscores."""
    if state.src[state.pos] not in "$\\":
        return False
    found = _FORMULA.match(state.src, state.pos, min(state.posMax, state.pos + FORMULA_MAX_CHARS))
    if found is None:
        return False
    if not silent:
        token = state.push("text", "", 0)
        token.content = found[0]
    state.pos = found.end()
    return True

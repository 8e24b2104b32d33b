"""The conversation as one self-contained HTML page: it has no script and loads nothing.

Text is rendered as Markdown without raw HTML, and the finished body is sanitised as the last step, because anything
added after the sanitiser would not be sanitised.
"""

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

from ...core.session import Session
from ...errors import MissingExtra
from .markdown import title_of
from .timeline import ExportedItem, TimelineWriter, printable

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_TAGS = {
    *("h1", "h2", "h3", "h4", "h5", "h6", "p", "br", "hr", "em", "strong", "s", "del", "code", "pre", "a", "img"),
    *("blockquote", "ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td"),
    *("section", "header", "details", "summary", "time"),
}
_ATTRIBUTES = {
    "a": {"href", "title"},
    "img": {"src", "alt"},
    "section": {"class", "id"},
    "details": {"class"},
    "time": {"datetime"},
    "ol": {"start"},
    "th": {"align"},
    "td": {"align"},
}
_PICTURES = tuple(f"data:image/{form};base64," for form in ("png", "jpeg", "gif", "webp"))
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root { color-scheme: light dark; font: 16px/1.55 system-ui, sans-serif; }
body { max-width: 52rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
section { border-left: .25rem solid #8885; padding: .1rem 1rem; margin: 1rem 0; }
section.user { border-color: #2b7de9; } section.assistant { border-color: #2e9e5b; }
section.compaction { border-color: #c77700; background: #c7770018; } section.failed { border-color: #c33; }
section h2 { font-size: .95rem; margin: .4rem 0; } time { font-weight: normal; opacity: .7; }
pre { overflow-x: auto; padding: .6rem; background: #8882; border-radius: .3rem; white-space: pre-wrap; }
img { max-width: 100%; } table { border-collapse: collapse; } td, th { border: 1px solid #8886; padding: .2rem .5rem; }
"""


class WebWriter(TimelineWriter):
    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._render = _renderer()

    def begin(self) -> Iterator[str]:
        session = self.session
        title = escape(title_of(session))
        yield (
            f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
            f'<meta name="referrer" content="no-referrer">\n'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{_STYLE}</style>\n'
            f"</head>\n<body>\n<main>\n"
        )
        about = f"{session.id} · {session.key} · {session.message_count} messages"
        yield _sanitised(f"<header><h1>{title}</h1><p>{escape(printable(about))}</p></header>")

    def item(self, item: ExportedItem) -> str:
        return _sanitised(_section(item, self._render)) + "\n"

    def end(self) -> Iterator[str]:
        yield "</main>\n</body>\n</html>\n"


def _renderer() -> "MarkdownIt":
    try:
        from markdown_it import MarkdownIt
    except ImportError as error:
        raise MissingExtra(f"HTML needs packages that are not installed ({error})", extra="html") from error
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def _section(item: ExportedItem, render: "MarkdownIt") -> str:
    head = f'{escape(item.who)} <time datetime="{escape(item.ts)}">{escape(item.ts)}</time>'
    match item.kind:
        case "user" | "assistant" | "compaction":
            body = f"<h2>{head}</h2>{render.render(item.text)}"
        case "image":
            body = f'<h2>{head}</h2><p><img src="{escape(item.source)}" alt="image"></p>'
        case "failed" | "approval":
            body = f"<p><em>{head}</em> {escape(item.text)}</p>"
        case _:
            body = f"<details><summary>{head}</summary><pre>{escape(item.text)}</pre></details>"
    return f'<section class="{item.kind}" id="entry-{item.seq}">{body}</section>'


def _sanitised(body: str) -> str:
    try:
        import nh3
    except ImportError as error:
        raise MissingExtra(f"HTML needs packages that are not installed ({error})", extra="html") from error
    return nh3.clean(
        body,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        attribute_filter=_allowed,
        url_schemes={"http", "https", "mailto", "data"},
        link_rel="noopener noreferrer nofollow",
    )


def _allowed(element: str, attribute: str, value: str) -> Any:
    """Allows only embedded pictures and links to web pages, so that opening the page sends nothing."""
    if (element, attribute) == ("img", "src"):
        return value if value.startswith(_PICTURES) else None
    if (element, attribute) == ("a", "href"):
        return value if value.startswith(("http://", "https://", "mailto:", "#")) else None
    return value

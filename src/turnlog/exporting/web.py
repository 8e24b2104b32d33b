"""The conversation as one HTML page that needs nothing else: no script, no address it would load anything from.

Text is rendered as Markdown without raw HTML, and the finished body is sanitised as the very last step. What is made
after a sanitiser has not been sanitised.
"""

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ..core.entries import Entry
from ..core.session import Session
from ..errors import UsageError
from .markdown import title_of
from .timeline import Item, items, printable

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_TEXT_TAGS = {
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "p",
    "br",
    "hr",
    "em",
    "strong",
    "s",
    "del",
    "code",
    "pre",
    "a",
    "img",
}
_LIST_TAGS = {"blockquote", "ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td"}
_PAGE_TAGS = {"section", "header", "details", "summary", "time"}
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


def write(entries: Sequence[Entry], session: Session) -> Iterator[str]:
    render = _renderer()
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
    for item in items(entries):
        yield _sanitised(_section(item, render)) + "\n"
    yield "</main>\n</body>\n</html>\n"


def _renderer() -> "MarkdownIt":
    try:
        from markdown_it import MarkdownIt
    except ImportError as error:
        raise UsageError("HTML needs the extra `html`", hint="Install turnlog[html].") from error
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def _section(item: Item, render: "MarkdownIt") -> str:
    head = f'{escape(item.who)} <time datetime="{escape(item.ts)}">{escape(item.ts)}</time>'
    match item.kind:
        case "user" | "assistant":
            body = f"<h2>{head}</h2>{render.render(item.text)}"
        case "image":
            body = f'<h2>{head}</h2><p><img src="{escape(item.source)}" alt="image"></p>'
        case "compaction":
            body = f"<h2>{head}</h2>{render.render(item.text)}"
        case "failed":
            body = f"<p><em>{head}</em> {escape(item.text)}</p>"
        case _:
            body = f"<details><summary>{head}</summary><pre>{escape(item.text)}</pre></details>"
    return f'<section class="{item.kind}" id="entry-{item.seq}">{body}</section>'


def _sanitised(body: str) -> str:
    try:
        import nh3
    except ImportError as error:
        raise UsageError("HTML needs the extra `html`", hint="Install turnlog[html].") from error
    return nh3.clean(
        body,
        tags=_TEXT_TAGS | _LIST_TAGS | _PAGE_TAGS,
        attributes=_ATTRIBUTES,
        attribute_filter=_allowed,
        url_schemes={"http", "https", "mailto", "data"},
        link_rel="noopener noreferrer nofollow",
    )


def _allowed(element: str, attribute: str, value: str) -> Any:
    """Only pictures that are in the page itself, and links that lead to web pages: opening it tells nobody."""
    if (element, attribute) == ("img", "src"):
        return value if value.startswith(_PICTURES) else None
    if (element, attribute) == ("a", "href"):
        return value if value.startswith(("http://", "https://", "mailto:", "#")) else None
    return value

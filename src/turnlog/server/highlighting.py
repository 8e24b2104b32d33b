"""Source code as HTML with a few classes, for the languages that people show each other.

Pygments reads the code. Its two hundred kinds of tokens become the nine that the page has colours for; everything else
is plain text. Other languages, and long code, are not coloured: a lexer may be slow on text that was made to be slow.
"""

from collections.abc import Mapping
from functools import lru_cache

from markupsafe import Markup, escape
from pygments import token as tokens
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType]

COLOURED_MAX_CHARS = 20_000
LANGUAGES: Mapping[str, str] = {
    name: lexer
    for lexer, names in {
        "python": "python py python3",
        "pycon": "pycon",
        "javascript": "javascript js jsx mjs",
        "typescript": "typescript ts tsx",
        "json": "json jsonc json5",
        "bash": "bash sh shell zsh",
        "console": "console shell-session",
        "html": "html htm",
        "xml": "xml svg",
        "css": "css scss less",
        "sql": "sql sqlite postgresql postgres mysql",
        "yaml": "yaml yml",
        "toml": "toml",
        "ini": "ini cfg conf",
        "diff": "diff patch udiff",
        "c": "c h",
        "cpp": "cpp c++ cc hpp",
        "csharp": "csharp c# cs",
        "java": "java",
        "kotlin": "kotlin kt",
        "swift": "swift",
        "go": "go golang",
        "rust": "rust rs",
        "ruby": "ruby rb",
        "php": "php",
        "perl": "perl pl",
        "lua": "lua",
        "r": "r",
        "haskell": "haskell hs",
        "dockerfile": "dockerfile docker",
        "make": "make makefile",
        "nginx": "nginx",
        "http": "http",
        "powershell": "powershell ps1",
    }.items()
    for name in names.split()
}
CLASSES: Mapping[tokens._TokenType, str] = {
    tokens.Comment: "c",
    tokens.Keyword: "k",
    tokens.Operator.Word: "k",
    tokens.String: "s",
    tokens.Literal: "m",
    tokens.Number: "m",
    tokens.Name.Function: "f",
    tokens.Name.Class: "f",
    tokens.Name.Decorator: "b",
    tokens.Name.Builtin: "b",
    tokens.Name.Tag: "k",
    tokens.Name.Attribute: "b",
    tokens.Generic.Inserted: "i",
    tokens.Generic.Deleted: "d",
    tokens.Generic.Heading: "f",
    tokens.Generic.Subheading: "c",
    tokens.Generic.Prompt: "c",
    tokens.Generic.Output: "o",
}


def coloured(code: str, language: str) -> Markup:
    """The code as it is, escaped, with spans where a token has a colour."""
    name = LANGUAGES.get(language.lower())
    if name is None or len(code) > COLOURED_MAX_CHARS:
        return escape(code)
    pieces: list[str] = []
    kind, text = "", ""
    for token, value in _lexer(name).get_tokens(code):
        found = _class_of(token)
        if found != kind:
            pieces.append(_span(kind, text))
            kind, text = found, ""
        text += value
    pieces.append(_span(kind, text))
    return Markup("").join(Markup(piece) for piece in pieces)  # noqa: S704 - every piece is escaped in _span


def _span(kind: str, text: str) -> str:
    if not text:
        return ""
    return f'<span class="{kind}">{escape(text)}</span>' if kind else str(escape(text))


@lru_cache(maxsize=512)
def _class_of(token: tokens._TokenType) -> str:
    return next((CLASSES[kind] for kind in reversed(token.split()) if kind in CLASSES), "")


@lru_cache(maxsize=64)
def _lexer(name: str) -> Lexer:
    return get_lexer_by_name(name, stripnl=False, ensurenl=False)

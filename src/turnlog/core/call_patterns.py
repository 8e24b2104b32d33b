"""Patterns of tool calls, for the lists of calls that are allowed or denied without asking a person.

    write_file                      every call of this tool
    github_*                        every call of these tools
    write_file(path="docs/**")      calls whose argument matches; others may have any value

In a value `*` stands for anything but a slash, `**` for anything, `?` for one character, and a backslash takes away the
meaning of the next character. A value with ".." is never allowed by a pattern with wildcards: `docs/**` must not reach
`docs/../secret`. A deny list reads broadly: other spellings of a path, other cases and other forms of the same letters
count too, since some file systems take them for the same.
"""

import json
import posixpath
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from ..errors import UsageError

PATTERN_MAX_CHARS = 500
"""A longer one cannot be read by the person who would allow it."""
_TOOL = re.compile(r"[A-Za-z0-9_*?-]{1,64}")
_ARGUMENT = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*("(?:[^"\\]|\\.)*")\s*(,|$)')


class CallPattern(Struct, frozen=True):
    tool: re.Pattern[str]
    arguments: tuple["ValuePattern", ...]

    def matches(self, tool: str, given: Mapping[str, Any], *, allowing: bool) -> bool:
        if not self.tool.fullmatch(tool):
            return False
        fits = ValuePattern.allows if allowing else ValuePattern.denies
        return all(one.name in given and fits(one, _plain(given[one.name])) for one in self.arguments)


class ValuePattern(Struct, frozen=True):
    """The value that an argument must have."""

    name: str
    exact: re.Pattern[str]
    broad: re.Pattern[str]
    is_wild: bool

    def allows(self, text: str) -> bool:
        return bool(self.exact.fullmatch(text)) and not (self.is_wild and ".." in re.split(r"[/\\]", text))

    def denies(self, text: str) -> bool:
        spellings = (text, posixpath.normpath(text), posixpath.normpath(text.replace("\\", "/")))
        return any(self.broad.fullmatch(_folded(one)) for one in spellings)


def _folded(text: str) -> str:
    """One spelling of what a file system may take for the same name."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


@lru_cache(maxsize=1024)
def parse(text: str) -> CallPattern:
    """UsageError if it is not a pattern."""
    name, bracket, rest = text.strip().partition("(")
    if len(text) > PATTERN_MAX_CHARS or not _TOOL.fullmatch(name) or (bracket and not rest.endswith(")")):
        raise _refused(text)
    arguments: list[ValuePattern] = []
    inner, at = rest[:-1].strip(), 0
    while at < len(inner):
        found = _ARGUMENT.match(inner, at)
        if found is None:
            raise _refused(text)
        value = _unquoted(found[2])
        exact, broad = (re.compile(_regex(one), re.DOTALL) for one in (value, _folded(value)))
        arguments.append(ValuePattern(found[1], exact, broad, not _WILD.isdisjoint(_tokens(value))))
        at = found.end()
    if bracket and not arguments:
        raise _refused(text)
    return CallPattern(re.compile(_regex(name)), tuple(arguments))


def _unquoted(quoted: str) -> str:
    """The text between the quotes. Only a quote is escaped by the quotes themselves; other backslashes stay."""
    return quoted[1:-1].replace('\\"', '"')


def _refused(text: str) -> UsageError:
    return UsageError(
        f"{text[:80]!r} is not a pattern of tool calls", hint='Write a tool, or for example write_file(path="docs/**").'
    )


_WILD = frozenset(("*", "**", "?"))


def _tokens(glob: str) -> list[str]:
    return re.findall(r"\\.|\*\*|\*|\?|[^*?\\]+|\\", glob, re.DOTALL)


def _regex(glob: str) -> str:
    out: list[str] = []
    for token in _tokens(glob):
        match token:
            case "**":
                out.append(".*")
            case "*":
                out.append("[^/]*")
            case "?":
                out.append("[^/]")
            case _:
                out.append(re.escape(token[1:] if len(token) == 2 and token[0] == "\\" else token))
    return "".join(out)


def any_matches(patterns: Sequence[str], tool: str, given: Mapping[str, Any], *, allowing: bool) -> bool:
    """Whether one of them matches. `allowing`: the narrow reading, for a list that lets calls run without approval."""
    return any(parse(text).matches(tool, given, allowing=allowing) for text in patterns)


def offered(tool: str, given: Mapping[str, Any]) -> str:
    """The pattern that a person is offered to allow for the rest of a session; empty if none can be read at a glance.

    A file in a directory offers the files of that directory; anything else offers this call only.
    """
    path = given.get("path")
    if isinstance(path, str) and path and ("content" in given or "old" in given):
        directory = posixpath.dirname(path)
        value = f"{_escaped(directory)}/*" if directory and ".." not in directory.split("/") else _escaped(path)
        text = f"{tool}(path={_quoted(value)})"
    else:
        parts = [f"{name}={_quoted(_escaped(_plain(value)))}" for name, value in sorted(given.items())]
        text = f"{tool}({', '.join(parts)})" if parts else tool
    try:
        parse(text)
    except UsageError:
        return ""
    return text


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def _escaped(value: str) -> str:
    return re.sub(r"([\\*?])", r"\\\1", value)


def _quoted(value: str) -> str:
    return '"' + value.replace('"', '\\"') + '"'

"""Which tool the offline model is asked to call, in the plainest words: `read notes.txt`, `call NAME {json}`.

Calls nothing that the prompt does not offer, and never on its own account.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct

from ..core.prompt import Prompt, Tool

_PLEASE = r"^\s*(?:please\s+|请\s*)?"
_END = r"\s*(?:please)?\s*[.!。！]?\s*$"
_PATH = r"[`\"'“]?(?P<path>[^\s`\"'“”]+?)[`\"'”]?"

_CALL = re.compile(r"^\s*call\s+(?P<tool>[\w.-]+)\s*(?P<input>\S.*)?$", re.IGNORECASE | re.DOTALL)
_ASKS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("search_history", re.compile(
        rf"{_PLEASE}(?:search|find in)\s+(?:the\s+|your\s+)?(?:history|session)\s+(?:for\s+)?(?P<query>.+?){_END}"
        rf"|{_PLEASE}(?:搜索|查找)(?:历史|记录|历史记录)[:：]?\s*(?P<query_zh>.+?){_END}", re.IGNORECASE)),
    ("write_file", re.compile(
        rf"{_PLEASE}write\s+(?P<content>.+?)\s+(?:in)?to\s+(?:the\s+)?(?:file\s+)?{_PATH}{_END}"
        rf"|{_PLEASE}把\s*(?P<content_zh>.+?)\s*写[入到进]\s*(?:文件\s*)?{_PATH.replace('path', 'path_zh')}{_END}",
        re.IGNORECASE | re.DOTALL)),
    ("read_file", re.compile(
        rf"{_PLEASE}(?:(?:read|open|cat)\s+(?:me\s+)?(?:the\s+)?(?:file\s+)?|(?:读取?|查看|打开)\s*(?:文件\s*)?){_PATH}{_END}",
        re.IGNORECASE)),
    ("list_dir", re.compile(
        rf"{_PLEASE}(?:(?:list|ls)(?:\s+(?:all\s+)?(?:the\s+|my\s+)?(?:files|directory|folder))?|列出\s*(?:所有)?(?:文件|目录)?)"
        rf"(?:\s*(?:\s(?:in|of|under)|在|(?<=ls))\s+(?:the\s+)?{_PATH})?{_END}", re.IGNORECASE)),
)  # fmt: skip
"""In this order: what searches or writes may also contain a word that reads."""


class Wanted(Struct, frozen=True):
    tool: str
    arguments: Mapping[str, Any]
    """By what they mean; the tool's schema says what they are called."""
    broken: bool = False

    def fits(self, prompt: Prompt) -> bool:
        return not self.broken and prompt.may_call and any(tool.name == self.tool for tool in prompt.tools)

    def build(self, prompt: Prompt) -> tuple[str, dict[str, Any]]:
        tool = next(tool for tool in prompt.tools if tool.name == self.tool)
        return tool.name, {_field(tool, name): value for name, value in self.arguments.items()}


def find_call(text: str) -> Wanted | None:
    if found := _CALL.match(text):
        return _spelled_out(found["tool"], found["input"] or "{}")
    for tool, pattern in _ASKS:
        if found := pattern.match(text):
            return Wanted(tool, _arguments(tool, found))
    return None


def _spelled_out(tool: str, text: str) -> Wanted:
    try:
        arguments = json.loads(text)
    except ValueError:
        return Wanted(tool, {}, broken=True)
    return Wanted(tool, cast("dict[str, Any]", arguments)) if isinstance(arguments, dict) else Wanted(tool, {}, True)


def _arguments(tool: str, found: re.Match[str]) -> dict[str, Any]:
    named = {name.removesuffix("_zh"): value for name, value in found.groupdict().items() if value}
    return named or ({"path": "."} if tool == "list_dir" else {})


_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "path": ("path", "file", "file_path", "filename", "dir", "directory"),
    "content": ("content", "text", "contents"),
    "query": ("query", "words", "q", "text"),
}


def _field(tool: Tool, name: str) -> str:
    """What this tool calls it, so that a tool of the same name from elsewhere can be tried too."""
    known = cast("Mapping[str, Any]", tool.input_schema.get("properties") or {})
    return next((word for word in _SYNONYMS.get(name, ()) if word in known), name)

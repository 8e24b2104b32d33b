"""Answers of the offline model, from what its prompt shows: it calls a tool, quotes what was said, or repeats.

It calls a tool only when it is told to (`read notes.txt`, `call NAME {json}`) and the prompt offers that tool. If it
cannot find something in the prompt, it says so, so that a lost message shows.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from ...core.entries import blocks_of, text_of
from ...core.history import ASSISTANT_SUMMARY, PAIR_ACKNOWLEDGED, PAIR_SUMMARY, PINS_NOTE, SUMMARY_NOTE
from ...core.plain import sentences
from ...core.prompt import Prompt

RESULT_SHOWN_CHARS = 600
ASK_READ_CHARS = 2_000
"""A question is at the start; text pasted after it is not searched for one."""

_PHRASES: Mapping[str, tuple[str, str]] = {
    "who": (
        "I am Turnlog's offline model: no network, no understanding; I answer from what this conversation shows. Try: "
        "“my name is Ada”, then “what is my name?”; “read notes.txt”; “list files”; “search history for …”.",
        "我是 Turnlog 的离线模型：不联网，也不真正理解，只根据这段对话里看得到的内容回答。"
        "可以试试：“我叫小明”，再问“我叫什么名字？”；“读取 notes.txt”；“列出文件”；“搜索历史 …”。",
    ),
    "seen": ("{messages} messages ({yours} yours, {mine} mine)", " {messages} 条消息（你 {yours} 条，我 {mine} 条）"),
    "seen_one": ("only this message", "只有这条消息"),
    "found": ("In {source} I see: “{text}”", "我在{source}里看到：“{text}”"),
    "unknown": ("I cannot find that in what I see: {seen}.", "我看得到的内容里没有：{seen}。"),
    "echo": ("You said: “{text}” I see {seen}.", "你说：“{text}” 我看到{seen}。"),
    "calling": ("I call {tool}.", "我来调用 {tool}。"),
    "refused": ("I cannot call {tool} here, or not with that.", "这里不能这样调用 {tool}。"),
    "gave": ("The tool gave:\n{text}", "工具的结果：\n{text}"),
    "failed": ("The tool failed: {text}", "工具失败：{text}"),
    "image": ("I cannot see images; there is one in your message.", "我看不了图片；你的消息里有一张。"),
    "from_you": ("your message", "你的消息"),
    "from_summary": ("the summary of the earlier part", "前文的摘要"),
    "from_pins": ("a pinned message", "置顶的消息"),
    "from_tool": ("a tool's result", "工具的结果"),
    "from_me": ("an answer of mine", "我的回答"),
    "from_system": ("my instructions", "我的系统提示"),
}

_SUMMARY_NOTES = (SUMMARY_NOTE, PAIR_SUMMARY, ASSISTANT_SUMMARY)
_PATH = r"[`\"'“]?(?P<path>[^\s`\"'“”]+?)[`\"'”]?"
_ASKS = tuple(
    (tool, re.compile(rf"^\s*(?:please\s+|请\s*)?(?:{ask})\s*[.!。！]?\s*$", re.IGNORECASE | re.DOTALL))
    for tool, ask in (
        ("search_history", r"(?:search history for|搜索历史)\s*(?P<words>.+?)"),
        ("write_file", rf"write\s+(?P<content>.+?)\s+to\s+{_PATH}"),
        ("write_file", rf"把\s*(?P<content>.+?)\s*写[入到进]\s*{_PATH}"),
        ("read_file", rf"(?:read\s+(?:the\s+)?(?:file\s+)?|读取\s*){_PATH}"),
        ("list_dir", rf"(?:list(?: the)?(?: files)?|列出文件)(?:\s+in\s+{_PATH})?"),
    )
)
"""In this order: a request to search or write may also contain a word for reading."""
_CALL = re.compile(r"^\s*call\s+(?P<tool>[\w.-]+)\s*(?P<input>\S.*)?$", re.IGNORECASE | re.DOTALL)
_WHO = re.compile(r"\bwho are you\b", re.IGNORECASE)
_HAN = re.compile(r"[\u3400-\u9fff]")
_WORD = re.compile(r"[^\W\d_\u3400-\u9fff]{4,}|\w*\d\w*|[\u3400-\u9fff]")
_COMMON = frozenset(
    ("what", "when", "where", "which", "that", "this", "your", "with", "have", "does", *"我你的是什么吗哪")
)

Call = tuple[str, dict[str, Any]]


class Sight(Struct, frozen=True):
    ask: str
    """The text of the newest message besides tool results."""
    results: list[tuple[str, str]]
    """(what happened, its text) of each tool result in the newest message."""
    picture: bool
    said: list[str]
    """The user's earlier words, the oldest first."""
    answered: list[str]
    lead: dict[str, str]
    """Pins and summary."""
    system: str
    turns: list[tuple[str, list[dict[str, Any]]]]
    """(role, blocks) of each message."""

    def sources(self) -> list[tuple[str, str]]:
        """(where, text): the user's own words first, newest first; the model's words come late."""
        found = [("from_you", text) for text in reversed(self.said)]
        found += [("from_pins", self.lead.get("pins", "")), ("from_summary", self.lead.get("summary", ""))]
        found += [("from_tool", text) for _, blocks in reversed(self.turns) for _, text in _results(blocks)]
        return found + [("from_me", text) for text in reversed(self.answered)] + [("from_system", self.system)]


def answer(prompt: Prompt) -> tuple[str, Call | None]:
    """Its text, and the tool it calls."""
    sight = look(prompt)
    ask = sight.ask.strip()[:ASK_READ_CHARS]
    said, answered = [text for text in sight.said if text], [text for text in sight.answered if text]
    is_first = not (answered or any(sight.lead.values()))
    chinese = bool(_HAN.search(sight.ask or "".join(said[-1:])))

    def say(phrase: str, **fields: Any) -> str:
        return _PHRASES[phrase][chinese].format(**fields)

    parts = [say("who")] if is_first or _asks_who(ask) else []
    parts += [say(happened, text=text.strip()[:RESULT_SHOWN_CHARS] or "-") for happened, text in sight.results]
    parts += [say("image")] if sight.picture else []
    if not ask:
        return "\n\n".join(parts), None
    if wanted := _wanted_call(ask):
        tool, arguments = wanted
        if arguments is not None and prompt.may_call and any(offered.name == tool for offered in prompt.tools):
            return "\n\n".join((*parts, say("calling", tool=tool))), (tool, arguments)
        return "\n\n".join((*parts, say("refused", tool=tool))), None
    count = len(sight.turns)
    seen = say("seen" if count > 1 else "seen_one", messages=count, yours=len(said) + 1, mine=len(answered))
    if not is_question(ask):
        parts.append(say("echo", text=quote(ask), seen=seen))
    elif found := _nearest(ask, sight):
        parts.append(say("found", source=say(found[0]), text=quote(found[1])))
    else:
        parts.append(say("unknown", seen=seen))
    return "\n\n".join(parts), None


def _asks_who(ask: str) -> bool:
    return "你是谁" in ask or ("are you" in ask.casefold() and bool(_WHO.search(ask)))


def _wanted_call(text: str) -> tuple[str, dict[str, Any] | None] | None:
    """(tool, arguments); the arguments are None if the text after the tool's name is not a JSON object."""
    if found := _CALL.match(text):
        try:
            return found["tool"], msgspec.json.decode(found["input"] or "{}", type=dict[str, Any])
        except msgspec.DecodeError:
            return found["tool"], None
    for tool, pattern in _ASKS:
        if found := pattern.match(text):
            return tool, {name: value or "." for name, value in found.groupdict().items()}
    return None


def _nearest(ask: str, sight: Sight) -> tuple[str, str] | None:
    """(where, sentence): the sentence that shares most words with the question, at least a third of them."""
    words = set(_WORD.findall(ask.casefold())) - _COMMON
    best, found = max(1, len(words) / 3), None
    for where, text in sight.sources():
        for sentence in sentences(text):
            folded = sentence.casefold()
            hits = sum(word in folded for word in words)
            if hits >= best and not is_question(sentence):
                best, found = hits + 0.5, (where, sentence.removeprefix("- "))
    return found


def look(prompt: Prompt) -> Sight:
    lead = _lead_of(prompt.system)
    turns: list[tuple[str, list[dict[str, Any]]]] = []
    said: list[str] = []
    answered: list[str] = []
    for index, message in enumerate(prompt.messages):
        role, blocks = message["role"], blocks_of(message["content"])
        texts = [_text(blocks[0])] if len(blocks) == 1 else [_text(block) for block in blocks]
        if index < 2:  # in later messages these words are a quotation
            found = [_lead_of(text) if text.startswith((PINS_NOTE, *_SUMMARY_NOTES)) else {} for text in texts]
            lead.update(pair for part in found for pair in part.items())
            blocks = [block for block, part in zip(blocks, found, strict=True) if not part]
            texts = [text for text, part in zip(texts, found, strict=True) if not part]
        turns.append((role, blocks))
        if role == "assistant":
            answered += texts
        elif role == "user":
            said.append(texts[0] if len(texts) == 1 else "\n\n".join(filter(None, texts)))
    newest = turns[-1][1] if turns else []
    picture = any(block.get("type") == "image" for block in newest)
    ask = said.pop() if said else ""
    return Sight(ask, _results(newest), picture, said, answered, lead, prompt.system, turns)


def _lead_of(text: str) -> dict[str, str]:
    """Pins and summary, wherever `inject` puts them."""
    found: dict[str, str] = {}
    if (at := text.find(PINS_NOTE)) >= 0:
        found["pins"] = text[at + len(PINS_NOTE) :].partition(SUMMARY_NOTE)[0]
    for note in _SUMMARY_NOTES:
        if (at := text.find(note)) >= 0:
            found["summary"] = text[at + len(note) :]
    return found


def _results(blocks: list[dict[str, Any]]) -> list[tuple[str, str]]:
    found = [block for block in blocks if block.get("type") == "tool_result"]
    return [("failed" if block.get("is_error") else "gave", text_of(block.get("content"))) for block in found]


def _text(block: dict[str, Any]) -> str:
    if block.get("type") != "text":
        return ""
    text = str(block.get("text", ""))
    return "" if text == PAIR_ACKNOWLEDGED else text


def is_question(text: str) -> bool:
    return text.rstrip().endswith(("?", "？"))


def quote(text: str, limit: int = 160) -> str:
    """On one line and at most this long."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"

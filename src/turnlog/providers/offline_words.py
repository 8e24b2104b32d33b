"""What the offline model says, in English and in Chinese; it answers in the language it is asked in."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_HAN = re.compile(r"[\u3400-\u9fff]")

PHRASES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "who": (
            "I am Turnlog's offline model: no network, no understanding; I answer from what this conversation shows.",
            "我是 Turnlog 的离线模型：不联网，也不真正理解，只根据这段对话里看得到的内容回答。",
        ),
        "able": (
            "Try: “my name is Ada”, then “what is my name?”; “what did I say first?”; “how many messages do you see?”; "
            "“summarise”; “read notes.txt”; “list files”; “search history for …”.",
            "可以试试：“我叫小明”，再问“我叫什么名字？”；“我第一句说了什么？”；“你看到多少条消息？”；“总结一下”；"
            "“读取 notes.txt”；“列出文件”；“搜索历史 …”。",
        ),
        "known": (
            "Your {subject} is {value}. I read that in {source}.",
            "{subject}是{value}。我是在{source}里看到的。",
        ),
        "known_thing": (
            "The {subject} is {value}. I read that in {source}.",
            "{subject}是{value}。我是在{source}里看到的。",
        ),
        "unknown": ("I cannot find {subject} in what I see: {seen}.", "我看得到的内容里没有“{subject}”：{seen}。"),
        "first": ("The first thing of yours that I see: “{text}”", "我看到你说的第一句是：“{text}”"),
        "first_summed": (
            "What came first is under a summary now; the first thing of yours after it: “{text}”",
            "更早的内容已经在摘要里；摘要之后你的第一句是：“{text}”",
        ),
        "last": ("Before this you said: “{text}”", "在这之前你说的是：“{text}”"),
        "nothing_before": ("This is the first thing of yours that I see.", "这是我看到的你的第一句话。"),
        "seen": (
            "{messages} message{plural} ({yours} yours, {mine} mine){lead}",
            " {messages} 条消息（你 {yours} 条，我 {mine} 条）{lead}",
        ),
        "lead": (" and {lead}", "，以及{lead}"),
        "see": ("I see {seen}.", "我看到{seen}。"),
        "recap": ("So far, {seen}:\n{lines}", "到目前为止，{seen}：\n{lines}"),
        "found": ("In {source} I see: “{text}”", "我在{source}里看到：“{text}”"),
        "echo": ("You said: “{text}” I see {seen}.", "你说：“{text}” 我看到{seen}。"),
        "calling": ("I call {tool}.", "我来调用 {tool}。"),
        "no_tool": ("I would call {tool}, but it is not offered to me here.", "我本想调用 {tool}，但这里没有提供它。"),
        "bad_call": (
            "What follows {tool} is not a JSON object, so I did not call it.",
            "{tool} 后面不是 JSON 对象，所以没有调用。",
        ),
        "gave": ("{tool} gave:\n{text}", "{tool} 的结果：\n{text}"),
        "failed": ("{tool} failed: {text}", "{tool} 失败：{text}"),
        "image": ("I cannot see images; there is one in your message.", "我看不了图片；你的消息里有一张。"),
        "from_you": ("your message", "你的消息"),
        "from_summary": ("the summary of the earlier part", "前文的摘要"),
        "from_pins": ("a pinned message", "置顶的消息"),
        "from_tool": ("a tool's result", "工具的结果"),
        "from_me": ("an answer of mine", "我的回答"),
        "from_system": ("my instructions", "我的系统提示"),
        "name": ("name", "你的名字"),
    }
)


def is_chinese(text: str) -> bool:
    return _HAN.search(text) is not None


def say(phrase: str, chinese: bool, **fields: Any) -> str:
    return PHRASES[phrase][chinese].format(**fields)


def quote(text: str, limit: int = 160) -> str:
    """On one line and in bounds."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"

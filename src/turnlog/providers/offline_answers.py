"""What the offline model answers: rules tried in order, each looking only at what the prompt shows.

A rule gives an answer or passes; the last one repeats what was said. Nothing is guessed: what cannot be found in the
prompt is said to be missing, so that a lost message shows.
"""

import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from ..core.prompt import Prompt
from .offline_calls import find_call
from .offline_sight import Sight, look, sources
from .offline_words import is_chinese, quote, say

RESULT_SHOWN_CHARS = 600
RECAP_LINES = 8
QUOTES = 3
ASK_READ_CHARS = 2_000
"""A question is at the start; what is pasted after it is not searched for one."""

Rule = Callable[["_Asked"], str]


class Answer(Struct, frozen=True):
    text: str
    call: tuple[str, dict[str, Any]] | None = None


class _Asked(Struct, frozen=True):
    text: str
    sight: Sight
    system: str
    chinese: bool

    def say(self, phrase: str, **fields: Any) -> str:
        return say(phrase, self.chinese, **fields)


def answer(prompt: Prompt) -> Answer:
    sight = look(prompt)
    asked = _Asked(sight.ask.strip()[:ASK_READ_CHARS], sight, prompt.system, _language(sight))
    parts = [asked.say("who")] if sight.is_first else []
    parts += [_result_gist(asked, index) for index in range(len(sight.results))]
    if not asked.text and parts and not sight.picture:
        return Answer("\n\n".join(parts))
    wanted = find_call(asked.text)
    if wanted and wanted.fits(prompt):
        return Answer("\n\n".join((*parts, asked.say("calling", tool=wanted.tool))), wanted.build(prompt))
    if wanted:
        parts.append(asked.say("bad_call" if wanted.broken else "no_tool", tool=wanted.tool))
    else:
        parts.append(next(text for rule in _RULES if (text := rule(asked))))
    return Answer("\n\n".join(parts))


def _language(sight: Sight) -> bool:
    """A tool's result has no language of its own: then that of the words it followed counts."""
    return is_chinese(sight.ask or (sight.said[-1] if sight.said else ""))


def _result_gist(asked: _Asked, index: int) -> str:
    result = asked.sight.results[index]
    text = result.text.strip()
    shown = text if len(text) <= RESULT_SHOWN_CHARS else text[:RESULT_SHOWN_CHARS] + "…"
    return asked.say("failed" if result.failed else "gave", tool=result.tool, text=shown or "-")


def _seen(asked: _Asked) -> str:
    sight = asked.sight
    parts = [asked.say("from_summary")] if sight.summary else []
    parts += [asked.say("from_pins")] if sight.pins else []
    lead = asked.say("lead", lead=", ".join(parts)) if parts else ""
    plural = "" if sight.messages == 1 else "s"
    yours, mine = len(sight.said) + 1, len(sight.answered)
    return asked.say("seen", messages=sight.messages, plural=plural, yours=yours, mine=mine, lead=lead)


def _show_picture(asked: _Asked) -> str:
    return asked.say("image") if asked.sight.picture else ""


_IDENTITY = re.compile(r"\b(?:who|what) are you\b|\b(?:which|what) model\b|^help\b|你是谁|你是什么|帮助", re.IGNORECASE)


def _identify(asked: _Asked) -> str:
    if not _IDENTITY.search(asked.text):
        return ""
    return asked.say("able") if asked.sight.is_first else f"{asked.say('who')} {asked.say('able')}"


_COUNT = re.compile(r"how many messages|(?:多少|几)\s*条", re.IGNORECASE)


def _count(asked: _Asked) -> str:
    return asked.say("see", seen=_seen(asked)) if _COUNT.search(asked.text) else ""


_ORDER = re.compile(
    r"what did i (?:say|tell you|ask|write)\b.{0,30}?\b(?P<which>first|last|before)\b"
    r"|\bmy (?:very )?(?P<place>first|last|previous) (?:message|question|request|words?)\b"
    r"|我.{0,6}?(?P<how>第一|最后|上一|刚才|之前).{0,6}?(?:说|消息|话|问)",
    re.IGNORECASE,
)


def _first_or_last(asked: _Asked) -> str:
    found = _ORDER.search(asked.text)
    if not found:
        return ""
    said = asked.sight.said
    if not said:
        return asked.say("nothing_before")
    if (found["which"] or found["place"] or found["how"]).lower() in ("first", "第一"):
        return asked.say("first_summed" if asked.sight.summary else "first", text=quote(said[0]))
    return asked.say("last", text=quote(said[-1]))


_RECAP = re.compile(r"^(?:please\s+)?(?:summari[sz]e|sum up|recap)\b|总结|概括|摘要", re.IGNORECASE)


def _recap(asked: _Asked) -> str:
    if not _RECAP.search(asked.text):
        return ""
    sight = asked.sight
    shown = sight.said if len(sight.said) <= RECAP_LINES else [sight.said[0], *sight.said[1 - RECAP_LINES :]]
    lines = [quote(line) for line in sight.summary.splitlines() if line.startswith("- ")][:RECAP_LINES]
    lines += [f"- {quote(text, 80)}" for text in shown]
    return asked.say("recap", seen=_seen(asked), lines="\n".join(lines) or "-")


_FACT = re.compile(
    r"what(?:'s|’s| is| was| are)\s+(?P<whose>my|the|our)\s+(?P<subject>[^?!\n]{1,60}?)"
    r"(?:\s+(?:called|named))?\s*(?:[?!.\n]|$)"
    r"|(?:know|remember)\s+(?P<mine>my)\s+(?P<other>[\w -]{1,40}?)\s*(?:[?!.\n]|$)"
    r"|(?P<name>who am i\b|我叫什么|我的名字|我是谁)"
    r"|(?:我的)?(?P<thing>[^,。?!，？\s]{1,20}?)(?:是什么|是多少|叫什么|是哪)",
    re.IGNORECASE,
)
_VALUE = r"(?P<value>[^\s,;!?。！，；？][^\n]*?)(?=[,;!?。！，；？\n]|\.(?:\s|$)|\s+(?:and|but)\s|$)"
_NAMES = (
    re.compile(rf"\bmy name(?:'s| is| was|:)\s*{_VALUE}", re.IGNORECASE),
    re.compile(r"\b(?i:i am|i'm|call me)\s+(?P<value>[A-Z][\w'-]*(?: [A-Z][\w'-]*)*)"),
    re.compile(rf"我(?:叫|的名字[是叫为])\s*(?!什么){_VALUE}"),
)


def _fact_pattern(subject: str) -> re.Pattern[str]:
    # Chinese has no blanks between words, so there a word may begin anywhere.
    start = "" if is_chinese(subject) else r"(?<!\w)"
    verbs = r"\s+(?:is|was|are)\s+(?:(?:called|named)\s+)?|\s*(?:=|:|：|是|为|叫)\s*"
    return re.compile(rf"{start}{re.escape(subject)}(?:{verbs})(?!什么|多少|哪){_VALUE}", re.IGNORECASE)


def _recall_fact(asked: _Asked) -> str:
    found = _FACT.search(asked.text)
    if not found:
        return ""
    subject = (found["subject"] or found["other"] or found["thing"] or "name").strip()
    is_name = bool(found["name"]) or (subject.lower() == "name" and found["whose"] != "the")
    shown = asked.say("name") if is_name else subject
    patterns = _NAMES if is_name else (_fact_pattern(subject),)
    for where, text in sources(asked.sight, asked.system):
        for pattern in patterns:
            if matches := list(pattern.finditer(text)):
                phrase = "known" if is_name or found["whose"] == "my" or found["mine"] else "known_thing"
                value = quote(matches[-1]["value"].strip(" .`\"'"))
                return asked.say(phrase, subject=shown, value=value, source=asked.say(where))
    return _nearest(asked) or asked.say("unknown", subject=shown, seen=_seen(asked))


_ABOUT = re.compile(
    r"(?:remember|recall|know about|(?:say|said|tell you) about)\s+(?:the\s+)?(?P<topic>[^?!\n]{2,60})"
    r"|(?:记得|关于)(?P<about>[^?!？！\n]{1,20}?)(?:的|吗|么|说|[?!？！]|$)",
    re.IGNORECASE,
)


def _recall_topic(asked: _Asked) -> str:
    found = _ABOUT.search(asked.text)
    if not found:
        return ""
    topic = (found["topic"] or found["about"]).strip(" .。")
    quotes: list[str] = []
    for where, text in sources(asked.sight, asked.system):
        if (at := text.casefold().find(topic.casefold())) >= 0:
            quotes.append(asked.say("found", source=asked.say(where), text=quote(_around(text, at))))
        if len(quotes) == QUOTES:
            break
    return "\n".join(quotes) or _nearest(asked) or asked.say("unknown", subject=topic, seen=_seen(asked))


def _around(text: str, at: int) -> str:
    start = max(text.rfind("\n", 0, at) + 1, at - 80)
    return text[start : start + 200]


_COMMON = frozenset(
    ("what", "when", "where", "which", "whose", "that", "this", "there", "your", "with", "have", "does", "about")
)


def _nearest(asked: _Asked) -> str:
    """The user's message, or line of the summary, that shares most words with a question; at least half of them."""
    if not asked.text.rstrip().endswith(("?", "？")):
        return ""
    words = {word for word in re.findall(r"[^\W\d_]{4,}|\w*\d\w*", asked.text.casefold()) if word not in _COMMON}
    best, text, source = 0, "", ""
    candidates = [("from_you", said) for said in reversed(asked.sight.said)]
    candidates += [("from_summary", line[2:]) for line in asked.sight.summary.splitlines() if line.startswith("- ")]
    for where, candidate in candidates:
        folded = candidate.casefold()
        hits = sum(word in folded for word in words)
        if hits > best and not candidate.rstrip().endswith(("?", "？")):
            best, text, source = hits, candidate, where
    if not best or best * 2 < len(words):
        return ""
    return asked.say("found", source=asked.say(source), text=quote(text))


def _echo(asked: _Asked) -> str:
    return asked.say("echo", text=quote(asked.text), seen=_seen(asked))


_RULES: tuple[Rule, ...] = (
    _show_picture,
    _identify,
    _count,
    _first_or_last,
    _recap,
    _recall_fact,
    _recall_topic,
    _nearest,
    _echo,
)

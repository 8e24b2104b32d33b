"""Finds what was corrected: sentences that say so, and statements whose subject was stated otherwise before.

A corrected value must not be shown alone: either it is removed, or its correction is shown with it. The rules look at
the form of single sentences in English and Chinese. They understand nothing, so a correction in other words is missed;
one sentence too many only costs its tokens.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeVar

from msgspec import Struct

from .identifiers import found_in, is_in
from .plain import sentences

SENTENCE_MAX_CHARS: Final = 300
"""Longer sentences are not looked at: they are pasted text."""
NEAR_CHARS: Final = SENTENCE_MAX_CHARS
"""How far around an old value its correction may be."""
SUBJECTS_MAX: Final = 5_000
"""The subjects remembered, and the corrections; the oldest are forgotten first."""

REMEMBERED: Final = 2_048
"""Sentences whose form is remembered, about 1 MB: a compaction looks at each several times."""

_CUE: Final = re.compile(
    r"\b(?:correction|corrected|actually|no longer|instead of|rather than|i was wrong|i misspoke|my mistake|"
    r"(?:has |have |was |is )?(?:changed|moved|switched|renamed|updated) (?:from .{1,60} )?to|replaced (?:by|with)|"
    r"should (?:be|read|have been) .{1,60}\bnot|not .{1,60}\bbut|, not )\b"
    r"|更正|纠正|订正|改为|改成|改到|换成|改用|搞错|说错|弄错|写错|记错|不再是|不是.{1,30}(?:而是|，是)|而不是|应该是|应为|其实是",
    re.IGNORECASE,
)
_STALE: Final = re.compile(
    r"\b(?:not|instead of|rather than|no longer|replaces|from(?=.{1,60} to\b))\s(?P<old>.{1,60}?)"
    r"(?=[,;]|\.(?:\s|$)|\bbut\b|\bto\b|$)"
    r"|(?:不再是|而不是|不是|从|由)(?P<gone>.{1,30}?)(?=而是|改|换|[，。；]|$)",
    re.IGNORECASE,
)
_FORMER: Final = re.compile(
    r"\b(?:was|were|formerly|previously|earlier|originally|used to|old)\b|→|->|原为|原来|原先|之前|旧", re.IGNORECASE
)
_LEAD: Final = re.compile(
    r"^(?:[-*•]\s+)?(?:(?:user|agent|assistant)(?: \([^)]{0,90}\))?:\s*)?"
    r"(?:(?:correction|corrected|update|actually|sorry|no|note|i was wrong|my mistake|wait|remember(?: that)?|"
    r"please note(?: that)?|更正(?:一下)?|纠正(?:一下)?|订正|注意|其实|抱歉|不对|记住|更新)\s*[:,，：;—-]?\s*)*"
    r"(?:the|my|our|your|its|a|an|我们?的?)?\s*",
    re.IGNORECASE,
)
_CLAIM: Final = re.compile(
    r"^(?P<subject>[^,.;:!?，。；：！？]{2,80}?)\s*"
    r"(?:\b(?:is|are|was|were|equals|becomes|will be|should be)\b(?: now| actually)?"
    r"|\b(?:has |have )?(?:been )?(?:changed|moved|set|updated) to\b|\s="
    r"|(?:现在|已经?|应该|应当|其实|目前)?(?:是|改为|改成|变为|变成|换成|改到|改用|应为|定为|等于|叫))"
    r"\s*(?P<value>\S.*)$",
    re.IGNORECASE,
)
_PRONOUNS: Final = frozenset(
    (
        *("it", "this", "that", "there", "he", "she", "they", "we", "i", "you", "what", "which", "who", "here"),
        *("these", "those", "这", "那", "它", "他", "她", "我", "你", "我们", "你们", "他们", "这个", "那个", "这里"),
        *("那里", "就", "不", "还", "都"),
    )
)
T = TypeVar("T")

_CONTENT: Final = re.compile(r"[^\W_\u3400-\u9fff]{3,}|[\u3400-\u9fff]{2}")


class Corrected(Struct, frozen=True):
    sentences: tuple[str, ...]
    """The corrections, oldest first; of several with one subject only the newest."""
    superseded: frozenset[str]
    """Statements that a later one replaces."""
    stale: frozenset[str]
    """Identifiers that only superseded statements hold."""
    replaced: Mapping[str, str]
    """Each of those → the newest sentence that corrects it."""


class _Claim(Struct, frozen=True):
    sentence: str
    value: str


def corrected(said: Iterable[str], before: Sequence[str] = (), known: Sequence[str] = ()) -> Corrected:
    """`said`: what people and the model said, oldest first. `before`: earlier statements. `known`: earlier
    corrections, which stay. An earlier statement that names the value it replaces is one, too: that value may still be
    listed somewhere.
    """
    claims: dict[str, _Claim] = {}
    found: dict[str, str] = {}
    superseded: dict[str, str] = {}
    for sentence in before:
        _take(sentence, claims, found, superseded, is_new=_names_old_value(sentence))
    for sentence in known:
        _take(sentence, claims, found, superseded, is_new=True)
        found.setdefault(_subject(sentence) or sentence, sentence)
    for text in said:
        for sentence in sentences(text):
            _take(sentence, claims, found, superseded, is_new=True)
    replaced = _replaced(found, superseded, claims)
    return Corrected(tuple(found.values()), frozenset(superseded), frozenset(replaced), replaced)


@lru_cache(REMEMBERED)
def _has_cue(sentence: str) -> bool:
    return _CUE.search(sentence) is not None


def _names_old_value(sentence: str) -> bool:
    return len(sentence) <= SENTENCE_MAX_CHARS and _has_cue(sentence) and any(True for _ in _old_values(sentence))


def _take(
    sentence: str, claims: dict[str, _Claim], found: dict[str, str], superseded: dict[str, str], *, is_new: bool
) -> None:
    """`superseded`: the sentence → its subject."""
    if len(sentence) > SENTENCE_MAX_CHARS or sentence.endswith(("?", "？")):
        return
    subject, value = _parted(sentence)
    earlier = claims.get(subject) if subject else None
    is_changed = earlier is not None and _folded(earlier.value) != _folded(value)
    if earlier is not None and is_changed:
        superseded[earlier.sentence] = subject
    if is_new and (is_changed or _has_cue(sentence)):
        _remember(found, subject or sentence, sentence)
    if subject:
        _remember(claims, subject, _Claim(sentence, value))


def _remember(kept: dict[str, T], key: str, value: T) -> None:
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > SUBJECTS_MAX:
        del kept[next(iter(kept))]


def _subject(sentence: str) -> str:
    return _parted(sentence)[0]


@lru_cache(REMEMBERED)
def _parted(sentence: str) -> tuple[str, str]:
    """The subject and the value of a statement; "" where it is none."""
    match = _CLAIM.match(_LEAD.sub("", sentence, count=1))
    if match is None:
        return "", ""
    subject = " ".join(match["subject"].casefold().split())
    return ("", "") if subject in _PRONOUNS or subject.split()[0] in _PRONOUNS else (subject, match["value"])


def _folded(value: str) -> str:
    return " ".join(value.casefold().split()).rstrip(".!。！ ")


def _replaced(found: Mapping[str, str], superseded: Mapping[str, str], claims: dict[str, _Claim]) -> dict[str, str]:
    valid = {name for claim in claims.values() for name in found_in(_without_old(claim.sentence))}
    old = {name: found.get(subject, "") for sentence, subject in superseded.items() for name in found_in(sentence)}
    for sentence in found.values():
        old.update(dict.fromkeys(_old_values(sentence), sentence))
        valid.update(found_in(_without_old(sentence)))
    return {name: sentence for name, sentence in old.items() if name not in valid}


def _old_values(sentence: str) -> Iterable[str]:
    return (name for match in _STALE.finditer(sentence) for name in found_in(match["old"] or match["gone"]))


def _without_old(sentence: str) -> str:
    return _STALE.sub(" ", sentence) if _has_cue(sentence) else sentence


def lacking(summary: str, correction: str) -> bool:
    """Whether the summary speaks of what was corrected, but does not say the corrected value."""
    if correction in summary:
        return False
    names = set(found_in(correction))
    missing = {name for name in names if not is_in(name, summary)}
    subject = _CONTENT.findall(_subject(correction))
    if len(missing) < len(names) or (subject and all(word in summary.casefold() for word in subject)):
        words = missing if names else _CONTENT.findall(_parted(correction)[1] or correction)
        return any(word not in summary for word in words)
    return False


def is_alone(old: str, correction: str, text: str) -> bool:
    """Whether a text has an old value somewhere without saying there that it was corrected. Both values in one long
    list do not say which of them holds.
    """
    at = text.find(old)
    while at >= 0:
        around = text[max(0, at - NEAR_CHARS) : at + len(old) + NEAR_CHARS]
        if is_in(old, around) and correction not in around and not _says_so(old, correction, around):
            return True
        at = text.find(old, at + 1)
    return False


def _says_so(old: str, correction: str, around: str) -> bool:
    new = [name for name in found_in(_without_old(correction)) if name != old]
    return bool(_CUE.search(around) or _FORMER.search(around)) and any(is_in(name, around) for name in new)


def without(old: str, text: str) -> str:
    """The text with a sign for something left out wherever it has this value as a whole."""
    pattern = rf"(?<![A-Za-z0-9]){re.escape(old)}(?![A-Za-z0-9])" if old.isascii() else re.escape(old)
    return re.sub(pattern, "…", text)
